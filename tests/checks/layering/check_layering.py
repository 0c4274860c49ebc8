#!/usr/bin/env python3
"""Checks that includes point down only: check_layering.py <source root>.

Prints every include that does not and exits 1. A layer may include the layers that rooms.py names for it; a room may
include itself and the rooms before it in the CMakeLists.txt of its layer; a room without LibTorch may include neither
LibTorch nor a room with it; a public header may include no internal one. How an include is spelt
("lockstep/<layer>/<room>/<name>.h") is checked in every folder; examples may include files beside them.
"""

import pathlib
import re
import sys

from rooms import ABOVE, LAYERS, all_rooms, is_internal, room_of

INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')
LIBTORCH = re.compile(r"^(torch|ATen|c10)/")


class Tree:
    """A source tree and its rooms."""

    def __init__(self, root):
        self.root = root
        self.rooms = all_rooms(root)

    def check(self):
        """Returns one line for each violation."""
        problems = []
        for folder in sorted(LAYERS.keys() | ABOVE):
            for path in sorted((self.root / folder).rglob("*")):
                if path.suffix not in {".h", ".cpp", ".cu"}:
                    continue
                name = path.relative_to(self.root).as_posix()
                for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                    match = INCLUDE.match(line)
                    problem = match and self.check_include(name, *match.groups())
                    if problem:
                        problems.append(f"{name}:{number}: {problem}")
        return problems

    def check_include(self, path, quote, name):
        """Says what is wrong with one include of the file `path`, or nothing."""
        parts = name.split("/")
        room = room_of(self.rooms, path)
        if parts[0] != "lockstep":
            # An example is a project of its own, to be copied.
            is_beside = path.startswith("examples/") and (self.root / path).parent.joinpath(name).is_file()
            if quote == '"' and not is_beside:
                return f'expected an include that starts with lockstep/, but got "{name}"'
            if room is not None and self.rooms[room].is_torch_free and LIBTORCH.match(name):
                return f"{self.rooms[room].path} does without LibTorch, but includes <{name}>"
            return None
        if quote == "<":
            return f"expected quotes around an include of the project's own, but got <{name}>"
        if ".." in parts or not self.root.joinpath(*parts[1:]).is_file():
            return f'"{name}" names no file of the project'
        return self.check_layers(path, name) or self.check_rooms(path, room, "/".join(parts[1:]))

    def check_layers(self, path, name):
        folder = path.split("/")[0]
        if folder in ABOVE:
            return None
        allowed = LAYERS[folder] | {folder}
        parts = name.split("/")
        if len(parts) < 3 or parts[1] not in allowed:
            return f'{folder} may include {", ".join(sorted(allowed))}, but includes "{name}"'
        return None

    def check_rooms(self, path, room, name):
        included = room_of(self.rooms, name)
        if room is None or included is None:
            return None
        own, other = self.rooms[room], self.rooms[included]
        if own.path.split("/")[0] == other.path.split("/")[0] and included > room:
            return f'{own.path} comes before {other.path}, but includes "{name}"'
        if own.is_torch_free and not other.is_torch_free:
            return f'{own.path} does without LibTorch, but includes "{name}" of {other.path}'
        is_public_header = path.split("/")[0] in LAYERS and path.endswith(".h") and not is_internal(self.rooms, path)
        if is_public_header and is_internal(self.rooms, name):
            return f'{path} is public, but includes "{name}", which is internal'
        return None


def check(root):
    """Returns one line for each violation."""
    return Tree(root).check()


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    problems = check(pathlib.Path(sys.argv[1]))
    print("\n".join(problems) if problems else "every include points down")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
