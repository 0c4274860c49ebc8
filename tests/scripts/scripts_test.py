#!/usr/bin/env python3
"""Runs what the scripts share on a made-up machine: programs that install and fetch are replaced by ones that only
write down how they were called, in folders of this test's own. CMake is the real one."""

import json
import os
import pathlib
import re
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
    [[ $1 != -c ]] || exec {sys.executable} "$@"
    echo "$*" >>"$CALLS/pip"
    [[ $* == *--version* ]] && exit
    while [[ $1 != --target ]]; do shift; done
    mkdir -p "$2/torch"
    [[ ! -e $CALLS/broken ]] || {{ echo "no connection" >&2; exit 1; }}
    """

# Programs that gpu_check.sh runs: each writes what a real one would where it is told to.
TEST_PROGRAM = """
    for flag in "$@"; do [[ $flag != --gtest_output=json:* ]] || result=${flag#*json:}; done
    cat >"$result" <<'JSON'
    {"tests": 2, "testsuites": [{"testsuite": [
      {"classname": "Suite", "name": "Passes", "result": "COMPLETED"},
      {"classname": "Suite", "name": "IsSkipped", "result": "SKIPPED"}]}]}
    JSON
    """.replace("\n    JSON", "\nJSON")
BENCHMARK = """
    echo "$*" >>"$CALLS/speed_benchmark"
    while [[ $1 != --json ]]; do shift; done
    echo '{"ratios": [{"ratio": 1.5}]}' >"$2"
    echo "| a table |"
    """
TRAINING = """
    echo "$*" >>"$CALLS/train_mnist"
    echo "epoch 1/2  loss 0.5  accuracy 0.9  test accuracy 0.9012  10 images/s"
    echo "epoch 2/2  loss 0.4  accuracy 0.9  test accuracy 0.9712  10 images/s" >&2
    """
TESTS = ["runtime_test", "strategies_test", "gpu_test"]


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

    # Python packages that tests compare with

    def set_test_python_version(self, version):
        path = self.project / "scripts" / "lib.sh"
        text, count = re.subn(r"(?m)^readonly test_python_version=.*$", f"readonly test_python_version={version}",
                              path.read_text(encoding="utf-8"))
        self.assertEqual(count, 1)
        path.write_text(text, encoding="utf-8")

    def run_need_test_python(self, **environment):
        """The completed process, and the executable and the folders that it prints."""
        process = self.run_script('need_libtorch\nneed_test_python\necho "$test_python"\necho "$test_python_path"\n',
                                  **environment)
        return process, process.stdout.splitlines()

    def test_packages_for_tests_are_fetched_once_beside_libtorch(self):
        self.set_test_python_version("%d.%d" % sys.version_info[:2])
        for _ in range(2):
            process, (python, folders) = self.run_need_test_python()
            self.expect_success(process)
            self.assertEqual(python, sys.executable)
            folder, torch = map(pathlib.Path, folders.split(":"))
            self.assertTrue((folder / ".complete").is_file() and (torch / "torch").is_dir(), folders)
        _, fetch = self.fetches()
        for package in ["torchvision==", "safetensors==", "tensorboard==", "nvidia-cublas=="]:
            self.assertIn(f" {package}", fetch)
        for package in ["torch==", "triton"]:
            self.assertNotIn(f" {package}", fetch)

    def test_packages_for_tests_leave_out_what_the_libtorch_has(self):
        self.set_test_python_version("%d.%d" % sys.version_info[:2])
        self.expect_success(self.run_need_test_python(LOCKSTEP_CUDA="ON")[0])
        self.assertNotIn("nvidia-", self.fetches()[-1])
        process, (_, folders) = self.run_need_test_python(CMAKE_PREFIX_PATH=str(self.make_libtorch("own")))
        self.expect_success(process)
        self.assertNotIn(":", folders)
        for package in ["torch==", "nvidia-cuda-runtime==", "nvidia-cublas=="]:
            self.assertIn(f" {package}", self.fetches()[-1])
        self.assertEqual(len(self.fetches()), 3)

    def test_an_interrupted_fetch_of_packages_for_tests_leaves_none(self):
        self.set_test_python_version("%d.%d" % sys.version_info[:2])
        self.expect_success(self.run_script("need_libtorch\n"))
        (self.calls / "broken").touch()
        process, _ = self.run_need_test_python()
        self.assertEqual(process.returncode, 1)
        self.assertRegex(process.stderr, "error: Fetching Python packages for tests .*: failed")
        (self.calls / "broken").unlink()
        process, (_, folders) = self.run_need_test_python()
        self.expect_success(process)
        self.assertTrue(pathlib.Path(folders.split(":")[0]).is_dir())

    def test_without_the_right_python_nothing_is_fetched_for_tests(self):
        self.set_test_python_version("9.9")
        process, answers = self.run_need_test_python()
        self.expect_success(process)
        self.assertEqual(answers, ["", ""])
        self.assertIn("they take a Python 9.9", process.stderr)
        self.assertEqual(len(self.fetches()), 1)

    def test_packages_for_tests_can_be_left_out(self):
        process, answers = self.run_need_test_python(LOCKSTEP_TEST_PYTHON_PACKAGES="OFF")
        self.expect_success(process)
        self.assertEqual(answers, ["", ""])
        self.assertEqual(len(self.fetches()), 1)
        process, _ = self.run_need_test_python(LOCKSTEP_TEST_PYTHON_PACKAGES="some")
        self.assertEqual(process.returncode, 2)
        self.assertIn("LOCKSTEP_TEST_PYTHON_PACKAGES: expected ON or OFF, but got 'some'", process.stderr)

    # Fuzzing

    def fuzz(self, *arguments):
        """The completed process of fuzz.sh, for three targets, one of which fails."""
        self.packages()
        self.program("dpkg-query", "echo -n installed\n")
        self.program("cmake", "")
        folder = self.project / "build" / "fuzz"
        (folder / "bin").mkdir(parents=True)
        (folder / "targets.txt").write_text("good\nbad\nlate_crash\n", encoding="utf-8")
        self.program("../project/build/fuzz/bin/write_seeds", 'mkdir -p "$1"/good\n')
        log = """
            echo "$*" >>"$CALLS/${0##*/}"
            echo "#3 INITED cov: 40 ft: 41 corp: 1/1b exec/s: 0 rss: 30Mb"
            echo "#9 NEW    cov: 47 ft: 50 corp: 2/2b exec/s: 0 rss: 30Mb" >&2
            echo "stat::number_of_executed_units: 1234"
            """
        for name, end in {"good": "", "bad": 'echo "expected all pixels"; exit 77',
                          "late_crash": 'echo "Test unit written to build/fuzz/findings/late_crash-crash-1"; exit 1'}.items():
            self.program(f"../project/build/fuzz/bin/fuzz_{name}", log + end)
        return subprocess.run(
            ["bash", str(self.project / "scripts" / "fuzz.sh"), *arguments], env=self.environment, capture_output=True,
            text=True, check=False, timeout=60)

    def test_fuzzing_tells_each_target_and_fails_for_a_finding(self):
        process = self.fuzz("--seconds", "7")
        self.assertEqual(process.returncode, 1)
        self.assertIn("2 of 3 targets failed", process.stderr)
        rows = [line.split() for line in process.stdout.splitlines()[1:]]
        self.assertEqual([row[:2] + row[3:5] for row in rows],
                         [[name, "1234", "47", "7"] for name in ["good", "bad", "late_crash"]])
        self.assertEqual([row[6] for row in rows], ["ok", "FAILED:", "FAILED:"])
        self.assertIn("build/fuzz/findings/late_crash-crash-1,", rows[2])
        call = self.calls_of("fuzz_good")[0].split()
        self.assertTrue({"-max_total_time=7", "-seed=1", "build/fuzz/seeds/good"} <= set(call), call)

    def test_fuzzing_takes_the_targets_that_are_named(self):
        process = self.expect_success(self.fuzz("--seconds", "0", "good"))
        self.assertEqual(len(process.stdout.splitlines()), 2)
        self.assertIn("-runs=0", self.calls_of("fuzz_good")[0])
        self.assertEqual(self.calls_of("fuzz_bad"), [])

    def test_fuzzing_refuses_targets_and_flags_that_are_none(self):
        for arguments in [["none"], ["--seconds"], ["--seconds", "x"], ["--second", "1"]]:
            with self.subTest(arguments):
                shutil.rmtree(self.project / "build", ignore_errors=True)
                process = self.fuzz(*arguments)
                self.assertEqual(process.returncode, 2)
                self.assertRegex(process.stderr, "error: .*expected .*, but got '")

    # The check on a GPU

    def make_gpu_machine(self):
        self.packages()
        self.program("dpkg-query", "echo -n installed\n")
        self.program("nvidia-smi", '[[ $* != *--query-gpu* ]] || echo "Made-up GPU, 1.0, 1 MiB"\n')
        self.program("cmake", 'echo "$*" >>"$CALLS/cmake"\n')
        self.program("python3", f'[[ $* != *"import torch"* ]] || exit 1\nexec {sys.executable} -B "$@"\n')
        (self.project / "build" / "cuda" / "bin").mkdir(parents=True)
        for name in TESTS:
            self.gpu_program(name, TEST_PROGRAM)
        self.gpu_program("speed_benchmark", BENCHMARK)
        self.gpu_program("train_mnist", TRAINING)

    def gpu_program(self, name, text):
        self.program(f"../project/build/cuda/bin/{name}", text)

    def gpu_check(self, *flags):
        """The completed process of gpu_check.sh and what it wrote."""
        process = subprocess.run(
            ["bash", str(self.project / "scripts" / "gpu_check.sh"), "--out", str(self.root / "result.json"), *flags],
            env={**self.environment, "CMAKE_PREFIX_PATH": str(self.make_libtorch("torch"))}, capture_output=True,
            text=True, check=False, timeout=60)
        result = self.root / "result.json"
        return process, json.loads(result.read_text(encoding="utf-8")) if result.exists() else None

    def test_gpu_check_writes_every_figure(self):
        self.make_gpu_machine()
        process, result = self.gpu_check("--images", "some/images")
        self.expect_success(process)
        self.assertIn("| a table |", process.stdout)
        self.assertTrue(result["complete"])
        self.assertEqual(result["failed"], [])
        self.assertEqual(result["gpus"], ["Made-up GPU, 1.0, 1 MiB"])
        self.assertEqual(result["not_measured"], {"PyTorch DDP": "python3 has no torch and torchvision"})
        self.assertEqual(list(result["tests"]), TESTS)
        for name in TESTS:
            entry = result["tests"][name]
            self.assertEqual(
                [entry[key] for key in ["exit_code", "timed_out", "tests", "failures", "skipped"]],
                [0, False, 2, [], ["Suite.IsSkipped"]])
        self.assertEqual(len(result["benchmarks"]), 4)
        for entry in result["benchmarks"].values():
            self.assertEqual([entry["exit_code"], entry["ratios"]], [0, [{"ratio": 1.5}]])
        self.assertIn("--images some/images", self.calls_of("speed_benchmark")[0])
        self.assertEqual({entry["test_accuracy"] for entry in result["training"].values()}, {0.9712})
        trainings = self.calls_of("train_mnist")
        self.assertEqual(len(trainings), len(result["training"]))
        for flags in ["--precision bfloat16", "--precision float16", "--precision tf32", "--cuda-graph",
                      "--replicas-per-device 2"]:
            self.assertEqual(len([line for line in trainings if line.endswith(flags)]), 1, flags)

    def test_gpu_check_draws_images_where_none_are_named(self):
        self.make_gpu_machine()
        self.expect_success(self.gpu_check()[0])
        images = self.project / "build" / "gpu_check" / "images"
        self.assertIn("--images build/gpu_check/images", self.calls_of("speed_benchmark")[0])
        self.assertEqual(len(list(images.iterdir())), 10)
        for folder in images.iterdir():
            self.assertTrue(all(path.read_bytes().startswith(b"\x89PNG") for path in folder.iterdir()))

    def expect_the_others(self, result, failed):
        """Everything was run all the same, and has its figures."""
        self.assertEqual(result["failed"], [failed])
        self.assertTrue(result["complete"])
        for name in [name for name in TESTS if name != failed]:
            self.assertEqual(result["tests"][name]["tests"], 2)
        self.assertEqual([len(result["training"]), len(result["benchmarks"])], [6, 4])

    def test_gpu_check_goes_on_after_a_crash_and_fails(self):
        self.make_gpu_machine()
        self.gpu_program("strategies_test", """
            echo "[ RUN      ] Suite.Passes"
            echo "[       OK ] Suite.Passes (0 ms)"
            echo "[ RUN      ] Suite.Crashes"
            kill -SEGV $$
            """)
        process, result = self.gpu_check("--images", "some/images")
        self.assertEqual(process.returncode, 1)
        self.assertIn("these failed: strategies_test", process.stderr)
        self.expect_the_others(result, "strategies_test")
        entry = result["tests"]["strategies_test"]
        self.assertEqual([entry["exit_code"], entry["signal"], entry["timed_out"]], [139, 11, False])
        self.assertEqual(entry["last_test_begun"], "Suite.Crashes")

    def test_gpu_check_ends_what_hangs_and_fails(self):
        self.make_gpu_machine()
        self.gpu_program("gpu_test", "exec sleep 600\n")
        process, result = self.gpu_check("--images", "some/images", "--limit", "2")
        self.assertEqual(process.returncode, 1)
        self.expect_the_others(result, "gpu_test")
        entry = result["tests"]["gpu_test"]
        self.assertEqual([entry["exit_code"], entry["timed_out"]], [124, True])
        self.assertIn("not_measured", entry)

    def test_gpu_check_tells_a_program_that_it_had_to_kill_from_one_that_was_killed_otherwise(self):
        run = self.root / "run"
        run.mkdir()
        (run / "settings").write_text("limit_seconds\t2\n")
        (run / "finished").write_text("training\tslow\t137\t12\ntraining\tquick\t137\t1\n")
        script = ROOT / "scripts/gpu_check_result.py"
        subprocess.run([sys.executable, script, run, run / "out.json"], check=True)
        training = json.loads((run / "out.json").read_text())["training"]
        self.assertEqual([training[name]["timed_out"] for name in ["slow", "quick"]], [True, False])

    def test_gpu_check_keeps_what_a_failing_benchmark_has_measured(self):
        self.make_gpu_machine()
        self.gpu_program("speed_benchmark", BENCHMARK + "[[ $2 != *float32* ]] || exit 1\n")
        process, result = self.gpu_check("--images", "some/images")
        self.assertEqual(process.returncode, 1)
        self.expect_the_others(result, "float32_batch_256")
        entry = result["benchmarks"]["float32_batch_256"]
        self.assertEqual([entry["exit_code"], entry["ratios"]], [1, [{"ratio": 1.5}]])

    def test_gpu_check_has_written_what_was_measured_before_it_was_ended(self):
        self.make_gpu_machine()
        # timeout's parent is the script.
        self.gpu_program("train_mnist", 'kill -KILL "$(cut -d " " -f 4 "/proc/$PPID/stat")"\n')
        process, result = self.gpu_check("--images", "some/images")
        self.assertNotEqual(process.returncode, 0)
        self.assertFalse(result["complete"])
        self.assertEqual([result["tests"][name]["tests"] for name in TESTS], [2, 2, 2])
        self.assertEqual(result["not_measured"]["train_float32"], "not reached")
        self.assertEqual(result["not_measured"]["float32_batch_256"], "not reached")
        # Another run leaves the first one's result alone.
        self.gpu_program("train_mnist", TRAINING)
        process, result = self.gpu_check("--images", "some/images")
        self.expect_success(process)
        self.assertTrue(result["complete"])
        results = (self.project / "build" / "gpu_check").glob("*/result.json")
        self.assertEqual(sorted(json.loads(path.read_text(encoding="utf-8"))["complete"] for path in results), [False, True])

    def test_gpu_check_refuses_a_limit_that_is_none(self):
        process, _ = self.gpu_check("--limit", "soon")
        self.assertEqual(process.returncode, 2)
        self.assertIn("--limit: expected a number of seconds, but got 'soon'", process.stderr)


if __name__ == "__main__":
    sys.exit(unittest.main())
