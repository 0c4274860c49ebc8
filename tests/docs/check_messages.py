#!/usr/bin/env python3
"""Checks that the messages on the page of troubleshooting are messages of the sources: check_messages.py <source root> <page.md>

The messages are the code in the first column of the tables whose head begins with "message". `...` stands for anything. Each piece
between, and between the words that all messages share, must be in the sources. "(from <program>)" follows messages of other programs.
"""

import pathlib
import re
import sys

MESSAGE = re.compile(r"`([^`]+)`(?! \(from )")
FOLDERS = ["apps", "cmake", "datasets", "measurement", "models", "parameter_server", "runtime", "scripts", "strategies", "training"]
SUFFIXES = {".h", ".cpp", ".py", ".sh", ".cmake"}
# Functions put these around what they are given: "[TF_CONFIG] expected ... to be ..., but got ...".
SHARED = re.compile(r"\.\.\.|[\[\]]|: |\bexpected\b|,? but got\b")
LEAST = 4  # characters by which a message can be recognised


def texts_of(root):
    """Returns the sources as one text, in which a literal that spans several lines is in one piece."""
    files = sorted(path for folder in FOLDERS for path in (root / folder).glob("**/*") if path.suffix in SUFFIXES)
    texts = []
    for path in files:
        texts.append(re.sub(r"\",?\s*\n\s*f?\"", "", path.read_text(encoding="utf-8")))
    return "\n".join(texts)


def messages(text):
    """Yields (number of the line, message)."""
    in_table = False
    for number, line in enumerate(text.splitlines(), 1):
        if not line.startswith("|"):
            in_table = False
        elif line.startswith("| message"):
            in_table = True
        elif in_table:
            for message in MESSAGE.findall(line.split("|")[1]):
                yield number, message


def check(root, page):
    """Returns one line for each problem."""
    sources = texts_of(root)
    found = list(messages(page.read_text(encoding="utf-8")))
    problems = [] if found else [f"{page.name}: expected tables of messages, but found none"]
    for number, message in found:
        pieces = [piece.strip() for piece in SHARED.split(message)]
        pieces = [piece for piece in pieces if len(piece) >= LEAST]
        if not pieces:
            problems.append(f"{page.name}:{number}: expected a message of {LEAST} characters or more, but got '{message}'")
        problems += [f"{page.name}:{number}: no source has '{piece}'" for piece in pieces if piece not in sources]
    return problems


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    problems = check(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
    print("\n".join(problems) if problems else "every message is one of the sources")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
