#!/bin/sh
# Copyright (c) 2026 The cohort authors
# SPDX-License-Identifier: BSL-1.0
#
# make_packages.sh BUILD FOLDER NAME CMAKE_ARGUMENTS...: what the packages of a release are made by,
# and what is in them. It leaves in FOLDER:
#
#   NAME.tar.gz   the source, from the build folder BUILD
#   deb/          what the .deb would install, of the source in that archive
#   binary/       the same of the binary .tar.gz, where there is no dpkg in deb/usr too
set -eu
build=$1 folder=$2 name=$3
shift 3
rm -rf "$folder"
mkdir -p "$folder/binary" "$folder/deb/usr"
cd "$folder"

cpack --config "$build/CPackSourceConfig.cmake" -B "$folder"
tar xzf "$name.tar.gz"
[ -x "$name/.ci/run" ] && [ ! -e "$name/.git" ] && [ ! -e "$name/build" ]

# Who has no Catch2 and no CLI11 gets a project without programs of its own.
cmake -S "$name" -B bare -DCMAKE_DISABLE_FIND_PACKAGE_Catch2=ON \
  -DCMAKE_DISABLE_FIND_PACKAGE_CLI11=ON "$@" >configure.log 2>&1 || { cat configure.log; exit 1; }
for left in "tests are left out, Catch2" "examples are left out, CLI11" \
  "benchmarks are left out, CLI11"; do
  grep -q "$left" configure.log || { echo "it does not say: $left"; exit 1; }
done
(cd bare && cpack -B "$folder")

tar xzf "$name-"*.tar.gz -C binary --strip-components 1
if command -v dpkg >/dev/null; then
  dpkg -x libcohort-dev_*_all.deb deb
else
  cp -r binary/* deb/usr/
fi
# Every header is installed.
diff -r binary deb/usr
diff -r "$name/include" deb/usr/include
