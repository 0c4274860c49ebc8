#!/usr/bin/env python3
"""Checks docs/architecture.md against the sources: check_architecture.py <source root>

The table of rooms has a row for every room that holds sources, in the order of the CMakeLists.txt files, and says which
rooms are internal and which do without LibTorch. Both pictures show the same. The table "Where do I change ..." has a row
for each of QUESTIONS, with links to files to change and to a test, all of which exist.
"""

import pathlib
import re
import sys
import xml.etree.ElementTree

from check_links import LINK
from check_names import rows

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "checks" / "layering"))
import rooms

PAGE = "docs/architecture.md"
PICTURES = ["docs/images/architecture_light.svg", "docs/images/architecture_dark.svg"]
ROOMS_HEADING = "## Rooms"
CHANGES_HEADING = "## Where do I change ..."
QUESTIONS = ["NCCL option", "new callback", "new cluster resolver", "new checkpoint format version",
             "column in the comparison's report"]
STYLE = re.compile(r"<style>.*?</style>", re.DOTALL)
SVG = "{http://www.w3.org/2000/svg}"


def rooms_with_sources(root):
    """Lists the rooms in their order, but for a layer's own folder where that holds rooms only."""
    def has_sources(folder):
        return folder.is_dir() and any(path.suffix in {".h", ".cpp"} for path in folder.iterdir())
    return [room for room in rooms.all_rooms(root) if has_sources(root / room.path)]


def section(text, heading):
    """Returns the lines from a heading to the next one of its level or above."""
    lines = text.splitlines()
    if heading not in lines:
        return ""
    begin = lines.index(heading) + 1
    level = heading.split()[0]
    ends = [i for i in range(begin, len(lines)) if re.match(rf"#{{1,{len(level)}}} ", lines[i])]
    return "\n".join(lines[begin:ends[0] if ends else len(lines)])


def note_of(room):
    """Returns what the table says of a room, besides what it is for."""
    return ", ".join(["internal"] * room.is_internal + ["without LibTorch"] * room.is_torch_free)


def first_difference(actual, expected):
    """Says where two lists of names first differ, or returns None."""
    for i in range(max(len(actual), len(expected))):
        names = [names[i] if i < len(names) else "no more" for names in (expected, actual)]
        if names[0] != names[1]:
            return f"expected {names[0]}, but got {names[1]}"
    return None


def check_rooms_table(root, text):
    listed = list(rows(section(text, ROOMS_HEADING)))
    links = [LINK.findall(cells[0]) for _, cells in listed]
    names = [found[0].removeprefix("../").rstrip("/") if found else cells[0] for found, (_, cells) in zip(links, listed)]
    expected = rooms_with_sources(root)
    difference = first_difference(names, [room.path for room in expected])
    if difference:
        return [f"{PAGE}: table of rooms: {difference}"]
    problems = []
    for room, (_, cells) in zip(expected, listed):
        if len(cells) != 3 or not cells[1]:
            problems.append(f"{PAGE}: {room.path}: expected 3 cells, of which the second says what the room is for")
        elif cells[2] != note_of(room):
            problems.append(f"{PAGE}: {room.path}: expected the note '{note_of(room)}', but got '{cells[2]}'")
    return problems


def check_changes_table(root, text):
    problems = []
    listed = list(rows(section(text, CHANGES_HEADING)))
    for question in QUESTIONS:
        if not any(question in cells[0] for _, cells in listed):
            problems.append(f"{PAGE}: 'Where do I change ...': expected a row for '{question}', but there is none")
    for _, cells in listed:
        if len(cells) != 3:
            problems.append(f"{PAGE}: {cells[0]}: expected 3 cells, but got {len(cells)}")
            continue
        for cell, what in [(cells[1], "files to change"), (cells[2], "tests")]:
            targets = [target.partition("#")[0] for target in LINK.findall(cell)]
            if not targets:
                problems.append(f"{PAGE}: {cells[0]}: expected links to {what}, but got none")
            problems += [f"{PAGE}: {cells[0]}: {target} is no file"
                         for target in targets if not (root / "docs" / target).is_file()]
            if what == "tests":
                problems += [f"{PAGE}: {cells[0]}: expected a test, but got {target}"
                             for target in targets if not target.startswith("../tests/")]
    return problems


def layers_in(picture):
    """Returns the rooms that a picture shows, by layer, in their order."""
    shown = {}
    for layer in xml.etree.ElementTree.parse(picture).getroot().findall(f"{SVG}g[@id]"):
        shown[layer.get("id")] = [
            rooms.Room(f"{layer.get('id')}/{''.join(group.itertext()).strip()}", "internal" in group.get("class").split(),
                       "torch-free" in group.get("class").split())
            for group in layer.findall(f"{SVG}g")]
    return shown


def check_picture(root, name):
    shown = layers_in(root / name)
    expected = rooms_with_sources(root)
    problems = []
    for layer in dict.fromkeys(room.path.split("/")[0] for room in expected):
        if layer not in shown:
            problems.append(f"{name}: expected a box for {layer}, but there is none")
            continue
        inside = [room for room in expected if room.path.startswith(f"{layer}/")]
        difference = first_difference([room.path for room in shown[layer]], [room.path for room in inside])
        if difference:
            problems.append(f"{name}: {difference}")
            continue
        problems += [f"{name}: {room.path}: expected it drawn as '{note_of(room)}', but got '{note_of(drawn)}'"
                     for drawn, room in zip(shown[layer], inside) if drawn != room]
    return problems


def check(root):
    """Returns one line for each problem."""
    text = (root / PAGE).read_text(encoding="utf-8")
    problems = check_rooms_table(root, text) + check_changes_table(root, text)
    for name in PICTURES:
        if name.removeprefix("docs/") not in text:
            problems.append(f"{PAGE} does not show {name}")
        problems += check_picture(root, name)
    light, dark = (STYLE.sub("", (root / name).read_text(encoding="utf-8")) for name in PICTURES)
    if light != dark:
        problems.append(f"{PICTURES[0]} and {PICTURES[1]}: expected the same but for <style>, but they differ")
    return problems


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    problems = check(pathlib.Path(sys.argv[1]))
    print("\n".join(problems) if problems else "docs/architecture.md shows the sources as they are")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
