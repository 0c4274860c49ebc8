#!/usr/bin/env python3
"""Jobs whose workers are killed, stopped, cut off, misled or contacted by strangers."""

import json
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import time
import unittest

import workers

# Long enough for every test to interrupt it; a line of progress is not needed, since the first says that it trains.
TRAINING = [str(workers.BIN / "train_images"), "--strategy", "multi_worker", "--data", "generated", "--epochs", "1000",
            "--limit-train", "2000", "--limit-test", "64", "--threads", "1"]
HOST = re.escape(socket.gethostname())


class FaultsTest(unittest.TestCase):
    def start(self, count, command=None, change=lambda index, environment: None):
        started = workers.start_workers(count, command or TRAINING, change)
        for worker in started:
            self.addCleanup(worker.kill)
        return started

    def start_training(self, count):
        started = self.start(count)
        started[0].wait_for("epoch 1/")
        return started

    def check_loss(self, survivor, begin, limit, pattern):
        """The survivor exits with 5 within the limit, and says so."""
        code, ended = survivor.wait(60)
        self.assertEqual(code, 5, survivor.text())
        self.assertRegex(survivor.text(), pattern)
        self.assertLess(ended - begin, limit, survivor.text())

    @workers.tried_again
    def test_a_killed_worker_is_named_by_all_others(self):
        started = self.start_training(3)
        begin = time.monotonic()
        started[1].process.kill()
        for survivor in (started[0], started[2]):
            self.check_loss(survivor, begin, 1.0, rf"worker 1 \({HOST}\) was lost: its process ended")

    @workers.tried_again
    def test_the_killed_first_worker_is_named_though_it_has_the_store(self):
        started = self.start_training(2)
        begin = time.monotonic()
        started[0].process.kill()
        self.check_loss(started[1], begin, 1.0, rf"worker 0 \({HOST}\) was lost: its process ended")

    def test_a_stopped_worker_is_given_up_and_finds_itself_fenced_off(self):
        started = self.start_training(2)
        begin = time.monotonic()
        started[1].process.send_signal(signal.SIGSTOP)
        self.check_loss(started[0], begin, 5.0, rf"worker 1 \({HOST}\) was lost: no sign of life")
        started[1].process.send_signal(signal.SIGCONT)
        self.check_loss(started[1], time.monotonic(), 10.0, rf"worker 1 \({HOST}\) was given up by the others: "
                                                            r"this process did not run for|worker 0 \(" + HOST + r"\) was lost")

    def test_a_worker_that_fails_by_itself_tells_the_others_why(self):
        started = self.start(2, lambda index: TRAINING + (["--data", "/no/such/folder"] if index == 1 else []))
        code, failed = started[1].wait(60)
        self.assertEqual(code, 3, started[1].text())
        self.assertIn("train_images: error: worker 1: --data /no/such/folder: expected", started[1].text())
        self.check_loss(started[0], failed, 5.0, rf"worker 1 \({HOST}\): --data /no/such/folder: expected")

    @workers.once
    def test_different_world_sizes_are_named_by_both(self):
        def change(index, environment):
            if index == 1:
                config = json.loads(environment["TF_CONFIG"])
                config["cluster"]["worker"].append("127.0.0.1:9")
                environment["TF_CONFIG"] = json.dumps(config)

        for worker in self.start(2, change=change):
            code, _ = worker.wait(60)
            self.assertEqual(code, 5, worker.text())
            self.assertRegex(worker.text(), rf"same world size.*worker 0 \({HOST}\) has '2' and worker 1 \({HOST}\) has '3'")

    @workers.once
    def test_an_absent_coordinator_is_named_within_the_join_timeout(self):
        with workers.reserved_port() as absent:  # bound, but nobody listens
            environment = workers.clean_environment()
            place = f"127.0.0.1:{absent.getsockname()[1]}"
            environment.update(TF_CONFIG=workers.tf_config([place, "127.0.0.1:9"], 1), LOCKSTEP_JOIN_TIMEOUT="2")
            worker = workers.Worker(TRAINING, environment)
            self.addCleanup(worker.kill)
            begin = time.monotonic()
            self.check_loss(worker, begin, 5, rf"worker 1 found no coordinator at {place} within 2 s")

    @workers.once
    def test_a_port_in_use_is_named(self):
        with workers.reserved_port() as used:
            used.listen()
            environment = workers.clean_environment()
            place = f"127.0.0.1:{used.getsockname()[1]}"
            environment.update(TF_CONFIG=workers.tf_config([place, "127.0.0.1:9"], 0), LOCKSTEP_JOIN_TIMEOUT="2")
            worker = workers.Worker(TRAINING, environment)
            self.addCleanup(worker.kill)
            self.check_loss(worker, time.monotonic(), 20, rf"{place}.*in use")

    @workers.once
    def test_malformed_clusters_exit_with_2_within_a_second_and_name_the_json_path(self):
        task = '"task": {"type": "worker", "index": 0}'

        def cluster(jobs, task=task):
            return f'{{"cluster": {jobs}, {task}}}'

        def of_task(task):
            return cluster('{"worker": ["a:1", "b:1"]}', f'"task": {task}')

        for config, message in (
                ("", "JSON, but got an empty string"),
                ("{cluster", "JSON, but got "),
                ('["cluster"]', "a JSON object"),
                ('{"cluster": {"worker": ["a:1"]}}', "task to be an object with type and index, but got nothing"),
                (of_task('{"type": "worker", "index": -1}'), "task.index to be .*, but got -1"),
                (of_task('{"type": "worker", "index": 0.9}'), "task.index to be .*, but got 0.9"),
                (of_task('{"type": "worker", "index": "x"}'), "task.index to be .*, but got 'x'"),
                (of_task('{"type": "worker", "index": 5}'), "task.index to be .*, but got 5"),
                (of_task('{"type": "boss", "index": 0}'), "task.type to be .*, but got 'boss'"),
                (cluster('{"worker": ["a:1", "a:1"]}'), r"cluster\.worker\[1\]"),
                (cluster('{"worker": ["a"]}'), r"cluster\.worker\[0\].*'a'"),
                (cluster('{"worker": ["a:99999"]}'), r"cluster\.worker\[0\].*99999"),
                (cluster('{"worker": ["a:1"], "worker": ["b:1"]}'), "worker"),
                (cluster('{"chief": ["a:1", "b:1"], "worker": ["c:1"]}'), r"cluster\.chief"),
                (cluster('{"worker": []}'), r"cluster to be .*, but got {\"worker\":\[\]}"),
                ('{"x": ' + "[" * 100000, r"x\[0\]\[0\].*at this depth"),
                (cluster('{"ps": ["a:1"], "worker": ["b:2"]}', '"task": {"type": "ps", "index": 0}'), "ps"),
                (cluster('{"worker": ["b:2"]}', '"task": {"type": "evaluator", "index": 0}'),
                 "evaluator 0, which evaluates only")):
            with self.subTest(config[:80]):
                environment = workers.clean_environment() | {"TF_CONFIG": config}
                before = resource.getrusage(resource.RUSAGE_CHILDREN)
                result = subprocess.run(TRAINING, env=environment, capture_output=True, text=True, timeout=60, check=False)
                after = resource.getrusage(resource.RUSAGE_CHILDREN)
                self.assertEqual(result.returncode, 2, result.stderr)
                self.assertRegex(result.stderr, rf"^train_images: error: .*{message}")
                # Its own time: that of the clock would be the machine's, too.
                # A second on a machine of its own; other programs on its cores slow each instruction down.
                self.assertLess(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 1.5)

    def test_strangers_are_survived_on_sockets_that_are_bound_to_one_address_only(self):
        command = [argument.replace("1000", "3") for argument in TRAINING]
        started = self.start(2, command)
        started[0].wait_for("epoch 1/")
        places = set().union(*(workers.sockets_of(worker.process.pid) for worker in started))
        places = {place for place in places if place[0] != "unix"}
        self.assertEqual({protocol for protocol, _, _ in places}, {"tcp", "udp"})
        for protocol, address, port in places:
            self.assertEqual(address, "127.0.0.1", "bound to more than 127.0.0.1")
            kind = socket.SOCK_DGRAM if protocol == "udp" else socket.SOCK_STREAM
            for payload in (b"GET / HTTP/1.1\r\n\r\n", os.urandom(4096), b"\xff" * 64, b"\0" * 64):
                stranger = socket.socket(socket.AF_INET, kind)
                self.addCleanup(stranger.close)  # some stay open, and say no more
                stranger.settimeout(2)
                try:
                    stranger.connect(("127.0.0.1", port))
                    stranger.sendall(payload)
                except OSError:
                    pass  # it was refused
        for worker in started:
            code, _ = worker.wait(120)
            self.assertEqual(code, 0, worker.text())

    def test_a_slow_worker_is_named_once_and_the_job_completes(self):
        command = [argument.replace("1000", "6") for argument in TRAINING]
        started = self.start(3, command)
        started[0].wait_for("strategy")
        slow = started[2].process
        while started[0].process.poll() is None:
            slow.send_signal(signal.SIGSTOP)  # works for one part in eight of the time
            time.sleep(0.07)
            slow.send_signal(signal.SIGCONT)
            time.sleep(0.01)
        for worker in started:
            code, _ = worker.wait(120)
            self.assertEqual(code, 0, worker.text())
        tells = rf"worker 2 \({HOST}\) takes [0-9.]+ times as long"
        self.assertEqual([len(re.findall(tells, worker.text())) for worker in started], [1, 0, 0], started[0].text())

    def test_signals_to_all_workers_stop_all_of_them(self):
        started = self.start_training(2)
        for worker in started:
            worker.process.send_signal(signal.SIGTERM)
        for worker in started:
            code, _ = worker.wait(30)
            self.assertEqual(code, 143, worker.text())


