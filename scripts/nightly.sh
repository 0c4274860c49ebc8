#!/usr/bin/env bash
# What takes too long for every change: the whole suite under both sanitizers and in the debug build, Lockstep inside
# another project and as shared libraries, a build for GPUs where there is a CUDA toolkit, and the accuracy that
# train_mnist must reach on the real MNIST where LOCKSTEP_MNIST_DIR names it.
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

if [[ ${LOCKSTEP_MNIST_DIR:-} ]]; then
  mkdir -p build/nightly
  timed "Training MobileNetV2 on MNIST" train mobilenet_v2 \
    --data "$LOCKSTEP_MNIST_DIR" --model mobilenet_v2 --image-size 64 --epochs 3
  expect_accuracy 0.96 1 build/nightly/mobilenet_v2.log
  expect_accuracy 0.985 3 build/nightly/mobilenet_v2.log
  timed "Training MobileNetV2 on mnist.zip" train mobilenet_v2_zip \
    --data "$LOCKSTEP_MNIST_DIR/mnist.zip" --model mobilenet_v2 --image-size 64 --epochs 3
  expect_accuracy 0.96 1 build/nightly/mobilenet_v2_zip.log
  expect_accuracy 0.985 3 build/nightly/mobilenet_v2_zip.log
  timed "Training SimpleCnn on MNIST" train simple_cnn --data "$LOCKSTEP_MNIST_DIR" --model simple_cnn --epochs 5
  expect_accuracy 0.96 1 build/nightly/simple_cnn.log
  expect_accuracy 0.98 5 build/nightly/simple_cnn.log
else
  say "LOCKSTEP_MNIST_DIR is not set: no accuracy is measured"
fi
