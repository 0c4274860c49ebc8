#!/usr/bin/env python3
"""Resumes train_ctr on Parquet files with another --parquet-memory, on which the order of the rows depends."""

import re
import unittest

import stored_clicks
import train_ctr_case

WORK = ["--test-share", 0.1, "--global-batch-size", 256, "--table-rows", 1000, "--precision", "float64", "--log-every", 1]


class ParquetResumeTest(train_ctr_case.TrainCtrCase):
    def setUp(self):
        super().setUp()
        clicks = self.folder / "clicks"
        clicks.mkdir()
        for i in range(2):
            (clicks / f"day_{i}.parquet").write_bytes(stored_clicks.clicks(i, 7000))
        self.work = ["--data", clicks, *WORK]
        self.saved = [*self.work, "--backup-dir", self.folder / "backup", "--save-every", "5 steps"]

    def losses(self, process):
        return re.findall(r"step \d+/\d+  loss (\S+)", process.stdout)

    def test_a_memory_that_changes_the_order_is_refused(self):
        whole = self.run_alone(*self.work, "--steps", 12, "--parquet-memory", "4MiB")
        begun = self.run_alone(*self.saved, "--steps", 6, "--parquet-memory", "4MiB")
        refused = self.run_alone(*self.saved, "--steps", 12, "--parquet-memory", "64MiB")
        self.assertEqual((refused.returncode, self.losses(refused)), (4, []), refused.stderr)
        self.assertIn("--parquet-memory 64MiB: expected 4MiB, with which the checkpoint was made", refused.stderr)
        ended = self.run_alone(*self.saved, "--steps", 12, "--parquet-memory", "4194305")
        self.assertEqual(self.losses(begun) + self.losses(ended), self.losses(whole))

    def test_a_memory_that_changes_the_order_is_refused_with_parameter_servers(self):
        self.expect_end(self.start_job(*self.saved, "--steps", 6, "--parquet-memory", "4MiB", "--max-staleness", 0))
        text = self.expect_end(self.start_job(*self.saved, "--steps", 12, "--parquet-memory", "64MiB", "--max-staleness", 0), 4)
        self.assertIn("--parquet-memory 64MiB: expected 4MiB, with which the checkpoint was made", text)
        text = self.expect_end(self.start_job(*self.saved, "--steps", 12, "--parquet-memory", "4194305", "--max-staleness", 0))
        self.assertIn("step 12/12", text)


if __name__ == "__main__":
    unittest.main()
