// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The lock that serialises calls into MPI below MPI_THREAD_MULTIPLE.
///
///     const cohort::mpi::lock calls;  // around calls of MPI of your own, beside the library's
///     MPI_Ibarrier(MPI_COMM_WORLD, &request);

#include <cohort/core/short_lock.hpp>
#include <cohort/mpi/native.hpp>

#include <atomic>

namespace cohort::mpi {

namespace detail {

/// First come, first served: a thread that posts waits for one lap at most, where a mutex would let
/// the lapping thread, which takes it again at once, pass it over and over. Free, it costs one
/// locked instruction instead of two, at every post and every lap.
class turn_lock {
 public:
  void lock() noexcept {
    const unsigned mine = next_.fetch_add(1, std::memory_order_relaxed);
    for (unsigned looks = 0; served_.load(std::memory_order_acquire) != mine; ++looks) {
      cohort::detail::wait_after(looks);
    }
  }
  void unlock() noexcept {
    served_.store(served_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }

 private:
  std::atomic<unsigned> next_{0};
  std::atomic<unsigned> served_{0};
};

inline constinit turn_lock call_lock;
inline constinit thread_local bool holds_call_lock = false;

}  // namespace detail

/// Holds the process-wide lock of MPI while it lives. The library takes one per lap and one per
/// post; take one around raw MPI calls of your own that run beside the library.
///
/// It is taken at level SERIALIZED only: below it there is one thread, above it MPI locks by
/// itself. Threads are served in the order in which they ask. Taking it twice on one thread is
/// allowed and costs nothing the second time. Never block on another thread while holding it: the
/// others yield their core but do not sleep. Cost when free: about 5 ns.
class [[nodiscard]] lock {
 public:
  lock() : lock(true) {}
  /// With false nothing is locked: for an engine that was promised a single thread.
  explicit lock(bool take);
  ~lock();
  lock(const lock&) = delete;
  lock& operator=(const lock&) = delete;

  /// Whether this thread holds the lock now.
  [[nodiscard]] static bool held() noexcept;

  /// For regions that are no scope, such as a lap of the engine: takes the lock as the constructor
  /// does and says whether it did; only then call release(), on the same thread.
  [[nodiscard]] static bool acquire();
  static void release() noexcept;

 private:
  bool owns_ = false;
};

inline lock::lock(bool take) : owns_(take && acquire()) {}

inline lock::~lock() {
  if (owns_) {
    release();
  }
}

inline bool lock::acquire() {
  if (level() != thread_level::serialized || detail::holds_call_lock) {
    return false;
  }
  detail::call_lock.lock();
  detail::holds_call_lock = true;
  return true;
}

inline void lock::release() noexcept {
  detail::holds_call_lock = false;
  detail::call_lock.unlock();
}

inline bool lock::held() noexcept { return detail::holds_call_lock; }

}  // namespace cohort::mpi
