#!/usr/bin/env bash
# scripts/test.sh [--release] [--no-python]
#
# Installs missing packages, builds Lockstep and runs its tests:
#   - all tests and the source checks, in the release build
#   - tests of the runtime, parameter servers, strategies, GPUs and other devices, under
#     ThreadSanitizer
#   - unit tests, under AddressSanitizer and UndefinedBehaviorSanitizer
#   - a few seconds of fuzzing for each parser
#
#   --release    run the tests of the release build only, and do not fuzz
#   --no-python  do not fetch the Python packages that some tests compare with (0.2 GB); these tests
#                are then skipped
#
# Set LOCKSTEP_MNIST_DIR to a folder with the real MNIST, or tests that need it are skipped.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
help_if_asked "$@"

sanitizers=(tsan asan)
for argument in "$@"; do
  case $argument in
    --release) sanitizers=() ;;
    --no-python) export LOCKSTEP_TEST_PYTHON_PACKAGES=OFF ;;
    *) fail "expected --release or --no-python, but got '$argument'" 2 ;;
  esac
done
# shellcheck disable=SC2034  # used by name below
readonly tests_of_tsan=(runtime parameter_server strategies gpu device)
# shellcheck disable=SC2034
readonly tests_of_asan=(runtime parameter_server strategies gpu training models datasets custom_strategy)

# build_tests preset layer...: only the tests of these layers, and what they need.
build_tests() {
  local preset=$1 layer targets=()
  shift
  for layer in "$@"; do
    targets+=("tests/$layer/all")
    folders+=("$PWD/build/$preset/tests/$layer")
  done
  configure "$preset" -DLOCKSTEP_BUILD_APPS=OFF -DLOCKSTEP_BUILD_BENCHMARKS=OFF
  build "$preset" "${targets[@]}"
}

need_packages "${packages_to_build[@]}" "${packages_to_test[@]}" "${packages_to_sanitize[@]}"
need_libtorch
need_arrow
need_test_python
# Starting a process for each test would take longer than most tests.
configure release -DLOCKSTEP_LIST_TESTS=OFF \
  -DLOCKSTEP_TEST_PYTHON="$test_python" -DLOCKSTEP_TEST_PYTHONPATH="$test_python_path" \
  -DLOCKSTEP_TEST_LIBRARY_PATH="$test_library_path"
build release
folders=("$PWD/build/release")
for preset in ${sanitizers[@]+"${sanitizers[@]}"}; do
  declare -n layers=tests_of_$preset
  build_tests "$preset" "${layers[@]}"
done

# A finding does not keep the tests from being run; it is told at the end, too, where it is seen.
fuzz_status=0
if ((${#sanitizers[@]})); then
  mkdir -p build
  scripts/fuzz.sh --seconds 6 --libtorch 2>&1 | tee build/fuzz.log || fuzz_status=${PIPESTATUS[0]}
fi
test_status=0
run_tests "${folders[@]}" || test_status=$?
if ((fuzz_status)); then
  tail -n 100 build/fuzz.log
  say "Fuzzing has failed: see above, and build/fuzz.log"
fi
exit $((test_status ? test_status : fuzz_status))
