#!/usr/bin/env python3
"""Reads Parquet files with pyarrow alone, after two seconds that are not counted. Prints rows and seconds as JSON.

pyarrow_batches.py scan FOLDER SECONDS THREADS: row groups as Arrow's tables, without any conversion.
pyarrow_batches.py loader FOLDER SECONDS WORKERS BATCH: batches of tensors, one for each column, through PyTorch's DataLoader, whose
workers read row groups in a random order and shuffle the rows of each.
"""

import itertools
import json
import pathlib
import random
import sys
import time
import warnings

import pyarrow
import pyarrow.compute
import pyarrow.parquet


WARM_UP = 2  # seconds


def measured(seconds, num_rows):
    """Calls num_rows() for as long, and returns the rows and the seconds."""
    begin = time.perf_counter()
    while time.perf_counter() - begin < WARM_UP:
        num_rows()
    rows, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < seconds:
        rows += num_rows()
    return rows, time.perf_counter() - begin


def row_groups(folder):
    return [(str(path), group) for path in sorted(pathlib.Path(folder).glob("*.parquet"))
            for group in range(pyarrow.parquet.ParquetFile(path).num_row_groups)]


def read(place, threads):
    path, group = place
    return pyarrow.parquet.ParquetFile(path, page_checksum_verification=True).read_row_group(group, use_threads=threads > 1)


def scan(folder, seconds, threads):
    pyarrow.set_cpu_count(threads)
    places = itertools.cycle(row_groups(folder))
    return measured(seconds, lambda: read(next(places), threads).num_rows)


def loader(folder, seconds, workers, batch_size):
    # pylint: disable=import-outside-toplevel
    import torch

    # The tensors are only read.
    warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
    pyarrow.set_cpu_count(1)
    torch.set_num_threads(1)
    places = row_groups(folder)

    class Rows(torch.utils.data.IterableDataset):
        def __iter__(self):
            info = torch.utils.data.get_worker_info()
            mine = places[info.id::info.num_workers] if info else list(places)
            while True:
                random.shuffle(mine)
                for place in mine:
                    table = read(place, 1)
                    columns = [torch.from_numpy(pyarrow.compute.fill_null(column, -1).to_numpy()) for column in table.columns]
                    order = torch.randperm(table.num_rows)
                    for start in range(0, table.num_rows, batch_size):
                        chosen = order[start:start + batch_size]
                        yield [column[chosen] for column in columns]

    batches = iter(torch.utils.data.DataLoader(Rows(), batch_size=None, num_workers=workers))
    return measured(seconds, lambda: len(next(batches)[0]))


def main():
    kind, folder, seconds, *numbers = sys.argv[1:]
    rows, taken = {"scan": scan, "loader": loader}[kind](folder, float(seconds), *map(int, numbers))
    print(json.dumps({"rows": rows, "seconds": taken}))


if __name__ == "__main__":
    main()
