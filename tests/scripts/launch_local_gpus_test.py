#!/usr/bin/env python3
"""scripts/launch_local.sh --gpus: which GPU each process sees, and the CPUs that it keeps to."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import textwrap
import unittest
from unittest import mock

import launch_local_case

sys.path.insert(0, str(launch_local_case.SCRIPT.parent))
import launch_local_worker  # pylint: disable=wrong-import-position

# Each process leaves a record at each of its starts.
RECORD = """
    task = json.loads(os.environ["TF_CONFIG"])["task"]
    job, name = task["type"], "%s-%d" % (task["type"], task["index"])
    start = len(list(folder.glob(f"{name}-start-*")))
    unfinished = folder / f"unfinished-{name}"
    unfinished.write_text(json.dumps({"environment": dict(os.environ), "cpus": sorted(os.sched_getaffinity(0))}))
    unfinished.rename(folder / f"{name}-start-{start}")
    """

# Tells what it was asked, and answers from files.
NVIDIA_SMI = """\
#!/bin/sh
cd {folder}
echo "$*" >>asked
case "$*" in
  -L) cat gpus; [ ! -e code ] || exit "$(cat code)" ;;
  "--query-gpu=index,uuid,pci.bus_id --format=csv,noheader") cat places ;;
  *) exit 99 ;;
