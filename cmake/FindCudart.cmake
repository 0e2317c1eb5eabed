# Copyright (c) 2026 The cohort authors
# SPDX-License-Identifier: BSL-1.0
#
# Finds CUDA's runtime, its headers and its library, with or without nvcc: CMake's own
# FindCUDAToolkit takes no toolkit without one.
#
#   find_package(Cudart 12 [REQUIRED] [GLOBAL])
#
# Target:    CUDA::cudart, that of FindCUDAToolkit where this finds a toolkit
# Result:    Cudart_FOUND, Cudart_VERSION, Cudart_INCLUDE_DIR, Cudart_LIBRARY
# Looks in:  CUDAToolkit_ROOT, CUDA_HOME and CUDA_PATH (variables, or of the environment),
#            /usr/local/cuda, and where compilers look. A wheel's library, which has a version and no
#            link without one, is found too.
set(cudart_is_new TRUE)
if(TARGET CUDA::cudart)
  set(cudart_is_new FALSE)  # of a project around this one, which is the only one to change it
endif()
find_package(CUDAToolkit QUIET)
if(CUDAToolkit_FOUND AND TARGET CUDA::cudart)
  set(cudart_hints)
  list(GET CUDAToolkit_INCLUDE_DIRS 0 Cudart_INCLUDE_DIR)
  get_target_property(Cudart_LIBRARY CUDA::cudart IMPORTED_LOCATION)
else()
  set(cudart_hints "${CUDAToolkit_ROOT}" "$ENV{CUDAToolkit_ROOT}" "${CUDA_HOME}" "$ENV{CUDA_HOME}"
    "${CUDA_PATH}" "$ENV{CUDA_PATH}")
  list(REMOVE_ITEM cudart_hints "")
  if(NOT cudart_hints)
    set(cudart_hints /usr/local/cuda)
  endif()
  find_path(Cudart_INCLUDE_DIR NAMES cuda_runtime_api.h HINTS ${cudart_hints}
    PATH_SUFFIXES include)
  find_library(Cudart_LIBRARY NAMES cudart libcudart.so.13 libcudart.so.12 HINTS ${cudart_hints}
    PATH_SUFFIXES lib64 lib)
  mark_as_advanced(Cudart_INCLUDE_DIR Cudart_LIBRARY)
endif()
unset(cudart_hints)

unset(Cudart_VERSION)
if(Cudart_INCLUDE_DIR AND EXISTS "${Cudart_INCLUDE_DIR}/cuda_runtime_api.h")
  # One number as in 12040 for 12.4.
  file(STRINGS "${Cudart_INCLUDE_DIR}/cuda_runtime_api.h" cudart_number
    REGEX "define +CUDART_VERSION +[0-9]+" LIMIT_COUNT 1)
  string(REGEX MATCH "[0-9]+$" cudart_number "${cudart_number}")
  if(cudart_number)
    math(EXPR cudart_major "${cudart_number} / 1000")
    math(EXPR cudart_minor "${cudart_number} % 1000 / 10")
    set(Cudart_VERSION "${cudart_major}.${cudart_minor}")
  endif()
  unset(cudart_number)
  unset(cudart_major)
  unset(cudart_minor)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Cudart REQUIRED_VARS Cudart_LIBRARY Cudart_INCLUDE_DIR
  VERSION_VAR Cudart_VERSION)

if(Cudart_FOUND AND NOT TARGET CUDA::cudart)
  add_library(CUDA::cudart UNKNOWN IMPORTED)
  set_target_properties(CUDA::cudart PROPERTIES
    IMPORTED_LOCATION "${Cudart_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${Cudart_INCLUDE_DIR}")
endif()
if(Cudart_FOUND AND cudart_is_new)
  set_target_properties(CUDA::cudart PROPERTIES IMPORTED_GLOBAL TRUE)
endif()
unset(cudart_is_new)
