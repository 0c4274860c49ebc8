#!/usr/bin/env python3
"""What scripts/gpu_check.sh runs and tells, with programs in the place of the real ones."""

import json
import subprocess
import sys
import unittest

import scripts_case

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


class GpuCheckScriptTest(scripts_case.ScriptsCase):
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
        script = scripts_case.ROOT / "scripts/gpu_check_result.py"
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
    unittest.main()
