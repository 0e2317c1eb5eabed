// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// Tells the verbs of MPI which memory is that of a device, where they ask (`checks::cross_rank`).

#include <cohort/device/native.hpp>

#if COHORT_HAS_CUDA

#include <cohort/comm/memory_check.hpp>
#include <cohort/core/buffer.hpp>
#include <cohort/device/memory.hpp>

#include <exception>

namespace cohort::staging {

/// Managed memory is none: the host may touch it. One query of CUDA.
[[nodiscard]] inline bool is_device_memory(const void* pointer) noexcept {
  try {
    return device::locate(pointer).space == memory_space::device;
  } catch (const std::exception&) {
    return false;  // a device that fails says so elsewhere
  }
}

namespace detail {
inline const bool asked = [] {
  comm::device_memory_question().store(&is_device_memory, std::memory_order_release);
  return true;
}();
}  // namespace detail
}  // namespace cohort::staging

#endif
