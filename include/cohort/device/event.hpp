// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// A mark in a stream, from a pool of events without timing.

#include <cohort/device/native.hpp>

#if COHORT_HAS_CUDA

#include <cohort/device/device.hpp>

#include <cstdint>
#include <utility>

namespace cohort::device {

namespace detail {

/// While it lives, this thread may ask for events although somebody captures a graph in the mode
/// that forbids it to all threads.
class relaxed_capture {
 public:
  relaxed_capture() noexcept { cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~relaxed_capture() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  relaxed_capture(const relaxed_capture&) = delete;
  relaxed_capture& operator=(const relaxed_capture&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

/// What owns a CUDA event: a move takes it along.
class event_handle {
 public:
  [[nodiscard]] bool valid() const noexcept { return native_ != nullptr; }

 protected:
  event_handle() noexcept {}
  explicit event_handle(int device) noexcept : device_(device) {}
  event_handle(event_handle&& other) noexcept
      : native_(std::exchange(other.native_, nullptr)),
        device_(other.device_),
        generation_(other.generation_) {}
  event_handle& operator=(event_handle&& other) noexcept {
    std::swap(native_, other.native_);
    std::swap(device_, other.device_);
    std::swap(generation_, other.generation_);
    return *this;
  }
  ~event_handle() = default;

  cudaEvent_t native_ = nullptr;
  int device_ = -1;
  std::uint32_t generation_ = 0;  // of the context that it belongs to, see device_state
};

}  // namespace detail

/// Tells whether the work that was in a stream when it was recorded (`stream::record()`) is done.
/// Owns a CUDA event of the process' pool, so making one costs a list pop after warm-up. Dropping
/// it in flight is fine. Not for timing, and not for other processes.
class event : public detail::event_handle {
 public:
  /// Of nothing.
  event() noexcept {}
  /// Not yet recorded. Throws std::system_error if CUDA makes none.
  explicit event(int device);
  event(event&& other) noexcept = default;
  event& operator=(event&& other) noexcept = default;
  ~event();

  [[nodiscard]] cudaEvent_t get() const noexcept { return native_; }
  [[nodiscard]] int device() const noexcept { return device_; }
  [[nodiscard]] std::uint32_t generation() const noexcept { return generation_; }

  /// One that has not been in the pool, so that its context is the one of now.
  [[nodiscard]] static event fresh(int device);

  /// Asks CUDA, without waiting: `cudaSuccess`, `cudaErrorNotReady`, or what went wrong. Leaves no
  /// last error behind. To be called in a scope of detail::relaxed_capture.
  [[nodiscard]] cudaError_t query() const noexcept;
  /// The same, throwing what went wrong, and fit to be called while others capture graphs.
  [[nodiscard]] bool is_ready() const;
};

inline event event::fresh(int device) {
  event made;
  made.device_ = device;
  made.generation_ = state_of(device).generation();
  const scoped_device on(device);
  const detail::relaxed_capture may_make;
  check(cudaEventCreateWithFlags(&made.native_, cudaEventDisableTiming), "cudaEventCreateWithFlags",
        device);
  return made;
}

inline event::event(int device) : event_handle(device) {
  device_state& state = state_of(device);
  check_usable(device);
  generation_ = state.generation();
  native_ = state.take_event();
  if (native_ == nullptr) *this = fresh(device);
}

inline event::~event() {
  if (native_ == nullptr) return;
  device_state& state = state_of(device_);
  if (!state.may_free(generation_) || state.keep_event(native_, generation_)) return;
  if (cudaEventDestroy(native_) != cudaSuccess) static_cast<void>(cudaGetLastError());
}

inline cudaError_t event::query() const noexcept {
  const cudaError_t code = cudaEventQuery(native_);
  // "Not ready" is an error for CUDA's memory of the last one, but not for the user's next look.
  if (code != cudaSuccess) static_cast<void>(cudaGetLastError());
  return code;
}

inline bool event::is_ready() const {
  const detail::relaxed_capture may_ask;
  const cudaError_t code = query();
  if (code == cudaErrorNotReady) return false;
  check(code, "cudaEventQuery", device_);
  return true;
}

}  // namespace cohort::device

#endif
