#!/usr/bin/env python3
"""The record of train_ctr --run-dir, as others read it: TensorBoard by HTTP, Python's csv and json, inspect_run."""

import csv
import json
import math
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
import unittest

import train_ctr_case

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
from tensorboard_server import MISSING, SECONDS_TO_LOAD, TensorBoard  # noqa: E402

SMALL = ["--steps", 60, "--test-every", 25, "--train-rows", 20000, "--test-rows", 4000, "--global-batch-size", 256,
         "--table-rows", 20000, "--threads", 1, "--log-every", 10]
# The program's libraries and TensorBoard's packages must not affect each other.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


class RecordedRunTest(train_ctr_case.TrainCtrCase):
    def setUp(self):
        super().setUp()
        self.record = self.folder / "run"

    def train(self, *arguments, code=0):
        process = subprocess.run([train_ctr_case.PROGRAM, *map(str, [*SMALL, *arguments])], capture_output=True, text=True,
                                 check=False, timeout=train_ctr_case.TIMEOUT, env=ENVIRONMENT)
        self.assertEqual(process.returncode, code, process.stdout + process.stderr)
        return process.stdout

    def lines(self, record=None):
        text = ((record or self.record) / "metrics.jsonl").read_text(encoding="utf-8")
        return [json.loads(line) for line in text.splitlines()]

    def epochs(self):
        return [line for line in self.lines() if line["kind"] == "epoch"]

    def inspect(self, *arguments):
        process = subprocess.run([os.environ["INSPECT_RUN"], str(self.record), *arguments], capture_output=True, text=True,
                                 check=False, timeout=60, env=ENVIRONMENT)
        self.assertEqual(process.returncode, 0, process.stdout + process.stderr)
        return process.stdout

    def test_steps_and_tests_are_recorded_as_they_are_printed(self):
        text = self.train("--run-dir", self.record)
        lines = self.lines()
        steps = [(line["step"], f"{line['loss']:.4f}") for line in lines if line["kind"] == "step"]
        # The recorded losses start over with each epoch, like the printed ones.
        self.assertEqual(steps, [(int(step), loss) for step, loss in re.findall(r"step (\d+)/60  loss (\S+)  ", text)])
        epochs = self.epochs()
        self.assertEqual([(epoch["epoch"], epoch["step"]) for epoch in epochs], [(1, 25), (2, 50), (3, 60)])
        printed = re.findall(r"AUC (\S+), log loss (\d\.\d+)", text)[:3]
        self.assertEqual([(f"{epoch['validation_auc']:.4f}", f"{epoch['validation_loss']:.4f}") for epoch in epochs], printed)
        for epoch in epochs:
            self.assertEqual(epoch["learning_rate"], 0.05)
            self.assertTrue(0 <= epoch["data_wait_share"] <= 1 and epoch["images_per_second"] > 0, epoch)
        end = lines[-1]
        self.assertEqual([end[name] for name in ("kind", "status", "epochs", "steps", "images")],
                         ["end", "completed", 3, 60, 60 * 256])
        with open(self.record / "metrics.csv", newline="", encoding="utf-8") as file:
            table = list(csv.DictReader(file, strict=True))
        self.assertEqual([float(row["validation_auc"]) for row in table], [epoch["validation_auc"] for epoch in epochs])
        report = (self.record / "report.html").read_text(encoding="utf-8")
        for part in ("train_ctr: wide_deep by ", "Rows a second", "Rows trained on", "<figcaption>Auc<", "table-rows"):
            self.assertTrue(part in report, part)
        self.assertFalse("Images" in report)

    def test_inspect_run_summarises_it(self):
        self.train("--run-dir", self.record, "--seed", 5)
        summary = json.loads(self.inspect("--json"))
        self.assertEqual((summary["status"], summary["missing"] + summary["damages"]), ("completed", []))
        self.assertEqual(summary["epochs"], [{k: v for k, v in epoch.items() if k != "kind"} for epoch in self.epochs()])
        values = {value["name"]: (value["value"], value["origin"]) for value in summary["configuration"]}
        self.assertEqual((values["seed"], values["model"]), (("5", "flag"), ("wide_deep", "default")))
        text = self.inspect()
        self.assertIn("3 epochs, 60 steps, 15360 rows, ", text)
        self.assertIn("rows/s", text)

    def test_the_same_run_is_repeated_from_its_configuration(self):
        text = self.train("--run-dir", self.record, "--seed", 5, "--optimizer", "adam")
        repeated = subprocess.run([train_ctr_case.PROGRAM, "--config", self.record / "config.json", "--run-dir", self.folder / "b"],
                                  capture_output=True, text=True, check=True, timeout=train_ctr_case.TIMEOUT, env=ENVIRONMENT)
        scores = re.compile(r"^test .*", re.MULTILINE)
        self.assertEqual(scores.search(repeated.stdout).group(), scores.search(text).group())
        config = json.loads((self.folder / "b" / "config.json").read_text(encoding="utf-8"))
        self.assertEqual(config["values"]["seed"], {"value": 5, "origin": "file", "name": str(self.record / "config.json")})

    def test_a_folder_that_is_used_is_refused(self):
        self.record.mkdir()
        (self.record / "mine").write_text("", encoding="utf-8")
        process = subprocess.run([train_ctr_case.PROGRAM, "--run-dir", self.record], capture_output=True, text=True, check=False,
                                 timeout=60, env=ENVIRONMENT)
        self.assertEqual(process.returncode, 4, process.stderr)
        self.assertIn(str(self.record), process.stderr)

    def test_a_failed_run_says_so(self):
        self.train("--run-dir", self.record, "--optimizer", "sgd", "--learning-rate", "1e30", code=6)
        end = self.lines()[-1]
        self.assertEqual((end["kind"], end["status"]), ("end", "failed"))
        self.assertIn("expected a finite loss", end["reason"])

    def test_a_stopped_run_says_so_and_resumes_in_a_folder_next_to_it(self):
        backup = ["--backup-dir", self.folder / "backup", "--save-every", "1000 steps", "--run-dir", self.record]
        job = train_ctr_case.Job([train_ctr_case.PROGRAM, *SMALL, "--steps", 3000, *backup], ENVIRONMENT)
        self.addCleanup(job.kill)
        job.wait_for(r"step 30/3000")
        job.process.send_signal(signal.SIGTERM)
        text = self.expect_end(job, 128 + signal.SIGTERM)
        end = self.lines()[-1]
        self.assertEqual((end["status"], end["reason"]), ("interrupted", "SIGTERM"))
        steps = int(re.search(r"stopped by SIGTERM after step (\d+)", text).group(1))
        self.assertEqual(end["steps"], steps)
        command = re.search(r"to resume, run: (.*)", text).group(1)
        self.assertIn(str(self.folder / "backup"), command)
        rest = self.train(*backup, "--steps", steps + 10)
        self.assertIn(f"from step {steps:,} on", rest)
        resumed = self.lines(self.folder / "run-2")
        self.assertEqual((resumed[-1]["status"], resumed[-1]["steps"]), ("completed", steps + 10))
        self.assertEqual((resumed[-1]["steps_before"], resumed[-1]["images"]), (steps, 10 * 256))
        self.assertGreater(resumed[-1]["start_up_seconds"], 0)
        self.train(*backup, "--resume", "never", code=4)

    def mlflow_points(self, metric):
        """The steps and values of a metric of the only run, and that run's folder."""
        (run,) = [path.parent for path in (self.folder / "mlruns").glob("*/*/meta.yaml")]
        lines = (run / "metrics" / metric).read_text(encoding="utf-8").splitlines()
        return [(int(step), float(value)) for _, value, step in map(str.split, lines)], run

    def test_it_is_recorded_for_mlflow_as_in_the_run_directory(self):
        self.train("--run-dir", self.record, "--mlflow-dir", self.folder / "mlruns", "--seed", 5)
        epochs = self.epochs()
        for metric in ("loss", "validation_loss", "validation_auc"):
            points, run = self.mlflow_points(metric)
            self.assertEqual(points, [(epoch["step"], epoch[metric]) for epoch in epochs], metric)
        steps = [(line["step"], line["loss"]) for line in self.lines() if line["kind"] == "step"]
        self.assertEqual(self.mlflow_points("step/loss")[0], steps)
        read = lambda name: (run / name).read_text(encoding="utf-8")
        self.assertIn("status: 3\n", read("meta.yaml"))  # FINISHED
        self.assertEqual((read("params/seed"), read("params/resolved/rows-to-train-on")), ("5", "20000"))
        self.assertEqual((read("tags/mlflow.runName"), read("tags/mlflow.source.name")), ("run", "train_ctr"))
        self.assertEqual(read("artifacts/config.json"), (self.record / "config.json").read_text(encoding="utf-8"))

    def test_started_again_it_continues_mlflows_run_and_names_changed_settings(self):
        arguments = ["--backup-dir", self.folder / "backup", "--save-every", "10 steps", "--mlflow-dir", self.folder / "mlruns",
                     "--log-every", 5]
        self.train(*arguments, "--steps", 30)
        # The process was not killed at once: it made and wrote steps after its last checkpoint.
        _, run = self.mlflow_points("step/loss")
        with open(run / "metrics/step/loss", "a", encoding="utf-8") as file:
            file.write("1 1e9 35\n")
        again = subprocess.run([train_ctr_case.PROGRAM, *map(str, [*SMALL, *arguments, "--steps", 50, "--learning-rate", 0.01]),
                                "--run-dir", self.record], capture_output=True, text=True, check=True,
                               timeout=train_ctr_case.TIMEOUT, env=ENVIRONMENT)
        changes = ["learning-rate 0.05 -> 0.01", "steps 30 -> 50"]
        self.assertIn(f"train_ctr: resumes with other settings than before: {', '.join(changes)}\n", again.stderr)
        config = json.loads((self.record / "config.json").read_text(encoding="utf-8"))
        self.assertEqual(config["resolved"]["settings-changed-on-resume"]["value"], changes)
        points, same = self.mlflow_points("step/loss")
        self.assertEqual(same, run)
        self.assertEqual([step for step, _ in points], list(range(5, 55, 5)))
        self.assertLess(max(loss for _, loss in points), 10)
        finished = subprocess.run([train_ctr_case.PROGRAM, *map(str, [*SMALL, *arguments, "--steps", 50])], capture_output=True,
                                  text=True, check=True, timeout=train_ctr_case.TIMEOUT, env=ENVIRONMENT)
        self.assertIn("train_ctr: this run had already finished: step 50 of 50; to train on, raise --steps\n", finished.stderr)

    def test_only_the_chief_of_parameter_servers_records(self):
        job = self.start_job(*SMALL, "--run-dir", self.record, "--mlflow-dir", self.folder / "mlruns", PYTHONPATH="")
        text = self.expect_end(job)
        epochs = self.epochs()
        self.assertEqual([epoch["step"] for epoch in epochs], [25, 50, 60])
        self.assertIn(f"AUC {epochs[-1]['validation_auc']:.4f}", text)
        config = json.loads((self.record / "config.json").read_text(encoding="utf-8"))
        self.assertEqual(config["values"]["strategy"]["value"], "parameter_server")
        self.assertEqual(self.mlflow_points("validation_auc")[0], [(epoch["step"], epoch["validation_auc"]) for epoch in epochs])
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["mlruns", "run"])

    def test_of_workers_that_step_together_worker_0_records(self):
        job = train_ctr_case.Job([train_ctr_case.LAUNCHER, 2, train_ctr_case.PROGRAM, *SMALL, "--run-dir", self.record], ENVIRONMENT)
        self.addCleanup(job.kill)
        text = self.expect_end(job)
        self.assertEqual([epoch["step"] for epoch in self.epochs()], [25, 50, 60])
        self.assertIn(f"AUC {self.epochs()[-1]['validation_auc']:.4f}", text)
        values = json.loads((self.record / "config.json").read_text(encoding="utf-8"))["values"]
        self.assertEqual((values["strategy"]["value"], values["strategy"]["origin"]), ("multi_worker", "environment"))
        self.assertEqual([path.name for path in self.folder.iterdir()], ["run"])

    @unittest.skipIf(MISSING, MISSING)
    def test_tensorboard_shows_the_values(self):
        self.train("--run-dir", self.record)
        server = TensorBoard(self.record)
        self.addCleanup(server.close)
        end = time.monotonic() + SECONDS_TO_LOAD
        while "auc" not in server.json("plugin/scalars/tags").get("tb/validation", {}):
            self.assertLess(time.monotonic(), end, "TensorBoard has not loaded the run")
            time.sleep(0.2)
        for run, tag, metric in (("tb/validation", "auc", "validation_auc"), ("tb/validation", "loss", "validation_loss"),
                                 ("tb/train", "loss", "loss")):
            points = server.json("plugin/scalars/scalars", run=run, tag=tag)
            self.assertEqual([step for _, step, _ in points], [25, 50, 60])
            for (_, _, value), epoch in zip(points, self.epochs(), strict=True):
                self.assertTrue(math.isclose(value, epoch[metric], rel_tol=1e-6), (run, tag))


if __name__ == "__main__":
    unittest.main()
