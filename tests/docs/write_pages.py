#!/usr/bin/env python3
"""Writes the C++ of pages as one source to be compiled: write_pages.py [--global] <output> <page.md>...

The C++ blocks of a page, in order, become a namespace of the page's name; their includes come before all of them. With
--global they stay in the global namespace, for a page that specializes templates of Lockstep's. The compiler's messages name
the page and its line.
"""

import pathlib
import re
import sys

from page_blocks import blocks


def source(page, is_global):
    """Returns includes and the rest of a page's C++."""
    shown = blocks(page, "cpp")
    if not shown:
        sys.exit(f"{page}: expected a block of C++, but got none")
    includes, body = [], []
    for line, code in shown:
        includes += re.findall(r"^#include \S+", code, re.MULTILINE)
        body.append(f'#line {line} "{page}"\n' + re.sub(r"^#include .*$", "", code, flags=re.MULTILINE))
    text = "".join(body)
    return includes, text if is_global else f"namespace {page.stem} {{\n{text}}}  // namespace {page.stem}\n"


def main():
    arguments = [argument for argument in sys.argv[1:] if argument != "--global"]
    if len(arguments) < 2:
        sys.exit(__doc__)
    is_global = "--global" in sys.argv
    pages = [source(pathlib.Path(name), is_global) for name in arguments[1:]]
    includes = sorted({include for page, _ in pages for include in page})
    text = "\n".join(["#pragma once", "", *includes, "", *(body for _, body in pages)])
    pathlib.Path(arguments[0]).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
