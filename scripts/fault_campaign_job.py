"""The trainings of fault_campaign.py: short ones, under launch_local.sh, each in a folder of its own."""

import json
import os
import pathlib
import signal
import subprocess
import tempfile
import time

LAUNCHER = pathlib.Path(__file__).resolve().parent / "launch_local.sh"
WORKERS = 2
# Two replicas each; 16 steps an epoch.
TRAINING = ["--strategy", "multi_worker", "--devices", "cpu:0,cpu:1", "--threads", "1", "--limit-train", "512",
            "--limit-test", "64", "--epochs", "2", "--global-batch-size", "32", "--save-every", "3 steps", "--seed", "3"]
JOIN_TIMEOUT = 20  # seconds that workers wait for one that has not come to their meeting place
HANG = 180  # seconds; a training that takes longer is counted as hanging, and killed


def send(process, number):
    """Returns whether the process was there to get the signal."""
    try:
        os.kill(process, number)
    except ProcessLookupError:
        return False
    return True


def run_quietly(*command):
    """Returns whether it succeeded."""
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


class Job:
    """A training, as often as it has to be started."""

    def __init__(self, arguments, root, wrapper=(), is_sharded=False):
        self.root = pathlib.Path(root)
        self.folder = self.root / "backup"
        self.program = arguments.program
        self.command = [*wrapper, str(LAUNCHER), "--max-restarts", "5", str(WORKERS), arguments.program, *TRAINING, "--data",
                        arguments.data, "--backup-dir", str(self.folder), *(["--shard-backup"] if is_sharded else [])]
        self.launcher = None
        self.output = ""
        self.starts = 0

    def start(self):
        self.log = tempfile.TemporaryFile()  # pylint: disable=consider-using-with
        self.launcher = subprocess.Popen(  # pylint: disable=consider-using-with
            self.command, env={**os.environ, "LOCKSTEP_JOIN_TIMEOUT": str(JOIN_TIMEOUT)}, stdin=subprocess.DEVNULL,
            stdout=self.log, stderr=subprocess.STDOUT, start_new_session=True)

    def workers(self):
        """The processes that the launcher has started and that run, in the order of their starts."""
        launcher = self.launcher.pid
        try:
            tasks = pathlib.Path(f"/proc/{launcher}/task").iterdir()
            children = sorted(int(child) for task in tasks for child in (task / "children").read_text().split())
        except OSError:
            return []
        return [child for child in children if self.runs_program(child)]

    def runs_program(self, process):
        """The launcher's script has short-lived children, too."""
        try:
            return os.path.samefile(f"/proc/{process}/exe", self.program)
        except OSError:
            return False

    def pick_worker(self, moments):
        workers = self.workers()
        return moments.choice(workers) if workers else None

    def kill(self):
        if self.launcher is None or self.launcher.poll() is not None:
            return
        for process in [*self.workers(), self.launcher.pid]:
            send(process, signal.SIGKILL)
        self.launcher.wait()
        time.sleep(0.2)  # workers die with their launcher

    def end(self):
        """Its exit code; None: it hung."""
        try:
            code = self.launcher.wait(HANG)
        except subprocess.TimeoutExpired:
            self.kill()
            code = None
        self.log.seek(0)
        text = self.log.read().decode(errors="replace")
        self.log.close()
        self.output += text
        self.starts += 1 + text.count("is started again")
        return code

    def checkpoints(self):
        return sorted(self.folder.glob("checkpoint-*"))

    def state(self):
        """The checksums of model, optimizer, and each replica's buffers and random stream at its last step."""
        manifest = json.loads((self.checkpoints()[-1] / "manifest.json").read_text(encoding="utf-8"))
        return manifest["step"], [(part["name"], part["sha256"]) for file in manifest["files"] for part in file["parts"]
                                  if part["name"].startswith(("model.", "optimizers.", "replicas."))]
