#!/usr/bin/env python3
"""Draws terminals whose content is known."""

import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
from xml.etree import ElementTree

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "terminal_picture.py"
SVG = "{http://www.w3.org/2000/svg}"
CELL = 8  # pixels of a column


@unittest.skipUnless(shutil.which("tmux"), "needs tmux")
class TerminalPictureTest(unittest.TestCase):
    def draw(self, text, pattern):
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder, "terminal.svg")
            command = [sys.executable, SCRIPT, out, pattern, "100", "12", "printf", text]
            subprocess.run(command, check=True, capture_output=True, timeout=100)
            return ElementTree.parse(out).getroot()

    def test_draws_words_at_their_columns_in_their_colours(self):
        picture = self.draw("a < b & c\\n\\033[31mred\\033[0m  \\033[1;32mgreen\\033[0m plain", "^red  green plain")
        words = {text.text: text for text in picture.iter(f"{SVG}text")}
        self.assertIn("a < b & c", words)
        left = float(words["red"].get("x"))
        self.assertEqual(float(words["green"].get("x")), left + 5 * CELL)
        self.assertEqual(float(words["plain"].get("x")), left + 11 * CELL)
        self.assertEqual(float(words["green"].get("textLength")), 5 * CELL)
        self.assertEqual(len({words[word].get("fill") for word in ("red", "green", "plain")}), 3)
        self.assertEqual(words["green"].get("font-weight"), "bold")
        self.assertIsNone(words["plain"].get("font-weight"))

    def test_draws_a_bar_as_long_as_its_blocks(self):
        picture = self.draw("|\\033[36m██▌\\033[0m  | 50%%", "^.* 50%$")
        *_, bar = picture.iter(f"{SVG}rect")  # after the terminal and the command
        self.assertEqual(float(bar.get("width")), 2.5 * CELL)
        *_, begin, end = picture.iter(f"{SVG}text")
        self.assertEqual((begin.text, end.text), ("|", "| 50%"))
        self.assertEqual(float(bar.get("x")), float(begin.get("x")) + CELL)
        self.assertEqual(float(end.get("x")), float(begin.get("x")) + 6 * CELL)


if __name__ == "__main__":
    unittest.main()
