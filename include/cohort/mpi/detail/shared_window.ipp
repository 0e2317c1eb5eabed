// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Bodies of mpi/shared_window.hpp.

#include <cohort/mpi/shared_window.hpp>

#include <algorithm>

namespace cohort::mpi::detail {

// The passive epoch that makes loads, stores and MPI_Win_sync legal spans the window's whole life.
COHORT_INLINE void free_window(MPI_Win& window) noexcept {
  MPI_Win_unlock_all(window);
  MPI_Win_free(&window);
}

COHORT_INLINE kept_windows& windows_left() noexcept {
  static kept_windows& instance = *new kept_windows;  // outlives every static object
  return instance;
}
COHORT_INLINE void free_kept_windows(void*) noexcept {
  kept_windows& left = windows_left();
  const std::lock_guard hold(left.mutex);
  std::sort(left.all.begin(), left.all.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  for (auto& [number, window] : left.all) free_window(window);
  left.all.clear();
}

COHORT_INLINE void* allocate_window(const comm_ref& node, std::size_t bytes, MPI_Win& window) {
  MPI_Info info = MPI_INFO_NULL;
  check(MPI_Info_create(&info), "MPI_Info_create");
  // Parts then begin on pages of their own: near their rank, and no cache line shared.
  MPI_Info_set(info, "alloc_shared_noncontig", "true");
  void* base = nullptr;
  const int result =
      MPI_Win_allocate_shared(static_cast<MPI_Aint>(bytes), 1, info, node.native(), &base, &window);
  MPI_Info_free(&info);
  check(result, "MPI_Win_allocate_shared");
  MPI_Win_set_errhandler(window, MPI_ERRORS_RETURN);
  check(MPI_Win_lock_all(MPI_MODE_NOCHECK, window), "MPI_Win_lock_all");
  return base;
}

}  // namespace cohort::mpi::detail
