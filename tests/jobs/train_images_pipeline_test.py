#!/usr/bin/env python3
"""train_images with its models in stages trains as one device does that adds up the gradients of the same pieces."""

import json
import os
import pathlib
import re
import tempfile
import unittest

from saved_state import weights_of
from workers import TrainingCase

PIECES = ["--accumulate-steps", 4]
COMMON = ["--data", "generated", "--precision", "float64", "--threads", "1", "--limit-test", "16"]
# The last of 20 steps has a batch of 4; batches of 10 are cut unevenly.
SIMPLE_CNN = [*COMMON, "--epochs", "1", "--limit-train", "194", "--global-batch-size", "10", "--clip-norm", "1"]
# Without dropout, whose random numbers depend on the block. A new MobileNetV2 magnifies rounding.
MOBILENET = [*COMMON, "--epochs", "1", "--model", "mobilenet_v2", "--head", "flattened_dense", "--image-size", "40",
             "--limit-train", "28", "--global-batch-size", "14", "--optimizer", "sgd", "--learning-rate", "0.01"]
STAGES = ["--replicas", 2, "--mesh", "pipeline=2"]
REPLICAS_OF_STAGES = ["--replicas", 4, "--mesh", "data=2,pipeline=2"]


def epochs_of(output):
    """The printed loss and accuracies of each epoch."""
    return re.findall(r"^epoch \d+/\d+  loss \S+  accuracy \S+  test accuracy \S+", output, re.MULTILINE)


class Case(TrainingCase):
    program = os.environ["TRAIN_IMAGES"]

    def said_by(self, *arguments, code=0):
        """Returns the output and the errors of a training that ends with this exit code."""
        return "".join(self.finish(self.start(*arguments), codes=[code])[0])

    def train(self, name, *arguments):
        output = self.said_by(*arguments, "--backup-dir", self.folder / name)
        self.assertGreater(len(epochs_of(output)), 0, output)
        return output

    def check_like(self, reference, *layouts, tolerance=1e-12):
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=self.folder))
        expected = self.train("reference", *reference)
        weights = weights_of(self.folder / "reference")
        for number, layout in enumerate(layouts):
            with self.subTest(layout):
                output = self.train(f"stages{number}", *layout)
                self.assertEqual(epochs_of(output), epochs_of(expected))
                self.check_weights(self.folder / f"stages{number}", weights, tolerance)


class ParityTest(Case):
    def test_simple_cnn(self):
        training = [*SIMPLE_CNN, *PIECES]
        self.check_like(training,
                        [*training, *STAGES],
                        [*training, "--replicas", 3, "--mesh", "pipeline=3", "--pipeline-schedule", "zb-h1"],
                        [*training, *REPLICAS_OF_STAGES, "--pipeline-schedule", "gpipe"],
                        # Four times as many pieces as ranks, of which each has at most one image here.
                        [*SIMPLE_CNN, *REPLICAS_OF_STAGES],
                        [*training, *REPLICAS_OF_STAGES, "--sharding", 1],
                        [*training, *REPLICAS_OF_STAGES, "--sharding", 2, "--check-replicas", 1],
                        [*training, *REPLICAS_OF_STAGES, "--sharding", 3])

    def test_mobilenet_v2(self):
        # Two steps, after which the statistics are measured again.
        training = [*MOBILENET, *PIECES]
        self.check_like(training,
                        [*training, *STAGES],
                        [*training, *STAGES, "--pipeline-schedule", "zb-v"],
                        [*training, "--replicas", 4, "--mesh", "pipeline=4"],
                        [*training, *STAGES, "--pipeline-schedule", "interleaved", "--stages-per-rank", 3],
                        [*training, *STAGES, "--pipeline-cut", "time"],
                        tolerance=1e-10)

    def test_mobilenet_v2_without_new_statistics(self):
        training = [*MOBILENET, *PIECES, "--refresh-batch-norm", "never"]
        self.check_like(training, [*training, *STAGES], tolerance=1e-10)

    def test_replicas_of_stages(self):
        # Each replica has statistics of its own images, or all have the same.
        for norm in ([], ["--sync-batch-norm"]):
            training = [*MOBILENET, "--accumulate-steps", 2, *norm]
            self.check_like([*training, "--replicas", 2], [*training, *REPLICAS_OF_STAGES],
                            [*training, *REPLICAS_OF_STAGES, "--sharding", 1], [*training, *REPLICAS_OF_STAGES, "--sharding", 3],
                            tolerance=1e-8)

    def test_averages_of_weights(self):
        for average in (["--ema", 0.9], ["--swa-start", 1]):
            training = [*MOBILENET, *PIECES, "--epochs", 2, *average]
            self.check_like(training, [*training, *STAGES], tolerance=1e-8)

    def test_workers(self):
        training = [*SIMPLE_CNN, *PIECES]
        expected = self.train("reference", *training)
        outputs = self.finish(*self.start_workers(2, *training, "--mesh", "pipeline=2", "--pipeline-cut", "time", "--backup-dir",
                                                  self.folder / "workers"))
        self.assertEqual(epochs_of(outputs[0][0]), epochs_of(expected))
        self.check_weights(self.folder / "workers", weights_of(self.folder / "reference"))

    def test_learning_rates_are_tried_in_stages(self):
        training = [*SIMPLE_CNN, *PIECES, "--find-learning-rate"]
        expected, output = (self.said_by(*training, *layout) for layout in ([], STAGES))
        found = [re.findall(r"suggested learning rate: (\S+)", text) for text in (expected, output)]
        self.assertEqual(len(found[0]), 1, expected)
        self.assertAlmostEqual(float(found[0][0]), float(found[1][0]), delta=1e-6 * float(found[0][0]))


