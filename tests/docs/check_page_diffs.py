#!/usr/bin/env python3
"""Checks that a page's diffs lead from one of its programs to the next: check_page_diffs.py <page.md>

Diffs that follow each other change the block of C++ before them, and give the beginning of the block of C++ after them, which may
leave out the lines before the first change. A diff has no line numbers: its lines must occur in one place.
"""

import pathlib
import re
import sys

BLOCK = re.compile(r"^```(cpp|diff)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def apply(diff, text):
    """Returns `text` changed by `diff`, or None unless the diff's old lines occur exactly once."""
    lines = diff.splitlines()
    old = "".join(f"{line[1:]}\n" for line in lines if not line.startswith("+"))
    new = "".join(f"{line[1:]}\n" for line in lines if not line.startswith("-"))
    places = list(re.finditer(f"^{re.escape(old)}", text, re.MULTILINE))
    return text[:places[0].start()] + new + text[places[0].end():] if len(places) == 1 else None


def changed_part(before, after):
    """Returns `after` from its first line that differs from `before`'s."""
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    same = 0
    while same < min(len(old), len(new)) and old[same] == new[same]:
        same += 1
    return "".join(new[same:])


def check(page):
    """Returns one line for each problem."""
    text = page.read_text(encoding="utf-8")
    problems, original, program = [], "", ""
    for match in BLOCK.finditer(text):
        where = f"{page}:{text.count(chr(10), 0, match.start()) + 1}"
        language, block = match.groups()
        if language == "diff":
            changed = apply(block, program)
            if changed is None:
                problems.append(f"{where}: expected a diff that applies in one place of the program before it")
            program = changed or program
        else:
            if program != original and not block.startswith((program, changed_part(original, program))):
                problems.append(f"{where}: expected a program that begins as the diffs above say:\n{program}")
            original = program = block
    if not re.search(r"^```diff$", text, re.MULTILINE):
        problems.append(f"{page}: expected diffs, but found none")
    if program != original:
        problems.append(f"{page}: expected a program after the last diff, but found none")
    return problems


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    problems = check(pathlib.Path(sys.argv[1]))
    print("\n".join(problems) if problems else "the diffs lead to the programs")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
