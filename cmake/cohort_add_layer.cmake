# Copyright (c) 2026 The cohort authors
# SPDX-License-Identifier: BSL-1.0
#
# cohort_add_layer(<name> FOLDERS <folder>... LINKS <target>...)
#
# Declares the header-only target cohort::<name>. Its headers are those of include/cohort/<folder>/
# and the gate header include/cohort/<folder>.hpp: the folder is the list, as the layer check
# (scripts/check_layers.sh) has it too, so a new header needs no entry here.
function(cohort_add_layer name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "FOLDERS;LINKS")
  set(root "${PROJECT_SOURCE_DIR}/include")
  set(headers "")
  foreach(folder IN LISTS arg_FOLDERS)
    file(GLOB_RECURSE found CONFIGURE_DEPENDS "${root}/cohort/${folder}/*.hpp"
      "${root}/cohort/${folder}/*.ipp")
    file(GLOB gate CONFIGURE_DEPENDS "${root}/cohort/${folder}.hpp")
    list(APPEND headers ${gate} ${found})
  endforeach()

  set(target cohort_${name})
  if(name STREQUAL "cohort")
    set(target cohort)
  endif()
  add_library(${target} INTERFACE)
  add_library(cohort::${name} ALIAS ${target})
  target_sources(${target} INTERFACE
    FILE_SET HEADERS BASE_DIRS "${root}" FILES ${headers})
  target_compile_features(${target} INTERFACE cxx_std_20)
  target_link_libraries(${target} INTERFACE ${arg_LINKS})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name})
  if(NOT PROJECT_IS_TOP_LEVEL)
    set_target_properties(${target} PROPERTIES SYSTEM ON)  # no warnings of ours in a user's build
  endif()
  # What needs CUDA is not part of the package's list of targets: that one fits every machine, and
  # cohort-config.cmake makes cohort::device and cohort::nccl where CUDA and NCCL are.
  if(NOT name MATCHES "^(device|nccl)$")
    set_property(GLOBAL APPEND PROPERTY COHORT_LAYER_TARGETS ${target})
  endif()
endfunction()
