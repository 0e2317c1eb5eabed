#!/usr/bin/env bash
# Copyright (c) 2026 The cohort authors
# SPDX-License-Identifier: BSL-1.0
#
# check_everything.sh [STEP...]: what is too dear for every change, beside .ci/run, which it does
# not repeat: some hours on two cores. To be run before an issue is called resolved, whole or by
# steps:
#
#   all-ranks        every test on all its numbers of ranks, with g++ and Open MPI
#   header-only      all tests and examples without cohort::compiled
#   mpich            every test and example with g++ and MPICH, on all numbers of ranks
#   asan-ranks       the tests with clang's sanitizers and Open MPI on all their numbers of ranks;
#                    .ci/run has 3 ranks and MPICH
#   asan-gxx         one test of each layer with g++ and the address sanitizer
#   tsan-ranks       those with threads under the thread sanitizer on 2 and 4 ranks, gpu.* too
#   clang-alone      the benchmarks with clang, and the tests of the layers device and nccl with it and
#                    the real CUDA and NCCL, where those are
#   real-cuda        all tests for devices with the real CUDA and NCCL and g++
#   gpu-versions     headers and tests for every version of CUDA and NCCL that is known
#   mutants          every mutant of the protocol and of the task graph, 20 000 random jobs each
#   protocol         a million random jobs of the protocol, every interleaving of all small ones
#   graph            the same of the task graph, with 8 ranks too; damaged packets with sanitizers
#   fuzz             each fuzz target for two minutes
#   wrong-calls      what is to fail compiling, with clang; but for devices, where clang does not name
#                    the line of the caller of device::done
#   large            more than 2^31 elements, where there is memory for them
#   openings-openmpi, openings-mpich
#                    10 000 programs that open several things at once, on 2, 3 and 4 ranks, and 500
#                    more of them in fresh processes. Open MPI 5 is that of Debian 13:
#                    check_fresh_machine.sh trixie DIRECTORY openings
#   long-runs        a million calls of workers, ten thousand rounds of the rendezvous's races,
#                    a thousand random task graphs
#   stress           scripts/stress.sh, at least 20 rounds of all tests
#
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=scripts/steps.sh
. scripts/steps.sh
begin_steps build/everything

all_ranks() {
  tests_with openmpi "$gxx" build/everything-openmpi all . '^$' "${debug[@]}" \
    -DCOHORT_TEST_ALL_RANKS=ON -DCOHORT_TEST_PATIENCE=1
}
header_only() {
  tests_with openmpi "$gxx" build/everything-header-only all . \
    '^(tools|consumer)[.]|^protocol[.]' "${debug[@]}" -DCOHORT_TEST_HEADER_ONLY=ON
}
mpich() {
  tests_with mpich "$gxx" build/everything-mpich all . '^tools[.]' \
    "${debug[@]}" -DCOHORT_TEST_ALL_RANKS=ON
}
asan_ranks() {
  tests_with openmpi clang++-19 build/everything-asan all . \
    '^tools[.]|^compile_fail[.]|^consumer[.]' --preset asan-ubsan -DCOHORT_TEST_ALL_RANKS=ON "$unity"
}
asan_gxx() {
  tests_with openmpi "$gxx" build/ci-gxx-asan tests_sample '^sample$' '^$' --preset asan-ubsan \
    -DCMAKE_CXX_FLAGS=-fsanitize=address -DCOHORT_TEST_RANKS=2 "$unity"
}
tsan_ranks() {
  tests_with openmpi clang++-19 build/ci-tsan tests_threads '^threads$' '^$' --preset tsan \
    "-DCOHORT_TEST_RANKS=2;4" "$unity"
}
# On a machine without a device, tests on real libraries check that every rank is told so.
clang_alone() {
  local directory=build/everything-clang targets=benchmarks on_gpu=OFF
  if have_cuda; then targets+=" tests_on_gpu_layers" on_gpu=ON; fi
  built_with openmpi clang++-19 "$directory" "$targets" "${debug[@]}" -DCOHORT_BUILD_EXAMPLES=OFF \
    -DCOHORT_BUILD_BENCHMARKS=ON -DCOHORT_TEST_ON_GPU=$on_gpu "-DCOHORT_TEST_RANKS=1;3"
  scripts/run_tests.sh "$directory" --no-tests=error -j "$(test_jobs)" \
    -L '^(benchmarks|on_gpu_layers)$'
}
real_cuda() {
  have_cuda || return 0
  tests_with openmpi "$gxx" build/everything-cuda tests_on_gpu '^on_gpu$' '^examples[.]' \
    "${debug[@]}" -DCOHORT_BUILD_EXAMPLES=OFF -DCOHORT_TEST_ON_GPU=ON "-DCOHORT_TEST_RANKS=1;3"
}
gpu_versions() { TESTS=yes scripts/check_gpu_versions.sh mpicxx.openmpi; }
mutants() {
  tests/protocol/mutants.py --compiler "$gxx" --jobs "$(nproc)"
  tests/graph/mutants.py --compiler "$gxx" --jobs "$(nproc)"
}
protocol() {
  "$gxx" -std=c++20 -O2 -Iinclude -Itests tests/protocol/jobs.cpp -o build/everything/jobs
  build/everything/jobs small
  build/everything/jobs asked
  build/everything/jobs random "$(date +%s)000000" 1000000
}
graph() {
  "$gxx" -std=c++20 -O2 -Iinclude -Itests tests/graph/jobs.cpp -o build/everything/graph_jobs
  build/everything/graph_jobs small all
  build/everything/graph_jobs random "$(date +%s)000000" 1000000
  build/everything/graph_jobs random "$(date +%s)000000" 100000 --ranks 8
  "$gxx" -std=c++20 -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all -Iinclude -Itests \
    tests/graph/jobs.cpp -o build/everything/graph_jobs_asan
  build/everything/graph_jobs_asan random 1 20000
  build/everything/graph_jobs_asan damaged "$(date +%s)000000" 100000
}

