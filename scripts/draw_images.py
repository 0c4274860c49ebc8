#!/usr/bin/env python3
"""Draws images to train on where there are no others: draw_images.py FOLDER

Ten folders of 600 grey PNGs of 28x28 pixels, MNIST's size, with a bar whose angle is the class's. The folder appears at
once, whole; one that is there already is left alone.
"""

import math
import os
import pathlib
import random
import shutil
import struct
import sys
import zlib

CLASSES, IMAGES, SIZE, SHIFT = 10, 600, 28, 4


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(lines):
    header = struct.pack(">IIBBBBB", SIZE, SIZE, 8, 0, 0, 0, 0)
    pixels = b"".join(b"\0" + line for line in lines)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(pixels)) + chunk(b"IEND", b"")


def bar(angle):
    """Larger than an image by SHIFT on each side, so that images are cut out of it."""
    side = SIZE + 2 * SHIFT
    across = [(math.sin(angle), -math.cos(angle))] * side
    return [
        bytes(
            max(0, 255 - int(90 * abs((x - side / 2) * sine + (y - side / 2) * cosine)))
            for x, (sine, cosine) in enumerate(across))
        for y in range(side)
    ]


def main():
    folder = pathlib.Path(sys.argv[1])
    if folder.exists():
        return
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    shifts = random.Random(1)
    for label in range(CLASSES):
        (partial / str(label)).mkdir(parents=True)
        lines = bar(label * math.pi / CLASSES)
        for image in range(IMAGES):
            left, top = shifts.randint(0, 2 * SHIFT), shifts.randint(0, 2 * SHIFT)
            cut = [line[left:left + SIZE] for line in lines[top:top + SIZE]]
            (partial / str(label) / f"{image:03}.png").write_bytes(png(cut))
    os.replace(partial, folder)


if __name__ == "__main__":
    main()
