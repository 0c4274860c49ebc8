#!/usr/bin/env python3
"""Jobs whose workers are on two hosts with a bad link between them."""

import re
import signal
import socket
import time
import unittest

import shaped_link
import workers

TRAINING = [str(workers.BIN / "train_images"), "--strategy", "multi_worker", "--data", "generated", "--epochs", "1000",
            "--limit-train", "2000", "--limit-test", "64", "--threads", "1"]
HOST = re.escape(socket.gethostname())
END = 1  # seconds that the end of a process may take in addition, on a machine that relays its packets, too
LONGER_THAN_A_DETECTION = 8  # seconds: a worker that is silent is given up after less than 5


class LinksTest(unittest.TestCase):
    def setUp(self):
        self.link = shaped_link.link_for(self)
        hosts = ["10.78.0.1:7001", "10.78.0.2:7001"]
        self.workers = []
        for index, name in enumerate(self.link.names):
            environment = workers.clean_environment()
            environment.update(TF_CONFIG=workers.tf_config(hosts, index), LOCKSTEP_JOB_TOKEN=workers.TOKEN,
                               LOCKSTEP_JOIN_TIMEOUT="60")
            self.workers.append(workers.Worker(["ip", "netns", "exec", name, *TRAINING], environment))
            self.addCleanup(self.workers[-1].kill)
        self.workers[0].wait_for("epoch 1/")

    def check_goes_on(self):
        """It raises no alarm; and all still agree on a step after which they end."""
        time.sleep(LONGER_THAN_A_DETECTION)
        for worker in self.workers:
            self.assertIsNone(worker.process.poll(), worker.text())
        self.link.shape()
        for worker in self.workers:
            worker.process.send_signal(signal.SIGTERM)
        for worker in self.workers:
            code, _ = worker.wait(120)
            self.assertEqual(code, 143, worker.text())
            self.assertNotIn("was lost", worker.text())

    def test_half_a_second_of_delay_is_no_alarm(self):
        self.link.shape(delay=0.5)
        self.check_goes_on()

    def test_every_second_packet_lost_is_no_alarm(self):
        self.link.shape(loss=0.5)
        self.check_goes_on()

    def check_both_end(self, begin):
        for index, worker in enumerate(self.workers):
            code, ended = worker.wait(60)
            self.assertEqual(code, 5, worker.text())
            self.assertRegex(worker.text(), rf"worker {1 - index} \({HOST}\) was lost: (no sign of life|it is cut off)|"
                                            rf"worker {index} \({HOST}\) was given up by the others: worker 0", worker.text())
            self.assertLess(ended - begin, 5.0 + END, worker.text())

    def test_a_link_that_loses_all_in_one_direction_ends_both(self):
        begin = time.monotonic()
        self.link.shape(loss=1.0, senders=[0])
        self.check_both_end(begin)

    def test_a_link_that_loses_all_in_the_other_direction_ends_both(self):
        begin = time.monotonic()
        self.link.shape(loss=1.0, senders=[1])
        self.check_both_end(begin)


if __name__ == "__main__":
    unittest.main()
