#!/usr/bin/env bash
# Checks the GPU half on a machine with a GPU: builds with CUDA, runs the GPU tests and the benchmark, and writes one JSON
# with every figure.
#   --out FILE         the JSON (build/gpu_check/result.json)
#   --packages FOLDER  takes Debian packages out of this folder (*.deb) instead of installing any, and fetches nothing: LibTorch
#                      is then the one that CMAKE_PREFIX_PATH or python3's torch has
#   --images PATH      class folder or zip that the benchmark also trains on
#   --build-only       ends once all is built, which takes no GPU
# With --list-packages it only prints the packages that the folder must hold, those they need included.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

readonly programs=(runtime_test strategies_test gpu_test speed_benchmark train_mnist)
readonly libraries=(libcxxopts-dev libfmt-dev libfmt9 nlohmann-json3-dev libgtest-dev libgmock-dev googletest libbenchmark-dev
  libbenchmark1debian libpng-dev libpng16-16 libjpeg-dev libjpeg62-turbo-dev libjpeg62-turbo libzip-dev libzip4 zlib1g-dev zlib1g
  libbz2-1.0 liblzma5 libzstd1 libmbedcrypto7 libjemalloc-dev libjemalloc2)

packages='' images='' out=build/gpu_check/result.json build_only=''
while (($#)); do
  case $1 in
    --out) out=${2:?--out: expected a file} && shift 2 ;;
    --packages) packages=${2:?--packages: expected a folder} && shift 2 ;;
    --images) images=${2:?--images: expected a path} && shift 2 ;;
    --build-only) build_only=1 && shift ;;
    --list-packages) printf '%s\n' "${libraries[@]}" && exit ;;
    *) fail "expected --out, --packages, --images, --build-only or --list-packages, but got '$1'" 2 ;;
  esac
done

if [[ ! $build_only ]] && ! nvidia-smi -L >/dev/null 2>&1; then
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
configure cuda -DCMAKE_UNITY_BUILD=ON -DCMAKE_UNITY_BUILD_BATCH_SIZE=16 -DLOCKSTEP_CHECK_SOURCES=OFF -DLOCKSTEP_INSTALL=OFF
build cuda "${programs[@]}"
[[ ! $build_only ]] || exit 0

# test_program name: its result goes to build/gpu_check/<name>.json, and counts whatever it is.
test_program() {
  say "Running $1"
  "build/cuda/bin/$1" --gtest_brief=1 "--gtest_output=json:build/gpu_check/$1.json" >&2 || failed=1
}

failed=''
rm -f build/gpu_check/*.json
for program in runtime_test strategies_test gpu_test; do test_program "$program"; done

peers=(--peers benchmarks/peers)
if python3 -c 'import torch, torchvision' 2>/dev/null; then peers+=(--peer-torch-python "$(command -v python3)"); fi
# measure name flag...: to build/gpu_check/benchmark_<name>.json, and as Markdown to stdout.
measure() {
  local name=$1
  shift
  say "Measuring $name"
  build/cuda/bin/speed_benchmark --gpu gpu:0 --image-size 96 "${peers[@]}" --json "build/gpu_check/benchmark_$name.json" "$@" ||
    failed=1
}
measure bfloat16_batch_256 --bfloat16 --global-batch-size 256 ${images:+--images "$images"}
measure bfloat16_batch_64 --bfloat16 --global-batch-size 64 --parts bare,torch --steps 16
# A graph is captured only once the first steps were alike.
measure bfloat16_batch_64_cuda_graph --bfloat16 --cuda-graph --global-batch-size 64 --parts bare,torch,logical --steps 16 \
  --warm-up-steps 12
measure float32_batch_256 --global-batch-size 256 --parts bare,torch,logical

python3 - "$out" <<'PYTHON' || fail "cannot write $out"
import json, pathlib, subprocess, sys

folder = pathlib.Path("build/gpu_check")
fields = "name,driver_version,memory.total"
gpus = subprocess.run(["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader"], capture_output=True, text=True)
result = {"gpus": gpus.stdout.strip().splitlines(), "tests": {}, "benchmarks": {}}
for path in sorted(folder.glob("*_test.json")):
    report = json.loads(path.read_text())
    cases = [case for suite in report["testsuites"] for case in suite["testsuite"]]
    result["tests"][path.stem] = {
        "tests": report["tests"],
        "failures": [f"{case['classname']}.{case['name']}" for case in cases if case.get("failures")],
        "skipped": [f"{case['classname']}.{case['name']}" for case in cases if case["result"] == "SKIPPED"],
    }
for path in sorted(folder.glob("benchmark_*.json")):
    result["benchmarks"][path.stem.removeprefix("benchmark_")] = json.loads(path.read_text())
pathlib.Path(sys.argv[1]).write_text(json.dumps(result, indent=2) + "\n")
PYTHON
say "Every figure is in $out"
[[ ! $failed ]] || fail "a test or a measurement failed, see above"
