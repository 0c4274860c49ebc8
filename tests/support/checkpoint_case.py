"""Shared by the tests that exchange files between Lockstep and Python's packages."""

import os
import pathlib
import subprocess
import tempfile
import unittest

PEER = os.environ["CHECKPOINT_PEER"]


class CheckpointCase(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def path(self, name):
        return str(self.folder / name)

    def peer(self, *arguments):
        """Runs checkpoint_peer, which must succeed."""
        process = subprocess.run([PEER, *arguments], capture_output=True, text=True, check=False, timeout=120)
        self.assertEqual(process.returncode, 0, process.stderr)
        return process.stdout

    def refusal_of_peer(self, *arguments):
        """The message of checkpoint_peer, which must fail in order."""
        process = subprocess.run([PEER, *arguments], capture_output=True, text=True, check=False, timeout=120)
        self.assertEqual(process.returncode, 1, process.stderr)
        return process.stderr

    def assert_same_tensors(self, given, expected):
        """Names, dtypes, shapes and every bit."""
        import torch

        self.assertEqual(sorted(given), sorted(expected))
        for name, tensor in expected.items():
            with self.subTest(name=name):
                self.assertEqual(given[name].dtype, tensor.dtype)
                self.assertEqual(given[name].shape, tensor.shape)
                bits = [value.contiguous().flatten().view(torch.uint8) for value in [given[name], tensor]]
                self.assertTrue(torch.equal(*bits))
