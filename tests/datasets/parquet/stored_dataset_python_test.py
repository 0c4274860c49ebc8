#!/usr/bin/env python3
"""Reads data sets of Parquet files from an S3 server on loopback: footers at the same time, and failures that must not cost a row."""

import io
import json
import threading
import unittest

import pyarrow.parquet as pq

from object_store_case import ObjectStoreCase
from remote_parquet_case import parquet

ROWS = 30  # of a file, in three row groups


def damaged(content):
    """Flips a bit in the last page of the first column of the second row group, whose pages have checksums."""
    column = pq.ParquetFile(io.BytesIO(content)).metadata.row_group(1).column(0)
    begin = min(filter(None, (column.dictionary_page_offset, column.data_page_offset)))
    place = begin + column.total_compressed_size - 1
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1:]


class StoredDatasetTest(ObjectStoreCase):
    def arguments(self, column="label", attempts=1):
        return ["--dataset", column, attempts, self.store.uri("days/")]

    def put(self, count, change=lambda content: content):
        for i in range(count):
            self.store.put(f"days/{i}.parquet", change(parquet(ROWS * i, write_page_checksum=True)))

    def fail(self, fault, is_chosen):
        """Has requests fail whose number is chosen; they are counted from 0."""
        numbers = iter(range(10 ** 9))
        lock = threading.Lock()

        def on_request(_):
            with lock:
                return fault if is_chosen(next(numbers)) else None

        self.store.on_request = on_request

    def test_files_are_opened_once_and_several_at_the_same_time(self):
        count, together = 24, 8
        self.put(count)
        barrier = threading.Barrier(together)
        opened = []
        lock = threading.Lock()

        def on_request(request):
            if request.method != "HEAD" or not request.path.endswith(".parquet"):
                return
            with lock:
                opened.append(request.path)
                number = len(opened)
            if 2 <= number < 2 + together:  # the first file alone tells the columns
                barrier.wait(timeout=60)

        self.store.on_request = on_request
        values, *left_out = self.read(*self.arguments("*")).splitlines()
        self.assertEqual(json.loads(values), [i % 2 for i in range(ROWS * count)])
        self.assertEqual(left_out, [])
        self.assertFalse(barrier.broken)
        # One to open it, and one for each row group, to look for damage and to read it.
        self.assertEqual([opened.count(path) for path in sorted(set(opened))], [7] * count)

    def test_damaged_row_groups_are_left_out(self):
        self.put(2, damaged)
        values, *left_out = self.read(*self.arguments()).splitlines()
        self.assertEqual(json.loads(values), [i % 2 for i in range(60) if i // 10 % 3 != 1])
        for i, line in enumerate(left_out):
            self.assertTrue(line.startswith(f"left out 10 rows: s3://clicks/days/{i}.parquet: row group 1: column 'label': "), line)
        self.assertEqual(len(left_out), 2)

    def test_a_store_that_fails_costs_no_row_whichever_request_it_is(self):
        self.put(2)
        expected = self.read(*self.arguments())
        count = len(self.store.requests)
        self.assertGreater(count, 2 * 7)
        for first in range(1, count, 4):
            with self.subTest(fails_from=first):
                self.fail("busy" if first % 8 == 1 else "closed", lambda number, first=first: number >= first)
                process = self.run_print(*self.arguments())
                self.assertEqual((process.returncode, process.stdout), (3, ""), process.stderr)
                self.assertTrue(process.stderr.startswith("s3://clicks/days/"), process.stderr)
        for which in range(count // 3, count, count // 4):
            with self.subTest(fails_once=which):
                self.fail("busy", lambda number, which=which: number == which)
                process = self.run_print(*self.arguments())
                self.assertIn((process.returncode, process.stdout), ((3, ""), (0, expected)), process.stderr)

    def test_a_store_that_falls_silent_is_no_damage(self):
        self.put(2)
        self.read(*self.arguments())
        self.fail("silent", lambda number, first=len(self.store.requests) // 3: number >= first)
        process = self.run_print(*self.arguments())
        self.assertEqual((process.returncode, process.stdout), (3, ""), process.stderr)
        self.assertRegex(process.stderr, r"^s3://clicks/days/[01]\.parquet: .*Timeout")

    def test_an_object_that_vanishes_or_changes_is_no_damage(self):
        for change, part in ((lambda: self.store.delete("days/1.parquet"), "no such file"),
                             (lambda: self.store.put("days/1.parquet", parquet(7)), "changed")):
            with self.subTest(part):
                self.put(2)
                seen = []

                def on_request(request, change=change, seen=seen):
                    if request.method == "HEAD" and request.path.endswith("/0.parquet"):
                        seen.append(request)
                        if len(seen) == 2:  # all files are open, and row groups are looked at
                            change()

                self.store.on_request = on_request
                self.expect_error("s3://clicks/days/1.parquet", part, arguments=self.arguments())


if __name__ == "__main__":
    unittest.main()
