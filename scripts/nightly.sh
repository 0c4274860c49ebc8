#!/usr/bin/env bash
# What takes too long for every change: the whole suite under both sanitizers and in the debug build, each public header
# by itself, Lockstep inside another project and as shared libraries, a build for GPUs where there is a CUDA toolkit, and
# the accuracy that train_mnist must reach on the real MNIST where LOCKSTEP_MNIST_DIR names it.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# expect_accuracy least epoch log: the test accuracy that the log gives for this epoch.
expect_accuracy() {
  local accuracy
  accuracy=$(sed -nE "s|.*epoch $2/[0-9]+ .*test accuracy ([0-9.]+).*|\1|p" "$3" | tail -n 1)
  awk -v got="${accuracy:-0}" -v least="$1" 'BEGIN { exit !(got >= least) }' ||
    fail "expected a test accuracy of at least $1 after epoch $2, but got '${accuracy:-none}' ($3)"
  say "Test accuracy $accuracy after epoch $2, at least $1 is asked for"
}

# train name flag...: the log goes to build/nightly/<name>.log.
train() {
  local log=build/nightly/$1.log
  shift
  build/release/bin/train_mnist --strategy mirrored --replicas 2 --global-batch-size 64 --seed 1 "$@" 2>&1 | tee "$log"
}

need_packages "${packages_to_build[@]}" "${packages_to_test[@]}"
need_libtorch
for preset in release asan tsan debug; do
  configure "$preset"
  build "$preset"
done
build release public_headers
run_tests "$PWD"/build/{release,asan,tsan,debug}

configure shared
build shared
run_tests "$PWD/build/shared"

timed "Configuring Lockstep inside another project" cmake -S tests/install/embedding -B build/embedding -G Ninja \
  -DCMAKE_BUILD_TYPE=Release -DLOCKSTEP_CUDA="$cuda" ${libtorch:+-DCMAKE_PREFIX_PATH="$libtorch"}
timed "Building it" cmake --build build/embedding --parallel "$(jobs)"
timed "Running it" build/embedding/consumer

if command -v nvcc >/dev/null && [[ $cuda == OFF ]]; then
  LOCKSTEP_CUDA=ON need_libtorch
  configure cuda
  build cuda
fi

# train_to name least_after_one epochs least_after_all flag...: two trainings, because the learning rate falls over all epochs of one.
train_to() {
  local name=$1 least_after_one=$2 epochs=$3 least_after_all=$4
  shift 4
  timed "Training $name for one epoch" train "${name}_1" "$@" --epochs 1
  expect_accuracy "$least_after_one" 1 "build/nightly/${name}_1.log"
  timed "Training $name for $epochs epochs" train "${name}_$epochs" "$@" --epochs "$epochs"
  expect_accuracy "$least_after_all" "$epochs" "build/nightly/${name}_$epochs.log"
}

if [[ ${LOCKSTEP_MNIST_DIR:-} ]]; then
  mkdir -p build/nightly
  train_to mobilenet_v2 0.96 3 0.985 --data "$LOCKSTEP_MNIST_DIR" --model mobilenet_v2 --image-size 64
  train_to mobilenet_v2_zip 0.96 3 0.985 --data "$LOCKSTEP_MNIST_DIR/mnist.zip" --model mobilenet_v2 --image-size 64
  train_to simple_cnn 0.96 5 0.98 --data "$LOCKSTEP_MNIST_DIR" --model simple_cnn
else
  say "LOCKSTEP_MNIST_DIR is not set: no accuracy is measured"
fi
