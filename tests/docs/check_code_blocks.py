#!/usr/bin/env python3
"""Checks that all code on pages is checked: check_code_blocks.py <source folder> <page that is compiled>...

C++ is in a fence: a fragment (see write_fragments.py), or a program on a page that a test compiles or compares with a file.
Shell commands are run by commands_test.py. The rest is output, files' contents or another language.
"""

import pathlib
import sys

from page_commands import code_blocks, is_shell


def problems(root, compiled):
    """Returns what is wrong with the blocks of the pages below root."""
    found = []
    for page in sorted([*root.glob("*.md"), *(root / "docs").rglob("*.md")]):
        if page.name == "CHANGELOG.md":
            continue
        for line, language, lines in code_blocks(page.read_text(encoding="utf-8")):
            place = f"{page.relative_to(root)}:{line}"
            if language == "cpp" and page.stem not in compiled:
                found.append(f"{place}: C++ that no test compiles: make it a fragment, or add the page to the tests")
            if language is None and not is_shell(lines) and any(text.rstrip().endswith((";", "{")) for text in lines):
                found.append(f"{place}: C++ outside of a fence")
    return found


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    found = problems(pathlib.Path(sys.argv[1]), set(sys.argv[2:]))
    sys.exit("\n".join(found) or 0)


if __name__ == "__main__":
    main()
