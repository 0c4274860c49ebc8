#!/usr/bin/env python3
"""Checks that each type of the layers has a name of its own: check_type_names.py <source root>.

Two classes of one name in the namespace lockstep may well compile, in sources of their own, and end in each other's
destructors. Those of other namespaces, such as lockstep::detail and the programs', are left out.
"""

import pathlib
import re
import sys

from rooms import LAYERS

NAMESPACE = re.compile(r"^namespace lockstep \{$(.*?)^\}  // namespace lockstep$", re.DOTALL | re.MULTILINE)
INNER = re.compile(r"^namespace \w* ?\{$.*?^\}  // namespace.*?$", re.DOTALL | re.MULTILINE)
TYPE = re.compile(r"^(?:class|struct|enum class|enum)(?: [A-Z_]+\([^)]*\))? (\w+)(?: final)?(?: *:(?!:)[^{;]*)? *\{", re.MULTILINE)


def check(root):
    """Returns one line for each type that two headers define."""
    seen, problems = {}, []
    for path in sorted(path for layer in LAYERS for path in (root / layer).rglob("*.h")):
        text = path.read_text(encoding="utf-8")
        for namespace in NAMESPACE.findall(text):
            for name in TYPE.findall(INNER.sub("", namespace)):
                here = path.relative_to(root)
                if seen.setdefault(name, here) != here:
                    problems.append(f"{name} is defined by {seen[name]} and by {here}")
    return problems


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    problems = check(pathlib.Path(sys.argv[1]))
    print("\n".join(problems) if problems else "every type has a name of its own")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
