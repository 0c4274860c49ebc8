#!/usr/bin/env python3
"""Checks the tables that map another system's names to Lockstep's: check_names.py <source root> <page.md>...

In each row the second of three cells either holds names of Lockstep's in backticks, or begins with "not offered" or "not
needed"; what is not offered has its reason, or what to do instead, in the third. A public header must declare every one of these
names, and every `Type::member` of a type of Lockstep's anywhere in the page. Names in `torch::` are LibTorch's, and taken as they are.
"""

import pathlib
import re
import sys

from declared_names import DeclaredNames

NAME = re.compile(r"`([A-Za-z_]\w*(?:::[A-Za-z_]\w*)*)`")


def rows(text):
    """Yields (number of the line, cells) of the rows of all tables, but for their heads."""
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        is_head = number < len(lines) and lines[number].startswith("|---")
        if line.startswith("| ") and not is_head:
            yield number, [cell.strip() for cell in line.strip().strip("|").split("|")]


def check(page, declared):
    """Returns one line for each problem."""
    text = page.read_text(encoding="utf-8")
    problems = []
    count = 0
    for number, cells in rows(text):
        count += 1
        where = f"{page}:{number}"
        if len(cells) != 3:
            problems.append(f"{where}: expected 3 cells, but got {len(cells)}")
            continue
        theirs, ours, note = cells
        names = NAME.findall(ours)
        if ours.startswith(("not offered", "not needed")):
            if ours.startswith("not offered") and not note:
                problems.append(f"{where}: {theirs} is not offered, and nothing says why")
        elif not names:
            problems.append(f"{where}: expected a name of Lockstep's or 'not offered', but got '{ours}'")
        problems += [f"{where}: no public header declares {name}" for name in names
                     if not name.startswith("torch::") and not declared.has(name)]
    for number, line in enumerate(text.splitlines(), 1):
        for name in NAME.findall(line):
            is_ours = "::" in name and declared.has(name.partition("::")[0])
            if is_ours and not declared.has(name):
                problems.append(f"{page}:{number}: no public header declares {name}")
    if count == 0:
        problems.append(f"{page}: expected tables of names, but found none")
    return sorted(set(problems))


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    declared = DeclaredNames(pathlib.Path(sys.argv[1]))
    problems = [problem for page in sys.argv[2:] for problem in check(pathlib.Path(page), declared)]
    print("\n".join(problems) if problems else "every name is declared")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
