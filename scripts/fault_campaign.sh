#!/usr/bin/env bash
# scripts/fault_campaign.sh [flag...]
#
# Tests recovery from faults. Runs short trainings of two workers with two replicas each. Workers are
# killed, stopped, terminated or cut off at random moments, lose their disk, or find damaged
# checkpoints. Every training must end with the same bits as an undisturbed one, and leave no process,
# file or shared memory behind. The workers exchange values over shared memory, or as --transport says.
#
# Installs missing packages, builds train_images and prints a table. --help lists the flags.
set -euo pipefail
from=$PWD
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

need_packages "${packages_to_build[@]}" iproute2
need_libtorch
configure release
build release train_images

root=$PWD
cd "$from"
say "Running fault_campaign.py $*"
exec python3 -B "$root/scripts/fault_campaign.py" --program "$root/build/release/bin/train_images" "$@"
