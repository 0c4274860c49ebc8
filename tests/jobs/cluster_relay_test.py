#!/usr/bin/env python3
"""Jobs with an attacker between two of their processes, who hands connections on, also to another server, changes a bit,
or plays back what he has recorded."""

import contextlib
import json
import socket
import time
import unittest

import attacked_job
import workers
from tcp_relay import TO_CLIENT, TO_SERVER, TcpRelay

PROGRAM = [str(workers.BIN / "fault_worker"), "momentum", "0.9"]
JOIN_TIMEOUT = 8  # seconds
END = 5  # seconds that the end of a process may take in addition
# Bytes of the handshake and of the meeting: a record's type and its length, the key's name, the proof, the first
# encrypted message, and one of the meeting.
FLIPPED = ((TO_SERVER, 0), (TO_SERVER, 4), (TO_SERVER, 200), (TO_SERVER, 310), (TO_SERVER, 700), (TO_CLIENT, 3),
           (TO_CLIENT, 40), (TO_CLIENT, 245))
CLOSURES = 20
ALERT_BYTES = 19  # level, description, type, and the tag of AES-GCM


class RelayTest(unittest.TestCase):
    def start(self, is_open=True, flipped=None):
        """A job of two, whose worker 1 finds a relay at worker 0's address; and the address of worker 0. The relay hands
        nothing on unless `is_open`."""
        relays, stores = [], []

        def change(index, environment):
            environment["LOCKSTEP_JOIN_TIMEOUT"] = str(JOIN_TIMEOUT)
            config = json.loads(environment["TF_CONFIG"])
            if index == 1:
                host, _, port = config["cluster"]["worker"][0].partition(":")
                stores.append((host, int(port)))
                relays.append(TcpRelay(stores[0] if is_open else None))
                self.addCleanup(relays[0].close)
                relays[0].flipped_byte = flipped
                config["cluster"]["worker"][0] = relays[0].place
            environment["TF_CONFIG"] = json.dumps(config)

        started = workers.start_workers(2, PROGRAM, change)
        for worker in started:
            self.addCleanup(worker.kill)
        return started, relays[0], stores[0]

    def check_ends(self, started, relay, *patterns):
        """Both end with 5 within the join timeout, and worker 1 names the address that it was led to."""
        for worker, pattern in zip(started, patterns):
            self.assertEqual(worker.wait(60)[0], 5, worker.text())
            self.assertRegex(worker.text(), pattern)
            self.assertLess(worker.lines[-1][0] - worker.lines[0][0], JOIN_TIMEOUT + END, worker.text())
        self.assertIn(relay.place, started[1].text())

    def check_finds_another_address(self, started, relay):
        message = "expected the same cluster on all workers, but worker 0 .* and worker 1 "
        self.check_ends(started, relay, message, message)

    def wait_for_servers(self, worker):
        """The TCP ports at which worker 0 listens: those of the store and of its links."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            ports = {place[2] for place in workers.sockets_of(worker.process.pid) if place[0] == "tcp"}
            if len(ports) == 2:
                return ports
            time.sleep(0.02)
        raise AssertionError("worker 0 does not listen at two ports")

    def test_workers_notice_a_relay_that_changes_nothing_by_its_address(self):
        started, relay, _ = self.start()
        self.check_finds_another_address(started, relay)
        for recorded in relay.recorded[0]:
            self.assertNotIn(relay.place.encode(), recorded)  # which they have told each other
            for secret in (workers.TOKEN.encode(), bytes.fromhex(workers.TOKEN)):
                self.assertNotIn(secret, recorded)

    def test_a_flipped_bit_ends_the_meeting(self):
        jobs = [self.start(flipped=flipped) for flipped in FLIPPED]
        for flipped, (started, relay, _) in zip(FLIPPED, jobs):
            with self.subTest(flipped):
                self.check_ends(started, relay, "worker 1 of 2 did not come|expected the same cluster",
                                "found no coordinator at|lost the coordinator at|with another job token")

    def test_a_connection_that_is_led_to_another_server_of_the_job_is_refused(self):
        started, relay, store = self.start(is_open=False)
        links, = self.wait_for_servers(started[0]) - {store[1]}
        relay.target = ("127.0.0.1", links)
        self.check_ends(started, relay, "worker 1 of 2 did not come", "found no coordinator at")
        self.assertTrue(relay.recorded)
        for recorded in relay.recorded:
            self.assertTrue(attacked_job.is_refusal(bytes(recorded[TO_CLIENT])), recorded[TO_CLIENT])

    def test_recorded_bytes_open_no_connection_to_a_later_job_with_the_same_token(self):
        started, relay, _ = self.start()
        self.check_finds_another_address(started, relay)
        recorded = relay.recorded[0]
        started, relay, store = self.start(is_open=False)
        self.wait_for_servers(started[0])
        answer = b""
        with socket.create_connection(store, 10) as attacker, contextlib.suppress(ConnectionResetError):
            attacker.sendall(bytes(recorded[TO_SERVER]))
            while piece := attacker.recv(65536):
                answer += piece
        # The handshake of a server that knows the token, which only a client that knows it can read; and then, in
        # place of the server's first message, an encrypted alert.
        hello, change_of_keys, encrypted = 22, 20, 23
        handshake = [kind for kind, _ in attacked_job.records_of(answer)]
        self.assertEqual(handshake, [hello, change_of_keys, encrypted, encrypted, encrypted])
        self.assertEqual(attacked_job.records_of(answer)[-1][1], ALERT_BYTES)
        self.assertNotEqual(attacked_job.records_of(bytes(recorded[TO_CLIENT]))[4][1], ALERT_BYTES)
        relay.target = store
        self.check_finds_another_address(started, relay)


class CoordinatorRelayTest(unittest.TestCase):
    def setUp(self):
        self.ports = [workers.reserved_port() for _ in range(2)]
        self.relay = TcpRelay(None)
        self.addCleanup(self.relay.close)
        for port in self.ports:
            self.addCleanup(port.close)

    def start(self, task, chief):
        config = {"cluster": {"chief": [chief], "worker": ["127.0.0.1:1"]}, "task": {"type": task, "index": 0}}
        environment = workers.clean_environment() | {"TF_CONFIG": json.dumps(config), "LOCKSTEP_JOB_TOKEN": workers.TOKEN,
                                                     "LOCKSTEP_JOIN_TIMEOUT": "60"}
        pass_fds = ()
        if task == "chief":
            listener = self.ports[0].fileno()
            environment["LOCKSTEP_LISTEN_FD"] = str(listener)
            pass_fds = (listener,)
        process = workers.Worker([workers.BIN / "coordinator_worker", str(CLOSURES), "5"], environment, pass_fds)
        self.addCleanup(process.kill)
        return process

    def check_end(self, chief, worker):
        for process in (worker, chief):
            self.assertEqual(process.wait()[0], 0, process.text())
        self.assertIn(f"sum {sum(number * number for number in range(CLOSURES))}, lost 0", chief.text())

    def test_a_relay_that_changes_nothing_reads_nothing_either(self):
        host, port = self.ports[0].getsockname()
        self.relay.target = (host, port)
        chief, worker = self.start("chief", f"{host}:{port}"), self.start("worker", self.relay.place)
        self.check_end(chief, worker)
        for recorded in self.relay.recorded[-1]:
            self.assertNotIn(b"square", recorded)

    def test_a_worker_whose_handshake_is_changed_is_refused_and_another_one_is_served(self):
        self.relay.target = self.ports[0].getsockname()
        self.relay.flipped_byte = (TO_CLIENT, 40)
        place = "{}:{}".format(*self.relay.target)
        chief, refused = self.start("chief", place), self.start("worker", self.relay.place)
        self.assertEqual(refused.wait()[0], 5, refused.text())
        self.assertIn(f"the chief ({self.relay.place})", refused.text())
        worker = self.start("worker", place)
        self.check_end(chief, worker)


if __name__ == "__main__":
    unittest.main()
