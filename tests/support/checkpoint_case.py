"""Shared by the tests that exchange files between Lockstep and Python's packages."""

import os
import pathlib
import subprocess
import tempfile
import unittest

PEER = os.environ["CHECKPOINT_PEER"]


class CheckpointCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.process = subprocess.Popen([PEER, "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        cls.addClassCleanup(cls.process.communicate)

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def path(self, name):
        return str(self.folder / name)

    def answer(self, arguments):
        """How a command of checkpoint_peer ends, and its output."""
        print(*arguments, sep="\t", file=self.process.stdin, flush=True)
        lines = []
        for line in self.process.stdout:
            if line in ("\4done\n", "\4failed\n"):
                return line[1:-1], "".join(lines)
            lines.append(line)
        raise AssertionError(f"checkpoint_peer {arguments} exited with {self.process.wait()}: {lines}")

    def peer(self, *arguments):
        """Has checkpoint_peer run a command, which must succeed."""
        end, output = self.answer(arguments)
        self.assertEqual(end, "done", output)
        return output

    def refusal_of_peer(self, *arguments):
        """The message of a command of checkpoint_peer, which must fail in order."""
        end, output = self.answer(arguments)
        self.assertEqual(end, "failed", output)
        return output

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
