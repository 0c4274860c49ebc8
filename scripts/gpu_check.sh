#!/usr/bin/env bash
# scripts/gpu_check.sh [option...]
#
# Checks Lockstep on a machine with GPUs: builds with CUDA, runs the GPU tests, short trainings and
# the benchmark. With several GPUs, it also trains on all of them, in threads of one process and in
# one process for each GPU, measures how both scale, and compares them with PyTorch.
#
# Writes a JSON file with all figures, the exit code of each program, and reasons for what was not
# measured. The file is updated after each program, so nothing is lost if a later one crashes the
# machine. If a program hangs, it is ended, and a report next to its log shows the stacks of its
# threads (install gdb for them) and the load of each GPU. The script fails if any program failed.
#
#   --out FILE         the JSON file (default: build/gpu_check/result.json). Each run also keeps a
#                      copy and its logs in build/gpu_check/<start time>
#   --packages FOLDER  use the Debian packages (*.deb) in this folder, and download nothing. LibTorch
#                      must be in CMAKE_PREFIX_PATH or in python3's torch
#   --list-packages    print the packages that this folder must hold, with dependencies, and exit
#   --images PATH      folder or zip of class folders for the benchmark (default: generated PNGs)
#   --data PATH        training data of train_images, as its --data (default: generated digits)
#   --limit SECONDS    end a program that takes longer, and count it as failed (default: 900)
#   --stall SECONDS    end a program that prints nothing for this long, and count it as failed
#                      (default: 120). Replicas of train_images wait for each other half as long, and
#                      then name those they wait for
#   --build-only       build only; this needs no GPU
#   --built            run the programs that --build-only has built, and build nothing
#   --only LIST        what to run: sections (tests, training, benchmarks, scaling), or programs by their
#                      names in the JSON file, such as gpu_test (default: everything)
#   --pairs N          alternating pairs of measurements for each ratio (default: 21)
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
help_if_asked "$@"

readonly tests=(gpu_test runtime_test strategies_test)
readonly programs=("${tests[@]}" speed_benchmark train_images train_gpt)
readonly libraries=(libcxxopts-dev libfmt-dev libfmt9 nlohmann-json3-dev libgtest-dev libgmock-dev googletest
  libpng-dev libpng16-16 libjpeg-dev libjpeg62-turbo-dev libjpeg62-turbo libzip-dev libzip4 zlib1g-dev zlib1g
  libbz2-1.0 liblzma5 libzstd1 libpcre2-dev libpcre2-8-0 libutf8proc-dev libutf8proc2 libmbedcrypto7 libjemalloc-dev libjemalloc2 libgloo-dev libssl-dev libssl3
  libhwloc-dev libhwloc15 libudev1)

packages='' images='' data=generated out=build/gpu_check/result.json limit=900 stall=120 build_only='' built=''
only=tests,training,benchmarks,scaling pairs=21
while (($#)); do
  case $1 in
    --out) out=${2:?--out: expected a file} && shift 2 ;;
    --packages) packages=${2:?--packages: expected a folder} && shift 2 ;;
    --images) images=${2:?--images: expected a path} && shift 2 ;;
    --data) data=${2:?--data: expected a path} && shift 2 ;;
    --limit) limit=${2:?--limit: expected seconds} && shift 2 ;;
    --stall) stall=${2:?--stall: expected seconds} && shift 2 ;;
    --build-only) build_only=1 && shift ;;
    --built) built=1 && shift ;;
    --only) only=${2:?--only: expected a list} && shift 2 ;;
    --pairs) pairs=${2:?--pairs: expected a number} && shift 2 ;;
    --list-packages) printf '%s\n' "${libraries[@]}" && exit ;;
    *) fail "expected --out, --packages, --images, --data, --limit, --stall, --build-only, --built, --only, --pairs or --list-packages, but got '$1'" 2 ;;
  esac
done
[[ $limit =~ ^[1-9][0-9]*$ ]] || fail "--limit: expected a number of seconds, but got '$limit'" 2
[[ $stall =~ ^[1-9][0-9]*$ ]] || fail "--stall: expected a number of seconds, but got '$stall'" 2
[[ $pairs =~ ^[1-9][0-9]*$ ]] || fail "--pairs: expected a number of pairs, but got '$pairs'" 2
[[ ! $build_only || ! $built ]] || fail "--build-only builds, and --built does not: expected one of them" 2

# At half of --stall, Lockstep's own error comes first: train_images's last line may be 30 s old when a replica begins to wait,
# and ending NCCL takes up to 10 s.
communication_timeout=$(((stall + 1) / 2))

if [[ ! $build_only ]] && ! timeout 60 nvidia-smi -L >/dev/null 2>&1; then
  fail "this machine has no GPU that nvidia-smi lists; --build-only builds without one" 7
fi
mkdir -p build/gpu_check

