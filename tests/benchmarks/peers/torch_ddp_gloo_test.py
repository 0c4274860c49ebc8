#!/usr/bin/env python3
"""benchmarks/peers/torch_ddp.py with the real torch: two ranks on the CPU."""

import pathlib
import subprocess
import sys
import unittest

PEER = pathlib.Path(__file__).resolve().parents[3] / "benchmarks" / "peers" / "torch_ddp.py"
GPT = ["--replicas", "2", "--global-batch-size", "2", "--model", "gpt", "--sequence-length", "16"]
SMALL = ["--replicas", "2", "--global-batch-size", "4", "--image-size", "33"]
# Of torchvision's mobilenet_v2 with num_classes=10.
PARAMETERS = 2236682
# Embeddings of 256 tokens and 16 positions, 6 blocks, the last norm and the head.
GPT_PARAMETERS = (256 + 16) * 384 + 6 * (12 * 384 * 384 + 13 * 384) + 2 * 384 + 256 * 384


class TorchDdpGlooTest(unittest.TestCase):
    def answers(self, flags, requests):
        process = subprocess.run([sys.executable, "-B", str(PEER), *flags], input=requests, capture_output=True, text=True,
                                 timeout=240, check=False)
        self.assertEqual(process.returncode, 0, process.stderr)
        return process.stdout.splitlines()

    def test_two_ranks_train_a_gpt(self):
        ready, one_step = self.answers(GPT, "1\n")
        self.assertEqual(ready, f"ready {GPT_PARAMETERS}")
        self.assertGreater(float(one_step), 0)

    def test_two_ranks_divide_a_gpts_state_and_end_well(self):
        for way in ("zero1", "fsdp2"):
            with self.subTest(way):
                ready, one_step = self.answers([*GPT, "--sharding", way], "1\n")
                self.assertEqual(ready, f"ready {GPT_PARAMETERS}")
                self.assertGreater(float(one_step), 0)

    # tests/benchmarks/own_job_test.cpp has the same losses.
    def test_two_ranks_compute_lockstep_losses_in_a_pipeline(self):
        for schedule in ("gpipe", "1f1b", "interleaved"):
            with self.subTest(schedule):
                answers = self.answers(
                    ["--replicas", "2", "--global-batch-size", "8", "--model", "gpt", "--sequence-length", "16", "--layers", "4",
                     "--width", "64", "--pipeline", schedule, "--micro-batches", "4"], "loss\n1\nloss\n1\nloss\n")
                self.assertEqual(answers[0], f"ready {(256 + 16) * 64 + 4 * (12 * 64 * 64 + 13 * 64) + 2 * 64 + 256 * 64}")
                for answer, loss in zip(answers[1::2], (5.56997, 5.26022, 5.09439)):
                    self.assertAlmostEqual(float(answer), loss, delta=1e-4)

    def test_two_ranks_answer_as_remote_training_expects(self):
        ready, one_step, memory, two_steps = self.answers(SMALL, "1\npeak_memory\n2\n")
        self.assertEqual(ready, f"ready {PARAMETERS}")
        self.assertGreater(float(one_step), 0)
        self.assertGreater(float(two_steps), 0)
        # Parameters, gradients and Adam's two moments in float32.
        self.assertGreater(int(memory), PARAMETERS * 4 * 4)


if __name__ == "__main__":
    unittest.main()
