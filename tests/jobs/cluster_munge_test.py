#!/usr/bin/env python3
"""Jobs whose first task gives the secret to the others by MUNGE, with a munged of the test's own."""

import os
import subprocess
import time
import unittest

import attacked_job
import munged
import other_user
import secret_job
import workers

REFUSED = "it refuses this process: it takes only processes of the same user, by MUNGE, and of the same job"


@unittest.skipIf(munged.why_none(), munged.why_none())
class MungeTest(secret_job.SecretJob):
    def setUp(self):
        super().setUp()
        self.munged = self.start_munged()

    def start_munged(self):
        started = munged.Munged()
        self.addCleanup(started.end)
        return started

    def source(self):
        return {"LOCKSTEP_MUNGE": "1", "LOCKSTEP_MUNGE_SOCKET": str(self.munged.socket)}

    def attack(self, name, place):
        attacker = attacked_job.Attacker(name, [place])
        self.addCleanup(attacker.end)
        return attacker

    def test_workers_have_the_same_bits_as_with_a_token(self):
        self.check_same_bits_as_with_a_token(LOCKSTEP_MUNGE=None)

    def test_parameter_servers_train(self):
        self.check_servers_train()

    def test_tasks_of_slurm_need_neither_a_token_nor_a_switch(self):
        with workers.reserved_port() as first:
            of_step = {"SLURM_JOB_ID": "42", "SLURM_STEP_ID": "0", "SLURM_NODEID": "0", "SLURM_STEP_NUM_TASKS": "2",
                       "SLURM_STEP_TASKS_PER_NODE": "2", "SLURM_STEP_NODELIST": "localhost",
                       "MASTER_PORT": str(first.getsockname()[1])}
        started = [self.watched(workers.Worker(secret_job.TRAINING, self.environment(
            LOCKSTEP_MUNGE=None, SLURM_PROCID=str(task), SLURM_LOCALID=str(task), **of_step))) for task in range(2)]
        self.check_trains(started)
        self.assertIn("Slurm (step 42.0", started[0].text())
        self.assertFalse((self.folder / "lockstep").exists(), "the user's secret was used")

    def test_the_first_task_may_come_last(self):
        with workers.reserved_port() as first:
            second = self.start(1, first)
            time.sleep(2)
            self.assertIsNone(second.process.poll(), second.text())
            self.check_trains([self.start(0, first), second])

    def test_a_process_of_another_user_gets_no_secret(self):
        reason = other_user.why_none()
        if reason:
            self.skipTest(reason)
        with workers.reserved_port() as first:
            started = [self.start(0, first)]
            self.check_end(self.start(1, first, command=other_user.AS_OTHER_USER), 5, REFUSED, "from worker 0 (127.0.0.1:")
            started.append(self.start(1, first))
        self.check_trains(started)

    def test_a_first_task_of_another_user_gives_no_secret(self):
        reason = other_user.why_none()
        if reason:
            self.skipTest(reason)
        self.check_refusal({"command": other_user.AS_OTHER_USER}, {}, REFUSED)

    def test_a_process_of_another_job_gets_no_secret(self):
        self.check_refusal({"LOCKSTEP_JOB_ID": "a job"}, {"LOCKSTEP_JOB_ID": "another job"}, REFUSED, "(LOCKSTEP_JOB_ID)")

    def test_machines_with_another_key_of_munge_get_no_secret(self):
        self.check_refusal({}, {"LOCKSTEP_MUNGE_SOCKET": str(self.start_munged().socket)}, REFUSED)

    def test_a_task_without_munge_is_told_what_is_missing(self):
        with workers.reserved_port() as first:
            socket = str(self.folder / "no socket")
            self.check_end(self.start(1, first, LOCKSTEP_MUNGE_SOCKET=socket), 2, f"expected munged to answer at {socket}",
                           "LOCKSTEP_MUNGE_SOCKET")

    def test_all_tasks_need_the_same_source_of_the_secret(self):
        by_token = {"LOCKSTEP_MUNGE": None, "LOCKSTEP_JOB_TOKEN": workers.TOKEN}
        with workers.reserved_port() as first:
            by_munge = self.start(0, first, LOCKSTEP_JOIN_TIMEOUT="10")
            self.check_end(self.start(1, first, **by_token), 5, "with another job token than worker 0", "if one of them uses MUNGE")
            self.check_end(by_munge, 5, "worker 1 of 2 did not come")
        self.check_refusal(by_token, {"LOCKSTEP_JOIN_TIMEOUT": "5"}, "not within 5 s", "need the same source of the secret",
                           "MUNGE here")

    def test_with_a_token_too_a_process_needs_both(self):
        self.check_both_needed()

    def test_strangers_keep_nobody_from_the_secret(self):
        with workers.reserved_port() as first:
            place = ("tcp", *first.getsockname())
            started = [self.start(0, first)]
            deadline = time.monotonic() + 60
            while place not in workers.sockets_of(started[0].process.pid):
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.02)
            for answer in self.attack("probe", place).end():
                self.assertTrue(attacked_job.is_refusal(bytes.fromhex(answer["bytes"])), answer)
            self.attack("flood", place).end()
            held = self.attack("hold", place)
            started.append(self.start(1, first))
            self.check_trains(started)
            held.end()

    def test_jobs_that_other_machines_can_reach_are_told_of_all_sources(self):
        environment = self.environment(TF_CONFIG=workers.tf_config(["127.0.0.1:1", "192.0.2.1:2"], 0), LOCKSTEP_MUNGE=None)
        result = subprocess.run(secret_job.TRAINING, env=environment, capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(result.returncode, 2, result.stderr)
        for text in ("LOCKSTEP_JOB_TOKEN", "LOCKSTEP_MUNGE=1", "LOCKSTEP_CERTIFICATE_AUTHORITY"):
            self.assertIn(text, result.stderr)


if __name__ == "__main__":
    os.umask(0o022)
    unittest.main()
