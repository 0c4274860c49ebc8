#!/usr/bin/env python3
"""Runs what the scripts share on a made-up machine: programs that install and fetch are replaced by ones that only
write down how they were called, in folders of this test's own. CMake is the real one."""

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

# Makes an empty LibTorch where pip is told to install, or leaves half of one and fails.
PIP = """
    echo "$*" >>"$CALLS/pip"
    [[ $* == *--version* ]] && exit
    while [[ $1 != --target ]]; do shift; done
    mkdir -p "$2/torch"
    [[ ! -e $CALLS/broken ]] || { echo "no connection" >&2; exit 1; }
    """


class ScriptsTest(unittest.TestCase):
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

    def expect_success(self, process):
        self.assertEqual(process.returncode, 0, process.stderr)
        return process

    # Debian packages

    def packages(self, *installed):
        self.program("dpkg-query", f"""
            [[ " {' '.join(installed)} " == *" ${{!#}} "* ]] && echo -n installed
            exit 0
            """)
        self.program("apt-get", 'echo "$*" >>"$CALLS/apt-get"\n')

    def test_installed_packages_are_left_alone(self):
        self.packages("ninja-build", "cmake")
        self.expect_success(self.run_script("need_packages cmake ninja-build\n", as_nobody=True))
        self.assertEqual(self.calls_of("apt-get"), [])

    def test_without_root_one_line_says_what_to_install(self):
        self.packages("cmake")
        self.program("sudo", "exit 1\n")
        process = self.run_script("need_packages cmake ninja-build ccache\n", as_nobody=True)
        self.assertEqual(process.returncode, 2)
        lines = [line.strip() for line in process.stderr.splitlines() if "apt-get" in line]
        self.assertEqual(
            lines, ["sudo apt-get update && sudo apt-get install -y --no-install-recommends ninja-build ccache"])
        self.assertEqual(self.calls_of("apt-get"), [])

    def test_with_sudo_the_missing_ones_are_installed(self):
        self.packages("cmake")
        self.program("sudo", '[[ $1 == -n ]] && shift\nexec "$@"\n')
        self.expect_success(self.run_script("need_packages cmake ninja-build ccache\n", as_nobody=True))
        update, install = self.calls_of("apt-get")
        self.assertIn("update", update)
        self.assertTrue(install.startswith("install ") and install.endswith(" ninja-build ccache"), install)

    def test_a_step_that_fails_is_named(self):
        self.packages()
        self.program("sudo", '[[ $1 == -n ]] && shift\nexec "$@"\n')
        self.program("apt-get", "exit 100\n")
        process = self.run_script("need_packages ninja-build\n", as_nobody=True)
        self.assertEqual(process.returncode, 1)
        self.assertIn("error: Reading the package lists: failed", process.stderr)

    # LibTorch

    def fetches(self):
        return [line for line in self.calls_of("pip") if "install" in line]

    def test_libtorch_is_fetched_once_for_all_clones(self):
        script = 'need_libtorch\necho "$libtorch"\n'
        first = self.expect_success(self.run_script(script)).stdout.strip()
        self.assertTrue(first.startswith(str(self.root / "home" / ".cache" / "lockstep")), first)
        self.assertTrue(pathlib.Path(first).is_dir())
        other = self.root / "other"
        self.project.rename(other)
        self.project = other
        self.assertEqual(self.expect_success(self.run_script(script)).stdout.strip(), first)
        self.assertEqual(len(self.fetches()), 1)

    def test_a_variable_names_another_cache(self):
        cache = self.root / "cache"
        process = self.expect_success(self.run_script('need_libtorch\necho "$libtorch"\n', LOCKSTEP_CACHE=str(cache)))
        self.assertTrue(process.stdout.startswith(str(cache)), process.stdout)

    def test_an_interrupted_fetch_is_named_and_made_good_for(self):
        (self.calls / "broken").touch()
        process = self.run_script("need_libtorch\n")
        self.assertEqual(process.returncode, 1)
        self.assertRegex(process.stderr, "error: Fetching LibTorch .*: failed")
        (self.calls / "broken").unlink()
        process = self.expect_success(self.run_script('need_libtorch\necho "$libtorch"\n'))
        self.assertTrue(pathlib.Path(process.stdout.strip()).is_dir())
        self.assertEqual(len(self.fetches()), 2)

    def test_a_word_for_cuda_that_is_none_is_refused(self):
        process = self.run_script("need_libtorch\n", LOCKSTEP_CUDA="maybe")
        self.assertEqual(process.returncode, 2)
        self.assertIn("LOCKSTEP_CUDA: expected ON or OFF, but got 'maybe'", process.stderr)

    def make_libtorch(self, name, version="2.11"):
        """A LibTorch as far as CMake looks before it compiles."""
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

    def make_project(self):
        shutil.copytree(ROOT / "cmake", self.project / "cmake")
        (self.project / "CMakePresets.json").write_text(
            """{"version": 3, "configurePresets": [
                  {"name": "release", "generator": "Ninja", "binaryDir": "${sourceDir}/build/release"}]}""",
            encoding="utf-8")
        (self.project / "CMakeLists.txt").write_text(textwrap.dedent("""
            cmake_minimum_required(VERSION 3.22)
            project(made_up LANGUAGES CXX)
            include(cmake/LockstepTorch.cmake)
            """), encoding="utf-8")

    def configured_with(self, process):
        """The LibTorch that CMake took."""
        self.expect_success(process)
        log = (self.project / "build" / "release" / "configure.log").read_text(encoding="utf-8")
        line = next(line for line in log.splitlines() if line.startswith("-- LibTorch "))
        return pathlib.Path(line.split(" in ")[1].split(",")[0])

    def test_a_libtorch_of_ones_own_is_taken_whatever_was_built_with_before(self):
        self.make_project()
        script = "need_libtorch\nconfigure release\n"
        cached, own = self.make_libtorch("cached"), self.make_libtorch("own")
        folder = self.root / "home" / ".cache" / "lockstep" / "libtorch-2.11.0"
        folder.mkdir(parents=True)
        cached.rename(folder / "torch")
        (folder / ".complete").touch()
        self.assertEqual(self.configured_with(self.run_script(script)), folder / "torch")
        for prefix in [own, own / "share" / "cmake", f"/usr:{own}"]:
            process = self.run_script(script, CMAKE_PREFIX_PATH=str(prefix), LOCKSTEP_CUDA="OFF")
            self.assertEqual(self.configured_with(process).resolve(), own.resolve())
            self.assertIn("yours in", process.stderr)
        self.assertEqual(self.configured_with(self.run_script(script)), folder / "torch")
        self.assertEqual(self.fetches(), [])

    def test_another_version_is_refused_unless_it_is_asked_for(self):
        self.make_project()
        prefix = str(self.make_libtorch("own", version="2.4"))
        process = self.run_script("need_libtorch\nconfigure release\n", CMAKE_PREFIX_PATH=prefix)
        self.assertEqual(process.returncode, 1)
        self.assertIn("expected LibTorch 2.11, but", process.stderr)
        self.assertIn("holds 2.4", process.stderr)
        self.expect_success(self.run_script(
            "need_libtorch\nconfigure release -DLOCKSTEP_ANY_LIBTORCH=ON\n", CMAKE_PREFIX_PATH=prefix))


if __name__ == "__main__":
    sys.exit(unittest.main())
