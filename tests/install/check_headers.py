#!/usr/bin/env python3
"""Checks that the public headers are installed, and no other: check_headers.py <source root> <prefix>."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "checks" / "layering"))
from rooms import LAYERS, all_rooms, is_internal


def public_headers(root):
    """Lists the headers that users include, relative to the project."""
    rooms = all_rooms(root)
    names = [path.relative_to(root).as_posix() for layer in LAYERS for path in (root / layer).rglob("*.h")]
    return {"lockstep.h", *(f"{layer}.h" for layer in LAYERS), *(name for name in names if not is_internal(rooms, name))}


def check(root, prefix):
    """Returns one line for each header that is missing or should not be there."""
    include = prefix / "include" / "lockstep"
    expected = public_headers(root)
    installed = {path.relative_to(include).as_posix() for path in include.rglob("*") if path.is_file()}
    return [*(f"{name} is public, but is not installed" for name in sorted(expected - installed)),
            *(f"{name} is installed, but is not public" for name in sorted(installed - expected))]


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    problems = check(*map(pathlib.Path, sys.argv[1:]))
    print("\n".join(problems) if problems else "the public headers are installed, and no other")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
