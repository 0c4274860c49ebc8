#!/usr/bin/env python3
"""Measures what keeping a training alive costs, and how it comes back: Lockstep's Backup compared with PyTorch's DDP under
torchrun and Keras' BackupAndRestore. MobileNetV2, two workers on this machine's CPU. Prints tables in Markdown.

  overhead   steps with one checkpoint among them against the same steps without, in alternating blocks; and a comparison of
             all replicas' states against a step
  kill       kill -9 of the second worker: until the first one has ended, and until the next step after the restart
  freeze     SIGSTOP of the second worker: likewise
  load       trainings next to twice as many busy processes as there are cores: how many fail
"""

import argparse
import os
import pathlib
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from systems import JobFailed, Keras, Lockstep, Torch, has_ended

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from markdown_results import median_interval, print_table  # pylint: disable=wrong-import-position

PATIENCE = 120  # seconds to load libraries, and for anything that is not measured
MOST_SECONDS_OF_A_FREEZE = 60
PARTS = ("overhead", "kill", "freeze", "load")


class Benchmark:
    def __init__(self, arguments, systems):
        self.arguments = arguments
        self.systems = systems
        self.moments = random.Random(arguments.seed)
        self.tables = []
        self.has_failed = False

    def flags(self, folder, steps, **more):
        values = {"backup-dir": folder, "steps": steps, "global-batch-size": self.arguments.global_batch_size,
                  "image-size": self.arguments.image_size, **more}
        return [text for name, value in values.items() for text in ("--" + name.replace("_", "-"), str(value))]

    def fail(self, part, system, error):
        self.has_failed = True
        self.say(f"{part}, {system.name}: not measured: {error}")

    def say(self, text):
        print(text, file=sys.stderr, flush=True)

    # Parts

    def overhead(self):
        rows, comparisons, steps = [], [], self.arguments.steps
        for system in self.systems:
            self.say(f"==> overhead, {system.name}")
            expected = self.arguments.pairs * (1 + len(system.kinds) + system.compares)
            with tempfile.TemporaryDirectory(dir=self.arguments.folder) as folder:
                run = system.run(self.flags(folder, steps, blocks=self.arguments.pairs))
                try:
                    run.wait_for(lambda run: len(run.blocks) >= expected, 3600, f"{expected} blocks")
                except JobFailed as error:
                    self.fail("overhead", system, error)
                    continue
                finally:
                    run.stop()
            seconds = {kind: [value for name, value in run.blocks if name == kind]
                       for kind in ("none", *system.kinds, "comparison")}
            for kind in system.kinds:
                ratios = [one / other for one, other in zip(seconds[kind], seconds["none"])]
                middle, low, high = median_interval([(ratio - 1) * 100 for ratio in ratios])
                rows.append([system.name, kind, f"{statistics.median(seconds['none']) / steps * 1e3:.0f} ms",
                             f"{middle:+.1f} %", f"{low:+.1f} to {high:+.1f} %"])
            if system.compares:
                shares = [one / other * 100 for one, other in zip(seconds["comparison"], seconds["none"])]
                middle, low, high = median_interval(shares)
                comparisons.append([system.name, f"{middle:.1f} % of a step", f"{low:.1f} to {high:.1f} %",
                                    f"{middle / 1000:.4f} %"])
        self.tables.append((["system", f"a checkpoint in {steps} steps", "a step without", "these steps take",
                             "95 % interval"], rows))
        self.tables.append((["system", "a comparison of all replicas' states takes", "95 % interval",
                             "one every 1,000 steps"], comparisons))

    def strike(self, system, number):
        """One training whose second worker gets the signal: seconds of detection and until the next step, and steps that were
        done again. None for what did not come to pass in time."""
        with tempfile.TemporaryDirectory(dir=self.arguments.folder) as folder:
            run = system.run(self.flags(folder, 10000, save_every=self.arguments.save_every))
            try:
                run.wait_for(lambda run: len(run.of("pid")) == 2, PATIENCE, "two workers")
                run.wait_for(lambda run: run.of("step") and run.of("step")[-1][2] >= 2 * self.arguments.save_every, PATIENCE,
                             "steps")
                time.sleep(self.moments.uniform(0, 1))
                processes = {event[1]: event[2] for event in run.of("pid")}
                struck = time.monotonic()
                os.kill(processes[1], number)
                while not has_ended(processes[0]):
                    if time.monotonic() > struck + MOST_SECONDS_OF_A_FREEZE:
                        return None, None, None
                    time.sleep(0.005)
                detected = time.monotonic() - struck
                if system.name == Keras.name:
                    os.kill(processes[1], signal.SIGKILL)  # Its launcher has nobody else to do so.
                before = [event for event in run.of("step") if event[3] < struck + detected][-1]
                begun = run.wait_for(lambda run: run.of("begin", struck), PATIENCE, "a new start")[0]
                next_step = run.wait_for(lambda run: run.of("step", begun[3]), PATIENCE, "a step")[0]
                return detected, next_step[3] - struck, before[2] - begun[2]
            finally:
                run.stop()

    def measure_faults(self, name, number):
        rows = []
        for system in self.systems:
            self.say(f"==> {name}, {system.name}")
            found, tried = [], 0
            for trial in range(self.arguments.trials):
                tried += 1
                try:
                    found.append(self.strike(system, number))
                except JobFailed as error:
                    self.say(f"    {trial + 1}/{self.arguments.trials}: has not come back: {error}")
                    continue
                self.say(f"    {trial + 1}/{self.arguments.trials}: {found[-1]}")
                if found[-1][0] is None:
                    break  # Waiting again would not help.
            measured = [self.describe([trial[i] for trial in found], unit) if found else "-"
                        for i, unit in enumerate((" s", " s", " steps"))]
            came_back = sum(trial[0] is not None for trial in found)
            rows.append([system.name, *measured, f"{came_back} of {tried}"])
        self.tables.append(([f"{name} of a worker", "the other one has ended after", "the next step is done after",
                             "done again", "trainings that went on"], rows))

    def describe(self, values, unit):
        if None in values:
            return f"not within {MOST_SECONDS_OF_A_FREEZE} s" if unit != " steps" else "-"
        digits = 0 if unit == " steps" else 2
        return f"{statistics.median(values):.{digits}f}{unit} ({min(values):.{digits}f} to {max(values):.{digits}f})"

    def kill(self):
        self.measure_faults("kill -9", signal.SIGKILL)

    def freeze(self):
        self.measure_faults("SIGSTOP", signal.SIGSTOP)

    def load(self):
        rows, cores = [], os.cpu_count() or 1
        for system in self.systems:
            self.say(f"==> load, {system.name}")
            busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2 * cores)]
            try:
                with tempfile.TemporaryDirectory(dir=self.arguments.folder) as folder:
                    run = system.run(self.flags(folder, 100000, save_every=self.arguments.save_every))
                    try:
                        run.wait_for(lambda run: run.of("step"), 2 * PATIENCE, "a step")
                        time.sleep(self.arguments.load_seconds)
                        starts, steps, lives = len(run.of("begin")), len(run.of("step")), run.process.poll() is None
                    except JobFailed as error:
                        self.fail("load", system, error)
                        continue
                    finally:
                        run.stop()
            finally:
                for process in busy:
                    process.kill()
                    process.wait()
            rows.append([system.name, str(steps), str(starts - 1) if lives else "the job has ended"])
        self.tables.append(([f"{2 * cores} busy processes on {cores} cores, {self.arguments.load_seconds} s", "steps",
                             "false alarms (restarts)"], rows))


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default=",".join(PARTS), help="what is measured (all)")
    parser.add_argument("--pairs", type=int, default=15, help="blocks of each kind; at least 6 (15)")
    parser.add_argument("--steps", type=int, default=10, help="steps of a block (10)")
    parser.add_argument("--trials", type=int, default=5, help="faults of each kind (5)")
    parser.add_argument("--save-every", type=int, default=5, help="steps between checkpoints, but in overhead (5)")
    parser.add_argument("--load-seconds", type=int, default=60)
    parser.add_argument("--global-batch-size", type=int, default=64)
    parser.add_argument("--image-size", type=int, default=64)
    parser.add_argument("--seed", type=int, default=1, help="seed of the times at which the faults happen (1)")
    parser.add_argument("--build", default="build/release", help="a folder with bin/backup_job (build/release)")
    parser.add_argument("--peer-torch-python", default="", help="a Python with torch and torchvision; else without PyTorch")
    parser.add_argument("--peer-tf-python", default="", help="a Python with tensorflow and tf_keras; else without Keras")
    parser.add_argument("--only", default="", metavar="TEXT", help="the systems whose names hold it (all)")
    parser.add_argument("--folder", default=tempfile.gettempdir(), help="where checkpoints are written")
    arguments = parser.parse_args()
    arguments.parts = arguments.parts.split(",")
    for part in arguments.parts:
        if part not in PARTS:
            parser.error(f"--parts: expected any of {', '.join(PARTS)}, but got '{part}'")
    if arguments.pairs < 6:
        parser.error(f"--pairs: expected at least 6, but got {arguments.pairs}")
    if not (pathlib.Path(arguments.build) / "bin" / "backup_job").exists():
        parser.error(f"--build: expected a folder with bin/backup_job, but got '{arguments.build}'")
    os.makedirs(arguments.folder, exist_ok=True)
    for name in ("peer_torch_python", "peer_tf_python"):
        if getattr(arguments, name) and not shutil.which(getattr(arguments, name)):
            parser.error(f"--{name.replace('_', '-')}: expected a program, but got '{getattr(arguments, name)}'")
    return arguments


def main():
    arguments = parse()
    systems = [Lockstep(arguments)]
    if arguments.peer_torch_python:
        systems.append(Torch(arguments))
    if arguments.peer_tf_python:
        systems.append(Keras(arguments))
    systems = [system for system in systems if arguments.only in system.name]
    if not systems:
        print(f"--only: expected a part of a system's name, but got '{arguments.only}'", file=sys.stderr)
        return 2
    benchmark = Benchmark(arguments, systems)
    size = arguments.image_size
    print(f"{time.strftime('%Y-%m-%d')}, {os.cpu_count()} cores. MobileNetV2, {size}x{size} pixels, global batch "
          f"{arguments.global_batch_size}, 2 workers; {arguments.pairs} pairs of blocks of {arguments.steps} steps; "
          f"otherwise a checkpoint every {arguments.save_every} steps.", flush=True)
    for part in arguments.parts:
        getattr(benchmark, part)()
        for header, rows in benchmark.tables:
            print_table(header, rows)
        benchmark.tables = []
    return 1 if benchmark.has_failed else 0


if __name__ == "__main__":
    sys.exit(main())
