#!/usr/bin/env python3
"""Compares row groups that ParquetFile reads with pyarrow's, and damages files."""

import datetime
import decimal
import json
import math
import os
import pathlib
import random
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


def flipped(content, place, bits):
    return content[:place] + bytes([content[place] ^ bits]) + content[place + 1:]


class ParquetFileTest(unittest.TestCase):
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

    def test_numbers_equal_pyarrows_in_every_kind_of_page(self):
        draw = random.Random(1)
        rows = 3000
        kinds = [pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.date32()]

        def numbers(kind, most, nulls):
            values = [None if draw.random() < nulls else draw.randrange(most) for _ in range(rows)]
            return pa.array(values, pa.int32() if kind == pa.date32() else kind).cast(kind)

        data = {f"{kind} {name}": numbers(kind, most, nulls) for kind in kinds for name, most, nulls in (
            ("few", 5, 0.3), ("many", 10 ** 6, 0.1), ("whole", 300, 0), ("none", 2, 1), ("one", 1, 0.001))}
        data["runs"] = pa.array([None if i // 100 % 3 == 0 else i // 200 for i in range(rows)], pa.int64())
        table = pa.table(data)
        table = table.append_column(pa.field("required", pa.int64(), nullable=False), pa.array(range(rows), pa.int64()))
        cases = [{"compression": compression} for compression in ("none", "snappy", "gzip", "brotli", "lz4", "zstd")]
        cases += [{"compression": "zstd", "use_dictionary": False, "data_page_size": 1000},
                  {"compression": "none", "use_dictionary": False, "data_page_size": 1000},
                  {"dictionary_pagesize_limit": 2000, "data_page_size": 500, "write_page_checksum": True}]
        for options in [{"data_page_version": version, **case} for case in cases for version in ("1.0", "2.0")]:
            with self.subTest(**options):
                pq.write_table(table, self.path, row_group_size=1700, **options)
                groups = self.read(fill=-3)
                self.assertEqual([group["rows"] for group in groups], [1700, 1300])
                for number, group in enumerate(groups):
                    expected = pq.ParquetFile(self.path).read_row_group(number)
                    for name, got in group["columns"].items():
                        values = [-3 if x is None else x for x in plain(expected[name])]
                        self.assertEqual(got["values"], values, name)

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

    def test_files_may_be_named_by_a_uri(self):
        self.path = self.path.with_name("a b%.parquet")
        pq.write_table(pa.table({"a": [1, 2, 3]}), self.path)
        self.assertIn("%20b%25.parquet", self.path.as_uri())
        command = [os.environ["PRINT_PARQUET"], self.path.as_uri(), "none"]
        process = subprocess.run(command, capture_output=True, text=True, check=True)
        self.assertEqual(json.loads(process.stdout), self.read())
        for place in (self.path.as_uri(), self.path.parent.as_uri(), f"{self.path.parent.as_uri()}/*.parquet", self.path):
            found = subprocess.run([os.environ["PRINT_PARQUET"], "--find", place, self.path], capture_output=True, text=True, check=True)
            self.assertEqual(found.stdout, f"{self.path}\n")
        process = subprocess.run([*command[:1], "file://host/a.parquet", "none"], capture_output=True, text=True, check=False)
        self.assertEqual((process.returncode, process.stderr.count("file:///")), (3, 1))

    def test_lists_and_binaries_of_fixed_length_that_are_null_are_refused(self):
        for values in (pa.array([[1], None], pa.list_(pa.int32(), 1)), pa.array([b"1", None], pa.binary(1))):
            pq.write_table(pa.table({"a": values}), self.path)
            self.expect_error("row group 0", "column 'a'", "null", columns=["--empty"], fill=0)

    def test_other_types_are_refused_by_name(self):
        for values in (pa.array([{"x": 1}]), pa.array([[[1]]]), pa.array([["x"]]), pa.array([None], pa.null()),
                       pa.array([decimal.Decimal(1)], pa.decimal128(19, 0)), pa.array([decimal.Decimal(1)], pa.decimal256(5, 0))):
            with self.subTest(type=str(values.type)):
                pq.write_table(pa.table({"n": [1], "odd": values}), self.path)
                self.expect_error("column 'odd'", str(pq.read_schema(self.path).field("odd").type))
                self.assertEqual(self.read("n")[0]["columns"]["n"]["values"], [1])

    def test_fields_of_structs_are_read_by_their_names(self):
        rows = [{"a": i, "deep": {"b": [i] * (i % 3), "text": f"{i}"}} for i in range(ROWS)]
        pq.write_table(pa.table({"n": range(ROWS), "s": rows}), self.path, row_group_size=10)
        groups = self.read("s.deep.b", "n", "s.a", "s.deep.text")
        self.assertEqual([group["rows"] for group in groups], [10, 10, 3])
        columns = [groups[2]["columns"][name] for name in ("s.deep.b", "n", "s.a", "s.deep.text")]
        self.assertEqual([column["values"] for column in columns],
                         [[20, 20, 22], [20, 21, 22], [20, 21, 22], list(b"202122")])
        self.assertEqual(columns[0]["offsets"], [0, 2, 2, 3])
        for name in ("s.none", "s.deep.b.c", "n.a", "s."):
            self.expect_error("columns", f"'{name}'", columns=[name])
        self.expect_error("column 's.deep'", "struct", columns=["s.deep"])

    def test_a_field_of_a_struct_that_is_null_is_null(self):
        pq.write_table(pa.table({"s": [{"a": 1, "t": "x"}, None, {"a": None, "t": "yz"}]}), self.path)
        self.expect_error("row group 0", "column 's.a'", "got 2", columns=["s.a"])
        columns = self.read("--empty", "s.a", "s.t", fill=-1)[0]["columns"]
        self.assertEqual(columns["s.a"]["values"], [1, -1, -1])
        self.assertEqual(columns["s.t"]["offsets"], [0, 1, 1, 3])

    def test_structs_of_bytes_and_path_are_their_bytes(self):
        files = [{"bytes": bytes([i]) * i, "path": f"{i}.png"} for i in range(5)]
        pq.write_table(pa.table({"image": files, "n": range(5)}), self.path, row_group_size=3)
        for group in (self.read()[1], self.read("image", "n")[1]):
            self.assertEqual(group["columns"]["image"]["values"], [3] * 3 + [4] * 4)
            self.assertEqual(group["columns"]["image"]["offsets"], [0, 3, 7])
        self.assertEqual(bytes(self.read("image.path")[1]["columns"]["image.path"]["values"]), b"3.png4.png")

    def test_strings_and_binaries_of_any_length_are_bytes_and_offsets(self):
        texts = ["", "click", "Zürich", "日本", "a" * 300, ""] * 4
        data = {}
        for kind in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary()):
            encoded = [text if "string" in str(kind) else text.encode() + b"\0\xff" for text in texts]
            data[str(kind)] = pa.array(encoded, kind)
            data[f"{kind} dictionary"] = data[str(kind)].dictionary_encode()
        for options in ({}, {"use_dictionary": False}, {"data_page_size": 64}):
            with self.subTest(**options):
                pq.write_table(pa.table(data), self.path, row_group_size=9, **options)
                self.assertTrue(pa.types.is_dictionary(pq.read_schema(self.path).field("string dictionary").type))
                groups = self.read()
                self.compare(groups, dict.fromkeys(data, "Byte"))
                self.assertEqual({got["length"] for got in groups[0]["columns"].values()}, {0})
        got = bytes(self.read("string")[0]["columns"]["string"]["values"]).decode()
        self.assertEqual(got, "".join(texts[:9]))

    def test_strings_that_are_not_utf_8_keep_their_bytes(self):
        pq.write_table(pa.table({"a": pa.array([b"Z\xfcrich"]).view(pa.string())}), self.path)
        self.assertEqual(bytes(self.read()[0]["columns"]["a"]["values"]), b"Z\xfcrich")

    def test_binaries_of_fixed_length_are_rows_of_a_matrix(self):
        pq.write_table(pa.table({"a": pa.array([bytes([i, 0, 255 - i]) for i in range(8)], pa.binary(3))}), self.path, row_group_size=5)
        groups = self.read()
        self.compare(groups, {"a": "Byte"})
        self.assertEqual([group["columns"]["a"]["shape"] for group in groups], [[5, 3], [3, 3]])

    def test_dictionaries_of_numbers_are_their_numbers(self):
        values = pa.array([7, 5, 7, 7], pa.int32())
        pq.write_table(pa.table({"a": values.dictionary_encode()}), self.path)
        self.assertEqual(self.read()[0]["columns"]["a"]["values"], values.to_pylist())

    def test_dates_times_and_decimals_are_integers_in_the_unit_of_the_column(self):
        days = [datetime.date(1969, 12, 31), datetime.date(2026, 11, 29), datetime.date(1, 1, 1)]
        data = {"days": (pa.array(days, pa.date32()), "Int")}
        for unit in ("ms", "us", "ns"):
            moments = [-1, 0, 1_764_000_000_123]
            data[f"timestamp {unit}"] = (pa.array(moments, pa.timestamp(unit)), "Long")
            data[f"zone {unit}"] = (pa.array(moments, pa.timestamp(unit, "Europe/Zurich")), "Long")
            data[f"duration {unit}"] = (pa.array(moments, pa.duration(unit)), "Long")
            data[f"time {unit}"] = (pa.array([0, 1, 86_399_999], pa.time32(unit) if unit == "ms" else pa.time64(unit)),
                                    "Int" if unit == "ms" else "Long")
            data[f"list {unit}"] = (pa.array([[0, -1], [], [7]], pa.list_(pa.timestamp(unit))), "Long")
        for precision, scale in ((5, 2), (18, 0), (18, 18)):
            numbers = [decimal.Decimal(sign * (10 ** precision - 1)).scaleb(-scale) for sign in (1, -1, 0)]
            data[f"decimal 1e{-scale}"] = (pa.array(numbers, pa.decimal128(precision, scale)), "Long")
        pq.write_table(pa.table({name: values for name, (values, _) in data.items()}), self.path, row_group_size=2)
        groups = self.read()
        for name, values in groups[0]["columns"].items():
            self.assertEqual(values["unit"], name.split()[-1], name)
        for name in [name for name in data if name.startswith("list")]:
            self.assertEqual(flat([flat(group["columns"][name]["values"]) for group in groups]), [0, -1, 7])
            for group in groups:
                del group["columns"][name]
        for group in groups:
            group["bytes"] = self.bytes_of(group)
        self.compare(groups, {name: kind for name, (_, kind) in data.items()})

    def test_old_timestamps_of_96_bits_are_nanoseconds(self):
        pq.write_table(pa.table({"a": pa.array([0, 1_764_000_000_123_456], pa.timestamp("us"))}), self.path, use_deprecated_int96_timestamps=True)
        got = self.read()[0]["columns"]["a"]
        self.assertEqual((got["values"], got["unit"]), ([0, 1_764_000_000_123_456_000], "ns"))

    def test_uint64_is_read_if_int64_holds_its_values(self):
        kind = pa.uint64()
        pq.write_table(pa.table({"a": pa.array([0, 2 ** 63 - 1, None], kind), "b": pa.array([[1], [], [2 ** 63 - 1]], pa.list_(kind))}), self.path)
        self.compare(self.read("b"), {"b": "Long"})
        self.assertEqual(self.read("a", fill=-1)[0]["columns"]["a"]["values"], [0, 2 ** 63 - 1, -1])
        pq.write_table(pa.table({"a": pa.array([0, 2 ** 63 + 5], kind)}), self.path)
        self.expect_error("row group 0", "column 'a'", str(2 ** 63 + 5))

    def test_columns_may_have_null_fills_of_their_own(self):
        pq.write_table(pa.table({"a": [1, None], "b": [2.5, None], "c": pa.array([None, 3], pa.int8()), "d": ["x", "y"]}), self.path)
        got = self.read("--fill", "b=0.25", "--fill", "c=-128", fill=9)[0]["columns"]
        self.assertEqual([got[name]["values"] for name in "abc"], [[1, 9], [2.5, 0.25], [-128, 3]])
        self.expect_error("column 'a'", "null_fill", columns=["--fill", "b=1"])
        self.expect_error("column_null_fills", "'c'", "0.5", columns=["--fill", "c=0.5"], code=2)
        self.expect_error("column_null_fills", "'z'", columns=["--fill", "z=1"], code=2)
        self.expect_error("column_null_fills", "'b'", columns=["a", "--fill", "b=1"], code=2)
        self.expect_error("column_null_fills", "'d'", "strings", columns=["--fill", "d=1"], code=2)

    def test_null_lists_and_strings_may_be_read_as_empty_ones(self):
        data = {"list": pa.array([[1, 2], None, [], [3]]), "large": pa.array([None, [1], None, [2]], pa.large_list(pa.int64())),
                "text": ["x", None, "", "yz"], "dictionary": pa.array(["x", None, "yz", "x"]).dictionary_encode(), "binary": [None, b"a", None, b""]}
        pq.write_table(pa.table(data), self.path)
        for name in data:
            self.expect_error("row group 0", f"column '{name}'", "null_lists_are_empty", columns=[name], fill=0)
        group = self.read("--empty")[0]
        self.assertEqual(group["bytes"], self.bytes_of(group))
        table = pq.read_table(self.path)
        for name, got in group["columns"].items():
            rows = [row or [] for row in plain(table[name])]
            self.assertEqual(got["values"], flat(rows), name)
            self.assertEqual(got["offsets"], [sum(map(len, rows[:i])) for i in range(5)], name)

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

    def test_row_groups_without_rows_have_none(self):
        table = pa.table({"a": [1, 2], "b": [[1.5], []], "c": ["x", "yz"], "d": pa.array([[1, 2], [3, 4]], pa.list_(pa.int8(), 2))})
        with pq.ParquetWriter(self.path, table.schema) as writer:
            for rows in (2, 0, 1):
                writer.write_table(table.slice(0, rows))
        groups = self.read()
        self.assertEqual([group["rows"] for group in groups], [2, 0, 1])
        self.compare(groups, {"a": "Long", "b": "Double", "c": "Byte", "d": "Char"})

    def read_while(self, change):
        """Reads a file of two row groups that changes after it is opened; returns the code, the output and the errors."""
        pq.write_table(pa.table({"a": list(range(2000))}), self.path, row_group_size=1000, use_dictionary=False, compression="none")
        command = [os.environ["PRINT_PARQUET"], str(self.path), "none", "--wait"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            self.assertEqual(process.stdout.readline(), "\n")
            process.stdin.write("1")
            process.stdin.flush()
            self.assertEqual(process.stdout.readline(), "\n")  # the first row group is read
            change(self.path)
            output, error = process.communicate("2", timeout=60)
        return process.returncode, output, error

    def test_a_file_that_changes_while_it_is_read_is_refused(self):
        def append(path):
            with open(path, "ab") as file:
                file.write(b"x")

        def overwrite(path):
            with open(path, "r+b") as file:
                file.seek(9000)
                file.write(b"x")

        for change in (append, overwrite, lambda path: os.truncate(path, 9000), lambda path: os.truncate(path, 0)):
            code, _, error = self.read_while(change)
            self.assertEqual(code, 3, error)
            self.assertTrue(error.startswith(f"{self.path}: "), error)
            self.assertIn("changed", error)

    def test_a_local_file_that_is_removed_or_replaced_is_read_to_its_end(self):
        def replace(path):
            other = path.with_suffix(".new")
            pq.write_table(pa.table({"a": list(range(5))}), other)
            other.rename(path)

        for change in (os.unlink, replace):
            code, output, error = self.read_while(change)
            self.assertEqual(code, 0, error)
            self.assertEqual(flat([group["columns"]["a"]["values"] for group in json.loads(output)]), list(range(2000)))

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
