#!/usr/bin/env python3
"""Damages files, and changes them while they are read."""

import json
import os
import subprocess
import unittest

import pyarrow as pa
import pyarrow.parquet as pq

from parquet_file_case import ParquetFileCase, flat


def flipped(content, place, bits):
    return content[:place] + bytes([content[place] ^ bits]) + content[place + 1:]


class DamagedFilesTest(ParquetFileCase):
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
