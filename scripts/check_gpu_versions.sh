#!/usr/bin/env bash
# Copyright (c) 2026 The cohort authors
# SPDX-License-Identifier: BSL-1.0
#
# check_gpu_versions.sh [MPICXX]: compiles the headers of the layers device and nccl, and the
# coordinator's backend, for versions of CUDA and NCCL. Nothing is linked or run.
#
# - With the declarations of the test doubles, which leave out what older versions lack, and give
#   ncclConfig_t the fields of newer ones. This shows that the library uses nothing that a version
#   lacks as far as the doubles know it, and no more than that.
# - With real headers: those of the toolkit (CUDA_HOME, or /usr/local/cuda), and those in HEADERS, a
#   word for each combination: "CUDA'S_INCLUDE_FOLDER" or "NCCL'S:CUDA'S". Packages of Debian that are
#   unpacked with `dpkg-deb -x` will do.
# - CUDA_VERSIONS and NCCL_VERSIONS choose among those of the doubles.
# - TESTS=yes compiles the tests of the layers nccl and device too, for each of these versions of NCCL;
#   this takes some minutes.
#
# The last lines say for each version how it was checked.
set -euo pipefail
cd "$(dirname "$0")/.."
export mpicxx=${1:-mpicxx}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
double=tests/support/fake_gpu/include
toolkit=${CUDA_HOME:-/usr/local/cuda}/include
cuda_versions=${CUDA_VERSIONS:-"12.0 12.8 13.0"}
nccl_versions=${NCCL_VERSIONS:-"2.18.1 2.18.5 2.19.3 2.20.5 2.21.5 2.22.3 2.23.4 2.24.3 2.25.1 2.26.2
  2.27.3 2.28.3 2.28.9 2.29.7 2.30.7"}

{
  printf '#include <%s>\n' cohort/gpu.hpp cohort/nccl/backend.hpp cohort/device/staged_copy.hpp
} >"$scratch/headers.cpp"
printf '#include <cohort/device.hpp>\n' >"$scratch/device.cpp"
# One file for all tests of a layer: most of each is what they all instantiate.
for layer in nccl device; do
  for test in "$PWD/tests/gpu/$layer"/*_test.cpp; do
    case $test in
      */device/nccl_*_test.cpp | */device/double_test.cpp) ;;  # of the doubles
      *) printf '#include "%s"\n' "$test" ;;
    esac
  done >"$scratch/tests_$layer.cpp"
done

# check NAME FILE OPTION...: prints the name if it compiles, else what the compiler says.
check() {
  if "$mpicxx" -std=c++20 -fsyntax-only -Wall -Wextra -Werror -Wno-unknown-warning-option \
    -Wno-subobject-linkage -Iinclude -Itests \
    "${@:3}" "$2" >"$0.log.$$" 2>&1; then
    echo "compiles: $1"
  else
    cat "$0.log.$$" >&2
    echo "DOES NOT: $1"
    return 1
  fi
}
export -f check

# Prints one line for each check: a name without blanks, a file, options.
checks() {
  local version minor patch number headers cuda nccl
  files() {  # NAME OPTIONS
    echo "$1,headers $scratch/headers.cpp $2"
    [ "${TESTS-}" != yes ] || echo "$1,tests_of_nccl $scratch/tests_nccl.cpp $2"
  }
  for version in $nccl_versions; do
    IFS=. read -r _ minor patch <<<"$version"
    files "NCCL_$version,of_the_double" "-isystem $double -DNCCL_MINOR=$minor -DNCCL_PATCH=$patch"
  done
  for version in $cuda_versions; do
    IFS=. read -r number minor <<<"$version"
    echo "CUDA_$version,of_the_double,headers $scratch/device.cpp -isystem $double -DCUDART_VERSION=$((number * 1000 + minor * 10))"
  done
  for headers in $([ ! -e "$toolkit/cuda_runtime.h" ] || echo "$toolkit") ${HEADERS-}; do
    cuda=${headers##*:}
    nccl=${headers%%:*}
    version=$(sed -n 's/^#define CUDART_VERSION *\([0-9]*\)/\1/p' "$cuda/cuda_runtime_api.h" | head -n 1)
    version=$((version / 1000)).$((version % 1000 / 10))
    if [ -e "$nccl/nccl.h" ]; then
      number=$(sed -n 's/^#define NCCL_\(MAJOR\|MINOR\|PATCH\) //p' "$nccl/nccl.h" | tr '\n' . | sed 's/[.]$//')
      files "CUDA_$version,NCCL_$number,real" "-isystem $nccl -isystem $cuda"
      echo "CUDA_$version,NCCL_$number,real,what_the_double_declares tests/gpu/device/nccl_abi.cpp -isystem $nccl -isystem $cuda"
    else
      echo "CUDA_$version,real,headers $scratch/device.cpp -isystem $cuda"
    fi
    [ "${TESTS-}" != yes ] ||
      echo "CUDA_$version,real,tests_of_device $scratch/tests_device.cpp -isystem $cuda"
  done
}
# shellcheck disable=SC2016  # $@ is for the inner shell
checks | xargs -L 1 -P "$(nproc)" bash -c 'check "$@"' "$scratch/check" >"$scratch/results" || failed=yes
sed 's/,/, /g; s/_/ /g' "$scratch/results" | sort -V
[ -z "${failed-}" ] || exit 1
