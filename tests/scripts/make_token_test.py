#!/usr/bin/env python3
"""Runs scripts/make_token.sh on a made-up machine."""

import os
import stat
import subprocess
import unittest

import scripts_case


class MakeTokenTest(scripts_case.ScriptsCase):
    def make_token(self, *arguments):
        """The completed process, which may write what all users can read."""
        return subprocess.run(["bash", self.project / "scripts/make_token.sh", *arguments], env=self.environment, cwd=self.root,
                              capture_output=True, text=True, check=False, timeout=60, umask=0)

    def test_it_prints_64_hexadecimal_digits_and_others_each_time(self):
        tokens = [self.expect_success(self.make_token()).stdout for _ in range(8)]
        for token in tokens:
            self.assertRegex(token, r"\A[0-9a-f]{64}\n\Z")
        self.assertEqual(len(set(tokens)), len(tokens))
        # Were a byte always the same, it would be so in all of them; for random bytes the chance is 2^-51.
        for place in range(0, 64, 2):
            self.assertGreater(len({token[place:place + 2] for token in tokens}), 1, place)

    def test_a_file_is_its_owners_alone_and_its_path_that_of_the_caller(self):
        for path in ["token", str(self.root / "other token")]:
            process = self.expect_success(self.make_token("--file", path))
            self.assertEqual(process.stdout, "")
            file = self.root / path
            self.assertEqual(stat.S_IMODE(file.stat().st_mode), 0o600)
            self.assertRegex(file.read_text(encoding="ascii"), r"\A[0-9a-f]{64}\n\Z")
            self.assertNotIn(file.read_text(encoding="ascii").strip(), process.stderr)

    def test_nothing_is_overwritten(self):
        (self.root / "file").write_text("kept", encoding="ascii")
        (self.root / "folder").mkdir()
        os.mkfifo(self.root / "pipe")
        (self.root / "link").symlink_to("file")
        (self.root / "dangling").symlink_to("nowhere")
        before = sorted(self.root.iterdir())
        for name in ["file", "folder", "pipe", "link", "dangling"]:
            with self.subTest(path=name):
                process = self.make_token("--file", name)
                self.assertEqual(process.returncode, 2)
                self.assertEqual(process.stderr.splitlines()[-1],
                                 f"error: --file: expected a path where nothing is, but there is {self.root / name}")
        self.assertEqual((self.root / "file").read_text(encoding="ascii"), "kept")
        self.assertEqual(sorted(self.root.iterdir()), before)

    def test_a_path_that_cannot_be_made_is_named(self):
        process = self.make_token("--file", "none/token")
        self.assertEqual(process.returncode, 1)
        self.assertEqual(process.stderr.splitlines()[-1], f"error: --file: cannot make {self.root}/none/token")

    def test_a_disk_that_is_full_leaves_no_file(self):
        # As on a full disk, what is written fails, and not what is made.
        process = subprocess.run(
            ["bash", "-c", 'trap "" XFSZ; ulimit -f 0; exec bash "$0" --file token', self.project / "scripts/make_token.sh"],
            env=self.environment, cwd=self.root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False, timeout=60)
        self.assertEqual(process.returncode, 1, process.stderr)
        self.assertIn(f"error: --file: cannot write {self.root / 'token'}", process.stderr)
        self.assertFalse((self.root / "token").exists())

    def test_a_random_source_that_gives_too_little_is_refused(self):
        self.program("od", "echo ' 00 01 02'\n")
        process = self.make_token()
        self.assertEqual((process.returncode, process.stdout), (1, ""))
        self.assertIn("error: /dev/urandom: expected 32 bytes, but got 3", process.stderr)

    def test_other_arguments_are_refused(self):
        for arguments in [["--file"], ["--file", ""], ["token"], ["--file", "a", "b"], ["--out", "a"]]:
            with self.subTest(arguments=arguments):
                process = self.make_token(*arguments)
                self.assertEqual((process.returncode, process.stdout), (2, ""))
                self.assertIn("error: expected --file PATH or nothing, but got '", process.stderr)


if __name__ == "__main__":
    unittest.main()
