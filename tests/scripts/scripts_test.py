#!/usr/bin/env python3
"""Runs what the scripts share on a made-up machine."""

import os
import pathlib
import re
import subprocess
import sys
import unittest

import scripts_case


class ScriptsTest(scripts_case.ScriptsCase):
    # Help

    def test_help_is_the_comment_that_a_script_begins_with_and_does_nothing_else(self):
        for name in ["test", "setup", "nightly", "format", "fuzz", "gpu_check", "train", "make_token"]:
            for flag in ["--help", "-h"]:
                with self.subTest(script=name, flag=flag):
                    process = self.expect_success(subprocess.run(
                        ["bash", str(self.project / "scripts" / f"{name}.sh"), flag], env=self.environment,
                        cwd=self.root, capture_output=True, text=True, check=False, timeout=60))
                    self.assertTrue(process.stdout.startswith(f"scripts/{name}.sh ["), process.stdout)
                    self.assertLessEqual(max(map(len, process.stdout.splitlines())), 100)
                    self.assertNotIn("set -euo", process.stdout)
        self.assertEqual(list(self.calls.iterdir()), [])

    def test_help_of_train_is_that_of_the_program_once_it_is_built(self):
        program = self.project / "build/release/bin/train_images"
        program.parent.mkdir(parents=True)
        program.write_text('#!/usr/bin/env bash\necho "the program got: $*"\n', encoding="utf-8")
        program.chmod(0o755)
        process = self.expect_success(subprocess.run(
            ["bash", str(self.project / "scripts/train.sh"), "--epochs", "3", "--help"], env=self.environment, cwd=self.root,
            capture_output=True, text=True, check=False, timeout=60))
        self.assertEqual(process.stdout, "the program got: --help\n")
        self.assertEqual(list(self.calls.iterdir()), [])

    def test_train_runs_the_program_that_is_named_and_refuses_others(self):
        program = self.project / "build/release/bin/train_gpt"
        program.parent.mkdir(parents=True)
        program.write_text('#!/usr/bin/env bash\necho "the language model got: $*"\n', encoding="utf-8")
        program.chmod(0o755)

        def train(*arguments):
            return subprocess.run(["bash", str(self.project / "scripts/train.sh"), *arguments], env=self.environment, cwd=self.root,
                                  capture_output=True, text=True, check=False, timeout=60)

        for named in (["--program", "train_gpt"], ["--program=train_gpt"]):
            self.assertEqual(self.expect_success(train("--steps", "3", *named, "--help")).stdout, "the language model got: --help\n")
        self.assertEqual(list(self.calls.iterdir()), [])
        for wrong, said in ((["--program", "train_gtp"], "'train_gtp'"), (["--program"], "nothing")):
            process = train(*wrong)
            self.assertEqual(process.returncode, 2)
            self.assertEqual(process.stderr, f"error: --program: expected train_images, train_gpt or train_ctr, but got {said}\n")

    # The parts of nightly.sh

    def nightly(self, *arguments):
        return subprocess.run(["bash", str(self.project / "scripts/nightly.sh"), *arguments], env=self.environment, cwd=self.root,
                              capture_output=True, text=True, check=False, timeout=120)

    def test_nightly_documents_its_parts_and_lists_them_if_it_is_given_another(self):
        text = (self.project / "scripts/nightly.sh").read_text(encoding="utf-8")
        (line,) = re.findall(r"parts=\(([a-z ]+)\)$", text, re.MULTILINE)
        parts = line.split()
        self.assertEqual(sorted(parts), sorted(re.findall(r"^part_([a-z]+)\(\)", text, re.MULTILINE)))
        self.assertEqual(re.findall(r"^  ([a-z]+)  +[A-Za-z0-9]", self.nightly("--help").stdout, re.MULTILINE), parts)
        process = self.nightly("nothing")
        self.assertEqual(process.returncode, 2)
        self.assertEqual(process.stderr, f"error: expected {', '.join(parts[:-1])} or {parts[-1]}, but got 'nothing'\n")

    def test_nightly_installs_slurm_only_for_the_part_that_needs_it(self):
        self.program("sudo", '[[ $1 == -n ]] && shift\nexec "$@"\n')
        self.program("cmake", "exit 1\n")
        self.packages()
        for part, is_installed in (("workers", False), ("slurm", os.geteuid() == 0)):
            with self.subTest(part):
                (self.calls / "apt-get").unlink(missing_ok=True)
                process = self.nightly(part)
                self.assertEqual("Configuring build/release: failed" in process.stderr, part == "workers" or is_installed)
                _, install = self.calls_of("apt-get")
                self.assertEqual("slurmctld" in install.split(), is_installed, install)

    # Debian packages

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

    def names_in(self, fetch):
        return {package.partition("==")[0] for package in self.packages_of(fetch)}

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

    # Python packages that tests compare with

    def set_test_python_version(self, version):
        path = self.project / "scripts" / "lib.sh"
        text, count = re.subn(r"(?m)^readonly test_python_version=.*$", f"readonly test_python_version={version}",
                              path.read_text(encoding="utf-8"))
        self.assertEqual(count, 1)
        path.write_text(text, encoding="utf-8")

    def run_need_test_python(self, **environment):
        """The completed process, and the executable and the folders of packages and of libraries that it prints."""
        process = self.run_script('need_libtorch\nneed_test_python\necho "$test_python"\necho "$test_python_path"\n'
                                  'echo "$test_library_path"\n', **environment)
        return process, process.stdout.splitlines()

    def test_packages_for_tests_are_fetched_once_beside_libtorch(self):
        self.set_test_python_version("%d.%d" % sys.version_info[:2])
        for _ in range(2):
            process, (python, folders, libraries) = self.run_need_test_python()
            self.expect_success(process)
            self.assertEqual(python, sys.executable)
            folder, torch = map(pathlib.Path, folders.split(":"))
            self.assertTrue((pathlib.Path(libraries) / "libcublas.so.13").is_file(), libraries)
            self.assertTrue((folder / ".complete").is_file() and (torch / "torch").is_dir(), folders)
        _, fetch = self.fetches()
        names = self.names_in(fetch)
        self.assertLessEqual({"torchvision", "safetensors", "tensorboard"}, names)
        self.assertEqual({name for name in names if name in ["torch", "triton"] or name.startswith("nvidia-")}, set())

    def test_packages_for_tests_leave_out_what_the_libtorch_has(self):
        self.set_test_python_version("%d.%d" % sys.version_info[:2])
        self.expect_success(self.run_need_test_python(LOCKSTEP_CUDA="ON")[0])
        self.assertNotIn("nvidia-cuda-runtime", self.names_in(self.fetches()[-1]))
        process, (_, folders, _) = self.run_need_test_python(CMAKE_PREFIX_PATH=str(self.make_libtorch("own")))
        self.expect_success(process)
        self.assertNotIn(":", folders)
        self.assertLessEqual({"torch", "nvidia-cuda-runtime"}, self.names_in(self.fetches()[-1]))
        self.assertEqual(len(self.fetches()), 3)

    def test_arrow_is_fetched_once_and_serves_the_tests_too(self):
        self.set_test_python_version("%d.%d" % sys.version_info[:2])
        script = 'need_libtorch\nneed_arrow\nneed_test_python\necho "$arrow"\necho "${arrow_options[*]}"\necho "$test_python_path"\n'
        for _ in range(2):
            arrow, options, folders = self.expect_success(self.run_script(script)).stdout.splitlines()
            self.assertEqual(options, f"-DLOCKSTEP_ARROW=ON -DLOCKSTEP_ARROW_ROOT={arrow}")
            self.assertTrue((pathlib.Path(arrow).parent / ".complete").is_file(), arrow)
            self.assertEqual(folders.split(":")[-1], str(pathlib.Path(arrow).parent))
        self.assertEqual([self.names_in(fetch) for fetch in self.fetches()].count({"pyarrow"}), 1)

    def test_arrow_is_not_fetched_if_left_out_or_there(self):
        script = 'need_arrow\necho "$arrow"\necho "${arrow_options[*]}"\n'
        process = self.expect_success(self.run_script(script, LOCKSTEP_ARROW="OFF"))
        self.assertEqual(process.stdout.splitlines(), ["", "-DLOCKSTEP_ARROW=OFF"])
        own = self.project / "own" / "lib" / "cmake" / "Arrow"
        own.mkdir(parents=True)
        (own / "ArrowConfig.cmake").touch()
        process = self.expect_success(self.run_script(script, CMAKE_PREFIX_PATH=f"/nowhere:{self.project / 'own'}"))
        self.assertEqual(process.stdout.splitlines(), ["", "-DLOCKSTEP_ARROW=ON -DLOCKSTEP_ARROW_ROOT="])
        self.assertEqual(self.run_script(script, LOCKSTEP_ARROW="maybe").returncode, 2)
        self.assertEqual(self.fetches(), [])

    def test_a_failed_fetch_of_arrow_is_an_error(self):
        (self.calls / "broken").touch()
        self.assertEqual(self.run_script("need_arrow\n").returncode, 1)
        self.assertFalse(list(self.project.parent.rglob("arrow-*/.complete")))

    def test_an_interrupted_fetch_of_packages_for_tests_leaves_none(self):
        self.set_test_python_version("%d.%d" % sys.version_info[:2])
        self.expect_success(self.run_script("need_libtorch\n"))
        (self.calls / "broken").touch()
        process, _ = self.run_need_test_python()
        self.assertEqual(process.returncode, 1)
        self.assertRegex(process.stderr, "error: Fetching Python packages for tests .*: failed")
        (self.calls / "broken").unlink()
        process, (_, folders, _) = self.run_need_test_python()
        self.expect_success(process)
        self.assertTrue(pathlib.Path(folders.split(":")[0]).is_dir())

    def test_without_the_right_python_nothing_is_fetched_for_tests(self):
        self.set_test_python_version("9.9")
        process, answers = self.run_need_test_python()
        self.expect_success(process)
        self.assertEqual(answers, ["", "", ""])
        self.assertIn("they take a Python 9.9", process.stderr)
        self.assertEqual(len(self.fetches()), 1)

    def test_packages_for_tests_can_be_left_out(self):
        process, answers = self.run_need_test_python(LOCKSTEP_TEST_PYTHON_PACKAGES="OFF")
        self.expect_success(process)
        self.assertEqual(answers, ["", "", ""])
        self.assertEqual(len(self.fetches()), 1)
        process, _ = self.run_need_test_python(LOCKSTEP_TEST_PYTHON_PACKAGES="some")
        self.assertEqual(process.returncode, 2)
        self.assertIn("LOCKSTEP_TEST_PYTHON_PACKAGES: expected ON or OFF, but got 'some'", process.stderr)


if __name__ == "__main__":
    unittest.main()
