#!/bin/sh
# Copyright (c) 2026 The cohort authors
# SPDX-License-Identifier: BSL-1.0
#
# covers_everything.sh NM LIBRARY_OBJECT INTERPOSER_OBJECT INCLUDE_DIRECTORY
#
# 1. What the library's object code refers to must be defined by the interposer.
# 2. So must every MPI function that a header calls, whether that object instantiates it or not,
#    unless this MPI does not have it.
nm=$1 library=$2 interposer=$3 headers=$4
functions='^_?MPIX?_[A-Z][a-z][A-Za-z0-9_]*$'
undefined=$("$nm" -u "$library" | awk '{ print $NF }' | grep -E "$functions" | sort -u)
covered=$("$nm" "$interposer" | awk '$2 == "T" { print $3 }' | grep -E "$functions" | sort -u)
if [ "$(printf '%s\n' "$undefined" | wc -l)" -lt 20 ]; then
  echo "covers_everything: $library refers to hardly any MPI function; is it the right object?" >&2
  exit 1
fi

status=0
for name in $undefined; do
  if ! printf '%s\n' "$covered" | grep -q -x "$name"; then
    echo "covers_everything: the library calls $name, which the interposer does not have" >&2
    status=1
  fi
done

list=$(dirname "$0")/interposer.cpp
for name in $(grep -rhoE '\bMPI_[A-Z][a-z][A-Za-z0-9_]*\(' "$headers" | tr -d '(' | sort -u) \
  $(grep -rhoE '&MPI_[A-Z][A-Za-z0-9_]*_(c|init)\b' "$headers" | tr -d '&' | sort -u); do
  if ! grep -q -E "FAULTS_COVER(_PERSISTENT)?\(${name#MPI_},|int $name\(" "$list"; then
    echo "covers_everything: a header calls $name, which is missing in interposer.cpp" >&2
    status=1
  fi
done
[ "$status" -eq 0 ] && echo "$(printf '%s\n' "$undefined" | wc -l) functions called, all covered"
exit "$status"
