#!/usr/bin/env python3
"""Reads chosen columns, fields of structs and nulls, and refuses what cannot be read by its name."""

import decimal
import json
import os
import subprocess
import unittest

import pyarrow as pa
import pyarrow.parquet as pq

from parquet_file_case import ParquetFileCase, flat, plain


class ColumnsTest(ParquetFileCase):
    def test_chosen_columns_come_in_their_order(self):
        pq.write_table(pa.table({"a": [1, 2], "text": ["x", "y"], "b": [[1.5], []], "c": [3, 4]}), self.path)
        groups = self.read("c", "b")
        self.assertEqual(list(groups[0]["columns"]), ["c", "b"])
        self.compare(groups, {"c": "Long", "b": "Double"})

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
        rows = [{"a": i, "deep": {"b": [i] * (i % 3), "text": f"{i}"}} for i in range(23)]
        pq.write_table(pa.table({"n": range(23), "s": rows}), self.path, row_group_size=10)
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


if __name__ == "__main__":
    unittest.main()
