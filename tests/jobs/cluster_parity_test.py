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
    def launch_local(self, count, replicas, **variables):
        path = self.folder / "values"
        # Every worker writes the same values.
        output = self.run_command([str(workers.ROOT / "scripts/launch_local.sh"), str(count), PROGRAM, str(replicas), str(path)],
                                  **variables)
        self.check(output, path, count * replicas)
        self.assertIn("TF_CONFIG", output)
        return output, path.read_bytes()

    def check_layout(self, count, replicas):
        """Equals one device over each transport. The bits depend neither on the transport nor on times."""
        bits = set()
        for shares_memory in (1, 0):
            for pauses in (1, 2):
                with self.subTest(shares_memory=shares_memory, pauses=pauses):
                    output, values = self.launch_local(count, replicas, LOCKSTEP_SHARED_MEMORY=str(shares_memory),
                                                       LOCKSTEP_TEST_PAUSES=str(pauses))
                    bits.add(values)
                    self.assertEqual(output.count(", shared memory"), count if shares_memory else 0, output)
        self.assertEqual(len(bits), 1)

    def test_one_worker_of_four_replicas(self):
        bits = {self.launch_local(1, 4, LOCKSTEP_TEST_PAUSES=str(pauses))[1] for pauses in (1, 2)}
        self.assertEqual(len(bits), 1)

    def test_two_workers_of_two_replicas(self):
        self.check_layout(2, 2)

    def test_three_workers_of_one_replica(self):
        self.check_layout(3, 1)

    def test_four_workers_of_one_replica(self):
        self.check_layout(4, 1)

    def test_five_workers_of_one_replica(self):
        self.check_layout(5, 1)

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
