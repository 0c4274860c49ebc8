"""What tests that compare row groups with those of pyarrow share."""

import json
import math
import os
import pathlib
import subprocess
import tempfile
import unittest

import pyarrow as pa
import pyarrow.parquet as pq

BYTES = {"Bool": 1, "Char": 1, "Byte": 1, "Short": 2, "Int": 4, "Long": 8, "Half": 2, "Float": 4, "Double": 8}


def plain(values):
    """Returns a column's values as numbers, lists of numbers and None: texts as their bytes, times as integers."""
    kind = values.type
    if pa.types.is_dictionary(kind):
        return plain(pa.chunked_array([chunk.dictionary_decode() for chunk in values.chunks]))
    if pa.types.is_temporal(kind):
        return values.cast(pa.int32() if kind.bit_width == 32 else pa.int64()).to_pylist()
    if pa.types.is_decimal(kind):
        return [x if x is None else int(x.scaleb(kind.scale)) for x in values.to_pylist()]
    if not pa.types.is_nested(kind) and not pa.types.is_primitive(kind):
        return [x if x is None else list(x.encode() if isinstance(x, str) else x) for x in values.to_pylist()]
    return values.to_pylist()


def flat(values):
    return [x for value in values for x in (flat(value) if isinstance(value, list) else [value])]


class ParquetFileCase(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name, "a.parquet")

    def run_print(self, *columns, fill="none"):
        command = [os.environ["PRINT_PARQUET"], str(self.path), str(fill), *columns]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def read(self, *columns, fill="none"):
        process = self.run_print(*columns, fill=fill)
        self.assertEqual(process.returncode, 0, process.stderr)
        return json.loads(process.stdout)

    def expect_error(self, *parts, columns=(), fill="none", code=3):
        process = self.run_print(*columns, fill=fill)
        self.assertEqual(process.returncode, code, process.stderr)
        for part in parts:
            self.assertIn(part, process.stderr)
        if code == 3:
            self.assertTrue(process.stderr.startswith(f"{self.path}: "), process.stderr)

    def errors_of(self, contents):
        """Returns the errors of files with these contents; another end of the program than an error is a failure."""
        with tempfile.TemporaryDirectory() as folder:
            for number, content in enumerate(contents):
                pathlib.Path(folder, f"{number}.parquet").write_bytes(content)
            process = subprocess.run([os.environ["PRINT_PARQUET"], folder, "none"], capture_output=True, text=True)
            self.assertIn(process.returncode, (0, 3), process.stderr)
            return [line for line in process.stderr.splitlines() if line.startswith(f"{folder}/")]

    def expect_equal(self, got, expected, name):
        got = [bool(x) for x in got] if expected and isinstance(expected[0], bool) else got
        # NaN differs from itself, and repr tells -0.0 from 0.0.
        self.assertEqual([repr(type(y)(x)) for x, y in zip(got, expected)], [repr(x) for x in expected], name)
        self.assertEqual(len(got), len(expected), name)

    def bytes_of(self, group):
        """Returns the bytes of the tensors of a row group."""
        columns = group["columns"].values()
        return sum(math.prod(got["shape"]) * BYTES[got["type"]] + 8 * len(got.get("offsets", [])) for got in columns)

    def compare(self, groups, types):
        """Compares with what pyarrow reads from the same file."""
        file = pq.ParquetFile(self.path)
        self.assertEqual(len(groups), file.num_row_groups)
        for number, group in enumerate(groups):
            table = file.read_row_group(number)
            self.assertEqual(group["rows"], table.num_rows)
            self.assertEqual(group["bytes"], self.bytes_of(group))
            for name, got in group["columns"].items():
                expected = plain(table[name])
                self.assertEqual(got["type"], types[name])
                self.assertEqual(got["expected_type"], types[name])
                self.expect_equal(got["values"], flat(expected), name)
                if "offsets" in got:
                    offsets = [0]
                    for row in expected:
                        offsets.append(offsets[-1] + len(row))
                    self.assertEqual(got["offsets"], offsets)
