#!/usr/bin/env python3
"""train_gpt with a model that is cut along an axis: it trains as one device does, and its checkpoints move between meshes."""

import unittest

from gpt_training import PARITY, TINY, Case, ParityCase, UsageCase, test_losses, train

ONE_DEVICE = []
TENSOR = ["--replicas", 2, "--mesh", "tensor=2"]
DATA_AND_TENSOR = ["--replicas", 4, "--mesh", "data=2,tensor=2"]
SHARDED = ["--replicas", 4, "--mesh", "shard=2,tensor=2", "--sharding", 3]


class ParityTest(ParityCase):
    def test_ranks_that_share_one_replica(self):
        output = train(*PARITY, *TENSOR, "--backup-dir", self.folder).stdout
        self.assertIn("1 replica of 2 ranks", output)
        self.check_like_one_device(self.folder, output)

    def test_two_replicas_of_two_ranks_in_micro_batches_with_recomputed_blocks(self):
        output = train(*PARITY, *DATA_AND_TENSOR, "--micro-batch-size", 2, "--recompute", "every_block",
                       "--backup-dir", self.folder).stdout
        self.check_like_one_device(self.folder, output)

    def test_shards_of_the_sequence_between_layers(self):
        output = train(*PARITY, *DATA_AND_TENSOR, "--sequence-parallel", "--recompute", "every_block", "--backup-dir", self.folder).stdout
        self.assertIn("cut between layers along the axis tensor", output)
        self.check_like_one_device(self.folder, output)

    def test_stages_of_sharding(self):
        for stage, mesh, more in ((1, "data=2,tensor=2", []), (2, "shard=2,tensor=2", ["--sequence-parallel"]),
                                  (3, "shard=2,tensor=2", ["--sequence-parallel", "--recompute", "every_block"])):
            with self.subTest(stage=stage, mesh=mesh):
                folder = self.folder / str(stage)
                output = train(*PARITY, "--replicas", 4, "--mesh", mesh, "--sharding", stage, *more,
                               "--backup-dir", folder).stdout
                self.assertIn(f"sharding stage {stage} over {mesh.split('=')[0]}", output)
                self.check_like_one_device(folder, output)

    def test_workers_that_shard_what_is_cut(self):
        outputs = self.finish(*self.start_workers(4, *PARITY, "--mesh", "shard=2,tensor=2", "--sharding", 3,
                                                  "--backup-dir", self.folder))
        self.check_like_one_device(self.folder, outputs[0][0])

    def test_two_workers(self):
        outputs = self.finish(*self.start_workers(2, *PARITY, "--mesh", "tensor=2", "--backup-dir", self.folder))
        self.check_like_one_device(self.folder, outputs[0][0])

    def test_a_checkpoint_goes_on_on_every_other_mesh(self):
        for begin, end in ((TENSOR, ONE_DEVICE), (ONE_DEVICE, TENSOR), (TENSOR, DATA_AND_TENSOR),
                           (SHARDED, ONE_DEVICE), (TENSOR, SHARDED)):
            with self.subTest(begin=begin, end=end):
                folder = self.folder / f"{begin} to {end}"
                saved = ["--save-every", "7 steps", "--backup-dir", folder]
                self.end_in_step(10, *PARITY, *begin, *saved)
                self.check_goes_on(saved, end)


class Gpt2Test(Case):
    def test_samples_and_weights_of_gpt2s_family_are_those_of_one_device(self):
        training = [*TINY, "--family", "gpt2", "--steps", 12, "--test-every", 6, "--global-batch-size", 4,
                    "--precision", "float64", "--dropout", 0]
        pages = []
        for name, mesh in (("whole", ONE_DEVICE), ("parts", TENSOR)):
            train(*training, *mesh, "--run-dir", self.folder / name)
            pages.append((self.folder / name / "report.html").read_text(encoding="utf-8"))
        samples = [page.split("<h2>Sample texts</h2>")[1].split("<h2>")[0] for page in pages]
        self.assertEqual(samples[0], samples[1])
        checkpoint = next(iter((self.folder / "parts" / "checkpoints").glob("*.safetensors")))
        arguments = [*TINY, "--family", "gpt2", "--steps", 1, "--learning-rate", 1e-9, "--precision", "float64",
                     "--init-weights", checkpoint]
        self.assertEqual(test_losses(train(*arguments, *TENSOR).stdout), test_losses(train(*arguments).stdout))


class UsageTest(UsageCase):
    def test_sizes_that_the_ranks_do_not_divide_are_named_with_sizes_that_would_do(self):
        two = ["--replicas", 2, "--mesh", "tensor=2"]
        self.assertIn("--heads 1: expected a number that the 2 ranks along the axis tensor of --mesh tensor=2 divide: "
                      "2 would do", self.refused("--heads", 1, *two))
        self.assertIn("--kv-heads 1: expected", self.refused("--kv-heads", 1, *two))
        self.assertIn("--mlp-hidden 33: expected", self.refused("--mlp-hidden", 33, *two))
        self.assertIn("32 or 34 would do", self.refused("--mlp-hidden", 33, *two))
        text = self.folder / "text.txt"
        text.write_text("the monk sees the sea. " * 200, encoding="utf-8")
        self.assertIn("--vocabulary-size 257: expected a number that the 2 ranks along the axis tensor of --mesh tensor=2 "
                      "divide: 258 would do", self.refused("--data", text, "--vocabulary-size", 257, *two))

    def test_a_vocabulary_that_no_flag_changes_is_named_with_ranks_that_would_do(self):
        said = self.refused("--heads", 4, "--replicas", 4, "--mesh", "tensor=4")
        self.assertIn("--mesh tensor=4: expected ranks along the axis tensor that divide the 78 tokens of the vocabulary of "
                      "the generated language, but got 4: 1 or 2 would do", said)

    def test_other_axes_along_which_models_are_cut_are_refused(self):
        self.assertIn("--mesh data=1,inner=2:model: expected tensor and pipeline as the only axes along which the model is "
                      "cut, but got inner", self.refused("--replicas", 2, "--mesh", "data=1,inner=2:model"))

    def test_sharding_without_an_axis_that_cuts_the_batch_is_refused(self):
        said = self.refused("--replicas", 2, "--mesh", "tensor=2", "--sharding", 2)
        self.assertIn("--mesh tensor=2 --sharding 2: sharding: expected a mesh with an axis over which gradients are summed",
                      said)
        self.assertIn("data=1,tensor=2 would do", said)


if __name__ == "__main__":
    unittest.main()
