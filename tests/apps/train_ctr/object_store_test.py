#!/usr/bin/env python3
"""train_ctr on Parquet files of an S3 server, by two workers and two parameter servers that are killed and started again."""

import io
import os
import pathlib
import random
import re
import sys
import unittest

import pyarrow
import pyarrow.parquet

import train_ctr_case

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "datasets" / "parquet"))
# pylint: disable=wrong-import-position
from object_store import ObjectStore

ROWS, FILES = 20000, 4
WORK = ["--test-share", 0.1, "--global-batch-size", 256, "--table-rows", 5000, "--precision", "float64", "--log-every", 5,
        "--parquet-memory", "4MiB", "--steps", 140]
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_EC2_METADATA_DISABLED": "true"}
LOSSES = re.compile(r"step (\d+)/140  loss (\S+)")


def clicks(seed, count):
    """A file of click logs, where the first category says how likely a click is."""
    draw = random.Random(seed)
    categories = [[draw.choice([None, *range(20)]) for _ in range(count)] for _ in range(26)]
    columns = {"label": pyarrow.array([int(draw.random() < (first or 0) / 20) for first in categories[0]], pyarrow.int8())}
    for i in range(13):
        columns[f"I{i + 1}"] = pyarrow.array([draw.choice([None, 0, 3, 1000]) for _ in range(count)], pyarrow.int32())
    for i, values in enumerate(categories):
        texts = [None if value is None else f"{value:08x}" for value in values]
        columns[f"C{i + 1}"] = pyarrow.array(texts, pyarrow.string())
    file = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(columns), file, row_group_size=700, write_page_checksum=True)
    return file.getvalue()


class ObjectStoreTest(train_ctr_case.TrainCtrCase):
    def setUp(self):
        super().setUp()
        self.store = self.enterContext(ObjectStore("clicks"))
        (self.folder / "clicks").mkdir()
        for i in range(FILES):
            content = clicks(i, ROWS // FILES)
            self.store.put(f"june/day_{i}.parquet", content)
            (self.folder / "clicks" / f"day_{i}.parquet").write_bytes(content)
        self.data = self.store.uri("june/day_*.parquet")

    def start(self, *arguments):
        return self.start_job("--data", self.data, *WORK, "--max-staleness", 0, *arguments, **CREDENTIALS)

    def test_a_job_that_was_killed_goes_on_with_the_rows_that_one_process_reads_from_local_files(self):
        alone = self.run_alone("--data", self.folder / "clicks", *WORK, "--threads", 1)
        self.assertEqual(alone.returncode, 0, alone.stderr)
        expected = dict(LOSSES.findall(alone.stdout))
        self.assertEqual(len(expected), 28)
        backup = self.folder / "backup"
        # The second epoch of 71 steps has begun.
        job = self.start("--backup-dir", backup, "--save-every", "10 steps")
        job.wait_for(r"step 90/140")
        job.kill()
        before = dict(LOSSES.findall(job.text()))
        text = self.expect_end(self.start("--backup-dir", backup, "--save-every", "10 steps"))
        resumed = int(self.number(r"140 of 256 rows, from step (\d+) on", text))
        self.assertGreater(resumed, 60)
        after = dict(LOSSES.findall(text))
        self.assertEqual(before, {step: expected[step] for step in before})
        self.assertEqual(after, {step: loss for step, loss in expected.items() if int(step) > resumed})
        self.assertEqual(re.search(r"AUC (\S+),", text).group(1), re.search(r"AUC (\S+),", alone.stdout).group(1))

    def test_a_store_that_fails_for_a_while_changes_nothing_and_one_that_is_gone_ends_the_job(self):
        alone = self.run_alone("--data", self.folder / "clicks", *WORK, "--threads", 1)
        self.store.on_request = lambda request: "busy" if request.number == 1 and request.method == "GET" else None
        text = self.expect_end(self.start())
        self.assertEqual(LOSSES.findall(text), LOSSES.findall(alone.stdout))
        self.store.delete("june/day_2.parquet")
        text = self.expect_end(self.start())
        self.assertNotEqual(LOSSES.findall(text), LOSSES.findall(alone.stdout))
        for i in (0, 1, 3):
            self.store.delete(f"june/day_{i}.parquet")
        text = self.expect_end(self.start(), 3)
        self.assertRegex(text, r"s3://clicks/june/day_\*\.parquet")
        self.assertNotIn("endpoint_override", text)


if __name__ == "__main__":
    unittest.main()
