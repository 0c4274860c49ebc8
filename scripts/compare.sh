#!/usr/bin/env bash
# Compares strategies: installs what is missing, builds compare_strategies and runs it with the flags given here
# (--help lists them).
set -euo pipefail
from=$PWD
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

build_and_run "$from" compare_strategies "$@"
