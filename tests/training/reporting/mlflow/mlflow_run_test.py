#!/usr/bin/env python3
"""MLflow's own client reads runs that MlflowRun wrote, and continues one."""

import math
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest
import warnings

# MLflow 3.13 and later read file stores only if asked to. None of it is to be sent anywhere.
os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
try:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from mlflow.tracking import MlflowClient
except ImportError as error:
    MISSING = f"PyPI's mlflow-skinny cannot be imported: {error}"
else:
    MISSING = ""

WRITER = os.environ["LOCKSTEP_WRITE_MLFLOW_RUN"]
EXPERIMENT = 'digits: "all" #1'


@unittest.skipIf(MISSING, MISSING)
class MlflowRunTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = pathlib.Path(tempfile.mkdtemp(suffix=" a b"))
        cls.addClassCleanup(shutil.rmtree, folder)
        cls.store = folder / "mlruns"
        written = subprocess.run([WRITER, str(cls.store)], check=True, capture_output=True, text=True, timeout=60)
        cls.finished, cls.continued, cls.failed, cls.open, cls.appended = written.stdout.split()
        warnings.simplefilter("ignore")  # of versions before 3.13, about the store
        cls.client = MlflowClient(tracking_uri=cls.store.as_uri())

    def test_experiments_are_found_by_name(self):
        names = {experiment.name for experiment in self.client.search_experiments()}
        self.assertEqual(names, {EXPERIMENT, "Default"})
        experiment = self.client.get_experiment_by_name(EXPERIMENT)
        self.assertEqual(experiment.tags, {"mlflow.experimentKind": "custom_model_development"})
        runs = self.client.search_runs([experiment.experiment_id])
        self.assertEqual({run.info.run_id for run in runs}, {self.finished, self.continued})

    def test_runs_say_how_they_ended(self):
        states = {run: self.client.get_run(run).info for run in (self.finished, self.continued, self.failed)}
        self.assertEqual([info.status for info in states.values()], ["FINISHED", "RUNNING", "FAILED"])
        self.assertIsNone(states[self.continued].end_time)
        self.assertGreaterEqual(states[self.finished].end_time, states[self.finished].start_time)
        self.assertEqual([info.run_name for info in states.values()], ["first", "second", "run-" + self.failed[:8]])
        self.assertEqual({info.user_id for info in states.values()}, {""})

    def test_parameters_and_tags(self):
        data = self.client.get_run(self.finished).data
        self.assertEqual(data.params, {"learning-rate": "0.001", "data": "/data/bücher & co\nline 2", "long": "x" * 6000})
        self.assertEqual(data.tags, {"mlflow.runName": "first", "mlflow.source.name": "train_images",
                                     "mlflow.source.type": "LOCAL", "stop_reason": "good enough"})

    def test_metrics_with_their_steps_and_times(self):
        history = self.client.get_metric_history(self.finished, "step/loss")
        self.assertEqual([(point.step, point.value, point.timestamp) for point in history],
                         [(10 * step, 1 / step, 1700000000000 + step) for step in (1, 2, 3)])
        metrics = self.client.get_run(self.finished).data.metrics
        self.assertEqual(set(metrics), {"step/loss", "odd", "loss_5"})
        self.assertTrue(math.isinf(metrics["odd"]))
        self.assertTrue(math.isnan(self.client.get_metric_history(self.finished, "odd")[0].value))
        self.assertEqual(self.client.get_metric_history(self.finished, "loss_5")[0].step, 2**40)

    def test_a_continued_run_has_no_step_twice(self):
        history = self.client.get_metric_history(self.continued, "loss")
        self.assertEqual([(point.step, point.value) for point in history], [(1, 1), (2, 0.25)])

    def test_a_run_with_a_given_id_is_appended_to_as_by_mlflow(self):
        experiment = self.client.get_run(self.appended).info.experiment_id
        theirs = self.client.create_run(experiment).info.run_id
        for first_step in (3, 1):
            for step in range(first_step, first_step + 3):
                self.client.log_metric(theirs, "loss", 1 / (10 * first_step + step), timestamp=1000 + step, step=step)
            self.client.set_terminated(theirs)
        points = {run: [(point.step, point.value, point.timestamp) for point in self.client.get_metric_history(run, "loss")]
                  for run in (theirs, self.appended)}
        self.assertEqual(len(points[theirs]), 6)
        self.assertEqual(points[self.appended], points[theirs])
        latest = [self.client.get_run(run).data.metrics["loss"] for run in (theirs, self.appended)]
        self.assertEqual(latest[0], latest[1])

    def test_artifacts(self):
        self.assertEqual([file.path for file in self.client.list_artifacts(self.finished)], ["report.html"])
        with tempfile.TemporaryDirectory() as folder:
            path = self.client.download_artifacts(self.finished, "report.html", folder)
            self.assertEqual(pathlib.Path(path).read_text(encoding="utf-8"), "<h1>report</h1>")

    def test_mlflow_can_write_further(self):
        self.client.log_metric(self.open, "later", 1.5, step=3)
        self.client.set_tag(self.open, "note", "seen")
        self.client.set_terminated(self.open, "KILLED")
        run = self.client.get_run(self.open)
        self.assertEqual((run.data.metrics["later"], run.data.tags["note"], run.info.status), (1.5, "seen", "KILLED"))


if __name__ == "__main__":
    unittest.main()
