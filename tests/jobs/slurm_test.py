#!/usr/bin/env python3
"""Jobs of a real Slurm with two nodes: tasks of srun train as workers of launch_local.sh do, and docs/recipes/slurm.sh does what
docs/recipes.md says. Needs root and Slurm's Debian packages; scripts/nightly.sh runs it."""

import contextlib
import csv
import os
import pathlib
import re
import shlex
import signal
import subprocess
import tempfile
import threading
import time
import unittest

import workers
from slurm_cluster import NotPossible, SlurmCluster

PROGRAM = str(workers.BIN / "train_images")
LAUNCHER = workers.ROOT / "scripts/launch_local.sh"
RECIPE = workers.ROOT / "docs/recipes/slurm.sh"
TINY = ["--limit-train", "256", "--limit-test", "64", "--global-batch-size", "64", "--threads", "1", "--check-replicas", "10"]
STEPS_OF_AN_EPOCH = 4
TRAINING = ["--strategy", "multi_worker", "--data", "generated", "--epochs", "3", *TINY]
EPOCHS_OF_RECIPE = 90
RUNS = ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING")  # or will, or has just done so
MEASURED = {"epoch", "step", "loss", "accuracy", "validation_loss", "validation_accuracy", "learning_rate"}


def metrics_of(run):
    """The values of all epochs that a run has recorded, as they are written, without times."""
    with open(run / "metrics.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows and MEASURED <= set(rows[0]), rows
    return [{name: row[name] for name in MEASURED} for row in rows]


def launch(count, *flags):
    """Trains with workers of launch_local.sh."""
    result = subprocess.run([LAUNCHER, str(count), PROGRAM, *map(str, flags)], env=workers.clean_environment(),
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300,
                            check=False)
    assert result.returncode == 0, result.stdout


class SlurmCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        try:
            cls.cluster = SlurmCluster()
        except NotPossible as error:
            raise unittest.SkipTest(str(error)) from error
        cls.addClassCleanup(cls.close_cluster)

    @classmethod
    def close_cluster(cls):
        left = cls.cluster.close()
        assert not left, f"processes outlive their namespace: {left}"

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)


