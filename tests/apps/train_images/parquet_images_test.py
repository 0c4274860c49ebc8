#!/usr/bin/env python3
"""train_images on Parquet files: as on folders of the same images, resumed, and on two workers."""

import json
import unittest

from parquet_images_case import CLASSES, ParquetImagesCase, images


class ParquetImagesTest(ParquetImagesCase):
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

    def test_another_memory_is_refused_if_the_rest_of_the_images_would_come_in_another_order(self):
        for i in range(2):
            self.write(f"images/{i}.parquet", *images(i, 40))
        work = ["--data", "images/*.parquet", "--global-batch-size", 8, "--steps-per-epoch", 4, "--backup-dir", "backup"]
        self.train(*work, "--parquet-memory", "32KiB", "--epochs", 1)
        error = self.train(*work, "--parquet-memory", "1GiB", "--epochs", 2, code=4).stderr
        self.assertRegex(error, r"parquet-memory 32KiB -> 1GiB(.|\n)*expected to resume within an epoch of .* in \d lanes, but got .* in 8 lanes")
        self.train(*work, "--parquet-memory", "32769", "--epochs", 2)

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
