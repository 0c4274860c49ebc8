#!/usr/bin/env python3
"""Workers that train together record one run: that of worker 0's --run-dir."""

import json
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

from worker_trainings import train


def on_host(name):
    """A prefix that runs a command on a machine that is called so."""
    return ["unshare", "--map-root-user", "--uts", "sh", "-c", f'hostname {name} && exec "$@"', "sh"]


def can_name_hosts():
    if not shutil.which("unshare") or not shutil.which("hostname"):
        return False
    return subprocess.run([*on_host("node1"), "true"], capture_output=True, check=False).returncode == 0


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

    @unittest.skipUnless(can_name_hosts(), "this machine lets no process have a host name of its own (unshare, hostname)")
    def test_report_names_the_hosts_of_all_workers(self):
        results = train(["--run-dir", str(self.run)], [], prefixes=(on_host("node1"), on_host("node2")))
        self.check_record(results)
        start = json.loads((self.run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()[0])
        self.assertEqual((start["kind"], start["hosts"]), ("start", "node1,node2"))
        self.assertIn(" on node1, node2 with Lockstep ", (self.run / "report.html").read_text(encoding="utf-8"))

    def test_another_worker_alone_is_refused_by_all(self):
        for code, output in train([], ["--run-dir", str(self.run)]):
            self.assertEqual(code, 2, output)
            self.assertIn("--run-dir: expected it for worker 0", output)
        self.assertFalse(self.run.exists())


if __name__ == "__main__":
    unittest.main()
