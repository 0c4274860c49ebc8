#!/usr/bin/env python3
"""Checks the tables that map another system's names to Lockstep's: check_names.py <source root> <page.md>...
With --programs FOLDER before these, it asks the programs in that folder for their flags.

In each row the second of three cells either holds names of Lockstep's in backticks, or begins with "not offered" or "not
needed"; what is not offered has its reason, or what to do instead, in the third. A public header must declare every one of these
names, and every `Type::member` of a type of Lockstep's anywhere in the page. Names in `torch::` are LibTorch's, and taken as they are.

The second cell may also hold a program, a script, and a flag, alone or after one of these: `plan`, `scripts/launch_local.sh`, `--mesh`,
`train_gpt --steps`. The --help of that program, or of any program, must have the flag.
"""

import argparse
import functools
import pathlib
import re
import subprocess
import sys

from declared_names import DeclaredNames

NAME = re.compile(r"`([A-Za-z_]\w*(?:::[A-Za-z_]\w*)*)`")
CODE = re.compile(r"`([^`]+)`")
FLAG = re.compile(r"(?:(?P<program>[\w./]+) )?(?P<flag>--[a-z][a-z0-9-]*)")
HELP = re.compile(r"^ +(?:-\w, )?(--[a-z][a-z0-9-]*)", re.MULTILINE)


class Programs:
    """The programs of apps/ and the scripts, and the flags in their --help."""

    def __init__(self, root, folder=None):
        self.root = root
        self.folder = folder
        self.names = sorted(path.parent.name for path in root.glob("apps/*/main.cpp"))

    def has(self, code):
        """Whether `program`, `scripts/name`, `--flag` or `program --flag` is there. Without a folder of programs, all flags of theirs are."""
        flag = FLAG.fullmatch(code)
        if not flag:
            return code in self.names or "/" in code and (self.root / code).is_file()
        program = flag["program"]
        if program and not self.has(program):
            return False
        return any(flags is None or flag["flag"] in flags for flags in map(self.flags, [program] if program else self.names))

    @functools.lru_cache(maxsize=None)
    def flags(self, program):
        """The flags of a program or script; None for a program without a folder of programs."""
        if "/" not in program and self.folder is None:
            return None
        path = self.root / program if "/" in program else self.folder / program
        result = subprocess.run([path, "--help"], capture_output=True, text=True, check=True, timeout=60)
        return set(HELP.findall(result.stdout))


def rows(text):
    """Yields (number of the line, cells) of the rows of all tables, but for their heads."""
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        is_head = number < len(lines) and lines[number].startswith("|---")
        if line.startswith("| ") and not is_head:
            yield number, [cell.strip() for cell in line.strip().strip("|").split("|")]


def check(page, declared, programs):
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
        others = [code for code in CODE.findall(ours) if code in programs.names or not NAME.fullmatch(f"`{code}`")]
        if ours.startswith(("not offered", "not needed")):
            if ours.startswith("not offered") and not note:
                problems.append(f"{where}: {theirs} is not offered, and nothing says why")
        elif not names and not others:
            problems.append(f"{where}: expected a name of Lockstep's or 'not offered', but got '{ours}'")
        problems += [f"{where}: no public header declares {name}" for name in names
                     if name not in others and not name.startswith("torch::") and not declared.has(name)]
        problems += [f"{where}: expected a program, a script or a flag of one, but got {code}" for code in others if not programs.has(code)]
    for number, line in enumerate(text.splitlines(), 1):
        for name in NAME.findall(line):
            is_ours = "::" in name and declared.has(name.partition("::")[0])
            if is_ours and not declared.has(name):
                problems.append(f"{page}:{number}: no public header declares {name}")
    if count == 0:
        problems.append(f"{page}: expected tables of names, but found none")
    return sorted(set(problems))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=pathlib.Path, metavar="FOLDER")
    parser.add_argument("root", type=pathlib.Path)
    parser.add_argument("pages", type=pathlib.Path, nargs="+")
    given = parser.parse_args()
    declared = DeclaredNames(given.root)
    programs = Programs(given.root, given.programs)
    problems = [problem for page in given.pages for problem in check(page, declared, programs)]
    print("\n".join(problems) if problems else "every name is declared")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
