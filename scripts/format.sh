#!/usr/bin/env bash
# scripts/format.sh [--check]
#
# Formats all C++ files of the project with clang-format.
#
#   --check  change nothing, and fail if a file is not formatted
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
help_if_asked "$@"

# Another version formats differently.
readonly version=14
tool=$(command -v clang-format-$version || command -v clang-format || true)
if [[ ! $tool || $("$tool" --version) != *"version $version."* ]]; then
  fail "clang-format $version is needed (Debian 12: clang-format), but ${tool:-none} was found" 77
fi

mapfile -t files < <(find . \( -name '.?*' -o -path ./build \) -prune -o -name '*.h' -print -o -name '*.cpp' -print | sort)
case ${1:-} in
  '') "$tool" -i "${files[@]}" ;;
  --check) "$tool" --dry-run -Werror "${files[@]}" && say "${#files[@]} files are formatted" ;;
  *) fail "expected --check or nothing, but got '$1'" 2 ;;
esac
