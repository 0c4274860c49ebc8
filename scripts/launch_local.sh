#!/usr/bin/env bash
# Starts the workers of one training job on this machine, each with its own TF_CONFIG, and collects their output and exit
# codes: launch_local.sh N program [argument...]. --help lists the options.
set -euo pipefail

if ! command -v python3 >/dev/null; then
  echo "launch_local.sh: expected python3 in PATH, but found none" >&2
  exit 7
fi
# The shell is replaced: a signal has one receiver. Without site packages and settings of its own Python takes less time to
# come to where it handles them.
exec python3 -B -E -S "$(dirname "${BASH_SOURCE[0]}")/launch_local.py" "$@"
