#!/usr/bin/env bash
# scripts/fault_campaign.sh [flag...]
#
# Tests recovery from faults. Runs short trainings of two workers with two replicas each. Workers are
# killed, stopped, terminated or cut off at random moments, lose their disk, or find damaged
# checkpoints. Every training must end with the same bits as an undisturbed one, and leave no process,
# file or shared memory behind. The workers exchange values over shared memory, or as --transport says.
# With --sharding 1 to 3, they train a language model whose state is divided among the replicas.
#
# Installs missing packages, builds the programs and prints a table. --help lists the flags.
set -euo pipefail
from=$PWD
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

need_packages "${packages_to_build[@]}" iproute2
need_libtorch
configure release
build release train_images train_gpt

root=$PWD
cd "$from"
say "Running fault_campaign.py $*"
exec python3 -B "$root/scripts/fault_campaign.py" --programs "$root/build/release/bin" "$@"
