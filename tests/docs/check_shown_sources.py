#!/usr/bin/env python3
"""Checks that a page shows sources as they are: check_shown_sources.py <page.md> <source>...

The page's blocks of C++, in order, must be the C++ sources, whole; so must those of CMake the CMake sources, of which
there may be none.
"""

import difflib
import pathlib
import sys

from page_blocks import blocks

LANGUAGES = {".cpp": "cpp", ".txt": "cmake"}


def check(page, language, sources):
    """Returns one line for each difference."""
    shown = blocks(page, language)
    if len(shown) != len(sources):
        return [f"{page}: expected {len(sources)} blocks in {language}, one for each source, but got {len(shown)}"]
    differences = []
    for (_, block), source in zip(shown, sources):
        text = source.read_text(encoding="utf-8")
        differences += difflib.unified_diff(text.splitlines(), block.splitlines(), str(source), str(page), lineterm="")
    return differences


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    page, sources = pathlib.Path(sys.argv[1]), [pathlib.Path(name) for name in sys.argv[2:]]
    differences = []
    for language in sorted({LANGUAGES[source.suffix] for source in sources}):
        differences += check(page, language, [source for source in sources if LANGUAGES[source.suffix] == language])
    print("\n".join(differences))
    sys.exit(1 if differences else 0)


if __name__ == "__main__":
    main()
