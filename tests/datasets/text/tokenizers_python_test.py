#!/usr/bin/env python3
"""Compares BytePairTokenizer with the Python package `tokenizers`: TOKENIZE_TEXTS names the program that encodes."""

import itertools
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unicodedata
import unittest

os.environ["TOKENIZERS_PARALLELISM"] = "false"
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
# pylint: disable=wrong-import-position
from tokenizers import AddedToken, ByteLevelBPETokenizer, Regex, normalizers, pre_tokenizers

from tokenizer_kinds import BYTES, KINDS, byte_level, made, splits
from tokenizer_texts import TextMaker

TOKENIZE_TEXTS = os.environ["TOKENIZE_TEXTS"]


def byte_alphabet():
    """GPT-2's characters for bytes: those that are printable in Latin-1 stand for themselves, the rest in their order from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return [chr(byte) if byte in printable else chr(256 + others.index(byte)) for byte in range(256)]


def framed(texts):
    return b"".join(b"%d\n%b" % (len(text), text) for text in texts)


def unframed(output):
    """The ids and the decoded bytes of each text."""
    results, at = [], 0
    while at < len(output):
        line = output.index(b"\n", at)
        ids = [int(number) for number in output[at:line].split()]
        begin = output.index(b"\n", line + 1) + 1
        at = begin + int(output[line + 1:begin])
        results.append((ids, output[begin:at]))
    return results


class TokenizersCase(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()  # pylint: disable=consider-using-with
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def tokenize(self, tokenizer, texts, *flags):
        """What Lockstep makes of texts, with a tokenizer of the package or at a path."""
        path = tokenizer
        if not isinstance(tokenizer, pathlib.Path):
            path = self.folder / "tokenizer.json"
            tokenizer.save(str(path))
        (self.folder / "texts").write_bytes(framed(text if isinstance(text, bytes) else text.encode() for text in texts))
        subprocess.run([TOKENIZE_TEXTS, path, self.folder / "texts", self.folder / "out", *flags], check=True)
        results = unframed((self.folder / "out").read_bytes())
        self.assertEqual(len(results), len(texts))
        return results

    def expect_as_package(self, tokenizer, texts, *flags):
        tokenizer.encode_special_tokens = "as_text" in flags
        for text, (ids, decoded) in zip(texts, self.tokenize(tokenizer, texts, *flags)):
            expected = tokenizer.encode(text, add_special_tokens="plain" not in flags).ids
            if ids != expected:
                at = next((i for i, (a, b) in enumerate(zip(ids, expected)) if a != b), min(len(ids), len(expected)))
                here = [[(i, tokenizer.id_to_token(i)) for i in side[max(0, at - 2):at + 4]] for side in (ids, expected)]
                self.fail(f"token {at}: got {here[0]}, but expected {here[1]}; after "
                          f"{tokenizer.decode(expected[max(0, at - 8):at], skip_special_tokens=False)!r}; in {text[:3000]!r}")
            package = tokenizer.decode(expected, skip_special_tokens="skip" in flags)
            self.assertEqual(decoded.decode("utf-8", "replace"), package)


class KindsTest(TokenizersCase):
    def test_every_kind_gives_the_ids_of_the_package(self):
        for name in [make.__name__ for make in KINDS]:
            with self.subTest(name):
                tokenizer = made(name)
                maker = TextMaker(name, [token.content for token in tokenizer.get_added_tokens_decoder().values()])
                texts = [maker.text() for _ in range(300)] + maker.long_texts()
                self.expect_as_package(tokenizer, texts)
                self.expect_as_package(tokenizer, texts[:100], "plain", "skip")
                self.expect_as_package(tokenizer, texts[:100], "as_text")

    def test_every_character_gives_the_ids_of_the_package(self):
        """Within text, and beside other characters, in each script's own text and alone."""
        characters = [chr(code) for code in itertools.chain(range(0x3000), range(0xA640, 0xAB70), range(0xF900, 0x10000))
                      if not 0xD800 <= code < 0xE000]
        # The package normalizes as Unicode 12 does, which does not have these letters.
        known = [character for character in characters
                 if unicodedata.category(character) != "Cn" and character not in "\ua7f2\ua7f3\ua7f4\uab69"]
        texts = ["".join(f"{character}a {character}1{character}{character}!\n{character} " for character in known[i:i + 64])
                 for i in range(0, len(known), 64)]
        for name in ["gpt2", "llama3", "qwen2", "gpt4o", "deepseek", "nfkc", "nfd", "nfkd", "llama2"]:
            with self.subTest(name):
                self.expect_as_package(made(name), texts)


