#!/usr/bin/env python3
"""How fault_campaign.py sees the transport of workers, and what a training has left behind."""

import argparse
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))

import fault_campaign_job

MAP_AND_WAIT = """
import mmap, os, sys
descriptor = os.memfd_create(sys.argv[1])
os.ftruncate(descriptor, 4096)
mapped = mmap.mmap(descriptor, 4096)
print("mapped", flush=True)
sys.stdin.read()
"""


class FaultCampaignTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)

    def job(self, sharding=0):
        arguments = argparse.Namespace(programs="/no/such/folder", data="generated", transport="tcp", sharding=sharding)
        return fault_campaign_job.Job(arguments, self.root)

    def start(self, *arguments):
        """A process that waits until its input ends."""
        process = subprocess.Popen([sys.executable, "-c", *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.stdin.close)
        process.stdout.readline()
        return process

    def test_only_memory_of_links_counts_as_shared(self):
        self.assertTrue(fault_campaign_job.shares_memory(self.start(MAP_AND_WAIT, "lockstep").pid))
        self.assertFalse(fault_campaign_job.shares_memory(self.start(MAP_AND_WAIT, "other").pid))

    def test_a_stage_of_sharding_takes_a_language_model(self):
        self.assertIn("/no/such/folder/train_images", self.job().command)
        shutil.rmtree(self.root / "tmp")
        command = self.job(sharding=3).command
        self.assertIn("/no/such/folder/train_gpt", command)
        self.assertEqual(command[command.index("--sharding") + 1], "3")
        self.assertNotIn("--data", command)

    def test_a_training_that_leaves_nothing_has_left_nothing(self):
        self.assertEqual(self.job().left_behind(), [])

    def test_processes_and_files_that_are_left_are_named(self):
        fault_campaign_job.FAREWELL = 0.1
        job = self.job()
        process = self.start("print(flush=True); import sys; sys.stdin.read()", str(job.folder))
        (job.scratch / "socket").touch()
        self.assertEqual(job.left_behind(), [f"process {process.pid}", str(job.scratch / "socket")])


if __name__ == "__main__":
    unittest.main()
