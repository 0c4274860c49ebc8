"""Trainings of train_gpt for tests, and what they leave behind."""

import json
import os
import pathlib
import re
import subprocess
import tempfile
import time

import workers
from saved_state import newest, weights_of

PROGRAM = os.environ["TRAIN_GPT"]
TIMEOUT = 300
# A model of 3,000 parameters, whose sequences a step of 10 cannot share evenly among 4 replicas.
TINY = ["--layers", "2", "--hidden", "16", "--heads", "2", "--sequence-length", "24", "--limit-test", "8",
        "--sample-tokens", "8", "--threads", "1"]
PARITY = [*TINY, "--steps", "20", "--test-every", "7", "--global-batch-size", "10", "--precision", "float64"]


def train(*arguments, check=True, **options):
    result = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, timeout=TIMEOUT, check=False,
                            env=workers.clean_environment(), **options)
    if check and result.returncode != 0:
        raise AssertionError(f"exit code {result.returncode}:\n{result.stdout}{result.stderr}")
    return result


def digests_of(folder):
    """The checksums of the model, the optimizer, and each replica's own state."""
    manifest = json.loads((newest(folder) / "manifest.json").read_text(encoding="utf-8"))
    return manifest["step"], {part["name"]: part["sha256"] for part in manifest["files"][0]["parts"]
                              if part["name"].startswith(("model.", "optimizers.", "replicas."))}


def test_losses(output):
    return [float(loss) for loss in re.findall(r"^epoch \d+/\d+ .*  test loss (\S+)", output, re.MULTILINE)]


class Case(workers.TrainingCase):
    program = PROGRAM
    limit = TIMEOUT

    def await_step(self, step, process):
        """Waits until the folder has a checkpoint of this step or a later one."""
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and process.poll() is None:
            if max((int(path.name[-12:]) for path in self.folder.glob("checkpoint-*")), default=0) >= step:
                return
            time.sleep(0.002)
        self.fail(f"no checkpoint of step {step}; exit code {process.poll()}")


class ParityCase(Case):
    """Compares trainings with one on one device."""

    @classmethod
    def setUpClass(cls):
        cls.shared = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.shared.cleanup)
        cls.alone = pathlib.Path(cls.shared.name) / "alone"
        cls.output = train(*PARITY, "--backup-dir", cls.alone).stdout
        cls.weights = weights_of(cls.alone)
        cls.losses = test_losses(cls.output)

    def check_like_one_device(self, folder, output):
        self.check_weights(folder, self.weights)
        self.assertEqual(test_losses(output), self.losses)

    def check_goes_on(self, saved, layout):
        """Checks that a training saved after step 7 ends like that on one device. `saved` are the flags of its backups."""
        result = train(*PARITY, *layout, *saved)
        self.assertIn("resumes after step 7 from ", result.stderr)
        self.assertEqual(test_losses(result.stdout), self.losses)
        self.check_weights(saved[-1], self.weights)


class UsageCase(Case):
    def refused(self, *arguments):
        result = train(*TINY, "--steps", 1, *arguments, check=False)
        self.assertEqual(result.returncode, 2, result.stderr)
        return result.stderr
