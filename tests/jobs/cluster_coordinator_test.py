"""A coordinated job whose processes are killed, stopped and started again: each closure's value is there, and once."""

import json
import signal
import unittest

import workers

CLOSURES = 60
SUM = sum(number * number for number in range(CLOSURES))


class CoordinatorTest(unittest.TestCase):
    def setUp(self):
        self.port = workers.reserved_port()
        self.addCleanup(self.port.close)
        self.cluster = {"chief": [f"127.0.0.1:{self.port.getsockname()[1]}"], "worker": ["127.0.0.1:1", "127.0.0.1:2"]}

    def start(self, task, index, milliseconds=50, join_timeout=60, token="0123456789abcdef" * 4):
        environment = workers.clean_environment()
        environment.update(TF_CONFIG=json.dumps({"cluster": self.cluster, "task": {"type": task, "index": index}}),
                           LOCKSTEP_JOB_TOKEN=token, LOCKSTEP_JOIN_TIMEOUT=str(join_timeout))
        pass_fds = ()
        if task == "chief":
            environment["LOCKSTEP_LISTEN_FD"] = str(self.port.fileno())
            pass_fds = (self.port.fileno(),)
        process = workers.Worker([workers.BIN / "coordinator_worker", str(CLOSURES), str(milliseconds)], environment,
                                 pass_fds)
        self.addCleanup(process.kill)
        return process

    def expect_end(self, chief, *others, lost):
        self.assertEqual(chief.wait()[0], 0, chief.text())
        self.assertIn(f"sum {SUM}, lost {lost}", chief.text())
        for other in others:
            self.assertEqual(other.wait()[0], 0, other.text())

    def test_a_killed_worker_costs_no_value(self):
        chief, first, second = self.start("chief", 0), self.start("worker", 0), self.start("worker", 1)
        first.wait_for("at ")
        first.process.kill()
        self.expect_end(chief, second, lost=1)
        self.assertIn("worker 0 is lost", chief.text())

    def test_a_worker_that_is_started_again_takes_over(self):
        chief, first = self.start("chief", 0), self.start("worker", 0)
        first.wait_for("at 3")
        first.process.kill()
        self.expect_end(chief, self.start("worker", 0), lost=1)

    def test_a_stopped_workers_late_result_does_not_count_and_it_goes_on(self):
        # The stopped one is lost after 3 s, while the other one has work for 5 more.
        chief, first, second = (self.start("chief", 0, 150), self.start("worker", 0, 150), self.start("worker", 1, 150))
        first.wait_for("at ")
        second.wait_for("at ")
        first.process.send_signal(signal.SIGSTOP)
        chief.wait_for("worker 0 is lost")
        first.process.send_signal(signal.SIGCONT)
        self.expect_end(chief, first, second, lost=1)

    def test_workers_name_a_chief_that_is_lost(self):
        chief = self.start("chief", 0)
        first = self.start("worker", 0, join_timeout=2)
        first.wait_for("at ")
        self.port.close()
        chief.process.kill()
        self.assertEqual(first.wait()[0], 5, first.text())
        self.assertIn(f"the chief ({self.cluster['chief'][0]})", first.text())

    def test_a_chief_names_workers_that_do_not_come(self):
        chief = self.start("chief", 0, join_timeout=1)
        self.assertEqual(chief.wait()[0], 5, chief.text())
        self.assertIn("expected worker 0 (127.0.0.1), worker 1 (127.0.0.1)", chief.text())

    def test_a_worker_of_another_job_is_refused_and_disturbs_nobody(self):
        chief, first = self.start("chief", 0, 5), self.start("worker", 1, 5, token="fedcba9876543210" * 4)
        self.assertEqual(first.wait()[0], 5, first.text())
        self.expect_end(chief, self.start("worker", 0, 5), lost=0)


if __name__ == "__main__":
    unittest.main()
