#!/usr/bin/env python3
"""train_gpt with a model that is cut into stages: it trains as one device does, and its checkpoints move between meshes."""

import json
import unittest

from gpt_training import PARITY, TINY, Case, ParityCase, UsageCase, train

ONE_DEVICE = []
STAGES = ["--replicas", 2, "--mesh", "pipeline=2"]
STAGES_AND_TENSOR = ["--replicas", 4, "--mesh", "pipeline=2,tensor=2"]
STAGES_AND_CONTEXT = ["--replicas", 4, "--mesh", "pipeline=2,context=2"]
SHARDED = ["--replicas", 4, "--mesh", "data=2,pipeline=2", "--sharding", 3]


class ParityTest(ParityCase):
    def test_every_schedule(self):
        for schedule in ("gpipe", "1f1b", "interleaved", "zb-h1", "zb-v"):
            with self.subTest(schedule=schedule):
                folder = self.folder / schedule
                output = train(*PARITY, *STAGES, "--pipeline-schedule", schedule, "--backup-dir", folder).stdout
                self.assertIn("1 replica of 2 ranks", output)
                self.check_like_one_device(folder, output)

    def test_other_axes_and_sharding(self):
        for name, layout in (("tensor", [*STAGES_AND_TENSOR, "--sequence-parallel", "--micro-batch-size", 1]),
                             ("context", STAGES_AND_CONTEXT),
                             ("four axes", ["--replicas", 16, "--mesh", "data=2,pipeline=2,context=2,tensor=2", "--sharding", 1]),
                             ("stage 1", ["--replicas", 4, "--mesh", "data=2,pipeline=2", "--sharding", 1]),
                             ("stage 3", [*SHARDED, "--recompute", "every_block"])):
            with self.subTest(name=name):
                folder = self.folder / name
                output = train(*PARITY, *layout, "--backup-dir", folder).stdout
                self.check_like_one_device(folder, output)

    def test_two_workers(self):
        outputs = self.finish(*self.start_workers(2, *PARITY, "--mesh", "pipeline=2", "--backup-dir", self.folder))
        self.check_like_one_device(self.folder, outputs[0][0])

    def test_a_killed_rank_ends_the_others_and_the_training_goes_on_on_other_meshes(self):
        for rank, end in ((0, ONE_DEVICE), (1, STAGES_AND_TENSOR), (1, SHARDED), (1, STAGES_AND_CONTEXT)):
            with self.subTest(rank=rank, end=end):
                folder = self.folder / f"{rank} to {end}"
                saved = ["--save-every", "7 steps", "--backup-dir", folder]
                self.kill_worker(rank, 10, *PARITY, "--mesh", "pipeline=2", *saved)
                self.check_goes_on(saved, end)

    def test_a_checkpoint_of_one_device_goes_on_in_stages(self):
        saved = ["--save-every", "7 steps", "--backup-dir", self.folder / "saved"]
        self.end_in_step(10, *PARITY, *saved)
        self.check_goes_on(saved, STAGES)


class RecordTest(Case):
    def test_the_times_of_a_step_are_recorded_and_drawn(self):
        train(*TINY, "--steps", 6, "--test-every", 6, *STAGES, "--run-dir", self.folder)
        rows = [json.loads(line) for line in (self.folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
        step = next(row for row in rows if row["kind"] == "pipeline")
        self.assertEqual((step["step"], step["ranks"], step["micro_batches"]), (3, 2, 8))
        self.assertTrue(0 < step["bubble"] < 1)
        measured = [row for row in rows if row["kind"] == "pipeline_action"]
        self.assertEqual({row["rank"] for row in measured}, {0, 1})
        self.assertIn("<h2>Pipeline</h2>", (self.folder / "report.html").read_text(encoding="utf-8"))


class Gpt2Test(Case):
    def test_samples_and_weights_of_gpt2s_family_are_those_of_one_device(self):
        training = [*TINY, "--family", "gpt2", "--steps", 12, "--test-every", 6, "--global-batch-size", 4,
                    "--precision", "float64", "--dropout", 0]
        pages = []
        for name, mesh in (("whole", ONE_DEVICE), ("stages", STAGES)):
            train(*training, *mesh, "--run-dir", self.folder / name)
            pages.append((self.folder / name / "report.html").read_text(encoding="utf-8"))
        samples = [page.split("<h2>Sample texts</h2>")[1].split("<h2>")[0] for page in pages]
        self.assertEqual(samples[0], samples[1])


class UsageTest(UsageCase):
    def test_more_stages_than_layers_are_refused_with_a_number_that_would_do(self):
        self.assertIn("--layers 1: expected at least 2 for the 4 stages of --mesh pipeline=2 and --pipeline-schedule "
                      "interleaved", self.refused("--layers", 1, *STAGES, "--pipeline-schedule", "interleaved"))

    def test_flags_that_do_not_go_together_are_refused(self):
        self.assertIn("--pipeline-schedule gpipe: expected a --mesh with several ranks along the axis pipeline, but got data=1",
                      self.refused("--pipeline-schedule", "gpipe"))
        self.assertIn("--stages-per-rank 3: expected it with --pipeline-schedule interleaved only",
                      self.refused(*STAGES, "--stages-per-rank", 3))
        self.assertIn("--dropout 0.1: expected 0 with --mesh pipeline=2,context=2",
                      self.refused(*STAGES_AND_CONTEXT, "--dropout", 0.1))
        self.assertIn("--pipeline-schedule", self.refused(*STAGES, "--pipeline-schedule", "fast"))


if __name__ == "__main__":
    unittest.main()
