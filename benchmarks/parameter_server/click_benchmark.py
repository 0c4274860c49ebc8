#!/usr/bin/env python3
"""Measures how many rows of click logs a second parameter servers train Wide & Deep on, in Lockstep and in TensorFlow's
ParameterServerStrategy: the same tables, network, optimizer and batches on the same cores, 2 servers and 2 workers unless told
otherwise. Each measurement is a job of its own; the two take turns, and who begins changes. Prints a table in Markdown.

A work is TABLES:ROWS:COLUMNS:UNITS:BATCH: how many tables (1 or 26), of how many rows and columns each, the units of the hidden layers,
separated by commas, and the rows of a worker's step.
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from markdown_results import median_interval, print_table  # pylint: disable=wrong-import-position

ROOT = pathlib.Path(__file__).resolve().parents[2]
PATIENCE = 600  # seconds
WORKS = ["26:100000:64:64:1024", "26:100000:64:64:4096", "1:262144:16:256,128:1024"]
BAR = 3


class JobFailed(Exception):
    pass


def parse_work(text):
    tables, rows, columns, units, batch = text.split(":")
    if tables not in ("1", "26"):
        raise ValueError(tables)
    return [f"--tables={int(tables)}", f"--table-rows={int(rows)}", f"--embedding-dim={int(columns)}",
            f"--units={','.join(str(int(unit)) for unit in units.split(','))}", f"--global-batch-size={int(batch)}"]


def rows_per_second(arguments, name, program, work, steps):
    with subprocess.Popen([ROOT / "scripts" / "launch_local.sh", "--quiet", "--ps", str(arguments.servers), "--workers",
                           str(arguments.workers), *program, *parse_work(work), f"--steps={steps}",
                           f"--warmup-steps={arguments.warmup_steps}"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True) as job:
        try:
            output, error = job.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired as late:
            job.terminate()  # the launcher ends the job's processes
            job.communicate()
            raise JobFailed(f"{name} did not end within {PATIENCE} s") from late
    lines = [line.removeprefix("[chief] ") for line in output.splitlines() if '"rows_per_second"' in line]
    if job.returncode != 0 or not lines:
        raise JobFailed(f"{name} ended with {job.returncode}: {error.strip()[-500:]}")
    return json.loads(lines[-1])["rows_per_second"]


def measure(arguments, work):
    """The speeds of Lockstep and of TensorFlow, one of each a pair."""
    ours = [arguments.build + "/bin/click_job"]
    theirs = [arguments.peer_tf_python, str(ROOT / "benchmarks" / "peers" / "tensorflow_parameter_server.py"),
              *(["--unique"] if arguments.unique else [])]
    # As many rows for every work, so that measurements take about as long.
    steps = max(arguments.workers, round(arguments.rows / int(work.split(":")[-1])))
    sides = (("Lockstep", ours), ("TensorFlow", theirs))
    speeds = ([], [])
    for pair in range(arguments.pairs):
        for side in ((0, 1), (1, 0))[pair % 2]:
            speeds[side].append(rows_per_second(arguments, *sides[side], work, steps))
        print(f"{work}, pair {pair + 1}: {speeds[0][-1]:,.0f} and {speeds[1][-1]:,.0f} rows/s", file=sys.stderr, flush=True)
    return speeds


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer-tf-python", required=True, help="a Python with tensorflow")
    parser.add_argument("--unique", action="store_true", help="TensorFlow's side looks each row up once (tf.unique)")
    parser.add_argument("--works", nargs="+", default=WORKS, help=f"what is trained ({' '.join(WORKS)})")
    parser.add_argument("--pairs", type=int, default=15, help="measurements of each side; at least 6 (15)")
    parser.add_argument("--rows", type=int, default=400_000, help="that a measurement trains on, about (400,000)")
    parser.add_argument("--warmup-steps", type=int, default=40)
    parser.add_argument("--servers", type=int, default=2)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--build", default="build/release", help="a folder with bin/click_job (build/release)")
    arguments = parser.parse_args()
    if arguments.pairs < 6:
        parser.error(f"--pairs: expected at least 6, but got {arguments.pairs}")
    for work in arguments.works:
        try:
            parse_work(work)
        except ValueError:
            parser.error(f"--works: expected TABLES:ROWS:COLUMNS:UNITS:BATCH, but got '{work}'")
    if not (pathlib.Path(arguments.build) / "bin" / "click_job").exists():
        parser.error(f"--build: expected a folder with bin/click_job, but got '{arguments.build}'")
    if not shutil.which(arguments.peer_tf_python):
        parser.error(f"--peer-tf-python: expected a program, but got '{arguments.peer_tf_python}'")
    return arguments


def main():
    arguments = parse()
    print(f"{time.strftime('%Y-%m-%d')}, {os.cpu_count()} cores, {arguments.servers} servers, {arguments.workers} workers, "
          f"{arguments.pairs} pairs.", flush=True)
    results, has_failed = [], False
    for work in arguments.works:
        try:
            ours, theirs = measure(arguments, work)
        except JobFailed as error:
            print(f"{work}: not measured: {error}", file=sys.stderr)
            has_failed = True
            continue
        middle, low, high = median_interval([our / their for our, their in zip(ours, theirs)])
        tables, rows, columns, units, batch = work.split(":")
        results.append([f"{tables} of {int(rows):,} x {columns}", units.replace(",", ", "), batch,
                        f"{statistics.median(ours):,.0f}", f"{statistics.median(theirs):,.0f}",
                        f"{middle:.2f} ({low:.2f} to {high:.2f})", str(BAR)])
    print_table(["tables", "hidden units", "batch", "Lockstep, rows/s", "TensorFlow, rows/s", "ratio", "bar"], results)
    return 1 if has_failed else 0


if __name__ == "__main__":
    sys.exit(main())
