#!/usr/bin/env bash
# scripts/setup.sh [--no-python]
#
# Installs everything that Lockstep needs to build and test: Debian packages, LibTorch, Arrow, and
# Python packages that tests compare with. Prints the commands that build it. You need this script
# only if you build by hand: the other scripts install what they need.
#
#   --no-python  do not fetch the Python packages
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
help_if_asked "$@"

case ${1:-} in
  '') ;;
  --no-python) export LOCKSTEP_TEST_PYTHON_PACKAGES=OFF ;;
  *) fail "expected --no-python or nothing, but got '$1'" 2 ;;
esac
need_packages "${packages_to_build[@]}" "${packages_to_test[@]}" "${packages_to_sanitize[@]}"
need_libtorch
need_arrow
need_test_python
say "Ready: cmake --preset release ${libtorch:+-DCMAKE_PREFIX_PATH=$libtorch }-DLOCKSTEP_CUDA=$cuda ${arrow_options[*]} \
  -DLOCKSTEP_TEST_PYTHON=$test_python -DLOCKSTEP_TEST_PYTHONPATH=$test_python_path \
  -DLOCKSTEP_TEST_LIBRARY_PATH=$test_library_path && cmake --build build/release"
