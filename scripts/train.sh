#!/usr/bin/env bash
# Trains: installs what is missing, builds train_images and runs it with the flags given here (--help lists them).
# Without flags it trains on digits that it draws itself.
set -euo pipefail
from=$PWD
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

build_and_run "$from" train_images "$@"