class AddedTokensTest(TokenizersCase):
    def test_all_flags_of_added_tokens(self):
        for normalizer in [None, normalizers.NFKC()]:
            tokenizer = byte_level(splits(r"\s+"), normalizer=normalizer)
            flags = itertools.product([False, True], repeat=5)
            tokens = []
            for single_word, lstrip, rstrip, normalized, special in flags:
                text = "tok" + "".join("FT"[flag] for flag in (single_word, lstrip, rstrip, normalized, special)) + "\ufb01"
                tokens.append(text)
                token = AddedToken(text, single_word=single_word, lstrip=lstrip, rstrip=rstrip, normalized=normalized, special=special)
                (tokenizer.add_special_tokens if special else tokenizer.add_tokens)([token])
            maker = TextMaker("flags", tokens + [token.replace("\ufb01", "fi") for token in tokens])
            texts = ["".join(maker.fragment() if maker.rng.random() < 0.5 else maker.rng.choice(tokens) for _ in range(30))
                     for _ in range(400)]
            self.expect_as_package(tokenizer, texts)
            self.expect_as_package(tokenizer, texts, "as_text")

    def test_tokens_that_begin_alike_overlap_or_hold_one_another(self):
        tokenizer = byte_level(splits(r"\s+"))
        tokens = ["ab", "abc", "abcabd", "bca", "b", "ca", "aa", "aaa", "<|a|>", "<|a", "|>"]
        tokenizer.add_tokens([AddedToken(token, normalized=index % 2 == 0) for index, token in enumerate(tokens)])
        rng = TextMaker("overlap").rng
        self.expect_as_package(tokenizer, ["".join(rng.choice("abcd<|> ") for _ in range(40)) for _ in range(500)])


class SplitsTest(TokenizersCase):
    def test_all_behaviors_of_splits(self):
        maker = TextMaker("behaviors")
        texts = [maker.text() for _ in range(40)] + maker.long_texts()
        patterns = [Regex(r"\s+"), Regex(r"\p{L}+"), " ", "a", Regex(r"(?=\p{Lu})"), Regex(r"x*"), Regex(r"[^\S\r]{,2}|$"), Regex(r"[\S\v]{1,}?\D"),
                    Regex(r"(?<!\p{L})\d{2,}?"), Regex(r"^.|(?>\p{Han}+)|\u3042|\x{1F600}|(a|e)++")]
        for behavior in ["removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"]:
            for pattern, invert in itertools.product(patterns, [False, True]):
                with self.subTest(behavior=behavior, pattern=str(pattern), invert=invert):
                    tokenizer = made("gpt2")
                    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
                        pre_tokenizers.Split(pattern, behavior, invert=invert),
                        pre_tokenizers.ByteLevel(add_prefix_space=behavior == "isolated", use_regex=invert)])
                    self.expect_as_package(tokenizer, texts)


