#!/usr/bin/env python3
"""Names, values and texts of other people's files reach the terminal as text that it shows, never as commands that it obeys."""

import hashlib
import json
import os
import pathlib
import struct
import subprocess
import tempfile
import unittest
import zipfile
import zlib

PROGRAM = os.environ["TRAIN_IMAGES"]
ESCAPE = "a\x1b]0;owned\x07"
SHOWN = r"a\x1b]0;owned\x07"
REVERSED = "\u202egnp"  # would read "png" from the right


def png():
    """A grey image of 28 x 28 pixels, as PNG's specification describes it."""
    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
    rows = b"".join(b"\0" + bytes(28) for _ in range(28))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 28, 28, 8, 0, 0, 0, 0))
            + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


class HostileTextTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)

    def train(self, *flags, code, shown=SHOWN, environment=None):
        """Runs the program, and checks that it shows the hostile text and prints no other control character."""
        result = subprocess.run([PROGRAM, "--epochs", "1", "--threads", "1", "--global-batch-size", "2", *map(str, flags)],
                                capture_output=True, timeout=120, env={**os.environ, **(environment or {})}, check=False)
        text = (result.stdout + result.stderr).decode("utf-8")
        self.assertEqual(result.returncode, code, text)
        self.assertIn(shown, text)
        hostile = [c for c in text if (ord(c) < 0x20 and c not in "\n\t") or 0x7F <= ord(c) < 0xA0 or 0x202A <= ord(c) <= 0x202E
                   or 0x2066 <= ord(c) <= 0x2069]
        self.assertEqual(hostile, [])
        return text

    def write_images(self, name, classes=("a", "b"), data="data"):
        for part in ("train", "test"):
            for of_class in classes:
                folder = self.folder / data / part / of_class
                folder.mkdir(parents=True, exist_ok=True)
                (folder / name).write_bytes(png())
        return self.folder / data

    def test_class_that_only_the_test_images_have(self):
        data = self.write_images("1.png")
        (data / "test" / ESCAPE).mkdir()
        (data / "test" / ESCAPE / "1.png").write_bytes(png())
        self.train("--data", data, code=3)

    def test_path_of_the_images(self):
        self.train("--data", self.write_images("1.png", data=ESCAPE), code=0)

    def test_ignored_and_skipped_files(self):
        data = self.write_images("1.png")
        (data / "train" / "a" / f"{ESCAPE}.txt").write_bytes(b"x")
        (data / "train" / "b" / f"{ESCAPE}.png").write_bytes(b"no image")
        text = self.train("--data", data, "--skip-bad", code=0)
        self.assertIn(f"/{SHOWN}.txt", text)
        self.assertIn(f"/{SHOWN}.png", text)

    def test_name_that_reads_backwards(self):
        data = self.write_images("1.png")
        (data / "train" / "a" / f"exe.{REVERSED}.png").write_bytes(b"no image")
        self.train("--data", data, code=3, shown=r"exe.\u202egnp.png")

    def test_entry_of_a_zip(self):
        data = self.folder / "images.zip"
        with zipfile.ZipFile(data, "w") as archive:
            for part in ("train", "test"):
                for name in ("a/1.png", f"{ESCAPE}/1.png"):
                    archive.writestr(f"{part}/{name}", png() if part == "test" or name[1] == "/" else b"no image")
        self.train("--data", data, code=3)

    def test_values_of_flags(self):
        for flag in ("--data", "--model", "--epochs", "--config", "--init-weights", "--devices"):
            with self.subTest(flag):
                flags = [] if flag == "--data" else ["--data", "generated", "--limit-train", "8", "--limit-test", "8"]
                self.train(*flags, flag, ESCAPE, code={"--data": 3, "--init-weights": 4}.get(flag, 2))
        self.train(f"--{ESCAPE}", code=2)

    def test_configuration_file(self):
        file = self.folder / "config.json"
        for values in ({ESCAPE: 1}, {"model": ESCAPE}):
            file.write_text(json.dumps({"format_version": 1, "values": values}), encoding="utf-8")
            # JSON's own escapes may be shown as they are.
            self.train("--config", file, code=2, shown="owned")

    def test_tf_config(self):
        for config in (f"{{{ESCAPE}", json.dumps({"cluster": {ESCAPE: ["localhost:1"]}, "task": {"type": "worker", "index": 0}})):
            self.train("--data", "generated", code=2, shown="a", environment={"TF_CONFIG": config})

    def test_texts_of_a_checkpoint(self):
        checkpoint = self.folder / "backup" / "checkpoint-000000000001"
        checkpoint.mkdir(parents=True)
        manifest = json.dumps({"format": 1, "version": ESCAPE, "step": 1, "epoch": 1, "generation": 0, "best": False,
                               "files": [{"name": "state.pt", "parts": [{"name": ESCAPE, "bytes": 1, "sha256": ESCAPE}]}]})
        (checkpoint / "manifest.json").write_text(manifest, encoding="utf-8")
        digest = hashlib.sha256(manifest.encode()).hexdigest()
        (checkpoint / "manifest.sha256").write_text(f"{digest}  manifest.json\n", encoding="utf-8")
        (checkpoint / "state.pt").write_bytes(b"x")
        self.train("--data", "generated", "--limit-train", "8", "--limit-test", "8", "--backup-dir", self.folder / "backup",
                   code=4)


if __name__ == "__main__":
    unittest.main()
