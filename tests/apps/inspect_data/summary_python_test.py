#!/usr/bin/env python3
"""inspect_data's numbers beside those of numpy and pyarrow, for every kind of data."""

import io
import math
import os
import pathlib
import random
import subprocess
import unittest
import zipfile

import numpy as np
import PIL.Image
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from inspect_data_case import InspectDataCase, table

NUMBERS = ["normal", "lognormal", "heavy", "small", "constant", "flag", "nulls",
           "a_column_with_a_name_that_is_much_longer_than_the_others_<b>"]


def plain_numbers(column):
    """Returns the numbers of a column, or those in its lists, that are not null."""
    values = column.combine_chunks()
    if pa.types.is_list(values.type) or pa.types.is_fixed_size_list(values.type):
        values = values.flatten()
    values = values.drop_null()
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.int8())
    return values.to_numpy(zero_copy_only=False)


class SummaryTest(InspectDataCase):
    def expect_numbers(self, found, numbers):
        finite = numbers[np.isfinite(numbers)] if numbers.dtype.kind == "f" else numbers
        self.assertEqual(found["count"], len(finite))
        self.assertEqual(found["least"], finite.min())
        self.assertEqual(found["most"], finite.max())
        self.assertTrue(math.isclose(found["mean"], finite.astype("longdouble").mean(), rel_tol=1e-9, abs_tol=1e-12))
        histogram = found["histogram"]
        bins = len(histogram["counts"])
        self.assertLessEqual(bins, 64)
        edges = histogram["low"] + histogram["width"] * np.arange(bins + 1)
        # numpy's last bin includes its upper end, which no number of these reaches.
        self.assertLess(float(finite.max()), edges[-1])
        self.assertEqual(np.histogram(finite.astype(float), edges)[0].tolist(), histogram["counts"])

    def expect_distinct(self, found, distinct):
        if distinct <= 1000:
            self.assertTrue(found["distinct_is_exact"], found["name"])
            self.assertEqual(found["distinct"], distinct, found["name"])
        else:
            self.assertFalse(found["distinct_is_exact"], found["name"])
            self.assertLess(abs(found["distinct"] / distinct - 1), 0.033, found["name"])

    def test_parquet_columns_are_as_pyarrow_and_numpy_say(self):
        data = table()
        path = self.folder / "data.parquet"
        pq.write_table(data, path, row_group_size=1300, compression={name: "snappy" if i % 2 else "gzip"
                                                                     for i, name in enumerate(data.column_names)})
        summary = self.summary(path)
        metadata = pq.ParquetFile(path).metadata
        self.assertEqual((summary["kind"], summary["rows"], summary["rows_read"], summary["sampling"]), ("Parquet", 5000, 5000, None))
        self.assertEqual(summary["stored_bytes"], os.path.getsize(path))
        self.assertEqual(summary["row_groups"], {"count": 4, "least_rows": 1100, "most_rows": 1300})
        self.assertEqual(summary["writer"], metadata.created_by)
        columns = {column["name"]: column for column in summary["columns"]}
        self.assertEqual(list(columns), data.column_names)
        stored = {}
        for group in range(metadata.num_row_groups):
            for i in range(metadata.num_columns):
                chunk = metadata.row_group(group).column(i)
                name = chunk.path_in_schema.split(".")[0]
                compressed, plain = stored.get(name, (0, 0))
                stored[name] = (compressed + chunk.total_compressed_size, plain + chunk.total_uncompressed_size)
        for name, found in columns.items():
            self.assertEqual((found["stored_bytes"], found["uncompressed_bytes"]), stored[name])
            if name == "nested":
                self.assertIsNone(found["nulls"])
                continue
            self.assertEqual((found["rows"], found["nulls"]), (5000, data[name].null_count))
        self.assertEqual(columns["normal"]["compression"], "snappy")
        self.assertEqual(columns["label"]["compression"], "gzip")
        for name in NUMBERS + ["ids", "vector"]:
            numbers = plain_numbers(data[name])
            self.expect_numbers(columns[name]["numbers"], numbers)
            self.expect_distinct(columns[name], len(np.unique(numbers)))
        self.assertEqual(columns["ids"]["null_elements"], data["ids"].combine_chunks().flatten().null_count)
        lengths = pc.list_value_length(data["ids"]).drop_null().to_numpy()
        self.expect_numbers(columns["ids"]["lengths"], lengths)
        self.assertIsNone(columns["all_null"]["numbers"])

    def test_odd_numbers_are_counted_apart(self):
        data = table()
        pq.write_table(data, self.folder / "data.parquet")
        found = {column["name"]: column for column in self.summary(self.folder / "data.parquet")["columns"]}["odd"]["numbers"]
        numbers = plain_numbers(data["odd"])
        self.assertEqual((found["nan"], found["infinite"]), (np.isnan(numbers).sum(), np.isinf(numbers).sum()))
        self.expect_numbers(found, numbers)

    def test_texts_times_and_decimals(self):
        data = table()
        pq.write_table(data, self.folder / "data.parquet")
        columns = {column["name"]: column for column in self.summary(self.folder / "data.parquet")["columns"]}
        for name in ("label", "text"):
            counts = {item["values"].as_py(): item["counts"].as_py() for item in pc.value_counts(data[name].drop_null())}
            self.assertEqual({item["value"]: item["count"] for item in columns[name]["values"]}, counts)
            self.expect_numbers(columns[name]["lengths"], pc.binary_length(data[name].drop_null()).to_numpy())
        self.expect_distinct(columns["hash"], 5000)
        self.expect_numbers(columns["when"]["numbers"], data["when"].cast(pa.int64()).to_numpy())
        self.assertEqual(columns["when"]["unit"], "us")
        self.expect_numbers(columns["price"]["numbers"], np.array([int(x.scaleb(2)) for x in data["price"].to_pylist()]))
        self.assertEqual(columns["price"]["unit"], "1e-2")

    def test_threads_and_files_do_not_change_a_number(self):
        data = table()
        (self.folder / "one").mkdir()
        (self.folder / "many").mkdir()
        pq.write_table(data, self.folder / "one/data.parquet", row_group_size=700)
        for i in range(5):
            pq.write_table(data.slice(1000 * i, 1000), self.folder / f"many/{i}.parquet", row_group_size=170)
        summaries = [self.summary(self.folder / "one", "--threads", 1), self.summary(self.folder / "one", "--threads", 4),
                     self.summary(self.folder / "many", "--threads", 3)]
        for summary in summaries:
            for column in summary["columns"]:
                for key in ("stored_bytes", "uncompressed_bytes", "decoded_bytes"):
                    del column[key]
                # Sums depend on their order in the last bits.
                for part in ("numbers", "lengths"):
                    if column[part]:
                        column[part]["mean"] = float(f"{column[part]['mean']:.9e}") if abs(column[part]["mean"]) > 1e-6 else 0
        self.assertEqual(summaries[0]["columns"], summaries[1]["columns"])
        self.assertEqual(summaries[0]["columns"], summaries[2]["columns"])

    def test_a_sample_reads_whole_row_groups_that_are_spread(self):
        pq.write_table(pa.table({"x": list(range(10_000))}), self.folder / "data.parquet", row_group_size=100)
        summary = self.summary(self.folder / "data.parquet", "--rows", 450)
        self.assertEqual((summary["rows"], summary["rows_read"]), (10_000, 500))
        self.assertEqual(summary["sampling"], "5 of 100 row groups, evenly spread")
        numbers = summary["columns"][0]["numbers"]
        self.assertEqual(numbers["count"], 500)
        self.assertAlmostEqual(numbers["mean"], 5000, delta=100)
        text = self.inspect(self.folder / "data.parquet", "--rows", 450)
        self.assertIn("A sample: all numbers but those of bytes and row groups are of 500 rows (5 of 100 row groups", text)
        self.assertIsNone(self.summary(self.folder / "data.parquet", "--rows", 10_000)["sampling"])

    def test_files_that_differ_are_told(self):
        pq.write_table(pa.table({"x": [1], "y": [2]}), self.folder / "a.parquet")
        pq.write_table(pa.table({"x": [3], "z": [4]}), self.folder / "b.parquet")
        summary = self.summary(f"{self.folder}/a.parquet,{self.folder}/b.parquet")
        self.assertEqual([(column["name"], column["rows"]) for column in summary["columns"]], [("x", 2), ("y", 1), ("z", 1)])
        self.assertEqual(summary["problems"], [f"{self.folder}/b.parquet: column 'z' is not in {self.folder}/a.parquet",
                                               f"{self.folder}/b.parquet: column 'y' is missing"])
        pq.write_table(pa.table({"x": ["text"]}), self.folder / "c.parquet")
        self.assertIn("c.parquet: column 'x': expected int64 as in ",
                      self.inspect(f"{self.folder}/a.parquet,{self.folder}/c.parquet", code=3))

    def test_click_logs(self):
        draw = random.Random(1)
        rows = [[draw.randrange(2), *[draw.choice(["", draw.randrange(-2, 3000)]) for _ in range(13)],
                 *[draw.choice(["", f"{draw.randrange(2 ** 32):08x}"]) for _ in range(26)]] for _ in range(20_000)]
        (self.folder / "logs").mkdir()
        for part in range(2):
            (self.folder / f"logs/day_{part}").write_text(
                "".join("\t".join(map(str, row)) + "\n" for row in rows[10_000 * part:10_000 * (part + 1)]))
        summary = self.summary(self.folder / "logs", "--threads", 3)
        self.assertEqual((summary["kind"], summary["rows"], summary["sampling"]), ("click logs", 20_000, None))
        for i, column in enumerate(summary["columns"]):
            values = np.array([row[i] if i < 14 else int(row[i], 16) for row in rows if row[i] != ""])
            self.assertEqual(column["nulls"], 20_000 - len(values))
            self.expect_numbers(column["numbers"], values)
            self.expect_distinct(column, len(np.unique(values)))
        first = self.summary(self.folder / "logs", "--rows", 12_345)
        self.assertEqual((first["rows"], first["rows_read"], first["sampling"]), (None, 12_345, "the first rows"))
        self.assertEqual(first["columns"][0]["numbers"]["mean"], np.mean([row[0] for row in rows[:12_345]]))
        self.assertIsNone(self.summary(self.folder / "logs", "--rows", 20_000)["sampling"])

    def test_malformed_click_logs(self):
        line = "1" + "\t" * 39 + "\n"
        (self.folder / "log").write_text(line + "1\t2\n" + line)
        self.assertIn(f"{self.folder}/log: line 2: expected 40", self.inspect(self.folder / "log", code=3))
        summary = self.summary(self.folder / "log", "--skip-bad")
        self.assertEqual((summary["rows_read"], summary["malformed_rows"]), (2, 1))
        self.assertIn("line 2", summary["problems"][0])

    def make_images(self):
        draw = random.Random(2)
        images = {}
        for i, (kind, ending) in enumerate([("PNG", "png"), ("JPEG", "jpg"), ("JPEG", "jpeg"), ("WEBP", "webp")] * 15):
            size = (draw.randrange(1, 300), draw.randrange(1, 300))
            options = {"progressive": i % 2 == 0} if kind == "JPEG" else {"lossless": i % 8 < 4} if kind == "WEBP" else {}
            buffer = io.BytesIO()
            PIL.Image.new("RGB", size, (i, 2 * i, 255 - i)).save(buffer, kind, **options)
            images[f"{['cat', 'dog', 'owl'][i % 3]}/{i}.{ending}"] = (buffer.getvalue(), kind, size)
        return images

    def expect_images(self, summary, images):
        column = summary["columns"][0]
        kinds = {"PNG": 0, "JPEG": 0, "WebP": 0}
        for _, kind, _ in images.values():
            kinds[{"WEBP": "WebP"}.get(kind, kind)] += 1
        self.assertEqual(column["images"]["formats"], kinds)
        self.expect_numbers(column["images"]["widths"], np.array([size[0] for _, _, size in images.values()]))
        self.expect_numbers(column["images"]["heights"], np.array([size[1] for _, _, size in images.values()]))
        self.expect_numbers(column["lengths"], np.array([len(content) for content, _, _ in images.values()]))
        self.assertEqual({item["value"]: item["count"] for item in summary["columns"][1]["values"]}, {"cat": 20, "dog": 20, "owl": 20})

    def test_images_in_folders_archives_and_parquet(self):
        images = self.make_images()
        with zipfile.ZipFile(self.folder / "photos.zip", "w") as archive:
            for name, (content, _, _) in images.items():
                path = self.folder / "photos" / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
                archive.writestr(name, content)
        pq.write_table(pa.table({"image": [content for content, _, _ in images.values()],
                                 "label": [name.split("/")[0] for name in images]}), self.folder / "photos.parquet")
        for name in ("photos", "photos.zip", "photos.parquet"):
            self.expect_images(self.summary(self.folder / name), images)
        text = self.inspect(self.folder / "photos")
        self.assertIn("formats: ", text)
        self.assertIn("33.33", text)
        sample = self.summary(self.folder / "photos.zip", "--rows", 12)
        self.assertEqual((sample["rows"], sample["rows_read"], sample["sampling"]), (60, 12, "images that are evenly spread"))

    def test_headers_of_images_that_end_early_are_no_error(self):
        contents = [content[:size] for content, _, _ in list(self.make_images().values())[:4] for size in range(0, 40)]
        contents += [b"\xff\xd8\xff" * 30, b"\xff\xd8" + b"\xff" * 50, b"\xff\xd8\xff\xe0\0\0" * 9, b"RIFFxxxxWEBPVP8X"]
        pq.write_table(pa.table({"image": contents, "label": [1] * len(contents)}), self.folder / "cut.parquet")
        self.assertEqual(self.summary(self.folder / "cut.parquet")["columns"][0]["rows"], len(contents))

    def test_texts_of_data_are_texts_and_nothing_else(self):
        pq.write_table(pa.table({"label": ["\x1b[2J", "\u202eevil", "plain"], "\x1b]0;title\a": [1, 2, 3]}), self.folder / "h.parquet")
        text = self.inspect(self.folder / "h.parquet")
        self.assertIn("\\x1b[2J", text)
        self.assertNotIn("\x1b", text)
        self.assertNotIn("\u202e", text)
        self.inspect(self.folder / "h.parquet", "--json").encode("ascii")

    def test_damaged_and_missing_data_are_named(self):
        self.assertIn("nowhere: ", self.inspect(self.folder / "nowhere", code=3))
        pq.write_table(table(), self.folder / "data.parquet", write_page_checksum=True, row_group_size=1000)
        content = bytearray((self.folder / "data.parquet").read_bytes())
        content[len(content) // 2] ^= 0x20
        (self.folder / "damaged.parquet").write_bytes(content)
        self.assertRegex(self.inspect(self.folder / "damaged.parquet", "--html", self.folder / "d.html", code=3),
                         r"damaged.parquet: row group \d")
        self.assertFalse((self.folder / "d.html").exists())
        self.assertIn("--html: expected a file in a folder that exists",
                      self.inspect(self.folder / "data.parquet", "--html", self.folder / "no/d.html", code=2))

    def test_what_cannot_be_written_is_an_error(self):
        pq.write_table(pa.table({"x": [1]}), self.folder / "data.parquet")
        with open("/dev/full", "w", encoding="ascii") as full:
            process = subprocess.run([os.environ["INSPECT_DATA"], str(self.folder / "data.parquet")], stdout=full,
                                     stderr=subprocess.PIPE, text=True, timeout=60)
        self.assertEqual(process.returncode, 1)
        self.assertIn("cannot write to standard output", process.stderr)


if __name__ == "__main__":
    unittest.main()
