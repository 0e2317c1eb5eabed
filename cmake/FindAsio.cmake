# Copyright (c) 2026 The cohort authors
# SPDX-License-Identifier: BSL-1.0
#
# Finds standalone Asio (not Boost.Asio): a folder of headers and nothing else.
#
#   find_package(Asio 1.22.1 [REQUIRED] [GLOBAL])
#
# Target:    asio::asio (taken as it is if the project already has one)
# Result:    Asio_FOUND, Asio_VERSION
# Variable:  Asio_INCLUDE_DIR, the folder that holds asio/version.hpp; set it (or CMAKE_PREFIX_PATH)
#            for an Asio in an unusual place

if(TARGET asio::asio AND NOT Asio_INCLUDE_DIR)
  get_target_property(asio_existing_dirs asio::asio INTERFACE_INCLUDE_DIRECTORIES)
  find_path(Asio_INCLUDE_DIR NAMES asio/version.hpp HINTS ${asio_existing_dirs})
  unset(asio_existing_dirs)
endif()
find_path(Asio_INCLUDE_DIR NAMES asio/version.hpp DOC "The folder that holds asio/version.hpp")
mark_as_advanced(Asio_INCLUDE_DIR)

if(Asio_INCLUDE_DIR)
  # One number as in 102201 for 1.22.1.
  file(STRINGS "${Asio_INCLUDE_DIR}/asio/version.hpp" asio_version_line
    REGEX "^#define ASIO_VERSION [0-9]+")
  string(REGEX MATCH "[0-9]+" asio_version_number "${asio_version_line}")
  math(EXPR asio_version_major "${asio_version_number} / 100000")
  math(EXPR asio_version_minor "${asio_version_number} / 100 % 1000")
  math(EXPR asio_version_patch "${asio_version_number} % 100")
  set(Asio_VERSION "${asio_version_major}.${asio_version_minor}.${asio_version_patch}")
  unset(asio_version_line)
  unset(asio_version_number)
  unset(asio_version_major)
  unset(asio_version_minor)
  unset(asio_version_patch)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Asio
  REQUIRED_VARS Asio_INCLUDE_DIR
  VERSION_VAR Asio_VERSION
  REASON_FAILURE_MESSAGE
    "standalone Asio is a folder of headers (package libasio-dev on Debian and Ubuntu, asio on \
conda-forge and vcpkg), for a copy elsewhere set Asio_INCLUDE_DIR")

if(Asio_FOUND AND NOT TARGET asio::asio)
  add_library(asio::asio INTERFACE IMPORTED)
  target_include_directories(asio::asio INTERFACE "${Asio_INCLUDE_DIR}")
endif()
