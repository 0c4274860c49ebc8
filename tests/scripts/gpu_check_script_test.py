#!/usr/bin/env python3
"""Commands and output of scripts/gpu_check.sh, with other programs in place of the real ones."""

import json
import subprocess
import sys
import time
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
# Of several workers, only the first prints.
TRAINING = """
    echo "${CUDA_VISIBLE_DEVICES-}|$*" >>"$CALLS/train_images"
    ((${LOCAL_RANK:-0} == 0)) || exit 0
    flags=$*
    commas=${flags//[^,]}
    [[ $* == *multi_worker* ]] && rate=$((1100 * LOCAL_WORLD_SIZE - 100)) || rate=$((1000 + 850 * ${#commas}))
    echo "epoch 1/2  loss 0.5  accuracy 0.9  test accuracy 0.9012  10 images/s"
    echo "epoch 2/2  step 30/100  loss 0.4  accuracy 0.9  77 images/s  00:53 left" >&2
    echo "epoch 2/2  loss 0.4  accuracy 0.9  test accuracy 0.9712  $rate images/s"
    echo "epoch 2/2  step 100/100  loss 0.4  accuracy 0.9  88 images/s"
    """
TEXT_TRAINING = """
    echo "$*" >>"$CALLS/train_gpt"
    echo "    1  4.1107     3.7522          42.6159         2.2719     15731  24.9 %"
    echo "best test loss 3.7522 in epoch 1"
    echo "test loss 1.4735 nats a token, 0.0033 above the entropy; bigram model 2.1385, 5-gram model 2.5654"
    """
TESTS = ["gpu_test", "runtime_test", "strategies_test"]
ROWS_OF_IMAGES = [f"train_{name}" for name in ["float32", "tf32", "bfloat16", "float16", "cuda_graph", "two_replicas"]]
ROWS_OF_TEXT = [f"train_gpt_{name}" for name in ["float32", "bfloat16", "cuda_graph", "recomputed", "stage_2", "stage_3"]]
ROWS_OF_ONE_GPU = ROWS_OF_IMAGES + ROWS_OF_TEXT
ROWS_OF_SEVERAL_GPUS = [f"train_{name}" for name in [
    "threads", "threads_cuda_graph", "threads_sync_batch_norm", "threads_hierarchical_copy", "processes",
    "processes_cuda_graph"]]


