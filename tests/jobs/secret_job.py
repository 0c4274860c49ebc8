"""Code that tests share of jobs whose first task gives the secret to the others."""

import pathlib
import tempfile
import unittest

import workers

TRAINING = [str(workers.BIN / "train_images"), "--strategy", "multi_worker", "--data", "generated", "--epochs", "1",
            "--limit-train", "512", "--limit-test", "64", "--threads", "1"]
SERVED = [str(workers.BIN / "train_ctr"), "--strategy", "parameter_server", "--threads", "1", "--train-rows", "20000",
          "--test-rows", "2000", "--global-batch-size", "256", "--table-rows", "2000", "--steps", "20"]


class SecretJob(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def source(self):
        """The variables by which a task gets the secret."""
        raise NotImplementedError

    def environment(self, **variables):
        """Those of source() and others; None removes one. A user's secret, if one was made, is in the test's folder."""
        environment = workers.clean_environment() | {"XDG_RUNTIME_DIR": str(self.folder), "LOCKSTEP_JOIN_TIMEOUT": "60"}
        environment |= self.source() | variables
        return {name: value for name, value in environment.items() if value is not None}

    def start(self, index, first, *flags, command=(), **variables):
        """A worker of a job of two, whose worker 0 listens on the socket `first`."""
        environment = self.environment(
            TF_CONFIG=workers.tf_config([f"127.0.0.1:{first.getsockname()[1]}", "127.0.0.1:9"], index), **variables)
        pass_fds = ()
        if index == 0:
            environment["LOCKSTEP_LISTEN_FD"] = str(first.fileno())
            pass_fds = (first.fileno(),)
        return self.watched(workers.Worker([*command, *TRAINING, *flags], environment, pass_fds))

    def watched(self, worker):
        self.addCleanup(worker.kill)
        return worker

    def check_end(self, worker, code, *texts):
        self.assertEqual(worker.wait(120)[0], code, worker.text())
        for text in texts:
            self.assertIn(text, worker.text())
        self.assertNotRegex(worker.text(), "[0-9a-f]{64}")  # no secret

    def check_trains(self, started):
        for worker in started:
            self.check_end(worker, 0)

    def train(self, name, **variables):
        """Trains with the two workers of a job, and returns their last checkpoint."""
        with workers.reserved_port() as first:
            started = [self.start(index, first, "--backup-dir", str(self.folder / name), **variables) for index in range(2)]
        self.check_trains(started)
        self.assertIn("2 workers", started[0].text())
        return workers.last_checkpoint(self.folder / name)

    def check_same_bits_as_with_a_token(self, **without_source):
        trained = self.train("source")
        self.assertIsNotNone(trained)
        self.assertFalse((self.folder / "lockstep").exists(), "the user's secret was used")
        self.assertEqual(trained, self.train("token", LOCKSTEP_JOB_TOKEN=workers.TOKEN, **without_source))

    def check_refusal(self, first, second, *texts):
        """Worker 1, with the variables `second`, is told why worker 0 gives it no secret."""
        with workers.reserved_port() as port:
            self.start(0, port, **first)
            self.check_end(self.start(1, port, **second), 5, "worker 1 did not get the job's secret from worker 0 (127.0.0.1:",
                           *texts)

    def check_both_needed(self):
        """If worker 0 has a token as well as the source, worker 1 needs both, too."""
        with workers.reserved_port() as first:
            started = [self.start(0, first, LOCKSTEP_JOB_TOKEN=workers.TOKEN)]
            self.check_end(self.start(1, first), 5, "with another job token than worker 0")
            started.append(self.start(1, first, LOCKSTEP_JOB_TOKEN=workers.TOKEN))
        self.check_trains(started)

    def check_servers_train(self):
        started = workers.start_served(2, SERVED, lambda _, environment: environment.update(self.source()))
        for worker in started.values():
            self.watched(worker)
        self.check_trains(started.values())
        self.assertIn("20 applied", started["chief 0"].text())
