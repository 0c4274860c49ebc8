#!/usr/bin/env python3
"""train_images on Parquet files: as on folders of the same images, resumed, and on two workers."""

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


class ParquetImagesTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)

    def write(self, name, files, labels, **options):
        (self.folder / name).parent.mkdir(exist_ok=True)
        pq.write_table(pa.table({"image": files, "label": labels}), self.folder / name, row_group_size=10, **options)

    def train(self, *arguments, code=0, workers=0):
        command = [PROGRAM.parent / "lockstep_launch_local", str(workers), PROGRAM] if workers else [PROGRAM]
        process = subprocess.run([*command, *map(str, [*TRAINING, *arguments])], capture_output=True, text=True, timeout=300,
                                 cwd=self.folder, check=False)
        self.assertEqual(process.returncode, code, process.stdout + process.stderr)
        return process

    def losses(self, run, kind):
        text = (self.folder / run / "metrics.jsonl").read_text(encoding="utf-8")
        return [line["loss" if kind == "step" else "validation_loss"] for line in map(json.loads, text.splitlines()) if line["kind"] == kind]

    def test_a_training_on_whole_batches_is_that_on_folders_of_the_same_images(self):
        for part, count in (("train", 60), ("test", 25)):
            files, labels = images(part, count)
            for i, (file, label) in enumerate(zip(files, labels)):
                path = self.folder / "folders" / part / CLASSES[label] / f"{i:03}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(file)
            # As Hugging Face's datasets write images and labels, and as names of classes.
            structs = [{"bytes": file, "path": f"{i}.png"} for i, file in enumerate(files)]
            self.write(f"numbers/{part}-00000-of-00001.parquet", structs, labels)
            self.write(f"names/{part}.parquet", files, [CLASSES[label] for label in labels], compression="zstd")
        work = ["--global-batch-size", 60, "--epochs", 3, "--log-every", 1]
        self.train("--data", "folders", *work, "--run-dir", "a")
        self.train("--data", "numbers", *work, "--run-dir", "b")
        self.train("--data", "names/train.parquet", "--test-data", "names/test.parquet", *work, "--run-dir", "c")
        for kind in ("step", "epoch"):
            expected = self.losses("a", kind)
            self.assertEqual(len(expected), 3)
            self.assertNotAlmostEqual(expected[-1], expected[0], places=2)
            for run in ("b", "c"):
                for loss, other in zip(expected, self.losses(run, kind), strict=True):
                    self.assertAlmostEqual(loss, other, delta=1e-9 * abs(loss))
        record = (self.folder / "c" / "config.json").read_text(encoding="utf-8")
        self.assertEqual(json.loads(record)["values"]["test-data"]["value"], "names/test.parquet")

    def test_a_training_goes_on_anywhere_in_the_files(self):
        for i in range(3):
            self.write(f"images/{i}.parquet", *images(i, 40))
        # A pass over the 108 images to train on takes 14 steps.
        work = ["--data", "images/*.parquet", "--test-share", 0.1, "--parquet-memory", "64KiB", "--global-batch-size", 8,
                "--steps-per-epoch", 5, "--log-every", 1, "--augment", "crop=2,flip"]
        self.train(*work, "--epochs", 6, "--run-dir", "whole")
        for epochs, run in ((1, "begun"), (4, "continued"), (6, "ended")):
            self.train(*work, "--epochs", epochs, "--run-dir", run, "--backup-dir", "backup", "--replicas", 2)
        steps = [loss for run in ("begun", "continued", "ended") for loss in self.losses(run, "step")]
        expected = self.losses("whole", "step")
        self.assertEqual(len(expected), 30)
        for loss, other in zip(expected, steps, strict=True):
            self.assertAlmostEqual(loss, other, delta=1e-9 * abs(loss))

    def test_two_workers_train_as_one(self):
        self.write("images/a.parquet", *images(1, 80))
        work = ["--data", "images", "--global-batch-size", 8, "--epochs", 2, "--log-every", 1]
        self.train(*work, "--run-dir", "one")
        self.train(*work, "--run-dir", "two", workers=2)
        # A worker's losses of steps are those of its own images.
        expected = self.losses("one", "epoch")
        self.assertEqual(len(expected), 2)
        for loss, other in zip(expected, self.losses("two", "epoch"), strict=True):
            self.assertAlmostEqual(loss, other, delta=1e-9 * abs(loss))

    def test_bad_images_are_named_or_left_out(self):
        files, labels = images(1, 40)
        files[17] = b"no image"
        self.write("images/a.parquet", files, labels)
        work = ["--data", "images/a.parquet", "--global-batch-size", 8, "--epochs", 1]
        error = self.train(*work, code=3).stderr
        self.assertIn("images/a.parquet: row group 1: row 7: signature: expected that of a PNG", error)
        self.assertIn("--skip-bad leaves out images that cannot be read", error)
        self.assertIn("1 damaged image", self.train(*work, "--skip-bad").stdout)
        self.assertIn("expected one named 'kind', but got image, label", self.train(*work, "--label-column", "kind", code=3).stderr)
        self.assertIn("--image-cache device: expected folders of images", self.train(*work, "--image-cache", "device", code=2).stderr)


if __name__ == "__main__":
    unittest.main()
