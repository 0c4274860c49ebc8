#!/usr/bin/env python3
"""Jobs that lose a worker and are started again by launch_local.sh come to an undisturbed job's end, bit by bit."""

import os
import pathlib
import subprocess
import tempfile
import unittest

import workers

LAUNCHER = workers.ROOT / "scripts/launch_local.sh"
TRAINING = [str(workers.BIN / "train_images"), "--strategy", "multi_worker", "--devices", "cpu:0,cpu:1", "--data",
            "generated", "--epochs", "2", "--limit-train", "1280", "--limit-test", "64", "--threads", "1",
            "--check-replicas", "10"]
STEPS = 40


class RestartsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def launch(self, name, *options, faults="", restarts=3, count=2, flags=()):
        """The job's exit code, its output, and its last checkpoint's step and checksums."""
        backup = self.folder / name
        environment = {**workers.clean_environment(), "LOCKSTEP_FAULTS": faults}
        result = subprocess.run(
            [str(LAUNCHER), "--max-restarts", str(restarts), *options, str(count), *TRAINING, "--save-every", "3 steps",
             "--backup-dir", str(backup), *flags], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            timeout=300, check=False)
        return result.returncode, result.stdout, workers.last_checkpoint(backup)

    def test_killed_and_stopped_workers_cost_no_bit(self):
        # Folders of equally long names: checkpoints hold their configuration.
        code, output, expected = self.launch("job-0")
        self.assertEqual((code, expected[0]), (0, STEPS), output)
        faults = ("kill@rank0:step17", "kill@rank1:step17", "kill@rank0:step2", f"kill@rank1:step{STEPS}",
                  "stop@rank0:step9", "stop@rank1:step9", "throw@rank1:step11")
        for number, fault in enumerate(faults, start=1):
            with self.subTest(fault):
                code, output, state = self.launch(f"job-{number}", faults=fault)
                self.assertEqual(code, 0, output)
                self.assertIn("the job is started again as generation 1 of 3", output)
                self.assertEqual(state, expected, output)

    def test_workers_that_write_together_lose_no_bit(self):
        code, output, expected = self.launch("job-0", flags=["--shard-backup"])
        self.assertEqual((code, expected[0]), (0, STEPS), output)
        self.assertTrue(list((self.folder / "job-0").glob("checkpoint-*/state-1.pt")))
        # In the step after 15 the checkpoint of that one is under way.
        for number, fault in enumerate(("kill@rank0:step16", "kill@rank1:step16", "stop@rank1:step9"), start=1):
            with self.subTest(fault):
                code, output, state = self.launch(f"job-{number}", faults=fault, flags=["--shard-backup"])
                self.assertEqual(code, 0, output)
                self.assertIn("the job is started again as generation 1 of 3", output)
                if "kill" in fault:
                    # Worker 0 hears of the others' parts after that step at the earliest.
                    self.assertIn("resumes after step 12 from ", output)
                self.assertEqual(state, expected, output)

    def test_what_they_have_written_together_fewer_go_on_from(self):
        code, output, state = self.launch("job", "--min-workers", "1", faults="kill@rank2:step17", count=3,
                                          flags=["--shard-backup"])
        self.assertEqual(code, 0, output)
        self.assertRegex(output, r"resumes after step 1[25] from")
        self.assertEqual(state[0], STEPS)

    def test_a_worker_that_cannot_write_its_part_is_named(self):
        # Before main: each worker's own limit.
        limited = 'if [ "$LOCAL_RANK" = 1 ]; then ulimit -f 1; fi; exec "$@"'
        backup = self.folder / "job"
        result = subprocess.run(
            [str(LAUNCHER), "2", "bash", "-c", limited, "bash", *TRAINING, "--save-every", "3 steps", "--backup-dir",
             str(backup), "--shard-backup", "--quiet"], env=workers.clean_environment(), stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, timeout=300, check=False)
        self.assertEqual(result.returncode, 7, result.stdout)
        self.assertRegex(result.stdout, r"\[0\] train_images: a checkpoint could not be saved, training continues: "
                                        r"worker 1: cannot write \S+/state-1.pt")
        self.assertEqual([path.name for path in backup.iterdir()], [])

    def test_the_survivor_names_the_lost_worker_and_the_next_start_the_checkpoint(self):
        code, output, _ = self.launch("job", faults="kill@rank1:step17")
        self.assertEqual(code, 0, output)
        self.assertRegex(output, r"\[0\] train_images: error: .*worker 1 \(\S+\) was lost: its process ended")
        self.assertRegex(output, r"\[0\] train_images: resumes after step 1[25] from \S+/checkpoint-0000000000")

    def test_with_fewer_workers_it_goes_on_too(self):
        code, output, state = self.launch("job", "--min-workers", "1", faults="kill@rank2:step17", count=3)
        self.assertEqual(code, 0, output)
        self.assertIn("with 2 of 3 workers", output)
        self.assertEqual(state[0], STEPS)

    def test_a_replica_that_drifts_by_one_ulp_ends_the_job_with_6(self):
        for replica in range(4):
            with self.subTest(replica=replica):
                code, output, _ = self.launch(f"job{replica}", faults=f"ulp@replica{replica}:step7")
                self.assertEqual(code, 6, output)
                # Before the next checkpoint, which is after step 9: a state that differs is not saved.
                self.assertRegex(output, r"expected the same bits on all replicas, but after step 9 replica \d has "
                                         r"other ones in parameter convolution.weight")
                self.assertNotIn("is started again as", output)

    def test_a_parameter_that_is_not_finite_on_one_replica_ends_all_with_6(self):
        code, output, _ = self.launch("job", faults="nan@replica3:step7", restarts=0)
        self.assertEqual(code, 6, output)
        for rank, place in enumerate((r"of another worker", "cpu:1")):
            self.assertRegex(output, rf"\[{rank}\] train_images: error: .*step 8: expected a finite loss, but replica 3 "
                                     rf"\({place}\)")

    def test_faults_that_cannot_be_read_are_wrong_usage(self):
        code, output, _ = self.launch("job", faults="explode@rank0:step1")
        self.assertEqual(code, 2, output)
        self.assertIn("LOCKSTEP_FAULTS", output)


if __name__ == "__main__":
    os.umask(0o077)
    unittest.main()
