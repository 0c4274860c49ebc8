#!/usr/bin/env python3
"""train_images on Parquet files of an S3 server: as on local ones, resumed, and while the store fails."""

import pathlib
import sys
import unittest

from parquet_images_case import ParquetImagesCase, images

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "datasets" / "parquet"))
# pylint: disable=wrong-import-position
from object_store import ObjectStore

KEYS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_EC2_METADATA_DISABLED": "true"}
WORK = ["--global-batch-size", 8, "--epochs", 2, "--log-every", 1, "--parquet-memory", "64KiB"]


class StoredImagesTest(ParquetImagesCase):
    def setUp(self):
        super().setUp()
        self.store = self.enterContext(ObjectStore("photos"))

    def put(self, name, seed, count):
        (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
        self.write(name, *images(seed, count))
        self.store.put(name, (self.folder / name).read_bytes())

    def expect_same(self, run, other):
        for kind in ("step", "epoch"):
            self.assertEqual(self.losses(run, kind), self.losses(other, kind))
            self.assertTrue(self.losses(other, kind))

    def test_a_training_is_that_on_local_files_and_goes_on(self):
        for i in range(2):
            self.put(f"images/{i}.parquet", i, 30)
        self.train("--data", "images", *WORK, "--run-dir", "local")
        # Each request fails at first.
        self.store.on_request = lambda request: "busy" if request.number == 1 and request.method == "GET" else None
        data = self.store.uri("images/*.parquet")
        for epochs in (1, 2):
            self.train("--data", data, *WORK, "--epochs", epochs, "--backup-dir", "backup", "--run-dir", f"stored{epochs}", **KEYS)
        for kind in ("step", "epoch"):
            self.assertEqual(self.losses("stored1", kind) + self.losses("stored2", kind), self.losses("local", kind))

    def test_files_to_test_on_are_told_apart_by_their_names(self):
        for layout, number in (("{}-00000-of-00001.parquet", 0), ("{}/a.parquet", 1)):
            with self.subTest(layout):
                for seed, part in enumerate(("train", "test")):
                    self.put(f"layout{number}/" + layout.format(part), seed, 24)
                self.train("--data", f"layout{number}", *WORK, "--run-dir", f"local{number}")
                self.train("--data", self.store.uri(f"layout{number}/"), *WORK, "--run-dir", f"stored{number}", **KEYS)
                self.expect_same(f"stored{number}", f"local{number}")
        named = ["--data", self.store.uri("layout0/train*"), "--test-data", self.store.uri("layout0/test-00000-of-00001.parquet")]
        self.train(*named, *WORK, "--run-dir", "named", **KEYS)
        self.expect_same("named", "local0")

    def test_a_store_that_is_gone_is_named_even_if_bad_images_may_be_left_out(self):
        self.put("images/0.parquet", 0, 30)
        self.store.on_request = lambda request: "busy" if len(self.store.requests) > 8 else None
        error = self.train("--data", self.store.uri("images/"), "--skip-bad", "--global-batch-size", 8, code=3, **KEYS).stderr
        self.assertIn("s3://photos/images/0.parquet", error)
        self.assertNotIn("endpoint_override", error)


if __name__ == "__main__":
    unittest.main()
