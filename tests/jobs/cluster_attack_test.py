#!/usr/bin/env python3
"""Jobs whose sockets are attacked by another user of the machine, who knows their addresses, but not their token."""

import itertools
import pathlib
import signal
import tempfile
import unittest

import attacked_job
import workers

TRAINING = [str(workers.BIN / "train_images"), "--strategy", "multi_worker", "--data", "generated", "--limit-train", "2000",
            "--limit-test", "64", "--threads", "1", "--learning-rate-schedule", "constant", "--check-replicas", "0"]
GREETING_BYTES = 38  # of a link without encryption: a magic number, a version and 32 random bytes
MAGIC = b"LSXL\x01\x00"


class AttackTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def train(self, name, *flags):
        """Two workers that save to a folder of that name."""
        command = [*TRAINING, *flags, "--backup-dir", str(self.folder / name)]
        started = workers.start_workers(2, command)
        for worker in started:
            self.addCleanup(worker.kill)
        return started

    def attack(self, name, places, same_user=False):
        attacker = attacked_job.Attacker(name, places, same_user)
        self.addCleanup(attacker.end)
        return attacker

    def check_refused(self, report):
        for answer in report:
            with self.subTest(answer["place"], payload=answer["payload"]):
                self.assertTrue(attacked_job.is_refusal(bytes.fromhex(answer["bytes"])), answer["bytes"])

    def wait_for_checkpoint(self, name, after=None):
        for _ in range(600):
            state = workers.last_checkpoint(self.folder / name)
            if state and (after is None or state[0] > after):
                return state[0]
            __import__("time").sleep(0.05)
        raise AssertionError("no checkpoint was saved")

    def test_attacks(self):
        started = self.train("attacked", "--epochs", "1000", "--save-every", "20 steps")
        started[0].wait_for("epoch 1/")
        places = attacked_job.places_of(started)
        everywhere = sorted(set(itertools.chain(*places.values())))
        print(places)
        watch = attacked_job.DescriptorWatch(places)
        import time
        t = time.monotonic()
        report = self.attack("probe", everywhere).end()
        from collections import Counter
        print(time.monotonic() - t, Counter((a["place"][0], a["payload"], a["bytes"][:80]) for a in report))
        self.check_refused(report)
        t = time.monotonic()
        print(self.attack("flood", [p for p in everywhere if p[0] != "udp"]).end(), time.monotonic() - t)
        holder = self.attack("hold", [p for p in everywhere if p[0] != "udp"])
        print(holder.report)
        step = self.wait_for_checkpoint("attacked")
        print("checkpoint", step, self.wait_for_checkpoint("attacked", after=step))
        print("held at end", holder.end())
        print(watch.check(self, places))
        for worker in started:
            worker.process.send_signal(signal.SIGTERM)
        for worker in started:
            self.assertEqual(worker.wait()[0], 143, worker.text())
        step, values = workers.last_checkpoint(self.folder / "attacked")
        for worker in self.train("undisturbed", "--epochs", "1", "--steps-per-epoch", str(step)):
            self.assertEqual(worker.wait()[0], 0, worker.text())
        self.assertEqual(workers.last_checkpoint(self.folder / "undisturbed"), (step, values))


if __name__ == "__main__":
    unittest.main()
