#!/usr/bin/env python3
"""Disturbs short trainings at random moments, and compares what they come to with an undisturbed one."""

import argparse
import collections
import dataclasses
import json
import os
import pathlib
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

LAUNCHER = pathlib.Path(__file__).resolve().parent / "launch_local.sh"
WORKERS = 2
# Two replicas each; 30 steps an epoch.
TRAINING = ["--strategy", "multi_worker", "--devices", "cpu:0,cpu:1", "--threads", "1", "--limit-train", "1920",
            "--limit-test", "200", "--epochs", "2", "--global-batch-size", "64", "--save-every", "5 steps", "--seed", "3"]
# Seconds: what takes longer is counted as hanging, and killed. Workers wait 20 of them for one that is stopped before it
# has come to their meeting place.
HANG = 120


def children_of(process):
    """The workers that a launcher has started, in the order of their starts."""
    try:
        tasks = pathlib.Path(f"/proc/{process}/task").iterdir()
        found = [int(child) for task in tasks for child in (task / "children").read_text().split()]
    except OSError:
        return []
    return sorted(found)


def send(process, number):
    try:
        os.kill(process, number)
    except ProcessLookupError:
        pass


class Job:
    """A training in a folder of its own, as often as it has to be started."""

    def __init__(self, arguments, folder):
        self.folder = folder
        self.command = [str(LAUNCHER), "--max-restarts", "5", str(WORKERS), arguments.program, *TRAINING, "--data",
                        arguments.data, "--backup-dir", str(folder)]
        self.output = ""
        self.generations = 0

    def start(self):
        self.log = tempfile.TemporaryFile()  # pylint: disable=consider-using-with
        self.launcher = subprocess.Popen(  # pylint: disable=consider-using-with
            self.command, env={**os.environ, "LOCKSTEP_JOIN_TIMEOUT": "20"}, stdin=subprocess.DEVNULL, stdout=self.log, stderr=subprocess.STDOUT, start_new_session=True)
        self.begun = time.monotonic()

    def end(self):
        """Its exit code; None: it hung."""
        try:
            code = self.launcher.wait(HANG)
        except subprocess.TimeoutExpired:
            for process in [*children_of(self.launcher.pid), self.launcher.pid]:
                send(process, signal.SIGKILL)
            self.launcher.wait()
            code = None
        self.log.seek(0)
        text = self.log.read().decode(errors="replace")
        self.log.close()
        self.output += text
        self.generations += 1 + text.count("is started again")
        return code

    def checkpoints(self):
        return sorted(self.folder.glob("checkpoint-*"))

    def state(self):
        """The checksums of model, optimizer, and each replica's buffers and random stream at its last step."""
        manifest = json.loads((self.checkpoints()[-1] / "manifest.json").read_text(encoding="utf-8"))
        parts = manifest["files"][0]["parts"]
        return manifest["step"], [(part["name"], part["sha256"]) for part in parts
                                  if part["name"].startswith(("model.", "optimizers.", "replicas."))]

    def pick_worker(self, moments):
        workers = children_of(self.launcher.pid)
        return moments.choice(workers) if workers else None


def kill(job, moments):
    worker = job.pick_worker(moments)
    if worker:
        send(worker, signal.SIGKILL)


def stop(job, moments):
    worker = job.pick_worker(moments)
    if worker:
        send(worker, signal.SIGSTOP)


def stop_shortly(job, moments):
    """Not long enough to be given up."""
    worker = job.pick_worker(moments)
    if worker:
        send(worker, signal.SIGSTOP)
        time.sleep(moments.uniform(0.05, 1.0))
        send(worker, signal.SIGCONT)


def terminate(job, _moments):
    send(job.launcher.pid, signal.SIGTERM)


def terminate_one(job, moments):
    worker = job.pick_worker(moments)
    if worker:
        send(worker, signal.SIGTERM)


def fill_disk(job, moments):
    """No worker can write a file of more than some kilobytes any more, for a while or for good."""
    limited = [(worker, resource.prlimit(worker, resource.RLIMIT_FSIZE)) for worker in children_of(job.launcher.pid)]
    for worker, (_, most) in limited:
        try:
            resource.prlimit(worker, resource.RLIMIT_FSIZE, (50000, most))
        except OSError:
            pass
    if moments.random() < 0.5:
        time.sleep(moments.uniform(0.1, 2))
        for worker, limits in limited:
            try:
                resource.prlimit(worker, resource.RLIMIT_FSIZE, limits)
            except OSError:
                pass


def kill_all(job):
    for process in [job.launcher.pid, *children_of(job.launcher.pid)]:
        send(process, signal.SIGKILL)


