#!/usr/bin/env python3
"""train_gpt: replicas and workers train as one device does, a killed training resumes bit by bit, and bad input is named."""

import json
import math
import pathlib
import re
import shlex
import signal
import struct
import subprocess
import tempfile
import unittest

import workers
from gpt_training import PARITY, TIMEOUT, TINY, Case, ParityCase, digests_of, newest, test_losses, train


class ParityTest(ParityCase):
    def test_one_device_learns(self):
        self.assertEqual(len(self.losses), 3)
        self.assertLess(self.losses[2], self.losses[0])
        self.assertEqual(newest(self.alone).name, "checkpoint-000000000020")

    def test_two_and_four_replicas(self):
        for replicas in (2, 4):
            with self.subTest(replicas):
                folder = self.folder / str(replicas)
                output = train(*PARITY, "--replicas", replicas, "--backup-dir", folder).stdout
                self.check_like_one_device(folder, output)

    def test_micro_batches(self):
        output = train(*PARITY, "--replicas", 2, "--micro-batch-size", 2, "--backup-dir", self.folder).stdout
        self.assertIn("each step in 3 pieces", output)
        self.check_like_one_device(self.folder, output)

    def test_recomputed_blocks(self):
        output = train(*PARITY, "--recompute", "every_block", "--backup-dir", self.folder).stdout
        self.assertIn("every block in backward", output)
        self.check_like_one_device(self.folder, output)

    def test_tokens_per_step_are_sequences(self):
        arguments = [word for word in PARITY if word not in ("--global-batch-size", "10")]
        output = train(*arguments, "--tokens-per-step", 240, "--backup-dir", self.folder).stdout
        self.check_like_one_device(self.folder, output)

    def test_two_workers(self):
        # Worker 1 writes nothing, but every worker is started with the same flags.
        outputs = self.finish(*self.start_workers(2, *PARITY, "--backup-dir", self.folder))
        self.check_like_one_device(self.folder, outputs[0][0])
        self.assertEqual(outputs[1][0], "")


class ResumeTest(Case):
    TRAINING = [*TINY, "--replicas", "2", "--steps", "60", "--test-every", "25", "--global-batch-size", "8",
                "--dropout", "0.1", "--save-every", "5 steps"]

    @classmethod
    def setUpClass(cls):
        cls.shared = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.shared.cleanup)
        folder = pathlib.Path(cls.shared.name) / "whole"
        cls.output = train(*cls.TRAINING, "--backup-dir", folder).stdout
        cls.digests = digests_of(folder)
        assert cls.digests[0] == 60, cls.digests

    def test_a_killed_training_resumes_to_the_same_bits(self):
        for step in (10, 30, 55):  # within each of the three epochs, the last one of which is shorter
            process = self.start(*self.TRAINING, "--backup-dir", self.folder)
            self.await_step(step, process)
            process.kill()
            process.communicate()
        result = train(*self.TRAINING, "--backup-dir", self.folder)
        self.assertRegex(result.stderr, r"resumes after step 5\d from ")
        self.assertEqual(digests_of(self.folder), self.digests)
        self.assertEqual(test_losses(result.stdout), test_losses(self.output)[-1:])

    def test_sigterm_saves_and_names_the_command_that_resumes(self):
        process = self.start(*self.TRAINING, "--backup-dir", self.folder)
        self.await_step(15, process)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 143, said)
        command = re.search(r"to resume, run: (.*)\n", said).group(1)
        subprocess.run(shlex.split(command), check=True, capture_output=True, timeout=TIMEOUT, env=workers.clean_environment())
        self.assertEqual(digests_of(self.folder), self.digests)

    def test_a_finished_training_says_how_to_train_on(self):
        train(*self.TRAINING, "--backup-dir", self.folder)
        again = train(*self.TRAINING, "--backup-dir", self.folder)
        self.assertIn("this run had already finished: epoch 3 of 3; to train on, raise --steps", again.stderr)


