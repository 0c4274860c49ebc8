#!/usr/bin/env bash
# Measures speed and memory: installs what is missing, builds speed_benchmark and runs it with the flags given here (--help
# lists them). The result, on stdout, is Markdown for docs/performance_notes.md. The peers are compared where their
# interpreters are named:
#   scripts/benchmark.sh --peer-torch-python <venv>/bin/python --peer-tf-python <venv>/bin/python
# Nothing else should run on the machine meanwhile.
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
