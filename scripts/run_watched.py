#!/usr/bin/env python3
"""Runs a program, and ends it if it hangs or takes too long.

The program's stdout goes to NAME.out, its stderr to NAME.log. If it prints nothing for --stall seconds, it is considered
stuck; NAME.stall then tells what all threads of all its processes are doing, and the load of each GPU. If it runs for more
than --limit seconds, NAME.limit tells the same. The program then gets SIGTERM, and SIGKILL after the seconds of --grace.
Processes that it has started and left behind are killed in any case.

Exits with the program's exit code (128 + signal if a signal ended it), or with 124 if the program was stuck or took too long.
"""

import argparse
import ctypes
import os
import signal
import subprocess
import sys
import time

import stall_report

ENDED_HERE, CANNOT_START = 124, 127  # exit codes, as those of `timeout`
SECONDS_BETWEEN_LOOKS = 0.2
SECONDS_TO_DIE = 10  # after SIGKILL
PR_SET_CHILD_SUBREAPER = 36


class Signalled(Exception):
    def __init__(self, number):
        super().__init__(number)
        self.number = number


def raise_signalled(number, _):
    signal.signal(number, signal.SIG_IGN)
    raise Signalled(number)


def say(text):
    print(text, file=sys.stderr, flush=True)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=float, default=900, help="seconds that the program may take (%(default)s)")
    parser.add_argument("--stall", type=float, default=60, help="seconds that it may print nothing (%(default)s)")
    parser.add_argument("--grace", type=float, default=10, help="seconds from SIGTERM to SIGKILL (%(default)s)")
    parser.add_argument("name", metavar="NAME", help="path of the output and of a report, without its ending")
    parser.add_argument("program")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    return parser.parse_args()


def adopt_orphans():
    """Makes this process the parent of those that the program leaves behind, so that they are found."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def has_ended(process, seconds):
    try:
        process.wait(seconds)
        return True
    except subprocess.TimeoutExpired:
        return False


def watch(process, outputs, options):
    """Waits until the program ends. Returns "stall" or "limit" if it has to be ended, otherwise an empty string."""
    begin = last_output = time.monotonic()
    sizes = []
    while not has_ended(process, SECONDS_BETWEEN_LOOKS):
        now = time.monotonic()
        sizes_now = [os.fstat(output.fileno()).st_size for output in outputs]
        if sizes_now != sizes:
            sizes, last_output = sizes_now, now
        if now - last_output >= options.stall:
            return "stall"
        if now - begin >= options.limit:
            return "limit"
    return ""


def report(reason, options):
    path = f"{options.name}.{reason}"
    if reason == "stall":
        what = f"{options.name} is stuck: it has printed nothing for {options.stall:g} s"
    else:
        what = f"{options.name} has run for {options.limit:g} s"
    say(f"{what}. {path} tells what its threads are doing")
    try:
        stall_report.write_report(path, what, stall_report.descendants(os.getpid()))
    except OSError as error:
        say(f"cannot write {path}: {error.strerror}")


def reap():
    """Takes note of the orphans that have ended."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def end(process, grace):
    process.terminate()
    if not has_ended(process, grace):
        process.kill()
        has_ended(process, SECONDS_TO_DIE)


def end_all(process, options):
    """Ends the program and what it has left behind. Does not wait for processes that SIGKILL does not end."""
    if process.poll() is None:
        end(process, options.grace)
    deadline = time.monotonic() + SECONDS_TO_DIE
    left = stall_report.descendants(os.getpid())
    if left:
        say(f"{options.name} has left processes behind, which are killed: {' '.join(map(str, left))}")
    while left and time.monotonic() < deadline:
        for number in left:
            try:
                os.kill(number, signal.SIGKILL)
            except ProcessLookupError:
                pass
        time.sleep(0.02)
        left = stall_report.descendants(os.getpid())
    if process.poll() is not None:
        reap()
    if process.poll() is None and process.pid not in left:  # Only its main thread has ended.
        left.append(process.pid)
    if left:
        say(f"SIGKILL does not end these processes: {' '.join(map(str, left))}")


def run(options):
    """Returns the exit code."""
    with open(f"{options.name}.out", "wb") as out, open(f"{options.name}.log", "wb") as log:
        try:
            process = subprocess.Popen([options.program, *options.arguments], stdin=subprocess.DEVNULL, stdout=out, stderr=log)
        except OSError as error:
            say(f"cannot start {options.program}: {error.strerror}")
            return CANNOT_START
        try:
            reason = watch(process, [out, log], options)
            if reason:
                report(reason, options)
        finally:
            end_all(process, options)
    if reason:
        return ENDED_HERE
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


def main():
    options = parse()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, raise_signalled)
    adopt_orphans()
    try:
        return run(options)
    except Signalled as error:
        signal.signal(error.number, signal.SIG_DFL)
        os.kill(os.getpid(), error.number)
    return 1


if __name__ == "__main__":
    sys.exit(main())
