# Copyright (c) 2026 The cohort authors
# SPDX-License-Identifier: BSL-1.0
#
# How a test gets into the build and into ctest.
#
#   cohort_add_test(<layer>.<theme> SOURCES <file>... [LAYERS <layer>...]
#     [RANKS <n>... [ALSO <n>...]] [TIMEOUT <s>] [LABELS <label>...] [NO_MAIN] [HEADER_ONLY]
#     [ARGS <arg>...] [ALONE <file>...])
#
# One Catch2 executable. Without RANKS it is a pure test, `<layer>.<theme>`, that runs without
# mpiexec; with RANKS it gets the MPI main (tests/support/mpi_main.cpp) and one entry per number,
# `<layer>.<theme>.np<n>`. NO_MAIN is for a program with a `main` of its own, the target
# <layer>_<theme>_test; it gets its entries from cohort_add_run. LAYERS defaults to the layer in the
# name. The layer is a label; three more labels have a meaning for .ci/run: `threads` (runs under
# TSan), `sample` (one per layer, runs under g++ with ASan) and `ranks` (runs under mpiexec), which
# all that has RANKS gets by itself.
#
# A test runs on each number of ranks where the number matters, as in reductions, trees and sets,
# and else on 2 and 3: an even and an odd one. Numbers that tell little more stand behind ALSO, and
# run where COHORT_TEST_ALL_RANKS is on, as in scripts/check_everything.sh. COHORT_TEST_RANKS chooses
# from all of them.
#
# Tests of layers from comm on link cohort::compiled, unless they are HEADER_ONLY (one of each layer)
# or COHORT_TEST_HEADER_ONLY is on; the layers below are small.
#
# A program whose name COHORT_TEST_LEFT_OUT matches is not built with the others; who sets it leaves
# the same tests out of ctest's run.
#
# Where COHORT_UNITY_BUILD is on, as in scripts/test.sh and .ci/run, the SOURCES are compiled as one
# file, because most of the code of each is what they all instantiate. So two of them may not define
# the same name, not even in unnamed namespaces, unless one of them is listed as ALONE too.
#
#   cohort_add_run(<name> PROGRAM <target> [RANKS <n>... [ALSO <n>...]] [ARGS <arg>...]
#     [TIMEOUT <s>] [LABELS <label>...] [PRINTS <regex>]
#     [FAILS_WITH <regex> [WITHIN <s>] [STATUS <n>] [LINES <n>]])
#
# One more ctest entry per number of ranks for a program that exists: an example, or a test with
# other arguments (the layer in the name is a label here too). PRINTS: the output must match too.
# FAILS_WITH: the program must end within WITHIN seconds (default 5) with a non-zero status, and its
# output must match. STATUS: that status. LINES: the ranks write at most so many lines to stderr; the
# program must know of $COHORT_TEST_STDERR, see tests/support/expect_failure.sh.

include(CheckCXXSourceCompiles)

set(COHORT_TEST_COUNT_LIMIT 60)  # executables; more of them cost more in linking than they tell

