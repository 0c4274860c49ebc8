#!/usr/bin/env bash
# scripts/compare.sh [flag...]
#
# Compares strategies on this machine. Installs missing packages, builds compare_strategies and runs
# it with the given flags. --help lists the flags.
set -euo pipefail
from=$PWD
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

build_and_run "$from" compare_strategies "$@"
