#!/usr/bin/env python3
"""Output of workers that scripts/launch_local.sh prints and keeps."""

import os
import pty
import signal
import sys
import unittest

import launch_local_case


class LaunchLocalOutputTest(launch_local_case.LaunchLocalCase):
    def test_lines_are_printed_by_rank_and_never_mixed(self):
        output = self.folder / "a" / "logs"
        process = self.launch("--output", output, 2, *self.python("""
            for number in range(10000):
                line = f"{rank} {number} " + "x" * (number % 200)
                for stream in (sys.stdout, sys.stderr):
                    # In halves, so that what arrives ends within lines.
                    stream.write(line[:-3])
                    if number % 100 == 0:
                        stream.flush()
                    stream.write(line[-3:] + "\\n")
            """))
        self.assertEqual(process.returncode, 0)
        for rank in range(2):
            written = [f"{rank} {number} " + "x" * (number % 200) for number in range(10000)]
            for printed, end in [(process.stdout, "out"), (process.stderr, "err")]:
                self.assertEqual(len(printed.splitlines()), 20000)
                self.assertTrue(self.lines_of(printed, rank) == written)
                file = output / f"worker-{rank}.{end}"
                self.assertTrue(file.read_text(encoding="utf-8").splitlines() == written)

    def test_files_hold_exactly_what_was_written(self):
        for earlier in ["worker-0.out", "worker-0.err"]:
            (self.folder / earlier).write_text("what an earlier job wrote", encoding="utf-8")
        process = self.launch(f"--output={self.folder}", 1, "sh", "-c", r"printf 'a\r\n\n\200\rb'; printf '\rc\r' >&2")
        self.assertEqual(process.returncode, 0)
        self.assertEqual((self.folder / "worker-0.out").read_bytes(), b"a\r\n\n\x80\rb")
        self.assertEqual((self.folder / "worker-0.err").read_bytes(), b"\rc\r")

    def test_progress_lines_and_an_unfinished_last_line_are_lines(self):
        process = self.expect_success(
            self.launch(1, "sh", "-c", r"printf '\r10%%\r20%%\r'; sleep 0.1; printf '\nwindows\r'; printf '\n\nlast'"))
        self.assertEqual(process.stdout, "[0] 10%\n[0] 20%\n[0] windows\n[0] \n[0] last\n")

    def test_on_a_terminal_a_progress_line_takes_the_place_of_the_one_before(self):
        self.environment["TERM"] = "xterm"
        terminal, other_end = pty.openpty()
        self.addCleanup(os.close, terminal)
        process = self.start(1, "sh", "-c", r"printf '10%%\r20%%\rdone\nnext\n'", stdout=other_end)
        os.close(other_end)
        printed = b""
        while not printed.endswith(b"next\r\n"):
            printed += os.read(terminal, 1000)
        self.assertEqual(process.wait(launch_local_case.TIMEOUT), 0)
        self.assertEqual(printed, b"[0] 10%\r\x1b[K[0] 20%\r\x1b[K[0] done\r\n[0] next\r\n")

    def test_a_line_without_end_is_not_kept_forever(self):
        process = self.expect_success(self.launch(1, "sh", "-c", "yes | tr -d '\\n' | head -c 5000000"))
        lines = self.lines_of(process.stdout, 0)
        self.assertEqual("".join(lines), "y" * 5000000)
        self.assertTrue(1 < len(lines) < 10, len(lines))

    def test_quiet_prints_the_first_worker_alone_and_keeps_the_files_of_all(self):
        process = self.launch(
            "--quiet", "--output", self.folder, 3, "sh", "-c", "echo out $LOCAL_RANK; echo err $LOCAL_RANK >&2")
        self.assertEqual(
            (process.returncode, process.stdout, process.stderr), (0, "[0] out 0\n", "[0] err 0\n"))
        self.assertEqual((self.folder / "worker-2.err").read_text(encoding="utf-8"), "err 2\n")

    def test_output_that_cannot_be_written_is_told_and_ends_no_worker(self):
        (self.folder / "worker-0.out").symlink_to("/dev/full")
        process = self.launch("--output", self.folder, 1, *self.shell("echo one; sleep 0.2; echo two; touch done"))
        self.assertEqual((process.returncode, process.stdout), (7, "[0] one\n[0] two\n"))
        self.assertIn("cannot write to --output for worker 0 any more: No space left on device", process.stderr)
        self.assertTrue((self.folder / "done").exists())
        with open("/dev/full", "wb") as full:
            process = self.start(1, "sh", "-c", "echo one; sleep 0.2; echo two; echo three >&2", stdout=full)
            _, errors = process.communicate(timeout=launch_local_case.TIMEOUT)
        self.assertEqual(process.returncode, 7)
        self.assertEqual(
            errors, "launch_local.sh: cannot write to stdout any more: No space left on device\n[0] three\n")

    def test_the_workers_end_where_the_reader_of_their_output_has_left(self):
        process = self.start(2, *self.shell("echo $$ >>ids; while :; do echo line; sleep 0.05; done"))
        process.stdout.readline()
        process.stdout.close()
        self.assertEqual(process.wait(launch_local_case.TIMEOUT), 128 + signal.SIGPIPE)
        self.assertEqual([launch_local_case.is_running(worker) for worker in self.read_ids(2)], [False, False])

    def test_a_reader_that_stalls_holds_up_no_end(self):
        process = self.start("--grace", "0.1", 2, *self.shell("""
            echo $$ >>ids
            [ $LOCAL_RANK = 0 ] || { sleep 0.5; exit 9; }
            exec yes
            """))
        workers = self.read_ids(2)
        self.expect_soon(lambda: not any(os.path.exists(f"/proc/{worker}") for worker in workers))
        self.assertIsNone(process.poll())
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(launch_local_case.TIMEOUT), 9)


if __name__ == "__main__":
    sys.exit(unittest.main())
