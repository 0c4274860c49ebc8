"""What tests that read Parquet files from an S3 server on loopback share."""

import io
import os
import pathlib
import subprocess
import tempfile
import unittest

import pyarrow as pa
import pyarrow.parquet as pq

from object_store import ObjectStore

KEY, SECRET = "AKIDLOCKSTEPTEST", "se/cret+of+the+test"
ESCAPED = f"{KEY}:{SECRET.replace('/', '%2F').replace('+', '%2B')}@"


def table(first=0):
    rows = range(first, first + 30)
    return pa.table({"label": [i % 2 for i in rows], "ids": [[i] * (i % 4) for i in rows], "text": [f"row {i}" for i in rows],
                     "price": [i / 8 for i in rows]})


def parquet(first=0, **options):
    """Returns a file of three row groups."""
    content = io.BytesIO()
    pq.write_table(table(first), content, row_group_size=10, **options)
    return content.getvalue()


class ObjectStoreCase(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.store = self.enterContext(ObjectStore("clicks"))

    def run_print(self, *arguments, **environment):
        own = {name: value for name, value in os.environ.items() if not name.startswith("AWS_") and not name.lower().endswith("_proxy")}
        own |= {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_EC2_METADATA_DISABLED": "true", "HOME": str(self.folder)}
        command = [os.environ["PRINT_PARQUET"], *map(str, arguments)]
        process = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False, env=own | environment)
        for secret in (KEY, SECRET, ESCAPED):
            self.assertNotIn(secret, process.stderr)
        return process

    def read(self, *arguments, **environment):
        process = self.run_print(*arguments, **environment)
        self.assertEqual((process.returncode, process.stderr), (0, ""))
        return process.stdout

    def local(self, content):
        """Returns what a local file with this content prints."""
        path = self.folder / "local.parquet"
        path.write_bytes(content)
        return self.read(path, "none")

    def expect_error(self, name, *parts, arguments, **environment):
        process = self.run_print(*arguments, **environment)
        self.assertEqual(process.returncode, 3, process.stderr)
        self.assertTrue(process.stderr.startswith(f"{name}: "), process.stderr)
        for part in parts:
            self.assertIn(part, process.stderr)
        self.assertEqual(process.stderr.count("\n"), 1, process.stderr)
