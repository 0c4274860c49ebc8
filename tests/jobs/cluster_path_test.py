#!/usr/bin/env python3
"""Jobs on two hosts with an attacker on the path between them, who reads, changes, repeats, reorders and plays back
packets, with the right checksums."""

import random
import re
import signal
import socket
import time
import unittest

import packets
import shaped_link
import workers

TRAINING = [str(workers.BIN / "train_images"), "--strategy", "multi_worker", "--data", "generated", "--epochs", "1000",
            "--limit-train", "2000", "--limit-test", "64", "--threads", "1"]
HOST = re.escape(socket.gethostname())
STORE_PORT = 7001
HEARTBEAT_BYTES = 44
LONGER_THAN_A_DETECTION = 5  # seconds: a worker that is silent is given up after 3.5
END = 3  # seconds that the end of a process may take in addition


class PathTest(unittest.TestCase):
    def setUp(self):
        self.link = shaped_link.link_for(self)

    def start(self):
        """A job that trains: two workers, one on each host."""
        hosts = [f"10.78.0.1:{STORE_PORT}", f"10.78.0.2:{STORE_PORT}"]
        started = []
        for index, name in enumerate(self.link.names):
            environment = workers.clean_environment()
            environment.update(TF_CONFIG=workers.tf_config(hosts, index), LOCKSTEP_JOB_TOKEN=workers.TOKEN,
                               LOCKSTEP_JOIN_TIMEOUT="60")
            started.append(workers.Worker(["ip", "netns", "exec", name, *TRAINING], environment))
            self.addCleanup(started[-1].kill)
        started[0].wait_for("epoch 1/")
        return started

    def check_trains_to_its_end(self, started):
        time.sleep(LONGER_THAN_A_DETECTION)
        for worker in started:
            self.assertIsNone(worker.process.poll(), worker.text())
            worker.process.send_signal(signal.SIGTERM)
        for worker in started:
            self.assertEqual(worker.wait(60)[0], 143, worker.text())
            self.assertNotIn("lost", worker.text())

    def check_both_end(self, started, begin, pattern):
        """Both name the other one. The reason is the first one's to end: the other may find just that its process ended."""
        for index, worker in enumerate(started):
            code, ended = worker.wait(60)
            self.assertEqual(code, 5, worker.text())
            self.assertRegex(worker.text(), rf"worker {1 - index} \({HOST}\)")
            self.assertLess(ended - begin, 5 + END, worker.text())
        self.assertRegex("\n".join(worker.text() for worker in started), pattern)

    def test_a_changed_byte_ends_both(self):
        started = self.start()
        changed = []

        def change(_, packet):
            is_of_link = packets.protocol_of(packet) == packets.TCP and STORE_PORT not in packets.ports_of(packet)
            if changed or not is_of_link or not packets.payload_of(packet):
                return [packet]
            changed.append(packet)
            return [packets.with_flipped_bit(packet)]

        begin = time.monotonic()
        self.link.change = change
        self.check_both_end(started, begin, "closed the connection|the connection to another worker broke|was lost")
        self.assertEqual(len(changed), 1)

    def test_heartbeats_of_which_all_are_changed_end_both(self):
        started = self.start()

        def change(_, packet):
            return [packets.with_flipped_bit(packet) if packets.protocol_of(packet) == packets.UDP else packet]

        self.link.change = change
        begin = time.monotonic()
        self.check_both_end(started, begin, "no sign of life|is cut off|heard nothing from this process")

    def test_repeated_and_reordered_packets_do_nothing(self):
        started = self.start()
        chance = random.Random(1)
        kept = ([], [])

        def change(sender, packet):
            """Each packet twice, and earlier heartbeats of the same sender between them."""
            if packets.protocol_of(packet) != packets.UDP:
                return [packet, packet]
            kept[sender].append(packet)
            return [packet, *chance.choices(kept[sender], k=3), packet]

        self.link.change = change
        self.check_trains_to_its_end(started)

    def test_what_was_recorded_of_an_earlier_job_does_nothing(self):
        recorded = []

        def record(sender, packet):
            if packets.protocol_of(packet) == packets.UDP:
                recorded.append((sender, packet))
            return [packet]

        self.link.change = record
        earlier = self.start()
        time.sleep(1)
        earlier[1].process.kill()  # worker 0 tells all that worker 1 is lost
        self.assertEqual(earlier[0].wait(60)[0], 5, earlier[0].text())
        heartbeats = [(sender, packet) for sender, packet in recorded if len(packets.payload_of(packet)) == HEARTBEAT_BYTES]
        self.assertGreater(len(heartbeats), 20)

        recorded.clear()
        started = self.start()
        time.sleep(0.5)
        ports = {sender: packets.ports_of(packet) for sender, packet in recorded
                 if len(packets.payload_of(packet)) == HEARTBEAT_BYTES}
        self.assertEqual(ports[0], ports[1][::-1])
        for sender, packet in heartbeats:
            self.link.send(sender, packets.with_ports(packet, ports[sender]))
        self.check_trains_to_its_end(started)


if __name__ == "__main__":
    unittest.main()
