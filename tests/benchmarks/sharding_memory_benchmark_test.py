#!/usr/bin/env python3
"""benchmarks/sharding_memory/sharding_memory_benchmark.py with a small MLP, in seconds instead of minutes."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "benchmarks" / "sharding_memory"
BUILD = sys.argv.pop(1)
LAYERS, WIDTH = 6, 256
PARAMETERS = LAYERS * (WIDTH + 1) * WIDTH
LAYER_BYTES = (WIDTH + 1) * WIDTH * 4


def measure(*flags):
    return subprocess.run([sys.executable, "-B", str(FOLDER / "sharding_memory_benchmark.py"), "--build", BUILD, "--layers", str(LAYERS),
                           "--width", str(WIDTH), *flags], capture_output=True, text=True, timeout=240, check=False)


def kept_bytes(stage, ranks):
    """Of float32 parameters, gradients and Adam's two moments."""
    return PARAMETERS * {0: 16, 1: 8 + 8 / ranks, 2: 4 + 12 / ranks, 3: 16 / ranks}[stage]


class ShardingMemoryBenchmarkTest(unittest.TestCase):
    def test_all_stages_keep_what_the_formula_says(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            process = measure("--ranks", "1,2", "--json", str(folder / "all.json"), "--pictures", str(folder))
            self.assertEqual(process.returncode, 0, process.stderr)
            results = json.loads((folder / "all.json").read_text(encoding="utf-8"))
            self.assertEqual(sorted((one["stage"], one["ranks"], one["way"]) for one in results),
                             sorted((stage, ranks, way) for stage in range(4) for ranks in (1, 2) for way in ("threads", "processes")))
            for one in results:
                with self.subTest(stage=one["stage"], ranks=one["ranks"], way=one["way"]):
                    expected = kept_bytes(one["stage"], one["ranks"])
                    self.assertAlmostEqual(one["predicted_kept"] / expected, 1, delta=0.001)
                    self.assertAlmostEqual(one["kept"] / expected, 1, delta=0.03)
                    self.assertGreater(one["peak"], expected)
                    self.assertLessEqual(one["most_units"], 2)
                    units = one["parts"]["gathered_units"]
                    if one["stage"] == 3 and one["ranks"] > 1:
                        self.assertEqual(one["most_units"], 2)  # one computes, one is gathered ahead
                        sharing = one["ranks"] if one["way"] == "threads" else 1
                        self.assertAlmostEqual(units * sharing / LAYER_BYTES, 2, delta=0.02)
                    else:
                        self.assertEqual(units, 0)
                    self.assertEqual(one["parts"]["buckets"] > 0, one["stage"] == 2 and one["ranks"] > 1)
            rows = [line for line in process.stdout.splitlines() if line.startswith("| ") and "threads" in line]
            self.assertEqual(len(rows), 8)
            for name in ("light", "dark"):
                svg = xml.etree.ElementTree.parse(folder / f"sharding_memory_{name}.svg").getroot()
                labels = [text.text for text in svg.iter("{http://www.w3.org/2000/svg}text")]
                self.assertEqual(sum(label.endswith("threads") for label in labels), 8)

    def test_flags_that_name_nothing_are_wrong_usage(self):
        for flags, name in ((["--ranks", "3"], "--ranks"), (["--stages", "0,4"], "--stages"), (["--by", "machines"], "--by"),
                            (["--build", "/no"], "--build")):
            process = measure(*flags)
            self.assertEqual(process.returncode, 2)
            self.assertIn(f"{name}: expected", process.stderr)


if __name__ == "__main__":
    unittest.main()
