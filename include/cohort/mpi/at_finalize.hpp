// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What is freed at the beginning of MPI_Finalize, whoever calls that.

#include <cohort/core/short_lock.hpp>

#include <atomic>
#include <vector>

namespace cohort::mpi {

/// Called when MPI is about to be finalized and may still be used.
using finalize_function = void (*)(void* context) noexcept;

namespace detail {

struct finalizer {
  finalize_function function;
  void* context;

  friend bool operator==(const finalizer&, const finalizer&) = default;
};

struct finalizer_list {
  short_lock lock;
  std::vector<finalizer> entries;
};

[[nodiscard, gnu::visibility("default")]] inline finalizer_list& finalizers() noexcept {
  static finalizer_list& instance = *new finalizer_list;  // outlives every static object
  return instance;
}

/// `watch_finalize`, where the program includes mpi/environment.hpp somewhere.
[[gnu::visibility("default")]] inline constinit std::atomic<void (*)()> finalize_watcher{nullptr};

inline void watch_if_there() {
  if (auto* const watch = finalize_watcher.load(std::memory_order_acquire)) watch();
}

}  // namespace detail

/// Registers a function to run at the beginning of MPI_Finalize, whoever calls it, after the
/// engines have left; newest first. Takes effect once watch_finalize() has been called.
inline void at_finalize(finalize_function function, void* context) {
  auto& list = detail::finalizers();
  const short_lock::guard hold(list.lock);
  list.entries.push_back({function, context});
}

/// Takes back one registration; does nothing if it is not there.
inline void cancel_at_finalize(finalize_function function, void* context) noexcept {
  auto& list = detail::finalizers();
  const short_lock::guard hold(list.lock);
  std::erase(list.entries, detail::finalizer{function, context});
}

}  // namespace cohort::mpi
