#!/usr/bin/env python3
"""Measures how many float32 RGB images a second ImageAugmentation and torchvision's v2 transforms change, each on one core, with the
same changes in the same ranges. Each measurement is a process of its own; the two alternate, and the order is
swapped after each pair. Prints a table in Markdown. Lockstep's images are in the channels-last layout, as its datasets give them, and
torchvision's are contiguous, as its decoders give them.

torchvision runs in two ways: `examples` calls it for each image, as a DataLoader does, so that each gets changes of its own, as
ImageAugmentation gives them; `batch` calls it once for all, so that the whole batch gets the same change. Run it with a Python that
has torchvision.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
# pylint: disable=wrong-import-position
from markdown_results import median_interval, print_table

PATIENCE = 600  # seconds
BAR = 1.5
SIZES = {32: 256, 224: 32}  # pixels: images of a batch
CHANGES = ["crop,flip", "crop,flip,rotate", "colour", "crop,flip,rotate,colour"]
WAYS = ["examples", "batch"]
PEER = str(ROOT / "benchmarks" / "peers" / "torchvision_augmentation.py")


def measure(arguments, changes, pixels, way):
    """The speeds of Lockstep and of torchvision, one of each a pair."""
    what = [changes, str(pixels), str(SIZES[pixels])]
    commands = ([arguments.build + "/bin/augment_job", *what], [sys.executable, PEER, *what, way])
    speeds = ([], [])
    for pair in range(arguments.pairs):
        for side in ((0, 1), (1, 0))[pair % 2]:
            command = commands[side]
            at = 4 + side  # the seconds come after the number of images
            process = subprocess.run([*command[:at], str(arguments.seconds), *command[at:]], check=True, stdout=subprocess.PIPE,
                                     timeout=PATIENCE)
            speeds[side].append(json.loads(process.stdout)["images_per_second"])
    return speeds


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--changes", nargs="+", choices=CHANGES, default=CHANGES, help="what is measured (all)")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS, help="ways to run torchvision (both)")
    parser.add_argument("--pairs", type=int, default=15, help="measurements of each side; at least 6 (15)")
    parser.add_argument("--seconds", type=float, default=1, help="a measurement (1)")
    parser.add_argument("--build", default="build/release", help="a folder with bin/augment_job (build/release)")
    arguments = parser.parse_args()
    if arguments.pairs < 6:
        parser.error(f"--pairs: expected at least 6, but got {arguments.pairs}")
    if not (pathlib.Path(arguments.build) / "bin" / "augment_job").exists():
        parser.error(f"--build: expected a folder with bin/augment_job, but got '{arguments.build}'")
    return arguments


def main():
    arguments = parse()
    print(f"{time.strftime('%Y-%m-%d')}, one core, {arguments.pairs} pairs.", flush=True)
    results = []
    for way in arguments.ways:
        for pixels, count in SIZES.items():
            for changes in arguments.changes:
                ours, theirs = measure(arguments, changes, pixels, way)
                middle, low, high = median_interval([our / their for our, their in zip(ours, theirs)])
                results.append([way, f"{count} of {pixels}x{pixels}", changes, f"{statistics.median(ours):,.0f}",
                                f"{statistics.median(theirs):,.0f}", f"{middle:.1f} ({low:.1f} to {high:.1f})", str(BAR)])
                print(", ".join(results[-1]), file=sys.stderr, flush=True)
    print_table(["torchvision", "images", "changes", "Lockstep, images/s", "torchvision, images/s", "ratio", "bar"], results)


if __name__ == "__main__":
    main()
