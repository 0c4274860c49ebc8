#!/usr/bin/env python3
"""Measures the memory of an MLP's training with Adam in float32 at each stage of sharding, beside the formula of predict_memory().

Each job trains for three steps, with replicas as threads of one process or as worker processes. LibTorch's allocator counts the
bytes of all tensors; those of threads are divided by their number. Prints a table in Markdown, in MB (10^6 bytes) of each rank:

  kept     between steps: parameters, gradients and the optimizer's state
  buckets  the most that buckets of gradients had besides
  units    the most that whole parameters of gathered units had; threads share them
  peak     the most that all tensors had in the last step. The formula adds up the three, and one gradient on its way to its bucket
           or, in stage 3, in its unit. Threads in stage 3 need one more, since sums cannot take the place of shared parameters
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from memory_picture import picture  # pylint: disable=wrong-import-position
from markdown_results import print_table  # pylint: disable=wrong-import-position

ROOT = pathlib.Path(__file__).resolve().parents[2]
KEPT = ("parameters", "gradients", "optimizer_state")
STAGES, RANKS, WAYS = (0, 1, 2, 3), (1, 2, 4), ("threads", "processes")
LARGEST_ERROR = 0.03


class JobFailed(Exception):
    pass


def run_job(arguments, way, stage, ranks):
    """The lines of the job's processes, the first worker's first."""
    command = [str(arguments.build / "bin" / "sharding_memory_job"), "--stage", str(stage), "--layers", str(arguments.layers),
               "--width", str(arguments.width), "--steps", "3"]
    if way == "threads":
        command += ["--replicas", str(ranks)]
    else:
        command = [str(ROOT / "scripts" / "launch_local.sh"), str(ranks), *command]
    environment = {name: value for name, value in os.environ.items() if name != "TF_CONFIG"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=arguments.timeout, env=environment, check=False)
    lines = [json.loads(line[line.index("{"):]) for line in done.stdout.splitlines() if "{" in line]
    if done.returncode != 0 or sum(len(line["ranks"]) for line in lines) != ranks:
        raise JobFailed(f"stage {stage}, {ranks} ranks by {way}: exit code {done.returncode}: {done.stderr.strip()[-2000:]}")
    return sorted(lines, key=lambda line: line["ranks"][0]["rank"])


def result_of(lines, way, stage, ranks, largest_gradient):
    """The bytes of a rank, the largest over the processes. A job's prediction is the same on all ranks."""
    predicted = lines[0]["ranks"][0]["predicted"]
    of_ranks = [rank["measured"] for line in lines for rank in line["ranks"]]
    buckets, units = predicted["buckets"], predicted["gathered_units"]
    kept = sum(predicted[part] for part in KEPT)
    # One replica's gradients are in no bucket.
    on_its_way = largest_gradient if ranks > 1 else 0
    if stage == 3 and way == "threads":
        on_its_way *= 2
    return {
        "way": way, "stage": stage, "ranks": ranks,
        "kept": max(line["held"] / len(line["ranks"]) for line in lines), "predicted_kept": kept,
        "parts": {part: max(rank[part] for rank in of_ranks) for part in (*KEPT, "buckets", "gathered_units")},
        "predicted_parts": predicted,
        "peak": max(line["peak"] / len(line["ranks"]) for line in lines),
        "predicted_peak": kept + buckets + units + on_its_way,
        "peak_of_earlier_steps": max(line["peak_of_earlier_steps"] / len(line["ranks"]) for line in lines),
        "most_units": max(line["most_units"] for line in lines),
    }


def megabytes(count):
    return f"{count / 1e6:,.0f}" if count >= 10e6 else f"{count / 1e6:,.3f}"


def table_row(result):
    def beside(measured, predicted):
        return f"{megabytes(measured)} / {megabytes(predicted)}" if measured or predicted else "-"

    parts, predicted = result["parts"], result["predicted_parts"]
    return [str(result["stage"]), str(result["ranks"]), result["way"], megabytes(result["kept"]), megabytes(result["predicted_kept"]),
            f"{result['kept'] / result['predicted_kept']:.3f}", beside(parts["buckets"], predicted["buckets"]),
            beside(parts["gathered_units"], predicted["gathered_units"]), beside(result["peak"], result["predicted_peak"])]


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release", help="the build folder")
    parser.add_argument("--layers", type=int, default=24, help="layers of the MLP (default: %(default)s)")
    parser.add_argument("--width", type=int, default=2048, help="inputs and outputs of a layer (default: %(default)s)")
    parser.add_argument("--ranks", default="1,2,4", help="numbers of ranks (default: %(default)s)")
    parser.add_argument("--stages", default="0,1,2,3", help="stages of sharding (default: %(default)s)")
    parser.add_argument("--by", default="threads,processes", help="kinds of ranks (default: %(default)s)")
    parser.add_argument("--timeout", type=float, default=600, help="seconds for a job (default: %(default)s)")
    parser.add_argument("--pictures", type=pathlib.Path, help="a folder for sharding_memory_light.svg and sharding_memory_dark.svg")
    parser.add_argument("--json", type=pathlib.Path, help="a file for all results")
    parsed = parser.parse_args(arguments)
    for name, allowed in (("ranks", RANKS), ("stages", STAGES), ("by", WAYS)):
        given = getattr(parsed, name).split(",")
        values = [value for value in allowed if str(value) in given]
        if len(values) != len(given):
            parser.error(f"--{name}: expected some of {', '.join(map(str, allowed))}, but got {getattr(parsed, name)}")
        setattr(parsed, name, values)
    if not (parsed.build / "bin" / "sharding_memory_job").exists():
        parser.error(f"--build: expected a folder with bin/sharding_memory_job, but got {parsed.build}")
    return parsed


def main(given=None):
    arguments = parse(given)
    largest_gradient = arguments.width * arguments.width * 4
    results, has_failed = [], False
    for way in arguments.by:
        for ranks in arguments.ranks:
            for stage in arguments.stages:
                print(f"==> stage {stage}, {ranks} by {way}", file=sys.stderr, flush=True)
                try:
                    results.append(result_of(run_job(arguments, way, stage, ranks), way, stage, ranks, largest_gradient))
                except (JobFailed, subprocess.TimeoutExpired) as error:
                    has_failed = True
                    print(f"    not measured: {error}", file=sys.stderr, flush=True)
    results.sort(key=lambda result: (result["stage"], result["ranks"], WAYS.index(result["way"])))
    parameters = arguments.layers * (arguments.width + 1) * arguments.width
    print(f"{parameters:,} parameters in {arguments.layers} layers, float32, Adam; MB of each rank, measured / formula")
    print_table(["stage", "ranks", "by", "kept", "formula", "ratio", "buckets", "units", "peak"], [table_row(result) for result in results])
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    if arguments.pictures and results:
        for is_dark in (False, True):
            name = f"sharding_memory_{'dark' if is_dark else 'light'}.svg"
            (arguments.pictures / name).write_text(picture(results, parameters, is_dark), encoding="utf-8")
    off = [result for result in results if abs(result["kept"] / result["predicted_kept"] - 1) > LARGEST_ERROR]
    for result in off:
        print(f"stage {result['stage']}, {result['ranks']} by {result['way']}: more than {LARGEST_ERROR:.0%} from the formula", file=sys.stderr)
    return 1 if has_failed or off else 0


if __name__ == "__main__":
    sys.exit(main())
