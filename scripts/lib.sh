# shellcheck shell=bash disable=SC2034
# Functions that the scripts share. Source it instead of running it. It changes to the project's root.
# Everything that is said here goes to stderr, so that a program's own output stays alone on stdout.

cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit

readonly libtorch_version=2.11.0
readonly arrow_version=26.0.1
# The CUDA that the wheel was built with, and the first driver that supports it.
readonly libtorch_cuda=13 libtorch_driver=580
# scripts/packages/ lists the Python packages that are fetched, LibTorch among them, in versions for this Python.
readonly test_python_version=3.11

packages_to_build=(build-essential cmake ninja-build ccache lld pkg-config python3 python3-pip
  libcxxopts-dev libfmt-dev nlohmann-json3-dev libgtest-dev libgmock-dev
  libpng-dev libjpeg-dev libwebp-dev libzip-dev zlib1g-dev libzstd-dev libpcre2-dev libutf8proc-dev libjemalloc-dev libgloo-dev libssl-dev libhwloc-dev
  prometheus-cpp-dev libcurl4-openssl-dev librocksdb-dev)
# Intel's library for encryption is of this architecture only.
[[ $(dpkg --print-architecture 2>/dev/null) != amd64 ]] || packages_to_build+=(libipsec-mb-dev)
readonly packages_to_build
readonly packages_to_sanitize=(clang libclang-rt-dev)
readonly packages_to_test=(clang-format clang-tidy iproute2 openmpi-bin chromium doxygen tmux zstd python3-yaml shellcheck munge openssl)
readonly packages_for_slurm=(slurmctld slurmd slurm-client munge iproute2 util-linux)

say() { printf '==> %s\n' "$*" >&2; }

warn() { printf 'warning: %s\n' "$*" >&2; }

fail() {
  printf 'error: %s\n' "$1" >&2
  exit "${2:-1}"
}

# help_if_asked argument...: if one of them is --help or -h, prints the comment that the script begins with, and exits.
help_if_asked() {
  local argument
  for argument in "$@"; do
    [[ $argument == --help || $argument == -h ]] || continue
    sed -n '2,/^[^#]/ { /^#/!q; s/^# \{0,1\}//; p }' "scripts/${0##*/}"
    exit 0
  done
}

# timed "what it does" command...: says what it does, and how long it took. A function given as the command runs
# without errexit: it joins its own commands by && or return.
timed() {
  local what=$1 start=$SECONDS
  shift
  say "$what"
  "$@" >&2 || fail "$what: failed after $((SECONDS - start)) s"
  printf '    %s s\n' "$((SECONDS - start))" >&2
}

