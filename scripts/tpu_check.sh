#!/usr/bin/env bash
# scripts/tpu_check.sh [option...]
#
# Checks Lockstep on a machine with TPUs: builds with torch_tpu, trains on 1, 4 and 8 devices with a
# process for each, compares results with the CPU and speeds with each other, and kills a worker.
# The last batch of the training is smaller than the others and not divisible by the devices.
# Needs a Python 3.11 with torch 2.11.0 and torch_tpu 0.2.0 (docs/tpu.md). Lockstep has never run on
# a TPU: please report what this prints.
#
#   --python PATH    the Python with torch and torch_tpu (default: python3.11)
#   --devices LIST   numbers of devices, such as "1 4" (default: those of 1, 4 and 8 that there are)
#   --out FOLDER     new folder for results and logs (default: build/tpu_check/<start time>)
#   --plugin FILE    check the device of this library instead of torch_tpu's, with the programs of
#                    --built
#   --built FOLDER   take the programs in this folder, and build nothing
#   --rounds N       rounds of measurements; 6 give intervals (default: 6)
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
help_if_asked "$@"

python=python3.11 devices='' out='' plugin='' bin='' rounds=6
while (($#)); do
  case $1 in
    --python) python=${2:?--python: expected a path} && shift 2 ;;
    --devices) devices=${2:?--devices: expected numbers} && shift 2 ;;
    --out) out=${2:?--out: expected a folder} && shift 2 ;;
    --plugin) plugin=${2:?--plugin: expected a library} && shift 2 ;;
    --built) bin=${2:?--built: expected a folder} && shift 2 ;;
    --rounds) rounds=${2:?--rounds: expected a number} && shift 2 ;;
    *) fail "expected --python, --devices, --out, --plugin, --built or --rounds, but got '$1'" 2 ;;
  esac
done
[[ $rounds =~ ^[1-9][0-9]*$ ]] || fail "--rounds: expected a number, but got '$rounds'" 2
[[ ! $devices || $devices =~ ^[1-9][0-9]*( [1-9][0-9]*)*$ ]] || fail "--devices: expected numbers such as \"1 4\", but got '$devices'" 2
[[ ! $plugin || ( -f $plugin && $bin ) ]] || fail "--plugin $plugin: expected a library, together with --built" 2

if [[ ! $plugin ]]; then
  command -v "$python" >/dev/null || fail "--python $python: expected a Python 3.11, but found none" 2
  torch=$("$python" -c 'import importlib.util; print(importlib.util.find_spec("torch").submodule_search_locations[0])') ||
    fail "--python $python: expected a Python with torch, but it has none" 2
  LOCKSTEP_LIBPYTHON=$("$python" -c 'import sysconfig; print(sysconfig.get_config_var("LIBDIR") + "/" + sysconfig.get_config_var("INSTSONAME"))')
  PYTHONPATH=${torch%/torch}${PYTHONPATH:+:$PYTHONPATH}
  export LOCKSTEP_LIBPYTHON PYTHONPATH
fi
if [[ ! $bin ]]; then
  export CMAKE_PREFIX_PATH=$torch
  need_packages "${packages_to_build[@]}"
  run_cmake -S . -B build/tpu -G Ninja -DCMAKE_BUILD_TYPE=Release -DLOCKSTEP_TORCH_TPU=ON -DLOCKSTEP_BUILD_TESTS=OFF \
    -DLOCKSTEP_BUILD_BENCHMARKS=OFF
  timed "Building" cmake --build build/tpu --parallel "$(jobs)" --target check_torch_tpu compare_strategies train_images
  bin=build/tpu/bin
fi
out=${out:-build/tpu_check/$(date -u +%Y%m%dT%H%M%SZ)-$$}
mkdir -p "$out"

export LOCKSTEP_DEVICE_PLUGIN=${plugin:-torch_tpu}
failed=()

# check name command...: its output goes to <out>/<name>.log.
check() {
  local name=$1 code=0
  shift
  say "Checking: ${name//_/ }"
  "$@" >"$out/$name.log" 2>&1 || code=$?
  ((code == 0)) && return
  tail -n 5 "$out/$name.log" >&2
  failed+=("$name (exit code $code, $out/$name.log)")
}

