#!/usr/bin/env python3
"""train_ctr by itself: what it prints and returns, on files and on what it draws."""

import random
import re
import unittest

import train_ctr_case

SMALL = ["--steps", 60, "--train-rows", 20000, "--test-rows", 4000, "--global-batch-size", 256, "--table-rows", 20000,
         "--threads", 1, "--log-every", 20]
COLUMNS = 26


def rows(count, seed=1):
    """Click logs in which the first category decides: in 9 of 10 rows of one of its values there is a click."""
    draw = random.Random(seed)
    text = []
    for _ in range(count):
        is_good = draw.random() < 0.5
        label = int(draw.random() < (0.9 if is_good else 0.1))
        numbers = [str(draw.randrange(100)) if draw.random() < 0.9 else "" for _ in range(13)]
        categories = [f"{17 if is_good else 23:08x}"] + [f"{draw.randrange(50):08x}" for _ in range(COLUMNS - 1)]
        text.append("\t".join([str(label), *numbers, *categories]) + "\n")
    return text


class ProgramTest(train_ctr_case.TrainCtrCase):
    def expect_refusal(self, process, code, *parts):
        self.assertEqual(process.returncode, code, process.stderr)
        self.assertEqual(process.stderr.count("\n"), 1, process.stderr)
        for part in ("train_ctr: error: ", *parts):
            self.assertIn(part, process.stderr)

    def test_trains_under_every_strategy_to_the_same(self):
        losses = {}
        for model in ("wide_deep", "dlrm"):
            for strategy in (["default"], ["one_device"], ["mirrored", "--replicas", 3]):
                process = self.run_alone(*SMALL, "--precision", "float64", "--model", model, "--strategy", *strategy)
                self.assertEqual(process.returncode, 0, process.stderr)
                told = re.findall(r"^step (\d+)/60  loss (\S+)  ", process.stdout, re.MULTILINE)
                self.assertEqual([step for step, _ in told], ["20", "40", "60"])
                scores = re.search(r"^test +(AUC \S+, log loss \S+) on 4,000 rows; the best", process.stdout, re.MULTILINE)
                losses.setdefault(model, set()).add((tuple(told), scores.group(1)))
        for model, different in losses.items():
            self.assertEqual(len(different), 1, f"{model}: {different}")

    def test_learns_what_a_file_has_to_teach(self):
        path = self.folder / "clicks.txt"
        path.write_text("".join(rows(6000)), encoding="utf-8")
        for optimizer in ("sgd", "adagrad", "adam"):
            rate = {"sgd": 1, "adagrad": 0.05, "adam": 0.01}[optimizer]
            process = self.run_alone("--data", path, "--steps", 100, "--table-rows", 5000, "--optimizer", optimizer,
                                     "--learning-rate", rate, "--global-batch-size", 256)
            self.assertEqual(process.returncode, 0, process.stderr)
            self.assertIn("rows             5,400 to train on, 600 to test on\n", process.stdout)
            # 0.9 is the best: half of all pairs are told apart, and of the others 0.8 of the halves.
            self.assertGreater(self.number(r"test +AUC (\S+),", process.stdout), 0.85, process.stdout)
            self.assertNotIn("best that there can be", process.stdout)

    def test_malformed_rows_are_named_or_left_out_and_counted(self):
        path = self.folder / "clicks.txt"
        text = rows(2000)
        text[6] = "2" + text[6][1:]
        text[99] = text[99].replace("\t", " ", 1)
        path.write_text("".join(text), encoding="utf-8")
        self.expect_refusal(self.run_alone("--data", path), 3, f"{path}: line 7: field 1: expected a label of 0 or 1")
        process = self.run_alone("--data", path, "--skip-bad", "--steps", 2, "--table-rows", 100)
        self.assertEqual(process.returncode, 0, process.stderr)
        self.assertIn(f"malformed rows   2 skipped, the first in {path}: line 7: field 1", process.stdout)
        self.expect_refusal(self.run_alone("--data", self.folder / "none"), 3, "No such file")

    def test_a_loss_that_is_no_number_ends_the_training(self):
        process = self.run_alone(*SMALL, "--optimizer", "sgd", "--learning-rate", "1e30")
        self.expect_refusal(process, 6, "expected a finite loss, but got")

    def test_goes_on_from_its_backup_to_the_same_end(self):
        backup = ["--backup-dir", self.folder / "backup", "--save-every", "10 steps"]
        adam = [*SMALL, "--optimizer", "adam", "--strategy", "mirrored", "--replicas", 2]
        whole = self.run_alone(*adam)
        self.assertEqual(whole.returncode, 0, whole.stderr)
        first = self.run_alone(*adam, *backup, "--steps", 30)
        self.assertEqual(first.returncode, 0, first.stderr)
        rest = self.run_alone(*adam, *backup)
        self.assertEqual(rest.returncode, 0, rest.stderr)
        self.assertIn("60 of 256 rows, from step 30 on", rest.stdout)
        scores = re.compile(r"^test .*", re.MULTILINE)
        self.assertEqual(scores.search(rest.stdout).group(), scores.search(whole.stdout).group())

    def test_tests_on_the_way_where_it_is_asked_to(self):
        process = self.run_alone(*SMALL, "--test-every", 25)
        self.assertEqual(process.returncode, 0, process.stderr)
        self.assertEqual(re.findall(r"^step (\d+)/60  test: AUC ", process.stdout, re.MULTILINE), ["25", "50"])

    def test_refuses_what_cannot_be(self):
        self.expect_refusal(self.run_alone("--strategy", "parameter_server"), 2,
                            "--strategy parameter_server: expected a cluster with tasks ps, worker and chief")
        self.expect_refusal(self.run_alone("--min-frequency", 3), 2, "expected no row_filter, which parameter servers alone")
        self.expect_refusal(self.run_alone("--step", 3), 2, "did you mean --steps?")

    def test_prints_its_help_and_version(self):
        for flag, expected in (("--help", "Usage:\n  train_ctr [flags]"), ("--version", "train_ctr 0.")):
            process = self.run_alone(flag)
            self.assertEqual((process.returncode, process.stderr), (0, ""))
            self.assertIn(expected, process.stdout)


if __name__ == "__main__":
    unittest.main()
