#!/usr/bin/env python3
"""Runs GoogleTest programs many times, several processes at once, and tells which tests failed how often.

With more processes than cores, threads are interrupted at points where they never are on an idle machine. A test that
fails here and passes alone has a race, or so does what it tests. Exits 1 if any process failed.
"""

import argparse
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys

FAILED = re.compile(r"^\[  FAILED  \] (\S+?)(?:,| \(|$)", re.MULTILINE)


def run(program, repeat, process, options):
    """Runs one process of a program; returns what went wrong, or an empty string."""
    log = options.logs / f"{program.name}.{process}.log"
    command = [program, f"--gtest_repeat={repeat}", "--gtest_recreate_environments_when_repeating=1", "--gtest_brief=1"]
    if options.filter:
        command.append(f"--gtest_filter={options.filter}")
    with log.open("w", encoding="utf-8") as file:
        try:
            code = subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                  timeout=options.timeout, check=False).returncode
        except subprocess.TimeoutExpired:
            return f"{program.name}: still running after {options.timeout} s ({log})"
    if code == 0:
        log.unlink()
        return ""
    names = FAILED.findall(log.read_text(encoding="utf-8", errors="replace"))
    counts = ", ".join(f"{name} ({names.count(name)} times)" for name in sorted(set(names)))
    return f"{program.name}: exit code {code}: {counts or 'no test was named'} ({log})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="+", type=pathlib.Path, help="GoogleTest programs")
    parser.add_argument("--repeat", type=int, default=50, help="how often each program runs (default: %(default)s)")
    parser.add_argument("--processes", type=int, default=2 * (os.cpu_count() or 1), help="processes at once (default: two a core)")
    parser.add_argument("--logs", type=pathlib.Path, required=True, help="folder for the logs of processes that failed")
    parser.add_argument("--timeout", type=int, default=7200, help="seconds that one process may take (default: %(default)s)")
    parser.add_argument("--filter", help="tests to run, as for --gtest_filter")
    options = parser.parse_args()
    options.logs.mkdir(parents=True, exist_ok=True)

    # Each program's runs are shared out, so that copies of one program run at the same time.
    shares = [len(range(process, options.repeat, options.processes)) for process in range(options.processes)]
    work = [(program, share, process) for program in options.programs for process, share in enumerate(shares) if share]
    failed = False
    with concurrent.futures.ThreadPoolExecutor(options.processes) as pool:
        for problem in pool.map(lambda item: run(*item, options), work):
            if problem:
                failed = True
                print(problem, flush=True)
    print(f"{'some' if failed else 'none'} of {len(options.programs)} programs failed in {options.repeat} runs each")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
