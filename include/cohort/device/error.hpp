// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// Return codes of CUDA as std::error_code, with CUDA's own text, and after which of them nothing
/// works any more.

#include <cohort/device/native.hpp>

#if COHORT_HAS_CUDA

#include <cohort/core/error.hpp>
#include <cohort/device/state.hpp>

#include <string>
#include <system_error>

namespace cohort::device {

/// The category of codes that CUDA returned; its name is "cuda".
const std::error_category& cuda_category() noexcept;

/// The code of a return value; no error for `cudaSuccess`. The three ways in which CUDA says that
/// there is nothing to work with (a stub library, a driver that is too old, no device) are
/// `errc::no_device`.
[[nodiscard]] std::error_code make_error(cudaError_t code) noexcept;

/// Whether CUDA says that there is no device, or no driver for it.
[[nodiscard]] constexpr bool is_no_device(cudaError_t code) noexcept;

/// Whether the device's context is broken for good: from then on every call answers that, and only
/// a new process helps.
[[nodiscard]] constexpr bool is_sticky(cudaError_t code) noexcept;

/// Whether the runtime is being unloaded, or somebody has reset the device: what was made before
/// has gone and is not to be destroyed. That is no fault in a destructor.
[[nodiscard]] constexpr bool is_gone(cudaError_t code) noexcept;

/// Throws std::system_error with the code and the name of the call unless it succeeded; what CUDA
/// remembers as its last error is then cleared. A sticky error makes the device lost.
void check(cudaError_t code, const char* call, int device);

/// Throws the sticky error of a device that is lost.
void check_usable(int device);

namespace detail {

class category final : public std::error_category {
 public:
  [[nodiscard]] const char* name() const noexcept override { return "cuda"; }

  [[nodiscard]] std::string message(int value) const override {
    const auto code = static_cast<cudaError_t>(value);
    std::string text = cudaGetErrorName(code);
    return text.append(": ").append(cudaGetErrorString(code));
  }

  [[nodiscard]] std::error_condition default_error_condition(int value) const noexcept override {
    switch (value) {
      case cudaErrorMemoryAllocation:
        return std::errc::not_enough_memory;
      case cudaErrorInvalidValue:
      case cudaErrorInvalidDevice:
        return std::errc::invalid_argument;
      case cudaErrorNotSupported:
        return std::errc::not_supported;
      default:
        return {value, *this};
    }
  }
};

/// Notes what `code`, returned by a call on what was made in `generation`, says about the device.
inline void note(cudaError_t code, int device, std::uint32_t generation) {
  if (is_sticky(code)) state_of(device).lose(code);
  if (is_gone(code)) state_of(device).context_gone(generation);
}

[[noreturn]] inline void throw_error(cudaError_t code, const char* call) {
  static_cast<void>(cudaGetLastError());  // reported here, so a later look must not find it
  const std::error_code error = make_error(code);
  std::string text = call;
  // The text of no_device hides which of the three it is.
  if (is_no_device(code)) text.append(": ").append(cuda_category().message(code));
  if (error.category() == cohort_category()) throw cohort::error(error, text);
  throw std::system_error(error, text);
}

/// The same for a call that names no device: its code is about the current one, which it may have
/// lost.
[[noreturn]] inline void throw_error_of_current(cudaError_t code, const char* call) {
  int device = -1;
  if (is_sticky(code) && cudaGetDevice(&device) == cudaSuccess && device >= 0 &&
      device < most_devices) {
    state_of(device).lose(code);
  }
  throw_error(code, call);
}

}  // namespace detail

inline const std::error_category& cuda_category() noexcept {
  static const detail::category& instance = *new detail::category;
  return instance;
}

constexpr bool is_no_device(cudaError_t code) noexcept {
  return code == cudaErrorStubLibrary || code == cudaErrorInsufficientDriver ||
         code == cudaErrorNoDevice;
}

// By number where an older toolkit has no name for it: the driver may be newer. These are the codes
// of which the headers say that the process must be ended, and uncorrectable faults of the
// hardware. They do not say so of 999, the unknown error.
constexpr bool is_sticky(cudaError_t code) noexcept {
  switch (static_cast<int>(code)) {
    case 214:  // an uncorrectable ECC error
    case 220:  // an uncorrectable NVLink error
    case 226:  // a contained error
    case 700:  // an illegal address
    case 702:  // a kernel took too long
    case 710:  // an assertion in a kernel
    case 714:  // the hardware's stack
    case 715:  // an illegal instruction
    case 716:  // a misaligned address
    case 717:  // an address of another space
    case 718:  // an invalid program counter
    case 719:  // a launch failed
    case 721:  // a leak of tensor memory
    case 810:  // the client of the multi-process service was ended
    case 911:  // a fault outside the device
      return true;
    default:
      return false;
  }
}

constexpr bool is_gone(cudaError_t code) noexcept {
  return code == cudaErrorCudartUnloading || code == cudaErrorDeviceUninitialized ||
         code == cudaErrorContextIsDestroyed;
}

inline std::error_code make_error(cudaError_t code) noexcept {
  if (is_no_device(code)) return errc::no_device;
  return {static_cast<int>(code), cuda_category()};
}

inline void check(cudaError_t code, const char* call, int device) {
  if (code == cudaSuccess) [[likely]]
    return;
  detail::note(code, device, state_of(device).generation());
  detail::throw_error(code, call);
}

inline void check_usable(int device) {
  const cudaError_t why = state_of(device).lost();
  if (why != cudaSuccess) [[unlikely]]
    detail::throw_error(why, "the device is lost since an earlier call");
}

}  // namespace cohort::device

#endif
