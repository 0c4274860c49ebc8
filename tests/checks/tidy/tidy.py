#!/usr/bin/env python3
"""tidy.py CLANG_TIDY CONFIG CHECKS SOURCE [flag...]: clang-tidy, unless it has passed on the same text before.

Reading a room takes clang-tidy up to a minute, and most rooms do not change between two runs. A source that passes
leaves an empty file in the folder `tidy` of Lockstep's cache, named by a hash of everything that the result depends
on: clang-tidy's version, its configuration and checks, and the preprocessed source with its comments, as these hold
NOLINT. LOCKSTEP_CACHE names another cache. Without a clang of clang-tidy's version, nothing is looked up.
"""

import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

UNUSED_SECONDS = 30 * 24 * 3600


def cache_folder():
    base = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(os.environ.get("LOCKSTEP_CACHE") or pathlib.Path(base) / "lockstep") / "tidy"


def output_of(*command):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True).stdout


def compiler_beside(clang_tidy):
    """Returns the clang++ of the same version, or None: another one may read other headers."""
    found = re.search(rb"version (\d+)\.", output_of(clang_tidy, "--version"))
    return shutil.which(f"clang++-{int(found[1])}") if found else None


def key_of(clang_tidy, config, checks, source, flags):
    """Returns the name of the result in the cache, or None if the source cannot be preprocessed."""
    compiler = compiler_beside(clang_tidy)
    if compiler is None:
        return None
    try:
        text = output_of(compiler, "-E", "-C", "-P", *flags, source)
    except subprocess.CalledProcessError:
        return None  # clang-tidy says why
    parts = [output_of(clang_tidy, "--version"), pathlib.Path(config).read_bytes(), checks.encode(), text]
    return hashlib.sha256(b"".join(len(part).to_bytes(8, "big") + part for part in parts)).hexdigest()


def remember(passed):
    """Records a pass, and forgets those that no run has asked for in a month."""
    try:
        passed.parent.mkdir(parents=True, exist_ok=True)
        passed.touch()
        for other in passed.parent.iterdir():
            if other.stat().st_mtime < time.time() - UNUSED_SECONDS:
                other.unlink(missing_ok=True)
    except OSError as error:
        print(f"the result is not kept: {error}")


def main(clang_tidy, config, checks, source, *flags):
    key = key_of(clang_tidy, config, checks, source, flags)
    passed = cache_folder() / key if key else None
    if passed is not None and passed.exists():
        remember(passed)
        print("clang-tidy has passed on this text before")
        return 0
    command = [clang_tidy, "--quiet", f"--checks={checks}", f"--config-file={config}", source, "--", *flags]
    result = subprocess.run(command, check=False).returncode
    if result == 0 and passed is not None:
        remember(passed)
    return result


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
