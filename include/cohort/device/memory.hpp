// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// Where memory is, as CUDA knows it, and CUDA's own number types as elements of buffers.

#include <cohort/device/native.hpp>

#if COHORT_HAS_CUDA

#include <cohort/core/buffer.hpp>
#include <cohort/core/element.hpp>
#include <cohort/device/error.hpp>

#include <string>

// CUDA's headers need not be included to know the names of its types.
struct __half;         // NOLINT
struct __nv_bfloat16;  // NOLINT
struct __nv_fp8_e4m3;  // NOLINT
struct __nv_fp8_e5m2;  // NOLINT

namespace cohort {

template <>
struct element_traits<__half> {
  using as = f16;
};
template <>
struct element_traits<__nv_bfloat16> {
  using as = bf16;
};
// No element type has 8 bits: these are moved, and reduced by the direct verbs of `nccl` alone.
template <>
struct element_traits<__nv_fp8_e4m3> {
  using as = opaque;
};
template <>
struct element_traits<__nv_fp8_e5m2> {
  using as = opaque;
};

}  // namespace cohort

namespace cohort::device {

/// The space of the memory that `pointer` points into, and the device it belongs to: -1 for memory
/// that CUDA does not know, which is the host's, pageable. Without a device all memory is that.
/// Costs one call into CUDA. Throws std::system_error with CUDA's code.
[[nodiscard]] inline memory_location locate(const void* pointer) {
  if (pointer == nullptr) return {};
  cudaPointerAttributes found{};
  const cudaError_t code = cudaPointerGetAttributes(&found, pointer);
  if (code != cudaSuccess) {
    if (!is_no_device(code)) detail::throw_error_of_current(code, "cudaPointerGetAttributes");
    static_cast<void>(cudaGetLastError());
    return {};
  }
  switch (found.type) {
    case cudaMemoryTypeHost:
      return {memory_space::pinned, found.device, nullptr};
    case cudaMemoryTypeDevice:
      return {memory_space::device, found.device, nullptr};
    case cudaMemoryTypeManaged:
      return {memory_space::managed, found.device, nullptr};
    default:
      return {};
  }
}

namespace detail {

/// Throws unless a buffer is on the device of the stream that it is used with.
inline void check_device(int buffer, int device, const char* what) {
  if (buffer == device) return;
  throw error(errc::wrong_device, std::string(what) + " is on device " + std::to_string(buffer) +
                                      ", its stream on device " + std::to_string(device));
}

}  // namespace detail
}  // namespace cohort::device

#endif
