#!/usr/bin/env python3
"""Checks that a CMakeLists.txt names every C++ source, so that no test is written and never built: check_built_sources.py <source root>.

The fuzz programs name the library's sources that they need one by one. If a source includes a header, the header's own
source must be named, too, or the programs do not link.
"""

import os
import pathlib
import re
import sys

# The fuzz targets are named without their suffix.
SKIPPED = {"build", "fuzz"}
NAMED_SOURCE = re.compile(r"[\w/.${}-]+\.cpp")
FUZZ = "tests/fuzz/CMakeLists.txt"
INCLUDE = re.compile(r'^#include "lockstep/([^"]+)\.h"', re.MULTILINE)


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


def check_fuzz(root):
    """Returns one line for each source that the fuzz programs lack."""
    text = re.sub(r"#.*", "", (root / FUZZ).read_text(encoding="utf-8"))
    of_all, _, with_libtorch = text.partition("\nif(LOCKSTEP_FUZZ_LIBTORCH)")
    named = {name.removeprefix("${lockstep}/") for name in NAMED_SOURCE.findall(of_all)}
    only_with_libtorch = {name.removeprefix("${lockstep}/") for name in NAMED_SOURCE.findall(with_libtorch)} - named
    own = {path.relative_to(root).as_posix() for path in (root / FUZZ).parent.glob("*.cpp")}
    missing = {}
    for name in sorted(named | only_with_libtorch | own):
        is_with_libtorch = name in only_with_libtorch or pathlib.PurePosixPath(name).name in only_with_libtorch
        source = root / name
        if not source.is_file():  # a program's own, or a pattern of names
            continue
        for header in INCLUDE.findall(source.read_text(encoding="utf-8")):
            needed = f"{header}.cpp"
            is_named = needed in named or (is_with_libtorch and needed in only_with_libtorch)
            if (root / needed).is_file() and not is_named:
                missing.setdefault(needed, name)
    return [f"{FUZZ}: expected {name}, as {user} includes its header" for name, user in sorted(missing.items())]


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    root = pathlib.Path(sys.argv[1])
    problems = check(root) + check_fuzz(root)
    print("\n".join(problems) if problems else "every source is built, and the fuzz programs name all that they need")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
