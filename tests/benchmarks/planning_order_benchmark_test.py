#!/usr/bin/env python3
"""benchmarks/planning/order/planning_order_benchmark with two cases of emulated devices, whose clocks other programs do not disturb."""

import pathlib
import subprocess
import sys
import unittest

PROGRAM = pathlib.Path(sys.argv.pop(1)) / "bin" / "planning_order_benchmark"


def measure(*flags):
    return subprocess.run([PROGRAM, *flags], capture_output=True, text=True, timeout=240, check=False)


class PlanningOrderBenchmarkTest(unittest.TestCase):
    def test_the_layout_that_is_ranked_first_is_among_the_fastest(self):
        process = measure("--first", "2", "--cases", "2", "--layouts", "5", "--steps", "1")
        self.assertEqual(process.returncode, 0, process.stdout + process.stderr)
        rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in process.stdout.splitlines() if line.startswith("| ")]
        self.assertEqual(rows[0][0], "case")
        slow_link, one_example = rows[1:]
        for row in (slow_link, one_example):
            planned, measured, fastest, ratio = (float(row[i]) for i in (2, 3, 5, 6))
            self.assertAlmostEqual(measured / fastest, ratio, delta=0.02)
            self.assertLess(ratio, 1.1)
            self.assertLess(abs(planned / measured - 1), 0.2, row)
        # Over a slow link, sums of gradients take longer than the bubble of a pipeline; one example cannot be divided by either.
        self.assertTrue(slow_link[1].startswith("pipeline=2"), slow_link)
        self.assertTrue(slow_link[4].startswith("pipeline=2"), slow_link)
        self.assertFalse(one_example[4].startswith(("pipeline", "data", "shard")), one_example)
        self.assertIn("2 of 2 plans", process.stdout)

    def test_flags_out_of_range_are_refused(self):
        process = measure("--steps", "0")
        self.assertEqual(process.returncode, 2)
        self.assertIn("--steps: expected 1 to 1000, but got 0", process.stderr)


if __name__ == "__main__":
    unittest.main()
