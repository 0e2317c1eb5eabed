# Copyright (c) 2026 The cohort authors
# SPDX-License-Identifier: BSL-1.0
#
# Everything that is for people who work on cohort and never for its users: tests, examples and
# benchmarks, each only where its packages are installed.
option(COHORT_WARNINGS_AS_ERRORS "Compiler warnings are errors in cohort's own programs"
  ${PROJECT_IS_TOP_LEVEL})
option(COHORT_UNITY_BUILD "Compile the files of a test or benchmark as one: a build from scratch \
takes half the time, one after a change longer" OFF)
option(COHORT_TEST_HEADER_ONLY "No test, example or benchmark links cohort::compiled" OFF)
set(COHORT_TEST_MAX_RANKS 4 CACHE STRING "Tests that need more ranks than this are left out")
option(COHORT_TEST_ALL_RANKS "Run each test on the numbers of ranks too that tell little more" OFF)
set(COHORT_TEST_RANKS "" CACHE STRING "Run each test only on these of all its numbers of ranks, or \
on its largest if it has none of them (empty: on those that tell most)")
set(COHORT_TEST_LEFT_OUT "" CACHE STRING "Test programs whose names match this are not built with \
the others")
set(patience 1)
if(CMAKE_CXX_FLAGS MATCHES "-fsanitize=")
  set(patience 4)
endif()
set(COHORT_TEST_PATIENCE ${patience} CACHE STRING "A whole number that multiplies all time limits \
of tests, those inside them too")

set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Type of build" FORCE)
endif()

# One MPI beside another is chosen by its compiler wrapper (-DMPI_C_COMPILER=mpicc.mpich); the
# launcher that belongs to it has the same suffix, and FindMPI would take plain mpiexec.
if(MPI_C_COMPILER MATCHES "[.](mpich|openmpi)$")
  find_program(COHORT_MPIEXEC NAMES "mpiexec.${CMAKE_MATCH_1}")
else()
  find_program(COHORT_MPIEXEC NAMES "${MPIEXEC_EXECUTABLE}" mpiexec mpirun)
endif()

# What every program of ours is compiled with.
add_library(cohort_own_flags INTERFACE)
target_compile_options(cohort_own_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor
  $<$<BOOL:${COHORT_WARNINGS_AS_ERRORS}>:-Werror>)

# g++ collects its garbage whenever its heap has grown by a third, which costs an eighth of the time
# of compiling a test; let it first fill a gigabyte.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(cohort_own_flags INTERFACE --param=ggc-min-heapsize=1000000)
  if(COHORT_UNITY_BUILD)  # it takes the files that are compiled as one for headers
    target_compile_options(cohort_own_flags INTERFACE -Wno-subobject-linkage)
  endif()
endif()

# Linkers that take a fifth or two fifths of the time of the usual one.
find_program(COHORT_FAST_LINKER NAMES ld.lld ld.gold)
if(COHORT_FAST_LINKER MATCHES "ld[.](lld|gold)$")
  target_link_options(cohort_own_flags INTERFACE -fuse-ld=${CMAKE_MATCH_1})
endif()

# What tests, examples and benchmarks link beside the layers that they use.
set(COHORT_COMPILED cohort::compiled)
set(COHORT_COMPILED_NCCL "")
if(COHORT_TEST_HEADER_ONLY)
  set(COHORT_COMPILED "")
elseif(TARGET cohort::compiled_nccl)
  set(COHORT_COMPILED_NCCL cohort::compiled_nccl)
endif()
foreach(target IN ITEMS cohort_compiled cohort_compiled_nccl)
  if(TARGET ${target})
    # Its files are compiled one by one also where those of tests are not.
    target_compile_options(${target} PRIVATE
      $<TARGET_PROPERTY:cohort_own_flags,INTERFACE_COMPILE_OPTIONS>
      $<$<CXX_COMPILER_ID:GNU>:-Wsubobject-linkage>)
  endif()
endforeach()

if(CMAKE_CXX_FLAGS MATCHES "-fsanitize=")
  add_library(cohort_keep_loaded OBJECT tests/support/keep_loaded.cpp)
  target_link_libraries(cohort_own_flags INTERFACE $<TARGET_OBJECTS:cohort_keep_loaded>)
  add_dependencies(cohort_own_flags cohort_keep_loaded)
  target_link_options(cohort_own_flags INTERFACE -Wl,--export-dynamic-symbol=dlclose)
  if(CMAKE_CXX_FLAGS MATCHES "undefined")  # whatever a build leaves out in tests
    set(COHORT_POINTER_CHECKS -fsanitize=null,alignment)
    target_compile_options(cohort_compiled PRIVATE ${COHORT_POINTER_CHECKS})
  endif()
endif()

include(CTest)
include(cohort_add_test)

find_package(CLI11 QUIET)
if(COHORT_BUILD_TESTS)
  find_package(Catch2 QUIET)
  if(Catch2_FOUND)
    add_subdirectory(tests)
  else()
    message(STATUS "cohort: tests are left out, Catch2 2.13 or 3 (package catch2) was not found")
  endif()
endif()
foreach(part IN ITEMS examples benchmarks)
  string(TOUPPER "COHORT_BUILD_${part}" wanted)
  if(${wanted})
    if(CLI11_FOUND)
      add_subdirectory(${part})
    else()
      message(STATUS "cohort: ${part} are left out, CLI11 (package libcli11-dev) was not found")
    endif()
  endif()
endforeach()
