#!/usr/bin/env python3
"""train_ctr on files of click logs: several at once, compressed, indexed once, and opened by workers at the same time."""

import gzip
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import unittest

import train_ctr_case

STEPS = ["--steps", 5, "--table-rows", 1000, "--global-batch-size", 256, "--threads", 1, "--log-every", 1]
INDEXING = "indexing it, once"


def rows(count, seed):
    draw = random.Random(seed)
    return "".join("\t".join([str(draw.randrange(2)), *[str(draw.randrange(100)) for _ in range(13)],
                              *[f"{draw.randrange(50):08x}" for _ in range(26)]]) + "\n" for _ in range(count))


class DataTest(train_ctr_case.TrainCtrCase):
    def setUp(self):
        super().setUp()
        self.logs = self.folder / "logs"
        self.logs.mkdir()
        # In the order of their numbers, which is not that of their letters.
        self.texts = {number: rows(1000, number) for number in (1, 2, 10)}
        for number, text in self.texts.items():
            (self.logs / f"day_{number}").write_text(text, encoding="ascii")
        self.whole = self.folder / "whole.txt"
        self.whole.write_text("".join(self.texts.values()), encoding="ascii")
        self.expected = self.losses(self.train("--data", self.whole))

    def train(self, *arguments, code=0):
        process = self.run_alone(*STEPS, *arguments)
        self.assertEqual(process.returncode, code, process.stdout + process.stderr)
        return process.stdout + process.stderr

    def losses(self, text):
        losses = re.findall(r"step \d/5  loss \S+", text)
        self.assertEqual(len(losses), 5, text)
        return losses + re.findall(r"^test .*", text, re.MULTILINE)

    def test_folders_patterns_and_lists_give_the_rows_of_one_file(self):
        lists = [self.logs, f"{self.logs}/day_*", f"{self.logs}/day_?,{self.logs}/day_10"]
        for data in lists:
            text = self.train("--data", data)
            self.assertEqual(self.losses(text), self.expected, data)
            self.assertIn(f"3 files, {self.logs}/day_1 to {self.logs}/day_10, the last rows to test on", text)

    def test_a_pattern_without_a_match_and_an_empty_folder_are_named(self):
        self.assertIn(f"train_ctr: error: {self.logs}/night_*: expected files that match this pattern",
                      self.train("--data", f"{self.logs}/day_1,{self.logs}/night_*", code=3))
        (self.folder / "empty").mkdir()
        self.assertIn(f"{self.folder}/empty: expected files in this folder",
                      self.train("--data", self.folder / "empty", code=3))

    def test_a_pipe_in_place_of_a_file_is_refused(self):
        for name in ("pipe", "pipe.gz"):
            os.mkfifo(self.folder / name)
            self.assertIn(f"train_ctr: error: {self.folder / name}: expected a regular file, but it is a named pipe",
                          self.train("--data", self.folder / name, code=3))

    def test_gzip_and_zstd_files_of_other_programs_give_the_same_rows(self):
        for number in (1, 2):
            path = self.logs / f"day_{number}"
            # As several members, which parallel programs write.
            half = len(self.texts[number]) // 2
            with open(f"{path}.gz", "wb") as file:
                for part in (self.texts[number][:half], self.texts[number][half:]):
                    file.write(gzip.compress(part.encode()))
            path.unlink()
        if shutil.which("zstd"):
            subprocess.run(["zstd", "-q", "--rm", self.logs / "day_10"], check=True)
        first = self.train("--data", self.logs)
        if "reads no zstd files" in first:
            self.skipTest("this build reads no zstd files")
        self.assertEqual(self.losses(first), self.expected)
        self.assertIn(f"{self.logs}/day_1.gz: decompressing and {INDEXING}\n", first)
        again = self.train("--data", self.logs)
        self.assertEqual(self.losses(again), self.expected)
        self.assertNotIn(INDEXING, again)

    def test_the_folder_for_indices_can_be_chosen(self):
        packed = self.logs / "packed.gz"
        packed.write_bytes(gzip.compress(self.whole.read_bytes()))
        text = self.train("--data", packed, "--index-dir", self.folder / "indices")
        self.assertEqual(self.losses(text), self.expected)
        self.assertFalse((self.logs / ".lockstep").exists())
        self.assertEqual(sorted(path.suffix for path in (self.folder / "indices").iterdir()), [".index", ".rows"])

    def test_a_full_disk_is_named_with_the_folder_that_is_too_small(self):
        packed = self.logs / "packed.gz"
        packed.write_bytes(gzip.compress(self.whole.read_bytes()))

        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))

        process = subprocess.run([train_ctr_case.PROGRAM, *map(str, STEPS), "--data", packed], capture_output=True, text=True,
                                 check=False, timeout=train_ctr_case.TIMEOUT, preexec_fn=limit)
        self.assertEqual(process.returncode, 3, process.stderr)
        self.assertRegex(process.stderr, rf"{packed}: expected a folder with room for its decompressed rows, but: "
                         rf"cannot write more than \d+ bytes of '{self.logs}/\.lockstep/packed\.gz\.rows'")
        self.assertEqual(list((self.logs / ".lockstep").iterdir()), [])

    def test_processes_that_start_together_decompress_once(self):
        packed = self.logs / "packed.gz"
        packed.write_bytes(gzip.compress(self.whole.read_bytes()))
        processes = [subprocess.Popen([train_ctr_case.PROGRAM, *map(str, STEPS), "--data", packed], stdout=subprocess.PIPE,
                                      stderr=subprocess.STDOUT, text=True) for _ in range(4)]
        texts = [process.communicate(timeout=train_ctr_case.TIMEOUT)[0] for process in processes]
        self.assertEqual([process.returncode for process in processes], [0] * 4, texts)
        for text in texts:
            self.assertEqual(self.losses(text), self.expected)
        self.assertEqual(sum(INDEXING in text for text in texts), 1, texts)

    def test_a_killed_process_leaves_nothing_that_is_believed(self):
        packed = self.logs / "packed.gz"
        # Enough to be killed in the middle of.
        packed.write_bytes(gzip.compress(self.whole.read_bytes() * 40, 1))
        process = subprocess.Popen([train_ctr_case.PROGRAM, *map(str, STEPS), "--data", packed], stdout=subprocess.DEVNULL,
                                   stderr=subprocess.PIPE, text=True)
        self.assertIn(INDEXING, process.stderr.readline())
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        process.stderr.close()
        again = self.train("--data", packed)
        self.assertIn("108,000 to train on, 12,000 to test on", again)
        self.assertEqual(sorted(path.name for path in (self.logs / ".lockstep").iterdir()),
                         ["packed.gz.index", "packed.gz.rows"])


if __name__ == "__main__":
    unittest.main()
