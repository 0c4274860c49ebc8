#!/usr/bin/env python3
"""Jobs whose workers do not all meet, or whose coordinator cannot be reached."""

import contextlib
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time
import unittest
import uuid

import workers

PROGRAM = [str(workers.BIN / "fault_worker"), "momentum", "0.9"]
TRAINING = [str(workers.BIN / "train_images"), "--strategy", "multi_worker", "--data", "generated", "--epochs", "1000",
            "--limit-train", "2000", "--limit-test", "64", "--threads", "1"]
JOIN_TIMEOUT = 2  # seconds
SLACK = 3  # seconds that c10d and the end of the process may take in addition
FREEZING = 5  # the same where the coordinator has been there, which is waited for a little longer


def is_alive(process):
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8") as status:
            return status.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def processes_with(name, value):
    """The living processes with such a variable, and their environments."""
    found = {}
    for process in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError, UnicodeDecodeError):
            environment = environment_of(process)
            if environment.get(name) == value and is_alive(process):
                found[int(process)] = environment
    return found


def environment_of(process):
    with open(f"/proc/{process}/environ", encoding="utf-8") as environment:
        return dict(entry.split("=", 1) for entry in environment.read().split("\0") if "=" in entry)


def is_connected(process, port):
    """Whether the process has a TCP connection to the port."""
    sockets = set()
    for descriptor in os.listdir(f"/proc/{process}/fd"):
        with contextlib.suppress(OSError):
            sockets.add(os.readlink(f"/proc/{process}/fd/{descriptor}"))
    connections = []
    for protocol in ("tcp", "tcp6"):
        with open(f"/proc/{process}/net/{protocol}", encoding="ascii") as table:
            connections += [line.split() for line in table.readlines()[1:]]
    return any(fields[3] == "01" and int(fields[2].split(":")[1], 16) == port and f"socket:[{fields[9]}]" in sockets
               for fields in connections)


def wait_until(condition, limit=30):
    deadline = time.monotonic() + limit
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"it did not come to pass within {limit} s")
        time.sleep(0.01)


