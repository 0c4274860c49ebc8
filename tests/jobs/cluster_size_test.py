#!/usr/bin/env python3
"""Many workers on one machine train as one device, and all name one that is killed. LOCKSTEP_TEST_WORKERS says how many: 5
unless it is set. scripts/nightly.sh runs 64."""

import os
import pathlib
import re
import socket
import subprocess
import tempfile
import time
import unittest

import workers

PROGRAM = str(workers.BIN / "parity_worker")
COUNT = int(os.environ.get("LOCKSTEP_TEST_WORKERS", "5"))
BATCH_SIZE = str(2 * COUNT)
STEPS = 20
# Seconds that hold on a machine with little to spare, too: a process needs about half a second of a core to load LibTorch and to
# meet the others, and a tenth to unload it.
START = 60 + 4 * COUNT
NAMED = 5 + 0.2 * COUNT
END = 20 + COUNT
JOIN = {"LOCKSTEP_JOIN_TIMEOUT": str(START)}


def values_of(path):
    return [float(line) for line in path.read_text(encoding="utf-8").split()]


class ClusterSizeTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def test_all_train_as_one_device_and_name_the_one_that_is_killed(self):
        alone = self.folder / "alone"
        subprocess.run([PROGRAM, "1", str(alone), BATCH_SIZE], env=workers.clean_environment(), check=True,
                       stdout=subprocess.DEVNULL, timeout=120)
        begin = time.monotonic()
        started = workers.start_workers(COUNT, lambda index: [PROGRAM, "1", str(self.folder / str(index)), BATCH_SIZE, "forever"],
                                        lambda index, environment: environment.update(JOIN))
        for worker in started:
            self.addCleanup(worker.kill)
        for worker in started:
            worker.wait_for(f"{COUNT} replicas", begin + START - time.monotonic())
        trained = time.monotonic() - begin
        expected = values_of(alone)
        texts = {(self.folder / str(index)).read_bytes() for index in range(COUNT)}
        self.assertEqual(len(texts), 1, "the workers' values differ")
        values = values_of(self.folder / "0")
        self.assertEqual(len(values), len(expected))
        deviation = max(abs(a - b) for a, b in zip(values, expected))
        self.assertLessEqual(deviation, 1e-12)

        killed = COUNT // 2
        loss = rf"worker {killed} \({re.escape(socket.gethostname())}\) was lost: its process ended"
        begin = time.monotonic()
        started[killed].process.kill()
        told, ended = [], []
        for index, worker in enumerate(started):
            if index == killed:
                continue
            code, end = worker.wait(begin + END - time.monotonic())
            self.assertEqual(code, 1, worker.text())
            named = [moment for moment, line in worker.lines if re.search(loss, line)]
            self.assertTrue(named, f"worker {index}:\n{worker.text()}")
            told.append(named[0] - begin)
            ended.append(end - begin)
        self.assertLess(max(told), NAMED)
        print(f"{COUNT} workers: {STEPS} steps done {trained:.1f} s after the start, {deviation:.1e} from one device; the killed "
              f"worker was named after {min(told):.2f} to {max(told):.2f} s, and all had ended after {max(ended):.2f} s",
              flush=True)


if __name__ == "__main__":
    unittest.main()
