#!/usr/bin/env python3
"""Measures how many tokens a second Gpt's generate() makes, and generate() of Hugging Face's transformers, with the same weights,
prompts and cores, by the most likely tokens in float32. Both read each token once and keep keys and values. Each side is a process
that loads the model first; measurements take turns, and who begins changes. Prints a table in Markdown.

A work is PRESET:BATCH:PROMPT:NEW: a preset of Gpt, sequences, tokens of each prompt, and new tokens of each.
"""

import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from markdown_results import median_interval, print_table  # pylint: disable=wrong-import-position

PEER = pathlib.Path(__file__).resolve().parents[1] / "peers" / "transformers_generation.py"
WORKS = ["gpt2:1:32:64", "gpt2:8:32:64", "smollm2-135m:1:32:64", "smollm2-135m:8:32:64"]
BAR = 1


class JobFailed(Exception):
    pass


class Job:
    """A process that generates on request."""

    def __init__(self, name, command):
        self.name = name
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # pylint: disable=consider-using-with
        self.answer("ready")

    def answer(self, expected=None):
        line = self.process.stdout.readline().strip()
        if not line or (expected and line != expected):
            raise JobFailed(f"{self.name} ended with {self.process.wait()}")
        return line

    def generate(self, count):
        """Returns the seconds that it took, and the sum of the tokens."""
        print(count, file=self.process.stdin, flush=True)
        seconds, tokens = self.answer().split()
        return float(seconds), int(tokens)

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def measure(arguments, work, folder):
    """The speeds of Lockstep and of transformers, one of each a pair, and whether they made the same tokens."""
    preset, batch, prompt, new = work.split(":")
    program = arguments.build + "/bin/generation_job"
    if not (folder / "config.json").exists():
        subprocess.run([program, f"--model={folder}", f"--make={preset}"], check=True)
    flags = [f"--model={folder}", f"--batch-size={batch}", f"--prompt-tokens={prompt}"]
    jobs = [Job("Lockstep", [program, *flags]),
            Job("transformers", [arguments.peer_torch_python, "-B", str(PEER), *flags])]
    try:
        first = [job.generate(int(new)) for job in jobs]  # to warm up
        speeds = ([], [])
        for pair in range(arguments.pairs):
            for side in ((0, 1), (1, 0))[pair % 2]:
                speeds[side].append(int(batch) * int(new) / jobs[side].generate(int(new))[0])
            print(f"{work}, pair {pair + 1}: {speeds[0][-1]:,.1f} and {speeds[1][-1]:,.1f} tokens/s", file=sys.stderr, flush=True)
        return *speeds, first[0][1] == first[1][1]
    finally:
        for job in jobs:
            job.end()


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer-torch-python", required=True, help="a Python with torch and transformers")
    parser.add_argument("--works", nargs="+", default=WORKS, help=f"what is generated ({' '.join(WORKS)})")
    parser.add_argument("--pairs", type=int, default=15, help="measurements of each side; at least 6 (15)")
    parser.add_argument("--build", default="build/release", help="a folder with bin/generation_job (build/release)")
    arguments = parser.parse_args()
    if arguments.pairs < 6:
        parser.error(f"--pairs: expected at least 6, but got {arguments.pairs}")
    for work in arguments.works:
        parts = work.split(":")
        if len(parts) != 4 or not all(part.isdecimal() and int(part) > 0 for part in parts[1:]):
            parser.error(f"--works: expected PRESET:BATCH:PROMPT:NEW, but got '{work}'")
    if not (pathlib.Path(arguments.build) / "bin" / "generation_job").exists():
        parser.error(f"--build: expected a folder with bin/generation_job, but got '{arguments.build}'")
    return arguments


def main():
    arguments = parse()
    print(f"{time.strftime('%Y-%m-%d')}, {os.cpu_count()} cores, {arguments.pairs} pairs.", flush=True)
    results, has_failed = [], False
    with tempfile.TemporaryDirectory() as folder:
        for work in arguments.works:
            preset, batch, prompt, new = work.split(":")
            model = pathlib.Path(folder, preset)
            model.mkdir(exist_ok=True)
            try:
                ours, theirs, is_same = measure(arguments, work, model)
            except (JobFailed, subprocess.CalledProcessError) as error:
                print(f"{work}: not measured: {error}", file=sys.stderr)
                has_failed = True
                continue
            middle, low, high = median_interval([our / their for our, their in zip(ours, theirs)])
            results.append([preset, batch, prompt, new, f"{statistics.median(ours):,.1f}", f"{statistics.median(theirs):,.1f}",
                            f"{middle:.2f} ({low:.2f} to {high:.2f})", f"{BAR:.1f}", "yes" if is_same else "no"])
    print_table(["preset", "sequences", "prompt", "new tokens", "Lockstep, tokens/s", "transformers, tokens/s", "ratio", "bar",
                 "same tokens"], results)
    return 1 if has_failed else 0


if __name__ == "__main__":
    sys.exit(main())
