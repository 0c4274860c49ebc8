#!/usr/bin/env python3
"""Checks that a CMakeLists.txt names every C++ source, so that no test is written and never built: check_built_sources.py <source root>."""

import os
import pathlib
import re
import sys

# The fuzz targets are named without their suffix.
SKIPPED = {"build", "fuzz"}
NAMED_SOURCE = re.compile(r"[\w/.${}-]+\.cpp")


def files_of(root):
    """Lists the project's files."""
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if name not in SKIPPED and not name.startswith(".")]
        for name in files:
            yield pathlib.Path(folder, name)


def check(root):
    """Returns one line for each source that no build file names."""
    named = set()
    sources = []
    for path in files_of(root):
        if path.name == "CMakeLists.txt" or path.suffix == ".cmake":
            named.update(pathlib.PurePosixPath(text).name for text in NAMED_SOURCE.findall(path.read_text(encoding="utf-8")))
        elif path.suffix == ".cpp":
            sources.append(path)
    return [f"{path.relative_to(root).as_posix()}: expected a CMakeLists.txt that names it, but got none: it is never built"
            for path in sorted(sources) if path.name not in named]


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    problems = check(pathlib.Path(sys.argv[1]))
    print("\n".join(problems) if problems else "every source is built")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
