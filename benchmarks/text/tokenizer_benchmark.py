#!/usr/bin/env python3
"""Measures how many bytes of text a second BytePairTokenizer and the Python package `tokenizers` encode, each on one core, with the
same tokenizers and the same documents. Each measurement is a process of its own; the two take turns, and who begins changes. Prints
a table in Markdown.

The texts are English (this repository's documentation), source code (its own), and generated words in many scripts. A tokenizer of
each kind is trained on all of them. Run it with a Python that has `tokenizers`.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "tests" / "datasets" / "text")]
# pylint: disable=wrong-import-position
from markdown_results import median_interval, print_table

import tokenizer_kinds
from tokenizer_texts import TextMaker

PATIENCE = 300  # seconds
KINDS = ["gpt2", "llama3", "qwen2", "gpt4o", "llama2"]
VOCABULARY = 16000
BAR = 1.0
TEXT_BYTES = 500_000


def files(*patterns):
    """The files of these patterns, up to TEXT_BYTES in all."""
    texts, size = [], 0
    for path in (path for pattern in patterns for path in sorted(ROOT.glob(pattern))):
        texts.append(path.read_text(encoding="utf-8"))
        size += len(texts[-1])
        if size >= TEXT_BYTES:
            break
    return texts


def documents():
    maker = TextMaker("benchmark")
    return {"English": files("docs/*.md", "*.md"), "source code": files("scripts/*.py", "datasets/**/*.cpp", "runtime/**/*.cpp"),
            "many scripts": [maker.text(300) for _ in range(200)]}


def train(name, texts, path):
    """Writes a tokenizer of a kind of the tests, with a larger vocabulary."""
    tokenizer_kinds.corpus = lambda seed=1: texts
    tokenizer_kinds.VOCABULARY_SIZE = VOCABULARY
    tokenizer_kinds.made(name).save(str(path))


def measure_once(command, path, text, seconds):
    process = subprocess.run([*command, str(path), str(text), str(seconds)], check=True, stdout=subprocess.PIPE, timeout=PATIENCE,
                             env={**os.environ, "RAYON_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"})
    return json.loads(process.stdout)


def measure(arguments, path, text):
    """The speeds of Lockstep and of the package, one of each a pair."""
    commands = ([arguments.build + "/bin/tokenize_job"], [sys.executable, str(ROOT / "benchmarks" / "peers" / "hf_tokenizers.py")])
    speeds, tokens = ([], []), set()
    for pair in range(arguments.pairs):
        for side in ((0, 1), (1, 0))[pair % 2]:
            result = measure_once(commands[side], path, text, arguments.seconds)
            speeds[side].append(result["bytes_per_second"])
            tokens.add(result["tokens"])
    if len(tokens) != 1:
        raise SystemExit(f"error: expected as many tokens of both, but got {sorted(tokens)}")
    return speeds


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS, help="tokenizers (all)")
    parser.add_argument("--pairs", type=int, default=15, help="measurements of each side; at least 6 (15)")
    parser.add_argument("--seconds", type=float, default=1, help="a measurement (1)")
    parser.add_argument("--build", default="build/release", help="a folder with bin/tokenize_job (build/release)")
    arguments = parser.parse_args()
    if arguments.pairs < 6:
        parser.error(f"--pairs: expected at least 6, but got {arguments.pairs}")
    if not (pathlib.Path(arguments.build) / "bin" / "tokenize_job").exists():
        parser.error(f"--build: expected a folder with bin/tokenize_job, but got '{arguments.build}'")
    return arguments


def main():
    arguments = parse()
    print(f"{time.strftime('%Y-%m-%d')}, one core of {os.cpu_count()}, {arguments.pairs} pairs, vocabularies of {VOCABULARY:,}.", flush=True)
    texts, results = documents(), []
    with tempfile.TemporaryDirectory() as folder:
        for kind in arguments.kinds:
            path = pathlib.Path(folder, f"{kind}.json")
            train(kind, [text for part in texts.values() for text in part], path)
            for name, parts in texts.items():
                text = pathlib.Path(folder, "documents")
                text.write_bytes(b"".join(part.encode() + b"\0\n" for part in parts))
                ours, theirs = measure(arguments, path, text)
                middle, low, high = median_interval([our / their for our, their in zip(ours, theirs)])
                results.append([kind, name, f"{text.stat().st_size / 1e6:.1f}", f"{statistics.median(ours) / 1e6:.1f}",
                                f"{statistics.median(theirs) / 1e6:.1f}", f"{middle:.1f} ({low:.1f} to {high:.1f})", str(BAR)])
                print(f"{kind}, {name}: {results[-1][3]} and {results[-1][4]} MB/s, ratio {results[-1][5]}", file=sys.stderr, flush=True)
    print_table(["tokenizer", "text", "MB", "Lockstep, MB/s", "tokenizers, MB/s", "ratio", "bar"], results)


if __name__ == "__main__":
    main()
