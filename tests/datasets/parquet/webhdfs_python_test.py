#!/usr/bin/env python3
"""Reads Parquet files from a WebHDFS server on loopback, whose requests fail as those of real clusters do."""

import io
import socket
import threading
import time
import unittest

import pyarrow as pa
import pyarrow.parquet as pq

from remote_parquet_case import RemoteParquetCase, parquet
from webhdfs_server import Remote, WebHdfs, make_certificate

TOKEN = "KAAKSm9i+b3Rl/c3Qt=="
DENIED = Remote(403, "AccessControlException", "Permission denied: user=guest, access=READ, inode=\"/a.parquet\"")


def first_byte(row_group):
    column = pq.ParquetFile(io.BytesIO(parquet())).metadata.row_group(row_group).column(0)
    return column.dictionary_page_offset or column.data_page_offset


SECOND_ROW_GROUP = range(first_byte(1), first_byte(2))


class WebHdfsTest(RemoteParquetCase):
    settings = "HADOOP_"
    secrets = (TOKEN, "delegation=", "s3cret")

    def setUp(self):
        super().setUp()
        self.store = self.enterContext(WebHdfs())

    def expect_error_of_file(self, *parts, attempts=2, query="", **environment):
        self.expect_error(self.store.name("a.parquet") + ": ", *parts,
                          arguments=[self.store.uri("a.parquet", query=query), "none", "--attempts", attempts], **environment)

    def test_rows_equal_those_of_the_local_file(self):
        name = "day 1/a%+=ü#[1]&b.parquet"
        self.store.put(name, parquet())
        got = self.read(self.store.uri(name), "none")
        self.assertEqual(got, self.local(parquet()))
        self.assertIn('"values":[0,1,0,1', got)
        self.assertEqual({request.role for request in self.store.requests if request.operation == "OPEN"}, {"namenode", "datanode"})

    def test_requests_share_connections(self):
        self.store.put("a.parquet", parquet())
        self.read(self.store.uri("a.parquet"), "none", "label")
        for role in ("namenode", "datanode"):
            connections = [request.connection for request in self.store.requests if request.role == role]
            self.assertGreaterEqual(len(connections), 4)
            # One of the thread that opens the file, and one of Arrow's thread that reads row groups.
            self.assertLessEqual(len(set(connections)), 2)

    def test_ranges_of_a_row_group_are_read_at_the_same_time(self):
        rows = 20000
        table = pa.table({name: pa.array([i * factor for i in range(rows)], pa.int64()) for name, factor in (("a", 1), ("b", 3), ("c", 5))})
        content = io.BytesIO()
        pq.write_table(table, content, row_group_size=rows, use_dictionary=False, compression="none")
        self.store.put("a.parquet", content.getvalue())
        both = threading.Barrier(2, timeout=60)

        def on_request(request):
            if request.role == "datanode" and request.length >= rows * 8:
                both.wait()

        self.store.on_request = on_request
        self.assertEqual(self.read(self.store.uri("a.parquet"), "none", "a", "c"), self.local(content.getvalue(), "a", "c"))
        self.assertFalse(both.broken)

    def test_the_user_is_of_the_uri_or_of_the_environment_and_a_token_replaces_it(self):
        self.store.put("a.parquet", parquet())
        for uri, environment, user, token in (
                (self.store.uri("a.parquet"), {}, "", ""),
                (self.store.uri("a.parquet", "ann%2Bb"), {"HADOOP_USER_NAME": "carl"}, "ann+b", ""),
                (self.store.uri("a.parquet"), {"HADOOP_USER_NAME": "carl d"}, "carl d", ""),
                (self.store.uri("a.parquet", "ann"), {"LOCKSTEP_WEBHDFS_TOKEN": TOKEN}, "", TOKEN)):
            with self.subTest(user=user, token=token):
                self.store.requests.clear()
                self.read(uri, "none", **environment)
                self.assertEqual({(request.user, request.token) for request in self.store.requests}, {(user, token)})

    def test_requests_that_fail_are_sent_again(self):
        self.store.put("a.parquet", parquet())
        expected = self.local(parquet())

        def starting(request):
            raise Remote(403, "RetriableException", "The namenode is in safe mode.")

        for role in ("namenode", "datanode"):
            for fault in ("busy", "closed", "cut", starting):
                with self.subTest(role=role, fault=fault):
                    self.store.numbers.clear()
                    self.store.requests.clear()

                    def on_request(request, role=role, fault=fault):
                        if request.role != role or request.number % 3 == 0:
                            return None
                        return fault(request) if callable(fault) else fault

                    self.store.on_request = on_request
                    self.assertEqual(self.read(self.store.uri("a.parquet"), "none"), expected)
                    if fault != "cut" or role == "datanode":
                        self.assertEqual(max(request.number for request in self.store.requests if request.role == role) % 3, 0)

    def test_slow_answers_are_waited_for(self):
        self.store.put("a.parquet", parquet())
        self.store.on_request = lambda request: time.sleep(1.5 if request.number == 1 and request.offset < 5 else 0)
        self.assertEqual(self.read(self.store.uri("a.parquet"), "none"), self.local(parquet()))
        self.assertEqual({request.number for request in self.store.requests if request.operation == "OPEN"}, {1})

    def test_a_server_that_stays_busy_is_named_after_as_many_requests_as_allowed(self):
        self.store.put("a.parquet", parquet())
        for role in ("namenode", "datanode"):
            self.store.requests.clear()
            self.store.on_request = lambda request, role=role: "busy" if request.role == role else None
            self.expect_error_of_file("503", self.store.address(role), "after 3 requests", attempts=3)
            self.assertEqual(sum(request.role == role for request in self.store.requests), 3)

    def test_a_server_that_becomes_busy_is_named_with_the_row_group(self):
        self.store.put("a.parquet", parquet())
        self.store.on_request = lambda request: "busy" if request.role == "datanode" and request.offset in SECOND_ROW_GROUP else None
        self.expect_error_of_file("row group 1", "503")

    def test_a_server_that_does_not_answer_is_named(self):
        self.store.put("a.parquet", parquet())
        for role in ("namenode", "datanode"):
            self.store.requests.clear()
            self.store.on_request = lambda request, role=role: "silent" if request.role == role else None
            begin = time.monotonic()
            self.expect_error_of_file(self.store.address(role), query="timeout_seconds=1")
            self.assertEqual(sum(request.role == role for request in self.store.requests), 2)
            self.assertLess(time.monotonic() - begin, 60)

    def test_a_server_that_nothing_listens_for_is_named(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))  # without listening, so that connections are refused
            place = f"webhdfs://127.0.0.1:{taken.getsockname()[1]}/a.parquet"
            self.expect_error(f"{place}: ", "connect", "after 2 requests", arguments=[place, "none", "--attempts", 2])

    def test_refused_users_and_tokens_are_said_without_showing_tokens(self):
        self.store.put("a.parquet", parquet())
        for error in (DENIED, Remote(401, "SecurityException", "Failed to obtain user group information"),
                      Remote(403, "InvalidToken", f"token {TOKEN} can't be found in cache")):
            def on_request(request, error=error):
                raise error

            self.store.on_request = on_request
            self.store.requests.clear()
            self.expect_error_of_file("refuses the credentials", LOCKSTEP_WEBHDFS_TOKEN=TOKEN)
            self.assertEqual(len(self.store.requests), 1)
            self.expect_error(self.store.name("a*"), "refuses the credentials", arguments=["--find", self.store.uri("a*")], LOCKSTEP_WEBHDFS_TOKEN=TOKEN)

    def test_a_namenode_that_is_not_the_active_one_is_named(self):
        def on_request(request):
            raise Remote(403, "StandbyException", "Operation category READ is not supported in state standby")

        self.store.on_request = on_request
        self.expect_error_of_file("StandbyException", "after 2 requests")

    def test_uris_that_cannot_be_read_are_refused_without_showing_passwords(self):
        self.expect_error(self.store.name("a.parquet"), "password", arguments=[self.store.uri("a.parquet", "ann:s3cret"), "none"])
        for query in ("odd=s3cret", "timeout_seconds=0", "timeout_seconds=5s"):
            self.expect_error_of_file("timeout_seconds", query=query)
        self.expect_error("webhdfs:///a.parquet", "host", arguments=["webhdfs:///a.parquet", "none"])
        self.assertEqual(self.store.requests, [])

    def test_servers_of_something_else_are_named(self):
        self.store.on_request = lambda request: "page"
        self.expect_error_of_file("expected an answer of WebHDFS", "Welcome")

    def test_missing_files_and_folders_are_named(self):
        self.expect_error_of_file("no such file")
        for place in ("a.parquet", "none/a*"):
            self.expect_error(self.store.name(place), "no such", arguments=["--find", self.store.uri(place)])

    def test_files_that_are_not_whole_parquet_files_are_named(self):
        for content, part in ((b"", "empty"), (b"label\tclicks\n" * 100, "magic bytes"), (parquet()[:-20], "")):
            self.store.put("a.parquet", content)
            self.expect_error_of_file(part)

    def test_answers_of_another_length_than_asked_for_are_named(self):
        self.store.put("a.parquet", parquet())
        for fault, part in (("less", "changed"), ("more", "longer"), ("cut", "bytes remaining")):
            self.store.on_request = lambda request, fault=fault: fault if request.role == "datanode" else None
            self.expect_error_of_file(part)

    def change_after_the_first_row_group(self, change):
        opened = []  # once for the file, then for each row group

        def on_request(request):
            if request.operation == "GETFILESTATUS":
                opened.append(request)
                if len(opened) == 3:
                    change()

        self.store.put("a.parquet", parquet())
        self.store.on_request = on_request

    def test_a_file_that_changes_while_it_is_read_is_named(self):
        other = bytearray(parquet())
        other[len(other) // 2] ^= 1  # of the same size
        for content in (bytes(other), parquet() + b"more"):
            self.change_after_the_first_row_group(lambda content=content: (time.sleep(0.01), self.store.put("a.parquet", content)))
            self.expect_error_of_file("changed")

    def test_a_file_that_shrinks_or_vanishes_within_a_row_group_is_named(self):
        for change, part in ((lambda: self.store.put("a.parquet", parquet()[:60]), "out of the range"),
                             (lambda: self.store.delete("a.parquet"), "no such file")):
            has_changed = threading.Event()

            def on_request(request, change=change, has_changed=has_changed):
                if request.operation == "OPEN" and request.offset in SECOND_ROW_GROUP and not has_changed.is_set():
                    has_changed.set()
                    change()

            self.store.put("a.parquet", parquet())
            self.store.on_request = on_request
            self.expect_error_of_file("row group 1", part)

    def test_a_file_that_vanishes_while_it_is_read_is_named(self):
        self.change_after_the_first_row_group(lambda: self.store.delete("a.parquet"))
        self.expect_error_of_file("no such file")

    def find(self, *places):
        return self.read("--find", *places).splitlines()

    def test_folders_and_patterns_name_their_files_in_natural_order(self):
        for name in [f"days/day_{i}.parquet" for i in (10, 9, 1, 100)] + ["days/_SUCCESS", "days/.part", "days/more/day_5.parquet",
                                                                         "days 2/x=1/[odd] %.parquet", "days 2/x=10/a.parquet"]:
            self.store.put(name, b"")
        uri = self.store.uri
        days = [uri(f"days/day_{i}.parquet") for i in (1, 9, 10, 100)]
        self.assertEqual(self.find(uri("days")), days)
        self.assertEqual(self.find(uri("days/")), days)
        self.assertEqual(self.find(uri("days/day_*"), uri("days"), uri("days/more")), days + [uri("days/more/day_5.parquet")])
        self.assertEqual(self.find(uri("days/day_1*.parquet")), [days[0], days[2], days[3]])
        self.assertEqual(self.find(uri("days/day_[0-9].parquet")), days[:2])
        self.assertEqual(self.find(uri("d*/*/day_*")), [uri("days/more/day_5.parquet")])
        nested = self.find(uri("days 2/*/*.parquet", "ann", "timeout_seconds=20"))
        place = f"webhdfs://ann@{self.store.address('namenode')}/days%202"
        self.assertEqual(nested, [f"{place}/x%3D1/%5Bodd%5D%20%25.parquet?timeout_seconds=20", f"{place}/x%3D10/a.parquet?timeout_seconds=20"])
        self.assertEqual(self.find(nested[0]), nested[:1])
        self.expect_error(self.store.name("days/night_*"), "pattern", arguments=["--find", uri("days/night_*")])
        self.expect_error(self.store.name("days 2"), "folder", arguments=["--find", uri("days 2")])

    def test_folders_may_have_many_files(self):
        for i in range(3000):
            self.store.put(f"many/{i}", b"")
        self.assertEqual(self.find(self.store.uri("many")), [self.store.uri(f"many/{i}") for i in range(3000)])

    def test_https_is_read_if_the_certificate_is_trusted(self):
        certificate = make_certificate(self.folder)
        with WebHdfs(certificate) as store:
            store.put("a.parquet", parquet())
            self.assertEqual(self.read(store.uri("a.parquet"), "none", SSL_CERT_FILE=str(certificate)), self.local(parquet()))
            before = len(store.requests)
            self.expect_error(store.name("a.parquet"), "certificate", arguments=[store.uri("a.parquet"), "none"])
            self.assertEqual(len(store.requests), before)

    def test_https_is_not_left_for_http(self):
        certificate = make_certificate(self.folder)
        with WebHdfs(certificate) as store:
            store.put("a.parquet", parquet())
            store.scheme = "http"  # of redirects
            uri = store.uri("a.parquet").replace("webhdfs://", "swebhdfs://")
            self.expect_error("s" + store.name("a.parquet"), "http", arguments=[uri, "none"], SSL_CERT_FILE=str(certificate))
            self.assertEqual({request.role for request in store.requests}, {"namenode"})

    def test_hdfs_without_its_library_names_the_way_over_http(self):
        process = self.run_print("hdfs://127.0.0.1:1/a.parquet", "none", HADOOP_HOME=str(self.folder), JAVA_HOME=str(self.folder))
        self.assertEqual(process.returncode, 3, process.stderr)
        self.assertIn("webhdfs://", process.stderr)


if __name__ == "__main__":
    unittest.main()
