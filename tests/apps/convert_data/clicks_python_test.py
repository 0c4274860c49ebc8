#!/usr/bin/env python3
"""convert_data on click logs: values as pyarrow reads them, the same bytes on the way back, and errors."""

import gzip
import os
import pty
import random
import signal
import subprocess
import time
import unittest

import pyarrow as pa
import pyarrow.parquet as pq

from convert_data_case import CONVERT_DATA, ConvertDataCase

COLUMNS = ["label", *[f"I{i}" for i in range(1, 14)], *[f"C{i}" for i in range(1, 27)]]
LARGE = [2 ** 63 - 1, -2 ** 63 + 1, 0, -1]


def lines(count, seed):
    """Returns rows as Criteo writes them, in which any value but the label may be missing."""
    draw = random.Random(seed)

    def number():
        return draw.choice(["", draw.randrange(-3, 10_000), draw.choice(LARGE)])

    def category():
        return draw.choice(["", f"{draw.randrange(50):08x}", f"{draw.randrange(2 ** 32):08x}", "ffffffff", "80000000"])

    return "".join("\t".join(map(str, [draw.randrange(2), *[number() for _ in range(13)], *[category() for _ in range(26)]]))
                   + "\n" for _ in range(count))


def values_of(text):
    """Returns the columns of a click log, by the format's definition."""
    rows = [line.split("\t") for line in text.splitlines()]
    columns = {"label": [int(row[0]) for row in rows]}
    for i in range(1, 40):
        columns[COLUMNS[i]] = [int(row[i], 10 if i < 14 else 16) if row[i] else None for row in rows]
    return columns


