#!/usr/bin/env python3
"""Workers that train together record one run: that of worker 0's --run-dir."""

import json
import os
import pathlib
import re
import socket
import subprocess
import tempfile
import unittest

PROGRAM = os.environ["TRAIN_IMAGES"]
TRAINING = ["--data", "generated", "--limit-train", "320", "--limit-test", "100", "--epochs", "2", "--threads", "1",
            "--strategy", "multi_worker"]


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def train(*arguments_of_workers):
    """Each worker's exit code, and what it has printed."""
    hosts = ",".join(f"127.0.0.1:{free_port()}" for _ in arguments_of_workers)
    workers = [
        subprocess.Popen([PROGRAM, *TRAINING, "--worker-hosts", hosts, "--task-index", str(rank), *arguments],
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for rank, arguments in enumerate(arguments_of_workers)]
    try:
        outputs = [worker.communicate(timeout=200)[0] for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
    return [(worker.returncode, output) for worker, output in zip(workers, outputs)]


class WorkersRecordTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.run = pathlib.Path(folder.name) / "run"

    def check_record(self, results):
        self.assertEqual([code for code, _ in results], [0, 0], results)
        epochs = re.findall(r"^epoch \d/2  loss (\S+)", results[0][1], re.MULTILINE)
        lines = [json.loads(line) for line in (self.run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
        recorded = [f"{line['loss']:.4f}" for line in lines if line["kind"] == "epoch"]
        self.assertEqual(recorded, epochs)
        self.assertEqual((lines[-1]["kind"], lines[-1]["status"], lines[-1]["images"]), ("end", "completed", 640))
        self.assertEqual({path.name for path in (self.run / "checkpoints").iterdir()},
                         {"best.pt", "best.safetensors", "last.pt", "last.safetensors"})
        self.assertTrue((self.run / "report.html").exists())

    def test_worker_0_alone_is_given_the_directory(self):
        results = train(["--run-dir", str(self.run)], [])
        self.check_record(results)
        self.assertEqual(results[1][1], "")

    def test_all_workers_are_given_it(self):
        arguments = ["--run-dir", str(self.run)]
        self.check_record(train(arguments, arguments))

    def test_another_worker_alone_is_refused_by_all(self):
        for code, output in train([], ["--run-dir", str(self.run)]):
            self.assertEqual(code, 2, output)
            self.assertIn("--run-dir: expected it for worker 0", output)
        self.assertFalse(self.run.exists())


if __name__ == "__main__":
    unittest.main()
