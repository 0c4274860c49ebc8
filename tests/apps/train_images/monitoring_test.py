#!/usr/bin/env python3
"""train_images --metrics-port, scraped while it trains, and --mlflow-dir, --find-learning-rate and --fast-dev-run."""

import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support/prometheus"))
from exposition_format import scrape  # noqa: E402

PROGRAM = os.environ["TRAIN_IMAGES"]
STEPS, BATCH = 5, 16
SMALL = ["--data", "generated", "--limit-train", str(STEPS * BATCH), "--limit-test", "32", "--global-batch-size", str(BATCH),
         "--threads", "1", "--replicas", "2"]
TIMEOUT = 240


def run(*arguments):
    return subprocess.run([PROGRAM, *SMALL, *arguments], capture_output=True, text=True, timeout=TIMEOUT, check=False)


def without_prometheus():
    refused = run("--epochs", "1", "--metrics-port", "0")
    return "prometheus-cpp-dev" in refused.stderr


class MetricsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if without_prometheus():
            raise unittest.SkipTest("this build has no prometheus-cpp")

    def test_a_running_training_is_scraped(self):
        # It trains until it is told to stop.
        training = subprocess.Popen([PROGRAM, *SMALL, "--epochs", "100000", "--metrics-port", "0"],
                                    stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.addCleanup(training.stderr.close)
        try:
            line = training.stderr.readline()
            url = re.search(r"metrics at (http://127\.0\.0\.1:\d+/metrics)$", line.strip()).group(1)
            end = time.monotonic() + TIMEOUT
            metrics = scrape(url)
            while not metrics.types.get("lockstep_log") or metrics.value("lockstep_steps_total", rank="0") < 3 * STEPS:
                self.assertLess(time.monotonic(), end, metrics.text)
                time.sleep(0.05)
                metrics = scrape(url)
        finally:
            training.send_signal(signal.SIGTERM)
            training.wait(TIMEOUT)
        self.assertEqual(training.returncode, 143)
        value = metrics.value
        steps = value("lockstep_steps_total", rank="0")
        self.assertEqual(value("lockstep_examples_total", rank="0"), steps * BATCH)
        self.assertIn(value("lockstep_epoch", rank="0"), (steps // STEPS, steps // STEPS + 1))
        self.assertEqual(value("lockstep_planned_epochs", rank="0"), 100000)
        self.assertGreater(value("lockstep_examples_per_second", rank="0"), 0)
        self.assertTrue(0 < value("lockstep_loss", rank="0") < 10)
        self.assertTrue(0 <= value("lockstep_log", rank="0", name="validation_accuracy") <= 1)
        self.assertLess(value("lockstep_input_wait_seconds_total", rank="0"),
                        value("lockstep_training_seconds_total", rank="0"))
        waits = [value("lockstep_replica_wait_seconds_total", rank="0", replica=replica) for replica in "01"]
        self.assertTrue(0 < sum(waits) < 2 * value("lockstep_training_seconds_total", rank="0"), waits)
        self.assertEqual(value("lockstep_faults_total", rank="0", kind="bad_example"), 0)

    def test_a_port_in_use_is_named_with_its_flag(self):
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen()
            port = listener.getsockname()[1]
            result = run("--epochs", "1", "--metrics-port", str(port))
        self.assertEqual(result.returncode, 2)
        self.assertIn(f"--metrics-port {port}: ", result.stderr)
        self.assertIn(f"127.0.0.1:{port}: ", result.stderr)
        self.assertIn("Address already in use", result.stderr)

    def test_an_address_needs_a_port(self):
        result = run("--metrics-address", "0.0.0.0")
        self.assertEqual(result.returncode, 2)
        self.assertIn("--metrics-port", result.stderr)


class MlflowTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def runs(self):
        return sorted(path.parent for path in (self.folder / "mlruns").glob("*/*/meta.yaml"))

    def test_a_training_is_one_run_with_its_configuration_and_report(self):
        result = run("--epochs", "2", "--learning-rate", "0.002", "--mlflow-dir", str(self.folder / "mlruns"), "--run-dir",
                     str(self.folder / "first"))
        self.assertEqual(result.returncode, 0, result.stderr)
        (training,) = self.runs()
        read = lambda name: (training / name).read_text(encoding="utf-8")  # noqa: E731
        self.assertIn("status: 3\n", read("meta.yaml"))
        self.assertEqual(read("tags/mlflow.runName"), "first")
        self.assertEqual(read("params/learning-rate"), "0.002")
        self.assertEqual(read("params/model"), "simple_cnn")
        self.assertEqual(read("params/resolved/replicas"), "2")
        self.assertGreater(int(read("params/resolved/parameters")), 1000)
        printed = re.findall(r"^epoch \d/2  loss (\S+)  accuracy (\S+)  test accuracy (\S+)", result.stdout, re.MULTILINE)
        self.assertEqual(len(printed), 2, result.stdout)
        for name, shown in zip(("loss", "accuracy", "validation_accuracy"), zip(*printed)):
            points = [line.split() for line in read(f"metrics/{name}").splitlines()]
            self.assertEqual([f"{float(value):.4f}" for _, value, _ in points], list(shown), name)
            self.assertEqual([int(step) for _, _, step in points], [STEPS, 2 * STEPS])
        for name in ("config.json", "report.html"):
            self.assertEqual(read(f"artifacts/{name}"), (self.folder / "first" / name).read_text(encoding="utf-8"))

    def test_steps_are_recorded_as_often_as_asked_without_a_run_directory(self):
        result = run("--epochs", "1", "--mlflow-dir", str(self.folder / "mlruns"), "--log-every", "2")
        self.assertEqual(result.returncode, 0, result.stderr)
        (training,) = self.runs()
        losses = (training / "metrics/step/loss").read_text(encoding="utf-8").splitlines()
        self.assertEqual([int(line.split()[2]) for line in losses], [2, 4])

    def test_a_resumed_training_continues_its_run(self):
        arguments = ["--mlflow-dir", str(self.folder / "mlruns"), "--backup-dir", str(self.folder / "backup"),
                     "--save-every", "1 steps"]
        training = subprocess.Popen([PROGRAM, *SMALL, "--epochs", "100000", *arguments], stdout=subprocess.PIPE,
                                    stderr=subprocess.DEVNULL, text=True)
        self.addCleanup(training.stdout.close)
        for line in training.stdout:
            if line.startswith("epoch 2/"):
                break
        training.send_signal(signal.SIGINT)
        for _ in training.stdout:
            pass
        self.assertEqual(training.wait(TIMEOUT), 130)
        (stopped,) = self.runs()
        self.assertIn("status: 5\n", (stopped / "meta.yaml").read_text(encoding="utf-8"))
        self.assertEqual((stopped / "tags/stop_reason").read_text(encoding="utf-8"), "SIGINT")
        done = len((stopped / "metrics/epoch").read_text(encoding="utf-8").splitlines())
        result = run("--epochs", str(done + 2), *arguments)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(self.runs(), [stopped])
        self.assertIn("status: 3\n", (stopped / "meta.yaml").read_text(encoding="utf-8"))
        self.assertFalse((stopped / "tags/stop_reason").exists())
        epochs = [int(line.split()[1]) for line in (stopped / "metrics/epoch").read_text(encoding="utf-8").splitlines()]
        self.assertEqual(epochs, list(range(1, done + 3)))

    def test_the_learning_rate_finder_suggests_and_draws(self):
        result = run("--find-learning-rate", "--run-dir", str(self.folder / "run"))
        self.assertEqual(result.returncode, 0, result.stderr)
        suggested = float(re.search(r"^suggested learning rate: (\S+)$", result.stdout, re.MULTILINE).group(1))
        self.assertTrue(1e-7 < suggested < 10, suggested)
        self.assertIn("<svg", (self.folder / "run/learning_rate.html").read_text(encoding="utf-8"))
        self.assertNotIn("epoch 1/", result.stdout)

    def test_a_fast_development_run_tries_everything_and_leaves_the_run_directory_alone(self):
        result = run("--epochs", "7", "--fast-dev-run", "--mlflow-dir", str(self.folder / "mlruns"), "--backup-dir",
                     str(self.folder / "backup"), "--run-dir", str(self.folder / "run"))
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("epoch 1/1", result.stdout)
        self.assertEqual([path.name for path in self.folder.iterdir()], ["run"])
        lines = (self.folder / "run/metrics.jsonl").read_text(encoding="utf-8").splitlines()
        self.assertEqual(sum('"kind": "step"' in line for line in lines), STEPS)
        self.assertTrue((self.folder / "run/checkpoints/best.pt").exists())

    def test_a_search_and_a_fast_run_exclude_each_other(self):
        result = run("--find-learning-rate", "--fast-dev-run")
        self.assertEqual(result.returncode, 2)
        self.assertIn("--fast-dev-run", result.stderr)


if __name__ == "__main__":
    unittest.main()
