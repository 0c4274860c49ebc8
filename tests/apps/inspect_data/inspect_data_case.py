"""Code that the tests of inspect_data share."""

import datetime
import decimal
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

import numpy as np
import pyarrow as pa

INSPECT_DATA = os.environ["INSPECT_DATA"]


def table(rows=5000):
    """Returns columns of many types and distributions."""
    draw = np.random.default_rng(1)
    lengths = draw.integers(0, 10, rows)
    return pa.table({
        "label": pa.array(draw.choice(["cat", "dog", "a rather long class name that goes on", "bird", ""], rows, p=[.5, .3, .1, .05, .05])),
        "normal": draw.normal(size=rows),
        "lognormal": pa.array(np.exp(draw.normal(size=rows) * 3) * 10, pa.float32()),
        "heavy": np.sinh(draw.normal(size=rows) * 5),
        "small": draw.random(rows) * 1e-9,
        "constant": pa.array([7] * rows),
        "flag": pa.array(draw.random(rows) < .2),
        "odd": pa.array(np.where(draw.random(rows) < .3, np.nan, np.where(draw.random(rows) < .1, np.inf, draw.random(rows)))),
        "nulls": pa.array([None if x < .4 else int(x * 300) for x in draw.random(rows)], pa.int16()),
        "all_null": pa.array([None] * rows, pa.int32()),
        "ids": pa.array([[None if x % 50 == 0 else int(x) for x in draw.integers(0, 100000, n)] if n < 9 else None for n in lengths],
                        pa.list_(pa.int64())),
        "vector": pa.FixedSizeListArray.from_arrays(pa.array(draw.normal(size=4 * rows).astype("f4")), 4),
        "hash": pa.array([bytes(draw.integers(0, 256, 16, dtype=np.uint8)) for _ in range(rows)], pa.binary(16)),
        "when": pa.array([datetime.datetime(2026, 1, 1) + datetime.timedelta(seconds=int(x)) for x in draw.integers(0, 10 ** 7, rows)]),
        "price": pa.array([decimal.Decimal(int(x)).scaleb(-2) for x in draw.integers(0, 10000, rows)], pa.decimal128(10, 2)),
        "nested": pa.array([{"a": 1, "b": "x"}] * rows),
        "a_column_with_a_name_that_is_much_longer_than_the_others_<b>": pa.array(draw.integers(-2 ** 63, 2 ** 63 - 1, rows)),
        "text": pa.array([None if i % 7 == 0 else "x" * int(n) for i, n in enumerate(draw.integers(0, 50, rows))]),
    })


class InspectDataCase(unittest.TestCase):
    """Has a folder for each test."""

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)

    def inspect(self, *arguments, code=0):
        """Runs the program, and returns what it printed."""
        process = subprocess.run([INSPECT_DATA, *map(str, arguments)], capture_output=True, text=True, timeout=120)
        self.assertEqual(process.returncode, code, process.stdout + process.stderr)
        if code == 0:
            self.assertEqual(process.stderr, "")
            return process.stdout
        self.assertEqual(process.stdout, "")
        self.assertRegex(process.stderr, r"\Ainspect_data: error: [^\n]+\n\Z")
        return process.stderr

    def summary(self, *arguments):
        return json.loads(self.inspect(*arguments, "--json"))
