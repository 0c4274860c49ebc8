"""Code that the tests of convert_data share."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

CONVERT_DATA = os.environ["CONVERT_DATA"]


class ConvertDataCase(unittest.TestCase):
    """Has a folder for each test."""

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)

    def convert(self, *arguments, code=0):
        """Runs the program, and returns what it printed."""
        process = subprocess.run([CONVERT_DATA, *map(str, arguments)], capture_output=True, text=True, timeout=120)
        self.assertEqual(process.returncode, code, process.stdout + process.stderr)
        if code != 0:
            self.assertEqual(process.stdout, "")
            self.assertRegex(process.stderr, r"\Aconvert_data: error: [^\n]+\n\Z")
        return process.stdout + process.stderr

    def refuse(self, expected, *arguments, code):
        """Checks an error, and that nothing was written."""
        before = self.names()
        self.assertIn(expected, self.convert(*arguments, code=code))
        self.assertEqual(self.names(), before)

    def names(self):
        return sorted(str(path.relative_to(self.folder)) for path in self.folder.rglob("*"))
