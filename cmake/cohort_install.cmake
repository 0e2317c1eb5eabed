# Copyright (c) 2026 The cohort authors
# SPDX-License-Identifier: BSL-1.0
#
# Installs the headers and a package for find_package(cohort). Nothing here depends on the
# architecture, so the package goes to share/.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_dir "${CMAKE_INSTALL_DATADIR}/cmake/cohort")

get_property(layers GLOBAL PROPERTY COHORT_LAYER_TARGETS)
install(TARGETS ${layers} EXPORT cohort_targets
  FILE_SET HEADERS DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
# Whether or not CUDA is here: where the package is used, it may be.
install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/cohort/device"
  "${PROJECT_SOURCE_DIR}/include/cohort/nccl"
  DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/cohort")
install(FILES "${PROJECT_SOURCE_DIR}/include/cohort/device.hpp"
  "${PROJECT_SOURCE_DIR}/include/cohort/nccl.hpp" "${PROJECT_SOURCE_DIR}/include/cohort/gpu.hpp"
  "${PROJECT_SOURCE_DIR}/include/cohort/src.hpp"
  DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/cohort")
install(EXPORT cohort_targets FILE cohort_targets.cmake NAMESPACE cohort::
  DESTINATION "${package_dir}")

# The library depends on the architecture, so its targets have an export of their own in lib/.
set(compiled_dir "${CMAKE_INSTALL_LIBDIR}/cmake/cohort")
if(COHORT_INSTALL_COMPILED)
  install(TARGETS cohort_compiled EXPORT cohort_compiled_targets
    ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}")
  install(EXPORT cohort_compiled_targets FILE cohort_compiled_targets.cmake NAMESPACE cohort::
    DESTINATION "${compiled_dir}")
endif()

# cohort.pc, and cohort-compiled.pc beside the library. They may be moved with what they are of.
function(cohort_install_pkgconfig name folder)
  file(RELATIVE_PATH cohort_to_prefix "/prefix/${folder}" "/prefix")
  string(REGEX REPLACE "/$" "" cohort_to_prefix "${cohort_to_prefix}")
  configure_file("${PROJECT_SOURCE_DIR}/packaging/pkgconfig/${name}.pc.in"
    "${PROJECT_BINARY_DIR}/${name}.pc" @ONLY)
  install(FILES "${PROJECT_BINARY_DIR}/${name}.pc" DESTINATION "${folder}")
endfunction()
cohort_install_pkgconfig(cohort "${CMAKE_INSTALL_DATADIR}/pkgconfig")
if(COHORT_INSTALL_COMPILED)
  cohort_install_pkgconfig(cohort-compiled "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
endif()

configure_package_config_file(
  "${PROJECT_SOURCE_DIR}/cmake/cohort-config.cmake.in"
  "${PROJECT_BINARY_DIR}/cohort-config.cmake"
  INSTALL_DESTINATION "${package_dir}" PATH_VARS compiled_dir)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/cohort-config-version.cmake"
  COMPATIBILITY SameMinorVersion ARCH_INDEPENDENT)
install(FILES
  "${PROJECT_BINARY_DIR}/cohort-config.cmake"
  "${PROJECT_BINARY_DIR}/cohort-config-version.cmake"
  "${PROJECT_SOURCE_DIR}/cmake/FindAsio.cmake"
  "${PROJECT_SOURCE_DIR}/cmake/FindCudart.cmake"
  "${PROJECT_SOURCE_DIR}/cmake/FindNCCL.cmake"
  "${PROJECT_SOURCE_DIR}/cmake/src/gpu/nccl.cpp"
  DESTINATION "${package_dir}")
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE"
  DESTINATION "${CMAKE_INSTALL_DATADIR}/licenses/cohort")
