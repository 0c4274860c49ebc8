#!/usr/bin/env python3
"""Checks that public headers are those that lockstep.h reaches, by place: check_public_headers.py <source root>.

lockstep.h includes the folder header of each layer, such as strategies.h, and through these it reaches every header of
the layers that is neither in a folder named internal nor in an internal room, and no other. No header says in a
comment that it is internal.
"""

import pathlib
import re
import sys

from rooms import LAYERS, all_rooms, is_internal


def check(root):
    """Returns one line for each header that is missing or out of place."""
    reached = set()
    pending = ["lockstep.h"]
    problems = []
    while pending:
        header = pending.pop()
        for name in re.findall(r'^#include "lockstep/([^"]+)"', (root / header).read_text(encoding="utf-8"), re.MULTILINE):
            if not (root / name).is_file():
                problems.append(f"{header} includes {name}, which does not exist")
            elif name not in reached:
                reached.add(name)
                pending.append(name)
    rooms = all_rooms(root)
    for layer in LAYERS:
        if f"{layer}.h" not in reached:
            problems.append(f"lockstep.h does not reach {layer}.h, the header of a layer")
        for path in sorted((root / layer).rglob("*.h")):
            name = path.relative_to(root).as_posix()
            if is_internal(rooms, name) and name in reached:
                problems.append(f"lockstep.h reaches {name}, which is internal by its place")
            elif not is_internal(rooms, name) and name not in reached:
                problems.append(f"lockstep.h does not reach {name}: include it, or move it to an internal folder")
            if re.search(r"^\s*//+ Internal\b", path.read_text(encoding="utf-8"), re.MULTILINE):
                problems.append(f"{name} says in a comment that it is internal: its place should")
    return problems


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    problems = check(pathlib.Path(sys.argv[1]))
    print("\n".join(problems) if problems else "lockstep.h reaches the public headers, and no other")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
