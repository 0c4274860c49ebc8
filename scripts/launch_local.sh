#!/usr/bin/env bash
# Starts the workers of one training job on this machine, each with its own TF_CONFIG, and collects their output and exit
# codes: launch_local.sh N program [argument...]. --help lists the options. It is installed as bin/lockstep_launch_local.
set -euo pipefail

name=${0##*/}
if ! command -v python3 >/dev/null; then
  echo "$name: expected python3 in PATH, but found none" >&2
  exit 7
fi
script=${BASH_SOURCE[0]}
[[ ! -L $script ]] || script=$(readlink -f -- "$script")
parts=$(dirname -- "$script")
[[ -f $parts/launch_local.py ]] || parts+=/../libexec/lockstep
# The shell is replaced: a signal has one receiver. Without site packages and settings of its own Python takes less time to
# come to where it handles them.
LOCKSTEP_LAUNCHER=$name exec python3 -B -E -S "$parts/launch_local.py" "$@"
