#!/usr/bin/env python3
"""train_gpt with sequences that are cut along an axis: it trains as one device does, and its checkpoints move between meshes."""

import unittest

from gpt_training import PARITY, TINY, Case, ParityCase, UsageCase, train

ONE_DEVICE = []
CONTEXT = ["--replicas", 2, "--mesh", "context=2"]
ALL = ["--replicas", 4, "--mesh", "context=2,tensor=2"]
SHARDED = ["--replicas", 4, "--mesh", "shard=2,context=2", "--sharding", 3]


class ParityTest(ParityCase):
    def test_ranks_with_different_tokens(self):
        for attention in ("ring", "all_to_all"):
            with self.subTest(attention=attention):
                folder = self.folder / attention
                output = train(*PARITY, *CONTEXT, "--context-attention", attention, "--backup-dir", folder).stdout
                self.assertIn("1 replica of 2 ranks", output)
                self.check_like_one_device(folder, output)

    def test_replicas_in_micro_batches_with_recomputed_blocks(self):
        output = train(*PARITY, "--replicas", 4, "--mesh", "data=2,context=2", "--micro-batch-size", 2, "--recompute",
                       "every_block", "--backup-dir", self.folder).stdout
        self.check_like_one_device(self.folder, output)

    def test_together_with_cut_layers_and_sharding(self):
        for name, mesh in (("tensor", [*ALL, "--sequence-parallel"]), ("sharded", SHARDED)):
            with self.subTest(mesh=mesh):
                folder = self.folder / name
                output = train(*PARITY, *mesh, "--backup-dir", folder).stdout
                self.check_like_one_device(folder, output)

    def test_two_workers(self):
        outputs = self.finish(*self.start_workers(2, *PARITY, "--mesh", "context=2", "--backup-dir", self.folder))
        self.check_like_one_device(self.folder, outputs[0][0])

    def test_a_checkpoint_goes_on_on_every_other_mesh(self):
        for begin, end in ((CONTEXT, ONE_DEVICE), (ONE_DEVICE, CONTEXT), (CONTEXT, ALL), (SHARDED, CONTEXT)):
            with self.subTest(begin=begin, end=end):
                folder = self.folder / f"{begin} to {end}"
                saved = ["--save-every", "7 steps", "--backup-dir", folder]
                self.end_in_step(10, *PARITY, *begin, *saved)
                self.check_goes_on(saved, end)


class Gpt2Test(Case):
    def test_samples_of_gpt2s_family_and_odd_lengths_are_those_of_one_device(self):
        training = [*TINY, "--family", "gpt2", "--steps", 12, "--test-every", 6, "--global-batch-size", 4,
                    "--sequence-length", 13, "--precision", "float64", "--dropout", 0]
        pages = []
        for name, mesh in (("whole", ONE_DEVICE), ("parts", CONTEXT)):
            train(*training, *mesh, "--run-dir", self.folder / name)
            pages.append((self.folder / name / "report.html").read_text(encoding="utf-8"))
        samples = [page.split("<h2>Sample texts</h2>")[1].split("<h2>")[0] for page in pages]
        self.assertEqual(samples[0], samples[1])


class UsageTest(UsageCase):
    def test_things_that_ranks_with_different_tokens_cannot_do_are_refused(self):
        self.assertIn("--dropout 0.1: expected 0 with --mesh context=2", self.refused("--dropout", 0.1, *CONTEXT))
        self.assertIn("--context-attention all_to_all: expected heads that the 2 ranks along the axis context of --mesh "
                      "context=2 divide, but got 1: --heads 2 would do, as does ring",
                      self.refused("--heads", 1, "--kv-heads", 1, "--context-attention", "all_to_all", *CONTEXT))
        self.assertIn("--context-attention all_to_all: expected a --mesh with several ranks along the axis context",
                      self.refused("--context-attention", "all_to_all"))


if __name__ == "__main__":
    unittest.main()
