// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// The sources of an engine, as one. This room has what an engine is made of: sources and started
/// operations enter, finished operations leave for the lap.

#include <cohort/core/config.hpp>
#include <cohort/progress/operation.hpp>
#include <cohort/progress/polled_source.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

namespace cohort::progress {

/// Written by one thread at a time, so that no read-modify-write is needed; read by any.
class relaxed_counter {
 public:
  void add(std::uint64_t n) noexcept { value_.store(get() + n, std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t get() const noexcept {
    return value_.load(std::memory_order_relaxed);
  }

 private:
  std::atomic<std::uint64_t> value_{0};
};

/// The sources of an engine. It only grows while the engine lives, and what is in it stays where it
/// is, so a lap can go through it while another thread adds a source.
class source_list {
 public:
  static constexpr std::size_t most = 16;

  /// Borrows the source. Throws std::length_error when there is no room.
  void add(polled_source& one);
  /// The same for what stands for a class without that base.
  void add(const void* stands_for, std::unique_ptr<polled_source> one);
  /// At the end, when no lap runs. Looks into none of them: others may have gone without a word.
  void remove(const void* attached) noexcept;

  /// Looks until something is found or the budget is spent, of which a look at dear sources takes
  /// more. Returns how many operations have been found.
  std::size_t look(ready_queue& ready, unsigned& budget);

  [[nodiscard]] std::size_t pending() const {
    std::size_t sum = 0;
    for (const polled_source* const one : all()) sum += one->pending();
    return sum;
  }
  [[nodiscard]] std::size_t bytes() const {
    std::size_t sum = 0;
    for (const polled_source* const one : all()) sum += one->bytes();
    return sum;
  }
  /// The shortest of the longest naps that sources allow and `nap`.
  [[nodiscard]] std::chrono::nanoseconds longest_nap(std::chrono::nanoseconds nap) const {
    for (const polled_source* const one : all()) nap = std::min(nap, one->longest_nap());
    return nap;
  }
  [[nodiscard]] bool only_announced() const;

  /// They are parked if the answer is `quiet`. `rings`: there is a bell.
  [[nodiscard]] park_result park(ready_queue& ready, bool rings) const;
  void unpark() const { for_each(&polled_source::unpark); }

  void leave() const { for_each(&polled_source::leave); }
  void end() const { for_each(&polled_source::end); }
  void abandon() const { for_each(&polled_source::abandon); }
  void describe(std::string& text) const {
    for (polled_source* const one : all()) one->describe(text);
  }
  void tick(steady_clock::time_point now) const {
    for (polled_source* const one : all()) one->tick(now);
  }

  /// Looks at all of them, and operations whose outcome one has found.
  [[nodiscard]] std::uint64_t tests() const noexcept { return tests_.get(); }
  [[nodiscard]] std::uint64_t completions() const noexcept { return completions_.get(); }

 private:
  static constexpr unsigned dear_look = 16;  // takes as much of a lap as so many others
  struct adapter {
    const void* stands_for;
    std::unique_ptr<polled_source> source;
  };

  [[nodiscard]] std::span<polled_source* const> all() const noexcept {
    return {all_.data(), size_.load(std::memory_order_acquire)};
  }
  void for_each(void (polled_source::*call)()) const {
    for (polled_source* const one : all()) (one->*call)();
  }
  [[nodiscard]] bool only_dear_pending() const;
  std::size_t look_at_each(ready_queue& ready);

  std::array<polled_source*, most> all_{};
  std::atomic<std::size_t> size_{0};
  std::vector<adapter> adapters_;
  std::mutex adding_;
  relaxed_counter tests_;
  relaxed_counter completions_;
};

}  // namespace cohort::progress

#ifndef COHORT_SEPARATE_COMPILATION
#include <cohort/progress/engine/sources.ipp>
#endif
