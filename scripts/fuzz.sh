#!/usr/bin/env bash
# scripts/fuzz.sh [option...] [target...]
#
# Fuzzes the parsers of foreign input with libFuzzer, under AddressSanitizer, LeakSanitizer and
# UndefinedBehaviorSanitizer. Fuzzes all targets of tests/fuzz/ unless you name some.
#
#   --seconds N  fuzz each target for N seconds (default: 60). 0 only runs the known inputs
#   --hours      fuzz each of Lockstep's own parsers for an hour, and those of libraries for 5 minutes
#   --seed N     seed of the fuzzer's random inputs (default: 1)
#   --libtorch   include load_state_file, which needs LibTorch
#
# Each target starts from tests/fuzz/corpus/<target>/, from seeds that Lockstep's own writers make,
# and from build/fuzz/found/<target>/, where earlier runs keep interesting inputs. One target runs on
# each core. The script prints a table at the end. If an input makes a target fail, it is saved in
# build/fuzz/findings/, and the exit code is 1.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
help_if_asked "$@"

readonly build_folder=build/fuzz
# libpng, libjpeg, libwebp and libzip have their own fuzzers; these test Lockstep's use of them.
readonly library_targets=' jpeg_decoder png_decoder webp_decoder zip_archive '

seconds=60 library_seconds='' seed=1 with_libtorch=OFF targets=()
while (($#)); do
  case $1 in
    --seconds | --seed)
      [[ ${2:-} =~ ^[0-9]{1,9}$ ]] || fail "$1: expected a whole number, but got '${2:-nothing}'" 2
      if [[ $1 == --seed ]]; then seed=$2; else seconds=$2 library_seconds=''; fi
      shift ;;
    --hours) seconds=3600 library_seconds=300 ;;
    --libtorch) with_libtorch=ON ;;
    -*) fail "expected --seconds N, --hours, --seed N, --libtorch or targets, but got '$1'" 2 ;;
    *) targets+=("$1") ;;
  esac
  shift
done
library_seconds=${library_seconds:-$seconds}

need_packages "${packages_to_build[@]}" "${packages_to_sanitize[@]}"
libtorch=''
[[ $with_libtorch == OFF ]] || need_libtorch
mkdir -p $build_folder
timed "Configuring $build_folder" run_cmake $build_folder/configure.log -S tests/fuzz -B $build_folder -G Ninja \
  -U 'LOCKSTEP_TORCH_*' -U LOCKSTEP_C10 -DCMAKE_CXX_COMPILER=clang++ -DLOCKSTEP_FUZZ_LIBTORCH=$with_libtorch \
  ${libtorch:+-DCMAKE_PREFIX_PATH="$libtorch"}
mapfile -t all_targets <$build_folder/targets.txt
for target in "${targets[@]}"; do
  [[ " ${all_targets[*]} " == *" $target "* ]] || fail "expected targets among ${all_targets[*]}, but got '$target'" 2
done
((${#targets[@]})) || targets=("${all_targets[@]}")
timed "Building the fuzz programs" cmake --build $build_folder --parallel "${CMAKE_BUILD_PARALLEL_LEVEL:-$(jobs)}" \
  --target write_seeds "${targets[@]/#/fuzz_}"
rm -rf $build_folder/seeds
timed "Writing the seeds" $build_folder/bin/write_seeds $build_folder/seeds

# fuzz target: its log, ending with "exit <status>", is $build_folder/logs/<target>.log.
fuzz() {
  local target=$1 time=$seconds limits status=0 inputs=("$build_folder/found/$1")
  [[ $library_targets != *" $target "* ]] || time=$library_seconds
  for input in "tests/fuzz/corpus/$target" "$build_folder/seeds/$target"; do
    [[ ! -d $input ]] || inputs+=("$input")
  done
  mkdir -p "$build_folder/found/$target"
  limits=(-max_len=4096 -timeout=10 -rss_limit_mb=1024 -malloc_limit_mb=256)
  if ((time)); then limits+=("-max_total_time=$time"); else limits+=(-runs=0); fi
  # Freed memory that AddressSanitizer keeps counts as the program's.
  ASAN_OPTIONS=detect_leaks=1:quarantine_size_mb=64 UBSAN_OPTIONS=print_stacktrace=1 $build_folder/bin/fuzz_"$target" "${limits[@]}" \
    "-seed=$seed" -print_final_stats=1 -artifact_prefix=$build_folder/findings/"$target"- "${inputs[@]}" \
    >$build_folder/logs/"$target".log 2>&1 || status=$?
  echo "exit $status" >>$build_folder/logs/"$target".log
}

rm -rf $build_folder/logs
mkdir -p $build_folder/findings $build_folder/logs
say "Fuzzing ${#targets[@]} targets for $seconds s each, seed $seed"
num_running=0
for target in "${targets[@]}"; do
  if ((num_running == $(nproc))); then
    wait -n
    num_running=$((num_running - 1))
  fi
  fuzz "$target" &
  num_running=$((num_running + 1))
done
wait

# number pattern log: the last number after what the pattern matches, or 0.
number() {
  local found
  found=$(sed -nE "s/.*$1 *([0-9]+).*/\\1/p" "$2" | tail -n 1)
  echo "${found:-0}"
}

# show log input: what is needed to find the cause where build/ is gone.
show() {
  printf '\n%s\n' "$1"
  grep -nE '^expected |ERROR|runtime error|what\(\)|Assertion|SUMMARY|^ +#[0-9]+ .*lockstep' "$1" | head -n 30 || true
  [[ ! -f $2 ]] || { printf 'the input, in base64:\n'; base64 "$2"; }
}

num_findings=0 findings=''
printf '%-20s %11s %8s %8s %6s %9s  %s\n' target executions per_s coverage new MiB result
for target in "${targets[@]}"; do
  log=$build_folder/logs/$target.log
  at_start=$(number 'INITED cov:' "$log")
  at_end=$(number '[A-Z] +cov:' "$log")
  result=ok
  if [[ $(tail -n 1 "$log") != 'exit 0' ]]; then
    num_findings=$((num_findings + 1))
    input=$(sed -nE 's/.*Test unit written to (.*)$/\1/p' "$log" | head -n 1)
    result="FAILED: ${input:-no input}, see $log"
    findings+=$(show "$log" "$input")$'\n'
  fi
  printf '%-20s %11s %8s %8s %6s %9s  %s\n' "$target" "$(number 'stat::number_of_executed_units:' "$log")" \
    "$(number 'stat::average_exec_per_sec:' "$log")" "$at_end" $((at_end > at_start ? at_end - at_start : 0)) \
    "$(number 'stat::peak_rss_mb:' "$log")" "$result"
done
if ((num_findings)); then
  printf '%s\n' "$findings"
  fail "$num_findings of ${#targets[@]} targets failed. Once it is mended, an input belongs into tests/fuzz/corpus/<target>/"
fi
