#!/usr/bin/env python3
"""Disturbs short trainings at random moments, and compares what they come to with an undisturbed one. Of half of them worker 0
writes the checkpoints, of the others all workers together."""

import argparse
import concurrent.futures
import dataclasses
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import time

from fault_campaign_faults import FAULTS
from fault_campaign_job import TRANSPORTS, WORKERS, Job, run_quietly

MOST_STARTS_BY_HAND = 5
SHARED_MEMORY = pathlib.Path("/dev/shm")


@dataclasses.dataclass
class Trial:
    fault: str
    was_hit: bool = False
    starts: int = 0
    moment: float = 0  # seconds after its start
    wrong: str = ""  # with its end; nothing: it is the undisturbed one's


@dataclasses.dataclass
class Tally:
    trials: int = 0
    hits: int = 0
    starts: int = 0
    equal: int = 0
    others: list = dataclasses.field(default_factory=list)

    def add(self, trial):
        self.trials += 1
        self.hits += trial.was_hit
        self.starts += trial.starts
        self.equal += not trial.wrong
        if trial.wrong:
            self.others.append(trial.wrong)


class Campaign:
    def __init__(self, arguments):
        self.arguments = arguments
        self.expected = {}  # of trainings whose checkpoints one worker writes, and of those whose workers write them together
        self.seconds = 0.0  # that an undisturbed training takes

    def new_folder(self):
        # As long a path for each: checkpoints hold their configuration.
        return pathlib.Path(tempfile.mkdtemp(prefix="fault-campaign-", dir=self.arguments.folder))

    def measure(self):
        for is_sharded in (False, True):
            self.expected[is_sharded] = self.train_undisturbed(is_sharded)

    def train_undisturbed(self, is_sharded):
        """The end of a training, of which there are as many at once as later."""
        jobs = [Job(self.arguments, self.new_folder(), is_sharded=is_sharded) for _ in range(self.arguments.jobs)]
        expected = None
        begun = time.monotonic()
        for job in jobs:
            job.start()
        num_sharing = jobs[0].most_sharing_memory()
        for job in jobs:
            code = job.end()
            self.seconds = max(self.seconds, time.monotonic() - begun)
            if code != 0:
                sys.exit(f"fault_campaign.py: an undisturbed training ended with {code}:\n{job.output}")
            state = job.state()
            shutil.rmtree(job.root)
            if expected not in (None, state):
                sys.exit("fault_campaign.py: undisturbed trainings came to different ends")
            expected = state
        if num_sharing != (WORKERS if self.arguments.transport == "shared-memory" else 0):
            sys.exit(f"fault_campaign.py: expected workers to exchange over {self.arguments.transport}, but {num_sharing} of "
                     f"{WORKERS} shared memory")
        return expected

    def keep(self, job):
        """Copies what is left of a job that came to another end; returns where to."""
        kept = self.new_folder()
        (kept / "output.txt").write_text(job.output, encoding="utf-8")
        shutil.copytree(job.root, kept / "job")
        return kept

    def judge(self, job, fault, code, expected):
        if code is None:
            return "hung"
        if code != 0:
            return f"ended with {code}"
        if job.state() != expected:
            return "came to another end"
        left = job.left_behind()
        return f"left {', '.join(left)} behind" if left else fault.complaint()

    def try_fault(self, number, kind, num_kinds):
        """One training with one fault."""
        moments = random.Random(f"{self.arguments.seed}/{number}")
        is_sharded = number // num_kinds % 2 == 1
        job = Job(self.arguments, self.new_folder(), kind.wrapper(), is_sharded)
        fault = kind(job)
        trial = Trial(kind.name, moment=moments.uniform(0, self.seconds))
        try:
            fault.prepare()
            code = self.train(job, fault, trial, moments)
            wrong = self.judge(job, fault, code, self.expected[is_sharded])
            if wrong:
                written = "together" if is_sharded else "by worker 0"
                trial.wrong = f"{wrong} at {trial.moment:.2f} s, checkpoints written {written}, see {self.keep(job)}"
            trial.starts = job.starts
        finally:
            job.kill()
            if os.path.ismount(job.folder):
                run_quietly("umount", "--lazy", str(job.folder))
            shutil.rmtree(job.root, ignore_errors=True)
        return trial

    def train(self, job, fault, trial, moments):
        """The exit code of the last start."""
        job.start()
        try:
            job.launcher.wait(trial.moment)
        except subprocess.TimeoutExpired:
            trial.was_hit = fault.strike(moments)
        code = job.end()
        for _ in range(MOST_STARTS_BY_HAND):
            if code not in fault.ends:
                break
            fault.mend()
            job.start()
            code = job.end()
        fault.mend()
        return code

    def run(self, kinds):
        """Yields each trial that is at its end."""
        with concurrent.futures.ThreadPoolExecutor(self.arguments.jobs) as pool:
            trials = [pool.submit(self.try_fault, number, kinds[number % len(kinds)], len(kinds))
                      for number in range(self.arguments.faults)]
            try:
                for trial in concurrent.futures.as_completed(trials):
                    yield trial.result()
            finally:
                pool.shutdown(cancel_futures=True)


