#!/usr/bin/env python3
"""Runs an example and looks at what it has learnt: check_training.py <least accuracy> <weights> <program> [argument...]

The losses that it prints must fall to less than half, its last test accuracy must reach the given one, and the weights must be in
a file of that name. It runs in a folder of its own.
"""

import pathlib
import re
import subprocess
import sys
import tempfile


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    least, weights, program = float(sys.argv[1]), sys.argv[2], sys.argv[3:]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(program, cwd=folder, capture_output=True, text=True, check=False)
        print(done.stdout + done.stderr)
        if done.returncode != 0:
            sys.exit(f"expected exit code 0, but got {done.returncode}")
        losses = [float(loss) for loss in re.findall(r"\bloss ([^\s,]+)", done.stdout)]
        accuracies = [float(accuracy) for accuracy in re.findall(r"\btest accuracy (\S+)", done.stdout)]
        if len(losses) < 2 or not losses[-1] < losses[0] / 2:
            sys.exit(f"expected losses that fall to less than half, but got {losses}")
        if not accuracies or not accuracies[-1] >= least:
            sys.exit(f"expected a test accuracy of {least} at the end, but got {accuracies}")
        if not pathlib.Path(folder, weights).stat().st_size > 0:
            sys.exit(f"expected the weights in {weights}")


if __name__ == "__main__":
    main()
