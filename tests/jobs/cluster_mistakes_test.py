#!/usr/bin/env python3
"""Messages and exit codes of workers if one of them does otherwise than the others."""

import json
import os
import pathlib
import re
import socket
import struct
import tempfile
import time
import unittest
import zlib

import workers

PROGRAM = str(workers.BIN / "fault_worker")
HOST = re.escape(socket.gethostname())
LIMIT = 5  # seconds


def png(side=8):
    """A grey image."""

    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    rows = zlib.compress(bytes(1 + side) * side)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


class MistakesCase(unittest.TestCase):
    def start(self, *arguments, change=lambda index, environment: None):
        started = workers.start_workers(2, [PROGRAM, *map(str, arguments)], change)
        for worker in started:
            self.addCleanup(worker.kill)
        return started

    def check_end(self, worker, begin, code, pattern):
        """It has ended with `code` soon after `begin`, and says so."""
        found, ended = worker.wait(60)
        self.assertEqual(found, code, worker.text())
        self.assertRegex(worker.text(), pattern)
        self.assertLess(ended - begin, LIMIT, worker.text())


class DataTest(MistakesCase):
    def lose_an_image(self, lose):
        """`lose` damages one of the images of a job that is reading them: one that worker 1 alone reads."""
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            for kind in ("even", "odd"):
                (folder / kind).mkdir()
                for number in range(4):
                    (folder / kind / f"{number}.png").write_bytes(png())
            started = self.start("data", folder)
            for worker in started:
                worker.wait_for("an epoch has ended")
            lost = folder / "odd" / "3.png"
            lose(lost)
            begin = time.monotonic()
            self.check_end(started[1], begin, 3, f"error: worker 1: {re.escape(str(lost))}")
            self.check_end(started[0], begin, 5, rf"error: worker 1 \({HOST}\): {re.escape(str(lost))}")

    def test_a_file_that_is_deleted_is_named_by_all_workers(self):
        self.lose_an_image(os.unlink)

    def test_a_file_that_is_shortened_is_named_by_all_workers(self):
        self.lose_an_image(lambda path: os.truncate(path, 40))


class DifferencesTest(MistakesCase):
    def check_both(self, arguments, pattern):
        """Both workers end with 5, and say what differs."""
        started = self.start(*arguments)
        for worker in started:
            worker.wait_for("has met the others")
        begin = time.monotonic()
        for worker in started:
            self.check_end(worker, begin, 5, pattern)

    def test_another_operation_is_named_by_both_with_its_number(self):
        for operation, other in (("mean", r"all_reduce mean Float\[2\]"), ("shape", r"all_reduce sum Float\[3\]"),
                                 ("broadcast", r"broadcast from 0 Float\[2\]")):
            with self.subTest(operation):
                self.check_both(("operation", operation),
                                rf"collective #0: worker 0 \({HOST}\) called all_reduce sum Float\[2\],.*"
                                rf"worker 1 \({HOST}\) called {other},")

    def test_a_worker_with_fewer_calls_is_named(self):
        started = self.start("fewer")
        for worker in started:
            worker.wait_for("has met the others")
        begin = time.monotonic()
        self.check_end(started[0], begin, 5, rf"#1.*worker 1 \({HOST}\)")
        # It has ended without an error, and can only say what becomes of the others.
        self.check_end(started[1], begin, 0, rf"worker 1 \({HOST}\) was at its end when the job failed: worker 0 \({HOST}\)")

    @workers.once
    def test_models_that_differ_are_named_by_both_with_the_tensor(self):
        for difference, first, other in (("dtype", r"'in\.weight' Float", r"'in\.weight' Double"),
                                         ("shape", r"'out\.weight' Float \[3, 3\]", r"'out\.weight' Float \[4, 3\]"),
                                         ("order", r"'in\.weight'", r"'out\.weight'"),
                                         ("name", r"'out\.weight'", r"'last\.weight'"),
                                         ("number", r"'out\.weight'", "none")):
            with self.subTest(difference):
                self.check_both(("model", difference),
                                rf"\[model\].*worker 0 \({HOST}\) has {first}.*worker 1 \({HOST}\) has {other}")

    @workers.once
    def test_an_optimizers_option_that_differs_is_named_by_both(self):
        self.check_both(("momentum", 0.5), rf"\[optimizer\].*worker 0 \({HOST}\) has momentum 0\.9 .*"
                        rf"worker 1 \({HOST}\) has momentum 0\.5 ")

    def test_the_worker_does_its_work_where_nothing_differs(self):
        for worker in self.start("momentum", 0.9):
            code, _ = worker.wait(60)
            self.assertEqual(code, 0, worker.text())
            self.assertIn("made no difference", worker.text())

    @workers.once
    def test_clusters_of_other_addresses_are_named_by_both(self):
        def change(index, environment):
            config = json.loads(environment["TF_CONFIG"])
            config["cluster"]["worker"].append(f"127.0.0.1:{8 + index}")  # a third worker, who never comes
            environment["TF_CONFIG"] = json.dumps(config)

        started = self.start("momentum", 0.9, change=change)
        codes = [worker.wait(60)[0] for worker in started]
        self.assertEqual(codes, [5, 5], started[0].text())
        for worker in started:
            self.assertRegex(worker.text(), rf"same cluster.*worker 0 \({HOST}\) has '[^']*127\.0\.0\.1:8 *'.*"
                             rf"worker 1 \({HOST}\) has '[^']*127\.0\.0\.1:9 *'")
            self.assertLess(worker.lines[-1][0] - worker.lines[0][0], LIMIT, worker.text())


if __name__ == "__main__":
    unittest.main()
