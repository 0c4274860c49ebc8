#!/usr/bin/env python3
"""Tests scripts/tpu_check.sh on the device of tests/device, a plugin as torch_tpu is: tpu_check_script_test.py <folder of the programs>."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAMS = None


def run(*arguments):
    """Runs the script, and returns its end."""
    environment = {**os.environ, "LOCKSTEP_MNIST_DIR": "", "CUDA_VISIBLE_DEVICES": "-1", "OMP_NUM_THREADS": "1"}
    return subprocess.run([ROOT / "scripts/tpu_check.sh", *arguments], cwd=ROOT, env=environment, capture_output=True, text=True,
                          timeout=500, check=False)


class TpuCheckScriptTest(unittest.TestCase):
    def test_a_plugin_that_computes_as_the_cpu_passes(self):
        with tempfile.TemporaryDirectory() as folder:
            ended = run("--plugin", PROGRAMS / "libtest_device_plugin.so", "--built", PROGRAMS, "--rounds", "1", "--devices", "1 2",
                        "--out", folder)
            self.assertEqual(ended.returncode, 0, ended.stderr)
            self.assertIn("All passed", ended.stderr)
            rows = json.loads(pathlib.Path(folder, "comparison/comparison.json").read_text(encoding="utf-8"))["strategies"]
            self.assertEqual([row["label"] for row in rows], ["mirrored:cpu:0", "tpu:1", "tpu:2"])
            self.assertEqual([row["replicas"] for row in rows], [1, 1, 2])
            self.assertIn("TPUStrategy with 2 replicas over 2 workers", rows[2]["description"])
            self.assertIn("worker 1", pathlib.Path(folder, "lost_peer.log").read_text(encoding="utf-8"))

    def test_usage_is_refused(self):
        for arguments, message in [
            (["--devices", "x"], "--devices: expected numbers"),
            (["--plugin", "absent.so"], "expected a library, together with --built"),
            (["--rounds", "0"], "--rounds: expected a number"),
            (["--python", "no_such_python"], "expected a Python 3.11, but found none"),
            (["--unknown"], "but got '--unknown'"),
        ]:
            with self.subTest(arguments=arguments):
                ended = run(*arguments)
                self.assertEqual(ended.returncode, 2, ended.stderr)
                self.assertIn(message, ended.stderr)


if __name__ == "__main__":
    PROGRAMS = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
