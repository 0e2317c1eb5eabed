# Copyright (c) 2026 The cohort authors
# SPDX-License-Identifier: BSL-1.0
#
# What .ci/run and scripts/check_everything.sh share: steps that are timed, and how they end. To be
# sourced by bash after lib.sh.
# shellcheck shell=bash
export DEBIAN_FRONTEND=noninteractive
# shellcheck disable=SC2034  # the scripts read it
gxx=$(command -v g++-12 || echo g++)
failed=()
times=""
unity=-DCOHORT_UNITY_BUILD=ON
# shellcheck disable=SC2034  # the scripts read it
debug=(-DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG=-O0 -DCOHORT_BUILD_BENCHMARKS=OFF "$unity")

# begin_steps FOLDER: where the logs of the steps are.
begin_steps() {
  logs=$1
  mkdir -p "$logs"
  rm -rf "$logs"/*.log "$logs"/flaky
  export FLAKY=$PWD/$logs/flaky
}

# step NAME COMMAND...: logs and times it; a failure does not keep the others from running.
step() {
  local name=$1 started=$SECONDS status took
  shift
  say "[$name]"
  set +e
  (set -e; "$@") 2>&1 </dev/null | tee "$logs/$name.log"
  status=${PIPESTATUS[0]}
  set -e
  took=$((SECONDS - started))
  [ "$status" -eq 0 ] || failed+=("$name")
  times+=$(printf '%4d s  %-16s %s' "$took" "$name" "$([ "$status" -eq 0 ] || echo FAILED)")$'\n'
}

install_tools() {
  # llvm-19 has the symbolizer that the sanitizers' lists of known leaks need.
  apt_install ccache clang-19 libclang-rt-19-dev llvm-19 lld clang-format-19 libmpich-dev mpich \
    libopenmpi-dev openmpi-bin g++ cmake ninja-build libasio-dev libcli11-dev catch2 pkgconf \
    libeigen3-dev doxygen doxygen-awesome-css python3 python3-yaml
  # Kokkos, which not every Debian has.
  if apt-cache show libtrilinos-kokkos-dev >/dev/null 2>&1; then
    apt_install libtrilinos-kokkos-dev
  fi
}

# built_with MPI COMPILER DIRECTORY TARGETS CMAKE_ARGUMENTS...: builds the targets (words).
built_with() {
  local compiler=$2 directory=$3 targets=$4
  # shellcheck disable=SC2034  # lib.sh reads them
  mpi=$1 CXX=$compiler
  shift 4
  unset CC
  provide tests
  configure "$directory" "$@"
  # shellcheck disable=SC2086  # words
  build "$directory" $targets
}

# tests_with MPI COMPILER DIRECTORY TARGETS LABEL LEFT_OUT CMAKE_ARGUMENTS...: builds the targets
# and runs the tests whose label matches and whose name does not match LEFT_OUT. Programs that it
# matches are not built.
tests_with() {
  local directory=$3 label=$5 left_out=$6
  built_with "${@:1:4}" "${@:7}" "-DCOHORT_TEST_LEFT_OUT=$left_out"
  scripts/run_tests.sh "$directory" --no-tests=error -j "$(test_jobs)" -L "$label" -E "$left_out"
}

have_cuda() {
  [ -e "${CUDA_HOME:-/usr/local/cuda}/include/cuda_runtime.h" ] && return
  echo "skipped: there is no CUDA toolkit"
  return 1
}

# end_steps LEAST: says how long each step took and what was flaky, and ends the script. The last
# line adds up what ctest said in all of them, which have to have run at least so many tests.
end_steps() {
  local bad total one flaky least=$1
  say "time of each step"
  printf '%s' "$times"
  printf '%4d s  in all\n\n' "$SECONDS"

  # What passed when it was run once more: scripts/run_tests.sh fails a step for three of them, and
  # all steps together may not have more either.
  mapfile -t flaky < <(cat "$logs"/*.log | sed -n 's/^flaky: //p')
  for one in ${flaky[@]+"${flaky[@]}"}; do echo "flaky: $one"; done
  if [ ${#flaky[@]} -gt 2 ]; then failed+=("${#flaky[@]} flaky tests"); fi

  # The sum of the last lines like "100% tests passed, 0 tests failed out of 27" of each step.
  read -r bad total <<<"$(for log in "$logs"/*.log; do
    grep -E ' tests passed, [0-9]+ tests failed out of [0-9]+$' "$log" | tail -n 1
  done | awk '{ bad += $4; total += $NF } END { print bad + 0, total + 0 }')"
  if [ ${#failed[@]} -gt 0 ]; then
    echo "failed steps: ${failed[*]} ($bad of $total tests failed)"
    exit 1
  fi
  if [ "$total" -lt "$least" ] || [ "$bad" -ne 0 ]; then
    echo "$bad of $total tests failed"  # not even one ran, or a step hid a failure
    exit 1
  fi
  echo "100% tests passed, 0 tests failed out of $total"
}