esac
"""

# The launcher over a made-up /sys.
LAUNCHER = """
    import sys
    sys.path.insert(0, sys.argv.pop(1))
    import launch_local_worker
    launch_local_worker.SYSFS = sys.argv.pop(1)
    import launch_local
    sys.exit(launch_local.main())
    """


class LaunchLocalGpusCase(launch_local_case.LaunchLocalCase):
    def setUp(self):
        super().setUp()
        self.bin = self.folder / "bin"
        self.bin.mkdir()
        self.environment["PATH"] = f"{self.bin}{os.pathsep}{os.environ['PATH']}"

    def make_gpus(self, count, code=None):
        """Makes an nvidia-smi that lists so many GPUs, and ends with the exit code."""
        program = self.bin / "nvidia-smi"
        program.write_text(NVIDIA_SMI.format(folder=self.folder), encoding="utf-8")
        program.chmod(0o755)
        lines = [f"GPU {gpu}: Made-up (UUID: GPU-{gpu}0-ab)\n  MIG 1g.1gb Device 0: (UUID: MIG-{gpu})\n"
                 for gpu in range(count)]
        (self.folder / "gpus").write_text("".join(lines) or "No devices found.\n", encoding="utf-8")
        (self.folder / "places").write_text(
            "".join(f"{gpu}, GPU-{gpu}0-ab, 00000000:{0xA0 + gpu:02X}:00.0\n" for gpu in range(count)), encoding="utf-8")
        if code is not None:
            (self.folder / "code").write_text(str(code), encoding="utf-8")

    def asked(self):
        """The command lines of nvidia-smi so far."""
        path = self.folder / "asked"
        return path.read_text(encoding="utf-8").splitlines() if path.exists() else []

    def program(self, text=""):
        return self.python(textwrap.dedent(RECORD) + textwrap.dedent(text))

    def record(self, name, start=0):
        return json.loads((self.folder / f"{name}-start-{start}").read_text(encoding="utf-8"))

    def environment_of(self, name, start=0):
        return self.record(name, start)["environment"]

    def gpu_of(self, name, start=0):
        return self.environment_of(name, start)["CUDA_VISIBLE_DEVICES"]

    def take_records(self):
        """The environments of all first starts by name. Removes the records."""
        environments = {}
        for path in self.folder.glob("*-start-0"):
            name = path.name.removesuffix("-start-0")
            environments[name] = self.environment_of(name)
            path.unlink()
        return environments

    def gpus_after(self, *arguments, **environment):
        """The GPU of each process of a job, by name."""
        self.expect_success(self.launch(*arguments, *self.program(), **environment))
        return {name: own["CUDA_VISIBLE_DEVICES"] for name, own in self.take_records().items()}


class LaunchLocalGpusTest(LaunchLocalGpusCase):
    def test_each_worker_sees_one_gpu(self):
        self.make_gpus(3)
        all_three = {"worker-0": "0", "worker-1": "1", "worker-2": "2"}
        self.assertEqual(self.gpus_after("--gpus", "all"), all_three)
        self.assertEqual(self.gpus_after("--gpus", 3), all_three)
        self.assertEqual(self.gpus_after("--gpus=2"), {"worker-0": "0", "worker-1": "1"})
        self.assertEqual(self.gpus_after("--gpus", "2", "--workers", "2"), {"worker-0": "0", "worker-1": "1"})
        self.assertEqual(self.gpus_after("--gpus", "2", "--chief"), {"chief-0": "0", "worker-0": "1"})

    def test_workers_are_as_those_of_n(self):
        self.make_gpus(2)
        process = self.expect_success(self.launch("--gpus", "all", "--quiet", *self.python("""
            print(os.environ["LOCAL_WORLD_SIZE"], len(json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"]), sys.argv[2:])
            """), "--gpus", "7"))
        self.assertEqual(process.stdout, "[0] 2 2 ['--gpus', '7']\n")

    def test_visible_devices_are_shared_out_in_their_order(self):
        self.make_gpus(8)
        given = "3, GPU-8932f937,MIG-GPU-8932f937/1/0"
        expected = {"worker-0": "3", "worker-1": "GPU-8932f937", "worker-2": "MIG-GPU-8932f937/1/0"}
        self.assertEqual(self.gpus_after("--gpus", "all", CUDA_VISIBLE_DEVICES=given), expected)
        self.assertEqual(self.gpus_after("--gpus", "3", CUDA_VISIBLE_DEVICES=given), expected)
        self.assertEqual(self.gpus_after("--gpus", "1", CUDA_VISIBLE_DEVICES=given), {"worker-0": "3"})
        self.assertNotIn("-L", self.asked())

    def test_visible_devices_end_where_cuda_ends_them(self):
        for given in ["5,-1,6", "5,,6", "5,none,6"]:
            with self.subTest(given=given):
                self.assertEqual(self.gpus_after("--gpus", "all", CUDA_VISIBLE_DEVICES=given), {"worker-0": "5"})

    def test_only_the_order_of_the_launchers_own_numbers_is_set(self):
        self.make_gpus(1)
        self.expect_success(self.launch("1", *self.program()))
        plain = self.take_records()["worker-0"]
        for given, order in [({}, "PCI_BUS_ID"), ({"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}, "FASTEST_FIRST"),
                             ({"CUDA_VISIBLE_DEVICES": "0"}, None)]:
            with self.subTest(given=given):
                self.expect_success(self.launch("--gpus", "1", *self.program(), **given))
                own = self.take_records()["worker-0"]
                self.assertEqual(own.pop("CUDA_VISIBLE_DEVICES"), "0")
                self.assertEqual(own.pop("CUDA_DEVICE_ORDER", None), order)
                self.assertEqual(own.keys(), plain.keys(), "nothing else is set")

    def test_without_the_option_gpus_are_left_alone(self):
        self.make_gpus(2)
        self.assertEqual(self.gpus_after("2", CUDA_VISIBLE_DEVICES="0,1"), {"worker-0": "0,1", "worker-1": "0,1"})
        self.expect_success(self.launch("1", *self.program()))
        self.assertNotIn("CUDA_VISIBLE_DEVICES", self.environment_of("worker-0"))
        self.assertEqual(self.asked(), [])

    # Parameter servers

    def test_servers_and_their_chief_see_no_gpu(self):
        self.make_gpus(2)
        expected = {"chief-0": "", "worker-0": "0", "worker-1": "1", "ps-0": "", "ps-1": ""}
        self.assertEqual(self.gpus_after("--ps", "2", "--gpus", "all"), expected)
        self.assertEqual(self.gpus_after("--ps", "2", "--gpus", "2", "--workers", "2"), expected)

    # Restarts

    def test_workers_keep_their_gpus_when_the_job_is_started_again(self):
        process = self.launch("--gpus", "all", "--max-restarts", "1", *self.program("""
            for other in range(2):
                wait_for(f"worker-{other}-start-{start}")
            sys.exit(5 if start == 0 else 0)
            """), CUDA_VISIBLE_DEVICES="GPU-b,GPU-a")
        self.assertEqual(process.returncode, 0, process.stderr)
        for start in range(2):
            self.assertEqual([self.gpu_of(name, start) for name in ("worker-0", "worker-1")], ["GPU-b", "GPU-a"])

    def test_a_worker_that_is_started_again_by_itself_keeps_its_gpu(self):
        process = self.launch("--ps", "1", "--gpus", "2", "--max-restarts", "2", *self.program("""
            if name in ("worker-1", "ps-0") and start == 0:
                sys.exit(1)
            if job == "chief":
                wait_for("worker-1-start-1")
                wait_for("ps-0-start-1")
                (folder / "done").touch()
            wait_for("done")
            """), CUDA_VISIBLE_DEVICES="6,4")
        self.assertEqual(process.returncode, 0, process.stderr)
        self.assertEqual([self.gpu_of("worker-1", start) for start in range(2)], ["4", "4"])
        self.assertEqual([self.gpu_of("ps-0", start) for start in range(2)], ["", ""])

    # Wrong usage

    def expect_error(self, arguments, message, **environment):
        with self.subTest(arguments=arguments, environment=environment):
            process = self.launch(*arguments, **environment)
            self.assertEqual((process.returncode, process.stdout), (2, ""))
            self.assertEqual(process.stderr, f"launch_local.sh: {message}\n")

    def test_counts_that_cannot_be_are_refused(self):
        self.make_gpus(2)
        for text in ["0", "-1", "some", "", "1025"]:
            self.expect_error([f"--gpus={text}", "true"],
                              f"--gpus: expected all or a number of GPUs from 1 to 1024, but got '{text}'")
        self.assertEqual(self.asked(), [])
        self.expect_error(["--gpus", "3", "true"], "--gpus: expected at most 2, as nvidia-smi lists no more, but got '3'")
        self.expect_error(["--gpus", "2", "true"],
                          "--gpus: expected at most 1, as CUDA_VISIBLE_DEVICES='7' names no more, but got '2'",
                          CUDA_VISIBLE_DEVICES="7")
        self.expect_error(["--gpus", "all", "true"],
                          "--gpus: expected different GPUs in CUDA_VISIBLE_DEVICES, but got '1,0,1'",
                          CUDA_VISIBLE_DEVICES="1,0,1")

    def test_other_counts_of_workers_are_refused(self):
        self.make_gpus(2)
        for rest in [[], ["--ps", "1"]]:
            self.expect_error(
                ["--gpus", "all", "--workers", "1", *rest, "true"],
                "--workers: expected 2 with --gpus all, which starts one worker for each GPU, but got 1")
        self.expect_error(["--gpus", "2", "2", "true"],
                          "N: expected the program after --gpus, which starts one worker for each GPU, but got '2'")
        self.expect_error(["--gpus", "2"], "program: expected a program to run, but got none; --help says more")
        self.expect_error(["--gpus", "2", "--max-restarts", "1", "--min-workers", "3", "true"],
                          "--min-workers: expected a number of workers from 1 to 2, but got '3'")

    def test_a_machine_without_gpus_is_named(self):
        self.make_gpus(0)
        for count in ["all", "1"]:
            self.expect_error(["--gpus", count, "true"], "--gpus: expected a GPU, but nvidia-smi lists none")
            for given in ["", "-1", "NoDevFiles"]:
                self.expect_error(["--gpus", count, "true"],
                                  f"--gpus: expected a GPU, but CUDA_VISIBLE_DEVICES='{given}' names none",
                                  CUDA_VISIBLE_DEVICES=given)

    def test_an_nvidia_smi_that_fails_or_is_absent_is_named(self):
        self.make_gpus(0, code=9)
        self.expect_error(["--gpus", "all", "true"], "--gpus: expected nvidia-smi -L to list the GPUs, but it failed with "
                          "exit code 9: No devices found.")
        (self.bin / "nvidia-smi").unlink()
        for name in ["bash", "dirname", "python3", "true"]:
            (self.bin / name).symlink_to(pathlib.Path(shutil.which(name)).resolve())
        for count in ["all", "1"]:
            self.expect_error(
                ["--gpus", count, "true"], "--gpus: expected nvidia-smi in PATH, which lists the GPUs, or "
                "CUDA_VISIBLE_DEVICES, which names them, but found neither", PATH=str(self.bin))


class LaunchLocalNumaTest(LaunchLocalGpusCase):
    """Over a made-up /sys, in which GPU k has the bus id 0000:a<k>:00.0."""

    def setUp(self):
        super().setUp()
        self.sysfs = self.folder / "sys"

    def make_nodes(self, cpu_lists, nodes_of_gpus):
        """Makes NUMA nodes with these CPUs, and GPUs on these nodes. None leaves a file out."""
        shutil.rmtree(self.sysfs, ignore_errors=True)
        for node, cpus in enumerate(cpu_lists):
            folder = self.sysfs / f"devices/system/node/node{node}"
            folder.mkdir(parents=True)
            if cpus is not None:
                (folder / "cpulist").write_text(f"{cpus}\n", encoding="utf-8")
        for gpu, node in enumerate(nodes_of_gpus):
            folder = self.sysfs / f"bus/pci/devices/0000:a{gpu}:00.0"
            folder.mkdir(parents=True)
            if node is not None:
                (folder / "numa_node").write_text(f"{node}\n", encoding="utf-8")
        self.make_gpus(len(nodes_of_gpus))

    def near(self, gpus, usable=range(8), has_pci_order=True):
        with mock.patch.object(launch_local_worker, "SYSFS", self.sysfs), \
             mock.patch.object(os, "sched_getaffinity", return_value=set(usable)), \
             mock.patch.dict(os.environ, self.environment):
            return launch_local_worker.cpus_near_gpus(gpus, has_pci_order)

    def test_workers_keep_to_the_cpus_of_their_gpus_nodes(self):
        usable = sorted(os.sched_getaffinity(0))
        if len(usable) < 2:
            self.skipTest("there is one CPU")
        first, second = usable[:2]
        self.make_nodes([str(first), str(second)], [1, 0])
        launcher = self.folder / "launcher.py"
        launcher.write_text(textwrap.dedent(LAUNCHER), encoding="utf-8")
        process = subprocess.run(
            [sys.executable, "-B", launcher, launch_local_case.SCRIPT.parent, self.sysfs,
             "--ps", "1", "--gpus", "all", "--max-restarts", "1", *self.program("""
                if name == "worker-1" and start == 0:
                    sys.exit(1)
                if job == "chief":
                    wait_for("worker-1-start-1")
                    (folder / "done").touch()
                wait_for("done")
                """)],
            env=self.environment, capture_output=True, text=True, check=False, timeout=launch_local_case.TIMEOUT,
            preexec_fn=lambda: os.sched_setaffinity(0, {first, second}))
        self.assertEqual(process.returncode, 0, process.stderr)
        self.assertEqual(self.record("worker-0")["cpus"], [second])
        self.assertEqual([self.record("worker-1", start)["cpus"] for start in range(2)], [[first]] * 2)
        for name in ["chief-0", "ps-0"]:
            self.assertEqual(self.record(name)["cpus"], [first, second], "only workers have GPUs")

    def test_cpus_that_have_been_taken_away_keep_no_worker_from_its_start(self):
        prepare = launch_local_worker.prepare_worker
        with mock.patch.object(os, "sched_setaffinity", side_effect=OSError) as pin, \
             mock.patch.object(launch_local_worker.resource, "setrlimit"):
            prepare(os.getppid(), lambda *_: 0, (64, 64), {0})
            pin.assert_called_once_with(0, {0})

    def test_cpus_are_those_of_the_node_that_may_be_used(self):
        self.make_nodes(["0-2,8", "3-5,9-11"], [0, 1])
        self.assertEqual(self.near(["0", "1"], range(12)), [None, {3, 4, 5, 9, 10, 11}], "the first has less than its share")
        self.assertEqual(self.near(["1", "0"], [0, 1, 8, 3, 4, 9]), [{3, 4, 9}, {0, 1, 8}])
        self.assertEqual(self.near(["0", "1"], [3, 4, 9]), [None, {3, 4, 9}], "the first has none of them")

    def test_a_node_that_is_too_small_for_its_workers_share_holds_none(self):
        self.make_nodes(["0-3", "4-7"], [0, 0, 0, 1])
        self.assertEqual(self.near(["0"]), [None])
        self.assertEqual(self.near(["0", "1"]), [None, None])
        self.assertEqual(self.near(["0", "3"]), [{0, 1, 2, 3}, {4, 5, 6, 7}])
        self.assertEqual(self.near(["0", "1", "3"]), [None, None, {4, 5, 6, 7}])

    def test_gpus_are_found_by_uuid_or_by_nvidia_smis_number(self):
        self.make_nodes(["0-3", "4-7"], [0, 1])
        first, second = {0, 1, 2, 3}, {4, 5, 6, 7}
        self.assertEqual(self.near(["GPU-10-ab", "GPU-00-ab"], has_pci_order=False), [second, first])
        self.assertEqual(self.near(["GPU-1", "0"]), [second, first])
        self.assertEqual(self.near(["GPU-1", "0"], has_pci_order=False), [second, None], "CUDA has an order of its own")
        self.assertEqual(self.near(["GPU-1", "GPU-"]), [second, None], "two begin with it")
        self.assertEqual(self.near(["MIG-1", "2"]), [None, None])

    def test_the_order_that_the_workers_are_given_decides(self):
        for environment, expected in [({}, True), ({"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}, False),
                                      ({"CUDA_VISIBLE_DEVICES": "0"}, False),
                                      ({"CUDA_VISIBLE_DEVICES": "0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, True)]:
            with self.subTest(environment=environment), \
                 mock.patch.dict(os.environ, environment, clear=True), \
                 mock.patch.object(launch_local_worker, "raise_file_limit"), \
                 mock.patch.object(launch_local_worker, "cpus_near_gpus") as near:
                launch_local_worker.WorkerStarter(mock.Mock(gpus=["0"], servers=0, chief=False, workers=1))
                near.assert_called_once_with(["0"], expected)

    def test_unknown_nodes_leave_all_cpus(self):
        for cpu_lists, nodes, expected in [
            (["0-3", "4-7"], [-1, 1], [None, {4, 5, 6, 7}]),
            (["0-3", "4-7"], [None, 1], [None, {4, 5, 6, 7}]),
            (["0-3", "4-7"], ["what", 1], [None, {4, 5, 6, 7}]),
            (["0-3", "4-7"], [5, 1], [None, {4, 5, 6, 7}]),
            ([None, "4-7"], [0, 1], [None, {4, 5, 6, 7}]),
            (["", "4-7"], [0, 1], [None, {4, 5, 6, 7}]),
            (["few", "4-7"], [0, 1], [None, {4, 5, 6, 7}]),
        ]:
            with self.subTest(cpu_lists=cpu_lists, nodes=nodes):
                self.make_nodes(cpu_lists, nodes)
                self.assertEqual(self.near(["0", "1"]), expected)

    def test_an_nvidia_smi_that_tells_nothing_leaves_all_cpus(self):
        self.make_nodes(["0-7", "8-11"], [0, 0])
        self.assertEqual(self.near(["0", "1"]), [set(range(8))] * 2)
        for places in ["", "Unable to determine the device handle for GPU1\n", "0, GPU-00-ab, [N/A]\n"]:
            with self.subTest(places=places):
                (self.folder / "places").write_text(places, encoding="utf-8")
                self.assertEqual(self.near(["0", "1"]), [None, None])
        (self.bin / "nvidia-smi").write_text("not a program", encoding="utf-8")
        self.assertEqual(self.near(["0", "1"]), [None, None])

    def test_nvidia_smi_is_not_asked_on_a_machine_with_one_node(self):
        for cpu_lists in [[], ["0-7"]]:
            self.make_nodes(cpu_lists, [0, 0])
            self.assertEqual(self.near(["0", "1"]), [None, None])
        self.assertEqual(self.asked(), [])


if __name__ == "__main__":
    sys.exit(unittest.main())
