#!/usr/bin/env python3
"""Exchanges torch.save's files between Lockstep and PyTorch."""

import collections
import io
import os
import pathlib
import pickle
import random
import sys
import unittest
import zipfile

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
from checkpoint_case import CheckpointCase
from safetensors_python_test import DTYPES


def state_of_every_kind():
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.Linear(5, 2))
    weight = torch.randn(3, 4)
    return {
        "model": model.state_dict(),
        "tensors": {str(dtype): torch.randint(256, (2, 24), dtype=torch.uint8).view(dtype) for dtype in DTYPES},
        "complex128": torch.randn(3, dtype=torch.complex128),
        "bool": torch.rand(3) < 0.5,
        "scalar": torch.tensor(2.5),
        "empty": torch.empty(3, 0, 2),
        "channels_last": torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        "transposed": weight.t(),
        "slice": torch.arange(10.0)[3:7],
        "parameter": torch.nn.Parameter(torch.ones(2)),
        "numbers": [0, 1, -1, 255, 256, 65535, 65536, 2**31 - 1, 2**31, -2**31, -2**31 - 1, 2**63 - 1, -2**63,
                    0.0, -0.0, 1.5, float("inf"), -1e-300],
        "truths": (True, False, None),
        "tuples": [(), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4), ([], {}, ((),))],
        "text": ["", "plain", "\N{GREEK SMALL LETTER ALPHA}\n", "x" * 300],
        3: {0: "integer keys", -7: {}},
        "ordered": collections.OrderedDict([("b", 1), ("a", 2)]),
        "size": torch.Size([1, 2]),
    }


