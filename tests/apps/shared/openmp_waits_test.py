#!/usr/bin/env python3
"""How OpenMP's threads wait in train_images, by what OpenMP itself says (OMP_DISPLAY_ENV)."""

import os
import re
import subprocess
import unittest

PROGRAM = os.environ["TRAIN_IMAGES"]
CHOICES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")


def start(*arguments, **variables):
    """Runs the program, and returns it and the spins before a thread sleeps, each time that OpenMP was loaded."""
    environment = {name: value for name, value in os.environ.items() if name not in CHOICES}
    run = subprocess.run(
        [PROGRAM, *arguments], env={**environment, "OMP_DISPLAY_ENV": "VERBOSE", **variables}, capture_output=True,
        text=True, timeout=240, check=False)
    return run, re.findall(r"GOMP_SPINCOUNT = '(\d+)'", run.stderr)


class OpenmpWaitsTest(unittest.TestCase):
    def setUp(self):
        if not start("--version")[1]:
            self.skipTest("LibTorch's OpenMP is not GNU's, which says how its threads wait")

    def test_threads_sleep_at_once(self):
        run, spins = start("--version")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertRegex(run.stdout, r"^train_images \S+, LibTorch \S+\n$")  # the program ran once
        self.assertEqual(spins[-1], "0")

    def test_what_the_user_has_chosen_stays(self):
        for choice in ({"GOMP_SPINCOUNT": "1234"}, {"OMP_WAIT_POLICY": "active"}):
            run, spins = start("--version", **choice)
            self.assertEqual(run.returncode, 0, run.stderr)
            self.assertEqual(len(spins), 1)  # the program was not started anew
            self.assertNotEqual(spins[0], "0")
        self.assertEqual(start("--version", GOMP_SPINCOUNT="1234")[1], ["1234"])

    def test_arguments_and_exit_code_are_those_of_the_program(self):
        for arguments in (["--epochs", "two words"], [""]):
            run, _ = start(*arguments)
            self.assertEqual(run.returncode, 2)
            self.assertIn(f"'{arguments[-1]}'", run.stderr.splitlines()[-1])


if __name__ == "__main__":
    unittest.main()
