#!/usr/bin/env bash
# scripts/train.sh [flag...]
#
# Trains an image classifier. Installs missing packages, builds train_images and runs it with the
# given flags. Without flags, it trains on digits that it generates. --help lists the flags.
set -euo pipefail
from=$PWD
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

build_and_run "$from" train_images "$@"
