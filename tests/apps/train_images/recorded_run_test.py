#!/usr/bin/env python3
"""The record of train_images --run-dir, as others read it: TensorBoard by HTTP, Python's csv and json, inspect_run."""

import csv
import datetime
import json
import math
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
from tensorboard_server import MISSING, SECONDS_TO_LOAD, TensorBoard  # noqa: E402

EPOCHS = 2
STEPS = 6
METRICS = ("loss", "accuracy")


@unittest.skipIf(MISSING, MISSING)
class RecordedRunTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.record = cls.folder / "run"
        # The program's libraries and TensorBoard's packages are no concern of each other's.
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        cls.began = datetime.datetime.now(datetime.timezone.utc)
        result = subprocess.run(
            [os.environ["TRAIN_IMAGES"], "--data", "generated", "--limit-train", str(16 * STEPS), "--limit-test", "50",
             "--global-batch-size", "16", "--replicas", "2", "--epochs", str(EPOCHS), "--log-every", "2", "--run-dir", str(cls.record)],
            capture_output=True, text=True, timeout=240, env=environment)
        if result.returncode != 0:
            raise AssertionError(f"train_images exited with {result.returncode}:\n{result.stdout}{result.stderr}")
        lines = (cls.record / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        cls.lines = [json.loads(line) for line in lines]
        cls.epochs = [line for line in cls.lines if line["kind"] == "epoch"]

    def serve(self, logdir):
        server = TensorBoard(logdir)
        self.addCleanup(server.close)
        end = time.monotonic() + SECONDS_TO_LOAD
        while len(server.json("runs")) < 2 or not server.json("plugin/histograms/tags"):
            self.assertLess(time.monotonic(), end, "TensorBoard has not loaded the run")
            time.sleep(0.2)
        return server

    def test_tensorboard_lists_every_tag_with_its_values(self):
        server = self.serve(self.record)
        tags = server.json("plugin/scalars/tags")
        self.assertLessEqual({"loss", "accuracy", "learning_rate", "step/loss", "step/learning_rate"}, set(tags["tb/train"]))
        self.assertLessEqual(set(METRICS), set(tags["tb/validation"]))
        for run, prefix in (("tb/train", ""), ("tb/validation", "validation_")):
            for metric in METRICS:
                points = server.json("plugin/scalars/scalars", run=run, tag=metric)
                self.assertEqual([step for _, step, _ in points], [STEPS, 2 * STEPS])
                for (_, _, value), epoch in zip(points, self.epochs, strict=True):
                    self.assertTrue(math.isclose(value, epoch[prefix + metric], rel_tol=1e-6), (run, metric))
        self.assertTrue(server.json("plugin/histograms/tags")["tb/train"])
        images = server.json("plugin/images/tags")["tb/validation"]
        self.assertTrue(images and all(tag.startswith("misclassified/") for tag in images), images)

    def test_tensorboard_shows_hyperparameters_and_metrics_whatever_folder_it_is_given(self):
        for logdir in (self.folder, self.record, self.record / "tb"):
            with self.subTest(logdir=logdir.relative_to(self.folder)):
                server = self.serve(logdir)
                experiment = server.post("plugin/hparams/experiment", {"experimentName": ""})
                self.assertIn("global-batch-size", {info["name"] for info in experiment["hparamInfos"]})
                metrics = [info["name"] for info in experiment["metricInfos"]]
                (group,) = server.post("plugin/hparams/session_groups", {
                    "experimentName": "", "allowedStatuses": ["STATUS_SUCCESS"], "startIndex": 0, "sliceSize": 10,
                    "colParams": [{"metric": name} for name in metrics]})["sessionGroups"]
                self.assertEqual(group["hparams"]["global-batch-size"], 16)
                self.assertEqual(group["hparams"]["model"], "simple_cnn")
                values = {value["name"]["tag"].rpartition("/")[2]: value["value"] for value in group["metricValues"]}
                last = self.epochs[-1]
                for name in ("loss", "accuracy", "validation_loss", "validation_accuracy"):
                    self.assertTrue(math.isclose(values[name], last[name], rel_tol=1e-6), name)
                server.close()

    def test_csv_holds_the_same_epochs(self):
        with open(self.record / "metrics.csv", newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file, strict=True))
        self.assertEqual(len(rows), EPOCHS)
        for row, epoch in zip(rows, self.epochs, strict=True):
            self.assertEqual({name: float(text) for name, text in row.items()},
                             {name: float(value) for name, value in epoch.items() if name != "kind"})

    def test_report_and_metrics_say_when_and_where_the_run_was_started(self):
        start = self.lines[0]
        self.assertEqual(start["kind"], "start")
        started = datetime.datetime.fromisoformat(start["time"].replace("Z", "+00:00"))
        self.assertLess(abs((started - self.began).total_seconds()), 240)
        config = json.loads((self.record / "config.json").read_text(encoding="utf-8"))
        self.assertEqual((start["hosts"], start["version"]), (socket.gethostname(), config["version"]))
        report = (self.record / "report.html").read_text(encoding="utf-8")
        self.assertIn(f"Started {started:%Y-%m-%d %H:%M:%S} UTC on {socket.gethostname()} with Lockstep {config['version']}<", report)

    def test_inspect_run_summarises_it(self):
        result = subprocess.run([os.environ["INSPECT_RUN"], str(self.record), "--json"], capture_output=True, text=True, timeout=60)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        summary = json.loads(result.stdout)
        self.assertEqual(summary["status"], "completed")
        self.assertEqual(summary["start"], {k: v for k, v in self.lines[0].items() if k != "kind"})
        self.assertEqual(summary["missing"] + summary["damages"], [])
        self.assertEqual(summary["epochs"], [{k: v for k, v in epoch.items() if k != "kind"} for epoch in self.epochs])
        self.assertEqual(summary["totals"]["steps"], EPOCHS * STEPS)
        (memory,) = (line for line in self.lines if line["kind"] == "memory")
        self.assertEqual(summary["memory"], {k: v for k, v in memory.items() if k != "kind"})
        self.assertGreater(summary["memory"]["peak_of_process"], summary["memory"]["parameters"])
        values = {value["name"]: (value["value"], value["origin"]) for value in summary["configuration"]}
        self.assertEqual(values["global-batch-size"], ("16", "flag"))
        self.assertEqual(values["optimizer"][1], "default")
        self.assertIsNotNone(summary["report_bytes"])


if __name__ == "__main__":
    unittest.main()
