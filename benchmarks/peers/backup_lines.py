"""The flags of reliability_benchmark.py's jobs, and the lines that they print.

    pid <rank> <process id> <time>    each worker, once it has loaded its libraries
    begin <rank> <step> <time>        the first worker: it resumes after that step
    step <rank> <step> <time>         the first worker, after each step, and after what was saved then
    block <kind> <seconds>            the first worker, with --blocks: so many steps with that kind of saving

Times are time.monotonic()'s, which all processes of a machine share.
"""

import argparse
import os
import sys
import time


def parse_flags():
    parser = argparse.ArgumentParser()
    parser.add_argument("--backup-dir", required=True, help="where checkpoints lie")
    parser.add_argument("--steps", type=int, required=True, help="of the training, or of a block")
    parser.add_argument("--save-every", type=int, default=0, help="steps between checkpoints")
    parser.add_argument("--blocks", type=int, default=0, help="measures so many blocks of each kind of saving instead")
    parser.add_argument("--global-batch-size", type=int, default=64)
    parser.add_argument("--image-size", type=int, default=64)
    flags = parser.parse_args()
    if flags.blocks == 0 and flags.save_every < 1:
        parser.error("--save-every: expected 1 or more without --blocks")
    return flags


def say(what, rank, number):
    # At once: the workers may share one pipe.
    sys.stdout.write(f"{what} {rank} {number} {time.monotonic():.6f}\n")
    sys.stdout.flush()


def say_pid(rank):
    say("pid", rank, os.getpid())


def kinds_of_block(kinds, block):
    """In another order each time: none always runs in another one's wake."""
    first = block % len(kinds)
    return kinds[first:] + kinds[:first]


def say_block(kind, seconds):
    print("block", kind, f"{seconds:.6f}", flush=True)
