// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// A mark in a stream that remembers when it was reached.

#include <cohort/device/native.hpp>

#if COHORT_HAS_CUDA

#include <cohort/device/event.hpp>
#include <cohort/device/stream.hpp>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <optional>
#include <utility>

namespace cohort::device {

/// Owns a CUDA event with timing, which costs more than `event`: for measuring only. What it says
/// is a time of the device, to be compared with that of another one of the same device. Dropping it
/// in flight is fine.
///
/// *Errors*: nothing is thrown. False, or no time, is what CUDA does not answer; a sticky error is
/// noted, and after it CUDA is not called any more.
class timing_event : public detail::event_handle {
 public:
  timing_event() noexcept {}
  timing_event(timing_event&& other) noexcept = default;
  timing_event& operator=(timing_event&& other) noexcept = default;
  ~timing_event();

  /// Not recorded, and invalid if CUDA makes none.
  [[nodiscard]] static timing_event make(int device) noexcept;

  /// Behind what the stream has been given. The stream is not captured.
  bool record(const stream& on) noexcept;
  /// Asks CUDA, without waiting: `cudaSuccess`, `cudaErrorNotReady`, or what went wrong.
  [[nodiscard]] cudaError_t query() const noexcept;
  /// From there to here; both have been reached. CUDA gives milliseconds as a float, to half a
  /// microsecond at best.
  [[nodiscard]] std::optional<std::chrono::nanoseconds> since(
      const timing_event& earlier) const noexcept;

 private:
  /// A last error that nobody has caused but this.
  [[nodiscard]] bool went_well(cudaError_t code) const noexcept {
    if (code == cudaSuccess) return true;
    static_cast<void>(cudaGetLastError());
    if (code != cudaErrorNotReady) detail::note(code, device_, generation_);
    return false;
  }
  [[nodiscard]] bool is_there() const noexcept {
    return native_ != nullptr && state_of(device_).holds(generation_);
  }
};

inline timing_event timing_event::make(int device) noexcept {
  timing_event made;
  made.device_ = device;
  made.generation_ = state_of(device).generation();
  if (!state_of(device).holds(made.generation_)) return made;
  const detail::relaxed_capture may_make;
  int before = 0;
  if (!made.went_well(cudaGetDevice(&before)) || !made.went_well(cudaSetDevice(device)))
    return made;
  if (!made.went_well(cudaEventCreateWithFlags(&made.native_, cudaEventDefault))) {
    made.native_ = nullptr;
  }
  static_cast<void>(made.went_well(cudaSetDevice(before)));
  return made;
}

inline timing_event::~timing_event() {
  if (native_ == nullptr || !state_of(device_).may_free(generation_)) return;
  static_cast<void>(went_well(cudaEventDestroy(native_)));
}

inline bool timing_event::record(const stream& on) noexcept {
  return is_there() && on.is_alive() && went_well(cudaEventRecord(native_, on.get()));
}

inline cudaError_t timing_event::query() const noexcept {
  if (!is_there()) return cudaErrorContextIsDestroyed;
  const detail::relaxed_capture may_ask;
  const cudaError_t code = cudaEventQuery(native_);
  static_cast<void>(went_well(code));
  return code;
}

inline std::optional<std::chrono::nanoseconds> timing_event::since(
    const timing_event& earlier) const noexcept {
  float milliseconds = 0;
  if (!is_there() || !earlier.is_there()) return std::nullopt;
  const detail::relaxed_capture may_ask;
  if (!went_well(cudaEventElapsedTime(&milliseconds, earlier.native_, native_))) {
    return std::nullopt;
  }
  return std::chrono::nanoseconds(std::llround(static_cast<double>(milliseconds) * 1e6));
}

}  // namespace cohort::device

#endif
