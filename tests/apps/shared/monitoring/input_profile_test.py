#!/usr/bin/env python3
"""--profile-input of programs that train by a Trainer."""

import os
import re
import subprocess
import unittest

STAGE = re.compile(r"^  (\w+) +(\d+\.\d\d) +(\S+) +\S+$", re.MULTILINE)
LIMIT = re.compile(r"^  (\w+) limits the speed: the training waited for batches for (\d+\.\d) % of (\d+\.\d) s$", re.MULTILINE)
IMAGES = [os.environ["TRAIN_IMAGES"], "--data", "generated", "--limit-train", "640", "--limit-test", "32", "--global-batch-size", "16",
          "--threads", "1", "--epochs", "2"]
GPT = [os.environ["TRAIN_GPT"], "--data", "generated", "--layers", "1", "--sequence-length", "32",
       "--global-batch-size", "16", "--steps", "80", "--test-every", "40", "--threads", "1"]


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)


class InputProfileTest(unittest.TestCase):
    def test_a_table_shows_each_stage_and_a_sentence_names_one_of_them(self):
        for command, examples, count in ((IMAGES, "images", 1280), (GPT, "sequences", 1280)):
            with self.subTest(examples=examples):
                result = run(*command, "--profile-input")
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertRegex(result.stdout, rf"(?m)^input +seconds +{examples}/s +MB/s$")
                stages = {name: (float(seconds), rate.replace(",", "")) for name, seconds, rate in STAGE.findall(result.stdout)}
                self.assertEqual(list(stages), ["order", "dataset", "map", "copy", "training"])
                limit, share, passed = LIMIT.search(result.stdout).groups()
                self.assertIn(limit, stages)
                self.assertEqual(limit == "training", float(share) < 3, result.stdout)
                # Seconds are rounded to 0.01 and 0.1, and shares to 0.1 %.
                seconds, rate = stages["training"]
                waited = float(passed) * float(share) / 100
                self.assertAlmostEqual(seconds, float(passed) - waited, delta=0.06 + 0.001 * float(passed))
                self.assertLessEqual(abs(float(rate) * seconds - count), 0.01 * float(rate))

    def test_nothing_is_shown_unless_it_is_asked_for(self):
        result = run(*IMAGES)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertNotIn("limits the speed", result.stdout)
        result = run(*IMAGES, "--profile-input", "--quiet")
        self.assertEqual((result.returncode, result.stdout), (0, ""))


if __name__ == "__main__":
    unittest.main()