class TasksTest(SlurmCase):
    def srun(self, name, *options, **variables):
        """Trains with tasks of srun, and returns its exit code and output. They have a token unless `variables` say otherwise."""
        environment = {"LOCKSTEP_JOB_TOKEN": workers.TOKEN, "LOCKSTEP_JOIN_TIMEOUT": "60"} | variables
        result = self.cluster.run("srun", "--label", *options, PROGRAM, *TRAINING, "--run-dir", self.folder / f"run-{name}",
                                  "--backup-dir", self.folder / f"backup-{name}", **environment)
        return result.returncode, result.stdout

    def results(self, name):
        return workers.last_checkpoint(self.folder / f"backup-{name}"), metrics_of(self.folder / f"run-{name}")

    def check_parity(self, count, *layouts, **variables):
        """Tasks of each layout end with the bits and the metrics of as many workers of launch_local.sh."""
        name = f"local-{count}"
        launch(count, *TRAINING, "--run-dir", self.folder / f"run-{name}", "--backup-dir", self.folder / f"backup-{name}")
        expected = self.results(name)
        self.assertEqual(expected[0][0], 3 * STEPS_OF_AN_EPOCH)
        self.assertEqual(len(expected[1]), 3)
        for number, options in enumerate(layouts):
            with self.subTest(options):
                name = f"slurm-{number}"
                code, output = self.srun(name, f"--ntasks={count}", *options, **variables)
                self.assertEqual(code, 0, output)
                self.assertRegex(output, rf"Slurm \(step \d+\.0, SLURM_PROCID=0 of SLURM_STEP_NUM_TASKS={count}\)")
                self.assertEqual(self.results(name), expected, output)

    def test_two_tasks_train_as_two_workers(self):
        self.check_parity(2, ["--nodes=1"], ["--nodes=2"])

    def test_tasks_without_a_token_get_a_secret_by_the_munge_of_slurm(self):
        self.check_parity(2, ["--nodes=2"], LOCKSTEP_JOB_TOKEN="", LOCKSTEP_MUNGE_SOCKET=self.cluster.munge_socket)

    def test_three_tasks_on_two_nodes_train_as_three_workers(self):
        self.check_parity(3, ["--nodes=2", "--distribution=block"], ["--nodes=2", "--distribution=cyclic"])

    def test_four_tasks_in_every_order_of_slurm_train_as_four_workers(self):
        self.check_parity(4, *(["--nodes=2", f"--distribution={order}"]
                               for order in ("block", "cyclic", "plane=1", "plane=2", "block:cyclic,nopack")))

    def test_an_order_that_a_file_gives_is_refused_by_all_tasks_at_once(self):
        order = self.folder / "order"
        order.write_text("node2\nnode1\nnode2\nnode1\n", encoding="ascii")
        code, output = self.srun("arbitrary", "--ntasks=4", "--distribution=arbitrary", SLURM_HOSTFILE=str(order))
        self.assertEqual(code, 2, output)
        for task in range(4):
            self.assertRegex(output, rf"(?m)^{task}: .*expected SLURM_DISTRIBUTION to be block, cyclic or plane \(start it with "
                                     r"srun --distribution=block\), but got 'arbitrary'")

    def test_tasks_without_a_token_and_munge_are_refused_on_one_node_too(self):
        for options, variables in ((["--nodes=1"], {}), (["--nodes=2"], {}), (["--nodes=1"], {"MASTER_ADDR": "127.0.0.1"})):
            with self.subTest(options, **variables):
                code, output = self.srun("open", "--ntasks=2", *options, LOCKSTEP_JOB_TOKEN="", LOCKSTEP_MUNGE="0", **variables)
                self.assertEqual(code, 2, output)
                for task in range(2):
                    self.assertRegex(output, rf"(?m)^{task}: .*expected a job token, as the address of worker 0, node[12], is not a "
                                             r"loopback address, but got none: set LOCKSTEP_JOB_TOKEN")

    def test_a_task_with_another_token_is_named(self):
        other = workers.TOKEN[::-1]
        result = self.cluster.run(
            "srun", "--label", "--nodes=2", "--ntasks=2", "bash", "-c",
            f'if [ "$SLURM_PROCID" = 1 ]; then export LOCKSTEP_JOB_TOKEN={other}; fi; exec "$@"', "bash", PROGRAM, *TRAINING,
            LOCKSTEP_JOB_TOKEN=workers.TOKEN, LOCKSTEP_JOIN_TIMEOUT="5")
        self.assertEqual(result.returncode, 5, result.stdout)
        self.assertRegex(result.stdout, r"(?m)^1: .*with another job token than worker 0")

    def batch(self, *options):
        """Runs the program in a batch script without srun. Returns the job's fields and its output."""
        log = self.folder / "log"
        job = self.cluster.submit(f"--output={log}", *options, "--wrap", shlex.join(["exec", PROGRAM, *TRAINING]))
        fields = self.cluster.wait_for(job, lambda fields: fields["JobState"] in ("COMPLETED", "FAILED"))
        return fields, log.read_text(encoding="utf-8")

    def test_a_batch_script_of_several_tasks_is_told_to_use_srun(self):
        fields, output = self.batch("--ntasks=2")
        self.assertEqual((fields["JobState"], fields["ExitCode"]), ("FAILED", "2:0"), output)
        self.assertIn("this is a Slurm job with several tasks, but", output)

    def test_a_batch_script_of_one_task_trains_alone(self):
        fields, output = self.batch("--ntasks=1")
        self.assertEqual((fields["JobState"], fields["ExitCode"]), ("COMPLETED", "0:0"), output)


