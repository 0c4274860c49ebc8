#!/usr/bin/env python3
"""train_ctr whose tables are larger than the memory of their parameter servers."""

import math
import os
import pathlib
import random
import re
import signal
import subprocess
import threading
import unittest

import train_ctr_case

# Each server has the least memory that rows on disk can have. Rows of 128 float32, with Adagrad's sums, take 1 KiB.
MEMORY, SERVERS, COLUMNS = 24 << 20, 2, 128
# Bytes that a row in memory takes beside its record: its place in the order of use, and its chain of the hash table.
ROW_BYTES = 2 * 4 * COLUMNS + 36
LOSSES = re.compile(r"step (\d+)/80  loss (\S+)")


def write_clicks(path, count):
    """Click logs, ten of whose categories say how likely a click is; the other ones hardly occur twice."""
    draw = random.Random(7)
    effects = {}
    with path.open("w", encoding="ascii") as file:
        for _ in range(count):
            frequent = [(column, int(1000 ** draw.random())) for column in range(10)]
            score = sum(effects.setdefault(category, draw.gauss(0, 1)) for category in frequent)
            fields = [str(int(draw.random() < 1 / (1 + math.exp(-score)))), *["1"] * 13]
            fields += [f"{column * 65536 + category:08x}" for column, category in frequent]
            fields += [f"{draw.randrange(1 << 31):08x}" for _ in range(16)]
            file.write("\t".join(fields) + "\n")


class MemoryOfServers:
    """The most memory, without mapped files, that servers of a job take from now on beyond what they take now."""

    def __init__(self, job):
        self.job, self.most = job, 0
        self.first = min(self.taken())
        self.is_done = threading.Event()
        self.thread = threading.Thread(target=self.watch, daemon=True)
        self.thread.start()

    def taken(self):
        for server in range(SERVERS):
            for process in self.job.processes_of("ps", server):
                try:
                    status = pathlib.Path(f"/proc/{process}/status").read_text(encoding="ascii")
                except OSError:
                    continue
                if found := re.search(r"RssAnon:\s+(\d+) kB", status):
                    yield int(found.group(1)) << 10

    def watch(self):
        while not self.is_done.wait(0.1):
            self.most = max([self.most, *self.taken()])

    def end(self):
        self.is_done.set()
        self.thread.join()
        return self.most - self.first


class RowsOnDiskTest(train_ctr_case.TrainCtrCase):
    def setUp(self):
        super().setUp()
        self.data = self.folder / "clicks.tsv"
        write_clicks(self.data, 20000)

    def work(self, *arguments):
        return ["--data", self.data, "--test-share", 0.2, "--model", "dlrm", "--embedding-dim", COLUMNS, "--global-batch-size", 256,
                "--steps", 80, "--log-every", 10, "--max-staleness", 0, *arguments]

    def start(self, *arguments, **options):
        return self.start_job(*self.work(*arguments), servers=SERVERS, **options)

    def on_disk(self, **options):
        job = self.start("--table-memory", "24MiB", "--table-disk", self.folder / "rows", "--backup-dir", self.folder / "backup",
                         "--save-every", "30 steps", **options)
        job.wait_for(r"step 10/80|librocksdb-dev")
        if "librocksdb-dev" in job.text():
            self.skipTest("built without RocksDB")
        return job

    def auc(self, text):
        return self.number(r"test +AUC (\S+),", text)

    def held(self, text):
        """What each server says about its rows at the end: rows, those in memory, bytes of memory, limit, bytes on disk."""
        lines = re.findall(r"ps \d held ([\d,]+) rows of \S+, ([\d,]+) of them in memory: at most ([\d,]+)(?: of ([\d,]+))? bytes; "
                           r"([\d,]+) bytes on disk", text)
        return [[int((number or "0").replace(",", "")) for number in line] for line in lines]

    def test_ten_times_more_rows_than_memory_holds_are_trained_and_survive_a_kill(self):
        known = self.expect_end(self.start("--table-memory", "unlimited"))
        job = self.on_disk(launcher=["--max-restarts", 5])
        memory = MemoryOfServers(job)
        job.wait_for(r"step 50/80")
        job.send("ps", 1, signal.SIGKILL)
        text = self.expect_end(job)
        taken = memory.end()
        # The chief resumes from the checkpoint, with the same bits.
        resumed = int(self.number(r"80 of 256 rows, from step (\d+) on", text))
        self.assertGreaterEqual(resumed, 30)
        expected = dict(LOSSES.findall(known))
        self.assertEqual(len(expected), 8)
        told = LOSSES.findall(text)
        self.assertEqual({step for step, _ in told}, set(expected))
        for step, loss in told:
            self.assertEqual(loss, expected[step], step)
        self.assertGreater(self.auc(known), 0.7)
        self.assertEqual(self.auc(text), self.auc(known))

        servers = self.held(text.partition(f", from step {resumed} on")[2])  # they had ended once before
        self.assertEqual(len(servers), SERVERS, text)
        rows = 0
        for held, in_memory, most, limit, disk in servers:
            rows += held
            self.assertEqual(limit, MEMORY // SERVERS)
            self.assertLessEqual(most, limit)
            self.assertGreater(disk, (held - in_memory) * 2 * 4 * COLUMNS)
            self.assertLess(in_memory, held / 10)
        self.assertEqual(rows, sum(held for held, *_ in self.held(known)))
        self.assertGreaterEqual(rows * ROW_BYTES, 10 * MEMORY)
        # A server also needs memory for what it is sent, and for rows that it restores, but not for all rows.
        self.assertLess(taken, rows * ROW_BYTES / SERVERS / 2)

    def test_a_full_disk_ends_the_job_and_names_the_folder(self):
        disk = self.folder / "rows"
        disk.mkdir()
        in_namespace = ["unshare", "-rm", "sh", "-c", 'mount -t tmpfs -o size=16m none "$0" && exec "$@"', disk]
        try:
            subprocess.run([*in_namespace, "true"], check=True, capture_output=True, timeout=60)
        except (OSError, subprocess.CalledProcessError) as error:
            self.skipTest(f"the system allows no file system in a namespace: {error}")
        job = train_ctr_case.Job([*in_namespace, train_ctr_case.LAUNCHER, "--ps", SERVERS, "--workers", 2, "--grace", 5,
                                  train_ctr_case.PROGRAM, "--strategy", "parameter_server", "--threads", 1,
                                  *self.work("--table-memory", "24MiB", "--table-disk", disk)], os.environ)
        self.addCleanup(job.kill)
        code = job.wait()
        if "librocksdb-dev" in job.text():
            self.skipTest("built without RocksDB")
        self.assertEqual(code, 7, job.text())
        self.assertRegex(job.text(), rf"cannot keep rows in '{disk}/ps-\d[^']*': .*No space left on device")


if __name__ == "__main__":
    unittest.main()