def shared_memory_names():
    return {path.name for path in SHARED_MEMORY.iterdir()} if SHARED_MEMORY.is_dir() else set()


def print_table(tallies):
    print("| fault | trainings | hit while running | starts | same end, bit by bit | other ends |")
    print("|---|---|---|---|---|---|")
    for name, tally in tallies.items():
        if tally.trials:
            print(f"| {name} | {tally.trials} | {tally.hits} | {tally.starts} | {tally.equal} | "
                  f"{'; '.join(tally.others) or 'none'} |")


def main():
    parser = argparse.ArgumentParser(prog="fault_campaign.sh", description=__doc__)
    parser.add_argument("--faults", type=int, default=500, help="how many trainings (500)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the times at which the faults happen (1)")
    parser.add_argument("--only", default="", metavar="TEXT", help="the faults whose names hold it (all)")
    parser.add_argument("--jobs", type=int, default=2, help="how many trainings at once (2)")
    parser.add_argument("--transport", choices=TRANSPORTS, default="shared-memory",
                        help="how workers exchange values (shared-memory)")
    parser.add_argument("--sharding", type=int, choices=range(4), default=0,
                        help="with 1 to 3, the trainings are of a language model whose state is divided by this stage (0)")
    parser.add_argument("--data", default=os.environ.get("LOCKSTEP_MNIST_DIR", "generated"),
                        help="as train_images's ($LOCKSTEP_MNIST_DIR, else generated digits)")
    parser.add_argument("--folder", default=tempfile.gettempdir(), help="where trainings lie, and what failed stays")
    parser.add_argument("--programs", required=True, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    for name in ("faults", "jobs"):
        if getattr(arguments, name) < 1:
            parser.error(f"--{name}: expected 1 or more, but got {getattr(arguments, name)}")
    kinds = []
    for name, kind in FAULTS.items():
        if arguments.only not in name:
            continue
        hindrance = kind.hindrance()
        if hindrance:
            print(f"left out: {name}: {hindrance}", file=sys.stderr)
        else:
            kinds.append(kind)
    if not kinds:
        parser.error(f"--only: expected a part of one of {', '.join(FAULTS)}, but got '{arguments.only}'")

    os.makedirs(arguments.folder, exist_ok=True)
    named_before = shared_memory_names()
    campaign = Campaign(arguments)
    campaign.measure()
    steps = campaign.expected[False][0]
    print(f"undisturbed: {campaign.seconds:.1f} s, {steps} steps", file=sys.stderr, flush=True)
    tallies = {kind.name: Tally() for kind in kinds}
    done = 0
    try:
        for trial in campaign.run(kinds):
            done += 1
            tallies[trial.fault].add(trial)
            print(f"{done}/{arguments.faults} {trial.fault}: {trial.wrong or 'equal'}", file=sys.stderr, flush=True)
    finally:  # also of what an interrupted campaign has done
        failures = sum(len(tally.others) for tally in tallies.values())
        left = sorted(shared_memory_names() - named_before)
        print_table(tallies)
        stage = f", sharding stage {arguments.sharding}" if arguments.sharding else ""
        print(f"\n{done} trainings of {steps} steps over {arguments.transport}{stage}, {failures} other ends; "
              f"left in {SHARED_MEMORY}: {', '.join(left) or 'nothing'}")
    sys.exit(1 if failures or left else 0)


if __name__ == "__main__":
    main()
