#!/usr/bin/env python3
"""train_gpt on Parquet files: as on a file of the same tokens, resumed, and on two workers."""

import array
import json
import unittest

from parquet_tokens_case import TOKENS, ParquetTokensCase, documents


class ParquetTokensTest(ParquetTokensCase):
    def test_a_training_on_whole_batches_is_that_on_a_file_of_the_same_tokens(self):
        lists = documents(1, 90)
        (self.folder / "tokens.bin").write_bytes(array.array("H", sum(lists, [])).tobytes())
        self.write("lists/a_2.parquet", "input_ids", lists[:40])
        self.write("lists/a_10.parquet", "input_ids", lists[40:], compression="zstd")
        sequences = (sum(map(len, lists)) - 1) // 16
        work = [*TOKENS, "--global-batch-size", sequences - max(int(0.1 * sequences), 1), "--steps", 6, "--test-every", 2]
        self.train("--data", "tokens.bin", *work, "--run-dir", "a")
        self.train("--data", "lists/*.parquet", *work, "--run-dir", "b")
        for kind, count in (("step", 6), ("epoch", 3)):
            self.expect_equal(self.losses("b", kind), self.losses("a", kind), count)

    def test_text_is_that_of_json_lines(self):
        texts = ["".join(chr(97 + token % 26) for token in document) for document in documents(2, 60)]
        (self.folder / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
        self.write("text/a.parquet", "text", texts)
        self.write("text/b.parquet", "body", texts)
        for run, data in (("a", ["a.jsonl"]), ("b", ["text/a.parquet", "--token-cache", "cache"]),
                          ("c", ["text/b.parquet", "--parquet-column", "body"])):
            self.train("--data", *data, "--global-batch-size", 8, "--steps", 8, "--test-every", 4, "--run-dir", run)
            self.expect_equal(self.losses(run, "step"), self.losses("a", "step"), 8)

    def test_a_training_goes_on_anywhere_in_the_files(self):
        for i in range(3):
            self.write(f"lists/{i}.parquet", "tokens", documents(i, 50))
        work = ["--data", "lists", *TOKENS, "--parquet-memory", "4KiB", "--global-batch-size", 16, "--test-every", 5]
        self.train(*work, "--steps", 25, "--run-dir", "whole")
        for steps, run in ((5, "begun"), (15, "continued"), (25, "ended")):
            self.train(*work, "--steps", steps, "--run-dir", run, "--backup-dir", "backup", "--replicas", 2)
        steps = [loss for run in ("begun", "continued", "ended") for loss in self.losses(run, "step")]
        self.expect_equal(steps, self.losses("whole", "step"), 25)

    def test_another_memory_is_refused_if_the_rest_of_the_sequences_would_come_in_another_order(self):
        for i in range(3):
            self.write(f"lists/{i}.parquet", "tokens", documents(i, 50))
        work = ["--data", "lists", *TOKENS, "--global-batch-size", 16, "--test-every", 5]
        self.train(*work, "--parquet-memory", "4KiB", "--steps", 15, "--run-dir", "whole")
        self.train(*work, "--parquet-memory", "4KiB", "--steps", 5, "--run-dir", "begun", "--backup-dir", "backup")
        error = self.train(*work, "--parquet-memory", "1MiB", "--steps", 15, "--backup-dir", "backup", code=4).stderr
        self.assertRegex(error, "parquet-memory 4KiB -> 1MiB(.|\n)*expected to resume within an epoch of .* in 2 lanes, but got .* in 15 lanes")
        self.train(*work, "--parquet-memory", "4097", "--steps", 15, "--run-dir", "ended", "--backup-dir", "backup")
        self.expect_equal(self.losses("begun", "step") + self.losses("ended", "step"), self.losses("whole", "step"), 15)

    def test_two_workers_train_as_one(self):
        self.write("lists/a.parquet", "input_ids", documents(1, 120))
        work = ["--data", "lists", *TOKENS, "--global-batch-size", 8, "--steps", 12, "--test-every", 6]
        self.train(*work, "--run-dir", "one")
        self.train(*work, "--run-dir", "two", workers=2)
        self.expect_equal(self.losses("two", "epoch"), self.losses("one", "epoch"), 2)

    def test_bad_files_are_named(self):
        self.write("a.parquet", "input_ids", [*documents(1, 40), [7] * 100 + [50]])
        work = ["--steps", 2, "--global-batch-size", 64]
        self.assertIn("a.parquet: row group 4: row 0: token: expected one below the size of the vocabulary, 50, but got 50",
                      self.train("--data", "a.parquet", *TOKENS, *work, code=3).stderr)
        self.assertIn("expected --vocabulary-size, --tokenizer", self.train("--data", "a.parquet", *work, code=2).stderr)
        self.assertIn("expected one named 'ids', but got id, input_ids",
                      self.train("--data", "a.parquet", "--parquet-column", "ids", *TOKENS, *work, code=3).stderr)
        error = self.train("--data", "s3://me:secret@bucket/a.parquet", *TOKENS, *work, code=2).stderr
        self.assertIn("--data: expected URIs without credentials", error)
        self.assertNotIn("secret@", error)


if __name__ == "__main__":
    unittest.main()
