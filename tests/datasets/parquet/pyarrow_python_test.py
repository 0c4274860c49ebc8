#!/usr/bin/env python3
"""Compares row groups that ParquetFile reads with pyarrow's, and damages files."""

import json
import math
import os
import pathlib
import subprocess
import tempfile
import unittest

import pyarrow as pa
import pyarrow.parquet as pq

TYPES = {
    "Bool": pa.bool_(), "Char": pa.int8(), "Byte": pa.uint8(), "Short": pa.int16(), "Int": pa.int32(), "Long": pa.int64(),
    "Half": pa.float16(), "Float": pa.float32(), "Double": pa.float64()}
BYTES = {"Bool": 1, "Char": 1, "Byte": 1, "Short": 2, "Int": 4, "Long": 8, "Half": 2, "Float": 4, "Double": 8}
WIDENED = {"Int": pa.uint16(), "Long": pa.uint32()}
ROWS = 23


def extremes(kind):
    """Returns values of a type, its least and greatest among them."""
    if pa.types.is_boolean(kind):
        return [True, False, False, True, True]
    if pa.types.is_floating(kind):
        tiny = 2.0 ** -14 if kind == pa.float16() else 2.0 ** -126
        return [0.0, -1.5, tiny, math.inf, -math.inf, math.nan]
    bits = kind.bit_width
    if pa.types.is_signed_integer(kind):
        return [0, -1, -2 ** (bits - 1), 2 ** (bits - 1) - 1]
    return [0, 1, 2 ** bits - 1]


def column(kind, rows=ROWS):
    values = extremes(kind)
    return pa.array([values[i % len(values)] for i in range(rows)], kind)


def lists(kind, lengths):
    values = extremes(kind)
    return [[values[(row + i) % len(values)] for i in range(length)] for row, length in enumerate(lengths)]


def flat(values):
    return [x for value in values for x in (flat(value) if isinstance(value, list) else [value])]


def flipped(content, place, bits):
    return content[:place] + bytes([content[place] ^ bits]) + content[place + 1:]


class ParquetFileTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name, "a.parquet")

    def run_print(self, *columns, fill="none"):
        return subprocess.run([os.environ["PRINT_PARQUET"], str(self.path), str(fill), *columns], capture_output=True, text=True)

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
                expected = table[name].to_pylist()
                self.assertEqual(got["type"], types[name])
                self.assertEqual(got["expected_type"], types[name])
                self.expect_equal(got["values"], flat(expected), name)
                if "offsets" in got:
                    offsets = [0]
                    for row in expected:
                        offsets.append(offsets[-1] + len(row))
                    self.assertEqual(got["offsets"], offsets)

    def test_numbers_of_every_type_equal_pyarrows_in_every_row_group(self):
        kinds = [*TYPES.items(), *WIDENED.items()]
        table = pa.table({str(kind): column(kind) for _, kind in kinds})
        for options in ({}, {"use_dictionary": False}, {"compression": "zstd"}, {"compression": "none", "version": "1.0"},
                        {"data_page_size": 64, "write_page_checksum": True}):
            with self.subTest(**options):
                pq.write_table(table.slice(0, ROWS), self.path, row_group_size=7, **options)
                stored = pq.read_schema(self.path)
                types = {str(kind): name for name, kind in kinds}
                # Version 1.0 has no uint32: pyarrow writes int64 there.
                self.assertIn(str(stored.field("uint32").type), ("uint32", "int64"))
                groups = self.read()
                self.assertEqual([group["rows"] for group in groups], [7, 7, 7, 2])
                self.compare(groups, types)

    def test_lists_of_fixed_length_are_rows_of_a_matrix(self):
        data = {name: pa.array(lists(kind, [3] * ROWS), pa.list_(kind, 3)) for name, kind in TYPES.items()}
        pq.write_table(pa.table(data), self.path, row_group_size=10)
        groups = self.read()
        self.compare(groups, {name: name for name in TYPES})
        self.assertEqual([group["columns"]["Float"]["shape"] for group in groups], [[10, 3], [10, 3], [3, 3]])

    def test_lists_of_any_length_are_values_and_offsets(self):
        lengths = [0, 2, 0, 5, 1, 0, 3] * 3
        for make in (pa.list_, pa.large_list):
            data = {name: pa.array(lists(kind, lengths), make(kind)) for name, kind in TYPES.items()}
            pq.write_table(pa.table(data), self.path, row_group_size=8)
            self.compare(self.read(), {name: name for name in TYPES})

    def test_chosen_columns_come_in_their_order(self):
        pq.write_table(pa.table({"a": [1, 2], "text": ["x", "y"], "b": [[1.5], []], "c": [3, 4]}), self.path)
        groups = self.read("c", "b")
        self.assertEqual(list(groups[0]["columns"]), ["c", "b"])
        self.compare(groups, {"c": "Long", "b": "Double"})

    def test_files_without_rows_have_none(self):
        pq.write_table(pa.table({"a": pa.array([], pa.int64()), "b": pa.array([], pa.list_(pa.int64()))}), self.path)
        self.compare(self.read(), {"a": "Long", "b": "Long"})

    def test_nulls_are_refused_unless_a_number_stands_for_them(self):
        table = pa.table({"a": [1, 2, 3, None, None, 6], "b": [True, None, False, True, True, True],
                          "c": [[1.0, None], [], [2.0], [3.0], [], [None]]})
        pq.write_table(table, self.path, row_group_size=3)
        self.expect_error("row group 1", "column 'a'", "got 2", columns=["a"])
        self.expect_error("row group 0", "column 'c'", "got 1", columns=["c"])
        filled = self.read(fill=1)
        self.assertEqual(filled[1]["columns"]["a"]["values"], [1, 1, 6])
        self.assertEqual(filled[0]["columns"]["b"]["values"], [1, 1, 0])
        self.assertEqual(filled[0]["columns"]["c"]["values"], [1, 1, 2])
        self.assertEqual(self.read("a", fill=-7)[1]["columns"]["a"]["values"], [-7, -7, 6])
        self.expect_error("null_fill", "'b'", columns=["b"], fill=2, code=2)
        self.expect_error("null_fill", "'a'", columns=["a"], fill=0.5, code=2)

    def test_lists_that_are_null_are_refused(self):
        for kind in (pa.list_(pa.int32()), pa.list_(pa.int32(), 1)):
            pq.write_table(pa.table({"a": pa.array([[1], None], kind)}), self.path)
            self.expect_error("row group 0", "column 'a'", "null", fill=0)

    def test_other_types_are_refused_by_name(self):
        for values in (pa.array(["x"]), pa.array(["x"]).dictionary_encode(), pa.array([2 ** 64 - 1], pa.uint64()), pa.array([{"x": 1}]),
                       pa.array([[[1]]]), pa.array([b"x"])):
            with self.subTest(type=str(values.type)):
                pq.write_table(pa.table({"n": [1], "odd": values}), self.path)
                self.expect_error("column 'odd'", str(pq.read_schema(self.path).field("odd").type))
                self.assertEqual(self.read("n")[0]["columns"]["n"]["values"], [1])

    def test_missing_and_repeated_columns_are_named(self):
        pq.write_table(pa.table({"a": [1], "b": [2]}), self.path)
        self.expect_error("'z'", "a, b", columns=["z"])
        self.expect_error("twice", columns=["a", "a"], code=2)
        pq.write_table(pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"]), self.path)
        self.expect_error("one named 'a'", "two")

    def test_files_that_are_not_whole_parquet_files_are_refused(self):
        self.expect_error("cannot open")
        self.path.write_bytes(b"")
        self.expect_error("it is empty")
        self.path.write_bytes(b"PAR1PAR1")
        self.expect_error()
        self.path.write_bytes(b"label\tclicks\n" * 100)
        self.expect_error("magic bytes")
        pq.write_table(pa.table({"a": list(range(100))}), self.path)
        whole = self.path.read_bytes()
        sizes = range(1, len(whole), 41)
        self.assertEqual(len(self.errors_of(whole[:size] for size in sizes)), len(sizes))
        self.path.unlink()
        self.path.mkdir()
        self.expect_error("a folder")

    def test_page_checksums_find_every_flipped_byte_of_the_values(self):
        pq.write_table(pa.table({"a": pa.array(range(200), pa.int64())}), self.path, compression="none", use_dictionary=False,
                       write_page_checksum=True)
        whole = self.path.read_bytes()
        at = whole.index(b"".join(i.to_bytes(8, "little") for i in range(200)))
        places = range(at, at + 1600, 97)
        errors = self.errors_of(flipped(whole, place, 1) for place in places)
        self.assertEqual(len(errors), len(places))
        for error in errors:
            self.assertIn("row group 0", error)
            self.assertIn("CRC", error)

    def test_flipped_bytes_anywhere_never_end_the_program(self):
        table = pa.table({"a": list(range(50)), "b": [[float(i)] * (i % 3) for i in range(50)]})
        pq.write_table(table, self.path, row_group_size=20, write_page_checksum=True, compression="snappy")
        whole = self.path.read_bytes()
        places = range(0, len(whole), 5)
        errors = self.errors_of(flipped(whole, place, 0x10) for place in places)
        # A flip in the names of columns or in statistics changes no value.
        self.assertGreater(len(errors), len(places) // 4)


if __name__ == "__main__":
    unittest.main()
