#!/usr/bin/env python3
"""Builds the API reference and looks at it: check_reference.py <source root> <doxygen> <Doxyfile> <output>

Doxygen must end without a warning. The reference must have every type that the public headers declare and none of the internal
ones', and its main page must link every name of Lockstep's that docs/reference.md mentions.
"""

import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree

from declared_names import DeclaredNames


def types_in(tag_file):
    """The names of all types in Doxygen's tag file, without the namespace."""
    names = set()
    for compound in xml.etree.ElementTree.parse(tag_file).getroot():
        name = compound.findtext("name")
        names.add(name.removeprefix("lockstep::"))
        if name == "lockstep":
            names |= {member.findtext("name") for member in compound.iter("member")}
    return names


def check(root, output):
    """Returns one line for each problem."""
    declared = DeclaredNames(root)
    types = {name for name in declared.members if name and declared.has(name)}
    shown = types_in(output / "lockstep.tag")
    problems = [f"the reference lacks {name}" for name in sorted(types - shown)]
    # Two of the internal ones, whatever else there is.
    problems += [f"the reference shows {name}, which is internal" for name in ("GradientReducer", "FusedCall") if name in shown]
    main_page = (output / "html" / "index.html").read_text(encoding="utf-8")
    linked = set(re.findall(r">(lockstep(?:::\w+)+)(?:\(\))?</a>", main_page))
    mentioned = set(re.findall(r"lockstep(?:::\w+)+", (root / "docs" / "reference.md").read_text(encoding="utf-8")))
    problems += [f"docs/reference.md: {name} is in no public header" for name in sorted(mentioned - linked)]
    return problems


def main():
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    root, doxygen, doxyfile, output = sys.argv[1:]
    pathlib.Path(output).mkdir(parents=True, exist_ok=True)
    if subprocess.run([doxygen, doxyfile], check=False).returncode != 0:
        sys.exit("Doxygen warns")
    problems = check(pathlib.Path(root), pathlib.Path(output))
    print("\n".join(problems) if problems else "the reference is complete")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
