#!/usr/bin/env python3
"""Runs made-up test programs under load, of which some fail."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "run_under_load.py"


class RunUnderLoadTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)

    def program(self, name, text):
        path = self.root / name
        path.write_text(f'#!/usr/bin/env bash\necho "$*" >>{self.root}/{name}.calls\n{text}\n', encoding="utf-8")
        path.chmod(0o755)
        return path

    def run_all(self, *programs, **options):
        arguments = [f"--{name}={value}" for name, value in {"logs": self.root / "logs", **options}.items()]
        return subprocess.run([sys.executable, "-B", SCRIPT, *arguments, *programs], capture_output=True, text=True, check=False)

    def calls_of(self, name):
        return (self.root / f"{name}.calls").read_text(encoding="utf-8").splitlines()

    def test_the_runs_of_each_program_are_shared_out(self):
        process = self.run_all(self.program("good_test", "exit 0"), repeat=10, processes=4)
        self.assertEqual((process.returncode, process.stdout), (0, "none of 1 programs failed in 10 runs each\n"))
        repeats = [int(call.split("--gtest_repeat=")[1].split()[0]) for call in self.calls_of("good_test")]
        self.assertEqual((len(repeats), sum(repeats)), (4, 10))
        self.assertEqual(list((self.root / "logs").iterdir()), [])

    def test_failures_are_counted_by_test_and_their_logs_kept(self):
        lines = "echo '[  FAILED  ] Queue.Ends (3 ms)'\n" * 2 + "echo '[  FAILED  ] Sums/Ring.IsExact/2, where GetParam() = 2 (1 ms)'"
        process = self.run_all(self.program("bad_test", f"{lines}\nexit 1"), self.program("good_test", "exit 0"),
                               repeat=2, processes=1)
        self.assertEqual(process.returncode, 1)
        self.assertIn("bad_test: exit code 1: Queue.Ends (2 times), Sums/Ring.IsExact/2 (1 times) (", process.stdout)
        self.assertIn("some of 2 programs failed in 2 runs each", process.stdout)
        self.assertEqual([path.name for path in (self.root / "logs").iterdir()], ["bad_test.0.log"])

    def test_a_program_that_hangs_or_dies_is_named(self):
        process = self.run_all(self.program("slow_test", "exec sleep 60"), self.program("dying_test", "kill -9 $$"),
                               repeat=1, processes=2, timeout=1)
        self.assertEqual(process.returncode, 1)
        self.assertIn("slow_test: still running after 1 s", process.stdout)
        self.assertIn("dying_test: exit code -9: no test was named", process.stdout)


if __name__ == "__main__":
    unittest.main()
