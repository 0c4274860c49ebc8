#!/usr/bin/env python3
"""benchmarks/peers/torch_ddp.py with a torch that only writes down how each rank calls it: what the ranks do on GPUs."""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

PEER = pathlib.Path(__file__).resolve().parents[3] / "benchmarks" / "peers" / "torch_ddp.py"

# Each line of the file CALLS begins with a rank. A number of steps is the rank's own, so that ranks other than 0 end at once.
TORCH = '''
import os
import sys
import time
from unittest.mock import MagicMock

rank = int(sys.argv[sys.argv.index("--rank") + 1]) if "--rank" in sys.argv else 0


def note(*words):
    with open(os.environ["CALLS"], "a", encoding="utf-8") as file:
        file.write(f"{rank} {' '.join(map(str, words))}\\n")


class Device:
    def __init__(self, kind, index=None):
        self.type, self.index = kind, index

    def __str__(self):
        return f"{self.type}:{self.index}"


class Count:
    def __init__(self, values, device):
        self.value = values[0]

    def __int__(self):
        return self.value


def broadcast(count, source):
    note("process", os.getpid())
    if rank != 0 and "HANGS" in os.environ:
        time.sleep(600)


def randn(*shape):
    note("images", shape[0])
    return MagicMock()


def init_process_group(backend, init_method, rank, world_size):
    note("group", backend, rank, world_size)


torch = MagicMock()
torch.device = Device
torch.tensor = Count
torch.randn = randn
torch.cuda.set_device = lambda device: note("device", device)
torch.distributed.broadcast = broadcast
torch.distributed.init_process_group = init_process_group
torch.nn.parallel.DistributedDataParallel = lambda network, **options: MagicMock(name="replicated model")
torch.compile = lambda model: note("compile", model._mock_name) or model
sys.modules["torch"] = torch
sys.modules["torch.distributed"] = torch.distributed
sys.modules["torchvision"] = MagicMock()
'''


def exists(process):
    """Whether it is there and not a zombie."""
    try:
        return pathlib.Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class TorchDdpTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.calls = pathlib.Path(folder.name) / "calls"
        for module, text in [("torch", TORCH), ("torchvision", "")]:
            (pathlib.Path(folder.name) / f"{module}.py").write_text(text, encoding="utf-8")
        self.environment = {**os.environ, "PYTHONPATH": folder.name, "CALLS": str(self.calls)}

    def start(self, *flags, **environment):
        process = subprocess.Popen(
            [sys.executable, "-B", str(PEER), *flags], env={**self.environment, **environment}, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def calls_of(self, rank, what):
        lines = [line.split() for line in self.calls.read_text(encoding="utf-8").splitlines()]
        return [" ".join(words) for number, name, *words in lines if (number, name) == (str(rank), what)]

    def train(self, *flags):
        process = self.start(*flags)
        out, errors = process.communicate("2\n", timeout=60)
        self.assertEqual(process.returncode, 0, errors)
        ready, seconds = out.splitlines()
        self.assertEqual(ready, "ready 0")
        self.assertGreater(float(seconds), 0)

    def test_there_is_a_rank_on_each_gpu_over_nccl_and_they_share_the_batch(self):
        self.train("--replicas", "3", "--gpus", "gpu:2,gpu:0,gpu:5", "--global-batch-size", "12")
        for rank, device in enumerate(["cuda:2", "cuda:0", "cuda:5"]):
            self.assertEqual(self.calls_of(rank, "device"), [device])
            self.assertEqual(self.calls_of(rank, "group"), [f"nccl {rank} 3"])
            self.assertEqual(self.calls_of(rank, "images"), ["4"])
            self.assertEqual(self.calls_of(rank, "compile"), [])

    def test_one_gpu_has_one_rank(self):
        self.train("--replicas", "1", "--gpus", "gpu:1", "--global-batch-size", "12")
        self.assertEqual(self.calls_of(0, "device"), ["cuda:1"])
        self.assertEqual(self.calls_of(0, "group"), ["nccl 0 1"])
        self.assertEqual(self.calls_of(0, "images"), ["12"])

    def test_every_rank_compiles_the_replicated_model_where_asked_to(self):
        self.train("--replicas", "2", "--gpus", "gpu:0,gpu:1", "--compile")
        for rank in range(2):
            self.assertEqual(self.calls_of(rank, "compile"), ["replicated model"])

    def test_ranks_on_the_cpu_meet_over_gloo(self):
        self.train("--replicas", "2")
        for rank in range(2):
            self.assertEqual(self.calls_of(rank, "group"), [f"gloo {rank} 2"])
            self.assertEqual(self.calls_of(rank, "device"), [])

    def test_ranks_without_a_gpu_of_their_own_are_refused(self):
        process = self.start("--replicas", "3", "--gpus", "gpu:0,gpu:1")
        _, errors = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 1)
        self.assertIn("--replicas: expected 2, one on each of --gpus gpu:0,gpu:1, but got 3", errors)
        self.assertFalse(self.calls.exists())

    def test_a_rank_does_not_outlive_rank_0(self):
        process = self.start("--replicas", "2", "--gpus", "gpu:0,gpu:1", HANGS="1")
        deadline = time.monotonic() + 60
        while not (self.calls.exists() and self.calls_of(1, "process")):
            self.assertLess(time.monotonic(), deadline, "rank 1 has not begun to wait")
            time.sleep(0.05)
        other = int(self.calls_of(1, "process")[0])
        self.assertTrue(exists(other))
        process.send_signal(signal.SIGKILL)
        deadline = time.monotonic() + 10
        while exists(other):
            self.assertLess(time.monotonic(), deadline, "rank 1 is still there")
            time.sleep(0.05)


if __name__ == "__main__":
    unittest.main()
