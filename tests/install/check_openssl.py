#!/usr/bin/env python3
"""Checks which OpenSSL the programs of some folders use: check_openssl.py <folder>...

Some libraries export the functions of an OpenSSL of their own, as libparquet of Python's pyarrow does. The loader takes a function from
the first library that exports it, also for libcrypto itself, so that two versions mix if such a library is loaded first. Prints each
program for which one is, and exits 1.
"""

import functools
import pathlib
import re
import subprocess
import sys

from check_run_paths import elf_files

# Every version of libcrypto has it.
FUNCTION = re.compile(r"\bEVP_DigestInit_ex\b")
LOADED = re.compile(r"^\s(\S+) => (/\S+) ", re.MULTILINE)


def output_of(*command):
    return subprocess.run(command, check=False, capture_output=True, text=True).stdout


@functools.lru_cache(maxsize=None)
def has_openssl(library):
    return FUNCTION.search(output_of("nm", "--dynamic", "--defined-only", library)) is not None


def check(program):
    """Returns the line for a program that takes OpenSSL's functions from another library than libcrypto; empty otherwise."""
    libraries = LOADED.findall(output_of("ldd", program))  # in the order in which the loader searches them
    if not any(name.startswith("libcrypto.so") for name, _ in libraries):
        return ""
    first = next((name for name, path in libraries if has_openssl(path)), "libcrypto.so")
    return "" if first.startswith("libcrypto.so") else f"{program}: expected OpenSSL's functions from libcrypto, but {first} is loaded first"


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    programs = [path for folder in sys.argv[1:] for path in elf_files(pathlib.Path(folder))]
    problems = [problem for problem in map(check, programs) if problem]
    if not programs:
        problems = [f"expected programs in {' and '.join(sys.argv[1:])}, but found none"]
    print("\n".join(problems) if problems else f"{len(programs)} files use one OpenSSL")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
