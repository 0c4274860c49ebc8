"""Code that the tests of train_ctr share: the program by itself and as jobs under scripts/launch_local.sh."""

import os
import pathlib
import re
import signal
import subprocess
import tempfile
import threading
import time
import unittest

PROGRAM = os.environ["TRAIN_CTR"]
LAUNCHER = pathlib.Path(__file__).resolve().parents[3] / "scripts" / "launch_local.sh"
TIMEOUT = 300


class Job:
    """A running job, whose output is collected."""

    def __init__(self, command, environment=None):
        self.process = subprocess.Popen(list(map(str, command)), env=environment, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, bufsize=1,
                                        start_new_session=True)
        self.lines = []
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            self.lines.append(line)

    def text(self):
        return "".join(list(self.lines))

    def wait_for(self, pattern):
        end = time.monotonic() + TIMEOUT
        while not re.search(pattern, self.text(), re.MULTILINE):
            if self.process.poll() is not None or time.monotonic() > end:
                raise AssertionError(f"no {pattern!r} in:\n{self.text()}")
            time.sleep(0.01)

    def wait(self):
        self.process.wait(TIMEOUT)
        self.reader.join(10)
        return self.process.returncode

    def processes_of(self, job, index):
        """The ids of a task's processes that run, of those that this job has started."""
        found = []
        for path in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                environment = (path / "environ").read_bytes().decode(errors="replace")
                parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            if parent == self.process.pid and f'"task": {{"type": "{job}", "index": {index}}}' in environment:
                found.append(int(path.name))
        return found

    def send(self, job, index, number):
        for process in self.processes_of(job, index):
            os.kill(process, number)

    def kill(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.process.stdout.close()


class TrainCtrCase(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def run_alone(self, *arguments):
        return subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=TIMEOUT)

    def start_job(self, *arguments, servers=2, workers=2, launcher=(), **environment):
        job = Job([LAUNCHER, "--ps", servers, "--workers", workers, *launcher, PROGRAM, "--strategy", "parameter_server",
                   "--threads", 1, *arguments], {**os.environ, **environment})
        self.addCleanup(job.kill)
        return job

    def expect_end(self, job, code=0):
        self.assertEqual(job.wait(), code, job.text())
        return job.text()

    def number(self, pattern, text):
        found = re.search(pattern, text)
        self.assertIsNotNone(found, f"no {pattern!r} in:\n{text}")
        return float(found.group(1).replace(",", ""))
