#!/usr/bin/env python3
"""benchmarks/context_memory/context_memory_benchmark with short sequences."""

import pathlib
import subprocess
import sys
import unittest

PROGRAM = pathlib.Path(sys.argv.pop(1)) / "bin" / "context_memory_benchmark"


def measure(*flags):
    return subprocess.run([PROGRAM, *flags], capture_output=True, text=True, timeout=240, check=False)


class ContextMemoryBenchmarkTest(unittest.TestCase):
    def test_memory_falls_with_the_ranks_and_grows_with_the_tokens(self):
        for method in ("ring", "all_to_all"):
            with self.subTest(method=method):
                process = measure("--tokens", "1024,4096", "--ranks", "1,2,4", "--method", method)
                self.assertEqual(process.returncode, 0, process.stderr)
                rows = [line.strip("| ").split("|") for line in process.stdout.splitlines() if line.startswith("| ")]
                self.assertEqual([row[0].strip() for row in rows], ["tokens", "1024", "4096"])
                short, long = ([float(value) for value in row[1:]] for row in rows[1:])
                inputs = 4096 * 4 * 32 * 4 / 1e6  # of queries, keys or values
                self.assertGreater(long[0], 8 * inputs)  # with output and gradients
                self.assertLess(long[0], 16 * inputs)
                for one in (short, long):
                    self.assertLess(one[2], one[1])
                for measured, ranks in zip(long, (1, 2, 4)):
                    self.assertLess(measured, 26 * inputs / ranks + 0.3)
                for before, after in zip(short, long):
                    self.assertLess(after, 6 * before)  # 16 with scores of all pairs

    def test_flags_out_of_range_are_refused(self):
        for flags, expected in ((["--ranks", "0"], "--ranks: expected 1 to 64, but got 0"),
                                (["--method", "tree"], "--method: expected ring or all_to_all, but got tree")):
            process = measure(*flags)
            self.assertEqual(process.returncode, 2)
            self.assertIn(expected, process.stderr)


if __name__ == "__main__":
    unittest.main()
