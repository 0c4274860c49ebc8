#!/usr/bin/env python3
"""train_images --backup-dir: however a training is ended, it continues from where it was, with the same result."""

import json
import os
import pathlib
import random
import re
import resource
import shlex
import shutil
import secrets
import signal
import socket
import subprocess
import tempfile
import time
import unittest

PROGRAM = os.environ["TRAIN_IMAGES"]
TRAINING = ["--data", "generated", "--limit-train", "1280", "--limit-test", "100", "--epochs", "2", "--threads", "1",
            "--replicas", "2"]
STEPS = 40


def epochs_of(output):
    """Returns the line of each epoch, without its speed."""
    return re.findall(r"^(epoch \d/2  loss \S+  accuracy \S+  test accuracy \S+)", output, re.MULTILINE)


def newest(folder):
    return max(folder.glob("checkpoint-*"))


def state_of(checkpoint):
    """The checksums of the model, the optimizer, and each replica's own state."""
    manifest = json.loads((checkpoint / "manifest.json").read_text(encoding="utf-8"))
    parts = manifest["files"][0]["parts"]
    return manifest["step"], {part["name"]: part["sha256"] for part in parts
                              if part["name"].startswith(("model.", "optimizers.", "replicas."))}


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class BackupTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.shared = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.shared.cleanup)
        folder = pathlib.Path(cls.shared.name) / "whole"
        whole = subprocess.run([PROGRAM, *TRAINING, "--backup-dir", str(folder)], capture_output=True, text=True,
                               timeout=300, check=True)
        cls.epochs, cls.state = epochs_of(whole.stdout), state_of(newest(folder))
        assert cls.state[0] == STEPS and len(cls.epochs) == 2, whole.stdout

    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        # As long a name as that of the whole training: the checkpoints hold their configuration.
        self.folder = pathlib.Path(temporary.name) / "parts"

    def command(self, *more):
        return [PROGRAM, *TRAINING, "--backup-dir", str(self.folder), *more]

    def run_on(self, *more, **options):
        return subprocess.run(self.command(*more), capture_output=True, text=True, timeout=300, check=False, **options)

    def start(self, *more):
        process = subprocess.Popen(self.command(*more), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(lambda: (process.kill(), process.communicate()))
        return process

    def check_end(self, result):
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(epochs_of(result.stdout), self.epochs[-len(epochs_of(result.stdout)):])
        self.assertEqual(state_of(newest(self.folder)), self.state)

    def newest_step(self):
        return max((int(path.name[-12:]) for path in self.folder.glob("checkpoint-*")), default=0)

    def await_step(self, step, process):
        """Waits until a checkpoint of that step or a later one is there."""
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and process.poll() is None:
            if self.newest_step() >= step:
                return
            time.sleep(0.002)
        self.fail(f"no checkpoint of step {step}; exit code {process.poll()}")

    def test_a_signal_ends_the_step_saves_it_and_names_the_command_that_goes_on(self):
        for number, code in ((signal.SIGTERM, 143), (signal.SIGINT, 130)):
            with self.subTest(number.name):
                step = self.newest_step() + 1
                process = self.start("--save-every", "5 steps")
                self.await_step(step, process)
                process.send_signal(number)
                _, said = process.communicate(timeout=60)
                self.assertEqual(process.returncode, code, said)
                self.assertRegex(said, rf"stopped by {number.name} in epoch \d/2\n")
                command = re.search(r"to resume, run: (.*)\n", said).group(1)
                self.assertEqual(shlex.split(command), self.command("--save-every", "5 steps"))
                self.assertGreater(self.newest_step(), step)
                self.assertFalse(list(self.folder.glob(".unfinished*")))
        result = subprocess.run(shlex.split(command), capture_output=True, text=True, timeout=300, check=False)
        self.assertRegex(result.stderr, r"resumes after step \d+ from .*/parts/checkpoint-\d{12}\n")
        self.check_end(result)

    def test_a_second_signal_ends_it_at_once_and_leaves_whole_checkpoints(self):
        process = self.start("--save-every", "1 step")
        self.await_step(3, process)
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
        self.assertIn(process.returncode, (130, 143))
        self.check_end(self.run_on())

    def test_killed_at_random_moments_it_comes_to_the_same_end(self):
        moments = random.Random(8)
        # Killed while it starts, and then four times after it has saved something, so that it comes nearer to its end.
        for has_saved in (False, True, True, True, True):
            step = self.newest_step()
            if step > STEPS - 5:
                break
            process = self.start("--save-every", "2 steps")
            if has_saved:
                self.await_step(step + 1, process)
            time.sleep(moments.random() * 0.4)
            process.kill()
            process.communicate()
        self.assertEqual(self.run_on("--save-every", "2 steps").returncode, 0)
        self.assertEqual(state_of(newest(self.folder)), self.state)

    def test_a_damaged_checkpoint_is_passed_over_and_named(self):
        process = self.start("--save-every", "5 steps")
        self.await_step(15, process)
        process.kill()
        process.communicate()
        path = newest(self.folder) / "state.pt"
        damaged = bytearray(path.read_bytes())
        damaged[len(damaged) // 2] ^= 16
        path.write_bytes(damaged)
        result = self.run_on("--save-every", "5 steps")
        self.assertRegex(result.stderr, rf"passed over a damaged checkpoint: {path}: \S+: expected bytes")
        self.check_end(result)

    def test_sigterm_ends_with_the_retryable_exit_code_once_the_training_is_saved(self):
        for number, code in ((signal.SIGTERM, 200), (signal.SIGINT, 130)):
            with self.subTest(number.name):
                step = self.newest_step() + 1
                process = self.start("--save-every", "5 steps", "--retryable-exit-code", "200")
                self.await_step(step, process)
                process.send_signal(number)
                _, said = process.communicate(timeout=60)
                self.assertEqual(process.returncode, code, said)
                self.assertIn("to resume, run:", said)
        self.check_end(self.run_on())

    def test_without_a_whole_checkpoint_it_ends_with_4(self):
        self.run_on("--steps-per-epoch", "2")
        for path in self.folder.glob("checkpoint-*/state.pt"):
            path.write_bytes(path.read_bytes()[:-100])
        result = self.run_on("--steps-per-epoch", "2")
        self.assertEqual(result.returncode, 4, result.stderr)
        self.assertIn("all are damaged", result.stderr)

    def test_another_model_and_another_optimizer_end_with_4_and_name_what_differs(self):
        self.run_on("--steps-per-epoch", "2")
        result = self.run_on("--steps-per-epoch", "2", "--optimizer", "sgd")
        self.assertEqual(result.returncode, 4, result.stderr)
        self.assertIn("state.pt: optimizer 'optimizer'", result.stderr)
        result = self.run_on("--steps-per-epoch", "2", "--model", "mobilenet_v2", "--image-size", "33")
        self.assertEqual(result.returncode, 4, result.stderr)
        self.assertIn("state.pt", result.stderr)

    def test_a_second_job_on_the_folder_ends_with_4_and_names_the_first(self):
        process = self.start("--save-every", "1 step", "--epochs", "100")
        self.await_step(1, process)
        result = self.run_on()
        self.assertEqual(result.returncode, 4, result.stderr)
        self.assertIn(f"in use by process {process.pid} on ", result.stderr)

    def test_never_begins_anew_only_where_nothing_is_lost_by_it(self):
        self.assertEqual(self.run_on("--resume", "never", "--steps-per-epoch", "2").returncode, 0)
        result = self.run_on("--resume", "never", "--steps-per-epoch", "2")
        self.assertEqual(result.returncode, 4, result.stderr)
        self.assertIn("checkpoint-000000000004 is there", result.stderr)

    def test_a_full_disk_is_a_warning_and_at_the_end_exit_code_7(self):
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (50000, 50000))
        self.run_on("--steps-per-epoch", "2")
        result = self.run_on("--steps-per-epoch", "2", "--epochs", "5", preexec_fn=limit)
        self.assertEqual(result.returncode, 7, result.stderr)
        self.assertIn("a checkpoint could not be saved, training continues", result.stderr)
        self.assertEqual(state_of(newest(self.folder))[0], 4)
        self.assertEqual({path.name[:11] for path in self.folder.iterdir()}, {"checkpoint-"})

    def run_on_file_system(self, options, prepare="true"):
        """The training on a file system of its own, which only it sees: its end, and the names of what it leaves there."""
        as_root = [] if os.geteuid() == 0 else ["--map-root-user"]
        alone = ["unshare", *as_root, "--mount"]
        # Its own exit code tells a file system that is not to be had from a training that failed.
        script = f'mount -t tmpfs -o {options} lockstep "$0" && cd "$0" && {prepare} || exit 99; ' \
                 '"$@"; code=$?; ls -A "$0" > "$0.names"; exit $code'
        self.folder.mkdir()
        if not shutil.which("unshare"):
            self.skipTest("unshare is not installed (Debian: util-linux)")
        result = subprocess.run([*alone, "sh", "-c", script, str(self.folder), *self.command()], capture_output=True,
                                text=True, timeout=300, check=False)
        if result.returncode == 99 or result.stderr.startswith("unshare:"):
            self.skipTest(f"mounting a file system is not permitted here: {result.stderr.strip()}")
        return result, pathlib.Path(f"{self.folder}.names").read_text(encoding="utf-8").split()

    def test_a_file_system_without_space_for_a_second_checkpoint_keeps_the_first(self):
        whole = newest(pathlib.Path(self.shared.name) / "whole")
        size = sum(path.stat().st_size for path in whole.iterdir())
        result, names = self.run_on_file_system(f"size={size + size // 2}")
        self.assertEqual(result.returncode, 7, result.stderr)
        self.assertEqual(epochs_of(result.stdout), self.epochs)  # it went on
        self.assertRegex(result.stderr, r"train_images: error: .*state\.pt.*No space left on device")
        self.assertEqual(names, [f"checkpoint-{STEPS // 2:012}"])

    def test_a_file_system_that_cannot_be_written_ends_it_with_4_at_once(self):
        result, names = self.run_on_file_system("size=1m", 'mount -o remount,ro "$0"')
        self.assertEqual(result.returncode, 4, result.stderr)
        self.assertEqual(epochs_of(result.stdout), [])
        self.assertRegex(result.stderr, rf"train_images: error: --backup-dir {self.folder}.*Read-only file system")
        self.assertEqual(names, [])

    def test_one_replica_goes_on_where_two_were_and_takes_every_image_once(self):
        process = self.start("--save-every", "5 steps")
        self.await_step(25, process)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
        result = self.run_on("--replicas", "1")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(state_of(newest(self.folder))[0], STEPS)
        # Of the last epoch all images' losses, within what the order of a sum in float32 changes.
        loss = lambda text: float(re.search(r"epoch 2/2  loss (\S+)", text).group(1))
        self.assertAlmostEqual(loss(result.stdout), loss(self.epochs[1]), delta=0.01)

    def test_a_signal_to_one_worker_ends_both_after_the_same_step(self):
        hosts = ",".join(f"127.0.0.1:{free_port()}" for _ in range(2))
        environment = os.environ | {"LOCKSTEP_JOB_TOKEN": secrets.token_hex(32)}

        def start_workers():
            started = [subprocess.Popen(
                [PROGRAM, *TRAINING[:-1], "1", "--strategy", "multi_worker", "--worker-hosts", hosts, "--task-index",
                 str(rank), "--save-every", "2 steps", "--backup-dir", str(self.folder)], env=environment,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for rank in range(2)]
            for worker in started:
                self.addCleanup(lambda worker=worker: (worker.kill(), worker.communicate()))
            return started

        started = start_workers()
        self.await_step(4, started[0])
        started[1].send_signal(signal.SIGTERM)
        for worker in started:
            said = worker.communicate(timeout=60)[1]
            self.assertEqual(worker.returncode, 143, said)
            self.assertIn("stopped by SIGTERM", said)
        saved = state_of(newest(self.folder))[0]
        self.assertGreaterEqual(saved, 4)
        started = start_workers()
        outputs = [worker.communicate(timeout=300) for worker in started]
        self.assertEqual([worker.returncode for worker in started], [0, 0], outputs)
        self.assertIn(f"resumes after step {saved}", outputs[0][1])
        self.assertEqual(state_of(newest(self.folder))[0], STEPS)


if __name__ == "__main__":
    unittest.main()
