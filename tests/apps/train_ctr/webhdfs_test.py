#!/usr/bin/env python3
"""train_ctr on Parquet files of a WebHDFS server, by two workers and two parameter servers that are killed and started again."""

import pathlib
import re
import sys
import time
import unittest

import stored_clicks

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "datasets" / "parquet"))
# pylint: disable=wrong-import-position
from webhdfs_server import WebHdfs

WORK = stored_clicks.WORK
STAGE = re.compile(r"^  (\w+(?: \w+)*) +(\d+\.\d\d) +(\S+) +\S+$", re.MULTILINE)


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

    def test_a_store_that_is_slow_limits_the_speed(self):
        self.store.on_request = lambda request: time.sleep(0.2 if request.role == "datanode" else 0)
        result = self.run_alone("--data", self.data, *WORK, "--steps", 20, "--profile-input")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("  store limits the speed: ", result.stdout)
        stages = {name: (float(seconds), rate) for name, seconds, rate in STAGE.findall(result.stdout)}
        self.assertEqual(list(stages), ["store", "decode", "wait for these", "order", "gather", "map", "copy", "training"])
        seconds, rate = stages["store"]
        self.assertGreater(seconds, 1)
        # At least the rows of all steps were read at this rate.
        self.assertGreater(1.01 * seconds * int(rate.replace(",", "")), 20 * 256)

    def test_files_that_are_gone_end_the_job_by_name(self):
        self.delete_files(*range(stored_clicks.FILES))
        text = self.expect_end(self.start(), 3)
        self.assertIn(self.store.name("june/day_*.parquet"), text)


if __name__ == "__main__":
    unittest.main()
