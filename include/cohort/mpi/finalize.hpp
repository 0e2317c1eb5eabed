// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What happens when MPI is finalized, by the environment or by the host program: engines
/// leave, what is in flight is drained, and the objects this layer keeps are freed.

#include <cohort/mpi/native.hpp>
#include <cohort/mpi/state.hpp>

#include <atomic>
#include <chrono>
#include <mutex>
#include <vector>

namespace cohort::mpi {

/// How long MPI_Finalize lets MPI finish what engines have in flight before the job is aborted.
inline constexpr std::chrono::seconds leave_bound{30};

/// How long the MPI_Finalize of an environment may take where a rank is missed
/// (`process::missing`).
inline constexpr std::chrono::seconds missing_bound{10};

/// Called when MPI is about to be finalized and may still be used.
using finalize_function = void (*)(void* context) noexcept;

/// Registers a function to run at the beginning of MPI_Finalize, whoever calls it, after the
/// engines have left; newest first. Takes effect once watch_finalize() has been called.
void at_finalize(finalize_function function, void* context);

/// Takes back one registration; does nothing if it is not there.
void cancel_at_finalize(finalize_function function, void* context) noexcept;

/// Attaches the attribute to MPI_COMM_SELF whose deletion is the first act of MPI_Finalize, and
/// learns the rank for log lines. Does nothing the second time, which costs one load. Whatever in
/// this library owns an MPI object calls it first. Does nothing while MPI is not running.
void watch_finalize();

namespace detail {

struct finalizer {
  finalize_function function;
  void* context;
};

struct finalizer_list {
  std::mutex mutex;
  std::vector<finalizer> entries;
};

finalizer_list& finalizers() noexcept;

/// While `environment` calls MPI_Finalize. MPI_Finalized is of no use here: Open MPI says yes to it
/// as soon as the attributes of MPI_COMM_SELF are gone.
inline std::atomic<bool> finalizing{false};

}  // namespace detail

}  // namespace cohort::mpi

#ifndef COHORT_SEPARATE_COMPILATION
#include <cohort/mpi/detail/finalize.ipp>
#endif
