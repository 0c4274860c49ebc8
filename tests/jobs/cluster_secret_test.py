#!/usr/bin/env python3
"""Jobs without a job token: on loopback, only processes of their user can join; all others are refused."""

import json
import os
import pathlib
import stat
import subprocess
import tempfile
import time
import unittest

import other_user
import workers

TRAINING = [str(workers.BIN / "train_images"), "--strategy", "multi_worker", "--data", "generated", "--epochs", "1",
            "--limit-train", "512", "--limit-test", "64", "--threads", "1"]
SERVED = [str(workers.BIN / "train_ctr"), "--strategy", "parameter_server"]
COMMAND = "export LOCKSTEP_JOB_TOKEN=$(openssl rand -hex 32)"


class SecretTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def start(self, index, first, command=(), **variables):
        """A worker of a job of two without a token, whose worker 0 listens on the socket `first`."""
        environment = workers.clean_environment() | {"XDG_RUNTIME_DIR": str(self.folder), "LOCKSTEP_JOIN_TIMEOUT": "60"}
        environment["TF_CONFIG"] = workers.tf_config([f"127.0.0.1:{first.getsockname()[1]}", "127.0.0.1:9"], index)
        pass_fds = ()
        if index == 0:
            environment["LOCKSTEP_LISTEN_FD"] = str(first.fileno())
            pass_fds = (first.fileno(),)
        worker = workers.Worker([*command, *TRAINING], environment | variables, pass_fds)
        self.addCleanup(worker.kill)
        return worker

    def wait_for_file(self, path, limit=120):
        deadline = time.monotonic() + limit
        while not path.exists():
            self.assertLess(time.monotonic(), deadline, f"no {path}")
            time.sleep(0.02)

    def check_end(self, worker, code, *texts):
        self.assertEqual(worker.wait(120)[0], code, worker.text())
        for text in texts:
            self.assertIn(text, worker.text())

    def test_workers_of_one_user_on_loopback_train(self):
        with workers.reserved_port() as first:
            started = [self.start(index, first, LOCKSTEP_JOB_ID="a job") for index in range(2)]
        for worker in started:
            self.check_end(worker, 0)
        self.assertIn("2 workers", started[0].text())
        secret = self.folder / "lockstep/user_secret"
        self.assertEqual(stat.S_IMODE(secret.stat().st_mode), 0o600)
        self.assertNotIn(secret.read_text().strip(), started[0].text() + started[1].text())

    def test_jobs_of_one_user_do_not_mix(self):
        with workers.reserved_port() as first:
            started = [self.start(index, first, LOCKSTEP_JOB_ID=f"job {index}", LOCKSTEP_JOIN_TIMEOUT="10")
                       for index in range(2)]
        self.check_end(started[1], 5, "with another job token than worker 0")
        self.check_end(started[0], 5, "worker 1 of 2 did not come")

    def test_a_process_of_another_user_cannot_join(self):
        reason = other_user.why_none()
        if reason:
            self.skipTest(reason)
        own = self.folder / "other"
        own.mkdir(mode=0o700)
        os.chown(own, other_user.ID, other_user.ID)
        self.folder.chmod(0o755)
        with workers.reserved_port() as first:
            joined = [self.start(0, first)]
            secret = self.folder / "lockstep/user_secret"
            self.wait_for_file(secret)
            # With the same environment, and with a folder of its own.
            self.check_end(self.start(1, first, other_user.AS_OTHER_USER), 2, f"{secret}: expected a file that belongs to this user",
                           f"one of user {os.geteuid()}", COMMAND)
            self.check_end(self.start(1, first, other_user.AS_OTHER_USER, XDG_RUNTIME_DIR=str(own)), 5,
                           "with another job token than worker 0")
            self.assertEqual((own / "lockstep/user_secret").stat().st_uid, other_user.ID)
            joined.append(self.start(1, first))
        for worker in joined:
            self.check_end(worker, 0)

    def test_a_user_without_a_folder_is_told_to_make_a_token(self):
        environment = workers.clean_environment()
        for name in ("HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR"):
            environment.pop(name, None)
        environment["TF_CONFIG"] = workers.tf_config(["127.0.0.1:1", "127.0.0.1:9"], 1)
        self.check_refusal(TRAINING, environment, "expected XDG_RUNTIME_DIR, XDG_CACHE_HOME or HOME to name a folder")

    def check_refusal(self, command, variables, *texts):
        result = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(result.returncode, 2, result.stdout + result.stderr)
        for text in (*texts, COMMAND, "the same secret for all processes"):
            self.assertIn(text, result.stderr)
        return result

    def test_workers_that_other_machines_can_reach_need_a_token(self):
        launched = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "MASTER_PORT": "29500"}
        of_slurm = {"SLURM_JOB_ID": "42", "SLURM_STEP_ID": "0", "SLURM_PROCID": "1", "SLURM_NODEID": "0", "SLURM_LOCALID": "1",
                    "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_TASKS_PER_NODE": "2", "LOCKSTEP_MUNGE": "0"}
        of_mpi = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "0",
                  "OMPI_COMM_WORLD_LOCAL_SIZE": "1", "MASTER_PORT": "2222"}
        for variables, address in (
                ({"TF_CONFIG": workers.tf_config(["127.0.0.1:1", "192.0.2.1:2"], 0)}, "worker 1, 192.0.2.1,"),
                (launched | {"MASTER_ADDR": "node7"}, "worker 0, node7,"),
                (launched | {"MASTER_ADDR": "train-master-0", "KUBERNETES_SERVICE_HOST": "10.1.0.1"}, "worker 0, train-master-0,"),
                (of_slurm | {"SLURM_STEP_NODELIST": "node7"}, "worker 0, node7,"),
                (of_mpi | {"MASTER_ADDR": "192.0.2.1"}, "worker 0, 192.0.2.1,"),
                ({"TF_CONFIG": workers.tf_config(["127.0.0.1:1", "127.0.0.1:2"], 0), "LOCKSTEP_ADDRESS": "192.0.2.1"},
                 "this process (LOCKSTEP_ADDRESS), 192.0.2.1,")):
            with self.subTest(address):
                self.check_refusal(TRAINING, workers.clean_environment() | variables, f"the address of {address}")

    def test_parameter_servers_that_other_machines_can_reach_need_a_token(self):
        cluster = {"chief": ["127.0.0.1:1"], "worker": ["127.0.0.1:2"], "ps": ["192.0.2.1:3"]}
        for task in cluster:
            with self.subTest(task):
                config = json.dumps({"cluster": cluster, "task": {"type": task, "index": 0}})
                self.check_refusal(SERVED, workers.clean_environment() | {"TF_CONFIG": config}, "the address of ps 0, 192.0.2.1,")


class ServersTest(unittest.TestCase):
    def test_parameter_servers_of_one_user_on_loopback_train(self):
        started = workers.start_served(1, [*SERVED, "--threads", "1", "--train-rows", "20000", "--test-rows", "2000",
                                           "--global-batch-size", "256", "--table-rows", "2000", "--steps", "20"])
        for worker in started.values():
            self.addCleanup(worker.kill)
        for worker in started.values():
            self.assertEqual(worker.wait(120)[0], 0, worker.text())
        self.assertIn("20 applied", started["chief 0"].text())


if __name__ == "__main__":
    unittest.main()
