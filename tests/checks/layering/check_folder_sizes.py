#!/usr/bin/env python3
"""Checks that no folder holds more files of its own than a reader can take in: check_folder_sizes.py <source root>.

Corpora of the fuzz targets and other data are left out.
"""

import collections
import os
import pathlib
import sys

MOST = 45
SKIPPED = {"build", "corpus"}


def check(root):
    """Returns one line for each folder that is too large."""
    counts = collections.Counter()
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if name not in SKIPPED and not name.startswith(".") and name != "__pycache__"]
        counts[pathlib.Path(folder).relative_to(root).as_posix()] = len([name for name in files if not name.startswith(".")])
    return [f"{folder}: expected {MOST} files or less, but got {count}: cut it into rooms"
            for folder, count in sorted(counts.items()) if count > MOST]


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    problems = check(pathlib.Path(sys.argv[1]))
    print("\n".join(problems) if problems else f"no folder holds more than {MOST} files")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