class CheckpointTest(Case):
    """A training ends early and goes on elsewhere, as if it had never stopped on one device."""

    TRAINING = [*SIMPLE_CNN, *PIECES, "--save-every", "7 steps"]

    def setUp(self):
        super().setUp()
        self.expected = self.train("whole", *self.TRAINING)
        self.weights = weights_of(self.folder / "whole")

    def check_goes_on(self, name, layout):
        output = self.train(name, *self.TRAINING, *layout)
        self.assertIn("resumes after step 7 from ", output)
        self.assertEqual(epochs_of(output), epochs_of(self.expected))
        self.check_weights(self.folder / name, self.weights)

    def test_other_stages_go_on(self):
        for begin, end in ((STAGES, []), ([], STAGES), (STAGES, [*REPLICAS_OF_STAGES, "--sharding", 1]),
                           ([*REPLICAS_OF_STAGES, "--sharding", 3], STAGES)):
            with self.subTest(begin=begin, end=end):
                name = f"{begin} to {end}"
                self.end_in_step(10, *self.TRAINING, *begin, "--backup-dir", self.folder / name)
                self.check_goes_on(name, end)

    def test_a_killed_rank_ends_the_others_and_other_meshes_go_on(self):
        for rank, end in ((0, []), (1, ["--replicas", 2, "--mesh", "data=2"]),
                          (0, ["--replicas", 4, "--mesh", "pipeline=2,data=2"]), (1, STAGES)):
            with self.subTest(rank=rank, end=end):
                name = f"{rank} to {end}"
                written = self.kill_worker(rank, 10, *self.TRAINING, "--mesh", "pipeline=2", "--backup-dir", self.folder / name)
                self.assertRegex(written[1 - rank][1], f"worker {rank}\\b")
                self.check_goes_on(name, end)


