#!/usr/bin/env python3
"""The peer of augment_job: the same changes by torchvision's v2 transforms. Takes and prints the same. The second argument selects the
way: `examples` draws for each image, as a DataLoader's workers do, and stacks the results; `batch` draws once for the whole batch, which is
less work and changes all of its images alike. MixUp always mixes the batch."""

import json
import sys
import time

import torch
from torchvision.transforms import InterpolationMode, v2

CLASSES = 1000


def transform_of(changes, pixels):
    known = {"crop": v2.RandomCrop(pixels, padding=4), "flip": v2.RandomHorizontalFlip(),
             "rotate": v2.RandomRotation(15, interpolation=InterpolationMode.BILINEAR),
             "colour": v2.ColorJitter(brightness=0.4, contrast=0.4, saturation=0.4, hue=0.1)}
    named = [known[name] for name in changes if name != "mixup"]
    return v2.Compose(named) if named else None


def images_per_second(changes, pixels, count, seconds, way, clock):
    images, classes = torch.rand(count, 3, pixels, pixels), torch.randint(0, CLASSES, (count,))
    names = changes.split(",")
    transform = transform_of(names, pixels)
    mixup = v2.MixUp(alpha=1.0, num_classes=CLASSES) if "mixup" in names else None

    def change():
        changed = images
        if transform and way == "batch":
            changed = transform(images)
        elif transform:
            changed = torch.stack([transform(image) for image in images])
        return mixup(changed, classes) if mixup else changed

    change()
    rounds, begin = 0, clock()
    while clock() - begin < seconds:
        change()
        rounds += 1
    return rounds * count / (clock() - begin)


def main():
    threads, way = int(sys.argv[1]), sys.argv[2]
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    clock = time.process_time if threads == 1 else time.perf_counter
    for line in sys.stdin:
        changes, pixels, count, seconds = line.split()
        print(json.dumps({"images_per_second": images_per_second(changes, int(pixels), int(count), float(seconds), way, clock)}), flush=True)


if __name__ == "__main__":
    main()
