#!/usr/bin/env python3
"""Measures how fast train_ctr's Wide & Deep trains on click logs of Parquet files, beside the same training on rows that are in memory
already. Each measurement is a process of its own on the same cores; they take turns, and who begins changes. Prints a table in Markdown.
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

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from markdown_results import median_interval, print_table  # pylint: disable=wrong-import-position

PATIENCE = 600  # seconds
BAR = 0.95


def rows_per_second(arguments, source, folder, cores):
    command = [f"{arguments.build}/bin/click_input_job", source, str(folder), str(arguments.rows_in_memory), str(arguments.steps),
               str(arguments.batch)]
    process = subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=PATIENCE,
                             env={**os.environ, "OMP_NUM_THREADS": str(len(cores))},
                             preexec_fn=lambda: os.sched_setaffinity(0, cores))
    return json.loads(process.stdout)["rows_per_second"]


def measure(arguments, folder, num_cores):
    cores = sorted(os.sched_getaffinity(0))[:num_cores]
    sources = ("parquet", "memory")
    speeds = ([], [])
    for pair in range(arguments.pairs):
        for side in ((0, 1), (1, 0))[pair % 2]:
            speeds[side].append(rows_per_second(arguments, sources[side], folder, cores))
        print(f"{num_cores} cores, pair {pair + 1}: {speeds[0][-1]:,.0f} and {speeds[1][-1]:,.0f} rows/s", file=sys.stderr, flush=True)
    middle, low, high = median_interval([parquet / memory for parquet, memory in zip(*speeds)])
    return [str(num_cores), f"{statistics.median(speeds[0]):,.0f}", f"{statistics.median(speeds[1]):,.0f}",
            f"{middle:.2f} ({low:.2f} to {high:.2f})", str(BAR)]


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000, help="rows of the files (10,000,000)")
    parser.add_argument("--rows-per-group", type=int, default=131_072, help="rows of a row group (131,072)")
    parser.add_argument("--rows-in-memory", type=int, default=2_000_000, help="(2,000,000)")
    parser.add_argument("--compression", default="zstd", help="of the files (zstd)")
    parser.add_argument("--cores", nargs="+", type=int, default=[1, 2], help="numbers of cores (1 2)")
    parser.add_argument("--batch", type=int, default=1024, help="rows of a batch (1,024)")
    parser.add_argument("--steps", type=int, default=300, help="a measurement (300)")
    parser.add_argument("--pairs", type=int, default=7, help="measurements of each side; at least 6 (7)")
    parser.add_argument("--folder", help="keeps the files there, and takes those that are there (a temporary folder)")
    parser.add_argument("--build", default="build/release", help="a folder with bin/click_input_job and bin/parquet_job (build/release)")
    arguments = parser.parse_args()
    if arguments.pairs < 6:
        parser.error(f"--pairs: expected at least 6, but got {arguments.pairs}")
    for program in ("click_input_job", "parquet_job"):
        if not (pathlib.Path(arguments.build) / "bin" / program).exists():
            parser.error(f"--build: expected a folder with bin/{program}, but got '{arguments.build}'")
    return arguments


def main():
    arguments = parse()
    print(f"{time.strftime('%Y-%m-%d')}, {os.cpu_count()} cores, {arguments.pairs} pairs of {arguments.steps} steps of "
          f"{arguments.batch:,} rows, {arguments.compression}.", flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(arguments.folder or temporary, f"{arguments.compression}_{arguments.rows}_{arguments.rows_per_group}")
        if not folder.exists():
            subprocess.run([f"{arguments.build}/bin/parquet_job", "write", f"{folder}.part", str(arguments.rows),
                            str(arguments.rows_per_group), arguments.compression], check=True)
            pathlib.Path(f"{folder}.part").rename(folder)
        results = [measure(arguments, folder, cores) for cores in arguments.cores]
    print_table(["cores", "Parquet, rows/s", "memory, rows/s", "ratio", "bar"], results)


if __name__ == "__main__":
    main()
