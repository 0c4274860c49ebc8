#!/usr/bin/env python3
"""convert_data on images: the bytes of each file in Parquet, in folders and in archives, and errors."""

import struct
import unittest
import zipfile
import zlib

import pyarrow as pa
import pyarrow.parquet as pq

from convert_data_case import ConvertDataCase

JPEG = b"\xff\xd8\xff\xe0 not decoded: any bytes are kept"


def png(width, height):
    """Returns a grey image as the PNG specification says."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = zlib.compress(b"".join(b"\0" + bytes((x * y) % 256 for x in range(width)) for y in range(height)))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


class ImagesTest(ConvertDataCase):
    def setUp(self):
        super().setUp()
        self.images = {}
        for label in ("cat", "dog", "Zürich zoo"):
            for i in range(40):
                self.images[f"{label}/{i}.png"] = png(2 + i, 3)
            self.images[f"{label}/photo of it.JPEG"] = JPEG + label.encode()
        self.photos = self.folder / "photos"
        for name, content in self.images.items():
            (self.photos / name).parent.mkdir(parents=True, exist_ok=True)
            (self.photos / name).write_bytes(content)

    def files_of(self, folder):
        return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    def rows_of(self, path):
        rows = pq.read_table(path).to_pylist()
        return {f"{row['label']}/{row['name']}": row["image"] for row in rows}, [row["label"] for row in rows]

    def test_folders_come_back_byte_for_byte(self):
        self.assertIn("123 images of 1 folder", self.convert(self.photos, self.folder / "p.parquet", "--rows-per-group", 25))
        rows, labels = self.rows_of(self.folder / "p.parquet")
        self.assertEqual(rows, self.images)
        self.assertEqual(labels, sorted(labels))
        self.assertEqual(pq.ParquetFile(self.folder / "p.parquet").num_row_groups, 5)
        for threads in (1, 4):
            self.convert(self.folder / "p.parquet", self.folder / f"back_{threads}", "--threads", threads)
            self.assertEqual(self.files_of(self.folder / f"back_{threads}"), self.images)

    def test_archives_come_back_with_the_same_files(self):
        with zipfile.ZipFile(self.folder / "p.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in self.images.items():
                archive.writestr(f"all/train/{name}", content)
        self.convert(f"{self.folder}/p.zip/all/train", self.folder / "p.parquet", "--threads", 3)
        self.assertEqual(self.rows_of(self.folder / "p.parquet")[0], self.images)
        self.convert(self.folder / "p.parquet", self.folder / "back.zip")
        with zipfile.ZipFile(self.folder / "back.zip") as archive:
            self.assertIsNone(archive.testzip())
            self.assertEqual({name: archive.read(name) for name in archive.namelist()}, self.images)
        # Lockstep's own reader takes it, too.
        self.convert(self.folder / "back.zip", self.folder / "again", "--rows-per-file", 50)
        self.assertEqual(len(list((self.folder / "again").iterdir())), 3)
        self.convert(self.folder / "again", self.folder / "folder")
        self.assertEqual(self.files_of(self.folder / "folder"), self.images)

    def test_archives_of_many_files_have_the_extensions_of_zip64(self):
        count = 70_000
        pq.write_table(pa.table({"image": [JPEG] * count, "label": [i % 3 for i in range(count)]}), self.folder / "n.parquet")
        self.convert(self.folder / "n.parquet", self.folder / "n.zip")
        self.convert(self.folder / "n.zip", self.folder / "again.parquet")
        self.assertEqual(pq.ParquetFile(self.folder / "again.parquet").num_row_groups, -(-count // 8192))
        with zipfile.ZipFile(self.folder / "n.zip") as archive:
            self.assertEqual(len(archive.namelist()), count)
            self.assertEqual(archive.read(f"{69_999 % 3}/000069999.jpg"), JPEG)

    def test_a_seed_shuffles_the_same_images(self):
        labels = []
        for i, seed in enumerate((1, 1, 2)):
            self.convert(self.photos, self.folder / f"{i}.parquet", "--shuffle-seed", seed, "--threads", 1 + i)
            rows, order = self.rows_of(self.folder / f"{i}.parquet")
            self.assertEqual(rows, self.images)
            labels.append(order)
        self.assertEqual(labels[0], labels[1])
        self.assertNotEqual(labels[0], labels[2])
        self.assertGreater(len(set(labels[0][:20])), 2)

    def test_integers_and_files_without_names_are_numbered(self):
        table = pa.table({"image": [JPEG, png(2, 2), JPEG], "label": pa.array([7, 7, 12], pa.int32()), "extra": [{"a": 1}] * 3})
        pq.write_table(table, self.folder / "n.parquet", row_group_size=2)
        self.convert(self.folder / "n.parquet", self.folder / "n")
        self.assertEqual(self.files_of(self.folder / "n"), {"7/000000000.jpg": JPEG, "7/000000001.png": png(2, 2),
                                                           "12/000000002.jpg": JPEG})

    def test_names_that_lead_elsewhere_are_refused(self):
        path = self.folder / "hostile.parquet"
        for label, name in [("..", "a.png"), ("a/b", "a.png"), ("", "a.png"), (".", "a.png"), ("/etc", "a.png"), ("a\0b", "a.png"),
                            (".hidden", "a.png"), ("a", "../a.png"), ("a", ""), ("a", "a.exe"), ("a", ".png"), ("a" * 256, "a.png")]:
            pq.write_table(pa.table({"image": [JPEG] * 3, "label": ["a", "b", label], "name": ["a.png", "b.png", name]}), path,
                           row_group_size=2)
            for out in ("out", "out.zip"):
                self.refuse("hostile.parquet: row group 1: row 0: column '", path, self.folder / out, code=3)

    def test_two_images_of_one_name_are_refused(self):
        path = self.folder / "twice.parquet"
        pq.write_table(pa.table({"image": [JPEG, JPEG], "label": ["a", "a"], "name": ["a.png", "a.png"]}), path)
        for out in ("out", "out.zip"):
            self.refuse("twice.parquet: row group 0: row 1: image: name: expected one image of each name, but got another a/a.png",
                        path, self.folder / out, code=3)

    def test_columns_of_other_types_are_refused(self):
        path = self.folder / "types.parquet"
        for columns, expected in [({"image": [1], "label": ["a"]}, "column 'image': expected binaries"),
                                  ({"image": [JPEG], "label": [1.5]}, "column 'label': expected strings or integers"),
                                  ({"image": [b"none"], "label": [1]}, "expected a PNG, JPEG or WebP file")]:
            pq.write_table(pa.table(columns), path)
            self.refuse(expected, path, self.folder / "out", code=3)

    def test_only_a_folder_of_images_is_overwritten(self):
        self.convert(self.photos, self.folder / "p.parquet")
        self.convert(self.folder / "p.parquet", self.folder / "back")
        (self.folder / "back/cat/more.png").write_bytes(JPEG)
        self.refuse("--overwrite replaces it", self.folder / "p.parquet", self.folder / "back", code=2)
        self.convert(self.folder / "p.parquet", self.folder / "back", "--overwrite")
        self.assertEqual(self.files_of(self.folder / "back"), self.images)
        (self.folder / "back/cat/notes.txt").write_text("mine")
        self.refuse("also has cat/notes.txt", self.folder / "p.parquet", self.folder / "back", "--overwrite", code=2)

    def test_other_files_are_counted_and_missing_classes_named(self):
        (self.photos / "cat/notes.txt").write_text("mine")
        (self.photos / "README").write_text("mine")
        self.assertIn("left out files that are no images of a class: 1 file without extension, 1 .txt: README, cat/notes.txt",
                      self.convert(self.photos, self.folder / "p.parquet"))
        (self.photos / "none").mkdir()
        self.refuse("class 'none'", self.photos, self.folder / "q.parquet", code=3)
        self.refuse("--skip-bad: expected an IN with click logs", self.folder / "photos", self.folder / "r.parquet", "--skip-bad",
                    code=2)


if __name__ == "__main__":
    unittest.main()
