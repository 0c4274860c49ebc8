#!/usr/bin/env python3
"""Opens a training state of Lockstep's in PyTorch, as docs/checkpoints.md says, and resumes from it."""

import pathlib
import re
import sys
import unittest

import safetensors.torch
import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
from checkpoint_case import CheckpointCase

DOCUMENT = pathlib.Path(__file__).resolve().parents[3] / "docs" / "checkpoints.md"


class TrainingStatePythonTest(CheckpointCase):
    def setUp(self):
        super().setUp()
        self.peer("train", self.path("state.pt"), self.path("values"))
        self.state = torch.load(self.path("state.pt"), weights_only=True)
        self.values = safetensors.torch.load_file(self.path("values"))

    def values_of(self, prefix):
        return {name[len(prefix):]: tensor for name, tensor in self.values.items() if name.startswith(prefix)}

    def make_model(self):
        return torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))

    def test_model_and_optimizer_go_on(self):
        model = self.make_model()
        model.load_state_dict(self.state["model"])
        self.assert_same_tensors(dict(model.named_parameters()), self.values_of("before."))
        means = [self.values["running_mean.0"], self.values["running_mean.1"]]
        self.assertFalse(torch.equal(*means))
        torch.testing.assert_close(model[1].running_mean, (means[0] + means[1]) / 2)
        self.assertEqual(model[1].num_batches_tracked, 3)
        optimizer = torch.optim.AdamW(model.parameters())
        optimizer.load_state_dict(self.state["optimizers"]["optimizer"])
        for parameter in model.parameters():
            parameter.grad = torch.full_like(parameter, 0.5)
        optimizer.step()
        for name, tensor in self.values_of("after.").items():
            torch.testing.assert_close(model.get_parameter(name).detach(), tensor, rtol=0, atol=1e-6)

    def test_every_replicas_buffers_and_random_stream_are_there(self):
        replicas = self.state["replicas"]
        self.assertEqual(replicas["count"], 2)
        for replica in range(2):
            self.assertTrue(torch.equal(replicas["buffers"]["1.running_mean"][replica],
                                        self.values[f"running_mean.{replica}"]))
        generator = torch.Generator()
        generator.set_state(replicas["generators"][1])
        self.assertTrue(torch.equal(torch.rand(5, generator=generator), self.values["drawn"]))

    def test_progress_is_there(self):
        self.assertEqual(self.state["progress"], {
            "epoch": 1, "step": 3, "dataset_epoch": 0, "position": 0, "shuffle_seed": 0, "metrics": {"loss": 0.5}})
        self.assertEqual(self.state["lockstep"]["format"], 1)

    def test_the_document_names_every_key(self):
        text = DOCUMENT.read_text(encoding="utf-8")
        keys = {*self.state, *self.state["lockstep"], *self.state["replicas"], *self.state["progress"], "scaler"}
        self.assertEqual([key for key in sorted(keys) if f"`{key}`" not in text], [])

    def test_the_documents_programs_run(self):
        programs = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
        self.assertEqual(len(programs), 3)
        (self.folder / "checkpoint").mkdir()
        self.peer("shards", self.path("state.pt"), self.path("checkpoint"))
        self.peer("weights", self.path("state.pt"), self.path("weights.safetensors"))
        names = {"model": self.make_model()}
        for program in programs:
            program = program.replace('"state.pt"', repr(self.path("state.pt")))
            program = program.replace('"backup/checkpoint-000000001500"', repr(self.path("checkpoint")))
            program = re.sub(r'"(\w+\.safetensors)"', lambda match: repr(self.path(match[1])), program)
            exec(compile(program, str(DOCUMENT), "exec"), names)  # pylint: disable=exec-used
        # The last one has put the shards together.
        self.assert_same_values(names["state"], self.state)

    def assert_same_values(self, actual, expected):
        """Whatever the order of keys."""
        self.assertIs(type(actual), type(expected))
        if isinstance(expected, dict):
            self.assertEqual(set(actual), set(expected))
            for key, value in expected.items():
                self.assert_same_values(actual[key], value)
        elif isinstance(expected, (list, tuple)):
            self.assertEqual(len(actual), len(expected))
            for one, other in zip(actual, expected):
                self.assert_same_values(one, other)
        elif isinstance(expected, torch.Tensor):
            self.assertTrue(torch.equal(actual, expected))
        else:
            self.assertEqual(actual, expected)


if __name__ == "__main__":
    sys.exit(unittest.main())
