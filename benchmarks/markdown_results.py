"""How benchmarks in Python sum up what they have measured, and print it."""

import math
import statistics


def median_interval(values):
    """The median and the interval of order statistics that holds the population's with 95 % (measurement/statistics.h)."""
    ordered, count = sorted(values), len(values)
    rank, below = 0, 0.0  # below: P(B <= rank - 1)
    while True:
        below += math.comb(count, rank) / 2 ** count
        if 2 * below > 0.05:
            break
        rank += 1
    if rank == 0:
        raise ValueError("an interval takes 6 values or more")
    return statistics.median(ordered), ordered[rank - 1], ordered[count - rank]


def print_table(header, rows):
    if not rows:
        return
    print("\n| " + " | ".join(header) + " |\n|" + "---|" * len(header))
    for row in rows:
        print("| " + " | ".join(row) + " |", flush=True)
