#!/usr/bin/env python3
"""Checks that all programs and shared libraries in some folders are hardened: check_hardening.py <folder>... [--tests <folder>...]

Prints one line for each measure that a file lacks and exits 1. cmake/LockstepHardening.cmake sets the flags. A small program of
a folder of tests, or a library, may call no function that can be fortified. A program that users run calls some, in its own code or
in a library of the folders.
"""

import pathlib
import re
import subprocess
import sys

from check_run_paths import elf_files

NOW = re.compile(r"\((?:FLAGS\)\s.*\bBIND_NOW\b|FLAGS_1\)\s.*\bNOW\b|BIND_NOW\))")
IMPORT = re.compile(r"\sUND\s+([^\s@]+)", re.MULTILINE)
NEEDED = re.compile(r"\(NEEDED\)\s.*\[(.*)\]")
STACK = re.compile(r"^\s*GNU_STACK(?:\s+0x[0-9a-f]+){5}\s([RWE ]{3})\s", re.MULTILINE)
FORTIFIED = re.compile(r"__(?!stack_chk_).*_chk$")


class File:
    """What readelf says of a program or a shared library."""

    def __init__(self, path):
        self.path = pathlib.Path(path)
        self.text = subprocess.run(["readelf", "--file-header", "--program-headers", "--dynamic", "--dyn-syms", "--wide", path],
                                   check=True, capture_output=True, text=True).stdout
        self.imports = IMPORT.findall(self.text)
        self.needed = NEEDED.findall(self.text)
        self.is_fortified = any(map(FORTIFIED.match, self.imports))
        self.is_program = re.search(r"(?m)^\s*INTERP\s", self.text) is not None

    def lacking(self):
        """Yields what the file lacks, fortified functions aside."""
        # A shared library has this type in any case.
        if not re.search(r"(?m)^\s*Type:\s+DYN\b", self.text):
            yield "an address that the loader chooses (-pie)"
        if not re.search(r"(?m)^\s*GNU_RELRO\s", self.text):
            yield "relocations that are read-only (-z relro)"
        if not NOW.search(self.text):
            yield "symbols that are bound at the start (-z now)"
        stack = STACK.search(self.text)
        if not stack or "E" in stack[1]:
            yield "a stack that is not executable (-z noexecstack)"
        if "__stack_chk_fail" not in self.imports:
            yield "a stack protector (-fstack-protector-strong)"


def is_fortified(file, libraries):
    """Whether the file, or a library that it needs, calls a fortified function. `libraries` maps names to files."""
    seen, waiting = set(), [file]
    while waiting:
        current = waiting.pop()
        if current.is_fortified:
            return True
        new = [name for name in current.needed if name in libraries and name not in seen]
        seen.update(new)
        waiting += [libraries[name] for name in new]
    return False


def check(folders, folders_of_tests=()):
    """Returns the number of files, and one line for each measure that one lacks."""
    files = [File(path) for folder in folders for path in elf_files(pathlib.Path(folder))]
    files_of_tests = [File(path) for folder in folders_of_tests for path in elf_files(pathlib.Path(folder))]
    libraries = {file.path.name: file for file in files if not file.is_program}
    problems = [f"{file.path}: expected {measure}" for file in files + files_of_tests for measure in file.lacking()]
    problems += [f"{file.path}: expected fortified functions (-D_FORTIFY_SOURCE)"
                 for file in files if file.is_program and not is_fortified(file, libraries)]
    if not any(file.is_program for file in files):
        problems.append(f"expected programs in {' and '.join(map(str, folders))}, but found none")
    return len(files + files_of_tests), problems


def main():
    folders = sys.argv[1:]
    split = folders.index("--tests") if "--tests" in folders else len(folders)
    if not folders[:split]:
        sys.exit(__doc__)
    count, problems = check(folders[:split], folders[split + 1:])
    print("\n".join(problems) if problems else f"{count} files are hardened")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
