#!/usr/bin/env bash
# Copyright (c) 2026 The cohort authors
# SPDX-License-Identifier: BSL-1.0
#
# stress_test.sh COMPILER: that scripts/stress.sh delays threads at calls, stops processes that make
# none, and counts. A thread that is alone gives up its core by itself only then.
set -euo pipefail
compiler=$1
scripts=$(cd "$(dirname "$0")/../../scripts" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cat >"$scratch/stopped.cpp" <<'TEXT'
#include <pthread.h>
#include <sys/resource.h>

#include <ctime>
#include <string>

static long switches() {
  rusage used;
  getrusage(RUSAGE_SELF, &used);
  return used.ru_nvcsw;
}

// Status 1: it was stopped.
int main(int, char** argv) {
  const long before = switches();
  if (argv[1] == std::string("locks")) {
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    for (int i = 0; i < 1000; ++i) {
      pthread_mutex_lock(&lock);
      pthread_mutex_unlock(&lock);
    }
  } else {
    while (std::clock() < CLOCKS_PER_SEC / 2) continue;
  }
  return switches() != before;
}
TEXT
"$compiler" -std=c++17 -O0 "$scratch/stopped.cpp" -o "$scratch/stopped_test" -pthread
cp "$scratch/stopped_test" "$scratch/other"  # not a name of a test: left alone
for program in stopped_test other; do
  for what in locks computes; do
    echo "add_test(\"$program.$what\" \"$scratch/$program\" $what)"
  done
done >"$scratch/CTestTestfile.cmake"

"$scratch/stopped_test" locks || { echo "it is stopped without any stress"; exit 1; }
status=0
BUILD=$scratch SEED=7 ROUNDS=3 CXX=$compiler "$scripts/stress.sh" . 0 >"$scratch/output" 2>&1 ||
  status=$?
cat "$scratch/output"
[ "$status" -eq 1 ]
grep -Eq '^ +[1-3] of +3  stopped_test.locks  \(seeds.* [789]' "$scratch/output"
grep -Eq '^ +[1-3] of +3  stopped_test.computes' "$scratch/output"
grep -Eq '^ +0 of +3  other.locks$' "$scratch/output"
grep -Eq '^ +0 of +3  other.computes$' "$scratch/output"
