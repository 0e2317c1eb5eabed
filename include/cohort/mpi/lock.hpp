// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The lock that serialises calls into MPI below MPI_THREAD_MULTIPLE.

#include <cohort/mpi/state.hpp>

#include <mutex>

namespace cohort::mpi {

/// Holds the process-wide mutex of MPI while it lives. The library takes one per lap and one per
/// post; take one around raw MPI calls of your own that run beside the library.
///
/// The mutex is taken at level SERIALIZED only: below it there is one thread, above it MPI locks
/// by itself. Taking it twice on one thread is allowed and costs nothing the second time.
/// Never block on another thread while holding it. Cost when free: about 15 ns.
class [[nodiscard]] lock {
 public:
  lock() : lock(true) {}
  /// With false nothing is locked: for an engine that was promised a single thread.
  explicit lock(bool take);
  ~lock();
  lock(const lock&) = delete;
  lock& operator=(const lock&) = delete;

  /// Whether this thread holds the mutex now.
  [[nodiscard]] static bool held() noexcept;

  /// For regions that are no scope, such as a lap of the engine: takes the mutex as the constructor
  /// does and says whether it did; only then call release(), on the same thread.
  [[nodiscard]] static bool acquire();
  static void release() noexcept;

 private:
  bool owns_ = false;
};

namespace detail {
inline std::mutex call_mutex;
inline constinit thread_local bool holds_call_mutex = false;
}  // namespace detail

inline lock::lock(bool take) : owns_(take && acquire()) {}

inline lock::~lock() {
  if (owns_) {
    release();
  }
}

inline bool lock::acquire() {
  if (level() != thread_level::serialized || detail::holds_call_mutex) {
    return false;
  }
  detail::call_mutex.lock();
  detail::holds_call_mutex = true;
  return true;
}

inline void lock::release() noexcept {
  detail::holds_call_mutex = false;
  detail::call_mutex.unlock();
}

inline bool lock::held() noexcept { return detail::holds_call_mutex; }

}  // namespace cohort::mpi
