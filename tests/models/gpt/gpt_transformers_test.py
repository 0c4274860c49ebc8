#!/usr/bin/env python3
"""Compares Gpt with GPT2LMHeadModel and LlamaForCausalLM of Hugging Face's transformers: logits, files both ways, and generated
tokens, for small configurations with random weights."""

import json
import os
import pathlib
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
PEER = os.environ["GPT_PEER"]
LLAMA3 = {"rope_type": "llama3", "rope_theta": 500.0, "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 16}


def gpt2(**changes):
    return transformers.GPT2Config(**{"vocab_size": 61, "n_positions": 24, "n_embd": 24, "n_layer": 3, "n_head": 4,
                                      "bos_token_id": None, "eos_token_id": None, **changes})


def llama(**changes):
    return transformers.LlamaConfig(**{"vocab_size": 61, "max_position_embeddings": 24, "hidden_size": 32, "intermediate_size": 44,
                                       "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
                                       "bos_token_id": None, "eos_token_id": None, **changes})


CONFIGURATIONS = {
    "gpt2": gpt2(),
    "gpt2, own head, exact GELU": gpt2(tie_word_embeddings=False, activation_function="gelu", n_inner=40),
    "gpt2, another epsilon": gpt2(layer_norm_epsilon=1e-2, n_head=1),
    "llama": llama(),
    "llama, a key for each query": llama(num_key_value_heads=4, rms_norm_eps=1e-2),
    "llama, tied, biases, wide heads": llama(tie_word_embeddings=True, attention_bias=True, mlp_bias=True, head_dim=12,
                                             num_key_value_heads=1),
    "llama, linear rope": llama(rope_parameters={"rope_type": "linear", "factor": 3.0, "rope_theta": 100.0}),
    "llama, llama3 rope": llama(rope_parameters=LLAMA3),
}


def make_model(configuration):
    """Every parameter gets values that matter; transformers starts biases at 0 and norms at 1."""
    torch.manual_seed(1)
    model = transformers.AutoModelForCausalLM.from_config(configuration).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.0, 0.3)
    return model


class GptTransformersTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        # One process for all commands: to load LibTorch takes longer than each of them.
        cls.process = cls.enterClassContext(subprocess.Popen([PEER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))

    def answer(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def peer(self, *words):
        self.assertEqual(self.answer(*words), "done")

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def each_model(self):
        for number, (name, configuration) in enumerate(CONFIGURATIONS.items()):
            with self.subTest(name):
                folder = self.folder / str(number)
                model = make_model(configuration)
                model.save_pretrained(folder)
                yield model, folder

    def logits(self, folder, tokens):
        safetensors.torch.save_file({"tokens": tokens}, self.folder / "tokens")
        self.peer("logits", folder, self.folder / "tokens", self.folder / "logits")
        return safetensors.torch.load_file(self.folder / "logits")["logits"]

    def load(self, folder):
        """Loads a folder and expects that every tensor fits."""
        model, report = transformers.AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
        for kind in ["missing_keys", "unexpected_keys", "mismatched_keys"]:
            self.assertEqual(list(report[kind]), [], kind)
        return model.eval()

    def test_files_of_transformers_give_its_logits(self):
        for model, folder in self.each_model():
            tokens = torch.randint(61, (3, 24))
            with torch.no_grad():
                expected = model(tokens).logits
            self.assertGreater(expected.std(), 0.1)
            self.assertLess((self.logits(folder, tokens) - expected).abs().max(), 1e-4)

    def test_transformers_loads_files_of_ours(self):
        for model, folder in self.each_model():
            ours = folder / "ours"
            ours.mkdir()
            self.peer("copy", folder, ours)
            loaded = self.load(ours)
            self.assertEqual(type(loaded), type(model))
            given = loaded.state_dict()
            for name, tensor in model.state_dict().items():
                self.assertTrue(torch.equal(given[name], tensor), name)
            tokens = torch.randint(61, (2, 24))
            with torch.no_grad():
                self.assertTrue(torch.equal(loaded(tokens).logits, model(tokens).logits))
            names = [sorted(safetensors.torch.load_file(place / "model.safetensors")) for place in (folder, ours)]
            self.assertEqual(*names)

    def test_transformers_loads_new_models_of_ours(self):
        for _, folder in self.each_model():
            ours = folder / "new"
            ours.mkdir()
            self.peer("make", folder / "config.json", ours)
            loaded = self.load(ours)
            tokens = torch.randint(61, (2, 24))
            with torch.no_grad():
                self.assertLess((self.logits(ours, tokens) - loaded(tokens).logits).abs().max(), 1e-4)

    def test_names_without_the_prefix_are_read(self):
        model = make_model(gpt2())
        model.transformer.save_pretrained(self.folder / "bare")  # as the hub's gpt2
        names = list(safetensors.torch.load_file(self.folder / "bare" / "model.safetensors"))
        self.assertIn("wte.weight", names)
        tokens = torch.randint(61, (2, 24))
        with torch.no_grad():
            expected = model(tokens).logits
        self.assertLess((self.logits(self.folder / "bare", tokens) - expected).abs().max(), 1e-4)

    def test_greedy_tokens_are_those_of_transformers(self):
        for model, folder in self.each_model():
            prompts = [[1, 2, 3, 4, 5, 6], [7], [8, 9, 10], [11, 12, 13]]
            lines, out = self.folder / "prompts", self.folder / "generated"
            lines.write_text("".join(" ".join(map(str, prompt)) + "\n" for prompt in prompts), encoding="utf-8")
            self.peer("generate", folder, lines, 12, out)
            generated = [list(map(int, line.split())) for line in out.read_text(encoding="utf-8").splitlines()]
            for prompt, tokens in zip(prompts, generated, strict=True):
                with torch.no_grad():
                    expected = model.generate(torch.tensor([prompt]), max_new_tokens=12, do_sample=False, pad_token_id=0)
                self.assertEqual(tokens, expected[0, len(prompt):].tolist())

    def test_weights_of_another_configuration_are_refused(self):
        make_model(gpt2()).save_pretrained(self.folder / "model")
        configuration = self.folder / "model" / "config.json"
        text = configuration.read_text(encoding="utf-8")
        configuration.write_text(text.replace('"n_positions": 24', '"n_positions": 25'), encoding="utf-8")
        weights = self.folder / "model" / "model.safetensors"
        self.assertEqual(self.answer("copy", self.folder / "model", self.folder),
                         f"{weights}: tensor 'transformer.wpe.weight': expected [25, 24], but got [24, 24]")

    def test_parameters_are_as_many_as_transformers_counts(self):
        for model, folder in self.each_model():
            with open(folder / "config.json", encoding="utf-8") as file:
                self.assertEqual(json.load(file)["model_type"], model.config.model_type)
            # Shared tensors count once on both sides.
            ours = folder / "ours"
            ours.mkdir()
            self.peer("copy", folder, ours)
            count = sum(tensor.numel() for tensor in safetensors.torch.load_file(ours / "model.safetensors").values())
            self.assertEqual(count, model.num_parameters())


if __name__ == "__main__":
    unittest.main()
