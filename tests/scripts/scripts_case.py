"""A made-up machine for the tests of scripts/: programs that install and fetch are replaced by ones that only write down how
they were called, in folders of the test's own. CMake is the real one."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import textwrap
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
NOBODY = 65534

# Makes an empty LibTorch where pip is told to install, or leaves half of one and fails. Runs code as itself.
PIP = f"""
    [[ $1 != -[cB] ]] || exec {sys.executable} "$@"
    echo "$*" >>"$CALLS/pip"
    [[ $* == *--version* ]] && exit
    while [[ $1 != --target ]]; do shift; done
    mkdir -p "$2/torch/lib"
    echo "void cublasCreate(void); void use(void) {{ cublasCreate(); }}" >"$2/torch/use.c"
    echo "void cublasCreate(void) {{}}" >"$2/torch/cublas.c"
    cc -shared -fPIC -Wl,-soname,libcublas.so.13 "$2/torch/cublas.c" -o "$2/torch/cublas.so"
    cc -shared -fPIC -Wl,--no-as-needed "$2/torch/use.c" "$2/torch/cublas.so" -o "$2/torch/lib/libtorch_python.so"
    [[ ! -e $CALLS/broken ]] || {{ echo "no connection" >&2; exit 1; }}
    """


class ScriptsCase(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.project = self.root / "project"
        self.calls = self.root / "calls"
        for part in [self.project, self.calls, self.root / "programs", self.root / "home"]:
            part.mkdir()
        shutil.copytree(ROOT / "scripts", self.project / "scripts")
        self.environment = {
            "PATH": f"{self.root / 'programs'}:{os.environ['PATH']}",
            "HOME": str(self.root / "home"),
            "CALLS": str(self.calls),
            "LOCKSTEP_CUDA": "OFF",
        }
        self.program("python3", PIP)

    def program(self, name, text):
        path = self.root / "programs" / name
        path.write_text("#!/usr/bin/env bash\n" + textwrap.dedent(text), encoding="utf-8")
        path.chmod(0o755)

    def run_script(self, text, as_nobody=False, **environment):
        """The completed process of a script that sources lib.sh, as scripts/ do."""
        as_user = []
        if as_nobody and os.geteuid() == 0:
            for path in [self.root, *self.root.rglob("*")]:
                os.chown(path, NOBODY, NOBODY)
            as_user = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
        script = self.project / "scripts" / "script.sh"
        script.write_text('set -euo pipefail\nsource "$(dirname "${BASH_SOURCE[0]}")/lib.sh"\n' + text, encoding="utf-8")
        return subprocess.run(
            [*as_user, "bash", str(script)], env={**self.environment, **environment}, capture_output=True, text=True,
            check=False, timeout=60)

    def calls_of(self, program):
        path = self.calls / program
        return path.read_text(encoding="utf-8").splitlines() if path.exists() else []

    def packages_of(self, call):
        """The packages, as name==version, of the lists that a call of pip names."""
        lists = [word.partition("=")[2] for word in call.split() if word.startswith("--requirement=")]
        text = "\n".join((self.project / path).read_text(encoding="utf-8") for path in lists)
        return [line.split()[0] for line in text.splitlines() if line and line[0] not in "# "]

    def expect_success(self, process):
        self.assertEqual(process.returncode, 0, process.stderr)
        return process

    def packages(self, *installed):
        self.program("dpkg-query", f"""
            [[ " {' '.join(installed)} " == *" ${{!#}} "* ]] && echo -n installed
            exit 0
            """)
        self.program("apt-get", 'echo "$*" >>"$CALLS/apt-get"\n')

    def make_libtorch(self, name, version="2.11"):
        """The files of a LibTorch that CMake looks at before it compiles."""
        torch = self.root / name
        major, minor = version.split(".")
        for path, text in {
            "include/torch/csrc/api/include/torch/torch.h": "",
            "include/torch/headeronly/version.h":
                f"#define TORCH_VERSION_MAJOR {major}\n#define TORCH_VERSION_MINOR {minor}\n",
            "lib/libtorch_cpu.so": "",
            "lib/libc10.so": "",
            "share/cmake/Torch/TorchConfig.cmake": "",
        }.items():
            (torch / path).parent.mkdir(parents=True, exist_ok=True)
            (torch / path).write_text(text, encoding="utf-8")
        return torch

    def make_project(self, language="CXX", text=""):
        """A project that finds LibTorch as ours does, and has nothing else but what the text adds."""
        shutil.copytree(ROOT / "cmake", self.project / "cmake")
        (self.project / "CMakePresets.json").write_text(
            """{"version": 3, "configurePresets": [
                  {"name": "release", "generator": "Ninja", "binaryDir": "${sourceDir}/build/release"}]}""",
            encoding="utf-8")
        (self.project / "CMakeLists.txt").write_text(textwrap.dedent(f"""
            cmake_minimum_required(VERSION 3.22)
            project(made_up LANGUAGES {language})
            include(cmake/LockstepTorch.cmake)
            """) + textwrap.dedent(text), encoding="utf-8")