# need_packages package...: installs the Debian packages that are missing.
need_packages() {
  if ! command -v dpkg-query >/dev/null; then
    say "not a Debian system: the equivalents of these packages are taken to be there: $*"
    return
  fi
  local package missing=()
  for package in "$@"; do
    [[ $(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null) == installed ]] || missing+=("$package")
  done
  ((${#missing[@]})) || return 0

  local as_root=()
  if ((EUID != 0)); then
    as_root=(sudo -n)
    if ! sudo -n true 2>/dev/null; then
      printf 'error: these packages are missing, and installing them needs root. Run this line, then this script again:\n\n' >&2
      printf '  sudo apt-get update && sudo apt-get install -y --no-install-recommends %s\n\n' "${missing[*]}" >&2
      exit 2
    fi
  fi
  timed "Reading the package lists" "${as_root[@]}" apt-get update -q
  timed "Installing ${missing[*]}" "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -q -y --no-install-recommends "${missing[@]}"
}

# Prints the first entry of CMAKE_PREFIX_PATH that holds a LibTorch, or its CMake files (torch.utils.cmake_prefix_path).
own_libtorch() {
  local folder folders
  IFS=: read -r -a folders <<<"${CMAKE_PREFIX_PATH:-}"
  for folder in ${folders[@]+"${folders[@]}"}; do
    if [[ -f $folder/include/torch/csrc/api/include/torch/torch.h || -f $folder/Torch/TorchConfig.cmake ]]; then
      printf '%s\n' "$folder"
      return
    fi
  done
}

# Prints the newest CUDA version that the GPU's driver supports, "unknown" if it does not say, and nothing without a GPU.
cuda_of_driver() {
  local version
  timeout 60 nvidia-smi -L >/dev/null 2>&1 || return 0
  version=$(timeout 60 nvidia-smi 2>/dev/null | sed -nE '/CUDA[A-Za-z ]* Version/ { s/.*CUDA[A-Za-z ]* Version: *([0-9]+\.[0-9]+).*/\1/p; q }') || true
  printf '%s\n' "${version:-unknown}"
}

# driver_is_older_than major: whether this machine has a GPU whose driver does not support that CUDA.
driver_is_older_than() { [[ ${driver_cuda:-} =~ ^([0-9]+)\. ]] && ((BASH_REMATCH[1] < $1)); }

python_with_pip() {
  local python
  for python in python3 /usr/bin/python3; do
    if "$python" -m pip --version >/dev/null 2>&1; then
      printf '%s\n' "$python"
      return
    fi
  done
  fail "neither python3 nor /usr/bin/python3 has pip, which fetches LibTorch (Debian: python3-pip)"
}

# Prints the folder of what is fetched once for all clones.
cache_folder() {
  printf '%s\n' "${LOCKSTEP_CACHE:-${XDG_CACHE_HOME:-${HOME:?names the folder of the cache}/.cache}/lockstep}"
}

# Reads what pip printed, and prints each file that had another hash than its list says.
wrong_hashes() {
  awk '
    / from .*:$/ { file = $0; sub(/^.* from /, "", file); sub(/ \(from .*$|:$/, "", file); sub(/^.*\//, "", file); expected = "" }
    $1 == "Expected" { expected = expected (expected ? " or " : "") $NF }
    $1 == "Got" { printf "error: %s: expected SHA-256 %s, but got %s. The file was deleted.\n", file, expected, $2 }'
}

# fetch_packages folder list...: installs the packages of these lists into a folder that either holds all of them or does not
# exist, whatever is interrupted. A list names every package, with its dependencies, in one version and with the hashes of its files.
fetch_packages() {
  local folder=$1 partial=$1.partial python
  shift
  python=$(python_with_pip) || return
  rm -rf "$partial"
  mkdir -p "$partial/.tmp" || return
  # As LibTorch, the wheel of one Python serves every Python: only its C++ half is used.
  if ! (
    set -o pipefail
    TMPDIR=$partial/.tmp PIP_ROOT_USER_ACTION=ignore "$python" -m pip install --disable-pip-version-check \
      --no-cache-dir --no-compile --no-warn-conflicts --progress-bar off --only-binary=:all: --no-deps --require-hashes \
      --implementation cp --python-version $test_python_version --target "$partial" "${@/#/--requirement=}" 2>&1 |
      tee "$partial/.log"
  ); then
    wrong_hashes <"$partial/.log" >&2
    rm -rf "$partial"
    return 1
  fi
  rm -r "$partial/.tmp" "$partial/.log" &&
    cat "$@" >"$partial/.complete" &&
    rm -rf "$folder" &&
    mv "$partial" "$folder"
}

# fetch_once what folder list...: fetch_packages unless the folder is complete; one clone at a time.
fetch_once() {
  local what=$1 folder=$2 cache=${2%/*}
  mkdir -p "$cache" || fail "cannot make $cache; LOCKSTEP_CACHE names another folder"
  exec {lock}>"$cache/.lock"
  flock -n "$lock" || timed "Waiting for another clone that is fetching packages" flock "$lock"
  if [[ ! -f $folder/.complete ]]; then
    timed "Fetching $what into $folder" fetch_packages "${@:2}"
  fi
  exec {lock}>&-
}

# Finds LibTorch or fetches it; sets libtorch (a folder, or nothing if CMake finds it by CMAKE_PREFIX_PATH), cuda, and
# driver_cuda (see cuda_of_driver).
need_libtorch() {
  local own folder reason list
  driver_cuda=$(cuda_of_driver)
  own=$(own_libtorch)
  if [[ $own ]]; then
    libtorch='' cuda=${LOCKSTEP_CUDA:-AUTO}
    say "LibTorch: yours in $own, CUDA $cuda"
    return
  fi

  if [[ ${LOCKSTEP_CUDA:-} ]]; then
    cuda=$LOCKSTEP_CUDA reason="as LOCKSTEP_CUDA says"
  elif [[ ! $driver_cuda ]]; then
    cuda=OFF reason="as nvidia-smi lists no GPU (LOCKSTEP_CUDA=ON builds for GPUs all the same)"
  elif driver_is_older_than $libtorch_cuda; then
    cuda=OFF reason="as the GPU's driver is too old"
    warn "this machine has a GPU, but Lockstep is built WITHOUT CUDA: LibTorch $libtorch_version needs CUDA $libtorch_cuda, and the GPU's driver
  supports CUDA $driver_cuda. Install NVIDIA's driver $libtorch_driver or newer and run this script again. Or get a LibTorch $libtorch_version that
  was built with CUDA ${driver_cuda%%.*}, and name its folder, which holds include/ and lib/:

    CMAKE_PREFIX_PATH=<folder> LOCKSTEP_CUDA=ON $0

  LOCKSTEP_CUDA=OFF leaves this warning out."
  else
    cuda=ON
  fi
  folder=$(cache_folder)/libtorch-$libtorch_version
  case $cuda in
    OFF)
      list=scripts/packages/libtorch.txt ;;
    ON)
      folder+=-cuda$libtorch_cuda
      list=scripts/packages/libtorch_cuda.txt ;;
    *) fail "LOCKSTEP_CUDA: expected ON or OFF, but got '$cuda'" 2 ;;
  esac

  fetch_once "LibTorch $libtorch_version" "$folder" "$list"
  libtorch=$folder/torch
  if [[ $cuda == ON ]]; then
    say "LibTorch: $libtorch, with CUDA"
  else
    say "LibTorch: $libtorch, without CUDA, $reason"
  fi
}

# Fetches Apache Arrow, unless LOCKSTEP_ARROW=OFF, or CMAKE_PREFIX_PATH names one; sets arrow (a folder, or nothing) and
# arrow_options (arguments of configure).
need_arrow() {
  local folder prefix prefixes
  arrow='' arrow_options=()
  case ${LOCKSTEP_ARROW:-ON} in
    ON) ;;
    OFF)
      arrow_options=(-DLOCKSTEP_ARROW=OFF)
      say "Arrow: left out"
      return ;;
    *) fail "LOCKSTEP_ARROW: expected ON or OFF, but got '$LOCKSTEP_ARROW'" 2 ;;
  esac
  IFS=: read -r -a prefixes <<<"${CMAKE_PREFIX_PATH:-}"
  for prefix in ${prefixes[@]+"${prefixes[@]}"}; do
    if compgen -G "$prefix/lib*/cmake/Arrow/ArrowConfig.cmake" >/dev/null; then
      arrow_options=(-DLOCKSTEP_ARROW=ON -DLOCKSTEP_ARROW_ROOT=)
      say "Arrow: yours in $prefix"
      return
    fi
  done
  folder=$(cache_folder)/arrow-$arrow_version
  fetch_once "Arrow $arrow_version" "$folder" scripts/packages/arrow.txt
  arrow=$folder/pyarrow
  arrow_options=(-DLOCKSTEP_ARROW=ON -DLOCKSTEP_ARROW_ROOT="$arrow")
  say "Arrow: $arrow"
}

# Prints the first Python of the version that the packages for tests are made for.
python_for_tests() {
  local python
  for python in python3 /usr/bin/python3 "python$test_python_version"; do
    "$python" -c 'import sys
if "%d.%d" % sys.version_info[:2] != sys.argv[1]: sys.exit(1)
print(sys.executable)' "$test_python_version" 2>/dev/null && return
  done
  return 0
}

# make_stand_ins folder of torch's libraries, folder: libraries of NVIDIA's that Python's torch is linked to, and does not need.
make_stand_ins() {
  rm -rf "$2.partial" && python3 -B scripts/stub_libraries.py "$1" "$2.partial" "${CC:-cc}" && mv "$2.partial" "$2"
}

# Finds the Python packages that tests compare with, or fetches them; sets test_python (an executable), test_python_path
# (folders for PYTHONPATH) and test_library_path (folders for LD_LIBRARY_PATH), all empty if there are none: tests that need
# them are skipped then. After need_libtorch and, if it is used, need_arrow.
need_test_python() {
  local folder lists=(scripts/packages/test_python.txt) arrow=${arrow:-}
  test_python='' test_python_path='' test_library_path=''
  case ${LOCKSTEP_TEST_PYTHON_PACKAGES:-ON} in
    ON) ;;
    OFF)
      say "Python packages for tests: left out"
      return ;;
    *) fail "LOCKSTEP_TEST_PYTHON_PACKAGES: expected ON or OFF, but got '$LOCKSTEP_TEST_PYTHON_PACKAGES'" 2 ;;
  esac
  test_python=$(python_for_tests)
  if [[ ! $test_python ]]; then
    say "Python packages for tests: left out, they take a Python $test_python_version"
    return
  fi

  [[ $libtorch ]] || lists+=(scripts/packages/libtorch.txt)
  # Clones of different versions do not replace each other's.
  folder=$(cache_folder)/test-python-$(cat "${lists[@]}" | cksum | cut -d ' ' -f 1)
  if [[ ! -f $folder/.complete ]]; then
    say "Some tests compare with Python packages, 0.2 GB$([[ $libtorch ]] || echo ' and 1.2 GB of PyTorch'): --no-python leaves them out"
  fi
  fetch_once "Python packages for tests" "$folder" "${lists[@]}"
  test_python_path=$folder${libtorch:+:${libtorch%/*}}${arrow:+:${arrow%/*}}
  test_library_path=$folder/stand-ins-${cuda,,}
  if [[ ! -d $test_library_path ]]; then
    timed "Making stand-ins for NVIDIA's libraries" make_stand_ins "${libtorch:-$folder/torch}/lib" "$test_library_path"
  fi
  say "Python packages for tests: $folder"
}

# Compilers at once: as many as there are cores, and 1.5 GB of memory for each.
jobs() {
  local cores memory
  cores=$(nproc)
  memory=$(awk '/^MemAvailable:/ { print int($2 / 1500000) }' /proc/meminfo)
  echo $((memory < 1 ? 1 : memory < cores ? memory : cores))
}

run_cmake() {
  local log=$1
  shift
  cmake "$@" >"$log" 2>&1 || {
    cat "$log"
    return 1
  }
}

# configure preset [cmake argument...]
configure() {
  local preset=$1 cache=build/$1/CMakeCache.txt arrow_before forget=()
  shift
  mkdir -p "build/$preset"
  # A script that needs no Arrow keeps the one that another found for this build, unless it has been deleted.
  arrow_before=$([[ ! -f $cache ]] || sed -n 's/^LOCKSTEP_ARROW_ROOT:PATH=//p' "$cache")
  if [[ ! ${arrow_options[*]-} && $arrow_before && ! -d $arrow_before ]]; then
    forget=(-U LOCKSTEP_ARROW -U LOCKSTEP_ARROW_ROOT)
  fi
  # Look up again what an earlier run found or was told: the LibTorch may be another one by now.
  timed "Configuring build/$preset" run_cmake "build/$preset/configure.log" --preset "$preset" \
    -U 'LOCKSTEP_TORCH_*' -U LOCKSTEP_C10 -U LOCKSTEP_NCCL_INCLUDE -U Torch_DIR -U CMAKE_PREFIX_PATH \
    ${forget[@]+"${forget[@]}"} -DLOCKSTEP_CUDA="$cuda" ${libtorch:+-DCMAKE_PREFIX_PATH="$libtorch"} \
    ${arrow_options[@]+"${arrow_options[@]}"} "$@"
  check_gpu_build "$preset"
}

# check_gpu_build preset: warns if this machine has a GPU that the programs of a configured build cannot use.
check_gpu_build() {
  local found needed
  [[ ${driver_cuda:-} && $cuda != OFF ]] || return 0
  found=$(sed -nE 's/^-- LibTorch [^,]*, (with(out)? CUDA.*)$/\1/p' "build/$1/configure.log")
  needed=${found#with CUDA }
  if [[ $found == without* ]]; then
    warn "this machine has a GPU, but build/$1 is built WITHOUT CUDA${found#without CUDA}.
  LOCKSTEP_CUDA=OFF leaves this warning out."
  elif [[ $found ]] && driver_is_older_than "$needed"; then
    warn "the programs of build/$1 cannot use this machine's GPU: LibTorch needs CUDA $needed, and the GPU's driver supports
  CUDA $driver_cuda. Install a newer NVIDIA driver, or name a LibTorch $libtorch_version that was built with CUDA ${driver_cuda%%.*}:
  CMAKE_PREFIX_PATH=<folder> $0"
  fi
}

# build preset [target...]
build() {
  local preset=$1 what=${*:2}
  timed "Building ${what:-everything} in build/$preset" cmake --build "build/$preset" \
    --parallel "${CMAKE_BUILD_PARALLEL_LEVEL:-$(jobs)}" ${what:+--target "${@:2}"}
}

# run_tests build folder...: one ctest run, and one summary, for the tests of all these folders. Returns ctest's status.
run_tests() {
  local randomize=()
  mkdir -p build/tests
  printf 'subdirs("%s")\n' "$@" >build/tests/CTestTestfile.cmake
  # ThreadSanitizer does not start where the kernel spreads addresses over more bits than these.
  if (($(cat /proc/sys/vm/mmap_rnd_bits 2>/dev/null || echo 0) > 28)) && setarch -R true 2>/dev/null; then
    randomize=(setarch -R)
  fi
  say "Running the tests of ${*#"$PWD/"}"
  # Brief: a program of hundreds of tests that fails shows its failures alone.
  export GTEST_BRIEF=1
  # The tests share the cores: OpenMP's threads should sleep while they wait for each other. Lockstep's programs choose the same,
  # but have to start anew for it, and so load LibTorch twice.
  export OMP_WAIT_POLICY=passive
  # Most tests wait: for a peer, a disk, a time-out. As many as there are cores would leave a third of them idle.
  ${randomize[@]+"${randomize[@]}"} ctest --test-dir build/tests --output-on-failure -j $((2 * $(nproc))) </dev/null
}

# build_and_run folder program argument...: builds a program of the release build, and becomes it in that folder.
build_and_run() {
  local from=$1 program=$2
  shift 2
  need_packages "${packages_to_build[@]}"
  need_libtorch
  configure release
  build release "$program"
  local path=$PWD/build/release/bin/$program
  cd "$from" || exit
  say "Running $program $*"
  exec "$path" "$@"
}
