# Copyright (c) 2026 The cohort authors
# SPDX-License-Identifier: BSL-1.0
#
# Included by the projects beside it: a user's programs on devices with WITH_GPU, and without it a
# check that nothing of that layer is there.
if(WITH_GPU)
  # cohort needs no compiler of CUDA's, and here none can have been found.
  get_property(languages GLOBAL PROPERTY ENABLED_LANGUAGES)
  if("CUDA" IN_LIST languages OR CMAKE_CUDA_COMPILER OR CUDAToolkit_NVCC_EXECUTABLE)
    message(FATAL_ERROR "there is an nvcc: '${CMAKE_CUDA_COMPILER}${CUDAToolkit_NVCC_EXECUTABLE}'")
  endif()
  add_executable(consumer ../gpu.cpp)
  target_link_libraries(consumer PRIVATE cohort::nccl)
  if(WITH_COMPILED)
    target_link_libraries(consumer PRIVATE cohort::compiled_nccl)
  endif()
  add_executable(consumer_device ../device.cpp)
  target_link_libraries(consumer_device PRIVATE cohort::device)
else()
  foreach(layer IN ITEMS device nccl)
    if(TARGET cohort::${layer})
      message(FATAL_ERROR "there is a target cohort::${layer}, which nobody has asked for")
    endif()
  endforeach()
  add_executable(consumer ../main.cpp ../without_gpu.cpp)
  target_link_libraries(consumer PRIVATE cohort::cohort)
  if(WITH_COMPILED)
    target_link_libraries(consumer PRIVATE cohort::compiled)
    add_library(consumer_plugin SHARED ../main.cpp)  # it links
    target_link_libraries(consumer_plugin PRIVATE cohort::compiled)
    target_link_options(consumer_plugin PRIVATE -Wl,--no-undefined)
  endif()
endif()
