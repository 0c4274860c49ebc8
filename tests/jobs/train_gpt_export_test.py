#!/usr/bin/env python3
"""Models of train_gpt as folders of Hugging Face's transformers: export_weights writes them, --init-weights reads them, and both
sides agree on losses, logits and greedy tokens."""

import json
import math
import os
import pathlib
import random
import re
import struct
import subprocess
import sys
import tempfile
import unittest

os.environ["HF_HUB_OFFLINE"] = "1"

try:
    import safetensors.torch
    import torch
    import transformers
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(0)

transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()
PROGRAM, EXPORT, PEER = (os.environ[name] for name in ("TRAIN_GPT", "EXPORT_WEIGHTS", "GPT_PEER"))
# The programs' libraries and Python's packages must not affect each other.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "LD_LIBRARY_PATH")}
VOCABULARY, LENGTH = 61, 16
FAMILIES = {
    "gpt2": ["--family", "gpt2"],
    "llama": ["--family", "llama", "--kv-heads", "1", "--mlp-hidden", "44"],
}
SIZES = ["--layers", "2", "--hidden", "32", "--heads", "2", "--sequence-length", LENGTH, "--vocabulary-size", VOCABULARY]
PROMPT = [3, 1, 4, 1, 5]
# Updates that are smaller than what float32 can add to a weight.
NO_UPDATE = ["--steps", "1", "--learning-rate", "1e-30"]


def run(program, *arguments, check=True):
    result = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, timeout=300, check=False,
                            env=ENVIRONMENT)
    if check and result.returncode != 0:
        raise AssertionError(f"exit code {result.returncode}:\n{result.stdout}{result.stderr}")
    return result


class ExportTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.shared = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        cls.train_file, cls.test_file = (cls.write_tokens(name, seed, count)
                                         for name, seed, count in (("train.bin", 1, 4000), ("test.bin", 2, 8 * LENGTH + 1)))
        cls.runs = {}
        for family, flags in FAMILIES.items():
            cls.runs[family] = cls.shared / family
            cls.train(*flags, "--steps", 60, "--test-every", 30, "--learning-rate", 0.02, "--run-dir", cls.runs[family])

    @classmethod
    def write_tokens(cls, name, seed, count):
        """Tokens that mostly follow from the one before them, so that there is something to learn."""
        draw = random.Random(seed)
        tokens = [1]
        while len(tokens) < count:
            tokens.append((3 * tokens[-1] + 7) % VOCABULARY if draw.random() < 0.9 else draw.randrange(VOCABULARY))
        path = cls.shared / name
        path.write_bytes(struct.pack(f"<{count}H", *tokens))
        return path

    @classmethod
    def train(cls, *arguments):
        return run(PROGRAM, "--data", cls.train_file, "--test-data", cls.test_file, "--global-batch-size", 8, "--threads", 1,
                   "--sample", " ".join(map(str, PROMPT)), "--temperature", 0, "--sample-tokens", 8, *SIZES, *arguments).stdout

    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def export(self, run_directory, out, checkpoint="last.pt"):
        return run(EXPORT, "--model", run_directory / "model.json", run_directory / "checkpoints" / checkpoint, out).stdout

    def load(self, folder):
        """Loads a folder and expects that every tensor fits."""
        model, report = transformers.AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
        for kind in ["missing_keys", "unexpected_keys", "mismatched_keys"]:
            self.assertEqual(list(report[kind]), [], kind)
        return model.eval()

    def tokens_of_test_file(self):
        count = self.test_file.stat().st_size // 2
        return struct.unpack(f"<{count}H", self.test_file.read_bytes())

    def loss(self, model):
        """The mean loss of the test file's tokens."""
        tokens = self.tokens_of_test_file()
        inputs = torch.tensor([tokens[i:i + LENGTH] for i in range(0, len(tokens) - 1, LENGTH)])
        targets = torch.tensor([tokens[i + 1:i + LENGTH + 1] for i in range(0, len(tokens) - 1, LENGTH)])
        with torch.no_grad():
            return torch.nn.functional.cross_entropy(model(inputs).logits.flatten(0, 1), targets.flatten()).item()

    def recorded_loss(self, run_directory):
        rows = map(json.loads, (run_directory / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
        return [row for row in rows if row["kind"] == "epoch"][-1]["validation_loss"]

    def greedy(self, model):
        with torch.no_grad():
            tokens = model.generate(torch.tensor([PROMPT]), max_new_tokens=8, do_sample=False, pad_token_id=0, eos_token_id=None)
        return tokens[0, len(PROMPT):].tolist()

    def peer_logits(self, folder, tokens):
        safetensors.torch.save_file({"tokens": tokens}, self.folder / "tokens")
        command = f"logits {folder} {self.folder / 'tokens'} {self.folder / 'logits'}\n"
        answer = subprocess.run([PEER], input=command, capture_output=True, text=True, check=True, env=ENVIRONMENT).stdout
        self.assertEqual(answer, "done\n")
        return safetensors.torch.load_file(self.folder / "logits")["logits"]

    def test_transformers_computes_what_was_trained(self):
        for family, run_directory in self.runs.items():
            with self.subTest(family):
                output = self.export(run_directory, self.folder / family)
                self.assertRegex(output, rf"^{re.escape(str(self.folder / family))}: \d+ tensors, \d+ bytes\n$")
                model = self.load(self.folder / family)
                self.assertEqual(model.config.model_type, family)
                loss = self.recorded_loss(run_directory)
                self.assertLess(loss, math.log(VOCABULARY) - 0.3, "the model has learned something")
                self.assertAlmostEqual(self.loss(model), loss, places=5)
                tokens = torch.randint(VOCABULARY, (3, LENGTH))
                with torch.no_grad():
                    expected = model(tokens).logits
                self.assertLess((self.peer_logits(self.folder / family, tokens) - expected).abs().max(), 1e-4)

    def test_exported_weights_are_initial_weights(self):
        for family, run_directory in self.runs.items():
            with self.subTest(family):
                exported = self.folder / family
                self.export(run_directory, exported)
                again = self.folder / f"{family}-again"
                output = self.train("--init-weights", exported, *NO_UPDATE, "--run-dir", again)
                self.assertAlmostEqual(self.recorded_loss(again), self.recorded_loss(run_directory), places=5)
                # Greedy samples of train_gpt are those of transformers.
                sample = re.search(rf"(?m)^  {' '.join(map(str, PROMPT))}(.*)$", output).group(1)
                self.assertEqual(list(map(int, sample.split())), self.greedy(self.load(exported)))
                # Exported once more, the weights have the same bits.
                self.export(again, self.folder / f"{family}-twice")
                first, second = (safetensors.torch.load_file(folder / "model.safetensors")
                                 for folder in (exported, self.folder / f"{family}-twice"))
                self.assertEqual(sorted(first), sorted(second))
                for name, tensor in first.items():
                    self.assertTrue(torch.equal(tensor, second[name]), name)

    def test_models_of_transformers_come_back_unchanged(self):
        configurations = {
            "gpt2": transformers.GPT2Config(vocab_size=VOCABULARY, n_positions=LENGTH, n_embd=32, n_layer=2, n_head=2,
                                            bos_token_id=None, eos_token_id=None),
            "llama": transformers.LlamaConfig(vocab_size=VOCABULARY, max_position_embeddings=LENGTH, hidden_size=32,
                                              intermediate_size=44, num_hidden_layers=2, num_attention_heads=2,
                                              num_key_value_heads=1, bos_token_id=None, eos_token_id=None)}
        for family, configuration in configurations.items():
            with self.subTest(family):
                torch.manual_seed(1)
                model = transformers.AutoModelForCausalLM.from_config(configuration).eval()
                with torch.no_grad():
                    for parameter in model.parameters():
                        parameter.normal_(0.0, 0.3)
                theirs, record = self.folder / family, self.folder / f"{family}-run"
                model.save_pretrained(theirs)
                self.train("--init-weights", theirs, *NO_UPDATE, "--run-dir", record)
                self.assertAlmostEqual(self.recorded_loss(record), self.loss(model), delta=1e-4)
                self.export(record, self.folder / f"{family}-back")
                loaded = self.load(self.folder / f"{family}-back").state_dict()
                for name, tensor in model.state_dict().items():
                    self.assertTrue(torch.equal(loaded[name], tensor), name)

    def test_checkpoints_of_every_kind_are_exported(self):
        run_directory, backup = self.folder / "run", self.folder / "backup"
        self.train("--steps", 4, "--precision", "float64", "--run-dir", run_directory, "--backup-dir", backup)
        for number, checkpoint in enumerate([run_directory / "checkpoints/best.pt", run_directory / "checkpoints/last.safetensors",
                                             max(backup.glob("checkpoint-*"))]):
            out = self.folder / str(number)
            run(EXPORT, "--model", run_directory / "model.json", checkpoint, out)
            tensors = safetensors.torch.load_file(out / "model.safetensors")
            self.assertEqual({tensor.dtype for tensor in tensors.values()}, {torch.float64})
            model = transformers.AutoModelForCausalLM.from_pretrained(out, dtype=torch.float64).eval()
            self.assertAlmostEqual(self.loss(model), self.recorded_loss(run_directory), places=8)

    def refusal(self, code, *arguments):
        result = run(EXPORT, *arguments, check=False)
        self.assertEqual(result.returncode, code, result.stderr)
        self.assertEqual(result.stdout, "")
        self.assertRegex(result.stderr, r"^export_weights: error: [^\n]*\n$")
        return result.stderr

    def test_a_configuration_that_does_not_fit_is_refused_by_the_tensor(self):
        run_directory, out = self.runs["llama"], self.folder / "out"
        weights = run_directory / "checkpoints/last.pt"
        text = (run_directory / "model.json").read_text(encoding="utf-8")
        model = self.folder / "model.json"
        for change, parts in [({"intermediate_size": 48}, ["blocks.0.gate.weight", "[48, 32]", "[44, 32]"]),
                              ({"vocab_size": 62}, ["tokens.weight", "[62, 32]", "[61, 32]"]),
                              ({"num_hidden_layers": 3}, ["blocks.2.", "no such tensor"]),
                              ({"num_hidden_layers": 1}, ["blocks.1.", "no such tensor"])]:
            model.write_text(json.dumps(json.loads(text) | change), encoding="utf-8")
            refusal = self.refusal(4, "--model", model, weights, out)
            for part in [str(weights), *parts]:
                self.assertIn(part, refusal)
        other = self.refusal(4, "--model", self.runs["gpt2"] / "model.json", weights, out)
        self.assertIn(str(weights), other)
        self.assertIn("tensor", other)
        self.assertFalse(out.exists())

    def test_models_that_cannot_be_read(self):
        weights, out = self.runs["gpt2"] / "checkpoints/last.pt", self.folder / "out"
        self.assertIn("nowhere.json", self.refusal(4, "--model", self.folder / "nowhere.json", weights, out))
        model = self.folder / "model.json"
        model.write_text("{", encoding="utf-8")
        self.assertIn(str(model), self.refusal(4, "--model", model, weights, out))
        model.write_text('{"model_type": "bert"}', encoding="utf-8")
        self.assertIn("bert", self.refusal(4, "--model", model, weights, out))
        # The configuration of the run is another file.
        self.assertIn("model_type", self.refusal(4, "--model", self.runs["gpt2"] / "config.json", weights, out))
        self.assertIn("nothing", self.refusal(4, "--model", self.runs["gpt2"] / "model.json", self.folder / "nothing", out))
        self.assertFalse(out.exists())

    def test_files_are_replaced_only_when_told_to(self):
        arguments = ["--model", self.runs["gpt2"] / "model.json", self.runs["gpt2"] / "checkpoints/last.pt"]
        for name in ("config.json", "model.safetensors"):
            out = self.folder / name.split(".")[0]
            out.mkdir()
            (out / name).write_text("old", encoding="utf-8")
            self.assertIn(f"{out / name}: expected no such file yet", self.refusal(2, *arguments, out))
            self.assertEqual((out / name).read_text(encoding="utf-8"), "old")
            run(EXPORT, *arguments, out, "--force")
            self.load(out)
        file = self.folder / "file"
        file.write_text("old", encoding="utf-8")
        self.assertIn("expected a folder", self.refusal(2, *arguments, file, "--force"))
        self.assertIn(f"{file / 'below'}: cannot be made", self.refusal(4, *arguments, file / "below"))

    def test_a_model_of_neither_family_has_no_model_json(self):
        run_directory = self.folder / "run"
        self.train("--family", "gpt2", "--kv-heads", 1, "--steps", 1, "--run-dir", run_directory)
        self.assertFalse((run_directory / "model.json").exists())


if __name__ == "__main__":
    unittest.main()