class RecordTest(Case):
    def test_a_report_has_samples_and_what_the_loss_is_compared_with(self):
        run = self.folder / "run"
        output = train(*TINY, "--steps", 12, "--test-every", 6, "--global-batch-size", 4, "--run-dir", run).stdout
        page = (run / "report.html").read_text(encoding="utf-8")
        for part in ("<h2>Sample texts</h2>", "after step 12", "after step 6", "<h2>Losses compared</h2>", "entropy",
                     "bigram model", "5-gram model", "Tokens a second", "Above the entropy", "Model FLOP utilization"):
            self.assertIn(part, page)
        self.assertEqual(page.count('<figure class="chart sample">'), 6)
        epochs = [row for row in map(json.loads, (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
                  if row["kind"] == "epoch"]
        self.assertEqual([row["step"] for row in epochs], [6, 12])
        configuration = json.loads((run / "config.json").read_text(encoding="utf-8"))["resolved"]
        best = configuration["best-possible-test-loss"]["value"]
        for row in epochs:
            self.assertAlmostEqual(row["above_entropy"], row["validation_loss"] - best, places=9)
            self.assertAlmostEqual(row["tokens_per_second"] * configuration["flops-per-token"]["value"]
                                   / configuration["peak-flops-per-second"]["value"], row["model_flop_utilization"], places=9)
        self.assertRegex(output, r"test loss \d\.\d{4} nats a token, \d\.\d{4} above the entropy; bigram model \d")

    def test_a_configuration_repeats_the_run(self):
        run = self.folder / "run"
        first = train(*TINY, "--steps", 6, "--global-batch-size", 4, "--run-dir", run).stdout
        again = train("--config", run / "config.json").stdout
        self.assertEqual(test_losses(first), test_losses(again))
        other = train("--config", run / "config.json", "--seed", 2).stdout
        self.assertNotEqual(test_losses(first), test_losses(other))

    def test_trained_weights_are_initial_weights(self):
        run = self.folder / "run"
        train(*TINY, "--steps", 30, "--global-batch-size", 4, "--run-dir", run)
        checkpoint = next(iter((run / "checkpoints").iterdir()))
        fresh = test_losses(train(*TINY, "--steps", 1, "--learning-rate", 1e-9).stdout)
        given = test_losses(train(*TINY, "--steps", 1, "--learning-rate", 1e-9, "--init-weights", checkpoint).stdout)
        self.assertLess(given[0], fresh[0] - 0.1)

    def test_a_prompt_is_continued(self):
        text = self.folder / "text.txt"
        text.write_text("It was the best of times, it was the worst of times. " * 40, encoding="utf-8")
        output = train(*TINY, "--data", text, "--steps", 2, "--global-batch-size", 4, "--sample", "It was").stdout
        self.assertRegex(output, r"(?m)^  It was")


class WeightsTest(Case):
    def test_published_weights_come_with_their_tokenizer(self):
        model = self.folder / "model"
        model.mkdir()
        (model / "config.json").write_text(json.dumps(LLAMA), encoding="utf-8")
        (model / "tokenizer.json").write_text(json.dumps(byte_level_tokenizer()), encoding="utf-8")
        tensors(model / "model.safetensors", LLAMA_TENSORS)
        text = self.folder / "text.txt"
        text.write_text("one two three four " * 60, encoding="utf-8")
        result = train("--data", text, "--init-weights", model, "--sequence-length", 16, "--steps", 1, "--learning-rate", 1e-12,
                       "--global-batch-size", 4, "--sample-tokens", 4, "--threads", 1)
        # A Gpt has the queries, keys and values of a layer in one tensor.
        self.assertIn(f"weights          {len(LLAMA_TENSORS) - 2 * 2} tensors of {model}", result.stdout)
        # Zeros predict each of the 300 tokens alike.
        self.assertEqual(test_losses(result.stdout), [round(math.log(300), 4)])

    def test_a_training_that_is_made_longer_makes_the_steps_that_are_left(self):
        arguments = [*TINY, "--test-every", 5, "--global-batch-size", 4, "--backup-dir", self.folder]
        train(*arguments, "--steps", 12)
        self.assertEqual(newest(self.folder).name, "checkpoint-000000000012")
        result = train(*arguments, "--steps", 20)
        self.assertIn("resumes with other settings than before: steps 12 -> 20", result.stderr)
        self.assertIn("epoch 4/4", result.stdout)
        self.assertEqual(newest(self.folder).name, "checkpoint-000000000020")


def token_file(tokens, tail=b""):
    return struct.pack(f"<{len(tokens)}H", *tokens) + tail


class BadInputTest(Case):
    """Each ends with its exit code and one line that names the file or the flag."""

    def expect(self, code, parts, *arguments):
        result = train(*TINY, "--steps", 1, *arguments, check=False)
        self.assertEqual(result.returncode, code, result.stderr)
        self.assertTrue(result.stderr.startswith("train_gpt: error: "), result.stderr)
        self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
        for part in parts:
            self.assertIn(str(part), result.stderr)

    def write(self, name, content):
        path = self.folder / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def test_token_files(self):
        odd = self.write("odd.bin", token_file(range(100), b"\0"))
        self.expect(3, [odd, "201 bytes"], "--data", odd, "--vocabulary-size", 100)
        cut = self.write("cut.bin", struct.pack("<256i", 20240520, 1, 500, *[0] * 253) + token_file(range(100)))
        self.expect(3, [cut, "500"], "--data", cut, "--vocabulary-size", 100)
        beyond = self.write("beyond.bin", token_file([*range(100), 100, 5]))
        self.expect(3, [beyond, "100"], "--data", beyond, "--vocabulary-size", 100)
        empty = self.write("empty.bin", b"")
        self.expect(3, [empty, "empty"], "--data", empty, "--vocabulary-size", 100)
        short = self.write("short.bin", token_file(range(30)))
        self.expect(3, [short, "at least 2 sequences of 24"], "--data", short, "--vocabulary-size", 100)
        self.expect(2, [short, "--vocabulary-size"], "--data", short)

    def test_text_files(self):
        latin = self.write("latin.txt", ("caf\xe9 " * 200).encode("latin-1"))
        tokenizer = self.write("tokenizer.json", json.dumps(byte_level_tokenizer()))
        self.expect(3, [latin, "byte 3 of its text", "valid UTF-8", "0xe9"], "--data", latin, "--tokenizer", tokenizer)
        lines = self.write("lines.jsonl", b'{"text": "fine"}\n{"text": "caf\xe9"}\n')
        self.expect(3, [lines, "line 2"], "--data", lines)
        other = self.write("other.jsonl", '{"body": "fine"}\n')
        self.expect(3, [other, "text"], "--data", other)
        empty = self.write("empty.txt", "")
        self.expect(3, [empty], "--data", empty)
        self.expect(3, [self.folder / "none.txt"], "--data", self.folder / "none.txt")
        self.expect(3, [self.folder], "--data", self.write("folder.txt", "x" * 10).parent / "*.zip")

    def test_bytes_that_are_not_utf8_are_tokens_of_their_own_without_a_tokenizer(self):
        latin = self.write("latin.txt", ("caf\xe9 " * 200).encode("latin-1"))
        train(*TINY, "--steps", 1, "--data", latin)

    def test_tokenizers(self):
        text = self.write("text.txt", "some text " * 100)
        unigram = byte_level_tokenizer()
        unigram["model"] = {"type": "Unigram", "vocab": [["a", 0.0]]}
        other = self.write("tokenizer.json", json.dumps(unigram))
        self.expect(3, [other, "BPE", "Unigram"], "--data", text, "--tokenizer", other)
        broken = self.write("broken.json", "{")
        self.expect(3, [broken], "--data", text, "--tokenizer", broken)
        alone = self.write("vocab.bpe", "#version: 0.2\n")
        self.expect(3, ["encoder.json"], "--data", text, "--tokenizer", alone)

    def test_weights(self):
        model = self.folder / "model"
        model.mkdir()
        (model / "config.json").write_text(json.dumps(LLAMA | {"num_hidden_layers": 3}), encoding="utf-8")
        tensors(model / "model.safetensors", {"model.embed_tokens.weight": (300, 16)})
        self.expect_plain(4, [model / "model.safetensors", "layers.0"], "--init-weights", model)
        (model / "config.json").write_text(json.dumps(LLAMA | {"hidden_size": 32}), encoding="utf-8")
        self.expect_plain(4, [model / "model.safetensors", "model.embed_tokens.weight", "[300, 32]", "[300, 16]"],
                          "--init-weights", model)
        (model / "config.json").write_text(json.dumps(LLAMA | {"model_type": "bert"}), encoding="utf-8")
        self.expect_plain(4, [model, "config.json", "bert"], "--init-weights", model)
        (model / "config.json").write_text(json.dumps(LLAMA), encoding="utf-8")
        self.expect_plain(2, ["--layers 5", "2", "config.json"], "--init-weights", model, "--layers", 5)
        (model / "model.safetensors.index.json").write_text("{}", encoding="utf-8")
        self.expect_plain(4, [model, "split into several files"], "--init-weights", model)
        self.expect_plain(4, [self.folder / "nothing"], "--init-weights", self.folder / "nothing")

    def expect_plain(self, code, parts, *arguments):
        """Without the sizes of TINY, which are not those of the weights."""
        result = train("--steps", 1, "--sequence-length", 8, "--limit-test", 4, *arguments, check=False)
        self.assertEqual(result.returncode, code, result.stderr)
        for part in parts:
            self.assertIn(str(part), result.stderr)

    def test_sequences_longer_than_the_positions(self):
        result = train("--model", "gpt2", "--sequence-length", 2048, check=False)
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn("--sequence-length 2048: expected at most 1024, the positions of gpt2", result.stderr)

    def test_sizes_and_prompts(self):
        self.expect(2, ["--heads 3: expected a divisor of the 16 of --hidden"], "--heads", 3)
        self.expect(2, ["--tokens-per-step 100: expected a multiple of the sequence length 24"], "--tokens-per-step", 100)
        self.expect(2, ["--sample: expected words of the generated language"], "--sample", "the monk flies")

    def test_a_loss_that_is_not_finite(self):
        result = train(*TINY, "--steps", 20, "--learning-rate", 1e30, "--warmup-steps", 0, "--clip-norm", 0, check=False)
        self.assertEqual(result.returncode, 6, result.stderr)
        self.assertIn("--learning-rate 1e+30", result.stderr)


LLAMA = {"model_type": "llama", "vocab_size": 300, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
         "num_key_value_heads": 2, "intermediate_size": 40, "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
         "hidden_act": "silu", "tie_word_embeddings": True}

LLAMA_TENSORS = {"model.embed_tokens.weight": (300, 16), "model.norm.weight": (16,)} | {
    f"model.layers.{layer}.{name}.weight": shape for layer in range(2) for name, shape in {
        "self_attn.q_proj": (16, 16), "self_attn.k_proj": (16, 16), "self_attn.v_proj": (16, 16), "self_attn.o_proj": (16, 16),
        "mlp.gate_proj": (40, 16), "mlp.up_proj": (40, 16), "mlp.down_proj": (16, 40), "input_layernorm": (16,),
        "post_attention_layernorm": (16,)}.items()}


def tensors(path, shapes):
    """Writes a .safetensors file of zeros: its length, a header in JSON, and the values."""
    header, values = {}, b""
    for name, shape in shapes.items():
        size = 4
        for length in shape:
            size *= length
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [len(values), len(values) + size]}
        values += bytes(size)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + values)


def byte_level_tokenizer():
    """A tokenizer.json with a token for each byte, under the names that GPT-2 gives them, and one for the end of a text."""
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = iter(range(256, 512))
    names = [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]
    return {"version": "1.0", "truncation": None, "padding": None,
            "added_tokens": [{"id": 256, "content": "<|endoftext|>", "single_word": False, "lstrip": False, "rstrip": False,
                              "normalized": False, "special": True}],
            "normalizer": None,
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
            "post_processor": None, "decoder": {"type": "ByteLevel"},
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                      "vocab": {name: byte for byte, name in enumerate(names)}, "merges": []}}


if __name__ == "__main__":
    unittest.main()
