#!/usr/bin/env bash
# Installs what Lockstep is built and tested with: Debian packages and LibTorch. The other scripts do so themselves;
# this one is for those who build by hand.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

need_packages "${packages_to_build[@]}" "${packages_to_test[@]}"
need_libtorch
say "Ready: cmake --preset release ${libtorch:+-DCMAKE_PREFIX_PATH=$libtorch }-DLOCKSTEP_CUDA=$cuda && cmake --build build/release"
