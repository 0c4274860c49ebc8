"""How reliability_benchmark.py runs a job of two workers: Lockstep's, PyTorch's, Keras'."""

import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PEERS = ROOT / "benchmarks" / "peers"
WORKERS = 2
RESTARTS = 3
LINE = re.compile(r"(?:\[\d+\] )?(pid|begin|step) (\d+) (\d+) (\d+\.\d+)$")
BLOCK = re.compile(r"(?:\[\d+\] )?block (\w+) (\d+\.\d+)$")


class JobFailed(Exception):
    pass


def has_ended(process):
    """Whether a process, not necessarily a child, runs no more."""
    try:
        return pathlib.Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(") ")[2][0] in "ZX"
    except OSError:
        return True


class Run:
    """A running job, and the lines that it has printed."""

    def __init__(self, command, environment):
        self.events = []  # (what, rank, number, time)
        self.blocks = []  # (kind, seconds)
        self.text = []
        self.changed = threading.Condition()
        self.process = subprocess.Popen(  # pylint: disable=consider-using-with
            command, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **environment}, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True)
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            line = line.rstrip("\n")
            event, block = LINE.match(line), BLOCK.match(line)
            with self.changed:
                if event:
                    what, rank, number, moment = event.groups()
                    self.events.append((what, int(rank), int(number), float(moment)))
                elif block:
                    self.blocks.append((block.group(1), float(block.group(2))))
                else:
                    self.text.append(line)
                self.changed.notify_all()

    def wait_for(self, find, timeout, what):
        """The first thing that find(self) returns."""
        end = time.monotonic() + timeout
        with self.changed:
            while True:
                found = find(self)
                if found:
                    return found
                left = end - time.monotonic()
                if left <= 0 or (self.process.poll() is not None and not self.reader.is_alive()):
                    raise JobFailed(f"expected {what}, but the job printed:\n" + "\n".join(self.text[-40:]))
                self.changed.wait(min(left, 0.5))

    def of(self, what, after=0.0):
        """The events of that kind."""
        return [event for event in self.events if event[0] == what and event[3] > after]

    def stop(self):
        # The workers of the last start: earlier ones' process ids may be others' by now.
        last = {event[1]: event[2] for event in self.of("pid")}
        for process in last.values():
            try:
                os.kill(process, signal.SIGKILL)
            except OSError:
                pass
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except OSError:
            pass
        self.process.wait()
        self.reader.join(10)


class Lockstep:
    name = "Lockstep"
    kinds = ("synchronous", "asynchronous", "sharded")  # the last one asynchronous, each worker writing a part
    compares = True  # the replicas' states, in blocks of their own

    def __init__(self, arguments):
        self.program = str(pathlib.Path(arguments.build) / "bin" / "backup_job")

    def run(self, flags):
        return Run([str(ROOT / "scripts" / "launch_local.sh"), "--max-restarts", str(RESTARTS), str(WORKERS), self.program,
                    *flags], {})


class Torch:
    name = "PyTorch DDP, torchrun"
    kinds = ("synchronous", "asynchronous")
    compares = False

    def __init__(self, arguments):
        self.python = arguments.peer_torch_python

    def run(self, flags):
        return Run([self.python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(WORKERS),
                    "--max-restarts", str(RESTARTS), str(PEERS / "torch_backup.py"), *flags], {"OMP_NUM_THREADS": "1"})


class Keras:
    name = "Keras BackupAndRestore"
    kinds = ("synchronous",)
    compares = False

    def __init__(self, arguments):
        self.python = arguments.peer_tf_python

    def run(self, flags):
        return Run([sys.executable, __file__, self.python, str(PEERS / "keras_backup.py"), *flags], {})


def launch_keras(command):
    """Starts the workers of Keras, which has no launcher, and starts all of them again if one has failed and the others have
    ended."""
    for _ in range(RESTARTS + 1):
        sockets = [socket.socket() for _ in range(WORKERS)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        addresses = [f"127.0.0.1:{one.getsockname()[1]}" for one in sockets]
        for one in sockets:
            one.close()
        workers = []
        for index in range(WORKERS):
            config = json.dumps({"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}})
            workers.append(subprocess.Popen(command, env={**os.environ, "TF_CONFIG": config}))
        if all([worker.wait() == 0 for worker in workers]):
            return 0
    return 1


if __name__ == "__main__":
    sys.exit(launch_keras(sys.argv[1:]))
