#!/usr/bin/env python3
"""train_images with its models' parameters divided among replicas trains as one device does."""

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
COMMON = ["--data", "generated", "--epochs", "1", "--precision", "float64", "--threads", "1", "--limit-test", "16"]
# The last of 20 steps has a batch of 4 among up to 4 replicas; batches of 10 are cut unevenly.
SIMPLE_CNN = [*COMMON, "--model", "simple_cnn", "--limit-train", "194", "--global-batch-size", "10", "--clip-norm", "1"]
# Without dropout, which draws from each replica's own stream. A new MobileNetV2 magnifies rounding.
MOBILENET = [*COMMON, "--model", "mobilenet_v2", "--head", "flattened_dense", "--sync-batch-norm",
             "--limit-train", "14", "--global-batch-size", "7", "--optimizer", "sgd", "--learning-rate", "0.01"]


def weights_of(folder):
    """The parameters and statistics of the newest checkpoint, by their names."""
    model = saved_state.load(max(folder.glob("checkpoint-*")) / "state.pt")["model"]
    return {name: array.array("d", values) for name, values in model.items()}


class ShardingTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def start(self, name, *arguments, environment=None):
        return subprocess.Popen([PROGRAM, *map(str, arguments), "--backup-dir", str(self.folder / name)],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                env=environment or workers.clean_environment())

    def finish(self, process):
        output, errors = process.communicate(timeout=TIMEOUT)
        self.assertEqual(process.returncode, 0, output + errors)
        return output

    def check_like_one_device(self, training, *layouts, tolerance=1e-12):
        alone = self.finish(self.start("alone", *training))
        expected = weights_of(self.folder / "alone")
        for number, layout in enumerate(layouts):
            with self.subTest(layout):
                output = self.finish(self.start(f"sharded{number}", *training, *layout, "--sharding", 3))
                self.check_weights(self.folder / f"sharded{number}", expected, tolerance)
                losses = [re.findall(r"test loss (\S+)", text) for text in (output, alone)]
                self.assertEqual(*losses)
                summaries = [re.findall(r"^.* parameters, .* of them trained", text, re.MULTILINE) for text in (output, alone)]
                self.assertEqual(*summaries)
                self.assertEqual(len(summaries[0]), 1)
        return expected

    def check_weights(self, folder, expected, tolerance):
        weights = weights_of(folder)
        self.assertEqual(weights.keys(), expected.keys())
        self.assertEqual(sum(map(len, weights.values())), sum(map(len, expected.values())))
        for name, values in weights.items():
            scale = max(1, max(map(abs, expected[name])))
            self.assertLess(max(abs(a - b) for a, b in zip(values, expected[name])), tolerance * scale, name)

    def test_simple_cnn(self):
        expected = self.check_like_one_device(SIMPLE_CNN, ["--replicas", 2], ["--replicas", 4, "--mesh", "data=2,shard=2"])
        # Two workers.
        hosts = []
        for _ in range(2):
            with socket.socket() as listener:
                listener.bind(("127.0.0.1", 0))
                hosts.append(f"127.0.0.1:{listener.getsockname()[1]}")
        environment = workers.clean_environment() | {"LOCKSTEP_JOB_TOKEN": secrets.token_hex(32)}
        started = [self.start("workers", *SIMPLE_CNN, "--sharding", 3, "--strategy", "multi_worker", "--worker-hosts",
                              ",".join(hosts), "--task-index", rank, environment=environment) for rank in range(2)]
        for process in started:
            self.finish(process)
        self.check_weights(self.folder / "workers", expected, 1e-12)

    def test_mobilenet_v2(self):
        # Two steps, after which the statistics are measured again: rounding grows from layer to layer, for replicas that
        # hold everything as well.
        self.check_like_one_device(MOBILENET, ["--replicas", 2], tolerance=1e-8)
        self.finish(self.start("whole", *MOBILENET, "--replicas", 2))
        self.assertEqual(weights_of(self.folder / "sharded0"), weights_of(self.folder / "whole"))


if __name__ == "__main__":
    unittest.main()
