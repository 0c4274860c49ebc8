#!/usr/bin/env python3
"""Checks that includes point down only: check_layering.py <source root>.

Prints every include that does not and exits 1. What each layer may include is the table below; how an include is
spelt ("lockstep/<layer>/<name>.h") is checked in every folder.
"""

import pathlib
import re
import sys

# Each layer, and the other layers that it may include.
ALLOWED = {
    "runtime": set(),
    "models": set(),
    "datasets": set(),
    "parameter_server": {"runtime"},
    "strategies": {"runtime", "parameter_server"},
    "training": {"runtime", "parameter_server", "strategies"},
}
# Who stands above the layers may include them all, and the header that gathers them.
ABOVE = {"apps", "benchmarks", "examples", "measurement", "tests"}

INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')


def check(root):
    """Returns one line for each violation."""
    problems = []
    for folder in sorted(ALLOWED.keys() | ABOVE):
        for path in sorted((root / folder).rglob("*")):
            if path.suffix not in {".h", ".cpp", ".cu"}:
                continue
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                match = INCLUDE.match(line)
                problem = match and check_include(root, folder, *match.groups())
                if problem:
                    problems.append(f"{path.relative_to(root)}:{number}: {problem}")
    return problems


def check_include(root, folder, quote, name):
    """Says what is wrong with one include of a file in `folder`, or nothing."""
    parts = name.split("/")
    if parts[0] != "lockstep":
        if quote == '"':
            return f'expected an include that starts with lockstep/, but got "{name}"'
        return None
    if quote == "<":
        return f"expected quotes around an include of the project's own, but got <{name}>"
    if ".." in parts or not root.joinpath(*parts[1:]).is_file():
        return f'"{name}" names no file of the project'
    if folder in ABOVE:
        return None
    allowed = ALLOWED[folder] | {folder}
    layer = parts[1] if len(parts) > 2 else name
    if layer not in allowed:
        return f'{folder} may include {", ".join(sorted(allowed))}, but includes "{name}"'
    return None


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    problems = check(pathlib.Path(sys.argv[1]))
    print("\n".join(problems) if problems else "every include points down")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
