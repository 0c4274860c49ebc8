#!/usr/bin/env python3
"""Measures how many rows a second of Parquet files become batches of tensors: by ParquetDataset in shuffled order, by a loop of pyarrow
with PyTorch's DataLoader, and how many pyarrow scans without making anything of them. The files have the shape of Criteo's click logs:
a label, 13 integers and 26 categories. Each measurement is a process of its own on the same cores; they take turns, and who begins
changes. Then it measures how long a process takes from opening the files to its first batch at places all over an epoch. Prints tables
in Markdown, with the largest memory of row groups by the dataset's own count, and by how much the process grew, with the code of Arrow's
libraries. Run it with a Python that has pyarrow and torch.
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
sys.path.insert(0, str(ROOT / "benchmarks"))
# pylint: disable=wrong-import-position
from markdown_results import median_interval, print_table

PATIENCE = 600  # seconds
BARS = {"loader": 2.0, "scan": 0.9}
RESTART_BAR = 1.0  # seconds


def measure_once(command, cores):
    process = subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=PATIENCE,
                             preexec_fn=lambda: os.sched_setaffinity(0, cores))
    result = json.loads(process.stdout)
    return result["rows"] / result["seconds"], result


def commands_of(arguments, folder, threads, order):
    """Lockstep, pyarrow with DataLoaders of several sizes, and pyarrow's scan."""
    peer = [sys.executable, str(ROOT / "benchmarks" / "peers" / "pyarrow_batches.py")]
    seconds, batch = str(arguments.seconds), str(arguments.batch)
    ours = [f"{arguments.build}/bin/parquet_job", "read", folder, seconds, str(threads), batch, order, str(arguments.memory)]
    loaders = [[*peer, "loader", folder, seconds, str(workers), batch] for workers in arguments.workers]
    return ours, loaders, [*peer, "scan", folder, seconds, str(threads)]


def best_loader(loaders, cores):
    """The DataLoader whose number of workers is fastest."""
    return max(loaders, key=lambda command: measure_once(command, cores)[0])


def measure(arguments, folder, threads, order):
    cores = sorted(os.sched_getaffinity(0))[:threads]
    ours, loaders, scan = commands_of(arguments, folder, threads, order)
    peers = {"loader": best_loader(loaders, cores), "scan": scan}
    rows, counted, resident, code = [], 0, 0, 0
    for name, peer in peers.items():
        speeds = ([], [])
        for pair in range(arguments.pairs):
            for side in ((0, 1), (1, 0))[pair % 2]:
                speed, result = measure_once((ours, peer)[side], cores)
                speeds[side].append(speed)
                if side == 0:
                    counted = max(counted, result["peak_bytes"])
                    resident = max(resident, result["resident_bytes"])
                    code = max(code, result["code_bytes"])
                    if counted > arguments.memory:
                        raise SystemExit(f"error: expected at most {arguments.memory} bytes, but got {counted}")
        middle, low, high = median_interval([our / their for our, their in zip(*speeds)])
        text = f"DataLoader, {peer[-2]} workers" if name == "loader" else "scan of pyarrow"
        rows.append([str(threads), order, text, f"{statistics.median(speeds[0]):,.0f}", f"{statistics.median(speeds[1]):,.0f}",
                     f"{middle:.2f} ({low:.2f} to {high:.2f})", str(BARS[name]), mebibytes(counted), mebibytes(resident), mebibytes(code)])
        print(f"{threads} cores, {order}, {text}: {rows[-1][5]}", file=sys.stderr, flush=True)
    return rows


def mebibytes(size):
    return f"{size / 2 ** 20:.0f} MiB"


def measure_restarts(arguments, folder, threads):
    """Seconds to the first batch at places that lie evenly in an epoch, one process each."""
    cores = sorted(os.sched_getaffinity(0))[:threads]
    seconds = []
    for i in range(arguments.restarts):
        share = (i + 0.5) / arguments.restarts
        command = [f"{arguments.build}/bin/parquet_job", "restart", folder, str(share), str(threads), str(arguments.batch),
                   str(arguments.memory)]
        process = subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=PATIENCE,
                                 preexec_fn=lambda: os.sched_setaffinity(0, cores))
        seconds.append(json.loads(process.stdout)["seconds"])
    print(f"{threads} cores, restarts: {statistics.median(seconds):.2f} s, at most {max(seconds):.2f} s", file=sys.stderr, flush=True)
    return [str(threads), f"{statistics.median(seconds):.2f} s", f"{max(seconds):.2f} s", f"{RESTART_BAR} s"]


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000, help="rows of the files (10,000,000)")
    parser.add_argument("--rows-per-group", type=int, default=131_072, help="rows of a row group (131,072)")
    parser.add_argument("--compressions", nargs="+", default=["zstd", "snappy"], help="of the files (zstd snappy)")
    parser.add_argument("--orders", nargs="+", choices=["shuffled", "ordered"], default=["shuffled", "ordered"], help="(both)")
    parser.add_argument("--cores", nargs="+", type=int, default=[1, 2], help="numbers of cores (1 2)")
    parser.add_argument("--workers", nargs="+", type=int, default=[0, 1, 2], help="DataLoaders to choose the fastest of (0 1 2)")
    parser.add_argument("--batch", type=int, default=4096, help="rows of a batch (4,096)")
    parser.add_argument("--memory", type=int, default=1 << 30, help="bytes of decoded row groups (1 GiB)")
    parser.add_argument("--pairs", type=int, default=7, help="measurements of each side; at least 6 (7)")
    parser.add_argument("--seconds", type=float, default=4, help="a measurement (4)")
    parser.add_argument("--restarts", type=int, default=20, help="places of an epoch at which a first batch is timed (20)")
    parser.add_argument("--folder", help="keeps the files there, and takes those that are there (a temporary folder)")
    parser.add_argument("--build", default="build/release", help="a folder with bin/parquet_job (build/release)")
    arguments = parser.parse_args()
    if arguments.pairs < 6:
        parser.error(f"--pairs: expected at least 6, but got {arguments.pairs}")
    if not (pathlib.Path(arguments.build) / "bin" / "parquet_job").exists():
        parser.error(f"--build: expected a folder with bin/parquet_job, but got '{arguments.build}'")
    return arguments


def main():
    arguments = parse()
    print(f"{time.strftime('%Y-%m-%d')}, {os.cpu_count()} cores, {arguments.pairs} pairs, {arguments.rows:,} rows in row groups of "
          f"{arguments.rows_per_group:,}, batches of {arguments.batch:,}.", flush=True)
    results, restarts = [], []
    with tempfile.TemporaryDirectory() as temporary:
        for compression in arguments.compressions:
            folder = pathlib.Path(arguments.folder or temporary, f"{compression}_{arguments.rows}_{arguments.rows_per_group}")
            if not folder.exists():
                subprocess.run([f"{arguments.build}/bin/parquet_job", "write", f"{folder}.part", str(arguments.rows),
                                str(arguments.rows_per_group), compression], check=True)
                pathlib.Path(f"{folder}.part").rename(folder)
            for threads in arguments.cores:
                for order in arguments.orders:
                    results += [[compression, *row] for row in measure(arguments, str(folder), threads, order)]
                if arguments.restarts > 0:
                    restarts.append([compression, *measure_restarts(arguments, str(folder), threads)])
    print_table(["compression", "cores", "order", "beside", "Lockstep, rows/s", "other, rows/s", "ratio", "bar", "row groups",
                 "process grew by", "of that, code"], results)
    print_table(["compression", "cores", "first batch, median", "slowest", "bar"], restarts)


if __name__ == "__main__":
    main()
