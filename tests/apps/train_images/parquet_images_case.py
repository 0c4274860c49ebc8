"""What tests of train_images on Parquet files share."""

import json
import os
import pathlib
import random
import struct
import subprocess
import tempfile
import unittest
import zlib

import pyarrow as pa
import pyarrow.parquet as pq

PROGRAM = pathlib.Path(os.environ["TRAIN_IMAGES"])
CLASSES = ["cat", "dog", "owl"]
TRAINING = ["--threads", 1, "--precision", "float64", "--learning-rate-schedule", "constant"]


def png(pixels):
    """Returns a grey image of 28 x 28 pixels."""
    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    rows = b"".join(b"\0" + pixels[28 * row:28 * (row + 1)] for row in range(28))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 28, 28, 8, 0, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def images(seed, count):
    """Returns images, and their classes, which say how bright they are."""
    draw = random.Random(seed)
    labels = [draw.randrange(3) for _ in range(count)]
    return [png(bytes(draw.randrange(60) + 90 * label for _ in range(28 * 28))) for label in labels], labels


class ParquetImagesCase(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)

    def write(self, name, files, labels, **options):
        (self.folder / name).parent.mkdir(exist_ok=True)
        pq.write_table(pa.table({"image": files, "label": labels}), self.folder / name, row_group_size=10, **options)

    def train(self, *arguments, code=0, workers=0, **environment):
        command = [PROGRAM.parent / "lockstep_launch_local", str(workers), PROGRAM] if workers else [PROGRAM]
        process = subprocess.run([*command, *map(str, [*TRAINING, *arguments])], capture_output=True, text=True, timeout=300,
                                 cwd=self.folder, check=False, env=os.environ | environment)
        self.assertEqual(process.returncode, code, process.stdout + process.stderr)
        return process

    def losses(self, run, kind):
        text = (self.folder / run / "metrics.jsonl").read_text(encoding="utf-8")
        return [line["loss" if kind == "step" else "validation_loss"] for line in map(json.loads, text.splitlines()) if line["kind"] == kind]
