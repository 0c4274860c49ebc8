#!/usr/bin/env python3
"""Writes the fragments of C++ on pages as one source to be compiled: write_fragments.py <output> <page.md>...

A fragment is a block that begins with ```cpp fragment. It may use the names of Program in fragment_names.h, and a block that
begins with ```cpp fragment of a step those of Step. The compiler's messages name the page and its line.
"""

import pathlib
import sys

from page_blocks import blocks

KINDS = {"cpp fragment": "Program", "cpp fragment of a step": "Step"}


def source(page):
    """Returns a struct for each fragment of a page."""
    text = ""
    for kind, base in KINDS.items():
        for line, code in blocks(page, kind):
            text += (f"struct {page.stem}_{line} : {base} {{\nint run() {{\n#line {line} \"{page}\"\n{code}"
                     "return 0;\n}\n};\n")
    return text


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    fragments = "".join(source(pathlib.Path(name)) for name in sys.argv[2:])
    if not fragments:
        sys.exit("expected a fragment of C++, but found none")
    text = f'#pragma once\n\n#include "lockstep/tests/docs/fragment_names.h"\n\nnamespace fragments {{\n{fragments}}}\n'
    pathlib.Path(sys.argv[1]).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
