#!/usr/bin/env python3
"""benchmarks/planning/planning_benchmark with a few trainings."""

import pathlib
import subprocess
import sys
import unittest

PROGRAM = pathlib.Path(sys.argv.pop(1)) / "bin" / "planning_benchmark"


def measure(*flags):
    return subprocess.run([PROGRAM, *flags], capture_output=True, text=True, timeout=240, check=False)


class PlanningBenchmarkTest(unittest.TestCase):
    def test_the_table_has_the_parts_of_each_plan_beside_what_was_measured(self):
        process = measure("--trainings", "3")
        self.assertEqual(process.returncode, 0, process.stdout + process.stderr)
        rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in process.stdout.splitlines() if line.startswith("| ")]
        self.assertEqual(len(rows), 4)
        for row in rows[1:]:
            parts = [0 if cell == "-" else float(cell) for cell in row[1:6]]
            planned, measured, error = (float(cell) for cell in row[6:])
            self.assertAlmostEqual(sum(parts), planned, delta=0.4)
            self.assertAlmostEqual(100 * (planned / measured - 1), error, delta=1)
        self.assertIn("3 trainings; mean error", process.stdout)

    def test_flags_out_of_range_are_refused(self):
        process = measure("--trainings", "0")
        self.assertEqual(process.returncode, 2)
        self.assertIn("--trainings: expected 1 to 1000000, but got 0", process.stderr)


if __name__ == "__main__":
    unittest.main()
