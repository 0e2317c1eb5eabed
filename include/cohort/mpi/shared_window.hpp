// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Memory that the ranks of one node share.
///
///     const auto node = cohort::mpi::comm_ref::world().split_node();
///     const cohort::mpi::shared_window<std::atomic<int>> seen(node, 1);  // one for each rank
///     ++seen.of(0)[0];                                                   // all count at rank 0

#include <cohort/core/error.hpp>
#include <cohort/mpi/comm.hpp>
#include <cohort/mpi/environment.hpp>
#include <cohort/mpi/error.hpp>
#include <cohort/mpi/lock.hpp>
#include <cohort/mpi/native.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <new>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace cohort::mpi {

/// What can live in memory that several processes map: nothing that a destructor must clean up.
template <class T>
concept shareable = std::is_trivially_destructible_v<T> && std::is_default_constructible_v<T>;

/// A window of shared memory in which each rank of a node owns a part and all can load and store in
/// every part. Elements begin value-initialised. T may be a lock-free std::atomic; for plain types
/// the ranks order their accesses themselves, with sync() and a message or barrier between.
template <shareable T>
class shared_window {
 public:
  shared_window() noexcept {}
  /// Collective and blocking over a communicator of ranks on one node (comm_ref::split_node); each
  /// rank says how many elements its part has. Throws what MPI reports.
  shared_window(const comm_ref& node, std::size_t local_count);
  shared_window(shared_window&& other) noexcept { swap(other); }
  shared_window& operator=(shared_window&& other) noexcept;
  /// Frees the window, which is collective and waits for the other ranks.
  ~shared_window() { reset(); }

  /// The part of this rank, and of another rank of the node.
  [[nodiscard]] std::span<T> local() const noexcept {
    return parts_.empty() ? std::span<T>() : parts_[rank_];
  }
  [[nodiscard]] std::span<T> of(int rank) const noexcept {
    return parts_[static_cast<std::size_t>(rank)];
  }

  /// Orders this rank's stores and loads against those of the others (MPI_Win_sync).
  void sync() const;

  /// Instead of freeing now, lets MPI_Finalize free the window; the memory stays valid until then.
  /// For owners that die at different times on different ranks, where a collective free could hang;
  /// and in any order: all ranks free them as they were made.
  void free_at_finalize();
  /// Frees the window now: collective.
  void reset() noexcept;

  [[nodiscard]] explicit operator bool() const noexcept { return native_ != MPI_WIN_NULL; }
  [[nodiscard]] MPI_Win native() const noexcept { return native_; }

 private:
  void swap(shared_window& other) noexcept;

  MPI_Win native_ = MPI_WIN_NULL;
  std::vector<std::span<T>> parts_;  // one per rank of the node
  std::size_t rank_ = 0;
  std::uint64_t number_ = 0;
};

namespace detail {

void free_window(MPI_Win& window) noexcept;

/// Windows that are left to MPI_Finalize, and numbers by which all ranks free them in one order:
/// one that is made later has a higher one on each of its ranks.
struct kept_windows {
  std::mutex mutex;
  std::uint64_t last = 0;
  std::vector<std::pair<std::uint64_t, MPI_Win>> all;
};
[[nodiscard]] kept_windows& windows_left() noexcept;
void free_kept_windows(void*) noexcept;
[[nodiscard]] void* allocate_window(const comm_ref& node, std::size_t bytes, MPI_Win& window);

}  // namespace detail

template <shareable T>
shared_window<T>::shared_window(const comm_ref& node, std::size_t local_count) {
  if (local_count > static_cast<std::size_t>(std::numeric_limits<MPI_Aint>::max()) / sizeof(T)) {
    throw error(errc::count_too_large, "shared_window: count=" + std::to_string(local_count));
  }
  watch_finalize();
  const lock calls;
  void* const base = detail::allocate_window(node, local_count * sizeof(T), native_);
  std::uninitialized_value_construct_n(static_cast<T*>(base), local_count);
  // Nobody may look at a part before its owner has initialised it: the exchange of the counts,
  // which MPI_Win_shared_query rounds up to pages, is the barrier that ensures this.
  MPI_Win_sync(native_);
  detail::kept_windows& left = detail::windows_left();
  std::array<std::uint64_t, 2> mine{local_count};
  {
    const std::lock_guard hold(left.mutex);
    mine[1] = left.last;
  }
  std::vector<std::array<std::uint64_t, 2>> all(static_cast<std::size_t>(node.size()));
  check(MPI_Allgather(mine.data(), 2, MPI_UINT64_T, all.data(), 2, MPI_UINT64_T, node.native()),
        "MPI_Allgather");
  for (const auto& [count, last] : all) number_ = std::max(number_, last + 1);
  {
    const std::lock_guard hold(left.mutex);
    left.last = std::max(left.last, number_);
  }
  MPI_Win_sync(native_);
  for (int rank = 0; rank < node.size(); ++rank) {
    MPI_Aint bytes = 0;
    int unit = 0;
    void* part = nullptr;
    check(MPI_Win_shared_query(native_, rank, &bytes, &unit, &part), "MPI_Win_shared_query");
    parts_.emplace_back(static_cast<T*>(part), all[static_cast<std::size_t>(rank)][0]);
  }
  rank_ = static_cast<std::size_t>(node.rank());
}

template <shareable T>
shared_window<T>& shared_window<T>::operator=(shared_window&& other) noexcept {
  shared_window taken(std::move(other));
  swap(taken);
  return *this;
}

template <shareable T>
void shared_window<T>::sync() const {
  const lock calls;
  check(MPI_Win_sync(native_), "MPI_Win_sync");
}

template <shareable T>
void shared_window<T>::free_at_finalize() {
  if (native_ != MPI_WIN_NULL && running()) {
    detail::kept_windows& left = detail::windows_left();
    const std::lock_guard hold(left.mutex);
    if (left.all.empty()) at_finalize(&detail::free_kept_windows, nullptr);
    left.all.emplace_back(number_, native_);
  }
  native_ = MPI_WIN_NULL;
  parts_.clear();
}

template <shareable T>
void shared_window<T>::reset() noexcept {
  if (native_ != MPI_WIN_NULL && running()) {
    const lock calls;
    detail::free_window(native_);
  }
  native_ = MPI_WIN_NULL;
  parts_.clear();
}

template <shareable T>
void shared_window<T>::swap(shared_window& other) noexcept {
  std::swap(native_, other.native_);
  parts_.swap(other.parts_);
  std::swap(rank_, other.rank_);
  std::swap(number_, other.number_);
}

}  // namespace cohort::mpi

namespace cohort::mpi::detail {

// The passive epoch that makes loads, stores and MPI_Win_sync legal spans the window's whole life.
inline void free_window(MPI_Win& window) noexcept {
  MPI_Win_unlock_all(window);
  MPI_Win_free(&window);
}

inline kept_windows& windows_left() noexcept {
  static kept_windows& instance = *new kept_windows;  // outlives every static object
  return instance;
}
inline void free_kept_windows(void*) noexcept {
  kept_windows& left = windows_left();
  const std::lock_guard hold(left.mutex);
  std::sort(left.all.begin(), left.all.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  for (auto& [number, window] : left.all) free_window(window);
  left.all.clear();
}

inline void* allocate_window(const comm_ref& node, std::size_t bytes, MPI_Win& window) {
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
