#!/usr/bin/env python3
"""train_images with its models in stages trains as one device does that adds up the gradients of the same pieces."""

import array
import os
import pathlib
import re
import secrets
import socket
import subprocess
import tempfile
import unittest

import saved_state
import workers

PROGRAM = os.environ["TRAIN_IMAGES"]
TIMEOUT = 300
PIECES = ["--accumulate-steps", 4]
COMMON = ["--data", "generated", "--precision", "float64", "--threads", "1", "--limit-test", "16"]
# The last of 20 steps has a batch of 4; batches of 10 are cut unevenly.
SIMPLE_CNN = [*COMMON, "--epochs", "1", "--limit-train", "194", "--global-batch-size", "10", "--clip-norm", "1"]
# Without dropout, whose random numbers depend on the block. A new MobileNetV2 magnifies rounding.
MOBILENET = [*COMMON, "--epochs", "1", "--model", "mobilenet_v2", "--head", "flattened_dense", "--image-size", "40",
             "--limit-train", "28", "--global-batch-size", "14", "--optimizer", "sgd", "--learning-rate", "0.01"]
STAGES = ["--replicas", 2, "--mesh", "pipeline=2"]
REPLICAS_OF_STAGES = ["--replicas", 4, "--mesh", "data=2,pipeline=2"]


def weights_of(folder):
    """The parameters and statistics of the newest checkpoint, by their names."""
    model = saved_state.load(max(folder.glob("checkpoint-*")) / "state.pt")["model"]
    return {name: array.array("d", values) for name, values in model.items()}


def epochs_of(output):
    """The printed loss and accuracies of each epoch."""
    return re.findall(r"^epoch \d+/\d+  loss \S+  accuracy \S+  test accuracy \S+", output, re.MULTILINE)


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def start(self, *arguments, environment=None):
        return subprocess.Popen([PROGRAM, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                env=environment or workers.clean_environment())

    def finish(self, process, code=0):
        output, errors = process.communicate(timeout=TIMEOUT)
        self.assertEqual(process.returncode, code, output + errors)
        return output + errors

    def train(self, name, *arguments):
        output = self.finish(self.start(*arguments, "--backup-dir", self.folder / name))
        self.assertGreater(len(epochs_of(output)), 0, output)
        return output

    def check_weights(self, name, other, tolerance):
        weights, expected = weights_of(self.folder / name), weights_of(self.folder / other)
        self.assertEqual(list(weights), list(expected))
        for parameter, values in weights.items():
            self.assertEqual(len(values), len(expected[parameter]), parameter)
            scale = max(1, max(map(abs, expected[parameter])))
            self.assertLessEqual(max(abs(a - b) for a, b in zip(values, expected[parameter])), tolerance * scale, parameter)

    def check_like(self, reference, *layouts, tolerance=1e-12):
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=self.folder))
        expected = self.train("reference", *reference)
        for number, layout in enumerate(layouts):
            with self.subTest(layout):
                output = self.train(f"stages{number}", *layout)
                self.assertEqual(epochs_of(output), epochs_of(expected))
                self.check_weights(f"stages{number}", "reference", tolerance)


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
        hosts = []
        for _ in range(2):
            with socket.socket() as listener:
                listener.bind(("127.0.0.1", 0))
                hosts.append(f"127.0.0.1:{listener.getsockname()[1]}")
        environment = workers.clean_environment() | {"LOCKSTEP_JOB_TOKEN": secrets.token_hex(32)}
        started = [self.start(*training, "--mesh", "pipeline=2", "--strategy", "multi_worker", "--worker-hosts", ",".join(hosts),
                              "--task-index", rank, "--backup-dir", self.folder / "workers", environment=environment)
                   for rank in range(2)]
        outputs = [self.finish(process) for process in started]
        self.assertEqual(epochs_of(outputs[0]), epochs_of(expected))
        self.check_weights("workers", "reference", 1e-12)

    def test_a_checkpoint_goes_on_with_other_stages(self):
        training = [*SIMPLE_CNN, *PIECES, "--save-every", "7 steps"]
        expected = self.train("reference", *training)
        for begin, end in ((STAGES, []), ([], STAGES), (STAGES, [*REPLICAS_OF_STAGES, "--sharding", 1]),
                           ([*REPLICAS_OF_STAGES, "--sharding", 3], STAGES)):
            with self.subTest(begin=begin, end=end):
                name = f"{begin} to {end}"
                environment = workers.clean_environment() | {"LOCKSTEP_FAULTS": "throw@rank0:step10"}
                self.finish(self.start(*training, *begin, "--backup-dir", self.folder / name, environment=environment), code=1)
                output = self.train(name, *training, *end)
                self.assertIn("resumes after step 7 from ", output)
                self.assertEqual(epochs_of(output), epochs_of(expected))
                self.check_weights(name, "reference", 1e-12)

    def test_a_recorded_run(self):
        training = [*MOBILENET, *PIECES]
        pages = []
        for name, layout in (("whole", []), ("stages", STAGES)):
            output = self.finish(self.start(*training, *layout, "--run-dir", self.folder / name))
            if layout:
                self.assertIn("pipeline         2 stages, 1f1b, 4 micro-batches\n", output)
            pages.append((self.folder / name / "report.html").read_text(encoding="utf-8"))
        confusions = [re.findall(r"<h2>Confused classes.*?</svg>", page, re.DOTALL) for page in pages]
        self.assertEqual(len(confusions[0]), 1)
        self.assertEqual(*confusions)

    def test_learning_rates_are_tried_in_stages(self):
        training = [*SIMPLE_CNN, *PIECES, "--find-learning-rate"]
        expected, output = (self.finish(self.start(*training, *layout)) for layout in ([], STAGES))
        found = [re.findall(r"suggested learning rate: (\S+)", text) for text in (expected, output)]
        self.assertEqual(len(found[0]), 1, expected)
        self.assertAlmostEqual(float(found[0][0]), float(found[1][0]), delta=1e-6 * float(found[0][0]))


