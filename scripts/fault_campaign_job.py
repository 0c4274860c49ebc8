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
COMMON = ["--strategy", "multi_worker", "--devices", "cpu:0,cpu:1", "--threads", "1", "--save-every", "3 steps", "--seed", "3"]
# Two replicas each. 16 steps an epoch.
IMAGES = ["--limit-train", "512", "--limit-test", "64", "--epochs", "2", "--global-batch-size", "32"]
# Each worker has one part of the model, and a copy of it.
TOKENS = ["--mesh", "shard=2,data=2", "--layers", "4", "--hidden", "64", "--heads", "4", "--sequence-length", "64", "--dropout",
          "0.1", "--global-batch-size", "32", "--limit-test", "16", "--steps", "32", "--test-every", "16", "--sample-tokens", "4"]
JOIN_TIMEOUT = 20  # seconds that workers wait for one that has not come to their meeting place
HANG = 180  # seconds; a training that takes longer is counted as hanging, and killed
FAREWELL = 5  # seconds that processes of a training may outlive its launcher

# How the workers exchange values: flags, and variables.
TRANSPORTS = {"shared-memory": ([], {"LOCKSTEP_SHARED_MEMORY": "1"}), "tcp": ([], {"LOCKSTEP_SHARED_MEMORY": "0"}),
              "ring": (["--communication", "ring"], {})}


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


def shares_memory(process):
    """Whether it has mapped memory of a link to another worker."""
    try:
        return "/memfd:lockstep" in pathlib.Path(f"/proc/{process}/maps").read_text(encoding="utf-8")
    except OSError:
        return False  # It has ended.


class Job:
    """A training, as often as it has to be started."""

    def __init__(self, arguments, root, wrapper=(), is_sharded=False):
        self.root = pathlib.Path(root)
        self.folder = self.root / "backup"
        self.scratch = self.root / "tmp"
        self.scratch.mkdir()
        is_divided = arguments.sharding > 0
        self.program = str(pathlib.Path(arguments.programs) / ("train_gpt" if is_divided else "train_images"))
        training = [*TOKENS, "--sharding", str(arguments.sharding)] if is_divided else [*IMAGES, "--data", arguments.data]
        flags, self.variables = TRANSPORTS[arguments.transport]
        self.command = [*wrapper, str(LAUNCHER), "--max-restarts", "5", str(WORKERS), self.program, *COMMON, *training,
                        *flags, "--backup-dir", str(self.folder), *(["--shard-backup"] if is_sharded else [])]
        self.launcher = None
        self.output = ""
        self.starts = 0

    def start(self):
        self.log = tempfile.TemporaryFile()  # pylint: disable=consider-using-with
        variables = {**os.environ, **self.variables, "LOCKSTEP_JOIN_TIMEOUT": str(JOIN_TIMEOUT), "TMPDIR": str(self.scratch)}
        self.launcher = subprocess.Popen(  # pylint: disable=consider-using-with
            self.command, env=variables, stdin=subprocess.DEVNULL, stdout=self.log, stderr=subprocess.STDOUT,
            start_new_session=True)

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

    def most_sharing_memory(self):
        """Watches it to its end. Returns the most workers that had mapped memory shared with another one at a time."""
        most = 0
        deadline = time.monotonic() + HANG
        while self.launcher.poll() is None and time.monotonic() < deadline:
            most = max(most, sum(shares_memory(worker) for worker in self.workers()))
            time.sleep(0.02)
        return most

    def left_behind(self):
        """What is left of it after its end: processes, and files outside the checkpoints' folder. Neither sockets nor shared
        memory of its workers outlive their processes, since they have no names in a file system."""
        deadline = time.monotonic() + FAREWELL
        while (processes := self.processes()) and time.monotonic() < deadline:
            time.sleep(0.05)
        return [f"process {process}" for process in processes] + [str(path) for path in self.scratch.rglob("*")]

    def processes(self):
        """All processes that have its folder in their command lines."""
        found = []
        for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            try:
                if os.fsencode(self.root) in path.read_bytes():
                    found.append(int(path.parent.name))
            except OSError:
                pass  # It has ended.
        return found

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
