#!/usr/bin/env bash
# Copyright (c) 2026 The cohort authors
# SPDX-License-Identifier: BSL-1.0
#
# test_gpu.sh [COMPILER OPTION...]: compiles the tests of the layers device and nccl with the CUDA
# toolkit of this machine and runs them on its devices. The layer device needs a C++20 compiler, CUDA's
# headers and libcudart, and the headers of Asio and Catch2; no CMake, MPI or nvcc. The layer nccl also
# needs MPI and NCCL, and is skipped without them. Where things are:
#
#   CUDA_HOME           the toolkit (default /usr/local/cuda), or a wheel's folder with include/ and lib/
#   NCCL_HOME           a folder with include/nccl.h and lib/libnccl.so* (default CUDA_HOME, then /usr)
#   MPI_HOME            a folder with bin/mpicxx and bin/mpiexec (default: those of PATH)
#   ASIO_INCLUDE_DIR    holds asio/version.hpp, if the compiler does not find it
#   CATCH2_INCLUDE_DIR  holds catch2/; for version 3 also pass -L... -lCatch2
#   CXX                 the compiler (default g++)
#   TEST_ARGUMENTS      words for the test programs, a name of a test case say
#   TEST_RANKS          how many ranks (default: as many as there are devices, 4 at most)
#
# Where compute-sanitizer is, the tests run under it too. Exits with 77 where no device is.
set -euo pipefail
cd "$(dirname "$0")/.."
cuda=${CUDA_HOME:-/usr/local/cuda}
[ -e "$cuda/include/cuda_runtime.h" ] || { echo "no CUDA headers in $cuda/include"; exit 1; }

# library PREFIX NAME: wheels have a library with a version and no link without one.
library() {
  { find -L "$1"/lib64 "$1"/lib "$1"/lib/*-linux-gnu -maxdepth 1 -name "lib$2.so*" 2>/dev/null || true; } |
    sort | head -n 1
}

runtime=$(library "$cuda" cudart)
[ -n "$runtime" ] || { echo "no libcudart.so in $cuda/lib64 or $cuda/lib"; exit 1; }

options=(-std=c++20 -O1 -g1 -pthread -Iinclude -Itests -isystem "$cuda/include")
[ -z "${ASIO_INCLUDE_DIR-}" ] || options+=(-isystem "$ASIO_INCLUDE_DIR")
[ -z "${CATCH2_INCLUDE_DIR-}" ] || options+=(-isystem "$CATCH2_INCLUDE_DIR")
mkdir -p build/gpu-tests

# build PROGRAM COMPILER LIBRARIES SOURCE... -- OPTION...
build() {
  local program=build/gpu-tests/$1 compiler=$2 libraries=$3 objects=() object source
  shift 3
  while [ "$1" != -- ]; do
    source=$1 object=$program-$(basename "$1" .cpp).o
    shift
    "$compiler" "${options[@]}" "${own[@]}" -c "$source" -o "$object"
    objects+=("$object")
  done
  shift
  local link=() one
  for one in $libraries; do link+=("$one" "-Wl,-rpath,$(dirname "$one")"); done
  "$compiler" -pthread "${objects[@]}" "${link[@]}" "$@" -o "$program"
}

own=("$@")
compiler=${CXX:-g++}
build device_test "$compiler" "$runtime" \
  tests/device/{device_test,completion_test,graph_test,on_gpu_main}.cpp tests/support/catch_run.cpp -- "$@"
echo "compiled with $(grep -m1 -o 'CUDART_VERSION *[0-9]*' "$cuda/include/cuda_runtime_api.h")"

# The layer nccl: `without` is why not.
nccl=${NCCL_HOME:-$cuda}
[ -n "${NCCL_HOME-}" ] || [ -e "$nccl/include/nccl.h" ] || nccl=/usr
mpicxx=${MPI_HOME:+$MPI_HOME/bin/}mpicxx
mpiexec=${MPI_HOME:+$MPI_HOME/bin/}mpiexec
without=
if [ ! -e "$nccl/include/nccl.h" ]; then
  without="no nccl.h in $nccl/include: set NCCL_HOME"
elif [ -z "$(library "$nccl" nccl)" ]; then
  without="no libnccl.so in $nccl/lib64 or $nccl/lib"
elif ! command -v "$mpicxx" >/dev/null || ! command -v "$mpiexec" >/dev/null; then
  without="no $mpicxx and $mpiexec: set MPI_HOME"
else
  [ "$nccl" = /usr ] || own+=(-isystem "$nccl/include")
  export OMPI_CXX=$compiler MPICH_CXX=$compiler
  build nccl_test "$mpicxx" "$runtime $(library "$nccl" nccl)" \
    tests/nccl/verbs_test.cpp tests/support/{mpi_main,catch_run}.cpp -- "$@"
  echo "compiled with $(grep -m1 -o 'NCCL_VERSION_CODE *[0-9]*' "$nccl/include/nccl.h")"
fi
[ -z "$without" ] || echo "skipped: the tests of the layer nccl: $without"

read -r -a words <<<"${TEST_ARGUMENTS-}"
output=build/gpu-tests/device_test.txt
build/gpu-tests/device_test ${words[@]+"${words[@]}"} | tee "$output"

sanitizer=$(command -v compute-sanitizer || find -L "$cuda/bin" -name compute-sanitizer 2>/dev/null || true)
if [ -n "$sanitizer" ]; then
  "$sanitizer" --error-exitcode 1 build/gpu-tests/device_test ${words[@]+"${words[@]}"}
else
  echo "skipped: compute-sanitizer is not installed"
fi

# One rank for each device; two ranks on one device are refused.
if [ -z "$without" ]; then
  ranks=${TEST_RANKS:-$(sed -n 's/^device [0-9]* of \([0-9]*\):.*/\1/p' "$output")}
  [ "$ranks" -le 4 ] || ranks=4
  echo "the layer nccl on $ranks rank(s)"
  [ "$ranks" -gt 1 ] || echo "skipped: NCCL between devices, there is only one; NCCL launches no kernel then"
  "$mpiexec" -n "$ranks" build/gpu-tests/nccl_test ${words[@]+"${words[@]}"}
  echo "skipped: the tests in tests/nccl but verbs_test.cpp, which make the doubles fail"
fi
