#!/usr/bin/env bash
# Copyright (c) 2026 The cohort authors
# SPDX-License-Identifier: BSL-1.0
#
# test_gpu.sh [COMPILER OPTION...]: compiles the tests of the layers device and nccl, and those of the
# coordinator on devices, with the CUDA toolkit of this machine and runs them on its devices. The layer
# device needs a C++20 compiler, CUDA's headers and libcudart, and the headers of Asio and Catch2; no
# CMake, MPI or nvcc. The others also need MPI and NCCL, and are skipped without them. Where things
# are:
#
#   CUDA_HOME           the toolkit (default /usr/local/cuda), or a wheel's folder with include/ and lib/
#   NCCL_HOME           a folder with include/nccl.h and lib/libnccl.so* (default CUDA_HOME, then /usr)
#   MPI_HOME            a folder with bin/mpicxx and bin/mpiexec (default: those of PATH)
#   ASIO_INCLUDE_DIR    holds asio/version.hpp, if the compiler does not find it
#   CATCH2_INCLUDE_DIR  holds catch2/; for version 3 also pass -L... -lCatch2
#   CLI11_INCLUDE_DIR   holds CLI/, for the stage bench alone
#   CXX                 the compiler (default g++)
#
# What is done, and how:
#
#   STAGES              words (default "build test sanitizer"): build; test runs the programs;
#                       sanitizer runs them under compute-sanitizer where that is; bench builds
#                       benchmarks/gpu with -O3, runs it and keeps what it prints in
#                       build/gpu-tests/bench.txt
#   SANITIZERS          its tools (default "memcheck"; also racecheck, initcheck, synccheck)
#   STAGE_TIMEOUT       seconds that each program may take, of the compiler's too (default 900)
#   TEST_ARGUMENTS      words for the test programs, a name of a test case say
#   TEST_RANKS          how many ranks, words (default: 1, and as many as there are devices, 4 at most)
#   JOBS                how many files are compiled at once (default: one for each core)
#
# The last lines say what passed, failed and was skipped, and why. Exits with 77 where no device is, with
# 1 if anything failed. Without a device the programs still check with the real libraries that every
# rank gets one error that says so.
set -euo pipefail
cd "$(dirname "$0")/.."
cuda=${CUDA_HOME:-/usr/local/cuda}
nccl=${NCCL_HOME:-$cuda}
[ -n "${NCCL_HOME-}" ] || [ -e "$nccl/include/nccl.h" ] || nccl=/usr
compiler=${CXX:-g++}
mpicxx=${MPI_HOME:+$MPI_HOME/bin/}mpicxx
mpiexec=${MPI_HOME:+$MPI_HOME/bin/}mpiexec
folder=build/gpu-tests
read -r -a stages <<<"${STAGES-build test sanitizer}"
read -r -a words <<<"${TEST_ARGUMENTS-}"
extra=("$@")  # of the compiler
passed=() failed=() skipped=()

for stage in ${stages[@]+"${stages[@]}"}; do
  case $stage in
    build | test | sanitizer | bench) ;;
    *) echo "STAGES: no stage '$stage', only build, test, sanitizer and bench" >&2; exit 1 ;;
  esac
done
wanted() { [[ " ${stages[*]-} " == *" $1 "* ]]; }

# bounded COMMAND...: a program that hangs on a device is killed 10 s after it was asked to end.
bounded() { timeout -k 10 "${STAGE_TIMEOUT:-900}" "$@"; }

# does WHAT COMMAND...: runs it, notes how it ended and what it says that it skips.
does() {
  local what=$1 status=0 line
  shift
  printf '\n== %s\n' "$what"
  mkdir -p "$folder"
  "$@" 2>&1 | tee "$folder/output.txt" || status=${PIPESTATUS[0]}
  while read -r line; do
    [ "$status" -eq 77 ] || skipped+=("$what: ${line#skipped: }")
  done < <(grep '^skipped: ' "$folder/output.txt" | sort -u)
  case $status in
    0) passed+=("$what") ;;
    77) skipped+=("$what: $(sed -n 's/^skipped: //p' "$folder/output.txt" | head -n 1)") ;;
    124 | 137) failed+=("$what: more than ${STAGE_TIMEOUT:-900} s, or killed") ;;
    *) failed+=("$what: status $status") ;;
  esac
  return "$status"
}

