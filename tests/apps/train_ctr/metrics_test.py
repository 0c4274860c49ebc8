#!/usr/bin/env python3
"""train_ctr --metrics-port, scraped while it trains, alone and with parameter servers."""

import gzip
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

from train_ctr_case import LAUNCHER, PROGRAM, TIMEOUT

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support/prometheus"))
from exposition_format import scrape  # noqa: E402

SMALL = ["--train-rows", "20000", "--test-rows", "1000", "--table-rows", "4096", "--embedding-dim", "4", "--global-batch-size",
         "64", "--threads", "1", "--steps", "1000000"]


def has_prometheus():
    refused = subprocess.run([PROGRAM, *SMALL, "--metrics-port", "0", "--metrics-address", "nowhere.invalid"],
                             capture_output=True, text=True, timeout=TIMEOUT, check=False)
    return "prometheus-cpp-dev" not in refused.stderr


@unittest.skipUnless(has_prometheus(), "this build has no prometheus-cpp")
class MetricsTest(unittest.TestCase):
    def start(self, command):
        job = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.addCleanup(job.stderr.close)
        self.addCleanup(job.wait, TIMEOUT)
        self.addCleanup(job.send_signal, signal.SIGTERM)
        for line in job.stderr:
            found = re.search(r"metrics at (http://\S+)", line)
            if found:
                return found.group(1)
        raise AssertionError("it named no address")

    def scraped_until(self, url, is_enough):
        end = time.monotonic() + TIMEOUT
        while True:
            metrics = scrape(url)
            if is_enough(metrics):
                return metrics
            self.assertLess(time.monotonic(), end, metrics.text)
            time.sleep(0.1)

    def test_a_process_by_itself(self):
        url = self.start([PROGRAM, *SMALL, "--test-every", "5", "--metrics-port", "0"])
        metrics = self.scraped_until(url, lambda metrics: "lockstep_log" in metrics.types)
        value = metrics.value
        steps = value("lockstep_steps_total", rank="0")
        self.assertGreaterEqual(steps, 5)
        self.assertEqual(value("lockstep_examples_total", rank="0"), 64 * steps)
        self.assertEqual(value("lockstep_learning_rate", rank="0"), 0.05)
        self.assertTrue(0 < value("lockstep_loss", rank="0") < 2)
        self.assertTrue(0 <= value("lockstep_log", rank="0", name="test_auc") <= 1)
        self.assertLess(value("lockstep_input_wait_seconds_total", rank="0"), value("lockstep_training_seconds_total", rank="0"))
        self.assertEqual(value("lockstep_replica_wait_seconds_total", rank="0", replica="0"), 0)

    def test_are_served_before_the_data_is_indexed(self):
        with tempfile.TemporaryDirectory() as folder:
            rows = pathlib.Path(folder) / "rows.gz"
            rows.write_bytes(gzip.compress(("1" + "\t1" * 13 + "\t68fd1e64" * 26 + "\n").encode() * 1000))
            ended = subprocess.run([PROGRAM, *SMALL[:-1], "1", "--data", str(rows), "--metrics-port", "0"], capture_output=True,
                                   text=True, timeout=TIMEOUT, check=True)
        events = [event for line in ended.stderr.splitlines() for event in ("metrics at http", "indexing it, once") if event in line]
        self.assertEqual(events, ["metrics at http", "indexing it, once"], ended.stderr)

    def test_the_chief_of_parameter_servers(self):
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            port = listener.getsockname()[1]
        url = self.start([str(LAUNCHER), "--ps", "1", "--workers", "1", PROGRAM, "--strategy", "parameter_server", *SMALL,
                          "--metrics-port", str(port)])
        self.assertEqual(url, f"http://127.0.0.1:{port}/metrics")
        metrics = self.scraped_until(url, lambda metrics: "lockstep_worker_seconds_total" in metrics.types)
        self.assertGreater(metrics.value("lockstep_steps_total", rank="0"), 0)
        for state in ("computing", "waiting", "idle"):
            self.assertGreaterEqual(metrics.value("lockstep_worker_seconds_total", rank="0", state=state), 0)
        self.assertNotIn("lockstep_replica_wait_seconds_total", metrics.types)


if __name__ == "__main__":
    unittest.main()
