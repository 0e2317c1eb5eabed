#!/usr/bin/env bash
# Copyright (c) 2026 The cohort authors
# SPDX-License-Identifier: BSL-1.0
#
# test_gpu.sh [COMPILER OPTION...]: compiles the tests of the device layer with the CUDA toolkit of
# this machine and runs them on its devices. It needs a C++20 compiler, CUDA's headers and libcudart,
# and the headers of Asio and Catch2; no CMake, MPI or nvcc. Where things are:
#
#   CUDA_HOME           the toolkit (default /usr/local/cuda), or a wheel's folder with include/ and lib/
#   ASIO_INCLUDE_DIR    holds asio/version.hpp, if the compiler does not find it
#   CATCH2_INCLUDE_DIR  holds catch2/; for version 3 also pass -L... -lCatch2
#   CXX                 the compiler (default g++)
#   TEST_ARGUMENTS      words for the test program, a name of a test case say
#
# Where compute-sanitizer is, the tests run under it too. Exits with 77 where no device is.
set -euo pipefail
cd "$(dirname "$0")/.."
cuda=${CUDA_HOME:-/usr/local/cuda}
[ -e "$cuda/include/cuda_runtime.h" ] || { echo "no CUDA headers in $cuda/include"; exit 1; }

# Wheels have a library with a version and no link without one.
runtime=$(find -L "$cuda"/lib64 "$cuda"/lib -maxdepth 1 -name 'libcudart.so*' 2>/dev/null | sort | head -n 1)
[ -n "$runtime" ] || { echo "no libcudart.so in $cuda/lib64 or $cuda/lib"; exit 1; }

options=(-std=c++20 -O1 -g1 -pthread -Iinclude -Itests -isystem "$cuda/include")
[ -z "${ASIO_INCLUDE_DIR-}" ] || options+=(-isystem "$ASIO_INCLUDE_DIR")
[ -z "${CATCH2_INCLUDE_DIR-}" ] || options+=(-isystem "$CATCH2_INCLUDE_DIR")
mkdir -p build/gpu-tests
program=build/gpu-tests/device_test
objects=()
for source in tests/device/{device_test,completion_test,on_gpu_main}.cpp tests/support/catch_run.cpp; do
  object=build/gpu-tests/$(basename "$source" .cpp).o
  "${CXX:-g++}" "${options[@]}" "$@" -c "$source" -o "$object"
  objects+=("$object")
done
"${CXX:-g++}" -pthread "${objects[@]}" "$runtime" "-Wl,-rpath,$(dirname "$runtime")" "$@" -o "$program"
echo "compiled with $(grep -m1 -o 'CUDART_VERSION *[0-9]*' "$cuda/include/cuda_runtime_api.h")"

read -r -a words <<<"${TEST_ARGUMENTS-}"
"$program" ${words[@]+"${words[@]}"}

sanitizer=$(command -v compute-sanitizer || find -L "$cuda/bin" -name compute-sanitizer 2>/dev/null || true)
if [ -n "$sanitizer" ]; then
  "$sanitizer" --error-exitcode 1 "$program" ${words[@]+"${words[@]}"}
else
  echo "skipped: compute-sanitizer is not installed"
fi