# Says what happened and ends the script with STATUS, or 1 if anything failed.
finish() {
  local line status=$1
  printf '\n== summary\n'
  for line in ${passed[@]+"${passed[@]}"}; do echo "passed:  $line"; done
  for line in ${skipped[@]+"${skipped[@]}"}; do echo "skipped: $line"; done
  for line in ${failed[@]+"${failed[@]}"}; do echo "FAILED:  $line"; done
  [ ${#failed[@]} -eq 0 ] || status=1
  exit "$status"
}

# library PREFIX NAME: wheels have a library with a version and no link without one.
library() {
  { find -L "$1"/lib64 "$1"/lib "$1"/lib/*-linux-gnu -maxdepth 1 -name "lib$2.so*" 2>/dev/null || true; } |
    sort | head -n 1
}

# link PROGRAM COMPILER LIBRARIES OPTIONS SOURCE...: OPTIONS and LIBRARIES are names of arrays; a source
# that is an object is linked as it is. Called where `set -e` is off, hence the returns.
link() {
  local program=$folder/$1 with=$2 one rpaths=()
  local -n libraries=$3
  compile "$program" "$with" "$4" "${@:5}" || return
  for one in "${libraries[@]}"; do rpaths+=("-Wl,-rpath,$(dirname "$one")"); done
  bounded "$with" -pthread -Wl,--gc-sections "${objects[@]}" "${libraries[@]}" "${rpaths[@]}" \
    ${extra[@]+"${extra[@]}"} -o "$program"
}

# compile PREFIX COMPILER OPTIONS SOURCE...: leaves the names of the objects in `objects`.
compile() {
  local prefix=$1 with=$2 source object running=0 status=0
  local -n includes=$3
  shift 3
  objects=()
  for source in "$@"; do
    if [[ $source == *.o ]]; then
      objects+=("$source")
      continue
    fi
    object=$prefix-$(basename "$source" .cpp).o
    if [ "$running" -ge "${JOBS:-$(nproc)}" ]; then
      wait -n || status=$?
      running=$((running - 1))
    fi
    bounded "$with" -std=c++20 -O1 -g1 -ffunction-sections -pthread -Iinclude -Itests "${includes[@]}" \
      ${extra[@]+"${extra[@]}"} -c "$source" -o "$object" &
    running=$((running + 1))
    objects+=("$object")
  done
  while [ "$running" -gt 0 ]; do
    wait -n || status=$?
    running=$((running - 1))
  done
  return "$status"
}

# --- what is there ------------------------------------------------------------------------------

[ -e "$cuda/include/cuda_runtime.h" ] || { echo "no CUDA headers in $cuda/include: set CUDA_HOME"; exit 1; }
runtime=$(library "$cuda" cudart)
[ -n "$runtime" ] || { echo "no libcudart.so in $cuda/lib64 or $cuda/lib"; exit 1; }
echo "CUDA: $runtime, $(grep -m1 -o 'CUDART_VERSION *[0-9]*' "$cuda/include/cuda_runtime_api.h")"

without=  # why there is no layer nccl
if [ ! -e "$nccl/include/nccl.h" ]; then
  without="no nccl.h in $nccl/include: set NCCL_HOME"
elif [ -z "$(library "$nccl" nccl)" ]; then
  without="no libnccl.so in $nccl/lib64 or $nccl/lib"
elif ! command -v "$mpicxx" >/dev/null || ! command -v "$mpiexec" >/dev/null; then
  without="no $mpicxx and $mpiexec: set MPI_HOME"
else
  echo "NCCL: $(library "$nccl" nccl), $(grep -m1 -o 'NCCL_VERSION_CODE *[0-9]*' "$nccl/include/nccl.h")"
fi
[ -z "$without" ] || skipped+=("layer nccl: $without")

# NCCL's folder stands before CUDA's: a toolkit may come with an nccl.h of another version.
common=(-isystem "$cuda/include")
[ -z "${ASIO_INCLUDE_DIR-}" ] || common+=(-isystem "$ASIO_INCLUDE_DIR")
[ -z "${CATCH2_INCLUDE_DIR-}" ] || common+=(-isystem "$CATCH2_INCLUDE_DIR")
# shellcheck disable=SC2034  # link reads these
{
  device_libraries=("$runtime")
  nccl_libraries=("$runtime" "$(library "$nccl" nccl)")
  nccl_includes=("${common[@]}")
  [ "$nccl" = /usr ] || nccl_includes=(-isystem "$nccl/include" "${common[@]}")
  compiled_includes=(-DCOHORT_SEPARATE_COMPILATION "${nccl_includes[@]}")
  bench_includes=(-O3 -DNDEBUG -Ibenchmarks -Wno-subobject-linkage "${nccl_includes[@]}")
  [ -z "${CLI11_INCLUDE_DIR-}" ] || bench_includes+=(-isystem "$CLI11_INCLUDE_DIR")
}

# --- build --------------------------------------------------------------------------------------

if wanted build; then
  mkdir -p "$folder"
  does "build of the layer device" link device_test "$compiler" device_libraries common \
    tests/gpu/device/{device_test,completion_test,graph_test,staged_copy_test,on_gpu_main}.cpp tests/support/catch_run.cpp || true
  if [ -z "$without" ]; then
    export OMPI_CXX=$compiler MPICH_CXX=$compiler
    # The bodies are compiled once: see cmake/cohort_compiled.cmake.
    does "build of the library" compile "$folder/cohort" "$mpicxx" compiled_includes cmake/src/{,gpu/}*.cpp || finish 1
    main=(tests/gpu/nccl/on_gpu_main.cpp tests/support/catch_run.cpp "$folder"/cohort-*.o)
    does "build of the layer nccl" link nccl_test "$mpicxx" nccl_libraries compiled_includes \
      tests/gpu/nccl/*_test.cpp "${main[@]}" || true
    does "build of the coordinator on devices" link gpu_test "$mpicxx" nccl_libraries compiled_includes \
      tests/gpu/coordinator/*_test.cpp tests/faults/interposer.cpp "${main[@]}" || true
  fi
  [ ${#failed[@]} -eq 0 ] || finish 1
fi
if wanted bench; then
  mkdir -p "$folder"
  if [ -z "$without" ]; then
    export OMPI_CXX=$compiler MPICH_CXX=$compiler
    does "build of the benchmark" link bench "$mpicxx" nccl_libraries bench_includes benchmarks/gpu/*.cpp || finish 1
  else
    skipped+=("benchmark: $without")
  fi
fi
wanted test || wanted sanitizer || wanted bench || finish 0

# --- run ----------------------------------------------------------------------------------------

# Asked for help only, the program still names its device first, or says why there is none.
status=0
[ -x "$folder/device_test" ] || { echo "not built: $folder/device_test, see the stage build"; exit 1; }
bounded "$folder/device_test" --help >"$folder/devices.txt" || status=$?
head -n 1 "$folder/devices.txt"
if [ "$status" -ne 0 ]; then
  [ "$status" -eq 77 ] || failed+=("look for a device: status $status")
  [ "$status" -ne 77 ] || skipped+=("the tests: $(sed -n '1s/^skipped: //p' "$folder/devices.txt")")
  if wanted test && [ -z "$without" ]; then
    for ranks in ${TEST_RANKS:-1 2 3}; do
      does "the error of $ranks rank(s) without a device" \
        env MPIEXEC="$mpiexec" timeout -k 10 120 scripts/mpirun.sh "$ranks" "$folder/nccl_test" || true
    done
  fi
  finish "$status"
fi

# One rank for each device: NCCL refuses two ranks on one.
devices=$(sed -n 's/^device [0-9]* of \([0-9]*\):.*/\1/p' "$folder/devices.txt")
most=$((devices < 4 ? devices : 4))
read -r -a numbers <<<"${TEST_RANKS:-$([ "$most" -eq 1 ] || echo 1) $most}"
ranks=${numbers[-1]}  # of the benchmark and the sanitizer
on_ranks() { MPIEXEC=$mpiexec bounded scripts/mpirun.sh "$@"; }
if [ -z "$without" ]; then
  [ "$most" -gt 1 ] || skipped+=("NCCL between devices: there is one rank; NCCL launches no kernel then")
fi
skipped+=("tests/gpu/device/double_test.cpp and nccl_*_test.cpp: they are tests of the doubles")

if wanted test; then
  does "tests of the layer device" bounded "$folder/device_test" ${words[@]+"${words[@]}"} || true
  for count in $([ -n "$without" ] || echo "${numbers[@]}"); do
    does "tests of the layer nccl on $count rank(s)" \
      on_ranks "$count" "$folder/nccl_test" ${words[@]+"${words[@]}"} || true
    does "tests of the coordinator on $count rank(s) with devices" \
      on_ranks "$count" "$folder/gpu_test" ${words[@]+"${words[@]}"} || true
  done
fi

if wanted bench && [ -z "$without" ]; then
  bench() { on_ranks "$ranks" "$folder/bench" | tee "$folder/bench.txt"; }
  does "benchmark on $ranks rank(s), in $folder/bench.txt" bench || true
fi

if wanted sanitizer; then
  sanitizer=$(command -v compute-sanitizer || find -L "$cuda/bin" -name compute-sanitizer 2>/dev/null || true)
  read -r -a tools <<<"${SANITIZERS-memcheck}"
  [ -n "$sanitizer" ] || skipped+=("compute-sanitizer: it is not installed")
  for tool in ${sanitizer:+${tools[@]+"${tools[@]}"}}; do
    check=("$sanitizer" --tool "$tool" --error-exitcode 1)
    # Tests ask CUDA for what it must refuse.
    [ "$tool" != memcheck ] || check+=(--report-api-errors no)
    does "tests of the layer device under $tool" \
      bounded "${check[@]}" "$folder/device_test" ${words[@]+"${words[@]}"} || true
    [ -n "$without" ] || does "tests of the layer nccl on $ranks rank(s) under $tool" \
      on_ranks "$ranks" "${check[@]}" "$folder/nccl_test" ${words[@]+"${words[@]}"} || true
    [ -n "$without" ] || does "tests of the coordinator on $ranks rank(s) with devices under $tool" \
      on_ranks "$ranks" "${check[@]}" "$folder/gpu_test" ${words[@]+"${words[@]}"} || true
  done
fi
finish 0
