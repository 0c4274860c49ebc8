#!/usr/bin/env bash
# Checks the GPU half on a machine with a GPU: builds with CUDA, runs the GPU tests, short trainings and the benchmark, and
# writes one JSON with every figure, each program's exit code, and why something was not measured. It is written anew after
# each program, so that nothing is lost where a later one ends the machine. Fails where a program did.
#   --out FILE         the JSON (build/gpu_check/result.json); each run also keeps its own, with the logs, in
#                      build/gpu_check/<time of its start>
#   --packages FOLDER  takes Debian packages out of this folder (*.deb) instead of installing any, and fetches nothing: LibTorch
#                      is then the one that CMAKE_PREFIX_PATH or python3's torch has
#   --images PATH      class folder or zip that the benchmark also trains on (else it draws PNGs)
#   --data PATH        what train_mnist trains on, see its --data (else digits that it draws)
#   --limit SECONDS    of each program (900); one that takes longer is ended and counts as failed
#   --build-only       ends once all is built, which takes no GPU
# With --list-packages it only prints the packages that the folder must hold, those they need included.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

readonly tests=(runtime_test strategies_test gpu_test)
readonly libraries=(libcxxopts-dev libfmt-dev libfmt9 nlohmann-json3-dev libgtest-dev libgmock-dev googletest
  libpng-dev libpng16-16 libjpeg-dev libjpeg62-turbo-dev libjpeg62-turbo libzip-dev libzip4 zlib1g-dev zlib1g
  libbz2-1.0 liblzma5 libzstd1 libmbedcrypto7 libjemalloc-dev libjemalloc2 libgloo-dev libssl-dev libssl3)

packages='' images='' data=generated out=build/gpu_check/result.json limit=900 build_only=''
while (($#)); do
  case $1 in
    --out) out=${2:?--out: expected a file} && shift 2 ;;
    --packages) packages=${2:?--packages: expected a folder} && shift 2 ;;
    --images) images=${2:?--images: expected a path} && shift 2 ;;
    --data) data=${2:?--data: expected a path} && shift 2 ;;
    --limit) limit=${2:?--limit: expected seconds} && shift 2 ;;
    --build-only) build_only=1 && shift ;;
    --list-packages) printf '%s\n' "${libraries[@]}" && exit ;;
    *) fail "expected --out, --packages, --images, --data, --limit, --build-only or --list-packages, but got '$1'" 2 ;;
  esac
done
[[ $limit =~ ^[1-9][0-9]*$ ]] || fail "--limit: expected a number of seconds, but got '$limit'" 2

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
build cuda "${tests[@]}" speed_benchmark train_mnist
[[ ! $build_only ]] || exit 0

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

# check section name command...: what it says goes to <run>/<name>.out and .log.
check() {
  local section=$1 name=$2 start=$SECONDS code=0
  shift 2
  if [[ $planning ]]; then
    note plan "$section" "$name"
    return
  fi
  say "Running $name"
  timeout --kill-after=10 "$limit" "$@" >"$run/$name.out" 2>"$run/$name.log" </dev/null || code=$?
  if ((code)); then
    failed+=("$name")
    say "$name failed with exit code $code after $((SECONDS - start)) s"
    tail -n 20 "$run/$name.out" "$run/$name.log" >&2
  fi
  note finished "$section" "$name" "$code" "$((SECONDS - start))"
  write_result
}

train() {
  check training "train_$1" build/cuda/bin/train_mnist --strategy mirrored --devices gpu:0 --data "$data" --epochs 1 --seed 1 \
    "${@:2}"
}

measure() {
  check benchmarks "$1" build/cuda/bin/speed_benchmark --gpu gpu:0 --image-size 96 "${peers[@]}" --json "$run/$1.json" "${@:2}"
  [[ $planning ]] || cat "$run/$1.out"
}

check_all() {
  local program
  for program in "${tests[@]}"; do
    check tests "$program" "build/cuda/bin/$program" "--gtest_output=json:$run/$program.json"
  done
  train float32
  train tf32 --precision tf32
  train bfloat16 --precision bfloat16
  train float16 --precision float16
  train cuda_graph --cuda-graph
  train two_replicas --replicas-per-device 2
  measure bfloat16_batch_256 --bfloat16 --global-batch-size 256 ${images:+--images "$images"}
  measure bfloat16_batch_64 --bfloat16 --global-batch-size 64 --parts bare,torch --steps 16
  # A graph is captured only once the first steps were alike.
  measure bfloat16_batch_64_cuda_graph --bfloat16 --cuda-graph --global-batch-size 64 --parts bare,torch,logical,profile \
    --steps 16 --warm-up-steps 12 ${images:+--images "$images"}
  measure float32_batch_256 --global-batch-size 256 --parts bare,torch,logical
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
note settings limit_seconds "$limit"
note settings images "${images:-none}"
note settings data "$data"
planning=1
check_all
planning=''
write_result
check_all

say "Every figure is in $out, every log in $run"
((!${#failed[@]})) || fail "these failed: ${failed[*]}"
