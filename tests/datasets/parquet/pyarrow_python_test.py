#!/usr/bin/env python3
"""Compares the values of every supported type with those that pyarrow reads."""

import datetime
import decimal
import math
import random
import unittest

import pyarrow as pa
import pyarrow.parquet as pq

from parquet_file_case import ParquetFileCase, flat, plain

TYPES = {
    "Bool": pa.bool_(), "Char": pa.int8(), "Byte": pa.uint8(), "Short": pa.int16(), "Int": pa.int32(), "Long": pa.int64(),
    "Half": pa.float16(), "Float": pa.float32(), "Double": pa.float64()}
ROWS = 23
WIDENED = {"Int": pa.uint16(), "Long": pa.uint32()}


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


class ValuesTest(ParquetFileCase):
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
                groups, backwards = self.read(fill=-3), self.read("--backwards", fill=-3)
                self.assertEqual([group["rows"] for group in groups], [1700, 1300])
                for number, group in enumerate(groups):
                    expected = pq.ParquetFile(self.path).read_row_group(number)
                    for name, got in group["columns"].items():
                        values = [-3 if x is None else x for x in plain(expected[name])]
                        self.assertEqual(got["values"], values, name)
                        self.assertEqual(backwards[number]["columns"][name]["values"], values[::-1], name)

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

    def test_files_without_rows_have_none(self):
        pq.write_table(pa.table({"a": pa.array([], pa.int64()), "b": pa.array([], pa.list_(pa.int64()))}), self.path)
        self.compare(self.read(), {"a": "Long", "b": "Long"})

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

    def test_row_groups_without_rows_have_none(self):
        table = pa.table({"a": [1, 2], "b": [[1.5], []], "c": ["x", "yz"], "d": pa.array([[1, 2], [3, 4]], pa.list_(pa.int8(), 2))})
        with pq.ParquetWriter(self.path, table.schema) as writer:
            for rows in (2, 0, 1):
                writer.write_table(table.slice(0, rows))
        groups = self.read()
        self.assertEqual([group["rows"] for group in groups], [2, 0, 1])
        self.compare(groups, {"a": "Long", "b": "Double", "c": "Byte", "d": "Char"})


if __name__ == "__main__":
    unittest.main()
