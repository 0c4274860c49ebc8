#!/usr/bin/env python3
"""Reads Parquet files from an S3 server on loopback, whose requests fail as those of real stores do."""

import io
import socket
import time
import unittest

import moto.settings
import pyarrow as pa
import pyarrow.parquet as pq

from object_store import BUSY
from object_store_case import ESCAPED, KEY, SECRET, ObjectStoreCase
from remote_parquet_case import parquet


class ObjectStoreTest(ObjectStoreCase):
    def test_rows_equal_those_of_the_local_file(self):
        self.store.put("day 1/a%+=ü#[1].parquet", parquet())
        got = self.read(self.store.uri("day 1/a%+=ü#[1].parquet"), "none")
        self.assertEqual(got, self.local(parquet()))
        self.assertIn('"values":[0,1,0,1', got)

    def test_endpoint_region_and_credentials_may_come_from_the_environment_or_from_the_uri(self):
        self.store.put("a.parquet", parquet())
        expected = self.local(parquet())
        self.assertEqual(self.read("s3://clicks/a.parquet", "none", AWS_ENDPOINT_URL=f"http://{self.store.endpoint}",
                                   AWS_DEFAULT_REGION="us-east-1"), expected)
        self.assertEqual(self.read(self.store.uri("a.parquet", ESCAPED), "none", AWS_ACCESS_KEY_ID="", AWS_SECRET_ACCESS_KEY=""), expected)

    def test_requests_that_fail_are_sent_again(self):
        self.store.put("a.parquet", parquet())
        expected = self.local(parquet())
        for fault in ("busy", "closed"):
            with self.subTest(fault=fault):
                self.store.numbers.clear()
                self.store.on_request = lambda request: fault if request.number % 3 else None
                self.assertEqual(self.read(self.store.uri("a.parquet"), "none"), expected)

    def test_requests_for_fewer_bytes_than_the_answer_that_refuses_them_are_sent_again(self):
        content = io.BytesIO()
        pq.write_table(pa.table({"a": [1, 2]}), content, use_dictionary=False, compression="none")
        self.assertLess(pq.ParquetFile(content).metadata.row_group(0).column(0).total_compressed_size, len(BUSY))
        self.store.put("a.parquet", content.getvalue())
        self.store.on_request = lambda request: "busy" if request.method == "GET" and request.number == 1 else None
        self.assertEqual(self.read(self.store.uri("a.parquet"), "none"), self.local(content.getvalue()))

    def test_slow_answers_are_waited_for(self):
        self.store.put("a.parquet", parquet())
        expected = self.local(parquet())
        self.store.on_request = lambda request: time.sleep(1.5 if request.number == 1 else 0)
        self.assertEqual(self.read(self.store.uri("a.parquet"), "none"), expected)

    def test_a_store_that_stays_busy_is_named_after_as_many_requests_as_allowed(self):
        self.store.put("a.parquet", parquet())
        self.store.on_request = lambda request: "busy"
        self.expect_error("s3://clicks/a.parquet", "503", arguments=[self.store.uri("a.parquet"), "none", "--attempts", 3])
        self.assertEqual(len(self.store.requests), 3)

    def test_a_store_that_becomes_busy_is_named_with_the_row_group(self):
        self.store.put("a.parquet", parquet())
        heads = []  # one to open the file, then one for each row group

        def on_request(request):
            heads.extend([request] if request.method == "HEAD" else [])
            return "busy" if request.method == "GET" and len(heads) == 3 else None

        self.store.on_request = on_request
        self.expect_error("s3://clicks/a.parquet: row group 1", "SLOW_DOWN",
                          arguments=[self.store.uri("a.parquet"), "none", "--attempts", 2])

    def test_a_store_that_does_not_answer_is_named(self):
        self.store.put("a.parquet", parquet())
        self.store.on_request = lambda request: "silent"
        begin = time.monotonic()
        self.expect_error("s3://clicks/a.parquet", "Timeout", arguments=[self.store.uri("a.parquet"), "none", "--attempts", 2])
        self.assertEqual(len(self.store.requests), 2)
        self.assertLess(time.monotonic() - begin, 60)

    def test_a_store_that_nothing_listens_for_is_named(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))  # without listening, so that connections are refused
            uri = f"s3://clicks/a.parquet?endpoint_override=127.0.0.1:{taken.getsockname()[1]}&scheme=http&region=us-east-1"
            self.expect_error("s3://clicks/a.parquet", "connect", arguments=[uri, "none", "--attempts", 2])

    def test_wrong_credentials_are_said_without_showing_them(self):
        self.store.put("a.parquet", parquet())
        before, moto.settings.INITIAL_NO_AUTH_ACTION_COUNT = moto.settings.INITIAL_NO_AUTH_ACTION_COUNT, 0
        try:
            for uri in (self.store.uri("a.parquet"), self.store.uri("a.parquet", ESCAPED)):
                self.expect_error("s3://clicks/a.parquet", "refuses the credentials", arguments=[uri, "none"])
                self.expect_error("s3://clicks/a.parquet", "refuses the credentials", arguments=["--find", uri])
            self.expect_error("s3://clicks/*", "refuses the credentials", arguments=["--find", self.store.uri("*")])
        finally:
            moto.settings.INITIAL_NO_AUTH_ACTION_COUNT = before

    def test_uris_that_cannot_be_read_are_refused_without_showing_credentials(self):
        self.expect_error("s3://...", "%2F", arguments=[f"s3://{KEY}:{SECRET}@clicks/a.parquet", "none"])
        self.expect_error("http://...", "s3", arguments=[f"http://{ESCAPED}clicks/a.parquet", "none"])
        self.expect_error("s3://clicks/a.parquet", "'odd'", arguments=[self.store.uri("a.parquet", ESCAPED) + "&odd=1", "none"])

    def test_missing_objects_and_buckets_are_named(self):
        for how in ([], ["none"]):
            find = [] if how else ["--find"]
            self.expect_error("s3://clicks/a.parquet", "no such file", arguments=[*find, self.store.uri("a.parquet"), *how])
            self.expect_error("s3://none/a.parquet", "bucket", arguments=[*find, self.store.uri("a.parquet", bucket="none"), *how])
        self.expect_error("s3://none/a*", "bucket", arguments=["--find", self.store.uri("a*", bucket="none")])

    def test_objects_that_are_not_whole_parquet_files_are_named(self):
        for content, part in ((b"", "empty"), (b"label\tclicks\n" * 100, "magic bytes"), (parquet()[:-20], "")):
            self.store.put("a.parquet", content)
            self.expect_error("s3://clicks/a.parquet", part, arguments=[self.store.uri("a.parquet"), "none"])

    def change_after_the_first_row_group(self, change):
        heads = []  # one to open the file, then one for each row group

        def on_request(request):
            if request.method == "HEAD":
                heads.append(request)
                if len(heads) == 3:
                    change()

        self.store.put("a.parquet", parquet())
        self.store.on_request = on_request

    def test_an_object_that_changes_while_it_is_read_is_named(self):
        other = bytearray(parquet())
        other[len(other) // 2] ^= 1  # of the same size
        self.change_after_the_first_row_group(lambda: self.store.put("a.parquet", bytes(other)))
        self.expect_error("s3://clicks/a.parquet", "changed", arguments=[self.store.uri("a.parquet"), "none"])

    def test_an_object_that_vanishes_while_it_is_read_is_named(self):
        self.change_after_the_first_row_group(lambda: self.store.delete("a.parquet"))
        self.expect_error("s3://clicks/a.parquet", "no such file", arguments=[self.store.uri("a.parquet"), "none"])

    def find(self, *places):
        return self.read("--find", *places).splitlines()

    def test_folders_and_patterns_name_their_files_in_natural_order(self):
        keys = [f"days/day_{i}.parquet" for i in (10, 9, 1, 100)] + ["days/_SUCCESS", "days/.part", "days/more/day_5.parquet",
                                                                     "days 2/x=1/[odd] %.parquet", "days 2/x=10/a.parquet"]
        for key in keys:
            self.store.put(key, b"")
        uri = self.store.uri
        days = [uri(f"days/day_{i}.parquet") for i in (1, 9, 10, 100)]
        self.assertEqual(self.find(uri("days")), days)
        self.assertEqual(self.find(uri("days/")), days)
        self.assertEqual(self.find(uri("days/day_*"), uri("days"), uri("days/more")), days + [uri("days/more/day_5.parquet")])
        self.assertEqual(self.find(uri("days/day_1*.parquet")), [days[0], days[2], days[3]])
        self.assertEqual(self.find(uri("days/day_[0-9].parquet")), days[:2])
        self.assertEqual(self.find(uri("d*/*/day_*")), [uri("days/more/day_5.parquet")])
        nested = self.find(uri("days 2/*/*.parquet", ESCAPED))
        self.assertEqual([name.split("?")[0].split("@")[1] for name in nested],
                         ["clicks/days%202/x%3D1/%5Bodd%5D%20%25.parquet", "clicks/days%202/x%3D10/a.parquet"])
        self.assertEqual(self.find(nested[0]), nested[:1])
        self.expect_error("s3://clicks/days/night_*", "pattern", arguments=["--find", uri("days/night_*")])
        self.expect_error("s3://clicks/days 2", "folder", arguments=["--find", uri("days 2")])

    def test_folders_may_have_more_files_than_a_page_of_the_store(self):
        for i in range(1100):
            self.store.put(f"many/{i}", b"")
        self.assertEqual(self.find(self.store.uri("many")), [self.store.uri(f"many/{i}") for i in range(1100)])


if __name__ == "__main__":
    unittest.main()