# What is found is kept, and fails the step: libFuzzer then says where.
fuzz() {
  local program layer corpus
  built_with openmpi clang++-19 build/everything-fuzz \
    "protocol_fuzz_codec rendezvous_fuzz_node cluster_fuzz_message cluster_fuzz_frame graph_fuzz_packet" \
    "${debug[@]}" -DCOHORT_BUILD_EXAMPLES=OFF
  for program in build/everything-fuzz/tests/*/*_fuzz_*; do
    [ -f "$program" ] || continue
    layer=$(basename "$(dirname "$program")")
    corpus=tests/$layer/corpus
    [[ $program != *_frame ]] || corpus=tests/$layer/frame_corpus
    mkdir -p "$program-found"
    "$program" -max_total_time=120 -artifact_prefix="$program-found/" "$program-found" "$corpus"
  done
}

large() {
  local memory
  memory=$(awk '/^MemAvailable:/ { print int($2 / 1000000) }' /proc/meminfo)
  if [ "$memory" -lt 24 ]; then
    echo "skipped: this needs 24 GB of memory, and there are $memory"
    return
  fi
  built_with openmpi "$gxx" build/everything-openmpi \
    "collectives_large_test coordinator_order_test graph_ranks_test" \
    "${debug[@]}" -DCOHORT_TEST_ALL_RANKS=ON
  MPIEXEC=$mpiexec scripts/mpirun.sh 2 \
    build/everything-openmpi/tests/collectives/collectives_large_test "[large]"
  MPIEXEC=$mpiexec scripts/mpirun.sh 2 \
    build/everything-openmpi/tests/coordinator/coordinator_order_test "[large]"
  MPIEXEC=$mpiexec scripts/mpirun.sh 2 \
    build/everything-openmpi/tests/graph/graph_ranks_test "[large]"
}
# programs_with MPI: an opening is another one in a fresh process, where nothing is in stock.
programs_with() {
  local ranks seed program=build/everything-$1/tests/openings/openings_programs_test
  built_with "$1" "$gxx" "build/everything-$1" openings_programs_test "${debug[@]}" \
    -DCOHORT_TEST_ALL_RANKS=ON
  export MPIEXEC=$mpiexec
  for ranks in 2 3 4; do
    scripts/mpirun.sh "$ranks" "$program" --count 10000
  done
  for ((seed = 10000; seed < 10500; ++seed)); do
    scripts/mpirun.sh $((2 + seed % 3)) "$program" --first "$seed" --count 1
  done
}
openings_openmpi() { programs_with openmpi; }
openings_mpich() { programs_with mpich; }

wrong_calls() {
  tests_with openmpi clang++-19 build/everything-clang tests_core '^compile_fail$' \
    '^compile_fail[.]gpu$' "${debug[@]}" -DCOHORT_BUILD_EXAMPLES=OFF
}
long_runs() {
  built_with openmpi "$gxx" build/everything-openmpi "cluster_workers_test rendezvous_exchange_test graph_ranks_test" \
    "${debug[@]}" -DCOHORT_TEST_ALL_RANKS=ON -DCOHORT_TEST_PATIENCE=10
  COHORT_TEST_CALLS=1000000 COHORT_TEST_RACES=10000 scripts/run_tests.sh build/everything-openmpi \
    --no-tests=error -R '^(cluster[.]workers[.]calls|rendezvous[.]exchange[.]np[123])$'
  local ranks
  for ranks in 1 2 3; do
    scripts/mpirun.sh $ranks build/everything-openmpi/tests/graph/graph_ranks_test '[long]'
  done
}
stress() { ROUNDS=20 scripts/stress.sh . 0; }

known=(all-ranks header-only mpich asan-ranks asan-gxx tsan-ranks clang-alone real-cuda gpu-versions mutants
  protocol graph fuzz wrong-calls large openings-openmpi openings-mpich long-runs stress)
wanted=("$@")
[ $# -gt 0 ] || wanted=("${known[@]}")
for name in "${wanted[@]}"; do
  [[ " ${known[*]} " == *" $name "* ]] || die "no step '$name', only: ${known[*]}"
done
step install install_tools
for name in "${wanted[@]}"; do step "$name" "${name//-/_}"; done
end_steps 0
