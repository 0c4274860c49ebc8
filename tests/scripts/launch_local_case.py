"""Code that the tests of scripts/launch_local.sh share: small programs as workers, and the script run with them."""

import os
import pathlib
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "launch_local.sh"
TIMEOUT = 60  # seconds, for what takes a fraction of one

# The first lines of workers in Python. They wait for each other's files in the test's own folder.
PREAMBLE = """
    import json, os, pathlib, signal, socket, stat, sys, time
    folder, rank = pathlib.Path(sys.argv[1]), int(os.environ["LOCAL_RANK"])

    def own_socket():
        return socket.socket(fileno=int(os.environ["LOCKSTEP_LISTEN_FD"]))

    def address(rank):
        host, port = json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"][rank].split(":")
        return host, int(port)

    def wait_for(name):
        while not (folder / name).exists():
            time.sleep(0.01)
    """


def state_of(process):
    """As proc(5) has it: T for stopped, Z and X for ended."""
    try:
        status = pathlib.Path(f"/proc/{process}/stat").read_text(encoding="utf-8")
    except OSError:
        return "X"
    return status.rpartition(")")[2].split()[0]


def is_running(process):
    return state_of(process) not in "ZX"


class LaunchLocalCase(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.environment = {"PATH": os.environ["PATH"]}

    def python(self, text):
        """The command of a worker in Python."""
        path = self.folder / "worker.py"
        path.write_text(textwrap.dedent(PREAMBLE) + textwrap.dedent(text), encoding="utf-8")
        return [sys.executable, "-I", "-S", str(path), str(self.folder)]

    def shell(self, text):
        """The command of a worker that is a shell, in the test's folder."""
        return ["sh", "-c", f"cd {self.folder}\n{textwrap.dedent(text)}"]

    def launch(self, *arguments, **environment):
        """The completed process of launch_local.sh."""
        return subprocess.run(
            [SCRIPT, *map(str, arguments)], env={**self.environment, **environment}, capture_output=True, text=True,
            errors="replace", check=False, timeout=TIMEOUT)

    def start(self, *arguments, stdout=subprocess.PIPE):
        """A running launch_local.sh, in a process group of its own as a shell would start it."""
        process = subprocess.Popen(
            [SCRIPT, *map(str, arguments)], env=self.environment, stdout=stdout, stderr=subprocess.PIPE, text=True,
            start_new_session=True)
        self.addCleanup(self.end, process)
        return process

    def end(self, process):
        process.kill()
        process.wait()
        for stream in (process.stdout, process.stderr):
            if stream:
                stream.close()

    def expect_success(self, process):
        self.assertEqual((process.returncode, process.stderr), (0, ""))
        return process

    def lines_of(self, text, rank):
        prefix = f"[{rank}] "
        return [line[len(prefix):] for line in text.splitlines() if line.startswith(prefix)]

    def expect_soon(self, condition):
        end = time.monotonic() + TIMEOUT
        while not condition():
            self.assertLess(time.monotonic(), end, "it did not come to pass")
            time.sleep(0.01)

    def read_ids(self, count):
        """The process ids that so many shells wrote to the file `ids`."""
        path = self.folder / "ids"
        self.expect_soon(lambda: path.exists() and path.read_text(encoding="utf-8").count("\n") == count)
        return [int(line) for line in path.read_text(encoding="utf-8").split()]
