#!/usr/bin/env python3
"""Checks that a CMakeLists.txt names every C++ source, so that no test is written and never built: check_built_sources.py <source root>.

The fuzz programs name the library's sources that they need one by one. Those of the headers that a named source includes
must be named, too, or the programs do not link.
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
    named = {name.removeprefix("${lockstep}/") for name in NAMED_SOURCE.findall(text)}
    sources = [root / name for name in sorted(named) if (root / name).is_file()] + sorted((root / FUZZ).parent.glob("*.cpp"))
    missing = {}
    for source in sources:
        for header in INCLUDE.findall(source.read_text(encoding="utf-8")):
            if (root / f"{header}.cpp").is_file() and f"{header}.cpp" not in named:
                missing.setdefault(f"{header}.cpp", source.relative_to(root).as_posix())
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