class MeetingTest(unittest.TestCase):
    def start_alone(self, coordinator):
        """Worker 1 of a cluster whose worker 0 is to be at `coordinator`."""
        environment = workers.clean_environment()
        environment.update(TF_CONFIG=workers.tf_config([coordinator, "127.0.0.1:9"], 1), LOCKSTEP_JOB_TOKEN=workers.TOKEN,
                           LOCKSTEP_JOIN_TIMEOUT=str(JOIN_TIMEOUT))
        worker = workers.Worker(PROGRAM, environment)
        self.addCleanup(worker.kill)
        return worker

    def check_end(self, worker, pattern, slack=SLACK):
        """It has ended with 5 once the join timeout was over, and says why."""
        code, ended = worker.wait(60)
        self.assertEqual(code, 5, worker.text())
        self.assertRegex(worker.text(), pattern)
        begin, first = worker.lines[0]
        self.assertEqual(first, "is here")
        self.assertLess(ended - begin, JOIN_TIMEOUT + slack, worker.text())

    def check_coordinator(self, place):
        self.check_end(self.start_alone(place), rf"error: \[join\].* {re.escape(place)}\b")

    def test_a_coordinator_whose_name_nobody_knows_is_named(self):
        self.check_coordinator("lockstep-test.invalid:7001")

    def test_a_coordinator_that_takes_no_connection_is_named(self):
        with workers.reserved_port() as full, contextlib.ExitStack() as waiting:
            full.listen(0)
            for _ in range(3):  # what comes after these gets no answer at all
                client = waiting.enter_context(socket.socket())
                client.setblocking(False)
                client.connect_ex(full.getsockname())
            self.check_coordinator(f"127.0.0.1:{full.getsockname()[1]}")

    def test_a_coordinator_that_answers_nothing_is_named(self):
        with workers.reserved_port() as silent:
            silent.listen()
            self.check_coordinator(f"127.0.0.1:{silent.getsockname()[1]}")

    def start_three(self, program=tuple(PROGRAM)):
        def change(index, environment):
            if index < 2:  # the last one would wait for longer
                environment["LOCKSTEP_JOIN_TIMEOUT"] = str(JOIN_TIMEOUT)

        started = workers.start_workers(3, program, change)
        for worker in started:
            self.addCleanup(worker.kill)
        return started

    def test_a_worker_that_is_killed_before_it_comes_is_named_by_the_others(self):
        started = self.start_three()
        started[1].process.kill()
        for survivor in (started[0], started[2]):
            self.check_end(survivor, rf"worker 1 of 3 did not come to 127\.0\.0\.1:\d+ within {JOIN_TIMEOUT} s")

    def test_a_coordinator_that_freezes_while_workers_meet_is_named(self):
        started = self.start_three()
        started[2].process.kill()
        place = json.loads(environment_of(started[0].process.pid)["TF_CONFIG"])["cluster"]["worker"][0]
        wait_until(lambda: is_connected(started[1].process.pid, int(place.rpartition(":")[2])))
        started[0].process.send_signal(signal.SIGSTOP)
        self.check_end(started[1], rf"(found no|lost the) coordinator at {place}", FREEZING)

    def trickle(self, port, payload):
        """A stranger who says a little at a time, until the test is over."""
        over = threading.Event()
        stranger = socket.create_connection(("127.0.0.1", port), 10)

        def speak():
            with stranger:
                for byte in payload:
                    try:
                        stranger.sendall(bytes([byte]))
                    except OSError:
                        return  # it was refused
                    if over.wait(0.1):
                        return
                over.wait(120)

        thread = threading.Thread(target=speak)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(over.set)

    def test_strangers_who_come_first_and_speak_slowly_keep_nobody_from_meeting(self):
        with tempfile.TemporaryDirectory() as folder:
            signal_file = pathlib.Path(folder) / "come"
            late = ["sh", "-c", 'while [ ! -e "$0" ]; do sleep 0.05; done; exec "$@"', str(signal_file)]
            training = [argument.replace("1000", "3") for argument in TRAINING]
            started = workers.start_workers(2, lambda index: training if index == 0 else late + training)
            for worker in started:
                self.addCleanup(worker.kill)
            place = json.loads(environment_of(started[0].process.pid)["TF_CONFIG"])["cluster"]["worker"][0]
            port = int(place.rpartition(":")[2])
            wait_until(lambda: is_connected(started[0].process.pid, port))  # to itself: it listens
            for payload in (b"", b"GET / HTTP/1.1\r\n\r\n" * 4, os.urandom(64), b"\xff" * 64, b"\0" * 64):
                self.trickle(port, payload)
            time.sleep(1)
            signal_file.touch()
            for worker in started:
                code, _ = worker.wait(120)
                self.assertEqual(code, 0, worker.text())

    def test_no_name_server_is_asked_where_the_coordinator_is_known_by_its_address(self):
        with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
            try:
                server.bind(("127.83.1.1", 53))  # resolv.conf knows no other port
            except OSError as error:
                self.skipTest(f"no name server of the test's own: {error}")
            settings = pathlib.Path(folder) / "resolv.conf"
            settings.write_text("nameserver 127.83.1.1\noptions timeout:30\n", encoding="ascii")
            inside = ["unshare", "--mount", "sh", "-c", 'mount --bind "$0" /etc/resolv.conf && exec "$@"', str(settings)]
            if subprocess.run([*inside, "true"], check=False, capture_output=True).returncode != 0:
                self.skipTest("no name space with a resolv.conf of its own can be made here")
            for worker in workers.start_workers(2, [*inside, *(word.replace("1000", "1") for word in TRAINING)]):
                self.addCleanup(worker.kill)
                code, _ = worker.wait(120)
                self.assertEqual(code, 0, worker.text())
            server.setblocking(False)
            with self.assertRaises(BlockingIOError):
                server.recv(512)

    def test_a_signal_ends_a_waiting_worker_at_once(self):
        for number, expected in ((signal.SIGTERM, 143), (signal.SIGINT, 130)):
            first, second, third = self.start_three(TRAINING)
            third.process.kill()
            place = json.loads(environment_of(first.process.pid)["TF_CONFIG"])["cluster"]["worker"][0]
            port = int(place.rpartition(":")[2])
            wait_until(lambda: is_connected(second.process.pid, port))  # pylint: disable=cell-var-from-loop
            for worker in (second, first):
                begin = time.monotonic()
                worker.process.send_signal(number)
                code, ended = worker.wait(60)
                self.assertEqual(code, expected, worker.text())
                self.assertLess(ended - begin, 1)

    def test_of_a_job_with_a_killed_worker_no_process_is_left(self):
        mark = ("LOCKSTEP_TEST_MARK", str(uuid.uuid4()))
        launcher = workers.Worker([str(workers.ROOT / "scripts/launch_local.sh"), "3", *TRAINING],
                                  workers.clean_environment() | dict([mark]))
        self.addCleanup(launcher.kill)
        self.addCleanup(lambda: [os.kill(process, signal.SIGKILL) for process in processes_with(*mark)])
        launcher.wait_for("epoch 1/")
        started = processes_with(*mark)
        self.assertEqual(len(started), 4, started.keys())  # the launcher has it, too
        killed, = (process for process, environment in started.items() if environment.get("LOCAL_RANK") == "1")
        os.kill(killed, signal.SIGKILL)
        begin = time.monotonic()
        code, ended = launcher.wait(60)
        self.assertEqual(code, 128 + signal.SIGKILL, launcher.text())
        self.assertLess(ended - begin, 5, launcher.text())
        self.assertEqual(processes_with(*mark), {})


if __name__ == "__main__":
    unittest.main()
