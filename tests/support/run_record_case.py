"""Code that the Python tests of run records share."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

# Files that LOCKSTEP_WRITE_RUN_RECORD, the program write_run_record, writes.
WRITER = os.environ["LOCKSTEP_WRITE_RUN_RECORD"]


class RunRecordCase(unittest.TestCase):
    """Has a folder with a record that write_run_record wrote."""

    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        subprocess.run([WRITER, str(cls.folder)], check=True, timeout=60)
