#!/usr/bin/env python3
"""Checks the run paths of all programs and shared libraries in some folders: check_run_paths.py <folder>...

The loader takes an empty entry, and any other relative one, from the current directory: a library planted next to a data
set would be loaded and run. Prints each file with such an entry and exits 1.
"""

import pathlib
import re
import subprocess
import sys

RUN_PATH = re.compile(r"\((?:RUNPATH|RPATH)\)\s+Library (?:runpath|rpath): \[(.*)\]")


def elf_files(folder):
    """Lists the ELF files below `folder` that a loader or linker takes run paths from."""
    for path in sorted(folder.rglob("*")):
        if path.suffix == ".o" or path.is_symlink() or not path.is_file():
            continue
        with path.open("rb") as file:
            if file.read(4) == b"\x7fELF":
                yield path


def check(path):
    """Returns one line for each entry of the file's run path that is taken from the current directory."""
    dynamic = subprocess.run(["readelf", "--dynamic", "--wide", path], check=True, capture_output=True, text=True).stdout
    return [f"{path}: expected run path entries that begin with / or $ORIGIN, but got '{entry}' in '{run_path}'"
            for run_path in RUN_PATH.findall(dynamic) for entry in run_path.split(":")
            if not entry.startswith(("/", "$ORIGIN"))]


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    files = [path for folder in sys.argv[1:] for path in elf_files(pathlib.Path(folder))]
    problems = [problem for path in files for problem in check(path)]
    if not files:
        problems = [f"expected programs in {' and '.join(sys.argv[1:])}, but found none"]
    print("\n".join(problems) if problems else f"no run path of {len(files)} files leads to the current directory")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