class Brake:
    """Keeps programs slow, so that something can happen to them before they are done on any machine. They stop for
    times that other workers do not take for a failure."""

    def __init__(self, tasks):
        self._tasks = tasks  # a function
        self._released = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._released.set()
        self._thread.join()

    def _run(self):
        while not self._released.is_set():
            tasks = self._tasks()
            for number, pause in ((signal.SIGSTOP, 0.3), (signal.SIGCONT, 0.03)):
                for task in tasks:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(task, number)
                time.sleep(pause)


class RecipeTest(SlurmCase):
    """Runs the recipe as it is, with a train_images in front of the real one in PATH that adds flags: the last of two counts."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        with tempfile.TemporaryDirectory() as folder:
            launch(2, "--strategy", "multi_worker", "--data", "generated", "--epochs", EPOCHS_OF_RECIPE, *TINY, "--backup-dir",
                   folder)
            cls.undisturbed = workers.last_checkpoint(pathlib.Path(folder))
        assert cls.undisturbed[0] == EPOCHS_OF_RECIPE * STEPS_OF_AN_EPOCH, cls.undisturbed

    def submit(self, *options, flags=(), **variables):
        self.log, self.backup, programs = (self.folder / name for name in ("log", "backup", "bin"))
        programs.mkdir()
        program = programs / "train_images"
        program.write_text(f'#!/bin/sh\nexec {PROGRAM} "$@" {shlex.join([*TINY, *flags])}\n', encoding="utf-8")
        program.chmod(0o755)
        job = self.cluster.submit(
            "--nodes=2", "--cpus-per-task=1", f"--output={self.log}", *options, RECIPE,
            **{"PATH": f"{programs}:{os.environ['PATH']}", "DATA": "generated", "BACKUP": str(self.backup),
               "LOCKSTEP_JOIN_TIMEOUT": "60"} | variables)
        # The next test finds the nodes free.
        self.addCleanup(self.cluster.wait_for, job, lambda fields: fields["JobState"] not in RUNS)
        self.addCleanup(self.cluster.run, "scancel", "--full", "--signal=KILL", job)
        self.addCleanup(self.cluster.run, "scancel", job)
        return job

    def text(self):
        return self.log.read_text(encoding="utf-8") if self.log.exists() else ""

    def tasks(self, job):
        return {rank: self.cluster.tasks(PROGRAM, SLURM_JOB_ID=job, SLURM_PROCID=str(rank)) for rank in range(2)}

    def brake(self, job):
        return Brake(lambda: sum(self.tasks(job).values(), []))

    def tokens(self, job):
        """Those of the running tasks: one set for each."""
        environments = [pathlib.Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
                        for processes in self.tasks(job).values() for process in processes]
        return [{value for value in environment if value.startswith(b"LOCKSTEP_JOB_TOKEN=")} for environment in environments]

    def wait_for_epoch(self, job, text="epoch 1/", start=0):
        deadline = time.monotonic() + 120
        while text not in self.text()[start:]:
            self.assertLess(time.monotonic(), deadline, self.text() + self.cluster.logs())
            self.assertIn(self.cluster.job(job)["JobState"], RUNS, self.text() + self.cluster.logs())
            time.sleep(0.02)

    def wait_for_requeue(self, job):
        return self.cluster.wait_for(job, lambda fields: fields["JobState"] == "PENDING" and fields["Restarts"] == "1")

    def start_again(self, job):
        """Slurm would wait for two minutes. A node does not start a job in the second in which it has ended it."""
        time.sleep(3)
        self.cluster.ask("scontrol", "update", f"JobId={job}", "StartTime=now")

    def check_end(self, job, state, exit_code, restarts):
        fields = self.cluster.wait_for(job, lambda fields: fields["JobState"] not in RUNS)
        self.assertEqual((fields["JobState"], fields["ExitCode"], fields["Restarts"]), (state, f"{exit_code}:0", str(restarts)),
                         self.text())

    def check_saved(self):
        """The step of the one checkpoint, which is neither the first nor the last."""
        step, _ = workers.last_checkpoint(self.backup)
        self.assertTrue(0 < step < self.undisturbed[0], step)
        return step

    def check_resumed(self, job, step):
        self.check_end(job, "COMPLETED", 0, restarts=1)
        self.assertIn(f"resumes after step {step} from {self.backup}", self.text())
        self.assertTrue(self.text().rstrip().endswith("complete"), self.text())
        self.assertEqual(workers.last_checkpoint(self.backup), self.undisturbed, self.text())

    def test_a_job_that_nothing_disturbs_completes(self):
        job = self.submit()
        self.check_end(job, "COMPLETED", 0, restarts=0)
        self.assertEqual(workers.last_checkpoint(self.backup), self.undisturbed, self.text())

    def test_the_time_limit_saves_queues_again_and_costs_no_bit(self):
        # The shortest limit is a minute. Slurm looks at it twice a minute.
        job = self.submit("--time=1", "--signal=TERM@50")
        self.wait_for_epoch(job)
        with self.brake(job):
            first = self.tokens(job)
            self.wait_for_requeue(job)
        text = self.text()
        for task in range(2):
            self.assertIn(f"node{task + 1}: task {task}: Exited with exit code 143", text)
        self.assertIn("exit code 143: queued again", text)
        step = self.check_saved()

        self.cluster.ask("scontrol", "update", f"JobId={job}", "TimeLimit=60")
        self.start_again(job)
        self.wait_for_epoch(job, "resumes after step", start=len(text))
        with self.brake(job):
            second = self.tokens(job)
        # Each start has a secret of its own, which its tasks share.
        for tokens in (first, second):
            self.assertEqual([len(of_task) for of_task in tokens], [1, 1])
            self.assertEqual(tokens[0], tokens[1])
            self.assertRegex(tokens[0].copy().pop().decode(), "^LOCKSTEP_JOB_TOKEN=[0-9a-f]{64}$")
        self.assertNotEqual(first, second)
        self.check_resumed(job, step)

    def test_a_killed_task_is_named_and_costs_no_bit(self):
        job = self.submit(flags=["--save-every", "3 steps"])
        self.wait_for_epoch(job)
        with self.brake(job):
            (task,) = self.tasks(job)[1]
            os.kill(task, signal.SIGKILL)
        self.wait_for_requeue(job)
        text = self.text()
        self.assertRegex(text, r"train_images: error: .*worker 1 \(node2\) was lost: its process ended")
        self.assertIn("node1: task 0: Exited with exit code 5", text)
        self.assertIn("node2: task 1: Killed", text)
        step = self.check_saved()
        self.start_again(job)
        self.check_resumed(job, step)

    def test_a_job_that_has_been_restarted_often_enough_ends_with_143(self):
        job = self.submit(MAX_RESTARTS="0")
        self.wait_for_epoch(job)
        with self.brake(job):
            self.cluster.ask("scancel", "--signal=TERM", job)
            self.check_end(job, "FAILED", 143, restarts=0)
        self.assertIn("restarted 0 times already: giving up", self.text())
        self.check_saved()

    def test_scancel_saves_and_ends_the_job(self):
        job = self.submit()
        self.wait_for_epoch(job)
        with self.brake(job):
            self.cluster.ask("scancel", job)
            fields = self.cluster.wait_for(job, lambda fields: fields["JobState"] == "CANCELLED")
            deadline = time.monotonic() + 60
            while any(self.tasks(job).values()):
                self.assertLess(time.monotonic(), deadline, self.text())
                time.sleep(0.05)
        self.assertEqual(fields["Restarts"], "0", self.text())
        self.check_saved()

    def test_missing_data_ends_the_job(self):
        job = self.submit(DATA=str(self.folder / "missing"))
        self.check_end(job, "FAILED", 3, restarts=0)
        self.assertIn(str(self.folder / "missing"), self.text())


if __name__ == "__main__":
    unittest.main()
