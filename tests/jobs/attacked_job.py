"""Code that tests of attacks share: the attacker's process, and an eye on the descriptors of its victims."""

import json
import os
import pathlib
import re
import subprocess
import sys
import threading
import time

import workers

ATTACKER = pathlib.Path(__file__).with_name("attacker.py")
IS_OTHER_USER = os.geteuid() == 0  # only root can start a process of another user
STRANGERS = 64  # connections of strangers that a process keeps for each port
SLACK = 16  # descriptors that a process opens for a moment: files of /proc, or of a checkpoint


class Attacker:
    """An attack on `places`. It has begun once the constructor returns."""

    def __init__(self, attack, places, same_user=False):
        command = [sys.executable, "-B", str(ATTACKER), attack, *(["--same-user"] if same_user else [])]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._process.stdin.write(json.dumps(list(places)) + "\n")
        self._process.stdin.flush()
        self.report = self._read()

    def _read(self):
        line = self._process.stdout.readline()
        if not line:
            raise AssertionError(f"the attacker exited with {self._process.wait(30)}")
        return json.loads(line)

    def end(self):
        """Closes all of its connections, and returns its last report."""
        if self._process.poll() is None:
            self._process.stdin.close()
            self.report = self._read()
            self._process.wait(30)
            self._process.stdout.close()
        return self.report


def is_refusal(answer):
    """Whether bytes are nothing at all, or a single fatal TLS alert that is not encrypted."""
    return re.fullmatch(rb"(\x15\x03[\x01-\x03]\x00\x02\x02.)?", answer, re.DOTALL) is not None


def records_of(stream):
    """The TLS records in bytes, as pairs of their type and size."""
    records = []
    while len(stream) >= 5:
        size = int.from_bytes(stream[3:5], "big")
        records.append((stream[0], size))
        stream = stream[5 + size:]
    return records


def num_descriptors(process):
    """0 once the process has ended."""
    try:
        return len(os.listdir(f"/proc/{process}/fd"))
    except OSError:
        return 0


class DescriptorWatch:
    """Counts the descriptors of processes."""

    def __init__(self, processes):
        self._begin = {process: num_descriptors(process) for process in processes}
        self._most = dict(self._begin)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        while not self._stopping.wait(0.02):
            for process in self._begin:
                self._most[process] = max(self._most[process], num_descriptors(process))

    def check(self, test, places):
        """The strangers at each TCP port were no more than allowed, and are gone once the attack is over."""
        deadline = time.monotonic() + 15
        while time.monotonic() < deadline and any(num_descriptors(each) > count + 2 for each, count in self._begin.items()):
            time.sleep(0.1)
        self._stopping.set()
        self._thread.join()
        for process, begin in self._begin.items():
            allowed = begin + STRANGERS * sum(place[0] == "tcp" for place in places[process]) + SLACK
            test.assertLessEqual(self._most[process], allowed)
            test.assertLessEqual(num_descriptors(process), begin + 2)


def places_of(started):
    """The places at which workers can be reached, by process."""
    return {worker.process.pid: sorted(workers.sockets_of(worker.process.pid)) for worker in started}
