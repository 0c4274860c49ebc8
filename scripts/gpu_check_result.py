#!/usr/bin/env python3
"""Writes what a run of gpu_check.sh has found so far: gpu_check_result.py RUN OUT

RUN is that run's folder: `gpus` has a line each, `settings` has a line `key<TAB>value` each, `plan` a line `section<TAB>name` for each program
that is to run, `finished` a line `section<TAB>name<TAB>exit code<TAB>seconds` for each that has, `left_out` a line
`what<TAB>why`. Beside them lie the programs' own results and logs, and run_watched.py's reports of those that it had to
end. The JSON goes to RUN/result.json and to OUT, each of which is whole at any time.
"""

import json
import os
import pathlib
import re
import sys

ENDED_BY_WATCH = 124  # run_watched.py's exit code
KILLED = 128  # a shell's exit code for a signal, less its number
SCALING_NOTE = (
    "images/s over all GPUs, as train_images itself prints them for epoch 2 of 2, so warm: MobileNetV2 at 96x96 in bfloat16, "
    "100 steps of 256 images for each GPU, without cuDNN's benchmark mode. threads: replicas in one process; processes: one "
    "worker process for each GPU. Ratios are to one GPU of the same layout")


def rows(path):
    if not path.exists():
        return []
    return [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()]


def read_json(path):
    """None for a file that is not there, or that a program was killed over."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def read_log(path):
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""


def test_figures(run, name):
    report = read_json(run / f"{name}.json")
    if report is None:
        started = re.findall(r"^\[ RUN      \] (\S+)", read_log(run / f"{name}.out"), re.MULTILINE)
        return {"not_measured": "it ended without a result", "last_test_begun": started[-1] if started else None}
    cases = [case for suite in report["testsuites"] for case in suite["testsuite"]]
    return {
        "tests": report["tests"],
        "failures": [f"{case['classname']}.{case['name']}" for case in cases if case.get("failures")],
        "skipped": [f"{case['classname']}.{case['name']}" for case in cases if case["result"] == "SKIPPED"],
    }


def benchmark_figures(run, name):
    return read_json(run / f"{name}.json") or {"not_measured": "it ended without a result"}


def training_figures(run, name):
    printed = read_log(run / f"{name}.out") + read_log(run / f"{name}.log")
    # train_gpt's loss is in nats a token, and no model can come below the entropy of its generated language.
    losses = re.findall(r"^test loss ([0-9.]+) nats a token(?:, (-?[0-9.]+) above the entropy)?", printed, re.MULTILINE)
    if losses:
        loss, above_entropy = losses[-1]
        return {"test_loss": float(loss)} | ({"above_entropy": float(above_entropy)} if above_entropy else {})
    accuracies = re.findall(r"test accuracy ([0-9.]+)", printed)
    if not accuracies:
        return {"not_measured": "it ended without a test accuracy or loss"}
    return {"test_accuracy": float(accuracies[-1])}


def scaling_figures(run, name):
    # Lines of progress have a rate, too, but no test accuracy. launch_local.sh's lines begin with a worker's number.
    rates = re.findall(r"\bepoch 2/2  .*test accuracy \S+  ([0-9]+) images/s$", read_log(run / f"{name}.out"), re.MULTILINE)
    if not rates:
        return {"not_measured": "it ended without the rate of its second epoch"}
    return {"images_per_second": int(rates[-1])}


def arrange_scaling(entries):
    """Puts the entries `scale_<layout>_<GPUs>` in one table a layout, and adds their ratios to one GPU."""
    if not entries:
        return {}
    tables = {"note": SCALING_NOTE}
    for name, entry in entries.items():
        _, layout, count = name.split("_")
        table = tables.setdefault(layout, {})
        table[count] = entry
        one_gpu = table.get("1", {}).get("images_per_second")
        if one_gpu and "images_per_second" in entry:
            entry["ratio_to_one_gpu"] = round(entry["images_per_second"] / one_gpu, 3)
    return tables


SECTIONS = {
    "tests": test_figures,
    "benchmarks": benchmark_figures,
    "training": training_figures,
    "scaling": scaling_figures,
}


def collect(run):
    planned = [tuple(row) for row in rows(run / "plan")]
    finished = rows(run / "finished")
    result = {
        "gpus": read_log(run / "gpus").splitlines(),
        "settings": dict(rows(run / "settings")),
        "complete": len(finished) == len(planned),
        "failed": [name for _, name, code, _ in finished if code != "0"],
        "not_measured": dict(rows(run / "left_out")),
    }
    for section, name in planned[len(finished):]:
        result["not_measured"][name] = "not reached"
    for section, figures in SECTIONS.items():
        result[section] = {}
        for _, name, code, seconds in [row for row in finished if row[0] == section]:
            stuck = (run / f"{name}.stall").exists()
            entry = {
                "exit_code": int(code),
                "seconds": int(seconds),
                "timed_out": int(code) == ENDED_BY_WATCH and not stuck,
                "stuck": stuck,
            }
            reports = [str(path) for path in (run / f"{name}.stall", run / f"{name}.limit") if path.exists()]
            if reports:
                entry["report"] = reports[0]
            if int(code) > KILLED:
                entry["signal"] = int(code) - KILLED
            result[section][name] = entry | figures(run, name)
    result["scaling"] = arrange_scaling(result["scaling"])
    return result


def write(result, path):
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    partial.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    os.replace(partial, path)


def main():
    run, out = map(pathlib.Path, sys.argv[1:])
    result = collect(run)
    write(result, run / "result.json")
    write(result, out)


if __name__ == "__main__":
    main()