count=$(env TPU_VISIBLE_CHIPS='' "$bin/train_images" --list-devices | tail -n 1)
[[ $count =~ ^([0-9]+)\  ]] || fail "train_images --list-devices: expected a number of devices, but got '$count'" 7
# A process of torch_tpu has one device, so that its own count says nothing.
if [[ ! $plugin ]]; then
  check device "$bin/check_torch_tpu"
  # Google's PCI devices; numbers of devices that turn out to be missing fail below.
  chips=$({ grep -l 0x1ae0 /sys/bus/pci/devices/*/vendor 2>/dev/null || true; } | wc -l)
else
  chips=${BASH_REMATCH[1]}
fi
if [[ ! $devices ]]; then
  for number in 1 4 8; do ((number <= chips)) && devices+="${devices:+ }$number"; done
fi
[[ $devices ]] || fail "expected a device, but this machine has none" 7

# 250 examples are three batches of 64 and one of 58, which neither 4 nor 8 divide.
strategies=mirrored:cpu:0
for number in $devices; do strategies+=,tpu:$number; done
check results "$bin/compare_strategies" --strategies "$strategies" --model simple_cnn --data generated --limit-train 250 \
  --global-batch-size 64 --optimizer sgd --steps 40 --warmup-steps 8 --rounds "$rounds" --out "$out/comparison"
if [[ -f $out/comparison/comparison.json ]]; then
  # 40 steps in float32, on devices whose matrix products round as they like.
  check differences python3 -B -c '
import json, sys
rows = json.load(open(sys.argv[1]))["strategies"]
bad = [row["label"] for row in rows if row["error"] or not row["parameter_difference"] < 1e-2]
for row in rows:
    print(row["label"], row["error"] or (row["parameter_difference"], row["loss"], row["examples_per_second"]))
sys.exit(f"differ from the CPU or failed: {bad}" if bad else 0)' "$out/comparison/comparison.json"
  cat "$out/differences.log" >&2
fi

# Of two workers one is killed. The other must say so, and end with the exit code for a lost peer.
lost_peer() {
  local address pids=() worker code=0
  address=$(python3 -c 'import socket
with socket.socket() as first, socket.socket() as second:
    first.bind(("127.0.0.1", 0)), second.bind(("127.0.0.1", 0))
    print(f"127.0.0.1:{first.getsockname()[1]},127.0.0.1:{second.getsockname()[1]}")')
  for worker in 0 1; do
    TPU_VISIBLE_CHIPS=$worker "$bin/train_images" --strategy tpu --worker-hosts "$address" --task-index $worker --data generated --limit-train 640 --limit-test 64 \
      --model simple_cnn --epochs 10000 --communication-timeout 120 --run-dir "$out/worker_$worker" >"$out/worker_$worker.log" 2>&1 &
    pids+=($!)
  done
  for ((waited = 0; waited < 300; ++waited)); do
    grep -q 'epoch 2' "$out/worker_0.log" && break
    kill -0 "${pids[@]}" 2>/dev/null || break
    sleep 1
  done
  if ! grep -q 'epoch 2' "$out/worker_0.log"; then
    kill -KILL "${pids[@]}" 2>/dev/null || true
    tail -n 3 "$out"/worker_?.log
    echo "expected two workers that train, but after $waited s worker 0 is not in its second epoch" && return 1
  fi
  kill -KILL "${pids[1]}"
  wait "${pids[0]}" || code=$?
  wait "${pids[1]}" 2>/dev/null || true
  tail -n 3 "$out/worker_0.log"
  ((code == 5)) || { echo "expected exit code 5 of worker 0, but got $code" && return 1; }
}
if ((chips > 1)); then check lost_peer lost_peer; fi

if ((${#failed[@]})); then
  printf 'failed: %s\n' "${failed[@]}" >&2
  exit 1
fi
say "All passed. Results: $out"
