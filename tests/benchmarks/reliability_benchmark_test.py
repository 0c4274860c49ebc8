#!/usr/bin/env python3
"""benchmarks/reliability/reliability_benchmark.py with Lockstep's own job: what it measures, in seconds instead of an hour."""

import pathlib
import re
import subprocess
import sys
import unittest

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "benchmarks" / "reliability"
BUILD = sys.argv.pop(1)
SMALL = ["--build", BUILD, "--image-size", "33", "--global-batch-size", "4"]

sys.path.insert(0, str(FOLDER))
import reliability_benchmark  # pylint: disable=wrong-import-position


def measure(*flags):
    return subprocess.run([sys.executable, "-B", str(FOLDER / "reliability_benchmark.py"), *SMALL, *flags], capture_output=True,
                          text=True, timeout=300, check=False)


class ReliabilityBenchmarkTest(unittest.TestCase):
    def rows(self, process):
        self.assertEqual(process.returncode, 0, process.stderr)
        return [[cell.strip() for cell in line.strip("|").split("|")] for line in process.stdout.splitlines()
                if line.startswith("| Lockstep")]

    def test_the_interval_is_that_of_order_statistics(self):
        # Of 15 values the 4th smallest and largest hold the median with 96.5 %, of 6 the outermost with 96.9 %.
        self.assertEqual(reliability_benchmark.median_interval(list(range(15, 0, -1))), (8, 4, 12))
        self.assertEqual(reliability_benchmark.median_interval([6, 1, 2, 5, 3, 4]), (3.5, 1, 6))
        with self.assertRaises(ValueError):
            reliability_benchmark.median_interval([1, 2, 3, 4, 5])

    def test_a_killed_worker_is_found_and_at_most_an_interval_is_done_again(self):
        rows = self.rows(measure("--parts", "kill", "--trials", "1", "--save-every", "3"))
        (_, detected, next_step, again, went_on), = rows
        self.assertEqual(went_on, "1 of 1")
        self.assertLess(float(re.match(r"[\d.]+", detected).group()), 30)
        self.assertGreater(float(re.match(r"[\d.]+", next_step).group()), float(re.match(r"[\d.]+", detected).group()))
        # The step after that of the checkpoint is the one that was under way.
        self.assertIn(int(re.match(r"\d+", again).group()), range(4))

    def test_overhead_has_a_row_for_each_kind_of_saving(self):
        *rows, comparison = self.rows(measure("--parts", "overhead", "--pairs", "6", "--steps", "2"))
        self.assertEqual([row[1] for row in rows], ["synchronous", "asynchronous", "sharded"])
        for row in rows:
            self.assertRegex(row[3], r"^[+-][\d.]+ %$")
        share, of_thousand = (float(re.match(r"[\d.]+", comparison[i]).group()) for i in (1, 3))
        self.assertAlmostEqual(of_thousand, share / 1000, delta=0.0001)

    def test_parts_and_folders_that_are_not_there_are_wrong_usage(self):
        for flags, name in ((["--parts", "speed"], "--parts"), (["--pairs", "5"], "--pairs"), (["--build", "/no"], "--build"),
                            (["--only", "Horovod"], "--only"),
                            (["--peer-torch-python", "/no/python"], "--peer-torch-python")):
            process = measure(*flags)
            self.assertEqual(process.returncode, 2)
            self.assertIn(f"{name}: expected", process.stderr)


if __name__ == "__main__":
    unittest.main()
