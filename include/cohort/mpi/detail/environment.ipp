// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Bodies of mpi/environment.hpp.

#include <cohort/core/process.hpp>
#include <cohort/mpi/environment.hpp>
#include <cohort/mpi/lock.hpp>

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

namespace cohort::mpi {

namespace detail {

// 1. A failed program cannot be finalized, so the job ends here. 2. Engines leave and drain. 3.
// What is left would let MPI write into memory that goes away: name it and end the job.
COHORT_INLINE void leave_mpi() noexcept try {
  if (process::failed.load()) {
    process::end_job(
        "the program has failed; ending the job, because MPI_Finalize would wait for ranks that "
        "wait for this one");
  }
  process::leave_all();
  const bool drained = process::drain_all(leave_bound);
  if (const std::string left = process::leftovers(); !drained || !left.empty()) {
    process::end_job(
        "MPI still holds operations while it is finalized; ending the job. In flight:\n" +
        (left.empty() ? process::describe_in_flight() : left));
  }
} catch (const std::exception& problem) {
  process::end_job(std::string("cannot leave MPI: ") + problem.what());
} catch (...) {
  process::end_job("cannot leave MPI");
}

/// Whether this process is a child of a launcher of Open MPI 4, which ends the job when one ends
/// with a status that is not 0, unless it was told not to. It is not asked by MPI_Abort: if others
/// are in MPI_Finalize it may then hang or crash, with all ranks gone (one job of six on a busy
/// machine).
COHORT_INLINE bool launcher_watches() {
  if (std::getenv("OMPI_COMM_WORLD_RANK") == nullptr ||
      std::getenv("OMPI_MCA_orte_enable_recovery") != nullptr ||
      std::getenv("OMPI_MCA_orte_abort_on_non_zero_status") != nullptr) {
    return false;
  }
  char path[32] = "";
  std::snprintf(path, sizeof path, "/proc/%d/comm", static_cast<int>(::getppid()));
  char name[16] = "";
  if (std::FILE* const file = std::fopen(path, "r")) {
    if (std::fgets(name, sizeof name, file) == nullptr) name[0] = 0;
    std::fclose(file);
  }
  const std::string_view parent = name;
  return parent.starts_with("mpiexec") || parent.starts_with("mpirun") ||
         parent.starts_with("orterun") || parent.starts_with("orted");
}

COHORT_INLINE void abort_mpi() {
  if (!running()) return;
  if (launcher_watches()) std::_Exit(1);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

COHORT_INLINE void run_finalizers() noexcept {
  auto& list = finalizers();
  std::unique_lock guard(list.lock);
  while (!list.entries.empty()) {
    const finalizer newest = list.entries.back();
    list.entries.pop_back();
    guard.unlock();
    newest.function(newest.context);
    guard.lock();
  }
}

/// MPI_Finalize cannot be cancelled, so its thread cannot end the wait for a rank that never comes.
COHORT_INLINE void bound_finalize() noexcept try {
  if (process::missing.load() == 0 || !finalizing.load()) return;
  std::thread([] {
    std::this_thread::sleep_for(missing_bound);
    if (!finalizing.load()) return;
    process::write_last_words(process::line_prefix() +
                              "a rank is lost or has not left in time, and MPI_Finalize waits "
                              "for it; this process leaves without it\n");
    ::_exit(1);
  }).detach();
} catch (const std::exception&) {  // no thread: it waits for as long as it takes
}

extern "C" COHORT_INLINE int cohort_mpi_self_deleted(MPI_Comm, int, void*, void*) noexcept {
  leave_mpi();
  run_finalizers();
  bound_finalize();
  current_phase.store(phase::gone);
  return MPI_SUCCESS;
}

}  // namespace detail

COHORT_INLINE void watch_finalize() {
  if (detail::current_phase.load(std::memory_order_acquire) != detail::phase::unknown) [[likely]] {
    return;
  }
  const lock calls;
  static std::mutex once;
  const std::lock_guard guard(once);
  if (detail::current_phase.load() != detail::phase::unknown || !initialized() || finalized()) {
    return;
  }
  int rank = -1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  process::rank.store(rank);
  process::end_job_function.store(&detail::abort_mpi);
  int key = MPI_KEYVAL_INVALID;
  if (MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, &detail::cohort_mpi_self_deleted, &key,
                             nullptr) != MPI_SUCCESS) {
    return;
  }
  if (MPI_Comm_set_attr(MPI_COMM_SELF, key, nullptr) == MPI_SUCCESS) {
    detail::current_phase.store(detail::phase::watched, std::memory_order_release);
  }
  MPI_Comm_free_keyval(&key);  // MPI keeps it until the attribute is deleted
}

}  // namespace cohort::mpi
