#!/usr/bin/env python3
"""Makes stand-ins for shared libraries that Python's torch is linked to and never calls without a GPU.

    stub_libraries.py <folder of torch's libraries> <folder for the stand-ins> <compiler for C or C++>

The wheel's libtorch_python.so names 2.6 GB of NVIDIA's libraries, so that `import torch` fails without them, even on a
machine that has no GPU. A stand-in has the name and the symbols that the loader looks for; each of its functions ends the
process with a message. Libraries next to torch, in nvidia/*/lib, are left alone.
"""

import pathlib
import re
import subprocess
import sys
import tempfile

NEEDED = re.compile(r"\(NEEDED\)\s+Shared library: \[(.+)\]")
NVIDIA = re.compile(r"^lib(cu|nccl|nv)")
VERSIONS = re.compile(r"Version: 1 +File: (\S+) .*((?:\n.*Name: .*)*)")
UNDEFINED = re.compile(r"^\s*\d+: \S+\s+\d+ \S+\s+(?:GLOBAL|WEAK)\s+DEFAULT\s+UND (\S+?)(?:@(\S+))?(?: \(\d+\))?$", re.MULTILINE)


def readelf(*arguments):
    return subprocess.run(["readelf", "--wide", *arguments], check=True, capture_output=True, text=True).stdout


def linked_libraries(folder, start):
    """Returns the libraries in `folder` that `start` loads, itself included, and the names of all others."""
    inside, outside, pending = [], set(), [start]
    while pending:
        path = folder / pending.pop()
        if path in inside:
            continue
        inside.append(path)
        for name in NEEDED.findall(readelf("--dynamic", path)):
            if (folder / name).is_file():
                pending.append(name)
            else:
                outside.add(name)
    return inside, outside


def symbols_of(libraries, names):
    """Returns the symbols that `libraries` take from each library in `names`: pairs of a name and a version, or None."""
    symbols = {name: set() for name in names}
    # A symbol without a version belongs to the library whose name it begins with: ncclSend to libnccl.so.2.
    prefixes = {name: re.sub(r"^lib|_host|\.so.*", "", name).lower() for name in names}
    for library in libraries:
        owners = {}
        for file, versions in VERSIONS.findall(readelf("--version-info", library)):
            owners.update({version: file for version in re.findall(r"Name: (\S+)", versions)})
        for symbol, version in UNDEFINED.findall(readelf("--dyn-syms", library)):
            if version:
                if owners.get(version) in symbols:
                    symbols[owners[version]].add((symbol, version))
                continue
            fitting = [name for name in names if symbol.lower().startswith(prefixes[name])]
            if fitting:
                symbols[max(fitting, key=lambda name: len(prefixes[name]))].add((symbol, None))
    return symbols


def make_stub(path, symbols, compiler):
    """Compiles one stand-in."""
    calls = "\n".join(f'void {symbol}(void) {{ refuse("{symbol}"); }}' for symbol, _ in sorted(symbols))
    versions = sorted({version for _, version in symbols if version})
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder) / "stub.c"
        source.write_text(
            "#include <stdio.h>\n#include <stdlib.h>\n"
            "__attribute__((unused)) static void refuse(const char* name) {\n"
            f'  fprintf(stderr, "%s: this is a stand-in for {path.name}, made by Lockstep for its tests\\n", name);\n'
            f"  abort();\n}}\n{calls}\n", encoding="utf-8")
        command = [compiler, "-shared", "-fPIC", "-fno-builtin", "-w", f"-Wl,-soname,{path.name}",
                   "-x", "c", source, "-x", "none", "-o", path]  # a C++ compiler would mangle the names of the symbols
        if versions:
            script = pathlib.Path(folder) / "versions"
            script.write_text("".join(f"{version} {{ global: *; }};\n" for version in versions), encoding="utf-8")
            command.append(f"-Wl,--version-script={script}")
        subprocess.run(command, check=True)


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    folder, target = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    start = folder / "libtorch_python.so"
    target.mkdir(parents=True, exist_ok=True)
    inside, outside = linked_libraries(folder, start.name)
    beside = {path.name for path in folder.parent.parent.glob("nvidia/*/lib/*.so*")}
    names = sorted(name for name in outside if NVIDIA.match(name) and name not in beside)
    for name, symbols in symbols_of(inside, names).items():
        make_stub(target / name, symbols, sys.argv[3])
    print(f"{len(names)} stand-ins: {', '.join(names) or 'none'}")


if __name__ == "__main__":
    main()
