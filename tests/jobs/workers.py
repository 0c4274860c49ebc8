"""Starts the workers of a job by hand, as tests need them: with TF_CONFIG, on ports that the system chose."""

import contextlib
import functools
import json
import os
import pathlib
import re
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import saved_state

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("LOCKSTEP_BIN", ROOT / "build/release/bin"))

# Variables that launchers set, and others that would override them.
OF_LAUNCHERS = ("TF_CONFIG", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_", "TORCHELASTIC_", "PET_",
                "SLURM_", "OMPI_", "PMIX_", "LOCKSTEP_LISTEN_FD", "LOCKSTEP_JOB_", "LOCKSTEP_RESTART_COUNT",
                "LOCKSTEP_ADDRESS", "LOCKSTEP_CERTIFICATE", "LOCKSTEP_MUNGE")
TOKEN = "0123456789abcdef" * 4
# For a test that links between workers take no part in: it is the same over each transport.
once = unittest.skipIf(os.environ.get("LOCKSTEP_SHARED_MEMORY") == "0", "tested with shared memory")


def tried_again(test):
    """Tries a test with a limit of about a second up to three times. Other work may keep a process waiting for as long."""
    @functools.wraps(test)
    def tries(self):
        for _ in range(2):
            try:
                return test(self)
            except AssertionError as failure:
                print(f"{test.__name__} is tried again: {failure}", file=sys.stderr)
                self.doCleanups()
        return test(self)
    return tries


# For the secret of jobs without a token.
RUNTIME_FOLDER = tempfile.TemporaryDirectory()


