# Copyright (c) 2026 The cohort authors
# SPDX-License-Identifier: BSL-1.0
#
# Finds NCCL, its header and its library: below NCCL_ROOT (a variable, or of the environment), below
# the CUDA toolkit (find_package(Cudart) comes first), or where compilers look. Makes the target NCCL::NCCL. A wheel's library, which
# has a version and no link without one, is found too.
find_path(NCCL_INCLUDE_DIR NAMES nccl.h HINTS ${Cudart_INCLUDE_DIR})
find_library(NCCL_LIBRARY NAMES nccl libnccl.so.2 HINTS ${Cudart_INCLUDE_DIR}/..
  PATH_SUFFIXES lib lib64)
mark_as_advanced(NCCL_INCLUDE_DIR NCCL_LIBRARY)

if(NCCL_INCLUDE_DIR)
  file(STRINGS "${NCCL_INCLUDE_DIR}/nccl.h" nccl_lines REGEX "define NCCL_(MAJOR|MINOR|PATCH) ")
  string(REGEX REPLACE "[^0-9]+" "." NCCL_VERSION "${nccl_lines}")
  string(REGEX REPLACE "^[.]|[.]$" "" NCCL_VERSION "${NCCL_VERSION}")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(NCCL REQUIRED_VARS NCCL_LIBRARY NCCL_INCLUDE_DIR
  VERSION_VAR NCCL_VERSION)

if(NCCL_FOUND AND NOT TARGET NCCL::NCCL)
  add_library(NCCL::NCCL UNKNOWN IMPORTED)
  set_target_properties(NCCL::NCCL PROPERTIES
    IMPORTED_LOCATION "${NCCL_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${NCCL_INCLUDE_DIR}"
    IMPORTED_GLOBAL TRUE)
endif()