function(cohort_add_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "NO_MAIN;HEADER_ONLY" "TIMEOUT"
    "SOURCES;LAYERS;RANKS;ALSO;LABELS;ARGS;ALONE")
  if(arg_UNPARSED_ARGUMENTS OR NOT arg_SOURCES OR NOT name MATCHES "^([a-z0-9_]+)[.]([a-z0-9_]+)$")
    message(FATAL_ERROR "cohort_add_test(${name}): see the usage in cmake/cohort_add_test.cmake")
  endif()
  set(layer "${CMAKE_MATCH_1}")
  set(target "${CMAKE_MATCH_1}_${CMAKE_MATCH_2}_test")
  if(NOT arg_LAYERS)
    set(arg_LAYERS ${layer})
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 60)
  endif()

  add_executable(${target} ${arg_SOURCES})
  set(files ${arg_SOURCES})
  list(FILTER files INCLUDE REGEX "[.]cpp$")
  list(LENGTH files count)
  if(count GREATER 1)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ${COHORT_UNITY_BUILD})
    set_source_files_properties(${arg_ALONE} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  endif()
  if(arg_RANKS OR arg_NO_MAIN)
    list(APPEND arg_LABELS ranks)
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:cohort_test_yield>)
    target_link_libraries(${target} PRIVATE ${CMAKE_DL_LIBS})
  endif()
  set_property(GLOBAL APPEND PROPERTY COHORT_TEST_TARGETS ${target})
  set(large_layers ${arg_LAYERS})
  list(REMOVE_ITEM large_layers core mpi progress protocol testing device)
  set(how header_only)
  if(COHORT_COMPILED AND large_layers AND NOT arg_HEADER_ONLY)
    set(how compiled)
    target_link_libraries(${target} PRIVATE ${COHORT_COMPILED})
  endif()
  cohort_link_layers(${target} ${arg_LAYERS})
  target_link_libraries(${target} PRIVATE cohort_own_flags)
  target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}/tests")
  if(arg_NO_MAIN)
    target_link_libraries(${target} PRIVATE Catch2::Catch2)
  elseif(arg_RANKS)
    target_link_libraries(${target} PRIVATE cohort_test_mpi_main_${how})
  else()
    target_link_libraries(${target} PRIVATE cohort_test_main)
  endif()
  list(REMOVE_ITEM arg_LAYERS core mpi protocol)
  if(arg_LAYERS)
    target_precompile_headers(${target} REUSE_FROM cohort_test_${how}_headers)
  else()
    target_precompile_headers(${target} REUSE_FROM cohort_test_plain_headers)
  endif()

  # Targets tests_<label>, so that a build of one label need not build the rest.
  foreach(label IN LISTS layer arg_LABELS)
    if(NOT TARGET tests_${label})
      add_custom_target(tests_${label})
    endif()
    if(NOT COHORT_TEST_LEFT_OUT OR NOT name MATCHES "${COHORT_TEST_LEFT_OUT}")
      add_dependencies(tests_${label} ${target})
    endif()
  endforeach()
  cohort_may_leave_out(${target} ${name})

  if(NOT arg_NO_MAIN)
    cohort_add_run(${name} PROGRAM ${target} RANKS ${arg_RANKS} ALSO ${arg_ALSO}
      ARGS ${arg_ARGS} TIMEOUT ${arg_TIMEOUT} LABELS ${arg_LABELS})
  endif()
endfunction()

function(cohort_may_leave_out target name)
  if(COHORT_TEST_LEFT_OUT AND name MATCHES "${COHORT_TEST_LEFT_OUT}")
    set_target_properties(${target} PROPERTIES EXCLUDE_FROM_ALL ON)
  endif()
endfunction()

# cohort_add_gpu_test(<layer>.<theme> SOURCES <file>... LAYERS <layer>... [LABELS <label>...])
#
# A test with the real CUDA and NCCL and a device for each rank, with the label `on_gpu`. Those of the
# layers have the label `on_gpu_layers` too, which is what the step clang-alone of
# scripts/check_everything.sh builds. ctest counts it as skipped on more ranks than there are devices.
function(cohort_add_gpu_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LAYERS;LABELS")
  cohort_add_test(${name} LAYERS ${arg_LAYERS} NO_MAIN LABELS on_gpu ${arg_LABELS} SOURCES ${arg_SOURCES})
  string(REPLACE "." "_" target "${name}_test")
  target_link_libraries(${target} PRIVATE ${COHORT_COMPILED_NCCL} cohort::nccl cohort_test_gpu_main cohort_test_catch)
  # g++ 12 at -O3 takes what an empty std::optional does not hold for something that is read.
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>
    -ffunction-sections -fno-jump-tables)  # see tests/support/double.hpp
  target_link_options(${target} PRIVATE -Wl,--gc-sections)
  cohort_add_run(${name} PROGRAM ${target} RANKS 1 2 3 4 TIMEOUT 300 LABELS on_gpu ${arg_LABELS})
  cohort_choose_ranks(chosen 1 2 3 4)
  foreach(ranks IN LISTS chosen)
    set_tests_properties(${name}.np${ranks} PROPERTIES SKIP_RETURN_CODE 77)
  endforeach()
