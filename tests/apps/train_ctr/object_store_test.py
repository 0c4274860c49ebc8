#!/usr/bin/env python3
"""train_ctr on Parquet files of an S3 server, by two workers and two parameter servers that are killed and started again."""

import pathlib
import sys
import unittest

import stored_clicks

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "datasets" / "parquet"))
# pylint: disable=wrong-import-position
from object_store import ObjectStore

LOSSES = stored_clicks.LOSSES


class ObjectStoreTest(stored_clicks.StoredClicksCase):
    environment = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_EC2_METADATA_DISABLED": "true"}

    def make_store(self):
        return ObjectStore("clicks")

    def test_a_job_that_was_killed_goes_on_with_the_rows_that_one_process_reads_from_local_files(self):
        self.kill_and_resume()

    def test_a_store_that_fails_for_a_while_changes_nothing_and_one_that_is_gone_ends_the_job(self):
        alone = self.run_on_local_files()
        self.store.on_request = lambda request: "busy" if request.number == 1 and request.method == "GET" else None
        text = self.expect_end(self.start())
        self.assertEqual(LOSSES.findall(text), LOSSES.findall(alone.stdout))
        self.delete_files(2)
        text = self.expect_end(self.start())
        self.assertNotEqual(LOSSES.findall(text), LOSSES.findall(alone.stdout))
        self.delete_files(0, 1, 3)
        text = self.expect_end(self.start(), 3)
        self.assertRegex(text, r"s3://clicks/june/day_\*\.parquet")
        self.assertNotIn("endpoint_override", text)


if __name__ == "__main__":
    unittest.main()
