// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file A lock for what takes a few hundred instructions and is hardly ever contended.

#include <sched.h>

#include <atomic>
#include <ctime>

namespace cohort {

namespace detail {
/// After so many looks at a lock that somebody else has: looks on, then yields the core, then
/// sleeps for 50 us at a time, for whoever holds it has lost its core, or blocks.
inline void wait_after(unsigned looks) noexcept {
  if (looks >= 2000) {
    const timespec moment{0, 50'000};
    ::nanosleep(&moment, nullptr);
  } else if (looks >= 100) {
    ::sched_yield();
  }
}
}  // namespace detail

/// Free, it costs one locked instruction for both ends, where `std::mutex` costs two and two calls.
/// A thread that has to wait looks on, then yields its core, then sleeps for 50 us at a time:
/// whoever holds it must not wait for anything. Not fair, and not to be taken twice. For
/// `std::unique_lock`.
class short_lock {
 public:
  short_lock() noexcept = default;
  short_lock(const short_lock&) = delete;
  short_lock& operator=(const short_lock&) = delete;

  void lock() noexcept {
    if (held_.exchange(true, std::memory_order_acquire)) wait();
  }
  [[nodiscard]] bool try_lock() noexcept {
    return !held_.load(std::memory_order_relaxed) &&
           !held_.exchange(true, std::memory_order_acquire);
  }
  void unlock() noexcept { held_.store(false, std::memory_order_release); }

  /// Holds it while it lives.
  class guard {
   public:
    explicit guard(short_lock& lock) noexcept : lock_(lock) { lock_.lock(); }
    ~guard() { lock_.unlock(); }
    guard(const guard&) = delete;
    guard& operator=(const guard&) = delete;

   private:
    short_lock& lock_;
  };

 private:
  void wait() noexcept {
    for (unsigned looks = 0; !try_lock(); ++looks) detail::wait_after(looks);
  }

  std::atomic<bool> held_{false};
};

}  // namespace cohort