class FilesTest(TokenizersCase):
    def test_the_pair_of_files_of_gpt2(self):
        tokenizer = made("gpt2")
        maker = TextMaker("pair", ["<|endoftext|>"])
        texts = [maker.text() for _ in range(100)]
        for names in [("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe")]:
            folder = self.folder / names[0]
            folder.mkdir()
            tokenizer.model.save(str(folder))
            for old, new in zip(["vocab.json", "merges.txt"], names):
                (folder / old).rename(folder / new)
            package = ByteLevelBPETokenizer(str(folder / names[0]), str(folder / names[1]))
            package.add_special_tokens(["<|endoftext|>"])
            for text, (ids, decoded) in zip(texts, self.tokenize(folder, texts)):
                self.assertEqual(ids, package.encode(text).ids)
                self.assertEqual(decoded.decode(), text)


class BrokenBytesTest(TokenizersCase):
    def test_broken_bytes_are_single_tokens_between_texts_of_their_own(self):
        """The package takes only text; it encodes what is between the bytes."""
        broken = [b"\xff", b"\x80", b"\xc3", b"\xe2\x82", b"\xf0\x9f\x98", b"\xed\xa0\x80", b"\xc0\xaf", b"\xf5\x80\x80\x80", b"\xf4\x90\x80\x80"]
        for name in ["gpt2", "llama3", "gemma"]:
            tokenizer = made(name)
            maker = TextMaker("broken", ["<|endoftext|>", "</s>"])
            parts = [[part for _ in range(4) for part in (maker.text(4).encode(), maker.rng.choice(broken))] for _ in range(200)]
            byte_ids = [tokenizer.token_to_id(token) for token in (BYTES if name == "gemma" else byte_alphabet())]
            for pieces, (ids, decoded) in zip(parts, self.tokenize(tokenizer, [b"".join(pieces) for pieces in parts], "plain")):
                expected = []
                for piece in pieces:
                    try:
                        expected += tokenizer.encode(piece.decode(), add_special_tokens=False).ids
                    except UnicodeDecodeError:
                        expected += [byte_ids[byte] for byte in piece]
                self.assertEqual(ids, expected, pieces)
                # Vocabularies like Gemma's have one token for a space and for the mark that stands for it.
                self.assertEqual(decoded, b"".join(pieces) if name != "gemma" else b"".join(pieces).replace("\u2581".encode(), b" "))


class RefusedTest(TokenizersCase):
    def test_files_of_other_kinds_are_refused_by_name(self):
        from tokenizers import Tokenizer, decoders, models
        refused = {
            "WordPiece": Tokenizer(models.WordPiece({"a": 0, "[UNK]": 1}, unk_token="[UNK]")),
            "Unigram": Tokenizer(models.Unigram([("a", 0.0)])),
            "WordLevel": Tokenizer(models.WordLevel({"a": 0}, unk_token="a")),
        }
        for field, part in [("pre_tokenizer", pre_tokenizers.BertPreTokenizer()), ("pre_tokenizer", pre_tokenizers.Whitespace()),
                            ("normalizer", normalizers.Lowercase()), ("normalizer", normalizers.Replace(Regex("a"), "b")),
                            ("decoder", decoders.WordPiece()), ("decoder", decoders.CTC())]:
            tokenizer = made("gpt2")
            setattr(tokenizer, field, part)
            refused[f"{field}.{type(part).__name__}"] = tokenizer
        for pattern in [r"\w+", r"\bx", r"(?i)a", r"[a&&b]", r"[[a]b]", r"\p{Alpha}", r"a{2}+", r"(a)\1", r"[[:alpha:]]"]:
            tokenizer = made("gpt2")
            tokenizer.pre_tokenizer = splits(pattern)
            refused["pattern " + pattern] = tokenizer
        for name, tokenizer in refused.items():
            path = self.folder / "tokenizer.json"
            tokenizer.save(str(path))
            process = subprocess.run([TOKENIZE_TEXTS, path, "/dev/null", self.folder / "out"], check=False, stderr=subprocess.PIPE, text=True)
            self.assertEqual(process.returncode, 3, name)
            self.assertTrue(re.match(re.escape(str(path)) + r": (model|pre_tokenizer|normalizer|decoder)\S*: expected .*, but got ",
                                     process.stderr), process.stderr)


if __name__ == "__main__":
    unittest.main()
