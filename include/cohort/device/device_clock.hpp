// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// A mark in a stream that remembers when it was reached, and what the host's steady clock showed
/// then.

#include <cohort/device/native.hpp>

#if COHORT_HAS_CUDA

#include <cohort/device/stream.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

namespace cohort::device {

/// Owns a CUDA event with timing, which costs more than `event`: for measuring only. What it says
/// is a time of the device, to be compared with that of another one of the same device. Dropping it
/// in flight is fine.
///
/// *Errors*: nothing is thrown. False, or no time, means that CUDA has given no answer; a sticky
/// error is noted, and after it CUDA is not called any more.
class timing_event : public detail::event_handle {
 public:
  timing_event() noexcept {}
  timing_event(timing_event&& other) noexcept = default;
  timing_event& operator=(timing_event&& other) noexcept = default;
  ~timing_event();

  /// Not recorded, and invalid if CUDA makes none.
  [[nodiscard]] static timing_event make(int device) noexcept;

  /// Records it behind what the stream has been given; never on a stream that is captured.
  bool record(const stream& on) noexcept;
  /// Asks CUDA, without waiting: `cudaSuccess`, `cudaErrorNotReady`, or what went wrong.
  [[nodiscard]] cudaError_t query() const noexcept;
  /// The time from `earlier` to this one, which both have been reached. CUDA gives milliseconds as
  /// a float, to half a microsecond at best.
  [[nodiscard]] std::optional<std::chrono::nanoseconds> since(
      const timing_event& earlier) const noexcept;

 private:
  /// Clears CUDA's last error, which this call has caused, and notes a sticky one.
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

/// Relates the time of a device to the host's.
///
/// CUDA tells only how long after another event an event was reached. So base events are recorded
/// in a stream of their own, which nothing holds up, and the host notes the time before it records
/// one and the time when it first sees that it was reached. The event was reached in between: that
/// interval, mapped to the next base event and cut with what was seen of that, is how well the two
/// clocks are known. There is a new base event each second, because clocks drift and because
/// CUDA's float is coarse over longer times, and sooner as long as the interval is a long one.
///
/// *Threads*: none of its own; one at a time. *Cost*: `look` asks CUDA for up to `longest_look`
/// after a new base event, and else reads a clock. It never waits for the device.
class device_clock {
 public:
  using clock = std::chrono::steady_clock;
  static constexpr auto longest_look = std::chrono::microseconds(20);
  static constexpr auto period = std::chrono::seconds(1);
  static constexpr auto well_known = std::chrono::microseconds(50);
  static constexpr auto soon = std::chrono::milliseconds(10);

  /// An event, and the interval in which the device came to it.
  class base {
   public:
    /// When `reached` was reached, on the host's clock; or nothing, if CUDA does not say. It was
    /// recorded later than this one, and both have been reached.
    [[nodiscard]] std::optional<clock::time_point> time_of(
        const timing_event& reached) const noexcept {
      const auto passed = reached.since(event_);
      if (!passed || !known_) return std::nullopt;
      return least_ + (most_ - least_) / 2 + *passed;
    }
    [[nodiscard]] bool known() const noexcept { return known_; }
    /// How far off that may be, beside drift since then.
    [[nodiscard]] std::chrono::nanoseconds error() const noexcept { return (most_ - least_) / 2; }

   private:
    friend class device_clock;
    timing_event event_;
    clock::time_point least_{};
    clock::time_point most_{};
    clock::time_point seen_{};
    bool known_ = false;
  };

  /// Throws what making a stream throws.
  explicit device_clock(int device) : on_(device) {}

  /// Records a base event if it is time for one, and looks whether the last one was reached.
  void look() {
    if (!asked_ && is_due()) ask();
    if (asked_) listen();
  }
  /// The one to map later events by. Null: none has been recorded.
  [[nodiscard]] std::shared_ptr<const base> latest() const noexcept { return now_ ? now_ : asked_; }

 private:
  [[nodiscard]] bool is_due() const noexcept {
    return !now_ || clock::now() - now_->seen_ > (now_->error() > well_known ? soon : period);
  }
  void ask() {
    if (!on_.is_alive()) return;
    auto made = std::make_shared<base>();
    made->event_ = timing_event::make(on_.device());
    made->least_ = clock::now();
    if (made->event_.record(on_)) asked_ = std::move(made);
  }
  void listen() noexcept {
    const auto until = clock::now() + longest_look;
    cudaError_t code = cudaErrorNotReady;
    while (code == cudaErrorNotReady) {
      code = asked_->event_.query();
      if (code == cudaErrorNotReady && clock::now() >= until) return;
    }
    const auto seen = clock::now();
    const auto fresh = std::exchange(asked_, nullptr);
    if (code != cudaSuccess) return;
    fresh->most_ = fresh->seen_ = seen;
    if (now_) narrow(*fresh);
    fresh->known_ = true;
    now_ = fresh;
  }
  /// Cuts the interval by that of the base event before, unless the clocks have drifted apart.
  void narrow(base& fresh) const noexcept {
    const auto passed = fresh.event_.since(now_->event_);
    if (!passed) return;
    const auto least = std::max(fresh.least_, now_->least_ + *passed);
    const auto most = std::min(fresh.most_, now_->most_ + *passed);
    if (least > most) return;
    fresh.least_ = least;
    fresh.most_ = most;
  }

  stream on_;
  std::shared_ptr<base> now_;
  std::shared_ptr<base> asked_;  // recorded, not seen to be reached
};

}  // namespace cohort::device

#endif
