#!/usr/bin/env python3
"""Jobs whose sockets are attacked by another user of the machine, who knows their addresses, but not their token.

The attacker is another user only if root runs the test. Otherwise it is the same user, without the token.
"""

import itertools
import json
import os
import pathlib
import signal
import sys
import tempfile
import time
import unittest

import attacked_job
import workers

TRAINING = [str(workers.BIN / "train_images"), "--strategy", "multi_worker", "--data", "generated", "--limit-train", "2000",
            "--limit-test", "64", "--threads", "1", "--learning-rate-schedule", "constant", "--check-replicas", "0"]
PARITY = [str(workers.BIN / "parity_worker"), "1"]
SERVED = [str(workers.BIN / "train_ctr"), "--strategy", "parameter_server", "--threads", "1", "--train-rows", "20000",
          "--test-rows", "2000", "--global-batch-size", "256", "--table-rows", "2000", "--steps", "20"]
CLOSURES = 300
# Of a link without encryption: a magic number and a version, and then 32 random bytes.
GREETING = b"LSXL\x01\x00"
GREETING_BYTES = 38


class Attacked(unittest.TestCase):
    """Code that the tests share."""

    def setUp(self):
        if not attacked_job.IS_OTHER_USER:
            print("the attacker is the same user, as only root can start another one", file=sys.stderr)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def start(self, command, change=lambda index, environment: None):
        started = workers.start_workers(2, command, change)
        for worker in started:
            self.addCleanup(worker.kill)
        return started

    def attack(self, name, places, same_user=False):
        attacker = attacked_job.Attacker(name, places, same_user)
        self.addCleanup(attacker.end)
        return attacker

    def check_probes(self, places):
        """Of all that strangers say, nothing is answered but by a TLS alert."""
        report = self.attack("probe", places).end()
        self.assertEqual({tuple(answer["place"]) for answer in report}, {place for place in places if place[0] != "udp"})
        for answer in report:
            with self.subTest(answer["place"], payload=answer["payload"]):
                answered = bytes.fromhex(answer["bytes"])
                if answer["place"][0] == "unix" and not attacked_job.IS_OTHER_USER:
                    self.check_greeting(answered)
                else:
                    self.assertTrue(attacked_job.is_refusal(answered), answer["bytes"])

    def check_greeting(self, answered):
        self.assertEqual((len(answered), answered[:len(GREETING)]), (GREETING_BYTES, GREETING), answered)

    def check_flood(self, places):
        for place in self.attack("flood", places).end():
            self.assertGreater(place["taken"], 9_000, place)

    def hold(self, places):
        held = self.attack("hold", places)
        self.assertGreater(held.report[0]["held"], 1_000)
        return held

    @staticmethod
    def wait_until(condition, limit=60):
        deadline = time.monotonic() + limit
        while not condition():
            if time.monotonic() > deadline:
                raise AssertionError(f"it did not happen within {limit} s")
            time.sleep(0.02)


