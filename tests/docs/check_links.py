#!/usr/bin/env python3
"""Checks the links and pictures of *.md and docs/*.md: check_links.py <source root>

A link to a file must find it, one to a heading the heading, as GitHub names it. README.md links to all other pages.
"""

import pathlib
import re
import sys

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
PICTURE = re.compile(r"<(?:img|source)\b.*?\bsrc(?:set)?=\"([^\"]+)\"")


def without_code(text):
    text = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"`[^`\n]*`", lambda match: match.group().replace("[", " "), text)


def anchors(page):
    """What GitHub calls the page's headings."""
    headings = re.findall(r"^#+ +(.+?) *$", without_code(page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def check(root):
    """Returns one line for each problem."""
    readme = root / "README.md"
    pages = [page for page in [*sorted(root.glob("*.md")), *sorted((root / "docs").rglob("*.md"))] if page != readme]
    problems, linked = [], set()
    for page in [readme, *pages]:
        text = without_code(page.read_text(encoding="utf-8"))
        for target in LINK.findall(text) + PICTURE.findall(text):
            if re.match(r"[a-z]+:", target):
                continue
            name, _, anchor = target.partition("#")
            path = (page.parent / name).resolve() if name else page
            if not path.exists():
                problems.append(f"{page.relative_to(root)}: {target}: there is no such file")
            elif anchor and anchor not in anchors(path):
                problems.append(f"{page.relative_to(root)}: {target}: there is no such heading")
            if page == readme:
                linked.add(path)
    problems += [f"README.md does not link to {page.relative_to(root)}" for page in pages if page.resolve() not in linked]
    return problems


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    problems = check(pathlib.Path(sys.argv[1]).resolve())
    print("\n".join(problems) if problems else "every link leads somewhere")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
