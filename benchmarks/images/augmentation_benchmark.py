#!/usr/bin/env python3
"""Measures how many float32 RGB images a second Lockstep and torchvision's v2 transforms change, with the same changes in the same
ranges, on one core and on two. Each side keeps its processes; the sides alternate, and the order is swapped after each round. Prints a
table in Markdown. Lockstep's images are in the channels-last layout, as its datasets give them, and torchvision's are contiguous, as its
decoders give them.

Lockstep runs as many processes of one thread as there are cores, since a strategy has a replica on each.

torchvision runs in two ways: `examples` calls it for each image, as a DataLoader does, so that each gets changes of its own, as
ImageAugmentation gives them, in as many processes of one thread as there are cores; `batch` calls it once for all, in one process with
as many threads, so that the whole batch gets the same change. Run it with a Python that has torchvision.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
# pylint: disable=wrong-import-position
from markdown_results import median_interval, print_table

BAR = 1.5
SIZES = {28: 256, 32: 256, 224: 32}  # pixels: images of a batch
EVERYTHING = "crop,flip,rotate,colour,mixup"
CHANGES = ["crop", "flip", "rotate", "colour", "mixup", EVERYTHING]
PEER = str(ROOT / "benchmarks" / "peers" / "torchvision_augmentation.py")


class Side:
    """Processes that measure at the same time."""

    def __init__(self, command, count=1, allocator=None):
        environment = {**os.environ, "OMP_WAIT_POLICY": "passive"}
        if allocator:
            environment.update(LD_PRELOAD=allocator, MALLOC_CONF="dirty_decay_ms:-1,muzzy_decay_ms:-1")
        self.processes = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
                          for _ in range(count)]

    def images_per_second(self, changes, pixels, seconds):
        for process in self.processes:
            process.stdin.write(f"{changes} {pixels} {SIZES[pixels]} {seconds}\n")
            process.stdin.flush()
        return sum(json.loads(process.stdout.readline())["images_per_second"] for process in self.processes)

    def end(self):
        for process in self.processes:
            process.stdin.close()
            process.wait()


def measure(sides, changes, pixels, arguments):
    """The speeds of each side, one of each a round."""
    speeds = [[] for _ in sides]
    for pair in range(arguments.pairs):
        order = list(range(len(sides)))
        for side in order if pair % 2 == 0 else reversed(order):
            speeds[side].append(sides[side].images_per_second(changes, pixels, arguments.seconds))
    return speeds


def measure_all(arguments, cores):
    sides = [Side([arguments.build + "/bin/augment_job", "1"], cores), Side([sys.executable, PEER, "1", "examples"], cores, arguments.allocator),
             Side([sys.executable, PEER, str(cores), "batch"], 1, arguments.allocator)]
    for pixels in arguments.sizes:
        for changes in arguments.changes:
            ours, *theirs = measure(sides, changes, pixels, arguments)
            row = [str(cores), f"{pixels}x{pixels}", changes, f"{statistics.median(ours):,.0f}"]
            for speeds in theirs:
                middle, low, high = median_interval([our / their for our, their in zip(ours, speeds)])
                row.append(f"{middle:.2f} ({low:.2f} to {high:.2f})")
            print("| " + " | ".join(row) + " |", file=sys.stderr, flush=True)
            yield row
    for side in sides:
        side.end()


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--changes", nargs="+", choices=CHANGES, default=CHANGES, help="what is measured (all)")
    parser.add_argument("--sizes", nargs="+", type=int, choices=SIZES, default=[28, 224], help="pixels of a side (28 224)")
    parser.add_argument("--cores", nargs="+", type=int, default=[1, 2], help="numbers of cores (1 2)")
    parser.add_argument("--pairs", type=int, default=15, help="measurements of each side; at least 6 (15)")
    parser.add_argument("--seconds", type=float, default=0.25, help="a measurement (0.25)")
    parser.add_argument("--allocator", help="jemalloc's library, for torchvision to use as Lockstep's programs do (the system's allocator)")
    parser.add_argument("--build", default="build/release", help="a folder with bin/augment_job (build/release)")
    arguments = parser.parse_args()
    if arguments.pairs < 6:
        parser.error(f"--pairs: expected at least 6, but got {arguments.pairs}")
    if not (pathlib.Path(arguments.build) / "bin" / "augment_job").exists():
        parser.error(f"--build: expected a folder with bin/augment_job, but got '{arguments.build}'")
    return arguments


def main():
    arguments = parse()
    rows = [row for cores in arguments.cores for row in measure_all(arguments, cores)]
    print(f"{time.strftime('%Y-%m-%d')}, {arguments.pairs} pairs, bar {BAR}.", flush=True)
    print_table(["cores", "images", "changes", "Lockstep, images/s", "to torchvision on examples", "on batches"], rows)


if __name__ == "__main__":
    main()
