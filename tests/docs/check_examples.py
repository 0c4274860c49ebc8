#!/usr/bin/env python3
"""Checks that each public class has an example in its docstring: check_examples.py <source root>.

An example is a line of code in the comment before the class, indented by four spaces or more. Classes of other namespaces,
such as lockstep::detail, and structs, which are options and plain data, do without.
"""

import pathlib
import re
import sys

from declared_names import public_headers

NAMESPACE = re.compile(r"^namespace lockstep \{$(.*?)^\}  // namespace lockstep$", re.DOTALL | re.MULTILINE)
INNER = re.compile(r"^namespace \w* ?\{$.*?^\}  // namespace.*?$", re.DOTALL | re.MULTILINE)
CLASS = re.compile(
    r"(?P<comment>(?:^///[^\n]*\n)*)"
    r"(?:^template[^\n]*\n(?:^ [^\n]*\n)*)?(?:^requires[^\n]*\n)?"
    r"^class (?:[A-Z_]+\([^)]*\) )?(?P<name>\w+)(?: final)?(?:\s*:(?!:)[^{;]*)?\s*\{", re.MULTILINE)
EXAMPLE = re.compile(r"^///\s{4,}\S", re.MULTILINE)


def check(root):
    """Returns one line for each class without an example."""
    problems = []
    for header in public_headers(root):
        for namespace in NAMESPACE.findall(header.read_text(encoding="utf-8")):
            classes = list(CLASS.finditer(INNER.sub("", namespace)))
            names = {match["name"] for match in classes}
            for match in classes:
                # A module holder is made by the class that it holds, which has the example.
                if not EXAMPLE.search(match["comment"]) and match["name"] + "Impl" not in names:
                    problems.append(f"{header.relative_to(root)}: expected an example in the comment of class {match['name']}")
    return problems


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    problems = check(pathlib.Path(sys.argv[1]))
    print("\n".join(problems) if problems else "each public class has an example")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
