#!/usr/bin/env python3
"""The peer of augment_job: the same changes by torchvision's v2 transforms, on one thread. Takes the same arguments and prints the
same line. The fifth argument selects the mode: `examples` draws for each image, as a DataLoader's workers do, and stacks the results; `batch`
draws once for the whole batch, which is less work and changes all of its images alike."""

import json
import sys
import time

import torch
from torchvision.transforms import InterpolationMode, v2


def transform_of(changes, pixels):
    known = {"crop": v2.RandomCrop(pixels, padding=4), "flip": v2.RandomHorizontalFlip(),
             "rotate": v2.RandomRotation(15, interpolation=InterpolationMode.BILINEAR),
             "colour": v2.ColorJitter(brightness=0.4, contrast=0.4, saturation=0.4, hue=0.1)}
    return v2.Compose([known[name] for name in changes.split(",")])


def main():
    changes, pixels, count, seconds, how = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]), sys.argv[5]
    torch.set_num_threads(1)
    torch.manual_seed(1)
    images = torch.rand(count, 3, pixels, pixels)
    transform = transform_of(changes, pixels)

    def change():
        if how == "batch":
            return transform(images)
        return torch.stack([transform(image) for image in images])

    change()
    rounds, begin = 0, time.process_time()
    while time.process_time() - begin < seconds:
        change()
        rounds += 1
    print(json.dumps({"images_per_second": rounds * count / (time.process_time() - begin)}))


if __name__ == "__main__":
    main()
