#!/usr/bin/env python3
"""Checks that a page shows sources as they are: check_doc.py <page.md> <source>...

The page's C++ blocks, in order, must be the sources, whole.
"""

import difflib
import pathlib
import re
import sys


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    page, sources = pathlib.Path(sys.argv[1]), [pathlib.Path(name) for name in sys.argv[2:]]
    blocks = re.findall(r"^```cpp\n(.*?)^```$", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    if len(blocks) != len(sources):
        sys.exit(f"{page}: expected {len(sources)} C++ blocks, one for each source, but got {len(blocks)}")
    differs = False
    for block, source in zip(blocks, sources):
        text = source.read_text(encoding="utf-8")
        lines = difflib.unified_diff(text.splitlines(), block.splitlines(), str(source), str(page), lineterm="")
        for line in lines:
            print(line)
            differs = True
    sys.exit(1 if differs else 0)


if __name__ == "__main__":
    main()
