#!/usr/bin/env python3
"""Reads Parquet files as other writers make them, and damaged ones that no writer makes, which pyarrow cannot write."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
# pylint: disable=wrong-import-position
from edited_parquet import BINARY, EditedFile, struct_bytes

# Numbers of fields in parquet.thrift.
NUM_ROWS, CREATED_BY, GROUP_NUM_ROWS = 3, 6, 3
ENCODINGS, UNCOMPRESSED, COMPRESSED, DATA_OFFSET, DICTIONARY_OFFSET = 2, 6, 7, 9, 11
PAGE_UNCOMPRESSED_SIZE, PAGE_COMPRESSED_SIZE, PAGE_V1, PAGE_V2, LEVELS_SIZE = 2, 3, 5, 8, 5
LEVELS_ENCODING = 3
BIT_PACKED = 4


class EditedParquetTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name, "a.parquet")

    def write(self, values, **options):
        table = pa.table({"a": values})
        pq.write_table(table, self.path, store_schema=False, write_statistics=False, **options)
        return EditedFile(self.path)

    def run_print(self, fill):
        return subprocess.run([os.environ["PRINT_PARQUET"], str(self.path), str(fill)], capture_output=True, text=True, check=False)

    def read(self, fill):
        process = self.run_print(fill)
        self.assertEqual(process.returncode, 0, process.stderr)
        return [x for group in json.loads(process.stdout) for x in group["columns"]["a"]["values"]]

    def expect_error(self, *parts, fill="none"):
        process = self.run_print(fill)
        self.assertEqual(process.returncode, 3, process.stderr)
        for part in parts:
            self.assertIn(part, process.stderr)

    def test_more_rows_than_any_memory_are_refused(self):
        for kind, rows in ((pa.int32(), 2 ** 62), (pa.int64(), 2 ** 61 + 1), (pa.int64(), 2 ** 40)):
            with self.subTest(kind=kind, rows=rows):
                file = self.write(pa.array(range(5000), kind), use_dictionary=False)
                file.metadata[NUM_ROWS][1] = file.group[GROUP_NUM_ROWS][1] = rows
                file.save()
                self.expect_error("row group 0: column 'a'", str(rows), fill=-1)

    def test_compressed_pages_of_nulls_alone_may_be_empty(self):
        # parquet-java writes no byte for no value, though no codec compresses to that.
        for compression in ("snappy", "gzip", "zstd", "brotli", "lz4"):
            with self.subTest(compression=compression):
                file = self.write(pa.array([None] * 20, pa.int32()), compression=compression, use_dictionary=False,
                                  data_page_version="2.0")
                offset = file.chunk[DATA_OFFSET][1]
                header, begin = file.page(offset)
                levels = header[PAGE_V2][1][LEVELS_SIZE][1]
                header[PAGE_COMPRESSED_SIZE][1] = levels
                content = struct_bytes(header) + file.body[begin:begin + levels]
                file.body = file.body[:offset] + content
                file.chunk[COMPRESSED][1] = len(content)
                file.save()
                self.assertEqual(pq.read_table(self.path)["a"].null_count, 20)
                self.assertEqual(self.read(fill=-1), [-1] * 20)

    def test_old_writers_do_not_count_the_header_of_the_dictionary(self):
        values = [i % 5 for i in range(2000)]
        file = self.write(pa.array(values, pa.int32()), compression="none")
        offset = file.chunk[DICTIONARY_OFFSET][1]
        header = file.page(offset)[1] - offset
        file.chunk[COMPRESSED][1] -= header
        file.chunk[UNCOMPRESSED][1] -= header
        file.metadata[CREATED_BY] = [BINARY, b"parquet-mr version 1.2.5 (build abc)"]
        file.save()
        self.assertEqual(pq.read_table(self.path)["a"].to_pylist(), values)
        self.assertEqual(self.read(fill="none"), values)

    def test_encodings_may_list_one_that_no_page_has(self):
        values = [None if i % 7 == 0 else i for i in range(500)]
        file = self.write(pa.array(values, pa.int64()))
        file.chunk[ENCODINGS][1][1].append(BIT_PACKED)
        file.save()
        self.assertEqual(self.read(fill=-1), [-1 if x is None else x for x in values])

    def test_levels_of_old_writers_may_be_packed_into_bits(self):
        # Each byte reads the same from both ends: the specification begins with the highest bit, and Arrow with the lowest.
        packed = bytes([0x81, 0xff, 0x18, 0x00, 0xa5, 0xc3, 0x7e, 0x24] * 5)
        for kind in (pa.int32(), pa.int64(), pa.float32(), pa.float64()):
            with self.subTest(kind=kind):
                values = [i if packed[i // 8] >> i % 8 & 1 else None for i in range(8 * len(packed))]
                file = self.write(pa.array(values, kind), compression="none", use_dictionary=False)
                offset = file.chunk[DATA_OFFSET][1]
                header, begin = file.page(offset)
                content = file.body[begin:begin + header[PAGE_COMPRESSED_SIZE][1]]
                content = packed + content[4 + int.from_bytes(content[:4], "little"):]  # without levels in runs, and their size
                header[PAGE_V1][1][LEVELS_ENCODING][1] = BIT_PACKED
                header[PAGE_UNCOMPRESSED_SIZE][1] = header[PAGE_COMPRESSED_SIZE][1] = len(content)
                page = struct_bytes(header) + content
                file.body = file.body[:offset] + page
                file.chunk[UNCOMPRESSED][1] = file.chunk[COMPRESSED][1] = len(page)
                file.chunk[ENCODINGS][1][1].append(BIT_PACKED)
                file.save()
                self.assertEqual(pq.read_table(self.path)["a"].to_pylist(), values)
                self.assertEqual(self.read(fill=-1), [-1 if x is None else x for x in values])
                self.expect_error("row group 0: column 'a'", f"got {values.count(None)};")

    def test_nulls_of_all_pages_are_counted(self):
        self.write(pa.array([None, 1] * 5000, pa.int64()), use_dictionary=False, data_page_size=1000)
        self.expect_error("row group 0: column 'a'", "got 5000;")


if __name__ == "__main__":
    unittest.main()