class GpuCheckScriptTest(scripts_case.ScriptsCase):
    def make_gpu_machine(self, num_gpus=1):
        self.packages()
        self.program("dpkg-query", "echo -n installed\n")
        self.program("nvidia-smi", f"""
            for ((i = 0; i < {num_gpus}; ++i)); do
              case $* in
                -L) echo "GPU $i: Made-up GPU (UUID: GPU-$i)" ;;
                *--query-gpu=name,*) echo "Made-up GPU, 1.0, 1 MiB" ;;
              esac
            done
            """)
        self.program("cmake", 'echo "$*" >>"$CALLS/cmake"\n')
        self.program("python3", f'[[ $* != *"import torch"* ]] || exit 1\nexec {sys.executable} -B "$@"\n')
        (self.project / "build" / "cuda" / "bin").mkdir(parents=True)
        for name in TESTS:
            self.gpu_program(name, TEST_PROGRAM)
        self.gpu_program("speed_benchmark", BENCHMARK)
        self.gpu_program("train_images", TRAINING)
        self.gpu_program("train_gpt", TEXT_TRAINING)

    def gpu_program(self, name, text):
        self.program(f"../project/build/cuda/bin/{name}", text)

    def gpu_check(self, *flags, **environment):
        """The completed process of gpu_check.sh and what it wrote."""
        process = subprocess.run(
            ["bash", str(self.project / "scripts" / "gpu_check.sh"), "--out", str(self.root / "result.json"), *flags],
            env={**self.environment, "CMAKE_PREFIX_PATH": str(self.make_libtorch("torch")), **environment},
            capture_output=True, text=True, check=False, timeout=120)
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
        self.assertEqual(result["not_measured"], {
            "PyTorch DDP": "python3 has no torch and torchvision", "several GPUs": "there is one GPU"})
        self.assertEqual(result["settings"]["num_gpus"], "1")
        self.assertEqual(result["scaling"], {})
        self.assertEqual(list(result["tests"]), TESTS)
        for name in TESTS:
            entry = result["tests"][name]
            self.assertEqual(
                [entry[key] for key in ["exit_code", "timed_out", "stuck", "tests", "failures", "skipped"]],
                [0, False, False, 2, [], ["Suite.IsSkipped"]])
            self.assertNotIn("report", entry)
        self.assertEqual(len(result["benchmarks"]), 6)
        for entry in result["benchmarks"].values():
            self.assertEqual([entry["exit_code"], entry["ratios"]], [0, [{"ratio": 1.5}]])
        self.assertIn("--images some/images", self.calls_of("speed_benchmark")[-1])
        self.expect_trainings(result, ROWS_OF_ONE_GPU)
        for line in self.calls_of("speed_benchmark"):
            self.assertIn("--gpus gpu:0 ", line)
        compiled = [line for line in self.calls_of("speed_benchmark") if "torch_compiled" in line]
        self.assertEqual(len(compiled), 2)
        self.assertIn("--bfloat16 --cuda-graph --global-batch-size 64 ", compiled[0])
        self.assertIn("--model gpt --bfloat16 --cuda-graph --global-batch-size 8 ", compiled[1])
        texts = self.calls_of("train_gpt")
        self.assertEqual(len(texts), len(ROWS_OF_TEXT))
        for line in texts:
            self.assertIn("--communication-timeout 60 --strategy mirrored --devices gpu:0 ", line)
        trainings = self.calls_of("train_images")
        self.assertEqual(len(trainings), len(ROWS_OF_IMAGES))
        for line in trainings:
            self.assertIn("--strategy mirrored --devices gpu:0 ", line)
            # A minute, which is half of what makes a program count as stuck.
            self.assertIn("--communication-timeout 60 ", line)
        self.assertEqual([result["settings"][key] for key in ["stall_seconds", "communication_timeout_seconds"]], ["120", "60"])
        for flags in ["--precision bfloat16", "--precision float16", "--precision tf32", "--cuda-graph",
                      "--replicas-per-device 2"]:
            self.assertEqual(len([line for line in trainings if line.endswith(flags)]), 1, flags)

    def expect_trainings(self, result, names):
        self.assertEqual(list(result["training"]), names)
        for name, entry in result["training"].items():
            if name in ROWS_OF_TEXT:
                self.assertEqual([entry["test_loss"], entry["above_entropy"]], [1.4735, 0.0033])
            else:
                self.assertEqual(entry["test_accuracy"], 0.9712)

    def expect_scaling(self, result, rates):
        """Each layout has these rates, by number of GPUs, and its ratios are to its own row of one GPU."""
        scaling = result["scaling"]
        self.assertIn("as train_images itself prints them for epoch 2 of 2, so warm", scaling.pop("note"))
        self.assertEqual(list(scaling), ["threads", "processes"])
        for layout, expected in rates.items():
            table = scaling[layout]
            self.assertEqual({int(count): entry["images_per_second"] for count, entry in table.items()}, expected)
            for count, entry in table.items():
                self.assertEqual(entry["exit_code"], 0)
                self.assertAlmostEqual(entry["ratio_to_one_gpu"], expected[int(count)] / expected[1], delta=0.0006)

    def test_gpu_check_covers_two_gpus(self):
        self.make_gpu_machine(2)
        process, result = self.gpu_check("--images", "some/images")
        self.expect_success(process)
        self.assertTrue(result["complete"])
        self.assertEqual(result["settings"]["num_gpus"], "2")
        self.assertEqual(len(result["gpus"]), 2)
        self.assertEqual(list(result["not_measured"]), ["PyTorch DDP"])
        self.expect_trainings(result, ROWS_OF_ONE_GPU + ROWS_OF_SEVERAL_GPUS)
        self.assertEqual(len(result["benchmarks"]), 9)
        self.expect_scaling(result, {"threads": {1: 1000, 2: 1850}, "processes": {1: 1000, 2: 2100}})

    def test_gpu_check_covers_four_gpus_in_threads_and_in_processes(self):
        self.make_gpu_machine(4)
        process, result = self.gpu_check("--images", "some/images")
        self.expect_success(process)
        self.assertTrue(result["complete"])
        self.assertEqual(list(result["training"]), ROWS_OF_ONE_GPU + ROWS_OF_SEVERAL_GPUS)
        trainings = [line for line in self.calls_of("train_images") if "--per-replica-batch-size" not in line]
        threads = [line.partition("--seed 1")[2].strip() for line in trainings if "--devices gpu:0,gpu:1,gpu:2,gpu:3 " in line]
        self.assertEqual(threads, [
            "", "--cuda-graph", "--sync-batch-norm --model mobilenet_v2 --steps-per-epoch 50 --limit-test 1000",
            "--cross-device-ops hierarchical_copy"])
        processes = [line.partition("|") for line in trainings if "--strategy multi_worker" in line]
        for workers, flag in [(processes[:4], ""), (processes[4:], "--cuda-graph")]:
            self.assertEqual(sorted(gpu for gpu, _, _ in workers), ["0", "1", "2", "3"])
            self.assertEqual({line.partition("--seed 1")[2].strip() for _, _, line in workers}, {flag})
            for _, _, line in workers:
                self.assertIn("--communication-timeout 60 ", line)
        self.assertEqual(
            list(result["benchmarks"])[6:], ["ops_all_gpus", "bfloat16_all_gpus", "bfloat16_all_gpus_cuda_graph"])
        on_all = [line for line in self.calls_of("speed_benchmark") if "--gpus gpu:0,gpu:1,gpu:2,gpu:3 " in line]
        self.assertEqual([line.partition(".json ")[2] for line in on_all], [
            "--parts ops --global-batch-size 128", "--bfloat16 --global-batch-size 1024 --parts torch,workers",
            "--bfloat16 --cuda-graph --global-batch-size 256 --parts torch,workers --steps 16 --warm-up-steps 12"])
        self.expect_scaling(result, {"threads": {1: 1000, 2: 1850, 4: 3550}, "processes": {1: 1000, 2: 2100, 4: 4300}})

    def test_gpu_check_keeps_to_visible_gpus_and_measures_a_number_that_is_no_power_of_two(self):
        self.make_gpu_machine(4)
        process, result = self.gpu_check("--images", "some/images", CUDA_VISIBLE_DEVICES="3,1,2")
        self.expect_success(process)
        self.assertEqual(list(result["scaling"]["threads"]), ["1", "2", "3"])
        trainings = self.calls_of("train_images")
        self.assertFalse([line for line in trainings if "gpu:3" in line])
        self.assertEqual({line.partition("|")[0] for line in trainings if "multi_worker" in line}, {"1", "2", "3"})

    def test_gpu_check_has_no_ratios_without_the_rate_of_one_gpu(self):
        self.make_gpu_machine(2)
        self.gpu_program("train_images", """
            if [[ $* == *"--devices gpu:0 "*--per-replica-batch-size* ]]; then
              echo "epoch 1/2  loss 0.5  accuracy 0.9  test accuracy 0.9012  10 images/s"
              exit 3
            fi
            """ + TRAINING)
        process, result = self.gpu_check("--images", "some/images")
        self.assertEqual(process.returncode, 1)
        self.assertEqual(result["failed"], ["scale_threads_1"])
        threads = result["scaling"]["threads"]
        self.assertEqual(threads["1"]["exit_code"], 3)
        self.assertIn("not_measured", threads["1"])
        self.assertEqual(threads["2"]["images_per_second"], 1850)
        self.assertNotIn("ratio_to_one_gpu", threads["2"])
        self.assertEqual(result["scaling"]["processes"]["2"]["ratio_to_one_gpu"], 2.1)

    def test_gpu_check_draws_images_where_none_are_named(self):
        self.make_gpu_machine()
        self.expect_success(self.gpu_check()[0])
        images = self.project / "build" / "gpu_check" / "images"
        self.assertIn("--images build/gpu_check/images", self.calls_of("speed_benchmark")[-1])
        self.assertEqual(len(list(images.iterdir())), 10)
        for folder in images.iterdir():
            self.assertTrue(all(path.read_bytes().startswith(b"\x89PNG") for path in folder.iterdir()))

    def expect_the_others(self, result, failed):
        """Everything was run all the same, and has its figures."""
        self.assertEqual(result["failed"], [failed])
        self.assertTrue(result["complete"])
        for name in [name for name in TESTS if name != failed]:
            self.assertEqual(result["tests"][name]["tests"], 2)
        self.assertEqual([len(result["training"]), len(result["benchmarks"])], [12, 6])

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
        self.assertEqual([entry["exit_code"], entry["timed_out"], entry["stuck"]], [124, True, False])
        self.assertIn("not_measured", entry)
        self.assertIn("sleep", (self.project / entry["report"]).read_text(encoding="utf-8"))

    def test_gpu_check_names_the_report_of_a_program_that_prints_nothing_more(self):
        self.make_gpu_machine()
        self.gpu_program("gpu_test", 'echo "[ RUN      ] Suite.Hangs"\nexec sleep 600\n')
        # A benchmark that reports progress after each pair may take longer.
        pairs = 'for pair in 1 2 3 4; do echo "pair $pair of 4" >&2; sleep 0.7; done\n'
        self.gpu_program("speed_benchmark", f"[[ $* != *float32* ]] || {pairs}" + BENCHMARK)
        begin = time.monotonic()
        process, result = self.gpu_check("--images", "some/images", "--stall", "2")
        self.assertLess(time.monotonic() - begin, 60)
        self.assertEqual(process.returncode, 1)
        self.expect_the_others(result, "gpu_test")
        entry = result["tests"]["gpu_test"]
        self.assertEqual([entry["stuck"], entry["timed_out"], entry["last_test_begun"]], [True, False, "Suite.Hangs"])
        self.assertRegex(entry["report"], r"^build/gpu_check/.*/gpu_test\.stall$")
        self.assertIn("sleep", (self.project / entry["report"]).read_text(encoding="utf-8"))
        self.assertIn(f"is stuck: it has printed nothing for 2 s. {entry['report']} tells", process.stderr)

    def test_gpu_check_ends_a_benchmark_that_prints_nothing_more(self):
        self.make_gpu_machine()
        self.gpu_program("speed_benchmark", "[[ $* != *float32* ]] || exec sleep 600\n" + BENCHMARK)
        process, result = self.gpu_check("--images", "some/images", "--stall", "2")
        self.assertEqual(process.returncode, 1)
        self.expect_the_others(result, "float32_batch_256")
        self.assertTrue(result["benchmarks"]["float32_batch_256"]["stuck"])
        self.assertEqual(result["settings"]["communication_timeout_seconds"], "1")

    def test_gpu_check_tells_a_program_that_it_had_to_end_from_one_that_was_killed_otherwise(self):
        self.make_gpu_machine()
        self.gpu_program("gpu_test", "kill -KILL $$\n")
        entry = self.gpu_check("--images", "some/images")[1]["tests"]["gpu_test"]
        self.assertEqual([entry["exit_code"], entry["signal"], entry["timed_out"], entry["stuck"]], [137, 9, False, False])

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
        # The parent of run_watched.py is the script.
        self.gpu_program("train_images", 'kill -KILL "$(cut -d " " -f 4 "/proc/$PPID/stat")"\n')
        process, result = self.gpu_check("--images", "some/images")
        self.assertNotEqual(process.returncode, 0)
        self.assertFalse(result["complete"])
        self.assertEqual([result["tests"][name]["tests"] for name in TESTS], [2, 2, 2])
        self.assertEqual(result["not_measured"]["train_float32"], "not reached")
        self.assertEqual(result["not_measured"]["float32_batch_256"], "not reached")
        # Another run leaves the first one's result alone.
        self.gpu_program("train_images", TRAINING)
        process, result = self.gpu_check("--images", "some/images")
        self.expect_success(process)
        self.assertTrue(result["complete"])
        results = (self.project / "build" / "gpu_check").glob("*/result.json")
        self.assertEqual(sorted(json.loads(path.read_text(encoding="utf-8"))["complete"] for path in results), [False, True])

    def test_gpu_check_runs_what_was_built_before(self):
        self.make_gpu_machine()
        self.expect_success(self.gpu_check("--build-only")[0])
        self.assertEqual(len([line for line in self.calls_of("cmake") if line.startswith("--build")]), 1)
        process, result = self.gpu_check("--built", "--only", "tests,gpt_bfloat16", "--pairs", "7", "--images", "some/images")
        self.expect_success(process)
        self.assertEqual(len([line for line in self.calls_of("cmake") if line.startswith("--build")]), 1)
        self.assertTrue(result["complete"])
        self.assertEqual([len(result[name]) for name in ["tests", "training", "benchmarks"]], [3, 0, 1])
        self.assertEqual([result["not_measured"][name] for name in ["train_tf32", "float32_batch_256"]], ["not among --only"] * 2)
        self.assertIn("--pairs 7 ", self.calls_of("speed_benchmark")[0])
        (self.project / "build" / "cuda" / "bin" / "train_gpt").unlink()
        process, _ = self.gpu_check("--built")
        self.assertEqual(process.returncode, 2)
        self.assertIn("--built: there is no build/cuda/bin/train_gpt, which --build-only makes", process.stderr)

    def test_gpu_check_refuses_parts_that_there_are_not(self):
        self.make_gpu_machine()
        for part in ["test", "gpu_tests", "train"]:
            process, _ = self.gpu_check("--only", f"tests,{part}")
            self.assertEqual(process.returncode, 2)
            self.assertIn(f"--only: there is no section or program '{part}'", process.stderr)
        process, _ = self.gpu_check("--built", "--build-only")
        self.assertEqual(process.returncode, 2)
        self.assertIn("expected one of them", process.stderr)

    def test_gpu_check_refuses_a_limit_that_is_none(self):
        for flag, what in [("--limit", "seconds"), ("--stall", "seconds"), ("--pairs", "pairs")]:
            process, _ = self.gpu_check(flag, "soon")
            self.assertEqual(process.returncode, 2)
            self.assertIn(f"{flag}: expected a number of {what}, but got 'soon'", process.stderr)


if __name__ == "__main__":
    unittest.main()
