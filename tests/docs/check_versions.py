#!/usr/bin/env python3
"""Checks that pages and examples name the version of CMakeLists.txt: check_versions.py <source root>"""

import pathlib
import re
import sys

PROJECT = re.compile(r"project\(lockstep VERSION (\d+\.\d+\.\d+)")
FIND_PACKAGE = re.compile(r"find_package\(lockstep (\d+\.\d+)")
# Pages that state the version, and how. A pattern without a patch version stands for all patch versions.
STATED = {
    "CITATION.cff": re.compile(r"^version: (\S+)$", re.MULTILINE),
    "README.md": re.compile(r"^\*\*Status:\*\* version (\d+\.\d+)", re.MULTILINE),
    "docs/building.md": re.compile(r"\[CMakeLists\.txt\]\(\.\./CMakeLists\.txt\): now (\d+\.\d+\.\d+)"),
}


def check(root):
    """Returns one line for each problem."""
    version = PROJECT.search((root / "CMakeLists.txt").read_text(encoding="utf-8"))[1]
    problems = []
    for name, pattern in STATED.items():
        found = pattern.search((root / name).read_text(encoding="utf-8"))
        if not found:
            problems.append(f"{name}: expected the version {version}, but found none")
        elif not f"{version}.".startswith(f"{found[1]}."):
            problems.append(f"{name}: expected the version {version}, but got {found[1]}")
    pages = [root / "README.md", *(root / "docs").rglob("*.md"), *(root / "examples").glob("**/CMakeLists.txt")]
    for page in sorted(pages):
        for found in FIND_PACKAGE.findall(page.read_text(encoding="utf-8")):
            if not version.startswith(f"{found}."):
                problems.append(f"{page.relative_to(root)}: expected find_package(lockstep {version.rpartition('.')[0]}), but got {found}")
    return problems


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    problems = check(pathlib.Path(sys.argv[1]).resolve())
    print("\n".join(problems) if problems else "all pages name the same version")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
