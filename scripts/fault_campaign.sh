#!/usr/bin/env bash
# Short trainings of two workers with two replicas each, which are killed, stopped, terminated, cut off, denied the disk
# and given damaged checkpoints at random moments: each must come to the undisturbed training's end, bit by bit. Installs
# what is missing, builds train_images, and prints a table (--help lists the flags).
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
