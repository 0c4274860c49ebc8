"""Shared by tests of train_ctr on Parquet files of a store."""

import io
import random
import re

import pyarrow
import pyarrow.parquet

import train_ctr_case

ROWS, FILES = 20000, 4
WORK = ["--test-share", 0.1, "--global-batch-size", 256, "--table-rows", 5000, "--precision", "float64", "--log-every", 5,
        "--parquet-memory", "4MiB", "--steps", 140]
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


class StoredClicksCase(train_ctr_case.TrainCtrCase):
    """The same files in a store and in a local folder. Subclasses make the store."""

    environment = {}

    def make_store(self):
        raise NotImplementedError

    def setUp(self):
        super().setUp()
        self.store = self.enterContext(self.make_store())
        (self.folder / "clicks").mkdir()
        for i in range(FILES):
            content = clicks(i, ROWS // FILES)
            self.store.put(f"june/day_{i}.parquet", content)
            (self.folder / "clicks" / f"day_{i}.parquet").write_bytes(content)
        self.data = self.store.uri("june/day_*.parquet")

    def start(self, *arguments):
        return self.start_job("--data", self.data, *WORK, "--max-staleness", 0, *arguments, **self.environment)

    def run_on_local_files(self):
        alone = self.run_alone("--data", self.folder / "clicks", *WORK, "--threads", 1)
        self.assertEqual(alone.returncode, 0, alone.stderr)
        return alone

    def kill_and_resume(self):
        """Compares the steps of a job that is killed, and started again, with those of one process on local files."""
        alone = self.run_on_local_files()
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

    def delete_files(self, *numbers):
        for i in numbers:
            self.store.delete(f"june/day_{i}.parquet")
