#!/usr/bin/env python3
"""train_images with its models' parameters divided among replicas trains as one device does."""

import os
import re
import unittest

from saved_state import weights_of
from workers import TrainingCase

COMMON = ["--data", "generated", "--epochs", "1", "--precision", "float64", "--threads", "1", "--limit-test", "16"]
# The last of 20 steps has a batch of 4 among up to 4 replicas; batches of 10 are cut unevenly.
SIMPLE_CNN = [*COMMON, "--model", "simple_cnn", "--limit-train", "194", "--global-batch-size", "10", "--clip-norm", "1"]
# Without dropout, which draws from each replica's own stream. A new MobileNetV2 magnifies rounding.
MOBILENET = [*COMMON, "--model", "mobilenet_v2", "--head", "flattened_dense", "--sync-batch-norm",
             "--limit-train", "14", "--global-batch-size", "7", "--optimizer", "sgd", "--learning-rate", "0.01"]


class ShardingTest(TrainingCase):
    program = os.environ["TRAIN_IMAGES"]

    def train(self, name, *arguments):
        output, _ = self.finish(self.start(*arguments, "--backup-dir", self.folder / name))[0]
        return output

    def check_like_one_device(self, training, *layouts, tolerance=1e-12):
        alone = self.train("alone", *training)
        expected = weights_of(self.folder / "alone")
        for number, layout in enumerate(layouts):
            with self.subTest(layout):
                output = self.train(f"sharded{number}", *training, *layout, "--sharding", 3)
                self.check_weights(self.folder / f"sharded{number}", expected, tolerance)
                losses = [re.findall(r"test loss (\S+)", text) for text in (output, alone)]
                self.assertEqual(*losses)
                summaries = [re.findall(r"^.* parameters, .* of them trained", text, re.MULTILINE) for text in (output, alone)]
                self.assertEqual(*summaries)
                self.assertEqual(len(summaries[0]), 1)
        return expected

    def test_simple_cnn(self):
        expected = self.check_like_one_device(SIMPLE_CNN, ["--replicas", 2], ["--replicas", 4, "--mesh", "data=2,shard=2"])
        self.finish(*self.start_workers(2, *SIMPLE_CNN, "--sharding", 3, "--backup-dir", self.folder / "workers"))
        self.check_weights(self.folder / "workers", expected)

    def test_mobilenet_v2(self):
        # Two steps, after which the statistics are measured again: rounding grows from layer to layer, for replicas that
        # hold everything as well.
        self.check_like_one_device(MOBILENET, ["--replicas", 2], tolerance=1e-8)
        self.train("whole", *MOBILENET, "--replicas", 2)
        self.assertEqual(weights_of(self.folder / "sharded0"), weights_of(self.folder / "whole"))


if __name__ == "__main__":
    unittest.main()
