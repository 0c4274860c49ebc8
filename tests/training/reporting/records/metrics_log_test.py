#!/usr/bin/env python3
"""Python's own csv and json modules read the logs, and find every value bit for bit."""

import csv
import json
import math
import pathlib
import struct
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "support"))
from run_record_case import RunRecordCase

ROWS = [
    {"epoch": 1, "loss": 1 / 3, "note": "plain"},
    {"epoch": 2, "loss": math.nan, "note": 'a, "b"\nc\r\nd'},
    {"epoch": 2**63 - 1, "loss": -math.inf, "accuracy": 5e-324},
    {"epoch": -(2**63), "loss": math.inf, "accuracy": sys.float_info.max},
    {"epoch": -1, "loss": -0.0, "note": "", "accuracy": 0.1},
    {"epoch": 0, 'col,umn "x"': 123456789012345680.0, "note": "über ≤ 😀"},
]


def bits(value):
    """NaN equals itself and -0 differs from 0 this way."""
    return struct.pack("<d", value)


class MetricsLogTest(RunRecordCase):
    def check(self, found, expected):
        """`found` holds texts, or values of JSON."""
        self.assertEqual(found.keys(), expected.keys())
        for name, value in expected.items():
            if isinstance(value, float):
                self.assertEqual(bits(float(found[name])), bits(value), name)
            else:
                self.assertEqual(type(value)(found[name]), value, name)

    def test_csv_reads_every_row(self):
        with open(self.folder / "metrics.csv", newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file, strict=True))
        self.assertEqual(list(rows[0]), ["epoch", "loss", "note", "accuracy", 'col,umn "x"'])
        self.assertEqual(len(rows), len(ROWS))
        for found, expected in zip(rows, ROWS):
            missing = {name for name, text in found.items() if text == "" and name not in expected}
            self.check({name: text for name, text in found.items() if name not in missing}, expected)

    def test_json_reads_every_line(self):
        def refuse(constant):
            raise ValueError(f"{constant} is no JSON")

        lines = (self.folder / "metrics.jsonl").read_text(encoding="utf-8").split("\n")
        self.assertEqual(lines.pop(), "")
        rows = [json.loads(line, parse_constant=refuse) for line in lines]
        self.assertEqual(len(rows), len(ROWS))
        for found, expected in zip(rows, ROWS):
            self.check(found, expected)


if __name__ == "__main__":
    unittest.main()
