#!/usr/bin/env python3
"""Hands the states of optimizers from PyTorch to Lockstep and back, in the middle of a training."""

import pathlib
import sys
import unittest

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
from checkpoint_case import CheckpointCase

ADAM = {"lr": 0.02, "betas": (0.8, 0.95), "eps": 1e-6, "weight_decay": 0.1}
SGD = {"lr": 0.02, "weight_decay": 0.1}
ADAGRAD = {"lr": 0.02, "lr_decay": 0.1, "weight_decay": 0.1, "initial_accumulator_value": 0.3, "eps": 1e-6}
# The optimizer here, those of Lockstep, options.
CASES = [
    (torch.optim.Adam, ["FusedAdam", "Adam"], ADAM),
    (torch.optim.Adam, ["FusedAdam", "Adam"], {**ADAM, "amsgrad": True}),
    (torch.optim.Adam, ["FusedAdam"], {**ADAM, "maximize": True}),
    (torch.optim.AdamW, ["FusedAdamW", "AdamW"], ADAM),
    (torch.optim.SGD, ["FusedSgd", "SGD"], SGD),
    (torch.optim.SGD, ["FusedSgd", "SGD"], {**SGD, "momentum": 0.9, "dampening": 0.3}),
    (torch.optim.SGD, ["FusedSgd", "SGD"], {**SGD, "momentum": 0.9, "nesterov": True}),
    (torch.optim.Adagrad, ["FusedAdagrad", "Adagrad"], ADAGRAD),
    (torch.optim.Adagrad, ["FusedAdagrad"], {**ADAGRAD, "maximize": True}),
    # The two count eps at different places.
    (torch.optim.SparseAdam, ["SparseAdam"], {"lr": 0.02, "betas": (0.8, 0.95), "eps": 1e-12}),
]
SHAPES = [[(3, 4), (5,)], [(), (2, 3, 2)]]


def make_groups():
    torch.manual_seed(1)
    return [[torch.randn(shape, requires_grad=True) for shape in group] for group in SHAPES]


def gradient_for(optimizer, gradient):
    """SparseAdam takes rows, of which a scalar has none."""
    if gradient is None or not isinstance(optimizer, torch.optim.SparseAdam):
        return gradient
    return gradient.to_sparse(1) if gradient.dim() else None


def kind_of(value):
    return (value.dtype, value.shape) if isinstance(value, torch.Tensor) else type(value)


def make_steps(seed, count):
    """Gradients; the last parameter never has one."""
    torch.manual_seed(seed)
    return [[torch.randn(shape) for group in SHAPES for shape in group][:-1] + [None] for _ in range(count)]


def make_optimizer(make, options, groups):
    # The groups differ in their learning rate.
    return make([{"params": group, "lr": options["lr"] * (1 + index)} for index, group in enumerate(groups)], **options)


def run_steps(optimizer, groups, steps):
    for gradients in steps:
        for parameter, gradient in zip([parameter for group in groups for parameter in group], gradients):
            parameter.grad = gradient_for(optimizer, gradient)
        optimizer.step()


class OptimizerStatePythonTest(CheckpointCase):
    def steps_of_peer(self, kind, groups, optimizer_state, steps):
        detached = [[parameter.detach() for parameter in group] for group in groups]
        torch.save({"groups": detached, "state": optimizer_state, "steps": steps}, self.path("in.pt"))
        self.peer("optimizer", kind, self.path("in.pt"), self.path("out.pt"))
        result = torch.load(self.path("out.pt"), weights_only=True)
        return result["groups"], result["state"]

    def assert_close(self, given, expected):
        for group, expected_group in zip(given, expected):
            for tensor, expected_tensor in zip(group, expected_group):
                torch.testing.assert_close(tensor, expected_tensor.detach(), rtol=0, atol=2e-6)

    def each_case(self):
        for make, kinds, options in CASES:
            for kind in kinds:
                with self.subTest(kind=kind, options=options):
                    yield make, kind, options

    def test_lockstep_continues_where_python_stopped(self):
        for make, kind, options in self.each_case():
            groups = make_groups()
            optimizer = make_optimizer(make, options, groups)
            run_steps(optimizer, groups, make_steps(2, 3))
            given, _ = self.steps_of_peer(kind, groups, optimizer.state_dict(), make_steps(3, 2))
            run_steps(optimizer, groups, make_steps(3, 2))
            self.assert_close(given, groups)

    def test_python_continues_where_lockstep_stopped(self):
        for make, kind, options in self.each_case():
            groups = make_groups()
            untrained = make_optimizer(make, options, groups).state_dict()
            after_three, state = self.steps_of_peer(kind, groups, untrained, make_steps(2, 3))
            after_five, _ = self.steps_of_peer(kind, groups, untrained, make_steps(2, 3) + make_steps(3, 2))
            for group in after_three:
                for parameter in group:
                    parameter.requires_grad_()
            # Options other than the defaults come with the state.
            optimizer = make([{"params": group} for group in after_three], lr=1.0)
            optimizer.load_state_dict(state)
            run_steps(optimizer, after_three, make_steps(3, 2))
            self.assert_close(after_three, after_five)

    def test_states_have_the_keys_and_kinds_of_pythons(self):
        for make, kind, options in self.each_case():
            groups = make_groups()
            optimizer = make_optimizer(make, options, groups)
            untrained = optimizer.state_dict()
            _, given = self.steps_of_peer(kind, groups, untrained, make_steps(2, 1))
            run_steps(optimizer, groups, make_steps(2, 1))
            expected = optimizer.state_dict()
            self.assertEqual(list(given["state"]), list(expected["state"]))
            for place, state in expected["state"].items():
                self.assertEqual(set(given["state"][place]), set(state))
                for key, value in state.items():
                    self.assertEqual(kind_of(given["state"][place][key]), kind_of(value))
            self.assertEqual([set(group) for group in given["param_groups"]],
                             [set(group) for group in expected["param_groups"]])
            for group, expected_group in zip(given["param_groups"], expected["param_groups"]):
                self.assertEqual(group, expected_group)


if __name__ == "__main__":
    sys.exit(unittest.main())
