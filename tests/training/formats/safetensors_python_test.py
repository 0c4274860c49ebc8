#!/usr/bin/env python3
"""Exchanges .safetensors files between Lockstep and PyPI's safetensors, and weights with torchvision."""

import pathlib
import sys
import unittest

import safetensors
import safetensors.torch
import torch
import torchvision

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
from checkpoint_case import CheckpointCase

DTYPES = [
    torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32, torch.uint64,
    torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.float8_e4m3fn,
    torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz]


def tensors_of_every_kind():
    torch.manual_seed(1)
    tensors = {str(dtype): torch.randint(256, (6, 8), dtype=torch.uint8).view(dtype) for dtype in DTYPES}
    tensors["bool"] = torch.rand(3, 5) < 0.5
    tensors["scalar"] = torch.tensor(2.5)
    tensors["empty"] = torch.empty(3, 0, 2)
    tensors["a/name with spaces, \N{GREEK SMALL LETTER ALPHA} and \"quotes\""] = torch.ones(1)
    return tensors


class SafetensorsPythonTest(CheckpointCase):
    def test_python_reads_what_was_read_from_python(self):
        tensors = tensors_of_every_kind()
        metadata = {"format": "pt", "note": "\N{GREEK SMALL LETTER ALPHA}\n"}
        safetensors.torch.save_file(tensors, self.path("in"), metadata)
        self.peer("copy", self.path("in"), self.path("out"))
        self.assert_same_tensors(safetensors.torch.load_file(self.path("out")), tensors)
        with safetensors.safe_open(self.path("out"), "pt") as file:
            self.assertEqual(file.metadata(), metadata)

    def test_no_tensors_at_all(self):
        safetensors.torch.save_file({}, self.path("in"))
        self.peer("copy", self.path("in"), self.path("out"))
        self.assertEqual(safetensors.torch.load_file(self.path("out")), {})

    def test_weights_of_torchvision_give_its_logits(self):
        torch.manual_seed(2)
        model = torchvision.models.mobilenet_v2(weights=None)
        images = torch.randn(4, 3, 96, 96)
        model.train()(torch.randn(16, 3, 64, 64))  # running statistics that are not the initial ones
        model.eval()
        safetensors.torch.save_file(model.state_dict(), self.path("weights.safetensors"))
        torch.save(model.state_dict(), self.path("weights.pt"))
        torch.save({"epoch": 3, "state_dict": model.state_dict()}, self.path("checkpoint.pt"))
        safetensors.torch.save_file({"images": images}, self.path("images"))
        with torch.no_grad():
            expected = model(images)
        self.assertGreater(expected.std(), 1e-3)
        for weights in ["weights.safetensors", "weights.pt", "checkpoint.pt"]:
            self.peer("logits", self.path(weights), self.path("images"), self.path("out"))
            given = safetensors.torch.load_file(self.path("out"))["logits"]
            self.assertLess((given - expected).abs().max(), 1e-5, weights)

    def test_names_and_their_order_are_torchvisions(self):
        model = torchvision.models.mobilenet_v2(weights=None)
        self.assertEqual(self.peer("names").split(), list(model.state_dict()))

    def test_weights_go_between_the_formats(self):
        model = torchvision.models.mobilenet_v2(weights=None)
        torch.save(model.state_dict(), self.path("in.pt"))
        self.peer("weights", self.path("in.pt"), self.path("out.safetensors"))
        self.assert_same_tensors(safetensors.torch.load_file(self.path("out.safetensors")), model.state_dict())
        self.peer("weights", self.path("out.safetensors"), self.path("out.pt"))
        weights = torch.load(self.path("out.pt"), weights_only=True)
        self.assert_same_tensors(weights, model.state_dict())
        torchvision.models.mobilenet_v2(weights=None).load_state_dict(weights)

    def test_weights_of_another_model_are_refused_by_the_first_tensor_that_differs(self):
        model = torchvision.models.mobilenet_v2(weights=None, num_classes=10)
        safetensors.torch.save_file(model.state_dict(), self.path("weights"))
        message = self.refusal_of_peer("logits", self.path("weights"), self.path("weights"), self.path("out"))
        self.assertEqual(
            message.strip(),
            f"{self.path('weights')}: tensor 'classifier.1.weight': expected Float [1000, 1280], but got Float [10, 1280]")


if __name__ == "__main__":
    sys.exit(unittest.main())