def damage(job, moments):
    """The power fails, and leaves the newest checkpoint with a flipped bit, or cut short."""
    kill_all(job)
    job.launcher.wait()
    time.sleep(0.2)  # workers die with their launcher
    checkpoints = job.checkpoints()
    if len(checkpoints) < 2:
        return
    path = moments.choice(sorted(checkpoints[-1].iterdir()))
    bytes_of_it = bytearray(path.read_bytes())
    place = moments.randrange(len(bytes_of_it))
    if moments.random() < 0.3:
        bytes_of_it = bytes_of_it[:place]
    else:
        bytes_of_it[place] ^= 1 << moments.randrange(8)
    path.write_bytes(bytes_of_it)
    job.damaged = path


FAULTS = {"kill -9 of a worker": kill, "SIGSTOP of a worker for good": stop, "SIGSTOP of a worker, then SIGCONT": stop_shortly,
          "SIGTERM to the job": terminate, "SIGTERM to one worker": terminate_one, "no space on the disk": fill_disk,
          "kill -9 of all, then a flipped bit or a truncation": damage}


@dataclasses.dataclass
class Tally:
    trials: int = 0
    disturbed: int = 0
    starts: int = 0
    equal: int = 0
    others: list = dataclasses.field(default_factory=list)


def try_fault(arguments, fault, moments, expected, longest):
    """One training with one fault: what is wrong with its end, if anything, and how often it was started."""
    folder = pathlib.Path(tempfile.mkdtemp(dir=arguments.folder)) / "backup"
    job = Job(arguments, folder)
    job.damaged = None
    job.start()
    moment = moments.uniform(0, longest)
    try:
        job.launcher.wait(moment)
    except subprocess.TimeoutExpired:
        FAULTS[fault](job, moments)
    was_disturbed = job.launcher.returncode is None or job.damaged is not None
    code = job.end()
    # Who was asked to end goes on when started again; so does one whose power has failed.
    for _ in range(5):
        if code not in (130, 143, 137, -9):
            break
        job.start()
        code = job.end()
    wrong = None
    if code is None:
        wrong = "hung"
    elif code != 0:
        wrong = f"ended with {code}"
    elif job.state() != expected:
        wrong = "came to another end"
    elif job.damaged and f"passed over a damaged checkpoint: {job.damaged.parent}/" not in job.output:
        wrong = f"did not name {job.damaged.name}"
    if wrong:
        kept = pathlib.Path(arguments.folder) / f"failed-{moments.randrange(10**9)}"
        shutil.copytree(folder.parent, kept)
        (kept / "output.txt").write_text(job.output, encoding="utf-8")
        wrong += f" at {moment:.2f} s, see {kept}"
    shutil.rmtree(folder.parent, ignore_errors=True)
    return wrong, was_disturbed, job.generations


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--faults", type=int, default=500, help="how many trainings (500)")
    parser.add_argument("--seed", type=int, default=1, help="of the faults and their moments (1)")
    parser.add_argument("--only", default="", metavar="TEXT", help="the faults whose names hold it (all)")
    parser.add_argument("--data", default=os.environ.get("LOCKSTEP_MNIST_DIR", "generated"),
                        help="as train_mnist's ($LOCKSTEP_MNIST_DIR, else generated digits)")
    parser.add_argument("--folder", default=tempfile.gettempdir(), help="where trainings lie, and what failed stays")
    parser.add_argument("--program", required=True, help="train_mnist")
    arguments = parser.parse_args()
    faults = [name for name in FAULTS if arguments.only in name]
    if not faults:
        parser.error(f"--only: expected a part of one of {', '.join(FAULTS)}, but got '{arguments.only}'")
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        # As long a path as the others have: checkpoints hold their configuration.
        undisturbed = Job(arguments, pathlib.Path(folder) / "backup")
        undisturbed.start()
        code = undisturbed.end()
        longest = time.monotonic() - undisturbed.begun
        if code != 0:
            sys.exit(f"fault_campaign.py: the undisturbed training ended with {code}:\n{undisturbed.output}")
        expected = undisturbed.state()
    print(f"undisturbed: {longest:.1f} s, {expected[0]} steps", file=sys.stderr, flush=True)
    moments = random.Random(arguments.seed)
    tallies = collections.defaultdict(Tally)
    for number in range(arguments.faults):
        fault = faults[number % len(faults)]
        wrong, was_disturbed, starts = try_fault(arguments, fault, moments, expected, longest)
        tally = tallies[fault]
        tally.trials += 1
        tally.disturbed += was_disturbed
        tally.starts += starts
        tally.equal += wrong is None
        if wrong:
            tally.others.append(wrong)
        print(f"{number + 1}/{arguments.faults} {fault}: {wrong or 'equal'}", file=sys.stderr, flush=True)
    print("| fault | trainings | hit while training | starts | same end, bit by bit | other ends |\n|---|---|---|---|---|---|")
    for fault, tally in tallies.items():
        others = "; ".join(tally.others) or "none"
        print(f"| {fault} | {tally.trials} | {tally.disturbed} | {tally.starts} | {tally.equal} | {others} |")
    failures = sum(len(tally.others) for tally in tallies.values())
    print(f"\n{arguments.faults} trainings of {expected[0]} steps, {failures} other ends")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
