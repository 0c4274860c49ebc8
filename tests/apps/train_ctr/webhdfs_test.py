#!/usr/bin/env python3
"""train_ctr on Parquet files of a WebHDFS server, by two workers and two parameter servers that are killed and started again."""

import pathlib
import sys
import unittest

import stored_clicks

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "datasets" / "parquet"))
# pylint: disable=wrong-import-position
from webhdfs_server import WebHdfs


class WebHdfsTest(stored_clicks.StoredClicksCase):
    environment = {"HADOOP_USER_NAME": "clicks"}

    def make_store(self):
        return WebHdfs()

    def test_a_job_that_was_killed_goes_on_with_the_rows_that_one_process_reads_from_local_files(self):
        # Every range of bytes is first refused, and then cut off.
        faults = {1: "busy", 2: "cut"}
        self.store.on_request = lambda request: faults.get(request.number) if request.role == "datanode" else None
        self.kill_and_resume()
        self.assertEqual({request.user for request in self.store.requests}, {"clicks"})
        self.assertIn(3, {request.number for request in self.store.requests if request.role == "datanode"})

    def test_files_that_are_gone_end_the_job_by_name(self):
        self.delete_files(*range(stored_clicks.FILES))
        text = self.expect_end(self.start(), 3)
        self.assertIn(self.store.name("june/day_*.parquet"), text)


if __name__ == "__main__":
    unittest.main()
