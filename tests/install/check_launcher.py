#!/usr/bin/env python3
"""Runs the example of a launcher that the help of train_images gives: check_launcher.py <bin folder> <called as>...

<called as> is "path" or "name". By path, the help says how to put the programs into PATH, and the example is typed after that.
By name, they are there already. Everything runs in its own folder, as typed into a shell.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

SHORT = "--data generated --limit-train 64 --limit-test 16 --epochs 1 --threads 1"


def run(command, folder, path):
    environment = {**os.environ, "PATH": path}
    done = subprocess.run(["bash", "-c", command], cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{command}\nexit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def launched(bin_folder, called_as, folder):
    path = os.environ["PATH"]
    if called_as == "name":
        path = f"{bin_folder}:{path}"
    program = "train_images" if called_as == "name" else f"{bin_folder}/train_images"
    text = run(f"{program} --help", folder, path)
    examples = re.findall(r"^  (lockstep_launch_local 2 train_images)\b", text, re.MULTILINE)
    exports = re.findall(r'^  (export PATH=".*:\$PATH")$', text, re.MULTILINE)
    if len(examples) != 1 or len(exports) != (0 if called_as == "name" else 1):
        sys.exit(f"expected one example of a launcher, and how to find it by path only, but got\n{text}")
    return run("; ".join([*exports, f"{examples[0]} {SHORT}"]), folder, path)


def main():
    if len(sys.argv) < 3 or not set(sys.argv[2:]) <= {"path", "name"}:
        sys.exit(__doc__)
    bin_folder = pathlib.Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as folder:
        for called_as in sys.argv[2:]:
            out = launched(bin_folder, called_as, folder)
            if "2 replicas" not in out or not re.search(r"^\[0\] epoch 1/1 .* test accuracy ", out, re.MULTILINE):
                sys.exit(f"expected a training of two workers, but got\n{out}")
        # Called by its new name, it names itself so.
        usage = run(f"{bin_folder}/lockstep_launch_local --help", folder, os.environ["PATH"])
        if not usage.startswith("usage: lockstep_launch_local [option...] N program"):
            sys.exit(f"expected its own name, but got\n{usage}")


if __name__ == "__main__":
    main()
