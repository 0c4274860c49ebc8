#!/usr/bin/env bash
# scripts/nightly.sh [part...]
#
# Runs the checks that take too long for every change. Without arguments it runs all parts:
#
#   tests      the whole test suite in the release, shared and debug builds and under both
#              sanitizers. Also builds each source by itself, each public header by itself, and the
#              GPU code if there is a CUDA toolkit
#   load       each test program 50 times, four at once on all cores. A failure here is a race
#   embedding  Lockstep as a part of another project
#   accuracy   accuracies that train_images must reach on MNIST, if LOCKSTEP_MNIST_DIR names it
#   workers    64 worker processes train together, and one of them is killed
#   slurm      jobs on a real Slurm with two nodes, docs/recipes/slurm.sh among them. Needs root.
#              Installs Debian's slurmctld, slurmd, slurm-client and munge, but uses no service
#   faults     scripts/fault_campaign.sh with 500 faults over shared memory, 500 over TCP, and 200 in
#              trainings whose parameters are divided
#   fuzz       one hour of fuzzing for each of Lockstep's parsers, continued from the last night
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
help_if_asked "$@"

# All builds come before all tests: what does not compile is known first.
part_tests() {
  local preset
  configure release -DLOCKSTEP_LIST_TESTS=OFF -DLOCKSTEP_ANALYZE_SOURCES=ON -DLOCKSTEP_NIGHTLY_TESTS=ON
  build release
  build release public_headers
  # Finds includes that a batch of sources takes from another source.
  configure develop -DLOCKSTEP_LIST_TESTS=OFF
  build develop
  for preset in shared debug asan tsan; do
    configure "$preset"
    build "$preset"
  done
  if [[ $cuda == OFF ]]; then
    (
      LOCKSTEP_CUDA=ON need_libtorch
      configure cuda
      build cuda
    )
  fi
  run_tests "$PWD"/build/{release,shared,debug,asan,tsan}
}

part_load() {
  configure release -DLOCKSTEP_LIST_TESTS=OFF
  build release
  mkdir -p build/nightly/load
  timed "Running every test program 50 times, four processes at once" python3 -B scripts/run_under_load.py \
    --repeat 50 --processes 4 --logs build/nightly/load build/release/bin/*_test
}

part_embedding() {
  timed "Configuring Lockstep inside another project" cmake -S tests/install/embedding -B build/embedding -G Ninja \
    -DCMAKE_BUILD_TYPE=Release -DLOCKSTEP_CUDA="$cuda" ${libtorch:+-DCMAKE_PREFIX_PATH="$libtorch"}
  timed "Building it" cmake --build build/embedding --parallel "$(jobs)"
  timed "Running it" build/embedding/consumer
}

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
  build/release/bin/train_images --strategy mirrored --replicas 2 --global-batch-size 64 --seed 1 "$@" 2>&1 | tee "$log"
}

# train_to name least_after_one epochs least_after_all flag...
train_to() {
  local name=$1 least_after_one=$2 epochs=$3 least_after_all=$4
  shift 4
  timed "Training $name for $epochs epoch(s)" train "${name}_$epochs" "$@" --epochs "$epochs"
  expect_accuracy "$least_after_one" 1 "build/nightly/${name}_$epochs.log"
  expect_accuracy "$least_after_all" "$epochs" "build/nightly/${name}_$epochs.log"
}

part_accuracy() {
  if [[ ! ${LOCKSTEP_MNIST_DIR:-} ]]; then
    say "LOCKSTEP_MNIST_DIR is not set: no accuracy is measured"
    return
  fi
  configure release
  build release train_images
  mkdir -p build/nightly
  # The learning rate falls over all epochs of a training: one epoch by itself is another training than the first of three.
  train_to mobilenet_v2 0.96 1 0.96 --data "$LOCKSTEP_MNIST_DIR" --model mobilenet_v2 --image-size 64
  train_to mobilenet_v2 0.96 3 0.985 --data "$LOCKSTEP_MNIST_DIR" --model mobilenet_v2 --image-size 64
  train_to mobilenet_v2_zip 0.96 3 0.985 --data "$LOCKSTEP_MNIST_DIR/mnist.zip" --model mobilenet_v2 --image-size 64
  train_to simple_cnn 0.96 5 0.98 --data "$LOCKSTEP_MNIST_DIR" --model simple_cnn
}

part_workers() {
  configure release
  build release parity_worker
  LOCKSTEP_TEST_WORKERS=64 timed "Training with 64 workers" python3 -B tests/jobs/cluster_size_test.py
}

part_slurm() {
  if ((EUID != 0)); then
    say "not root: no job runs on a Slurm"
    return
  fi
  configure release
  build release train_images
  timed "Training under Slurm" python3 -B tests/jobs/slurm_test.py
}

# Another seed each day, here and below.
part_faults() {
  local transport
  for transport in shared-memory tcp; do
    scripts/fault_campaign.sh --transport "$transport" --faults 500 --seed $(($(date +%s) / 86400))
  done
  scripts/fault_campaign.sh --sharding 3 --faults 200 --seed $(($(date +%s) / 86400))
}

part_fuzz() { scripts/fuzz.sh --hours --libtorch --seed $(($(date +%s) / 86400)); }

parts=("$@")
((${#parts[@]})) || parts=(tests load embedding accuracy workers slurm faults fuzz)
packages=("${packages_to_build[@]}" "${packages_to_test[@]}" "${packages_to_sanitize[@]}")
for part in "${parts[@]}"; do
  declare -F "part_$part" >/dev/null ||
    fail "expected tests, load, embedding, accuracy, workers, slurm, faults or fuzz, but got '$part'" 2
  if [[ $part == slurm ]] && ((EUID == 0)); then
    packages+=("${packages_for_slurm[@]}")
  fi
done
need_packages "${packages[@]}"
need_libtorch
for part in "${parts[@]}"; do
  "part_$part"
done