endfunction()

function(cohort_add_run name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "PROGRAM;TIMEOUT;PRINTS;FAILS_WITH;WITHIN;STATUS;LINES"
    "RANKS;ALSO;ARGS;LABELS")
  if(arg_UNPARSED_ARGUMENTS OR NOT TARGET "${arg_PROGRAM}")
    message(FATAL_ERROR "cohort_add_run(${name}): see the usage in cmake/cohort_add_test.cmake")
  endif()
  if(name MATCHES "^([a-z0-9_]+)[.]")
    list(PREPEND arg_LABELS "${CMAKE_MATCH_1}")
    list(REMOVE_DUPLICATES arg_LABELS)
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 60)
  endif()
  if(arg_RANKS)
    list(APPEND arg_LABELS ranks)
    list(REMOVE_DUPLICATES arg_LABELS)
  endif()

  set(judge "")
  if(arg_FAILS_WITH)
    if(NOT arg_WITHIN)
      set(arg_WITHIN 5)
    endif()
    math(EXPR within "${arg_WITHIN} * ${COHORT_TEST_PATIENCE}")
    set(judge "${PROJECT_SOURCE_DIR}/tests/support/expect_failure.sh")
    if(DEFINED arg_STATUS)
      list(APPEND judge --status "${arg_STATUS}")
    endif()
    if(DEFINED arg_LINES)
      list(APPEND judge --lines "${arg_LINES}")
    endif()
    list(APPEND judge "${within}" "${arg_FAILS_WITH}")
  elseif(arg_PRINTS)
    set(judge "${PROJECT_SOURCE_DIR}/tests/support/expect_output.sh" "${arg_PRINTS}")
  endif()

  if(NOT arg_RANKS)
    add_test(NAME ${name} COMMAND ${judge} $<TARGET_FILE:${arg_PROGRAM}> ${arg_ARGS})
    cohort_test_properties(${name} ${arg_TIMEOUT} 1 ${arg_LABELS})
    return()
  endif()
  if(COHORT_TEST_ALL_RANKS OR COHORT_TEST_RANKS)
    list(APPEND arg_RANKS ${arg_ALSO})
  endif()
  cohort_choose_ranks(chosen ${arg_RANKS})
  foreach(ranks IN LISTS chosen)
    add_test(NAME ${name}.np${ranks}
      COMMAND ${judge} "${PROJECT_SOURCE_DIR}/scripts/mpirun.sh" ${ranks}
        $<TARGET_FILE:${arg_PROGRAM}> ${arg_ARGS})
    cohort_test_properties(${name}.np${ranks} ${arg_TIMEOUT} ${ranks} ${arg_LABELS})
  endforeach()
endfunction()

# cohort_add_fuzz(<layer>.<name> SOURCE <file> CORPUS <folder> LAYERS <layer>...)
#
# The program <layer>_fuzz_<name> and an entry that only shows that it runs. Hunt with
# <layer>_fuzz_<name> -max_total_time=600 <folder>. It needs libFuzzer, which comes with clang.
function(cohort_add_fuzz name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "SOURCE;CORPUS" "LAYERS")
  set(CMAKE_REQUIRED_FLAGS -fsanitize=fuzzer)
  check_cxx_source_compiles([[
#include <cstddef>
#include <cstdint>
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t*, std::size_t) { return 0; }
]] COHORT_HAS_LIBFUZZER)
  if(NOT COHORT_HAS_LIBFUZZER)
    return()
  endif()
  string(REPLACE "." "_fuzz_" program "${name}")
  string(REPLACE "." ".fuzz_" entry "${name}")
  list(TRANSFORM arg_LAYERS PREPEND cohort::)
  add_executable(${program} "${arg_SOURCE}")
  target_link_libraries(${program} PRIVATE ${arg_LAYERS} cohort_own_flags)
  target_include_directories(${program} PRIVATE "${PROJECT_SOURCE_DIR}/tests")
  target_compile_options(${program} PRIVATE -O1 -fsanitize=fuzzer,address,undefined)
  target_link_options(${program} PRIVATE -fsanitize=fuzzer,address,undefined)
  cohort_may_leave_out(${program} ${entry})
  set(found "${CMAKE_CURRENT_BINARY_DIR}/found_${program}")  # what is new goes to the first folder
  file(MAKE_DIRECTORY "${found}")
  cohort_add_run(${entry} PROGRAM ${program}
    ARGS -runs=3000 -seed=1 "${found}" "${CMAKE_CURRENT_SOURCE_DIR}/${arg_CORPUS}")
