#!/usr/bin/env python3
"""Workers that torchrun starts train as one process does; those that it starts again, as many, fewer or more, resume from
their last checkpoint."""

import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import munged
import workers
from cluster_parity_test import PROGRAM, Parity

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--max-restarts", "2"]
TRAINING = [str(workers.BIN / "train_images"), "--strategy", "multi_worker", "--devices", "cpu:0,cpu:1", "--data",
            "generated", "--limit-train", "1280", "--limit-test", "64", "--threads", "1", "--check-replicas", "10",
            "--save-every", "3 steps", "--quiet"]
STEPS_OF_AN_EPOCH = 20


class TorchrunParityTest(Parity):
    def test_workers_started_by_torchrun(self):
        path = self.folder / "torchrun"
        output = self.run_command([*TORCHRUN, "--nproc-per-node", "2", "--no-python", PROGRAM, "2", str(path)])
        self.check(output, path, 4)
        self.assertIn("torchrun", output)

    @unittest.skipIf(munged.why_none(), munged.why_none())
    def test_workers_started_by_torchrun_without_a_token_by_munge(self):
        daemon = munged.Munged()
        self.addCleanup(daemon.end)
        path = self.folder / "munge"
        output = self.run_command([*TORCHRUN, "--nproc-per-node", "2", "--no-python", PROGRAM, "2", str(path)],
                                  LOCKSTEP_MUNGE="1", LOCKSTEP_MUNGE_SOCKET=str(daemon.socket))
        self.check(output, path, 4)


class TorchrunTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        with workers.reserved_port() as reserved:
            self.endpoint = f"127.0.0.1:{reserved.getsockname()[1]}"

    def start(self, name, options, epochs, **variables):
        command = [*TORCHRUN, *options, "--no-python", *TRAINING, "--epochs", str(epochs), "--backup-dir",
                   str(self.folder / name)]
        job = workers.Worker(command, workers.clean_environment() | variables)
        self.addCleanup(self.kill, job)
        return job

    def start_agent(self, epochs, is_host, patience):
        """One of the machines of a job that can do with one, and has room for two. They meet where the host is, and wait for a
        second one for so many seconds."""
        conf = f"is_host={str(is_host).lower()},last_call_timeout={patience}"
        return self.start("job", ["--nnodes", "1:2", "--nproc-per-node", "1", "--rdzv-backend", "c10d", "--rdzv-id", "job",
                                  "--rdzv-endpoint", self.endpoint, "--rdzv-conf", conf, "--local-addr", "127.0.0.1"],
                          # With a store for all of its starts, torchrun 2.11 does not tell its address to who joins later.
                          epochs, TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1")

    @staticmethod
    def children(agent):
        threads = pathlib.Path(f"/proc/{agent.process.pid}/task").glob("*/children")
        return [pid for children in threads for pid in children.read_text().split()]

    def kill(self, agent):
        """With the worker that it has started, which otherwise lives on."""
        pids = self.children(agent)
        agent.process.kill()  # first, lest it starts another
        for pid in pids:
            try:
                os.kill(int(pid), signal.SIGKILL)
            except ProcessLookupError:
                pass
        agent.kill()

    def wait_for_step(self, step, agent):
        deadline = time.monotonic() + 120
        # By their names: one that is looked into may be gone meanwhile.
        while not any(int(path.name[-12:]) >= step for path in (self.folder / "job").glob("checkpoint-*")):
            self.assertLess(time.monotonic(), deadline, agent.text())
            self.assertIsNone(agent.process.poll(), agent.text())
            time.sleep(0.05)

    def assert_finished(self, agent, epochs):
        try:
            code, _ = agent.wait(120)
        except subprocess.TimeoutExpired:
            self.fail(f"it has not come to its end:\n{agent.text()}")
        self.assertEqual(code, 0, agent.text())
        self.assertEqual(workers.last_checkpoint(self.folder / "job")[0], epochs * STEPS_OF_AN_EPOCH)

    def test_a_killed_worker_costs_no_bit(self):
        states = []
        # Folders of equally long names: checkpoints hold their configuration.
        for name, faults in (("job-0", ""), ("job-1", "kill@rank1:step17")):
            job = self.start(name, ["--nproc-per-node", "2"], 2, LOCKSTEP_FAULTS=faults)
            code, _ = job.wait(300)
            self.assertEqual(code, 0, job.text())
            states.append(workers.last_checkpoint(self.folder / name))
        self.assertIn("resumes after step 15 from ", job.text())
        self.assertEqual(states[0][0], 2 * STEPS_OF_AN_EPOCH)
        self.assertEqual(states[1], states[0])

    def test_a_machine_that_is_gone_leaves_the_job_to_the_other(self):
        epochs = 10
        first = self.start_agent(epochs, True, patience=10)
        second = self.start_agent(epochs, False, patience=10)
        self.wait_for_step(20, first)
        self.kill(second)
        self.assert_finished(first, epochs)
        self.assertRegex(first.text(), r"worker [01] \(\S+\) was lost")
        self.assertRegex(first.text(), r"resumes after step \d+ from ")

    def test_a_machine_that_comes_later_takes_part(self):
        epochs = 100_000  # whenever it comes
        first = self.start_agent(epochs, True, patience=3)
        self.wait_for_step(20, first)
        second = self.start_agent(epochs, False, patience=3)
        # The worker that trained alone ends its step and saves.
        first.wait_for("stopped by SIGTERM")
        deadline = time.monotonic() + 120
        while not (found := re.search(r"resumes after step (\d+) from ", first.text() + second.text())):
            self.assertLess(time.monotonic(), deadline, first.text() + second.text())
            time.sleep(0.05)
        self.wait_for_step(int(found[1]) + 20, first)
        for agent in (first, second):
            sizes = [word for pid in self.children(agent)
                     for word in pathlib.Path(f"/proc/{pid}/environ").read_text(encoding="utf-8").split("\0")
                     if word.startswith("WORLD_SIZE=")]
            self.assertEqual(sizes, ["WORLD_SIZE=2"])


if __name__ == "__main__":
    unittest.main()