class WorkersTest(Attacked):
    undisturbed = None  # the values of a meeting without an attack

    def last_step(self, name):
        return (workers.last_checkpoint(self.folder / name) or (0,))[0]

    def train(self, name, *flags):
        return self.start([*TRAINING, *flags, "--backup-dir", str(self.folder / name)])

    def test_a_job_saves_and_comes_to_the_same_bits_while_all_its_sockets_are_attacked(self):
        started = self.train("attacked", "--epochs", "1000", "--save-every", "10 steps")
        started[0].wait_for("epoch 1/")
        places = attacked_job.places_of(started)
        everywhere = sorted(set(itertools.chain(*places.values())))
        self.assertEqual([kind for kind, *_ in everywhere], ["tcp"] * 3 + ["udp"] * 2 + ["unix"] * 2)
        watch = attacked_job.DescriptorWatch(places)
        self.check_probes(everywhere)
        local = [place for place in everywhere if place[0] == "unix"]
        greetings = [bytes.fromhex(answer["bytes"]) for answer in self.attack("probe", local, same_user=True).end()]
        for greeting in greetings:
            self.check_greeting(greeting)
        self.assertEqual(len(set(greetings)), len(greetings))
        streams = [place for place in everywhere if place[0] != "udp"]
        self.check_flood([*streams[:2], local[0], *(place for place in everywhere if place[0] == "udp")])
        held = self.hold(streams)
        step = self.last_step("attacked")
        self.wait_until(lambda: self.last_step("attacked") > step + 10)
        held.end()
        watch.check(self, places)
        for worker in started:
            worker.process.send_signal(signal.SIGTERM)
        for worker in started:
            self.assertEqual(worker.wait()[0], 143, worker.text())
        attacked = workers.last_checkpoint(self.folder / "attacked")
        for worker in self.train("undisturbed", "--epochs", "1", "--steps-per-epoch", str(attacked[0])):
            self.assertEqual(worker.wait()[0], 0, worker.text())
        self.assertEqual(workers.last_checkpoint(self.folder / "undisturbed"), attacked)

    def meet(self, attacks):
        """Two workers of which the second one comes once `attacks`, a function of worker 0's places, has begun. Links
        between them go over TCP."""
        come = self.folder / "come"
        come.unlink(missing_ok=True)
        late = ["sh", "-c", 'while [ ! -e "$0" ]; do sleep 0.05; done; exec "$@"', str(come)]
        values = [self.folder / f"values-{index}" for index in range(2)]

        def change(_, environment):
            environment["LOCKSTEP_SHARED_MEMORY"] = "0"

        started = self.start(lambda index: [*(late if index else []), *PARITY, str(values[index])], change)
        process = started[0].process.pid
        self.wait_until(lambda: [place[0] for place in sorted(workers.sockets_of(process))] == ["tcp", "tcp", "udp"])
        config = next(entry for entry in pathlib.Path(f"/proc/{process}/environ").read_text(encoding="utf-8").split("\0")
                      if entry.startswith("TF_CONFIG="))
        own = json.loads(config.partition("=")[2])["cluster"]["worker"][0]
        # The store's comes first, and that of links second.
        begun = attacks(sorted(workers.sockets_of(process), key=lambda place: (place[0], f"{place[1]}:{place[2]}" != own)))
        come.touch()
        for worker in started:
            self.assertEqual(worker.wait(100)[0], 0, worker.text())
        for attacker in begun:
            attacker.end()
        self.assertIn("no shared memory", started[0].text())
        return [path.read_bytes() for path in values]

    def check_meeting(self, attacks):
        if self.undisturbed is None:
            type(self).undisturbed = self.meet(lambda places: [])
        self.assertEqual(self.meet(attacks), self.undisturbed)

    def test_workers_meet_at_a_store_that_strangers_fill(self):
        self.check_meeting(lambda places: [self.hold(places[:1])])

    def test_workers_meet_after_their_sockets_were_probed_and_flooded(self):
        def attacks(places):
            self.check_probes(places)
            self.check_flood(places[:2])
            return []

        self.check_meeting(attacks)

    def test_workers_link_while_strangers_fill_the_places(self):
        for _ in range(3):
            self.check_meeting(lambda places: [self.hold(places[:2])])

    def test_a_stolen_port_of_worker_0_is_named_and_nothing_is_told_there(self):
        with workers.reserved_port() as reserved:
            place = reserved.getsockname()
        thief = self.attack("steal", [("tcp", *place)])
        self.addCleanup(thief.end)
        started = []
        for index in range(2):
            environment = workers.clean_environment() | {
                "TF_CONFIG": workers.tf_config([f"{place[0]}:{place[1]}", "127.0.0.1:9"], index),
                "LOCKSTEP_JOB_TOKEN": workers.TOKEN, "LOCKSTEP_JOIN_TIMEOUT": "3"}
            started.append(workers.Worker(TRAINING, environment))
            self.addCleanup(started[-1].kill)
        for worker, message in zip(started, ("in use", "found no coordinator")):
            self.assertEqual(worker.wait()[0], 5, worker.text())
            self.assertIn(f"{place[0]}:{place[1]}", worker.text())
            self.assertIn(message, worker.text())
        heard = [bytes.fromhex(victim["bytes"]) for victim in thief.end()]
        self.assertTrue(heard)
        for each in heard:
            client_hello, alert = 22, 21
            self.assertLessEqual({kind for kind, _ in attacked_job.records_of(each)}, {client_hello, alert})
            for secret in (workers.TOKEN.encode(), bytes.fromhex(workers.TOKEN)):
                self.assertNotIn(secret, each)


class ServersTest(Attacked):
    def start_cluster(self, command, cluster):
        """Starts a process of each task when the next one is asked for."""
        reserved = {task: workers.reserved_port() for task in cluster}
        config = {task: [f"127.0.0.1:{port.getsockname()[1]}"] for task, port in reserved.items()}
        for task in cluster:
            environment = workers.clean_environment() | {
                "TF_CONFIG": json.dumps({"cluster": config, "task": {"type": task, "index": 0}}),
                "LOCKSTEP_JOB_TOKEN": workers.TOKEN, "LOCKSTEP_JOIN_TIMEOUT": "60"}
            pass_fds = ()
            if task != "worker":
                environment["LOCKSTEP_LISTEN_FD"] = str(reserved[task].fileno())
                pass_fds = (reserved[task].fileno(),)
            process = workers.Worker(command, environment, pass_fds)
            self.addCleanup(process.kill)
            reserved[task].close()
            yield process

    def check_end(self, processes, text):
        for process in processes:
            self.assertEqual(process.wait()[0], 0, process.text())
        self.assertIn(text, processes[0].text())

    def test_a_coordinator_gets_each_value_once_while_its_socket_is_attacked(self):
        command = [str(workers.BIN / "coordinator_worker"), str(CLOSURES), "5"]
        tasks = self.start_cluster(command, ["chief", "worker"])
        chief = next(tasks)
        self.wait_until(lambda: workers.sockets_of(chief.process.pid))
        places = attacked_job.places_of([chief])
        port = places[chief.process.pid]
        watch = attacked_job.DescriptorWatch(places)
        self.check_probes(port)
        self.check_flood(port)
        held = self.hold(port)
        worker = next(tasks)
        worker.wait_for("at 9")
        held.end()
        watch.check(self, places)
        self.check_end([chief, worker], f"sum {sum(number * number for number in range(CLOSURES))}, lost 0")

    def test_parameter_servers_train_while_strangers_fill_the_places(self):
        tasks = self.start_cluster(SERVED, ["chief", "ps", "worker"])
        servers = [next(tasks), next(tasks)]
        self.wait_until(lambda: all(workers.sockets_of(server.process.pid) for server in servers))
        places = sorted(set(itertools.chain(*attacked_job.places_of(servers).values())))
        self.check_probes(places)
        held = self.hold(places)
        worker = next(tasks)
        self.check_end([*servers, worker], "20 applied, 0 repeats ignored, 0 dropped")
        held.end()


if __name__ == "__main__":
    os.umask(0o022)
    unittest.main()
