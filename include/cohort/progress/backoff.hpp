// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// How often an engine looks, how long it spins, and how long it sleeps when that has not helped.

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <optional>

namespace cohort::progress {

/// The numbers of the engine. The defaults are measured (`docs/design/engine.md`); all can be set
/// with `cohort::use_engine(io, options)` before the first communicator is made.
struct engine_options {
  using duration = std::chrono::nanoseconds;

  /// Quiet time during which the loop spins before it sleeps, plus `spin_per_byte` for each byte
  /// that pending operations move. Environment: `COHORT_SPIN_US`.
  duration spin = std::chrono::microseconds(50);
  duration spin_per_byte = std::chrono::nanoseconds(1);
  /// Spin where ranks outnumber cores: the rank waited for needs this core.
  duration spin_oversubscribed = std::chrono::microseconds(5);
  duration first_nap = std::chrono::microseconds(10);  ///< doubles up to `nap`
  duration nap = std::chrono::microseconds(250);
  duration long_nap = std::chrono::milliseconds(1);  ///< after `long_nap_after` of quiet
  duration long_nap_after = std::chrono::milliseconds(100);
  /// After `longest_nap_after` of quiet; an upper bound of every nap.
  /// Environment: `COHORT_LONGEST_WAIT_US`.
  duration longest_nap = std::chrono::milliseconds(4);
  duration longest_nap_after = std::chrono::seconds(1);

  unsigned short_lap = 8;   ///< looks per lap while the loop has other handlers
  unsigned long_lap = 128;  ///< looks per lap while it has none, at most `long_lap_time` of them
  duration long_lap_time = std::chrono::microseconds(4);
  unsigned short_laps = 64;  ///< laps that stay short after another handler was seen

  /// How long a context that is destroyed waits for what is in flight.
  duration drain = std::chrono::seconds(30);
  /// The same, for everything together, while an exception is on its way.
  duration drain_after_failure = std::chrono::seconds(2);

  /// The program promises that one thread makes every call: no lock is taken around MPI. A second
  /// engine in the process is then refused.
  bool single_thread = false;

  /// The defaults, with what the environment says.
  [[nodiscard]] static engine_options from_environment() {
    engine_options result;
    if (const auto us = read("COHORT_SPIN_US")) result.spin = std::chrono::microseconds(*us);
    if (const auto us = read("COHORT_LONGEST_WAIT_US")) {
      result.longest_nap = std::chrono::microseconds(std::max(*us, 1L));
    }
    return result;
  }

 private:
  /// A whole, non-negative number; anything else counts as not set.
  static std::optional<long> read(const char* name) noexcept {
    const char* text = std::getenv(name);
    if (text == nullptr) return std::nullopt;
    const char* end = text + std::strlen(text);
    long value = 0;
    const auto [stop, error] = std::from_chars(text, end, value);
    if (error != std::errc{} || stop != end || value < 0) return std::nullopt;
    return value;
  }
};

/// Decides between another look and a nap. Pure: the caller brings the time.
class backoff {
 public:
  using time_point = std::chrono::steady_clock::time_point;
  using duration = std::chrono::nanoseconds;

  /// Something was started or has finished: spin again.
  void reset(time_point now, const engine_options& options) noexcept {
    quiet_since_ = now;
    next_ = options.first_nap;
  }

  [[nodiscard]] duration quiet(time_point now) const noexcept { return now - quiet_since_; }

  /// True while it is still worth looking again at once.
  [[nodiscard]] bool spins(time_point now, std::size_t bytes, bool oversubscribed,
                           const engine_options& options) const noexcept {
    if (oversubscribed) return quiet(now) < std::min(options.spin, options.spin_oversubscribed);
    return quiet(now) < options.spin + options.spin_per_byte * static_cast<long>(bytes);
  }

  /// Whether naps are as long already as they get before `long_nap_after`.
  [[nodiscard]] bool long_quiet(time_point now, const engine_options& options) const noexcept {
    return next_ >= std::min(options.nap, options.longest_nap) ||
           quiet(now) >= options.long_nap_after;
  }

  /// How long to sleep now; the next answer is longer.
  [[nodiscard]] duration nap(time_point now, const engine_options& options) noexcept {
    const duration waited = quiet(now);
    duration result = next_;
    if (waited >= options.longest_nap_after) {
      result = options.longest_nap;
    } else if (waited >= options.long_nap_after) {
      result = options.long_nap;
    } else {
      next_ = std::min(next_ * 2, options.nap);
    }
    return std::min(result, options.longest_nap);
  }

 private:
  time_point quiet_since_{};
  duration next_{};
};

/// How many looks a lap makes: few while the loop has other handlers, and else as many as fit into
/// a time. Pure.
class lap_pace {
 public:
  using duration = std::chrono::nanoseconds;

  explicit lap_pace(const engine_options& options) noexcept : long_budget_(options.long_lap) {}

  /// Of a lap in which nobody else uses the loop; more if that has been so for long.
  [[nodiscard]] unsigned long_round() const noexcept { return long_budget_ << stretch(); }
  /// Such looks have found nothing in that time.
  void looks_took(duration cost, const engine_options& options) noexcept {
    const auto allowed = options.long_lap_time * (1U << stretch());
    if (cost > allowed) long_budget_ = std::max(long_budget_ / 2, 1U);
    if (cost * 2 < allowed) long_budget_ = std::min(long_budget_ * 2, options.long_lap);
  }

  void others_ran(const engine_options& options) noexcept {
    short_laps_ = options.short_laps;
    alone_ = 0;
  }
  void nobody_ran() noexcept { ++alone_; }
  [[nodiscard]] bool is_short() const noexcept { return short_laps_ > 0; }
  /// Whether the clock is to be read after it: that costs as much as two looks.
  bool end_short() noexcept {
    if (short_laps_ > 0) --short_laps_;
    return (short_laps_ & 7U) == 0;
  }

 private:
  [[nodiscard]] unsigned stretch() const noexcept { return std::min(alone_ / 16, 3U); }

  unsigned long_budget_;
  unsigned short_laps_ = 0;
  unsigned alone_ = 0;  // long rounds since another handler was seen
};

}  // namespace cohort::progress
