// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// What the host's steady clock showed when a device came to an event.

#include <cohort/device/native.hpp>

#if COHORT_HAS_CUDA

#include <cohort/device/timing_event.hpp>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <utility>

namespace cohort::device {

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
    /// When it was reached, on the host's clock; or nothing, if CUDA does not say. `reached` was
    /// recorded later, has been reached, and this one too.
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
  /// By what the base event before says, unless the clocks have drifted apart since.
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
