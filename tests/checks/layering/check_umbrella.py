#!/usr/bin/env python3
"""Checks that lockstep.h brings in every public header: check_umbrella.py <source root>.

lockstep.h must reach every header of the layers, by its own includes or by theirs. A header that only sources need
stays out: one of its lines begins with "// Internal:" and says what it is for.
"""

import pathlib
import re
import sys

from check_layering import ALLOWED


def check(root):
    """Returns one line for each header that is missing or out of place."""
    reached = set()
    pending = [root / "lockstep.h"]
    problems = []
    while pending:
        header = pending.pop()
        for name in re.findall(r'^#include "lockstep/([^"]+)"', header.read_text(encoding="utf-8"), re.MULTILINE):
            path = root / name
            if not path.is_file():
                problems.append(f"{header.relative_to(root)} includes {name}, which does not exist")
            elif path not in reached:
                reached.add(path)
                pending.append(path)
    for path in sorted(path for layer in ALLOWED for path in (root / layer).rglob("*.h")):
        internal = re.search(r"^// Internal: \S", path.read_text(encoding="utf-8"), re.MULTILINE)
        if internal and path in reached:
            problems.append(f"lockstep.h reaches {path.relative_to(root)}, which says that it is internal")
        elif not internal and path not in reached:
            problems.append(f"lockstep.h does not reach {path.relative_to(root)}: include it, or mark it // Internal: <why>")
    return problems


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    problems = check(pathlib.Path(sys.argv[1]))
    print("\n".join(problems) if problems else "lockstep.h reaches every public header")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
