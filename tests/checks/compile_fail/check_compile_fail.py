#!/usr/bin/env python3
"""Checks that a source compiles, and that it fails to with LOCKSTEP_MUST_NOT_COMPILE defined, for the reason expected.

check_compile_fail.py <build folder> <source> <regular expression> [<offence>]

The source keeps its offence under #ifdef LOCKSTEP_MUST_NOT_COMPILE: since the rest compiles, nothing but the offence
can be why it fails. A source with several offences compares LOCKSTEP_MUST_NOT_COMPILE with their numbers, from 1; it
is compiled without any of them only for the first. The expression must match the first error, which is the one that
users read. The command is the one that the build itself would use, precompiled header included.
"""

import json
import os
import pathlib
import re
import shlex
import subprocess
import sys


def compiler_command(build, source):
    """The build's command for `source`, without its output."""
    for entry in json.loads((build / "compile_commands.json").read_text(encoding="utf-8")):
        if entry["file"] == str(source):
            command = shlex.split(entry["command"])
            output = command.index("-o")
            del command[output : output + 2]
            return [*command, "-fsyntax-only"]
    sys.exit(f"{build}/compile_commands.json does not know {source}")


def compile_source(command, build):
    result = subprocess.run(command, cwd=build, env={**os.environ, "LC_ALL": "C"}, capture_output=True, text=True)
    return result.returncode == 0, result.stderr


def main():
    if len(sys.argv) not in (4, 5):
        sys.exit(__doc__)
    build, source, expected = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3]
    offence = sys.argv[4] if len(sys.argv) == 5 else "1"
    command = compiler_command(build, source)

    if offence == "1":
        compiles, output = compile_source(command, build)
        if not compiles:
            sys.exit(f"expected the source to compile without its offence, but got:\n{output}")
    compiles, output = compile_source([*command, f"-DLOCKSTEP_MUST_NOT_COMPILE={offence}"], build)
    if compiles:
        sys.exit("expected the offence to be refused, but it compiles")
    errors = [line for line in output.splitlines() if "error:" in line]
    if not errors or not re.search(expected, errors[0]):
        sys.exit(f"expected a first error that matches {expected!r}, but got:\n{output}")
    print("\n".join(errors))


if __name__ == "__main__":
    main()
