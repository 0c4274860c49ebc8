#!/usr/bin/env python3
"""benchmarks/peers/torch_ddp.py with the real torch: two ranks on the CPU."""

import pathlib
import subprocess
import sys
import unittest

PEER = pathlib.Path(__file__).resolve().parents[3] / "benchmarks" / "peers" / "torch_ddp.py"
SMALL = ["--replicas", "2", "--global-batch-size", "4", "--image-size", "33"]
# Of torchvision's mobilenet_v2 with num_classes=10.
PARAMETERS = 2236682


class TorchDdpGlooTest(unittest.TestCase):
    def test_two_ranks_answer_as_remote_training_expects(self):
        process = subprocess.run(
            [sys.executable, "-B", str(PEER), *SMALL], input="1\npeak_memory\n2\n", capture_output=True, text=True,
            timeout=240, check=False)
        self.assertEqual(process.returncode, 0, process.stderr)
        ready, one_step, memory, two_steps = process.stdout.splitlines()
        self.assertEqual(ready, f"ready {PARAMETERS}")
        self.assertGreater(float(one_step), 0)
        self.assertGreater(float(two_steps), 0)
        # Parameters, gradients and Adam's two moments in float32.
        self.assertGreater(int(memory), PARAMETERS * 4 * 4)


if __name__ == "__main__":
    unittest.main()
