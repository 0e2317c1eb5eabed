# Copyright (c) 2026 The cohort authors
# SPDX-License-Identifier: BSL-1.0
#
# An overlay port of the clone that it lies in. vcpkg does not see when the clone changes: give
# --no-binarycaching then. There is no feature for NCCL, as what is installed is the same with it.
get_filename_component(SOURCE_PATH "${CMAKE_CURRENT_LIST_DIR}/../../../.." ABSOLUTE)
set(VCPKG_BUILD_TYPE release)  # header-only

vcpkg_cmake_configure(
  SOURCE_PATH "${SOURCE_PATH}"
  OPTIONS
    -DCOHORT_BUILD_TESTS=OFF
    -DCOHORT_BUILD_EXAMPLES=OFF
    -DCOHORT_BUILD_BENCHMARKS=OFF
    -DCOHORT_CUDA=OFF)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(CONFIG_PATH share/cmake/cohort)
vcpkg_fixup_pkgconfig()
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
