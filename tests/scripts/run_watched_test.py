#!/usr/bin/env python3
"""scripts/run_watched.py: which programs it ends, what it reports of them, and that nothing of them is left."""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts/run_watched.py"
TIMEOUT = 60

# Two threads that wait, and a child process; their names are those that a report has to have.
HANGING = """
    import ctypes, pathlib, subprocess, sys, threading, time
    def wait():
        ctypes.CDLL(None).prctl(15, b"waiting_replica", 0, 0, 0)  # PR_SET_NAME
        time.sleep(600)
    threading.Thread(target=wait, daemon=True).start()
    child = subprocess.Popen(["sleep", "601"])
    print(child.pid, flush=True)
    time.sleep(600)
    """

# Uses a CPU and says nothing.
SPINNING = """
    while True:
        pass
    """


class RunWatchedTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.programs = self.folder / "programs"
        self.programs.mkdir()
        self.name = self.folder / "job"
        self.environment = {**os.environ, "PATH": f"{self.programs}:{os.environ['PATH']}"}
        self.tool("nvidia-smi", 'echo "made-up load: $*"')
        # gdb would need seconds, and the right to look into other processes.
        self.tool("gdb", 'echo "made-up stacks: $*"')

    def tool(self, name, text):
        path = self.programs / name
        path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        path.chmod(0o755)

    def command(self, flags, program):
        return [sys.executable, "-B", SCRIPT, *flags, self.name, *program]

    def watched(self, program, *flags):
        return subprocess.run(self.command(flags, program), env=self.environment, capture_output=True, text=True, check=False,
                              timeout=TIMEOUT)

    def watched_python(self, text, *flags):
        return self.watched([sys.executable, "-c", textwrap.dedent(text)], *flags)

    def written(self, ending):
        return self.name.with_suffix(f".{ending}").read_text(encoding="utf-8")

    def expect_no_report(self):
        for ending in ["stall", "limit"]:
            self.assertFalse(self.name.with_suffix(f".{ending}").exists(), ending)

    def expect_ended(self, *processes):
        for process in processes:
            self.assertFalse(pathlib.Path(f"/proc/{process}").exists(), process)

    def test_output_and_exit_code_are_the_programs(self):
        process = self.watched(["sh", "-c", 'echo "out $*"; echo err >&2; exit 3', "sh", "--limit", "1", "--stall=1"])
        self.assertEqual([process.returncode, process.stdout, process.stderr], [3, "", ""])
        self.assertEqual([self.written("out"), self.written("log")], ["out --limit 1 --stall=1\n", "err\n"])
        self.expect_no_report()

    def test_exit_code_of_a_signal_is_a_shells(self):
        self.assertEqual(self.watched(["sh", "-c", "kill -SEGV $$"]).returncode, 128 + signal.SIGSEGV)

    def test_program_that_does_not_exist_fails(self):
        process = self.watched([self.folder / "absent"])
        self.assertEqual(process.returncode, 127)
        self.assertIn("No such file", process.stderr)

    def test_program_that_prints_regularly_is_not_ended(self):
        process = self.watched_python("""
            import sys, time
            for stream in [sys.stdout, sys.stderr]:
                for i in range(25):
                    print(i, file=stream, flush=True)
                    time.sleep(0.1)
            """, "--stall", "2")
        self.assertEqual([process.returncode, process.stderr], [0, ""])
        self.expect_no_report()

    def test_program_that_prints_nothing_is_reported_and_ended(self):
        begin = time.monotonic()
        process = self.watched_python(HANGING, "--stall", "1", "--limit", "600")
        self.assertLess(time.monotonic() - begin, 20)
        self.assertEqual(process.returncode, 124)
        self.assertIn(f"{self.name} is stuck: it has printed nothing for 1 s", process.stderr)
        report = self.written("stall")
        child = int(self.written("out"))
        parent = int(report.partition(f"== process {child}, started by ")[2].partition(":")[0])
        self.assertIn(f"== process {child}, started by {parent}: sleep 601\nthread {child} sleep: State: S (sleeping)", report)
        self.assertIn(f"== process {parent}, started by", report)
        for waiting in [f"thread {parent} python", " waiting_replica: State: S (sleeping), 0 % of a CPU, waits in the kernel's "]:
            self.assertIn(waiting, report)
        self.assertIn("made-up load: --query-gpu=index,name,utilization.gpu", report)
        for number in [child, parent]:
            self.assertRegex(report, rf"== stacks of process {number}\nmade-up stacks: -p {number} -batch .*thread apply all bt\n")
        self.expect_ended(child, parent)
        self.assertFalse(self.name.with_suffix(".limit").exists())

    def test_program_that_spins_is_reported_with_its_load(self):
        process = self.watched_python(SPINNING, "--stall", "1")
        self.assertEqual(process.returncode, 124)
        share = int(self.written("stall").partition("State: R (running), ")[2].partition(" %")[0])
        self.assertGreater(share, 0)

    def test_program_that_prints_for_too_long_is_reported_and_ended(self):
        process = self.watched_python("""
            import time
            while True:
                print("again", flush=True)
                time.sleep(0.1)
            """, "--stall", "5", "--limit", "2")
        self.assertEqual(process.returncode, 124)
        self.assertIn(f"{self.name} has run for 2 s", process.stderr)
        self.assertIn("made-up stacks", self.written("limit"))
        self.assertFalse(self.name.with_suffix(".stall").exists())

    def test_threads_are_told_without_gdb(self):
        (self.programs / "gdb").unlink()
        self.environment["PATH"] = str(self.programs)
        (self.programs / "sleep").symlink_to(shutil.which("sleep"))
        self.watched_python(HANGING, "--stall", "1")
        report = self.written("stall")
        self.assertIn("waiting_replica: State: S (sleeping)", report)
        self.assertIn("gdb is not installed", report)
        self.assertNotIn("made-up stacks", report)

    def test_program_gets_time_to_end_and_is_then_killed(self):
        process = self.watched_python("""
            import signal, sys, time
            def end(*_):
                print("ended by itself", flush=True)
                sys.exit()
            signal.signal(signal.SIGTERM, end)
            time.sleep(600)
            """, "--stall", "1")
        self.assertEqual(process.returncode, 124)
        self.assertEqual(self.written("out"), "ended by itself\n")
        process = self.watched_python("""
            import os, signal, time
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            print(os.getpid(), flush=True)
            time.sleep(600)
            """, "--stall", "1", "--grace", "1")
        self.assertEqual(process.returncode, 124)
        self.expect_ended(int(self.written("out")))

    def test_processes_that_a_program_leaves_behind_are_killed(self):
        process = self.watched_python("""
            import subprocess
            print(subprocess.Popen(["sleep", "602"], start_new_session=True).pid, flush=True)
            """)
        left = int(self.written("out"))
        self.assertEqual(process.returncode, 0)
        self.assertIn(f"has left processes behind, which are killed: {left}", process.stderr)
        self.expect_ended(left)

    def test_signal_ends_the_program_too(self):
        for number in [signal.SIGTERM, signal.SIGINT]:
            with subprocess.Popen(self.command([], [sys.executable, "-c", textwrap.dedent(HANGING)]), env=self.environment,
                                  stderr=subprocess.DEVNULL) as process:
                output = self.name.with_suffix(".out")
                deadline = time.monotonic() + TIMEOUT
                while not (output.exists() and output.read_text(encoding="utf-8").endswith("\n")):
                    self.assertLess(time.monotonic(), deadline)
                    time.sleep(0.05)
                process.send_signal(number)
                self.assertEqual(process.wait(TIMEOUT), -number)
            self.expect_ended(int(self.written("out")))
            output.unlink()
            self.expect_no_report()


if __name__ == "__main__":
    unittest.main()
