#!/usr/bin/env python3
"""Workers that were started with different flags, or that cannot write where a flag says, end with codes and messages
that name the mistake."""

import gzip
import pathlib
import struct
import tempfile
import unittest

from worker_trainings import TRAINING, train

WITHOUT_DATA = TRAINING[2:]
WITHOUT_EPOCHS = [argument for index, argument in enumerate(TRAINING)
                  if "--epochs" not in (argument, TRAINING[index - 1])]


def write_mnist(folder, count_of_split):
    """Files in MNIST's format with black images."""
    for split, count in count_of_split.items():
        with gzip.open(folder / f"{split}-images-idx3-ubyte.gz", "wb") as images:
            images.write(struct.pack(">IIII", 0x803, count, 28, 28) + bytes(28 * 28 * count))
        with gzip.open(folder / f"{split}-labels-idx1-ubyte.gz", "wb") as labels:
            labels.write(struct.pack(">II", 0x801, count) + bytes(count))


class WorkersMistakesTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def check_both(self, results, pattern):
        """Both workers end with 5 and say what differs."""
        self.assertEqual([code for code, _ in results], [5, 5], results)
        for _, output in results:
            self.assertRegex(output, pattern)

    def test_other_data_of_the_same_size_is_named_by_both(self):
        write_mnist(self.folder, {"train": 320, "t10k": 100})
        results = train(["--data", "generated"], ["--data", str(self.folder)], training=WITHOUT_DATA)
        self.check_both(results, r"error: \[dataset\] expected the same on all workers, but worker 0 \(.*\) has generated digits "
                        r"of seed \d+ where worker 1 \(.*\) has MNIST's files: ")

    def test_other_epochs_are_named_by_both(self):
        results = train(["--epochs", "1"], ["--epochs", "3"], training=WITHOUT_EPOCHS)
        self.check_both(results, r"error: \[fit\] expected the same on all workers, but worker 0 \(.*\) has epochs: 1 "
                        r"where worker 1 \(.*\) has epochs: 3")

    def test_a_folder_that_cannot_be_written_ends_its_worker_for_good_and_is_told_to_the_others(self):
        for flag in ("--backup-dir", "--mlflow-dir"):
            with self.subTest(flag):
                arguments = [flag, "/proc/sys/lockstep", "--retryable-exit-code", "200"]
                (code, output), (other_code, other_output) = train(arguments, arguments)
                self.assertEqual((code, other_code), (4, 200), (output, other_output))
                expected = f"{flag} /proc/sys/lockstep: expected a folder that can be written, but the system says: "
                self.assertIn(f"error: worker 0: {expected}", output)
                self.assertRegex(other_output, rf"error: worker 0 \(.*\): {expected}")


if __name__ == "__main__":
    unittest.main()
