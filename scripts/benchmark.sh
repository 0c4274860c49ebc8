#!/usr/bin/env bash
# scripts/benchmark.sh [flag...]
#
# Measures speed and memory. Installs missing packages, builds speed_benchmark and runs it with the
# given flags. --help lists the flags. Prints Markdown for docs/performance_notes.md.
#
# To compare with PyTorch and TensorFlow, name Python interpreters that have them:
#
#   scripts/benchmark.sh --peer-torch-python <venv>/bin/python --peer-tf-python <venv>/bin/python
#
# Run nothing else on the machine meanwhile.
set -euo pipefail
from=$PWD
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

need_packages "${packages_to_build[@]}"
need_libtorch
configure release
build release speed_benchmark

root=$PWD
cd "$from"
say "Running speed_benchmark $*"
exec "$root/build/release/bin/speed_benchmark" --peers "$root/benchmarks/peers" "$@"
