// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The one place that includes <mpi.h>, without the C++ bindings that MPI has removed; and
/// whether MPI is up, at which thread level and on which thread, at the price of one load.

#include <atomic>

#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1
#endif
#ifndef MPICH_SKIP_MPICXX
#define MPICH_SKIP_MPICXX 1
#endif

#include <cohort/core/config.hpp>

#include <mpi.h>

#if MPI_VERSION < 3 || (MPI_VERSION == 3 && MPI_SUBVERSION < 1)
#error "cohort needs MPI 3.1 or newer"
#endif

#if defined(OPEN_MPI)
COHORT_MUST_BE_SAME(mpi, "open_mpi");
#elif defined(MPICH_VERSION) || defined(MPICH_NAME)
COHORT_MUST_BE_SAME(mpi, "mpich");
#endif

namespace cohort::mpi {

/// Whether this MPI library has the functions with 64-bit counts (their names end in _c).
inline constexpr bool has_large_counts = MPI_VERSION >= 4;

/// Stands in for a function that this MPI does not have: takes anything and returns `Code`.
template <int Code>
struct missing_function {
  template <class... Arguments>
  int operator()(const Arguments&...) const noexcept {
    return Code;
  }
};

/// What threads may do with MPI; ordered like MPI's own constants.
enum class thread_level { single, funneled, serialized, multiple };

/// Whether MPI_Init has been called, by whomever. Asks MPI: allowed at any time, on any thread.
[[nodiscard]] bool initialized() noexcept;
/// Whether MPI_Finalize has been called, by whomever. Asks MPI: allowed at any time, on any thread.
[[nodiscard]] bool finalized() noexcept;
/// Whether MPI may be called now. One load once watch_finalize() has been called.
[[nodiscard]] bool running() noexcept;

/// The level MPI provides; single while MPI is not initialized. One load once it is known.
[[nodiscard]] thread_level level() noexcept;

/// Whether this is the thread that initialized MPI; false before that. Asks MPI once per thread.
[[nodiscard]] bool is_main_thread() noexcept;

/// Whether this thread may call MPI at the current level, given that every caller takes mpi::lock.
[[nodiscard]] bool is_allowed_thread() noexcept;

namespace detail {

/// What is known about MPI. Watched: the attribute of environment.hpp is in place, so MPI is up
/// until its deletion sets gone.
enum class phase { unknown, watched, gone };

inline constexpr int unknown_level = -1;
inline constinit std::atomic<phase> current_phase{phase::unknown};
inline constinit std::atomic<int> known_level{unknown_level};
inline constinit thread_local signed char known_main_thread = -1;

inline thread_level ask_level() noexcept {
  if (!initialized() || finalized()) {
    return thread_level::single;
  }
  int provided = MPI_THREAD_SINGLE;
  MPI_Query_thread(&provided);
  const auto found = provided == MPI_THREAD_SINGLE       ? thread_level::single
                     : provided == MPI_THREAD_FUNNELED   ? thread_level::funneled
                     : provided == MPI_THREAD_SERIALIZED ? thread_level::serialized
                                                         : thread_level::multiple;
  known_level.store(static_cast<int>(found), std::memory_order_relaxed);
  return found;
}

}  // namespace detail
}  // namespace cohort::mpi

namespace cohort {
using mpi::thread_level;
}

namespace cohort::mpi {

inline bool initialized() noexcept {
  int flag = 0;
  MPI_Initialized(&flag);
  return flag != 0;
}

inline bool finalized() noexcept {
  int flag = 0;
  MPI_Finalized(&flag);
  return flag != 0;
}

inline bool running() noexcept {
  const auto now = detail::current_phase.load(std::memory_order_relaxed);
  if (now == detail::phase::watched) [[likely]] {
    return true;
  }
  return now == detail::phase::unknown && initialized() && !finalized();
}

inline thread_level level() noexcept {
  const int value = detail::known_level.load(std::memory_order_relaxed);
  if (value != detail::unknown_level) [[likely]] {
    return static_cast<thread_level>(value);
  }
  return detail::ask_level();
}

inline bool is_main_thread() noexcept {
  if (detail::known_main_thread < 0) [[unlikely]] {
    if (!initialized() || finalized()) {
      return false;
    }
    int flag = 0;
    MPI_Is_thread_main(&flag);
    detail::known_main_thread = flag != 0 ? 1 : 0;
  }
  return detail::known_main_thread == 1;
}

inline bool is_allowed_thread() noexcept {
  return level() >= thread_level::serialized || is_main_thread();
}

}  // namespace cohort::mpi
