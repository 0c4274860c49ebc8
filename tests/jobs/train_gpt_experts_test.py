#!/usr/bin/env python3
"""train_gpt with experts: it trains as one device does, its checkpoints move between meshes, and its records have the load."""

import csv
import unittest

from gpt_training import PARITY, TINY, Case, UsageCase, test_losses, train
from saved_state import weights_of

EXPERTS = ["--experts", 4, "--experts-per-token", 2, "--expert-capacity", 1.25]
ONE_DEVICE = []
STAGES = ["--replicas", 4, "--mesh", "data=2,pipeline=2", "--sharding", 1]
SHARED_IN_STAGES = ["--replicas", 4, "--mesh", "expert=2,pipeline=2"]
TWO = ["--replicas", 2, "--mesh", "expert=2"]
FOUR = ["--replicas", 4, "--mesh", "data=2,expert=2"]
SHARDED = ["--replicas", 4, "--mesh", "data=2,expert=2", "--sharding", 3]
CONTEXTS = ["--replicas", 4, "--mesh", "expert=2,context=2", "--sharding", 2]


class ParityTest(Case):
    def whole_training(self):
        folder = self.folder / "whole"
        output = train(*PARITY, *EXPERTS, "--backup-dir", folder).stdout
        return test_losses(output), weights_of(folder)

    def check_like(self, whole, folder, output):
        losses, expected = whole
        self.assertEqual(test_losses(output), losses)
        self.check_weights(folder, expected)

    def test_meshes_train_as_one_device(self):
        whole = self.whole_training()
        for mesh, more in ((TWO, []), (FOUR, ["--recompute", "every_block"]), (SHARDED, ["--micro-batch-size", 1]),
                           (STAGES, []), (SHARED_IN_STAGES, []), (CONTEXTS, []),
                           ([*SHARED_IN_STAGES, "--sharding", 3], ["--pipeline-schedule", "zb-v"])):
            with self.subTest(mesh=mesh):
                folder = self.folder / " ".join(str(word) for word in mesh)
                self.check_like(whole, folder, train(*PARITY, *EXPERTS, *mesh, *more, "--backup-dir", folder).stdout)

    def test_two_workers(self):
        whole = self.whole_training()
        folder = self.folder / "workers"
        outputs = self.finish(*self.start_workers(2, *PARITY, *EXPERTS, "--mesh", "expert=2", "--backup-dir", folder))
        self.check_like(whole, folder, outputs[0][0])

    def test_a_checkpoint_goes_on_on_another_mesh(self):
        whole = self.whole_training()
        for begin, end in ((FOUR, ONE_DEVICE), (ONE_DEVICE, TWO), (SHARDED, SHARED_IN_STAGES), (SHARED_IN_STAGES, CONTEXTS), (CONTEXTS, ONE_DEVICE)):
            with self.subTest(begin=begin, end=end):
                folder = self.folder / f"{begin} to {end}"
                saved = ["--save-every", "7 steps", "--backup-dir", folder]
                self.end_in_step(10, *PARITY, *EXPERTS, *begin, *saved)
                result = train(*PARITY, *EXPERTS, *end, *saved)
                self.assertIn("resumes after step 7 from ", result.stderr)
                self.check_like(whole, folder, result.stdout)


class RecordTest(Case):
    def test_records_and_the_report_have_the_load_of_the_experts(self):
        folder = self.folder / "run"
        output = train(*TINY, *EXPERTS, *TWO, "--steps", 6, "--test-every", 3, "--run-dir", folder).stdout
        self.assertIn("2 of 4 experts", output)
        with open(folder / "metrics.csv", encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual(len(rows), 2)
        for row in rows:
            self.assertGreaterEqual(float(row["largest_expert_load"]), 1)
            self.assertTrue(0 <= float(row["dropped_tokens"]) < 1)
        page = (folder / "report.html").read_text(encoding="utf-8")
        experts = page.split("<h2>Experts</h2>")[1].split("<h2>")[0]
        self.assertIn("Steps up to 6", experts)
        self.assertIn("layer 1, expert 4:", experts)


    def test_stages_record_the_load_of_the_experts_of_all_layers(self):
        charts = []
        for name, mesh in (("whole", ONE_DEVICE), ("stages", SHARED_IN_STAGES), ("contexts", CONTEXTS)):
            train(*TINY, *EXPERTS, *mesh, "--precision", "float64", "--steps", 4, "--test-every", 4, "--run-dir", self.folder / name)
            page = (self.folder / name / "report.html").read_text(encoding="utf-8")
            charts.append(page.split("<h2>Experts</h2>")[1].split("<h2>")[0])
        self.assertIn("layer 2, expert 4:", charts[0])
        self.assertEqual(charts[1], charts[0])
        self.assertEqual(charts[2], charts[0])


class NumbersTest(Case):
    def test_a_router_with_nan_is_named_with_its_layer(self):
        result = train(*TINY, *EXPERTS, *TWO, "--steps", 3, "--learning-rate", 1e30, check=False)
        self.assertEqual(result.returncode, 6)
        self.assertIn("expected a finite loss", result.stderr)
        self.assertIn("; the first router with NaN or infinity was that of blocks.0.experts", result.stderr)


class UsageTest(UsageCase):
    def test_numbers_that_do_not_fit_are_named(self):
        self.assertIn("--experts 5: expected a number that the 2 ranks along the axis expert of --mesh expert=2 divide: "
                      "4 or 6 would do", self.refused("--experts", 5, *TWO))
        self.assertIn("--experts-per-token", self.refused("--experts", 2, "--experts-per-token", 3))
        self.assertIn("expected it with --experts only", self.refused("--experts-per-token", 3))
        self.assertIn("expected it with --experts only", self.refused("--balance-loss", 1))
        self.assertIn("expected --experts with the axis expert", self.refused(*TWO))
        self.assertIn("--sharding 3: expected a --mesh whose last axis is expert, but got expert=2,data=2",
                      self.refused("--experts", 4, "--replicas", 4, "--mesh", "expert=2,data=2", "--sharding", 3))
        self.assertIn("--cuda-graph", self.refused("--experts", 4, "--cuda-graph"))


if __name__ == "__main__":
    unittest.main()