class RecordTest(Case):
    # Three steps, the last of which is measured.
    TRAINING = [*MOBILENET, *PIECES, "--limit-train", 42]

    def check_chart(self, folder):
        """Checks the record of step 3 in two stages and four micro-batches by 1F1B."""
        rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
        steps = [row for row in rows if row["kind"] == "pipeline"]
        self.assertEqual([(row["step"], row["schedule"], row["ranks"], row["stages"], row["micro_batches"], row["actions"])
                          for row in steps], [(3, "1f1b", 2, 2, 4, 32)])
        self.assertTrue(0 < steps[0]["bubble"] < 1, steps)
        computed = {rank: [(row["op"][0], row["stage"], row["micro_batch"]) for row in rows if row["kind"] == "pipeline_action"
                           and row["rank"] == rank and row["op"] in ("forward", "backward")] for rank in (0, 1)}
        self.assertEqual(computed, {rank: [(action[0], rank, int(action[1])) for action in order.split()] for rank, order in (
            (0, "f0 f1 b0 f2 b1 f3 b2 b3"), (1, "f0 b0 f1 b1 f2 b2 f3 b3"))})
        page = (folder / "report.html").read_text(encoding="utf-8")
        self.assertEqual(page.count("<h2>Pipeline</h2>"), 1)
        return page

    def test_a_report_has_the_chart_of_a_step_and_else_what_it_has_of_one_device(self):
        pages = []
        for name, layout in (("whole", []), ("stages", STAGES)):
            output = self.said_by(*self.TRAINING, *layout, "--run-dir", self.folder / name)
            if layout:
                self.assertIn("pipeline         2 stages, 1f1b, 4 micro-batches\n", output)
                self.check_chart(self.folder / name)
            pages.append((self.folder / name / "report.html").read_text(encoding="utf-8"))
        self.assertNotIn("<h2>Pipeline</h2>", pages[0])
        confusions = [re.findall(r"<h2>Confused classes.*?</svg>", page, re.DOTALL) for page in pages]
        self.assertEqual(len(confusions[0]), 1)
        self.assertEqual(*confusions)

    def test_the_step_of_two_workers(self):
        self.finish(*self.start_workers(2, *self.TRAINING, "--mesh", "pipeline=2", "--run-dir", self.folder / "run"))
        self.check_chart(self.folder / "run")


class UsageTest(Case):
    # None of them reads data or makes a folder.
    def refused(self, *arguments):
        said = self.said_by(*SIMPLE_CNN, "--data", self.folder / "none", "--run-dir", self.folder / "run", *arguments, code=2)
        self.assertFalse((self.folder / "run").exists())
        return said

    def test_more_stages_than_blocks(self):
        self.assertIn("--mesh pipeline=8: expected at most 3 stages of --model simple_cnn, but got 8 with --pipeline-schedule "
                      "1f1b: at most 3 ranks along the axis pipeline would do",
                      self.refused("--replicas", 8, "--mesh", "pipeline=8"))
        self.assertIn("--mesh pipeline=2: expected at most 3 stages of --model simple_cnn, but got 4 with --pipeline-schedule zb-v",
                      self.refused(*STAGES, "--pipeline-schedule", "zb-v"))
        self.assertIn("expected at most 20 stages of --model mobilenet_v2, but got 22",
                      self.refused(*STAGES, "--model", "mobilenet_v2", "--pipeline-schedule", "interleaved",
                                   "--stages-per-rank", 11))

    def test_micro_batches_that_ranks_do_not_divide(self):
        self.assertIn("--accumulate-steps 5: expected a number that the 2 ranks along the axis pipeline of --mesh pipeline=2 "
                      "divide, with --pipeline-schedule interleaved: 4 or 6 would do",
                      self.refused(*STAGES, "--model", "mobilenet_v2", "--pipeline-schedule", "interleaved",
                                   "--accumulate-steps", 5))

    def test_flags_that_do_not_go_together(self):
        self.assertIn("--pipeline-schedule gpipe: expected a --mesh with several ranks along the axis pipeline",
                      self.refused("--pipeline-schedule", "gpipe"))
        self.assertIn("--pipeline-cut time: expected a --mesh with several ranks along the axis pipeline",
                      self.refused("--pipeline-cut", "time"))
        self.assertIn("--stages-per-rank 2: expected it with --pipeline-schedule interleaved only",
                      self.refused(*STAGES, "--stages-per-rank", 2))
        self.assertIn("--pipeline-schedule: expected gpipe, 1f1b, interleaved, zb-h1, zb-v, but got '2f2b'",
                      self.refused(*STAGES, "--pipeline-schedule", "2f2b"))
        self.assertIn("--mesh tensor=2: expected pipeline as the only axis along which models of images are cut, as ranks cannot "
                      "share a convolution (--mesh pipeline=N cuts between layers, and --sharding 3 divides parameters), but got "
                      "tensor", self.refused("--replicas", 2, "--mesh", "tensor=2"))
        self.assertIn("but got tensor", self.refused("--replicas", 4, "--mesh", "pipeline=2,tensor=2"))
        self.assertIn("sharding: expected a mesh with an axis over which gradients are summed",
                      self.refused(*STAGES, "--sharding", 1))


if __name__ == "__main__":
    unittest.main()
