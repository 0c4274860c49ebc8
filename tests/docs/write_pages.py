#!/usr/bin/env python3
"""Writes the C++ of pages as one source to be compiled: write_pages.py <output> <page.md>...

The C++ blocks of a page, in order, become a namespace of the page's name; their includes come before all of them. What the
compiler says of it names the page and its line.
"""

import pathlib
import re
import sys

from page_blocks import blocks


def namespace(page):
    """Returns includes and the rest of a page's C++."""
    shown = blocks(page, "cpp")
    if not shown:
        sys.exit(f"{page}: expected a block of C++, but got none")
    includes, body = [], []
    for line, code in shown:
        includes += re.findall(r"^#include .*$", code, re.MULTILINE)
        body.append(f'#line {line} "{page}"\n' + re.sub(r"^#include .*$", "", code, flags=re.MULTILINE))
    return includes, f"namespace {page.stem} {{\n{''.join(body)}}}  // namespace {page.stem}\n"


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    pages = [namespace(pathlib.Path(name)) for name in sys.argv[2:]]
    includes = sorted({include for page, _ in pages for include in page})
    text = "\n".join(["#pragma once", "", *includes, "", *(body for _, body in pages)])
    pathlib.Path(sys.argv[1]).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
