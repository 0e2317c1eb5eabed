#!/bin/sh
# Copyright (c) 2026 The cohort authors
# SPDX-License-Identifier: BSL-1.0
#
# without_cmake.sh FOLDER [PACKAGE PATH]: compiles main.cpp in FOLDER with MPI's compiler wrapper
# $MPICXX and runs it on two ranks. It has the flags of PACKAGE, which pkg-config looks for in PATH;
# where none is named, it has all of cohort in one header.
set -eu
folder=$1
here=$(cd "$(dirname "$0")" && pwd)
scripts=$here/../../scripts
rm -rf "$folder"
mkdir -p "$folder"
cd "$folder"

if [ $# -gt 1 ]; then
  flags=$(PKG_CONFIG_PATH=$3 pkg-config --cflags --libs "$2")
else
  "$scripts/amalgamate" single/cohort/cohort.hpp
  flags="-Isingle -Wall -Wextra -Werror"
  double=$here/../support/fake_gpu/include
  printf '#include <cohort/cohort.hpp>\nstatic_assert(COHORT_HAS_NCCL);\n' >gpu.cpp
  # shellcheck disable=SC2086  # words
  "$MPICXX" -std=c++20 $flags -DCOHORT_WITH_GPU -isystem "$double" -fsyntax-only -c gpu.cpp
fi
# shellcheck disable=SC2086  # words
"$MPICXX" -std=c++20 ${CXXFLAGS-} "$here/main.cpp" $flags -o consumer
"$scripts/mpirun.sh" 2 ./consumer
