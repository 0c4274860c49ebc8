#!/usr/bin/env python3
"""Records what train_images draws in a terminal of tmux, and what it writes into pipes."""

import os
import re
import shlex
import shutil
import subprocess
import tempfile
import time
import unittest

PROGRAM = os.environ["TRAIN_IMAGES"]
TRAINING = [
    "--data", "generated", "--limit-train", "640", "--limit-test", "200", "--epochs", "2",
    "--steps-per-epoch", "60", "--threads", "1",
]
BAR = re.compile(r"epoch ([12])/2 +(\d+)%\|([█▏▎▍▌▋▊▉ ]+)\| (\d+)/60 \[\d\d:\d\d<\d\d:\d\d, \d+ images/s, loss \d\.\d{4}")
CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f]")


class Terminal:
    """A terminal of tmux with a server of its own; `screen` and `recording` are there once the program has ended."""

    def __init__(self, command, variables, folder):
        socket = os.path.join(folder, "tmux")
        recording = os.path.join(folder, "recording")
        ended = os.path.join(folder, "ended")
        self._tmux = ["tmux", "-S", socket, "-f", "/dev/null"]
        # The recording begins before the program does, and the screen is read before the shell ends.
        line = f"tmux -S {socket} wait-for begin; {command}; echo $? > {ended}; sleep 60"
        environment = {"HOME": folder, "PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", **variables}
        self._run("new-session", "-d", "-x", "110", "-y", "60", "sh", "-c", line, environment=environment)
        try:
            self._run("pipe-pane", f"cat > {recording}")
            self._run("wait-for", "-S", "begin")
            deadline = time.monotonic() + 200
            while not (os.path.exists(ended) and os.path.getsize(ended) > 0):
                if time.monotonic() > deadline:
                    raise TimeoutError("the program did not end: " + self._run("capture-pane", "-p"))
                time.sleep(0.1)
            time.sleep(0.5)  # what was written last gets to the screen
            self.screen = self._run("capture-pane", "-p")
        finally:
            self._run("kill-server")
        with open(ended, encoding="utf-8") as file:
            self.exit_code = int(file.read())
        with open(recording, encoding="utf-8", errors="replace") as file:
            self.recording = file.read()

    def _run(self, *arguments, environment=None):
        result = subprocess.run(
            [*self._tmux, *arguments], env=environment or os.environ, check=True, capture_output=True, timeout=30,
            encoding="utf-8", errors="replace",
        )
        return result.stdout


@unittest.skipUnless(shutil.which("tmux"), "tmux is not installed")
class TerminalTest(unittest.TestCase):
    def record(self, **variables):
        with tempfile.TemporaryDirectory() as folder:
            return Terminal(shlex.join([PROGRAM, *TRAINING]), variables, folder)

    def test_draws_a_growing_bar_and_leaves_lines_and_a_table(self):
        terminal = self.record()
        self.assertEqual(terminal.exit_code, 0, terminal.screen)
        plain = re.sub(r"\x1b\[[0-9;]*m", "", terminal.recording)
        bars = [(int(match[1]), int(match[4])) for match in BAR.finditer(plain)]
        self.assertGreaterEqual(len(bars), 2, plain)
        self.assertEqual(bars, sorted(bars))
        self.assertIn("\x1b[36m", terminal.recording)

        self.assertNotRegex(terminal.screen, BAR)  # the bar is gone
        rows = re.findall(r"^ +[12]  \d\.\d{4}    \d\.\d{4}         \d\.\d{4} +\d+$", terminal.screen, re.MULTILINE)
        self.assertEqual(len(rows), 2, terminal.screen)
        self.assertRegex(terminal.screen, r"epoch    loss  accuracy  test accuracy  images/s")
        self.assertRegex(terminal.screen, r"best test accuracy \d\.\d{4} in epoch [12]")
        self.assertRegex(terminal.screen, r"693,962 parameters, 693,962 of them trained")

    def test_draws_without_colour_where_no_color_is_set(self):
        terminal = self.record(NO_COLOR="1")
        self.assertEqual(terminal.exit_code, 0, terminal.screen)
        self.assertRegex(terminal.recording, BAR)
        self.assertNotIn("\x1b[36m", terminal.recording)

    def test_tells_the_same_in_the_table_as_after_each_epoch(self):
        terminal = self.record()
        lines = re.findall(r"^epoch (\d)/2  loss (\S+)  accuracy (\S+)  test accuracy (\S+)  (\d+) images/s$",
                           terminal.screen, re.MULTILINE)
        rows = re.findall(r"^ +([12])  (\d\.\d{4}) +(\d\.\d{4}) +(\d\.\d{4}) +(\d+)$", terminal.screen, re.MULTILINE)
        self.assertEqual(lines, rows, terminal.screen)
        self.assertEqual(len(rows), 2)


class PipeTest(unittest.TestCase):
    def test_writes_no_control_characters_into_pipes(self):
        result = subprocess.run([PROGRAM, *TRAINING], capture_output=True, timeout=200, encoding="utf-8", check=False)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertNotRegex(result.stdout, CONTROL)
        self.assertEqual(result.stderr, "")
        self.assertIn("best test accuracy", result.stdout)


if __name__ == "__main__":
    unittest.main()