class UsageTest(Case):
    def refused(self, *arguments):
        return self.finish(self.start(*SIMPLE_CNN, *arguments), code=2)

    def test_more_stages_than_blocks(self):
        self.assertIn("--mesh pipeline=4: expected at most 3 stages of --model simple_cnn, but got 4 with --pipeline-schedule 1f1b",
                      self.refused("--replicas", 4, "--mesh", "pipeline=4"))
        self.assertIn("--mesh pipeline=2: expected at most 3 stages of --model simple_cnn, but got 4 with --pipeline-schedule zb-v",
                      self.refused(*STAGES, "--pipeline-schedule", "zb-v"))
        self.assertIn("expected at most 20 stages of --model mobilenet_v2, but got 22",
                      self.refused(*STAGES, "--model", "mobilenet_v2", "--pipeline-schedule", "interleaved",
                                   "--stages-per-rank", 11))

    def test_flags_that_do_not_go_together(self):
        self.assertIn("--pipeline-schedule gpipe: expected a --mesh with several ranks along the axis pipeline",
                      self.refused("--pipeline-schedule", "gpipe"))
        self.assertIn("--stages-per-rank 2: expected it with --pipeline-schedule interleaved only",
                      self.refused(*STAGES, "--stages-per-rank", 2))
        self.assertIn("--pipeline-schedule: expected gpipe, 1f1b, interleaved, zb-h1, zb-v, but got '2f2b'",
                      self.refused(*STAGES, "--pipeline-schedule", "2f2b"))
        self.assertIn("--mesh tensor=2: expected pipeline as the only axis along which models of images are cut, but got tensor",
                      self.refused("--replicas", 2, "--mesh", "tensor=2"))
        self.assertIn("but got tensor", self.refused("--replicas", 4, "--mesh", "pipeline=2,tensor=2"))
        self.assertIn("sharding: expected a mesh with an axis over which gradients are summed",
                      self.refused(*STAGES, "--sharding", 1))


if __name__ == "__main__":
    unittest.main()
