// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Initialises MPI at the beginning of a program and finalizes it at the end; and what
/// happens then, also where the host program does it: engines leave, what is in flight is drained,
/// and the objects that this layer keeps are freed.

#include <cohort/core/error.hpp>
#include <cohort/core/process.hpp>
#include <cohort/mpi/at_finalize.hpp>
#include <cohort/mpi/error.hpp>
#include <cohort/mpi/lock.hpp>
#include <cohort/mpi/native.hpp>

#include <atomic>
#include <chrono>
#include <exception>

namespace cohort::mpi {

/// How long MPI_Finalize lets MPI finish what engines have in flight before the job is aborted.
inline constexpr std::chrono::seconds leave_bound{30};

/// How long the MPI_Finalize of an environment may take where a rank is missed
/// (`process::missing`).
inline constexpr std::chrono::seconds missing_bound{10};

/// Attaches the attribute to MPI_COMM_SELF whose deletion is the first act of MPI_Finalize, and
/// learns the rank for log lines. Does nothing the second time, which costs one load. Whatever in
/// this library owns an MPI object calls it first. Does nothing while MPI is not running.
void watch_finalize();

namespace detail {

/// While `environment` calls MPI_Finalize. MPI_Finalized is of no use here: Open MPI says yes to it
/// as soon as the attributes of MPI_COMM_SELF are gone.
inline std::atomic<bool> finalizing{false};

inline const bool watches = [] {
  finalize_watcher.store(&watch_finalize, std::memory_order_release);
  return true;
}();

}  // namespace detail

}  // namespace cohort::mpi

namespace cohort {

/// Keeps MPI initialised while it lives. Declare it first in main, before the io_context.
///
/// Initialises MPI only if nobody has, and finalizes only what it initialised; an MPI that the host
/// program owns is used as it is. If this object starts MPI, errors on MPI_COMM_WORLD and
/// MPI_COMM_SELF are returned instead of ending the job; an adopted MPI keeps its handlers.
///
/// The end of a program that has failed: when an exception left the event loop, or is passing
/// through this object's destructor in a job of several ranks, MPI_Finalize would wait for ever for
/// ranks that wait for this one. The destructor then ends the job, unless recovered() was called.
/// Where this process has found that another one is lost, or has not left a coordinator in time, it
/// gives MPI_Finalize 10 s and then ends itself, with status 1.
class environment {
 public:
  /// Asks for a level; level() says what MPI provides, which may be less. Throws errc::finalized if
  /// MPI has been finalized already: it cannot be started twice.
  environment(int& argc, char**& argv, thread_level wanted = thread_level::serialized);
  explicit environment(thread_level wanted = thread_level::serialized);
  ~environment();
  environment(const environment&) = delete;
  environment& operator=(const environment&) = delete;

  /// The thread level that MPI provides.
  [[nodiscard]] thread_level level() const noexcept { return mpi::level(); }
  /// Whether this object started MPI and will finalize it.
  [[nodiscard]] bool owns_mpi() const noexcept { return owns_; }
  /// Says that the program dealt with the exception that left the event loop, on every rank.
  void recovered() noexcept { process::failed.store(false); }

 private:
  void start(int* argc, char*** argv, thread_level wanted);

  bool owns_ = false;
  int exceptions_ = std::uncaught_exceptions();
};

inline environment::environment(int& argc, char**& argv, thread_level wanted) {
  start(&argc, &argv, wanted);
}

inline environment::environment(thread_level wanted) { start(nullptr, nullptr, wanted); }

inline void environment::start(int* argc, char*** argv, thread_level wanted) {
  if (mpi::finalized()) {
    throw error(errc::finalized, "cohort::environment");
  }
  if (!mpi::initialized()) {
    constexpr int levels[] = {MPI_THREAD_SINGLE, MPI_THREAD_FUNNELED, MPI_THREAD_SERIALIZED,
                              MPI_THREAD_MULTIPLE};
    int provided = MPI_THREAD_SINGLE;
    mpi::check(MPI_Init_thread(argc, argv, levels[static_cast<int>(wanted)], &provided),
               "MPI_Init_thread");
    owns_ = true;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  }
  mpi::watch_finalize();
}

inline environment::~environment() {
  if (!owns_ || mpi::finalized()) {
    return;
  }
  if (std::uncaught_exceptions() > exceptions_) {
    int size = 1;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (size > 1) {
      process::end_job(
          "an exception is leaving the scope of cohort::environment (catch it inside to see it "
          "printed); ending the job, because other ranks may wait for this one");
    }
  }
  // Leaving, draining and aborting happen in the attribute callback, as they do when the host
  // program calls MPI_Finalize.
  mpi::detail::finalizing.store(true);
  MPI_Finalize();
  mpi::detail::finalizing.store(false);
}

}  // namespace cohort

#ifndef COHORT_SEPARATE_COMPILATION
#include <cohort/mpi/detail/environment.ipp>
#endif
