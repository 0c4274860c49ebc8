#!/usr/bin/env python3
"""train_gpt on Parquet files of an S3 server: as on local ones, resumed, and while the store fails."""

import pathlib
import sys
import unittest

from parquet_tokens_case import TOKENS, ParquetTokensCase, documents

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "datasets" / "parquet"))
# pylint: disable=wrong-import-position
from object_store import ObjectStore

KEYS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_EC2_METADATA_DISABLED": "true"}


class StoredTokensTest(ParquetTokensCase):
    def setUp(self):
        super().setUp()
        self.store = self.enterContext(ObjectStore("books"))

    def put(self, name, column, values):
        self.write(name, column, values)
        self.store.put(name, (self.folder / name).read_bytes())

    def test_a_training_is_that_on_local_files_and_goes_on(self):
        for i in range(3):
            self.put(f"lists/{i}.parquet", "tokens", documents(i, 50))
        work = [*TOKENS, "--parquet-memory", "4KiB", "--global-batch-size", 16, "--test-every", 5]
        self.train("--data", "lists", *work, "--steps", 15, "--run-dir", "local")
        # Each request fails at first.
        self.store.on_request = lambda request: "busy" if request.number == 1 and request.method == "GET" else None
        for steps in (5, 15):
            self.train("--data", self.store.uri("lists/*.parquet"), *work, "--steps", steps, "--run-dir", f"stored{steps}",
                       "--backup-dir", "backup", **KEYS)
        steps = self.losses("stored5", "step") + self.losses("stored15", "step")
        self.expect_equal(steps, self.losses("local", "step"), 15)

    def test_text_is_that_of_local_files(self):
        texts = ["".join(chr(97 + token % 26) for token in document) for document in documents(2, 60)]
        self.put("text/a.parquet", "text", texts)
        work = ["--global-batch-size", 8, "--steps", 8, "--test-every", 4]
        self.train("--data", "text", *work, "--run-dir", "local")
        self.train("--data", self.store.uri("text/"), *work, "--token-cache", "cache", "--run-dir", "stored", **KEYS)
        self.expect_equal(self.losses("stored", "step"), self.losses("local", "step"), 8)

    def test_a_store_that_fails_is_named_and_chooses_no_other_column(self):
        self.put("lists/0.parquet", "tokens", documents(1, 50))
        self.store.on_request = lambda request: "busy" if len(self.store.requests) > 3 else None
        error = self.train("--data", self.store.uri("lists/0.parquet"), *TOKENS, "--global-batch-size", 8, "--steps", 2, code=3, **KEYS).stderr
        self.assertIn("s3://books/lists/0.parquet", error)
        self.assertNotIn("--parquet-column", error)
        self.assertNotIn("endpoint_override", error)


if __name__ == "__main__":
    unittest.main()
