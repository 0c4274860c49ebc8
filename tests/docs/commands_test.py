#!/usr/bin/env python3
"""Runs the commands that README.md and the pages show: commands_test.py <source folder> <folder of the programs>.

Each command runs in a folder that looks like a clone with a build: its scripts and examples are the sources', its programs
those of this build, which train on a few examples only, since a command shows how to start a program, not how long it takes.
A command that cannot run here is listed in EXCEPTIONS with the reason. An exception that matches no command is an error.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

from page_commands import commands

TIMEOUT_S = 120

# (pattern of the command, why it does not run)
EXCEPTIONS = [
    (r"<[^>]+>", "has a placeholder"),
    (r"^((CMAKE_PREFIX_PATH|LOCKSTEP_CACHE)=\S+ )?scripts/(train|test|setup|gpu_check|fuzz|benchmark|fault_campaign|compare)\.sh",
     "sets up and builds, or takes hours; CI or a test of its own runs it"),
    (r"^(cmake|ctest)\b|build/develop", "builds; the install tests do the same"),
    (r"own_module/build/own_module|\./my_program|^MALLOC_CONF|train\.py|\./train\b", "needs your own program"),
    (r"^docker\b|docker build|^#!(.*\n)*.*docker run", "needs Docker"),
    (r"^kubectl\b", "needs a Kubernetes cluster"),
    (r"^(sudo|journalctl)\b", "changes the system"),
    (r"^(PATH=\S+ )?(torchrun|horovodrun|mpirun|srun|sbatch)\b|^#!(.*\n)*#SBATCH", "needs another launcher; tests/jobs runs those that are here"),
    (r"10\.0\.0\.\d", "needs several machines"),
    (r"^(?!plan\b)[\s\S]*gpu", "needs a GPU"),
    (r"^pip install", "installs packages"),
    (r"torch_tpu", "needs a Python with torch_tpu"),
    (r"^tensorboard\b|\bmlflow ui\b|\bjq\b|pandas|^tail -f", "needs a tool that the tests do not install"),
    (r"--metrics-port", "takes a port of its own choice; tests/apps/train_images/monitoring_test.py lets the system choose one"),
    (r"^build/release/bin/(scaling|parameter_server|planning|speed)_benchmark|_benchmark\.py|--rounds", "measures for minutes"),
    (r"\.keras\b|mnist\.safetensors|checkpoint-0", "reads your own files; tests/scripts/keras_weights_test.py and "
     "tests/apps/export_weights run the same programs"),
    (r"^(convert_data|inspect_data)\b", "reads your own files; tests/apps/convert_data and tests/apps/inspect_data run the same programs"),
]

# Flags that shorten a run: added to a command that has none, and lowered if it has more.
QUICK = {
    "train_images": {"--limit-train": "64", "--limit-test": "32", "--epochs": "1", "--data": "generated"},
    "train_ctr": {"--steps": "5", "--train-rows": "20000", "--test-rows": "2000"},
    "train_gpt": {"--steps": "5", "--global-batch-size": "8", "--limit-test": "16", "--sample-tokens": "8"},
    "compare_strategies": {"--rounds": "1", "--steps": "2"},
    "exchange_benchmark": {"--processes": "2", "--kibibytes": "4", "--pairs": "6"},
    "experts_benchmark": {"--pairs": "6"},
    "mixed_devices_benchmark": {"--steps": "1", "--pairs": "6", "--batch": "16"},
    "pipeline_benchmark": {"--milliseconds": "2"},
    "planning_order_benchmark": {"--first": "2", "--cases": "1", "--layouts": "3", "--steps": "1"},
}
# Only lowered.
LONGEST = {"train_images": {"--steps-per-epoch": "2"}, "compare_strategies": {"--warmup-steps": "1"}}

WRAPPER = """#!{python}
import os, sys
arguments = sys.argv[1:]
for flag, value in {longest}.items():
    for at, given in enumerate(arguments[1:], start=1):
        if arguments[at - 1] == flag and given.isdigit() and int(given) > int(value):
            arguments[at] = value
for flag, value in {quick}.items():
    if not any(a == flag or a.startswith(flag + "=") for a in arguments) and "--help" not in arguments:
        arguments += [flag, value]
os.execv({program!r}, [{program!r}] + arguments)
"""


def make_clone(folder, sources, programs):
    """Makes a folder that looks like a clone with a build."""
    for name in ("scripts", "examples", "docs", "benchmarks"):
        (folder / name).symlink_to(sources / name)
    if "LOCKSTEP_MNIST_DIR" in os.environ:
        (folder / "data").mkdir()
        (folder / "data/mnist").symlink_to(os.environ["LOCKSTEP_MNIST_DIR"])
    binaries = folder / "build/release/bin"
    binaries.mkdir(parents=True)
    for program in programs.iterdir():
        if not program.is_file() or not os.access(program, os.X_OK):
            continue
        if program.name in QUICK:
            wrapper = binaries / program.name
            quick = QUICK[program.name]
            longest = {flag: value for flag, value in quick.items() if value.isdigit()} | LONGEST.get(program.name, {})
            wrapper.write_text(WRAPPER.format(python=sys.executable, quick=quick, longest=longest, program=str(program)))
            wrapper.chmod(0o755)
        else:
            (binaries / program.name).symlink_to(program)
    return binaries


class CommandsTest(unittest.TestCase):
    def test_commands_run(self):
        pages = [SOURCES / "README.md", *sorted((SOURCES / "docs").rglob("*.md"))]
        used = set()
        num_run = 0
        for page in pages:
            shown = commands(page.read_text(encoding="utf-8"))
            if not shown:
                continue
            with tempfile.TemporaryDirectory() as name:
                folder = pathlib.Path(name)
                binaries = make_clone(folder, SOURCES, PROGRAMS)
                environment = {**os.environ, "PATH": f"{binaries}:{os.environ['PATH']}", "HOME": name}
                for line, command in shown:
                    excepted = [i for i, (pattern, _) in enumerate(EXCEPTIONS) if re.search(pattern, command)]
                    used.update(excepted)
                    if excepted:
                        continue
                    num_run += 1
                    with self.subTest(page=page.name, line=line):
                        result = subprocess.run(["bash", "-c", command], cwd=folder, env=environment, timeout=TIMEOUT_S,
                                                stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
                                                check=False)
                        self.assertEqual(result.returncode, 0,
                                         f"{page.name}:{line}: {command}\n{result.stdout[-2000:]}{result.stderr[-2000:]}")
        self.assertGreater(num_run, 10)
        unused = [pattern for i, (pattern, _) in enumerate(EXCEPTIONS) if i not in used]
        self.assertEqual(unused, [], "exceptions that match no command")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    SOURCES, PROGRAMS = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
