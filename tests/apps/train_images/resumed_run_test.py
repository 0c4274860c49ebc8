#!/usr/bin/env python3
"""train_images --backup-dir, started again: what it says of other settings, a finished run and its own share of the work."""

import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import unittest

PROGRAM = os.environ["TRAIN_IMAGES"]
STEPS, BATCH = 20, 64  # of an epoch
TRAINING = ["--data", "generated", "--limit-train", str(STEPS * BATCH), "--limit-test", "100", "--threads", "1",
            "--replicas", "2", "--learning-rate-schedule", "constant"]
CHANGED = "resumes with other settings than before: "


class ResumedRunTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)

    def train(self, *more, backup="backup"):
        return subprocess.run([PROGRAM, *TRAINING, "--backup-dir", str(self.folder / backup), *map(str, more)],
                              capture_output=True, text=True, timeout=300, check=True)

    def lines(self, run, kind):
        text = (self.folder / run / "metrics.jsonl").read_text(encoding="utf-8")
        return [line for line in map(json.loads, text.splitlines()) if line["kind"] == kind]

    def resolved(self, run):
        return json.loads((self.folder / run / "config.json").read_text(encoding="utf-8"))["resolved"]

    def test_changed_settings_are_named_on_one_line_and_recorded(self):
        first = self.train("--epochs", 1, "--save-every", "7 steps", "--run-dir", self.folder / "run")
        self.assertNotIn(CHANGED, first.stderr)
        self.assertIsNone(self.resolved("run")["settings-changed-on-resume"]["value"])
        # How often it saves does not change the result.
        second = self.train("--epochs", 2, "--learning-rate", 0.01, "--save-every", "8 steps", "--run-dir", self.folder / "run",
                            "--mlflow-dir", self.folder / "mlruns")
        changes = ["epochs 1 -> 2", "learning-rate 0.001 -> 0.01"]
        self.assertEqual(re.findall(rf"^train_images: {CHANGED}(.*)$", second.stderr, re.MULTILINE), [", ".join(changes)])
        self.assertEqual(self.resolved("run-2")["settings-changed-on-resume"]["value"], changes)
        (parameter,) = (self.folder / "mlruns").glob("*/*/params/resolved/settings-changed-on-resume")
        self.assertEqual(parameter.read_text(encoding="utf-8"), ",".join(changes))
        third = self.train("--epochs", 2, "--learning-rate", 0.01)
        self.assertNotIn(CHANGED, third.stderr)

    def test_a_finished_run_says_so_and_how_to_train_on(self):
        self.train("--epochs", 1)
        again = self.train("--epochs", 1)
        self.assertIn("train_images: this run had already finished: epoch 1 of 1; to train on, raise --epochs\n", again.stderr)
        self.assertNotIn("epoch 1/1", again.stdout)
        on = self.train("--epochs", 2)
        self.assertNotIn("already finished", on.stderr)
        self.assertIn("epoch 2/2", on.stdout)

    def test_a_run_that_stopped_early_says_that(self):
        early = ["--epochs", 30, "--early-stopping", 1, "--learning-rate", 0.03]
        first = self.train(*early)
        reason = re.search(r"^stopped early: (.*)$", first.stdout, re.MULTILINE).group(1)
        epochs = len(re.findall(r"^epoch \d+/30 ", first.stdout, re.MULTILINE))
        again = self.train(*early)
        self.assertIn(f"this run had already finished: epoch {epochs} of 30, as it stopped early: {reason}; ", again.stderr)

    def test_the_totals_tell_its_own_steps_and_start_up_from_the_rest(self):
        self.train("--epochs", 1, "--run-dir", self.folder / "run")
        self.train("--epochs", 3, "--run-dir", self.folder / "run")
        (first,), (second,) = self.lines("run", "end"), self.lines("run-2", "end")
        self.assertEqual((first["steps"], first["images"], first.get("steps_before")), (STEPS, STEPS * BATCH, None))
        self.assertEqual((second["epochs"], second["steps"], second["steps_before"]), (3, 3 * STEPS, STEPS))
        self.assertEqual(second["images"], 2 * STEPS * BATCH)
        for run in ("run", "run-2"):
            (end,) = self.lines(run, "end")
            self.assertGreater(end["start_up_seconds"], 0)
            epochs = sum(epoch["seconds"] for epoch in self.lines(run, "epoch"))
            self.assertGreaterEqual(end["seconds"], epochs)
        report = (self.folder / "run-2" / "report.html").read_text(encoding="utf-8")
        self.assertRegex(report, r"Completed: 3 epochs, 60 steps, the last 40 of them in .* s, after a start-up of .* s")

    def test_an_average_of_the_weights_continues_exactly(self):
        average = ["--ema", 0.9, "--epochs", 3]
        whole = self.train(*average, "--run-dir", self.folder / "whole", backup="whole-backup")
        self.assertIn("weights' average exponential moving average, decay 0.9", whole.stdout)
        part = subprocess.Popen([PROGRAM, *TRAINING, *map(str, average), "--backup-dir", str(self.folder / "backup"), "--save-every",
                                 "1 step"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(lambda: (part.kill(), part.communicate()))
        for line in part.stdout:
            if line.startswith("epoch 1/"):
                break
        part.send_signal(signal.SIGTERM)
        part.communicate(timeout=60)
        self.assertEqual(part.returncode, 143)
        self.train(*average, "--save-every", "1 step", "--run-dir", self.folder / "rest")
        losses = [[epoch["validation_loss"] for epoch in self.lines(run, "epoch")] for run in ("whole", "rest")]
        self.assertEqual(len(losses[0]), 3)
        self.assertGreater(len(losses[1]), 0)
        self.assertEqual(losses[1], losses[0][-len(losses[1]):])
        self.train("--epochs", 3, "--run-dir", self.folder / "plain", backup="plain-backup")
        plain = self.lines("plain", "epoch")
        self.assertEqual([epoch["loss"] for epoch in plain], [epoch["loss"] for epoch in self.lines("whole", "epoch")])
        self.assertNotEqual([epoch["validation_loss"] for epoch in plain], losses[0])

    def test_augmented_images_continue_exactly(self):
        augment = ["--augment", "crop=2,flip,rotate=10,contrast=0.2,mixup=0.3", "--save-every", "7 steps"]
        whole = self.train(*augment, "--epochs", 2, "--run-dir", self.folder / "whole", backup="whole-backup")
        self.assertIn("augmentation crop=2,flip,rotate=10,contrast=0.2,mixup=0.3", re.sub(" +", " ", whole.stdout))
        # Stopped in the middle of the second epoch.
        part = subprocess.Popen([PROGRAM, *TRAINING, *augment, "--epochs", "2", "--log-every", "1", "--backup-dir",
                                 str(self.folder / "backup"), "--run-dir", str(self.folder / "part")], stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)
        self.addCleanup(lambda: (part.kill(), part.communicate()))
        for line in part.stdout:
            if line.startswith("epoch 1/"):
                break
        part.send_signal(signal.SIGTERM)
        part.communicate(timeout=60)
        self.assertEqual(part.returncode, 143)
        self.train(*augment, "--epochs", 2, "--run-dir", self.folder / "rest")
        last = [self.lines(run, "epoch")[-1] for run in ("whole", "rest")]
        for name in ("epoch", "loss", "accuracy", "validation_loss"):
            self.assertEqual(last[1][name], last[0][name], name)
        other = self.train("--augment", "flip", "--epochs", 3)
        self.assertIn(f"{CHANGED}augment crop=2,flip,rotate=10,contrast=0.2,mixup=0.3 -> flip, epochs 2 -> 3", other.stderr)


if __name__ == "__main__":
    unittest.main()
