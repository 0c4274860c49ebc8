#!/usr/bin/env python3
"""Checks that offences in sources are refused, each for the reason expected.

check_compile_fail.py compile <build folder> <source> <folder of the offences> <file for the compiler's output>
check_compile_fail.py check <folder of the offences> <that file> <offence> <regular expression> [<forbidden expression>]

The sources keep their offences under #ifdef LOCKSTEP_MUST_NOT_COMPILE: the build compiles all of them without, so that nothing
but the offences can be why they fail. One source includes them all, because reading the headers takes longer than everything
else, and `compile` compiles it once with all offences. An offence has the name of its file, or that of the comment before it,
such as "// offence: saved_mirrored". Errors belong to the offence whose lines they are in, or whose lines required the template
that they are in. An error that belongs to no offence fails `compile`, and so does an offence without an error.

`check` looks at the errors of one offence. The expression (Python's) must match the first one, which is the one that users
read; the forbidden one, none of them. The command is the one that the build itself uses, precompiled header included.
"""

import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

# A place in a file, as GCC and clang begin the lines of their messages.
PLACE = re.compile(r"^(?:In file included from |\s+from )?(?P<file>[^\s:][^:]*):(?P<line>\d+)(?::\d+)?[:,]\s*(?P<text>.*)$")


def offences_of(folder):
    """Returns the offences of all sources of a folder, as (file name, first line, name), in order. The lines of an offence
    end where the next one begins, or at #endif, which has the name None."""
    found = []
    for path in sorted(folder.glob("*.cpp")):
        is_inside = False
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            if line.startswith("#ifdef LOCKSTEP_MUST_NOT_COMPILE"):
                is_inside = True
                found.append((path.name, number, path.stem))
            elif line.startswith("#endif") and is_inside:
                is_inside = False
                found.append((path.name, number, None))
            elif is_inside and (named := re.match(r"\s*// offence: (\w+)$", line)):
                found.append((path.name, number, named[1]))
    return found


def offence_at(offences, file, line):
    """Returns the offence that a line of a source belongs to, or None."""
    name = pathlib.PurePath(file).name
    before = [offence for source, first, offence in offences if source == name and first <= line]
    return before[-1] if before else None


def errors_of(output, offences):
    """Returns the first lines of the compiler's errors, as (offence or None, line)."""
    errors = []
    required_by = None  # GCC writes it before the error, and only if it is another than that of the error before
    for line in output.splitlines():
        if re.match(r"\S+: In (instantiation|substitution) of ", line):
            required_by = None
        place = PLACE.match(line)
        if not place:
            continue
        here = offence_at(offences, place["file"], int(place["line"]))
        text = place["text"]
        if re.match(r"(fatal )?error: ", text):
            errors.append([here or required_by, line])
        elif text.startswith("note: "):
            # Clang writes it after the error.
            if "requested here" in text and errors and errors[-1][0] is None:
                errors[-1][0] = here
        elif text.startswith(("required ", "recursively required ")):
            required_by = here or required_by
    return [tuple(error) for error in errors]


def compiler_command(build, source):
    """Returns the build's command for `source`, without its output."""
    for entry in json.loads((build / "compile_commands.json").read_text(encoding="utf-8")):
        if entry["file"] == str(source):
            command = shlex.split(entry["command"])
            output = command.index("-o")
            del command[output : output + 2]
            return [*command, "-fsyntax-only"]
    sys.exit(f"{build}/compile_commands.json does not know {source}")


def compile_offences(command, build, folder):
    """Returns what the compiler says, and what is wrong with it."""
    result = subprocess.run([*command, "-DLOCKSTEP_MUST_NOT_COMPILE"], cwd=build, env={**os.environ, "LC_ALL": "C"},
                            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    offences = offences_of(folder)
    errors = errors_of(result.stderr, offences)
    problems = [f"expected errors of the offences only, but got {line}" for offence, line in errors if not offence]
    marked = {(file, name) for file, _, name in offences if name}
    # A file that names its offences has none of its own name.
    named = {file for file, name in marked if name != pathlib.PurePath(file).stem}
    expected = {name for file, name in marked if file not in named or name != pathlib.PurePath(file).stem}
    refused = {offence for offence, _ in errors}
    problems += [f"expected the offence {name} to be refused, but it compiles" for name in sorted(expected - refused)]
    return result.stderr, problems


def problem_of(output, offences, offence, expected, forbidden=None):
    """Returns what is wrong with the errors of an offence, or None."""
    errors = [line for name, line in errors_of(output, offences) if name == offence]
    if not errors or not re.search(expected, errors[0]):
        return f"expected a first error that matches {expected!r}, but got:\n" + "\n".join(errors)
    if forbidden and any(re.search(forbidden, error) for error in errors):
        return f"expected no error that matches {forbidden!r}, but got:\n" + "\n".join(errors)
    return None


def main():
    arguments = sys.argv[2:]
    if sys.argv[1:2] == ["compile"] and len(arguments) == 4:
        build, source, folder, file = map(pathlib.Path, arguments)
        output, problems = compile_offences(compiler_command(build, source), build, folder)
        file.write_text(output, encoding="utf-8")
        if problems:
            sys.exit("\n".join([output, *problems]))
    elif sys.argv[1:2] == ["check"] and len(arguments) in (4, 5):
        folder, file = map(pathlib.Path, arguments[:2])
        problem = problem_of(file.read_text(encoding="utf-8"), offences_of(folder), *arguments[2:])
        if problem:
            sys.exit(problem)
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