def in_namespace(name, command):
    return ["ip", "netns", "exec", name, *command]


class NamespacesTest(unittest.TestCase):
    """Two hosts: network namespaces that are joined by a pair of virtual devices."""

    @classmethod
    def setUpClass(cls):
        if not shutil.which("ip"):
            raise unittest.SkipTest("ip is not installed (Debian: iproute2)")
        cls.names = [f"lockstep-{os.getpid()}-{index}" for index in range(2)]
        try:
            for name in cls.names:
                cls.ip("netns", "add", name)
                cls.addClassCleanup(cls.ip, "netns", "del", name)
            cls.ip("-n", cls.names[0], "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", cls.names[1])
            for index, name in enumerate(cls.names):
                cls.ip("-n", name, "addr", "add", f"10.77.0.{index + 1}/24", "dev", "eth0")
                cls.ip("-n", name, "link", "set", "lo", "up")
                cls.ip("-n", name, "link", "set", "eth0", "up")
        except subprocess.CalledProcessError as error:
            cls.doClassCleanups()
            raise unittest.SkipTest(f"network namespaces are not permitted here: {error.stderr.strip()}") from error

    @staticmethod
    def ip(*arguments):
        subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)

    def start(self, command):
        hosts = ["10.77.0.1:7001", "10.77.0.2:7001"]
        started = []
        for index, name in enumerate(self.names):
            environment = workers.clean_environment()
            environment.update(TF_CONFIG=workers.tf_config(hosts, index), LOCKSTEP_JOB_TOKEN=workers.TOKEN,
                               LOCKSTEP_JOIN_TIMEOUT="60")
            started.append(workers.Worker(in_namespace(name, command), environment))
            self.addCleanup(started[-1].kill)
        return started

    def test_two_hosts_train_together(self):
        command = [argument.replace("1000", "2") for argument in TRAINING]
        for worker in self.start(command):
            code, _ = worker.wait(120)
            self.assertEqual(code, 0, worker.text())

    def test_a_cut_link_ends_both_within_five_seconds(self):
        started = self.start(TRAINING)
        started[0].wait_for("epoch 1/")
        self.ip("-n", self.names[0], "link", "set", "eth0", "down")
        begin = time.monotonic()
        try:
            for index, worker in enumerate(started):
                code, ended = worker.wait(60)
                self.assertEqual(code, 5, worker.text())
                self.assertRegex(worker.text(), rf"worker {1 - index} \(")
                self.assertLess(ended - begin, 5.0, worker.text())
        finally:
            self.ip("-n", self.names[0], "link", "set", "eth0", "up")


if __name__ == "__main__":
    unittest.main()
