"""What tests of train_gpt on Parquet files share."""

import json
import os
import pathlib
import random
import subprocess
import tempfile
import unittest

import pyarrow as pa
import pyarrow.parquet as pq

PROGRAM = pathlib.Path(os.environ["TRAIN_GPT"])
TRAINING = ["--threads", 1, "--precision", "float64", "--learning-rate-schedule", "constant", "--layers", 1, "--hidden", 16,
            "--heads", 2, "--sequence-length", 16, "--sample-tokens", 0, "--warmup-steps", 1]
TOKENS = ["--vocabulary-size", 50]


def documents(seed, count):
    """Returns lists of tokens, of which some are empty, and each is near the one before it."""
    draw = random.Random(seed)
    lists = []
    for _ in range(count):
        token = draw.randrange(50)
        lists.append([token := (token + draw.randrange(3)) % 50 for _ in range(draw.randrange(40))])
    return lists


class ParquetTokensCase(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)

    def write(self, name, column, values, **options):
        (self.folder / name).parent.mkdir(exist_ok=True)
        pq.write_table(pa.table({"id": range(len(values)), column: values}), self.folder / name, row_group_size=10, **options)

    def train(self, *arguments, code=0, workers=0, **environment):
        command = [PROGRAM.parent / "lockstep_launch_local", str(workers), PROGRAM] if workers else [PROGRAM]
        recording = ["--log-every", 1] if "--run-dir" in arguments else []
        process = subprocess.run([*command, *map(str, [*TRAINING, *arguments, *recording])], capture_output=True, text=True, timeout=300,
                                 cwd=self.folder, check=False, env=os.environ | environment)
        self.assertEqual(process.returncode, code, process.stdout + process.stderr)
        return process

    def losses(self, run, kind):
        text = (self.folder / run / "metrics.jsonl").read_text(encoding="utf-8")
        return [line["loss" if kind == "step" else "validation_loss"] for line in map(json.loads, text.splitlines())
                if line["kind"] == kind]

    def expect_equal(self, losses, expected, count):
        self.assertEqual(len(expected), count)
        for loss, other in zip(expected, losses, strict=True):
            self.assertAlmostEqual(loss, other, delta=1e-9 * abs(loss))
