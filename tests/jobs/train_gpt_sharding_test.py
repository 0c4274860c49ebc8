#!/usr/bin/env python3
"""train_gpt with its state divided among replicas: it trains as one device does, and its checkpoints move between layouts."""

import pathlib
import tempfile
import unittest

from gpt_training import PARITY, TIMEOUT, TINY, Case, ParityCase, digests_of, test_losses, train


class ParityTest(ParityCase):
    def test_two_replicas_at_each_stage(self):
        for stage in (1, 2, 3):
            with self.subTest(stage):
                folder = self.folder / str(stage)
                output = train(*PARITY, "--replicas", 2, "--sharding", stage, "--backup-dir", folder).stdout
                self.assertIn(f"sharding stage {stage} over data", output)
                self.check_like_one_device(folder, output)

    def test_parts_with_copies(self):
        for stage in (2, 3):
            with self.subTest(stage):
                folder = self.folder / str(stage)
                output = train(*PARITY, "--replicas", 4, "--mesh", "data=2,shard=2", "--sharding", stage,
                               "--backup-dir", folder).stdout
                self.check_like_one_device(folder, output)

    def test_four_parts_in_micro_batches_with_recomputed_blocks(self):
        output = train(*PARITY, "--replicas", 4, "--sharding", 3, "--micro-batch-size", 2, "--recompute", "every_block",
                       "--backup-dir", self.folder).stdout
        self.check_like_one_device(self.folder, output)

    def test_two_workers(self):
        outputs = self.finish(*self.start_workers(2, *PARITY, "--mesh", "shard=2", "--sharding", 3, "--backup-dir", self.folder))
        self.check_like_one_device(self.folder, outputs[0][0])

    def test_a_checkpoint_goes_on_in_every_other_layout(self):
        """A training begins in one layout for 10 steps, and ends in another one, as if it had never changed."""
        layouts = {"one device": [], "two parts": ["--replicas", 2, "--sharding", 3],
                   "four parts": ["--replicas", 4, "--sharding", 3],
                   "two parts with copies": ["--replicas", 4, "--mesh", "data=2,shard=2", "--sharding", 3],
                   "divided optimizer": ["--replicas", 2, "--sharding", 1]}
        for begin, end in (("two parts", "one device"), ("two parts", "four parts"), ("two parts", "divided optimizer"),
                           ("one device", "two parts with copies"), ("four parts", "two parts")):
            with self.subTest(begin=begin, end=end):
                folder = self.folder / f"{begin} to {end}"
                saved = ["--save-every", "7 steps", "--backup-dir", folder]
                self.end_in_step(10, *PARITY, *layouts[begin], *saved)
                self.check_goes_on(saved, layouts[end])


class ResumeTest(Case):
    def test_killed_replicas_resume_to_the_same_bits(self):
        training = [*TINY, "--replicas", 2, "--sharding", 3, "--steps", 40, "--test-every", 15, "--global-batch-size", 8,
                    "--dropout", "0.1", "--save-every", "5 steps"]
        with tempfile.TemporaryDirectory() as whole:
            output = train(*training, "--backup-dir", whole).stdout
            expected = digests_of(pathlib.Path(whole))
        for step in (10, 25):
            process = self.start(*training, "--backup-dir", self.folder)
            self.await_step(step, process)
            process.kill()
            process.communicate()
        result = train(*training, "--backup-dir", self.folder)
        self.assertRegex(result.stderr, r"resumes after step [23]\d from ")
        self.assertEqual(digests_of(self.folder), expected)
        self.assertEqual(test_losses(result.stdout)[-1:], test_losses(output)[-1:])

    def test_killed_workers_resume_to_the_same_bits(self):
        training = [*TINY, "--mesh", "shard=2", "--sharding", 3, "--steps", 40, "--test-every", 15, "--global-batch-size", 8,
                    "--save-every", "5 steps", "--communication-timeout", 60]
        with tempfile.TemporaryDirectory() as whole:
            for process in self.start_workers(2, *training, "--backup-dir", whole):
                process.communicate(timeout=TIMEOUT)
            expected = digests_of(pathlib.Path(whole))
        started = self.start_workers(2, *training, "--backup-dir", self.folder)
        self.await_step(20, started[0])
        started[1].kill()
        _, said = started[0].communicate(timeout=TIMEOUT)
        self.assertEqual(started[0].returncode, 5, said)
        self.finish(*self.start_workers(2, *training, "--backup-dir", self.folder))
        self.assertEqual(digests_of(self.folder), expected)


class RecordTest(Case):
    def test_weights_and_samples_are_those_of_a_whole_model(self):
        """Generation, the report's checkpoints and initial weights, of a model whose parameters are divided."""
        training = [*TINY, "--steps", 12, "--test-every", 6, "--global-batch-size", 4, "--precision", "float64"]
        whole, parts = self.folder / "whole", self.folder / "parts"
        train(*training, "--run-dir", whole)
        train(*training, "--replicas", 2, "--sharding", 3, "--run-dir", parts)
        pages = [(run / "report.html").read_text(encoding="utf-8") for run in (whole, parts)]
        samples = [page.split("<h2>Sample texts</h2>")[1].split("<h2>")[0] for page in pages]
        self.assertEqual(samples[0], samples[1])
        checkpoint = next(iter((parts / "checkpoints").glob("*.safetensors")))
        arguments = [*TINY, "--steps", 1, "--learning-rate", 1e-9, "--precision", "float64", "--init-weights", checkpoint]
        alone = test_losses(train(*arguments).stdout)
        self.assertEqual(test_losses(train(*arguments, "--replicas", 2, "--sharding", 3).stdout), alone)


if __name__ == "__main__":
    unittest.main()
