#!/usr/bin/env python3
"""The same training as one process, as several, and started by each launcher, ends with the same parameters."""

import pathlib
import shutil
import subprocess
import tempfile
import unittest

import workers

PROGRAM = str(workers.BIN / "parity_worker")


class Parity(unittest.TestCase):
    """Code that the tests share."""

    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp())
        cls.expected = cls.values_of(cls.run_command([PROGRAM, "1", str(cls.folder / "alone")]), cls.folder / "alone")

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    @staticmethod
    def run_command(command, **variables):
        environment = workers.clean_environment() | variables
        result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120,
                                stdin=subprocess.DEVNULL)
        if result.returncode != 0:
            raise AssertionError(f"{command} exited with {result.returncode}:\n{result.stdout}{result.stderr}")
        return result.stdout

    @staticmethod
    def values_of(_, path):
        values = [float(line) for line in path.read_text().split()]
        assert len(values) == 6 * 5 + 5 + 5 * 3 + 3
        return values

    def check(self, output, path, replicas):
        self.assertIn(f"{replicas} replicas", output)
        values = self.values_of(output, path)
        self.assertLessEqual(max(abs(a - b) for a, b in zip(values, self.expected)), 1e-12)


class ParityTest(Parity):
    def launch_local(self, count, replicas):
        path = self.folder / f"local-{count}x{replicas}"
        # Every worker writes the same values.
        output = self.run_command([str(workers.ROOT / "scripts/launch_local.sh"), str(count), PROGRAM, str(replicas), str(path)])
        self.check(output, path, count * replicas)
        self.assertIn("TF_CONFIG", output)

    def test_one_worker_of_four_replicas(self):
        self.launch_local(1, 4)

    def test_two_workers_of_two_replicas(self):
        self.launch_local(2, 2)

    def test_four_workers_of_one_replica(self):
        self.launch_local(4, 1)

    def test_workers_started_by_mpirun(self):
        if not shutil.which("mpirun"):
            self.skipTest("mpirun is not installed (Debian: openmpi-bin)")
        path = self.folder / "mpirun"
        output = self.run_command(["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", "2",
                                   PROGRAM, "2", str(path)])
        self.check(output, path, 4)
        self.assertIn("Open MPI", output)


if __name__ == "__main__":
    unittest.main()