def clean_environment():
    kept = {name: value for name, value in os.environ.items() if not name.startswith(OF_LAUNCHERS)}
    return kept | {"XDG_RUNTIME_DIR": RUNTIME_FOLDER.name}


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class TrainingCase(unittest.TestCase):
    """A test with a folder of its own, and trainings of `program` that end with it."""

    program = None
    limit = 300  # seconds

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def start(self, *arguments, faults=None, environment=None):
        """Starts the program, with a plan of faults if some are wanted."""
        environment = environment or clean_environment()
        if faults:
            environment["LOCKSTEP_FAULTS"] = faults
        process = subprocess.Popen([self.program, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True, env=environment)
        self.addCleanup(lambda: (process.kill(), process.communicate()))
        return process

    def start_workers(self, num_workers, *arguments, faults=None):
        """Starts workers with the same flags, as a launcher does."""
        hosts = ",".join(f"127.0.0.1:{free_port()}" for _ in range(num_workers))
        token = {"LOCKSTEP_JOB_TOKEN": secrets.token_hex(32)}
        return [self.start(*arguments, "--strategy", "multi_worker", "--worker-hosts", hosts, "--task-index", rank, faults=faults,
                           environment=clean_environment() | token) for rank in range(num_workers)]

    def finish(self, *processes, codes=None):
        """Waits for processes with these exit codes, by default 0, and returns what each wrote to its output and errors."""
        written = [process.communicate(timeout=self.limit) for process in processes]
        self.assertEqual([process.returncode for process in processes], codes or [0] * len(processes), written)
        return written

    def check_weights(self, folder, expected, tolerance=1e-12):
        """Checks the newest checkpoint's weights, relative to the largest of a tensor if that is more than 1."""
        weights = saved_state.weights_of(folder)
        self.assertEqual(list(weights), list(expected))
        for name, values in weights.items():
            self.assertEqual(len(values), len(expected[name]), name)
            scale = max(1, max(map(abs, expected[name])))
            self.assertLessEqual(max(abs(a - b) for a, b in zip(values, expected[name])), tolerance * scale, name)

    def end_in_step(self, step, *arguments):
        """Trains until an error in this step."""
        self.finish(self.start(*arguments, faults=f"throw@rank0:step{step}"), codes=[1])

    def kill_worker(self, rank, step, *arguments):
        """Trains with two workers until one of them kills itself in this step, by signal 9, and the other one ends by that."""
        codes = [5, 5]
        codes[rank] = -signal.SIGKILL
        return self.finish(*self.start_workers(2, *arguments, faults=f"kill@rank{rank}:step{step}"), codes=codes)


class Worker:
    """One process, whose output is collected with the time of each line."""

    def __init__(self, command, environment, pass_fds=()):
        self.process = subprocess.Popen(command, env=environment, pass_fds=pass_fds, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, bufsize=1)
        self.lines = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.append((time.monotonic(), line.rstrip("\n")))

    def text(self):
        return "\n".join(line for _, line in list(self.lines))

    def wait_for(self, text, limit=120):
        """Waits until `text` is printed."""
        deadline = time.monotonic() + limit
        while time.monotonic() < deadline:
            if text in self.text():
                return
            if self.process.poll() is not None:
                break
            time.sleep(0.005)
        raise AssertionError(f"no {text!r} in:\n{self.text()}")

    def wait(self, limit=120):
        """Returns the exit code, and the time at which it was there."""
        code = self.process.wait(limit)
        ended = time.monotonic()
        self._reader.join(10)
        return code, ended

    def kill(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.wait(30)
        self.process.stdout.close()


def last_checkpoint(folder):
    """The step of the newest checkpoint in `folder`, and the checksums of what training has changed; None without any."""
    checkpoints = sorted(folder.glob("checkpoint-*"))
    if not checkpoints:
        return None
    manifest = json.loads((checkpoints[-1] / "manifest.json").read_text(encoding="utf-8"))
    return manifest["step"], {part["name"]: part["sha256"] for file in manifest["files"] for part in file["parts"]
                              if part["name"].startswith(("model.", "optimizers.", "replicas."))}


def reserved_port(host="127.0.0.1"):
    """A bound socket, which keeps its port until it is closed."""
    reserved = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    reserved.bind((host, 0))
    return reserved


def sockets_of(process):
    """The sockets at which others reach a process: those of TCP that listen, as ("tcp", host, port), those of UDP, and
    Unix sockets without a file, as ("unix", name)."""
    inodes = set()
    for descriptor in pathlib.Path(f"/proc/{process}/fd").iterdir():
        with contextlib.suppress(OSError):
            found = re.fullmatch(r"socket:\[(\d+)\]", os.readlink(descriptor))
            inodes.update(found.groups() if found else ())
    places = set()
    for protocol, state in (("tcp", "0A"), ("tcp6", "0A"), ("udp", "07"), ("udp6", "07")):
        table = pathlib.Path(f"/proc/{process}/net/{protocol}").read_text(encoding="ascii")
        for fields in map(str.split, table.splitlines()[1:]):
            if fields[9] in inodes and fields[3] == state:
                address, port = fields[1].split(":")
                words = b"".join(bytes.fromhex(address[i:i + 8])[::-1] for i in range(0, len(address), 8))
                host = socket.inet_ntop(socket.AF_INET6 if protocol.endswith("6") else socket.AF_INET, words)
                places.add((protocol.rstrip("6"), host, int(port, 16)))
    table = pathlib.Path(f"/proc/{process}/net/unix").read_text(encoding="utf-8", errors="replace")
    for fields in map(str.split, table.splitlines()[1:]):
        accepts = int(fields[3], 16) & 0x10000
        if fields[6] in inodes and accepts and fields[-1].startswith("@"):
            places.add(("unix", fields[-1][1:]))
    return places


def tf_config(hosts, index, task="worker"):
    return json.dumps({"cluster": {"worker": hosts}, "task": {"type": task, "index": index}})


def start_workers(count, command, change=lambda index, environment: None):
    """Starts `count` workers on loopback: of `command`, or of what it is for each one's index where it is a function.
    `change` may alter a worker's environment."""
    with reserved_port() as first:
        hosts = [f"127.0.0.1:{first.getsockname()[1]}"] + [f"127.0.0.1:{index}" for index in range(1, count)]
        workers = []
        for index in range(count):
            environment = clean_environment()
            environment.update(TF_CONFIG=tf_config(hosts, index), LOCKSTEP_JOB_TOKEN=TOKEN,
                               LOCKSTEP_JOIN_TIMEOUT="60")
            pass_fds = ()
            if index == 0:
                environment["LOCKSTEP_LISTEN_FD"] = str(first.fileno())
                pass_fds = (first.fileno(),)
            change(index, environment)
            workers.append(Worker(command(index) if callable(command) else command, environment, pass_fds))
    return workers


def start_served(num_workers, command, change=lambda task, environment: None):
    """Starts a job of a chief, a parameter server and `num_workers` workers on loopback, and returns its processes by
    their names, such as "worker 0". `change` may alter a task's environment."""
    tasks = [("chief", 0), ("ps", 0)] + [("worker", index) for index in range(num_workers)]
    with contextlib.ExitStack() as until_started:
        ports = {task: until_started.enter_context(reserved_port()) for task in tasks}
        cluster = {}
        for (job, _), port in ports.items():
            cluster.setdefault(job, []).append(f"127.0.0.1:{port.getsockname()[1]}")
        started = {}
        for job, index in tasks:
            environment = clean_environment()
            environment.update(TF_CONFIG=json.dumps({"cluster": cluster, "task": {"type": job, "index": index}}),
                               LOCKSTEP_JOIN_TIMEOUT="60")
            pass_fds = ()
            if job != "worker":
                environment["LOCKSTEP_LISTEN_FD"] = str(ports[job, index].fileno())
                pass_fds = (ports[job, index].fileno(),)
            name = f"{job} {index}"
            change(name, environment)
            started[name] = Worker(command, environment, pass_fds)
    return started