class StateFilePythonTest(CheckpointCase):
    def assert_same(self, given, expected, path="state"):
        if isinstance(expected, torch.Tensor):
            self.assertEqual((given.dtype, given.shape, given.stride()),
                             (expected.dtype, expected.shape, expected.stride()), path)
            self.assertTrue(torch.equal(given.contiguous().flatten().view(torch.uint8),
                                        expected.detach().contiguous().flatten().view(torch.uint8)), path)
        elif isinstance(expected, dict):
            self.assertEqual(list(given), list(expected), path)
            for key, value in expected.items():
                self.assert_same(given[key], value, f"{path}[{key!r}]")
        elif isinstance(expected, (list, tuple)):
            self.assertIs(type(given), list if isinstance(expected, list) else tuple, path)
            self.assertEqual(len(given), len(expected), path)
            for index, value in enumerate(expected):
                self.assert_same(given[index], value, f"{path}[{index}]")
        else:
            self.assertEqual((type(given), repr(given)), (type(expected), repr(expected)), path)

    def copied(self, state):
        torch.save(state, self.path("in.pt"))
        self.peer("copy", self.path("in.pt"), self.path("out.pt"))
        return torch.load(self.path("out.pt"), weights_only=True)

    def test_python_reads_what_was_read_from_python(self):
        state = state_of_every_kind()
        copy = self.copied(state)
        # A slice is written without the rest of its memory, and so is whole.
        self.assertEqual(copy["slice"].untyped_storage().nbytes(), 16)
        self.assert_same(copy, state)

    def test_values_that_are_no_dict_are_read(self):
        for value in [None, 7, "text", torch.ones(2), [1, 2], ()]:
            self.assert_same(self.copied(value), value)

    def test_tensors_that_share_memory_share_it_again(self):
        weight = torch.randn(3, 4)
        copy = self.copied({"first": weight, "second": weight, "transposed": weight.t()})
        copy["first"][0, 1] = 7
        self.assertEqual(copy["second"][0, 1], 7)
        self.assertEqual(copy["transposed"][1, 0], 7)

    def test_optimizer_states_are_read(self):
        torch.manual_seed(3)
        for make in [torch.optim.Adam, torch.optim.AdamW, lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)]:
            model = torch.nn.Linear(3, 2)
            optimizer = make(model.parameters())
            model(torch.randn(4, 3)).sum().backward()
            optimizer.step()
            self.assert_same(self.copied(optimizer.state_dict()), optimizer.state_dict())

    def refusal(self, data):
        with open(self.path("bad.pt"), "wb") as file:
            file.write(data)
        message = self.refusal_of_peer("copy", self.path("bad.pt"), self.path("out.pt"))
        self.assertTrue(message.startswith(self.path("bad.pt") + ": "), message)
        self.assertFalse(os.path.exists(self.path("out.pt")))
        return message

    def archive(self, pickled, **records):
        data = io.BytesIO()
        with zipfile.ZipFile(data, "w") as file:
            file.writestr("archive/data.pkl", pickled)
            for name, value in records.items():
                file.writestr(f"archive/{name}", value)
        return data.getvalue()

    def test_code_in_a_pickle_is_refused_and_not_run(self):
        class Hostile:
            def __reduce__(self):
                return os.system, (f"touch {trace}",)

        trace = self.path("trace")
        message = self.refusal(self.archive(pickle.dumps({"a": Hostile()}, protocol=2)))
        self.assertRegex(message, "expected plain values and tensors, but got a call of '.*system'")
        self.assertFalse(os.path.exists(trace))

    def test_objects_of_other_classes_are_refused(self):
        for value in [{1, 2}, complex(1, 2), torch.float32, torch.device("cpu"), 2**64, b"bytes", {1.5: 1}, {None: 1}]:
            with self.subTest(value=value):
                data = io.BytesIO()
                torch.save({"value": value}, data)
                self.refusal(data.getvalue())

    def test_archives_of_other_kinds_are_refused(self):
        legacy, script, compressed = io.BytesIO(), io.BytesIO(), io.BytesIO()
        torch.save({"a": torch.ones(1)}, legacy, _use_new_zipfile_serialization=False)
        self.assertIn("expected a zip archive", self.refusal(legacy.getvalue()))
        torch.jit.save(torch.jit.script(torch.nn.Linear(1, 1)), script)
        self.assertIn("TorchScript", self.refusal(script.getvalue()))
        with zipfile.ZipFile(compressed, "w", zipfile.ZIP_DEFLATED) as file:
            file.writestr("archive/data.pkl", b"\x80\x02" + b"]" * 1000)
        self.assertIn("expected plain bytes, but got compressed", self.refusal(compressed.getvalue()))
        self.assertIn("byteorder", self.refusal(self.archive(b"\x80\x02N.", byteorder="big")))
        self.assertIn("protocol 2", self.refusal(self.archive(pickle.dumps({}, protocol=4))))

    def test_archives_without_checksums_are_read(self):
        torch.serialization.set_crc32_options(False)
        self.addCleanup(torch.serialization.set_crc32_options, True)
        self.assert_same(self.copied({"a": torch.ones(3)}), {"a": torch.ones(3)})

    def test_flipped_bits_are_found_or_change_nothing(self):
        torch.manual_seed(4)
        state = {"weight": torch.randn(20), "epoch": 3}
        torch.save(state, self.path("in.pt"))
        with open(self.path("in.pt"), "rb") as file:
            whole = file.read()
        flips = random.Random(1).sample(range(8 * len(whole)), 300)
        listing = []
        for index, flip in enumerate(flips):
            bad = bytearray(whole)
            bad[flip // 8] ^= 1 << flip % 8
            listing.append(self.path(f"{index}.pt"))
            with open(listing[-1], "wb") as file:
                file.write(bad)
        read = self.peer("copy_each", *listing).split()
        self.assertGreater(len(read), 20)  # bits of padding, names of records that nobody reads, ...
        self.assertLess(len(read), 280)
        for path in read:
            self.assert_same(torch.load(path + ".copy", weights_only=True), state)


if __name__ == "__main__":
    sys.exit(unittest.main())