endfunction()

# cohort_choose_ranks(<variable> <n>...): those of the numbers on which a test runs in this build.
function(cohort_choose_ranks variable)
  set(all ${ARGN})
  list(SORT all COMPARE NATURAL)
  set(possible)
  set(chosen)
  foreach(ranks IN LISTS all)
    if(ranks GREATER COHORT_TEST_MAX_RANKS)
      continue()
    endif()
    list(APPEND possible ${ranks})
    if(NOT COHORT_TEST_RANKS OR ranks IN_LIST COHORT_TEST_RANKS)
      list(APPEND chosen ${ranks})
    endif()
  endforeach()
  if(possible AND NOT chosen)
    list(GET possible -1 chosen)
  endif()
  set(${variable} ${chosen} PARENT_SCOPE)
endfunction()

# cohort_test_properties(<test> <timeout> <processors> [<label>...])
#
# What may take long starts first, and the others run beside it. All time limits are multiplied by
# COHORT_TEST_PATIENCE, and so are those inside tests (tests/support/patience.hpp).
#
# MPICH's transport UCX replaces the C library's functions for memory, which AddressSanitizer has
# replaced before, and jumps into nothing; UCX_MEM_EVENTS keeps it from that.
#
# The launcher ends the job a little before ctest would kill the launcher, so that no rank is left
# behind.
#
# The sanitizers name functions, and so know the leaks of others in tests/support/lsan.supp, only
# with a symbolizer. Debian's clang looks for one under a name that its package does not install.
function(cohort_test_properties test timeout processors)
  find_program(COHORT_SYMBOLIZER NAMES llvm-symbolizer-19 llvm-symbolizer llvm-symbolizer-14)
  mark_as_advanced(COHORT_SYMBOLIZER)
  set(symbolizer)
  if(COHORT_SYMBOLIZER)
    set(symbolizer ";ASAN_SYMBOLIZER_PATH=${COHORT_SYMBOLIZER};TSAN_SYMBOLIZER_PATH=${COHORT_SYMBOLIZER}")
  endif()
  set(memory_events)
  if(CMAKE_CXX_FLAGS MATCHES "-fsanitize=address")
    set(memory_events "UCX_MEM_EVENTS=no;")
  endif()
  math(EXPR timeout "${timeout} * ${COHORT_TEST_PATIENCE}")
  math(EXPR ctest_timeout "${timeout} + 15")
  set(support "${PROJECT_SOURCE_DIR}/tests/support")
  set_tests_properties(${test} PROPERTIES
    TIMEOUT ${ctest_timeout}
    COST ${timeout}
    PROCESSORS ${processors}
    LABELS "${ARGN}"
    ENVIRONMENT "MPIEXEC=${COHORT_MPIEXEC};MPIEXEC_TIMEOUT=${timeout};\
COHORT_TEST_PATIENCE=${COHORT_TEST_PATIENCE};\
ASAN_OPTIONS=detect_stack_use_after_return=1;\
${memory_events}\
LSAN_OPTIONS=suppressions=${support}/lsan.supp:print_suppressions=0;\
UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1;\
TSAN_OPTIONS=suppressions=${support}/tsan.supp:halt_on_error=1${symbolizer}")
endfunction()

# cohort_link_layers(<target> <layer>...): the folders that share a target are mapped to it.
function(cohort_link_layers target)
  foreach(layer IN LISTS ARGN)
    if(layer MATCHES "^(collectives|p2p|shm)$")
      set(layer comm)
    endif()
    target_link_libraries(${target} PRIVATE cohort::${layer})
  endforeach()
endfunction()