# unpack_packages folder: into build/gpu_check/root, which compilers, linkers and programs are then told of.
unpack_packages() {
  local root=$PWD/build/gpu_check/root package found=()
  shopt -s nullglob
  found=("$1"/*.deb)
  shopt -u nullglob
  ((${#found[@]})) || fail "--packages: expected *.deb in $1, but found none" 2
  rm -rf "$root" && mkdir -p "$root"
  for package in "${found[@]}"; do dpkg -x "$package" "$root"; done
  local lib=$root/usr/lib/x86_64-linux-gnu
  export CMAKE_PREFIX_PATH=$root/usr${CMAKE_PREFIX_PATH:+:$CMAKE_PREFIX_PATH}
  export CPATH=$root/usr/include LIBRARY_PATH=$lib
  export LD_LIBRARY_PATH=$lib:$root/lib/x86_64-linux-gnu${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  export PKG_CONFIG_PATH=$lib/pkgconfig PKG_CONFIG_SYSROOT_DIR=$root
}

if [[ $built ]]; then
  for program in "${programs[@]}"; do
    [[ -x build/cuda/bin/$program ]] || fail "--built: there is no build/cuda/bin/$program, which --build-only makes" 2
  done
else
  if [[ $packages ]]; then
    if [[ ! $(own_libtorch) ]]; then
      CMAKE_PREFIX_PATH=$(python3 -c 'import torch; print(torch.utils.cmake_prefix_path)') ||
        fail "no LibTorch: neither CMAKE_PREFIX_PATH names one, nor has python3 torch" 7
      export CMAKE_PREFIX_PATH
    fi
    unpack_packages "$packages"
  else
    need_packages "${packages_to_build[@]}"
  fi
  LOCKSTEP_CUDA=ON need_libtorch
  cuda=ON
  configure cuda -DLOCKSTEP_CHECK_SOURCES=OFF -DLOCKSTEP_INSTALL=OFF
  build cuda "${programs[@]}"
fi
[[ ! $build_only ]] || exit 0

# gpu:0, gpu:1, ... are then those of nvidia-smi, in this order.
export CUDA_DEVICE_ORDER=${CUDA_DEVICE_ORDER:-PCI_BUS_ID}
# As many as `launch_local.sh --gpus all` takes: those of nvidia-smi -L, or those that CUDA_VISIBLE_DEVICES leaves.
num_gpus=$(python3 -B -c 'import sys
sys.path.insert(0, "scripts")
from launch_local_options import LaunchError, choose_gpus
try:
    print(len(choose_gpus("all")))
except LaunchError as error:
    sys.exit(f"error: {error}")') || exit 7

# Earlier runs keep their folders.
run=build/gpu_check/$(date -u +%Y%m%dT%H%M%SZ)-$$
mkdir -p "$run"
failed=()

# note table cell...: a row of the tables that gpu_check_result.py reads.
note() {
  local table=$1 row
  shift
  printf -v row '%s\t' "${@//$'\n'/ }"
  printf '%s\n' "${row%$'\t'}" >>"$run/$table"
}

write_result() { python3 scripts/gpu_check_result.py "$run" "$out" || fail "cannot write $out"; }

# check section name command...: its output goes to <run>/<name>.out and .log, the report of a program that hangs to .stall.
check() {
  local section=$1 name=$2 start=$SECONDS code=0
  shift 2
  [[ ! $planning ]] || known+=",$section,$name,"
  if [[ ,$only, != *,$section,* && ,$only, != *,$name,* ]]; then
    [[ ! $planning ]] || note left_out "$name" "not among --only"
    return 0
  fi
  if [[ $planning ]]; then
    note plan "$section" "$name"
    return
  fi
  say "Running $name"
  python3 -B scripts/run_watched.py --limit "$limit" --stall "$stall" "$run/$name" "$@" || code=$?
  if ((code)); then
    failed+=("$name")
    say "$name failed with exit code $code after $((SECONDS - start)) s"
    tail -n 20 "$run/$name.out" "$run/$name.log" >&2 || true
  fi
  note finished "$section" "$name" "$code" "$((SECONDS - start))"
  write_result
}

# gpus count: Prints gpu:0,gpu:1,... for so many GPUs.
gpus() {
  local list
  printf -v list ',gpu:%s' $(seq 0 $(($1 - 1)))
  printf '%s\n' "${list:1}"
}

train_gpt=(build/cuda/bin/train_gpt --communication-timeout "$communication_timeout")
train_images=(build/cuda/bin/train_images --communication-timeout "$communication_timeout")

# in_threads count, in_processes count: Set `layout` to a command that trains on so many GPUs.
in_threads() { layout=("${train_images[@]}" --strategy mirrored --devices "$(gpus "$1")"); }
in_processes() { layout=(scripts/launch_local.sh --gpus "$1" "${train_images[@]}" --strategy multi_worker); }

# train name flag...: one epoch in this layout.
train() { check training "train_$1" "${layout[@]}" --data "$data" --epochs 1 --seed 1 "${@:2}"; }

# train_text name flag...: the default model on the generated language, on one GPU.
train_text() {
  check training "train_gpt_$1" "${train_gpt[@]}" --strategy mirrored --devices gpu:0 --seed 1 --sample-tokens 0 "${@:2}"
}

# scale threads|processes count: for the rate of the second epoch on so many GPUs, each with the same work. No pass over the
# images ends with a smaller batch, and no layout alone has cuDNN measure its algorithms.
scale() {
  "in_$1" "$2"
  check scaling "scale_$1_$2" "${layout[@]}" --data "$data" --epochs 2 --seed 1 --model mobilenet_v2 --image-size 96 \
    --precision bfloat16 --no-cudnn-benchmark --per-replica-batch-size 256 --steps-per-epoch 100 \
    --limit-train $((20 * 256 * $2)) --limit-test 1000
}

# measure name count flag...: on so many GPUs.
measure() {
  check benchmarks "$1" build/cuda/bin/speed_benchmark --gpus "$(gpus "$2")" --image-size 96 "${peers[@]}" \
    --pairs "$pairs" --json "$run/$1.json" "${@:3}"
  [[ $planning || ! -f $run/$1.out ]] || cat "$run/$1.out"
}

check_one_gpu() {
  local program layout
  for program in "${tests[@]}"; do
    check tests "$program" "build/cuda/bin/$program" "--gtest_output=json:$run/$program.json"
  done
  in_threads 1
  train float32
  train tf32 --precision tf32
  train bfloat16 --precision bfloat16
  train float16 --precision float16
  train cuda_graph --cuda-graph
  train two_replicas --replicas-per-device 2
  train_text float32
  train_text bfloat16 --precision bfloat16
  train_text cuda_graph --cuda-graph
  train_text recomputed --recompute every_block
  train_text stage_2 --replicas-per-device 2 --mesh shard=2 --sharding 2
  train_text stage_3 --replicas-per-device 2 --mesh shard=2 --sharding 3
  # A graph is captured only once the first steps were alike.
  measure bfloat16_batch_64_cuda_graph 1 --bfloat16 --cuda-graph --global-batch-size 64 \
    --parts bare,torch,torch_compiled,logical,profile --steps 16 --warm-up-steps 12 ${images:+--images "$images"}
  measure gpt_bfloat16_cuda_graph 1 --model gpt --bfloat16 --cuda-graph --global-batch-size 8 \
    --parts bare,torch,torch_compiled,profile --steps 16 --warm-up-steps 12
  measure bfloat16_batch_64 1 --bfloat16 --global-batch-size 64 --parts bare,torch --steps 16
  measure gpt_bfloat16 1 --model gpt --bfloat16 --global-batch-size 32 --parts bare,torch,recompute
  measure float32_batch_256 1 --global-batch-size 256 --parts bare,torch,logical
  measure bfloat16_batch_256 1 --bfloat16 --global-batch-size 256 ${images:+--images "$images"}
}

check_several_gpus() {
  local count layout sync_batch_norm=(--sync-batch-norm --model mobilenet_v2 --steps-per-epoch 50 --limit-test 1000)
  in_threads "$num_gpus"
  train threads
  train threads_cuda_graph --cuda-graph
  train threads_sync_batch_norm "${sync_batch_norm[@]}"
  train threads_hierarchical_copy --cross-device-ops hierarchical_copy
  in_processes all
  train processes
  train processes_cuda_graph --cuda-graph
  measure ops_all_gpus "$num_gpus" --parts ops --global-batch-size $((32 * num_gpus))
  measure bfloat16_all_gpus "$num_gpus" --bfloat16 --global-batch-size $((256 * num_gpus)) --parts torch,workers
  measure bfloat16_all_gpus_cuda_graph "$num_gpus" --bfloat16 --cuda-graph --global-batch-size $((64 * num_gpus)) \
    --parts torch,workers --steps 16 --warm-up-steps 12
  for ((count = 1; ; count = 2 * count < num_gpus ? 2 * count : num_gpus)); do
    scale threads "$count"
    scale processes "$count"
    ((count < num_gpus)) || break
  done
}

# Programs on several GPUs come last: one that hangs may leave the GPUs unusable.
check_all() {
  check_one_gpu
  ((num_gpus == 1)) || check_several_gpus
}

peers=(--peers benchmarks/peers)
if timeout 120 python3 -c 'import torch, torchvision' 2>/dev/null; then
  peers+=(--peer-torch-python "$(command -v python3)")
else
  note left_out "PyTorch DDP" "python3 has no torch and torchvision"
fi
if [[ ! $images ]]; then
  images=build/gpu_check/images
  if ! python3 scripts/draw_images.py "$images"; then
    images=''
    note left_out images "no --images, and none could be drawn"
  fi
fi
timeout 60 nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader >"$run/gpus" ||
  note left_out "the GPU's name" "nvidia-smi failed"
((num_gpus > 1)) || note left_out "several GPUs" "there is one GPU"
note settings num_gpus "$num_gpus"
note settings limit_seconds "$limit"
note settings stall_seconds "$stall"
note settings communication_timeout_seconds "$communication_timeout"
note settings images "${images:-none}"
note settings data "$data"
planning=1 known=,scaling,
check_all
planning=''
for part in ${only//,/ }; do
  [[ $known == *,$part,* ]] || fail "--only: there is no section or program '$part'" 2
done
write_result
check_all

say "Every figure is in $out, every log in $run"
((!${#failed[@]})) || fail "these failed: ${failed[*]}"