class ClicksTest(ConvertDataCase):
    def setUp(self):
        super().setUp()
        self.logs = self.folder / "logs"
        self.logs.mkdir()
        # In the order of their numbers, which is not that of their letters.
        self.texts = {number: lines(2000 + number, number) for number in (1, 2, 10)}
        for number, text in self.texts.items():
            (self.logs / f"day_{number}").write_text(text)

    def test_values_are_those_of_the_lines_and_come_back_byte_for_byte(self):
        self.assertRegex(self.convert(self.logs, self.folder / "clicks"), r"clicks: 6\s013 rows of 3 files in ")
        self.assertEqual([path for path in self.names() if path.startswith("clicks")],
                         ["clicks", "clicks/day_1.parquet", "clicks/day_10.parquet", "clicks/day_2.parquet"])
        for number, text in self.texts.items():
            table = pq.read_table(self.folder / f"clicks/day_{number}.parquet")
            self.assertEqual(table.column_names, COLUMNS)
            self.assertEqual(table.to_pydict(), values_of(text))
        for threads in (1, 3):
            self.convert(self.folder / "clicks", self.folder / f"back_{threads}", "--threads", threads)
            for number, text in self.texts.items():
                self.assertEqual((self.folder / f"back_{threads}/day_{number}.tsv").read_text(), text)

    def test_one_file_has_the_rows_of_all_in_their_order(self):
        whole = "".join(self.texts.values())
        self.convert(f"{self.logs}/day_*", self.folder / "one.parquet", "--threads", 4)
        self.assertEqual(pq.read_table(self.folder / "one.parquet").to_pydict(), values_of(whole))
        self.convert(self.folder / "one.parquet", self.folder / "one.tsv")
        self.assertEqual((self.folder / "one.tsv").read_text(), whole)

    def test_files_and_row_groups_have_as_many_rows_as_asked_for(self):
        self.convert(self.logs / "day_1", self.folder / "parts", "--rows-per-file", 700, "--rows-per-group", 300,
                     "--compression", "snappy")
        parts = sorted((self.folder / "parts").iterdir())
        self.assertEqual([path.name for path in parts], ["day_1-00000.parquet", "day_1-00001.parquet", "day_1-00002.parquet"])
        rows = [[pq.ParquetFile(path).metadata.row_group(i).num_rows for i in range(pq.ParquetFile(path).num_row_groups)]
                for path in parts]
        self.assertEqual(rows, [[300, 300, 100], [300, 300, 100], [300, 300, 1]])
        self.assertEqual({pq.ParquetFile(path).metadata.row_group(0).column(3).compression for path in parts}, {"SNAPPY"})
        self.convert(self.folder / "parts", self.folder / "parts.tsv")
        self.assertEqual((self.folder / "parts.tsv").read_text(), self.texts[1])
        # The last file is full, and no empty one follows.
        self.convert(self.logs / "day_1", self.folder / "full", "--rows-per-file", 667)
        self.assertEqual(len(list((self.folder / "full").iterdir())), 3)

    def test_each_compression_is_that_of_the_file(self):
        for name, expected in {"none": "UNCOMPRESSED", "gzip": "GZIP", "zstd": "ZSTD", "lz4": "LZ4"}.items():
            out = self.folder / f"{name}.parquet"
            self.convert(self.logs / "day_1", out, "--compression", name)
            self.assertEqual(pq.ParquetFile(out).metadata.row_group(0).column(0).compression, expected)

    def test_compressed_logs_give_the_same_rows(self):
        with gzip.open(self.folder / "day_1.tsv.gz", "wt") as file:
            file.write(self.texts[1])
        subprocess.run(["zstd", "-q", str(self.logs / "day_2"), "-o", str(self.folder / "day_2.zst")], check=True)
        self.convert(f"{self.folder}/day_1.tsv.gz,{self.folder}/day_2.zst", self.folder / "clicks")
        for number in (1, 2):
            table = pq.read_table(self.folder / f"clicks/day_{number}.parquet")
            self.assertEqual(table.to_pydict(), values_of(self.texts[number]))

    def test_torchrec_names_floats_and_strings_give_the_lines(self):
        values = values_of(self.texts[1])
        small = {name: [None if x is None else x % 1000 for x in values[name]] for name in COLUMNS[1:14]}
        arrays = [pa.array([float(x) for x in values["label"]])]
        names = ["label"]
        for i in range(13):
            kind = [pa.float32(), pa.float64(), pa.int16(), pa.int64()][i % 4]
            arrays.append(pa.array([x if x is None or not pa.types.is_floating(kind) else float(x)
                                    for x in small[COLUMNS[i + 1]]], kind))
            names.append(f"int_{i}")
        for i in range(26):
            column = values[COLUMNS[i + 14]]
            if i % 2 == 0:
                arrays.append(pa.array([None if x is None else f"{x:08x}" for x in column]))
            else:
                arrays.append(pa.array(column, pa.uint32()))
            names.append(f"cat_{i}")
        pq.write_table(pa.table(arrays, names), self.folder / "torchrec.parquet", row_group_size=600)
        self.convert(self.folder / "torchrec.parquet", self.folder / "torchrec.tsv")
        self.assertEqual(values_of((self.folder / "torchrec.tsv").read_text()), {**values, **small})

    def test_values_that_are_none_of_a_click_log_are_named(self):
        table = pq.read_table(self.convert_one())
        for column, value, expected in [("label", 2, "column 'label': expected a label of 0 or 1, but got 2"),
                                        ("I3", 1.5, "column 'I3': expected an integer of 64 bits, but got 1.5"),
                                        ("C2", 2 ** 32, "column 'C2': expected an integer of 32 bits, but got 4294967296"),
                                        ("C4", "12", "column 'C4': expected 8 hexadecimal digits or nothing")]:
            values = [value if i == 1500 else None if column != "label" else 1 for i in range(table.num_rows)]
            path = self.folder / "bad.parquet"
            pq.write_table(table.set_column(COLUMNS.index(column), column, pa.array(values)), path, row_group_size=1000)
            self.refuse(f"bad.parquet: row group 1: row 500: {expected}", path, self.folder / "bad.tsv", code=3)
        pq.write_table(table.drop(["C7"]), self.folder / "bad.parquet")
        self.refuse("C7", self.folder / "bad.parquet", self.folder / "bad", code=3)

    def convert_one(self):
        self.convert(self.logs / "day_1", self.folder / "one.parquet")
        return self.folder / "one.parquet"

    def test_malformed_rows_are_named_or_left_out(self):
        whole = self.texts[1].splitlines(keepends=True)
        whole[100] = "1\t2\n"
        whole[200] = whole[200].replace("\t", "\tx", 1)
        (self.logs / "day_2").write_text("".join(whole))
        self.refuse(f"{self.logs}/day_2: line 101: expected 40 tab-separated fields, but got 2", self.logs,
                    self.folder / "clicks", "--threads", 3, code=3)
        text = self.convert(self.logs, self.folder / "clicks", "--skip-bad")
        self.assertIn(f"left out 2 malformed rows; the first: {self.logs}/day_2: line 101: ", text)
        self.convert(self.folder / "clicks/day_2.parquet", self.folder / "good.tsv")
        self.assertEqual((self.folder / "good.tsv").read_text(), "".join(whole[:100] + whole[101:200] + whole[201:]))

    def test_rows_that_the_way_back_spells_differently_are_counted(self):
        with open(self.logs / "day_2", "a", encoding="ascii") as file:
            file.write("0\t007" + "\t" * 38 + "\n")
        text = self.convert(self.logs, self.folder / "clicks")
        self.assertIn("the way back spells 1 rows differently", text)
        self.assertIn(f"the first: {self.logs}/day_2: line 2003", text)

    def test_an_output_that_exists_is_kept_unless_it_is_to_be_overwritten(self):
        self.convert(self.logs, self.folder / "clicks")
        before = (self.folder / "clicks/day_1.parquet").read_bytes()
        self.refuse("clicks exists; --overwrite replaces it", self.logs / "day_2", self.folder / "clicks", code=2)
        self.assertEqual((self.folder / "clicks/day_1.parquet").read_bytes(), before)
        self.convert(self.logs / "day_2", self.folder / "clicks", "--overwrite")
        self.assertEqual([path.name for path in (self.folder / "clicks").iterdir()], ["day_2.parquet"])
        (self.folder / "clicks/notes").write_text("mine")
        self.refuse("clicks also has notes", self.logs, self.folder / "clicks", "--overwrite", code=2)
        self.convert(self.logs, self.folder / "one.parquet")
        self.refuse("one.parquet exists; --overwrite", self.logs, self.folder / "one.parquet", code=2)
        self.convert(self.logs / "day_1", self.folder / "one.parquet", "--overwrite")
        self.assertEqual(pq.ParquetFile(self.folder / "one.parquet").metadata.num_rows, 2001)

    def test_an_input_is_never_overwritten(self):
        one = self.convert_one()
        before = one.read_bytes()
        for out in (one, self.folder):
            self.refuse("OUT: expected ", one, out, "--overwrite", code=2)
        self.refuse("OUT: expected another place than that of IN", self.logs, self.logs, "--overwrite", code=2)
        self.assertEqual(one.read_bytes(), before)

    def test_a_damaged_input_leaves_no_output(self):
        one = bytearray(self.convert_one().read_bytes())
        one[len(one) // 3] ^= 0x55
        (self.folder / "damaged.parquet").write_bytes(one)
        self.refuse("damaged.parquet", self.folder / "damaged.parquet", self.folder / "damaged.tsv", code=3)
        self.refuse("damaged.parquet", f"{self.folder}/one.parquet,{self.folder}/damaged.parquet", self.folder / "both", code=3)

    def test_arguments_that_do_not_fit_are_named(self):
        one = self.convert_one()
        out = self.folder / "out"
        for expected, arguments in {
                "--compression: expected an IN that is converted to Parquet": (one, out, "--compression", "gzip"),
                "--rows-per-file: expected OUT to be a folder": (self.logs, f"{out}.parquet", "--rows-per-file", 5),
                "--shuffle-seed: expected an IN with images": (self.logs, out, "--shuffle-seed", 5),
                "OUT: expected a name that ends in .parquet, or a folder": (self.logs, f"{out}.tsv"),
                "OUT: expected a name that ends in .tsv, or a folder": (one, f"{out}.parquet"),
                "OUT: expected a file or folder on this machine": (one, "s3://bucket/clicks"),
                "IN: expected files with different names": (f"{self.logs}/day_1,{self.folder}/day_1.txt", out)}.items():
            (self.folder / "day_1.txt").write_text(self.texts[1])
            self.refuse(expected, *arguments, code=2)
        self.refuse("nowhere: cannot open", self.folder / "nowhere", out, code=3)
        (self.folder / "empty").write_text("")
        self.refuse("empty: expected rows of click logs, but it has none", self.folder / "empty", out, code=3)

    def test_a_signal_ends_it_and_leaves_nothing(self):
        large = self.folder / "large"
        large.write_text(self.texts[1] * 200)
        for out in ("out", "out.parquet"):
            for sent, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
                before = self.names()
                process = subprocess.Popen([CONVERT_DATA, str(large), str(self.folder / out), "--threads", "1"],
                                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                while self.names() == before and process.poll() is None:
                    time.sleep(0.01)
                process.send_signal(sent)
                output, error = process.communicate(timeout=60)
                self.assertEqual(process.returncode, code, output + error)
                self.assertIn(f"stopped by {sent.name}; nothing of {self.folder}/{out} was kept", error)
                self.assertEqual(self.names(), before)

    def test_a_terminal_shows_a_bar_that_is_removed_at_the_end(self):
        large = self.folder / "large"
        large.write_text(self.texts[1] * 100)
        for flags, is_shown in (([], True), (["--quiet"], False)):
            leader, terminal = pty.openpty()
            process = subprocess.Popen([CONVERT_DATA, str(large), str(self.folder / "out"), "--threads", "1", "--overwrite", *flags],
                                       stdout=subprocess.DEVNULL, stderr=terminal, env={**os.environ, "TERM": "xterm"})
            os.close(terminal)
            shown = b""
            try:
                while part := os.read(leader, 4096):
                    shown += part
            except OSError:  # the other end is closed
                pass
            os.close(leader)
            self.assertEqual(process.wait(timeout=60), 0, shown)
            self.assertEqual(b"MiB converted" in shown, is_shown, shown)
            if is_shown:
                self.assertRegex(shown, rb"\d+/\d+ \[.*rows/s.*\r\x1b\[K\Z")

    def test_files_of_other_kinds_are_named(self):
        pq.write_table(pa.table({"x": [1]}), self.folder / "x.parquet")
        self.refuse("click logs have the columns label, I1 to I13", self.folder / "x.parquet", self.folder / "out", code=3)
        self.refuse("images have the columns image and label", self.folder / "x.parquet", self.folder / "out", code=3)
        (self.folder / "cats").mkdir()
        (self.folder / "cats/1.png").write_bytes(b"")
        self.refuse("cats/1.png: expected a click log, but it is named as an image", self.folder / "cats", self.folder / "out", code=3)

    def test_a_disk_that_is_full_is_named_and_leaves_nothing(self):
        before = self.names()
        script = f"ulimit -f 8; exec {CONVERT_DATA} {self.logs} {self.folder}/full"
        process = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60)
        self.assertEqual(process.returncode, 7, process.stderr)
        self.assertIn("day_", process.stderr)
        self.assertEqual(self.names(), before)


if __name__ == "__main__":
    unittest.main()
