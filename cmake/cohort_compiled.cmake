# Copyright (c) 2026 The cohort authors
# SPDX-License-Identifier: BSL-1.0
#
# cohort::compiled: the bodies of the layers that need no GPU, compiled once, and the definition that
# keeps them out of the headers of who links it. It is built only where something links it, or to be
# installed. Position-independent, so that it can be part of a plugin too; g++ must be told that
# nobody replaces its functions, or it would not inline them.
function(cohort_allow_in_plugins target)
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_compile_options(${target} PRIVATE
    $<$<CXX_COMPILER_ID:GNU>:-fno-semantic-interposition>)
endfunction()

file(GLOB sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/cmake/src/*.cpp")
add_library(cohort_compiled STATIC EXCLUDE_FROM_ALL ${sources})
add_library(cohort::compiled ALIAS cohort_compiled)
set_target_properties(cohort_compiled PROPERTIES EXPORT_NAME compiled)
target_compile_definitions(cohort_compiled PUBLIC COHORT_SEPARATE_COMPILATION)
target_link_libraries(cohort_compiled PUBLIC cohort::cohort)
cohort_allow_in_plugins(cohort_compiled)
if(COHORT_INSTALL_COMPILED)
  set_target_properties(cohort_compiled PROPERTIES EXCLUDE_FROM_ALL OFF)
endif()

# cohort::compiled_nccl: the same of the layer nccl. It is built where it is used, also where the
# package is installed: cohort-config.cmake makes it there.
if(TARGET cohort_nccl)
  add_library(cohort_compiled_nccl STATIC EXCLUDE_FROM_ALL "${PROJECT_SOURCE_DIR}/cmake/src/gpu/nccl.cpp")
  add_library(cohort::compiled_nccl ALIAS cohort_compiled_nccl)
  target_link_libraries(cohort_compiled_nccl PUBLIC cohort::compiled cohort::nccl)
  cohort_allow_in_plugins(cohort_compiled_nccl)
endif()
