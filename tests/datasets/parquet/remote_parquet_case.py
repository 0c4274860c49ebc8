"""Shared by tests that read Parquet files from servers on loopback."""

import io
import os
import pathlib
import subprocess
import tempfile
import unittest

import pyarrow as pa
import pyarrow.parquet as pq


def table(first=0):
    rows = range(first, first + 30)
    return pa.table({"label": [i % 2 for i in rows], "ids": [[i] * (i % 4) for i in rows], "text": [f"row {i}" for i in rows],
                     "price": [i / 8 for i in rows]})


def parquet(first=0, **options):
    """Returns a file of three row groups."""
    content = io.BytesIO()
    pq.write_table(table(first), content, row_group_size=10, **options)
    return content.getvalue()


class RemoteParquetCase(unittest.TestCase):
    """Runs print_parquet without the machine's own settings of a store, whose names begin with `settings`. It never prints `secrets`."""

    settings = ""
    secrets = ()

    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def own_environment(self):
        """Returns variables of the test's store."""
        return {}

    def run_print(self, *arguments, **environment):
        inherited = {name: value for name, value in os.environ.items()
                     if not name.startswith(self.settings) and not name.lower().endswith("_proxy")}
        command = [os.environ["PRINT_PARQUET"], *map(str, arguments)]
        process = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False,
                                 env=inherited | self.own_environment() | environment)
        for secret in self.secrets:
            self.assertNotIn(secret, process.stderr)
        return process

    def read(self, *arguments, **environment):
        process = self.run_print(*arguments, **environment)
        self.assertEqual((process.returncode, process.stderr), (0, ""))
        return process.stdout

    def local(self, content, *arguments):
        """Returns what a local file with this content prints."""
        path = self.folder / "local.parquet"
        path.write_bytes(content)
        return self.read(path, "none", *arguments)

    def expect_error(self, start, *parts, arguments, **environment):
        process = self.run_print(*arguments, **environment)
        self.assertEqual(process.returncode, 3, process.stderr)
        self.assertTrue(process.stderr.startswith(start), process.stderr)
        for part in parts:
            self.assertIn(part, process.stderr)
        self.assertEqual(process.stderr.count("\n"), 1, process.stderr)
