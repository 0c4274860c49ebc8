#!/usr/bin/env bash
# Trains: installs what is missing, builds train_mnist and runs it with the flags given here (--help lists them).
# Without flags it trains on digits that it draws itself.
set -euo pipefail
from=$PWD
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

need_packages "${packages_to_build[@]}"
need_libtorch
configure release
build release train_mnist

program=$PWD/build/release/bin/train_mnist
cd "$from"
say "Running train_mnist $*"
exec "$program" "$@"
