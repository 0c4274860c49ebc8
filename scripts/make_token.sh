#!/usr/bin/env bash
# scripts/make_token.sh [--file PATH]
#
# Prints a new job token for LOCKSTEP_JOB_TOKEN: 256 bits of the system's random source, as 64
# hexadecimal digits.
#
#   --file PATH  write the token into a new file, which only you can read, instead of printing it.
#                Fails if there is anything at PATH
set -euo pipefail
from=$PWD
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
help_if_asked "$@"

path=''
case $# in
  0) ;;
  2)
    [[ $1 == --file && $2 ]] || fail "expected --file PATH or nothing, but got '$*'" 2
    path=$2
    [[ $path == /* ]] || path=$from/$path ;;
  *) fail "expected --file PATH or nothing, but got '$*'" 2 ;;
esac

token=$(od -A n -v -t x1 -N 32 /dev/urandom | tr -d ' \n')
[[ $token =~ ^[0-9a-f]{64}$ ]] || fail "/dev/urandom: expected 32 bytes, but got $((${#token} / 2))"
if [[ ! $path ]]; then
  printf '%s\n' "$token"
  exit
fi

[[ ! -e $path && ! -L $path ]] || fail "--file: expected a path where nothing is, but there is $path" 2
# The mode is right from the first moment, and nothing is overwritten that was made since the look above.
umask 077
set -o noclobber
exec {out}>"$path" || fail "--file: cannot make $path"
printf '%s\n' "$token" >&"$out" || {
  rm -f "$path"
  fail "--file: cannot write $path"
}
say "Wrote a token to $path"
