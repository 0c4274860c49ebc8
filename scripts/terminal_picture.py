#!/usr/bin/env python3
"""Runs a command in a terminal of tmux, and draws the terminal as an SVG at a moment that it chooses:

    scripts/terminal_picture.py OUT.svg PATTERN COLUMNS ROWS command [argument...]

The picture is taken as soon as a line of the screen matches the regular expression PATTERN. docs/images/progress_bar.svg
was made by

    scripts/terminal_picture.py docs/images/progress_bar.svg 'epoch 3/5 +[67]\\d%' 132 28 build/release/bin/train_images \\
      --replicas 2 --limit-train 6000 --limit-test 2000 --data generated
"""

import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from xml.sax.saxutils import escape

CELL, LINE, SIZE, MARGIN = 8, 18, 13, 12
BACKGROUND, FOREGROUND = "#1b1f24", "#d0d7de"
COLOURS = ["#6e7681", "#ff7b72", "#7ee787", "#e3b341", "#79c0ff", "#d2a8ff", "#76e3ea", "#d0d7de"]
BLOCKS = " ▏▎▍▌▋▊▉█"
TIMEOUT = 300


def screen_of(command, pattern, columns, rows):
    """Returns the screen, with escape codes, once a line of it matches."""
    with tempfile.TemporaryDirectory() as folder:
        tmux = ["tmux", "-S", os.path.join(folder, "tmux"), "-f", "/dev/null"]

        def run(*arguments):
            return subprocess.run([*tmux, *arguments], check=True, capture_output=True, encoding="utf-8").stdout

        shown = "$ " + shlex.join([os.path.basename(command[0]), *command[1:]])
        line = f"clear; printf '%s\\n' {shlex.quote(shown)}; {shlex.join(command)}; sleep 60"
        run("new-session", "-d", "-x", str(columns), "-y", str(rows), "env", "LC_ALL=C.UTF-8", "sh", "-c", line)
        try:
            deadline = time.monotonic() + TIMEOUT
            while time.monotonic() < deadline:
                if re.search(pattern, run("capture-pane", "-p"), re.MULTILINE):
                    return run("capture-pane", "-e", "-p")
                time.sleep(0.05)
            sys.exit(f"no line matched {pattern!r} within {TIMEOUT} s:\n" + run("capture-pane", "-p"))
        finally:
            run("kill-server")


def pieces(line):
    """Yields (column, text, colour, is bold, is dim) of the pieces of a line that look alike."""
    colour, bold, dim, column = FOREGROUND, False, False, 0
    for codes, text in re.findall(r"(?:\x1b\[([\d;]*)m)?([^\x1b]*)", line):
        for code in (int(number or 0) for number in codes.split(";")) if codes else ():
            if code in (0, 22):
                bold = dim = False
            if code in (0, 39):
                colour = FOREGROUND
            bold, dim = bold or code == 1, dim or code == 2
            if 30 <= code % 60 <= 37:
                colour = COLOURS[code % 60 - 30]
        if text:
            yield column, text, colour, bold, dim
            column += len(text)


def drawn(piece, top):
    """Returns a piece's SVG: blocks as rectangles, so that they join, and words as text."""
    column, text, colour, bold, dim = piece
    style = f' fill="{colour}"' + (' font-weight="bold"' if bold else "") + (' opacity="0.7"' if dim else "")
    for match in re.finditer(r"[▏▎▍▌▋▊▉█]+|(?:[^\s▏▎▍▌▋▊▉█]+ ?)+", text):
        left, word = MARGIN + CELL * (column + match.start()), match.group().rstrip()
        if word[0] in BLOCKS:
            width = CELL * sum(BLOCKS.index(block) for block in word) / 8
            yield f'<rect x="{left}" y="{top + 3}" width="{width:g}" height="{LINE - 5}"{style}/>'
        else:
            yield (f'<text x="{left}" y="{top + LINE - 5}" textLength="{CELL * len(word)}" '
                   f'lengthAdjust="spacingAndGlyphs"{style}>{escape(word)}</text>')


def svg(screen, columns):
    lines = screen.rstrip().splitlines()
    width, height = columns * CELL + 2 * MARGIN, len(lines) * LINE + 2 * MARGIN
    yield (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
           f'font-family="ui-monospace, Menlo, Consolas, DejaVu Sans Mono, monospace" font-size="{SIZE}" '
           'xml:space="preserve">')
    yield f'<rect width="{width}" height="{height}" rx="8" fill="{BACKGROUND}"/>'
    for number, line in enumerate(lines):
        for piece in pieces(line):
            yield from drawn(piece, MARGIN + number * LINE)
    yield "</svg>"


def main():
    if len(sys.argv) < 6:
        sys.exit(__doc__)
    out, pattern, columns, rows, *command = sys.argv[1:]
    screen = screen_of(command, pattern, int(columns), int(rows))
    with open(out, "w", encoding="utf-8") as file:
        file.write("\n".join(svg(screen, int(columns))) + "\n")


if __name__ == "__main__":
    main()
