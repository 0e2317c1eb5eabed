// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// How ranks are rung: addresses of all, and a page of flags that the ranks of a node share.

#include <cohort/mpi/comm.hpp>
#include <cohort/progress/doorbell.hpp>

#include <atomic>
#include <cstdint>
#include <vector>

namespace cohort::comm {

class request_source;

/// The doorbells of the ranks of one communicator that was made blocking. Shared by everything that
/// is derived from it, which translates its ranks.
///
/// The flags lie in one shared-memory object per node, which its lowest rank makes and unlinks as
/// soon as all have mapped it: nothing is left behind, and giving it up is local, where freeing an
/// MPI window would wait for the other ranks. A rank that cannot map it rings with every message.
class doorbells {
 public:
  /// Local. `meet` comes next.
  doorbells(request_source& source, const mpi::comm_ref& over);
  ~doorbells();
  doorbells(const doorbells&) = delete;
  doorbells& operator=(const doorbells&) = delete;
  /// Tells the others of `over`. Collective and blocking.
  void meet(const mpi::comm_ref& over);

  /// A control message to `rank` of the original communicator has left: wake its engine if it
  /// sleeps, or might. Cost: a load where the flag can be seen, else a system call.
  void announce(int rank) const noexcept;

  [[nodiscard]] MPI_Comm base() const noexcept { return base_; }
  /// A number for the node of a rank: the lowest rank there.
  [[nodiscard]] int node_of(int rank) const noexcept {
    int first = 0;
    while (entries_[static_cast<std::size_t>(first)].host !=
           entries_[static_cast<std::size_t>(rank)].host) {
      ++first;
    }
    return first;
  }
  /// Ranks that share this rank's node.
  [[nodiscard]] int node_size() const noexcept { return node_size_; }

 private:
  using flag = std::atomic<std::uint32_t>;
  static_assert(flag::is_always_lock_free, "flags are shared between processes");
  struct entry {
    progress::bell_address bell;
    std::uint64_t host;
  };
  static constexpr std::size_t line = 64;  // a flag per cache line

  static std::uint32_t own_address();
  void map_flags(const mpi::comm_ref& over);
  [[nodiscard]] flag* flag_of(int rank) const noexcept;

  request_source& source_;
  MPI_Comm base_;
  int rank_;
  entry mine_{};
  std::vector<entry> entries_;
  std::vector<int> slot_;  // of each rank in the page of its node; -1 on other nodes
  int node_size_ = 0;
  std::byte* page_ = nullptr;
  std::size_t page_bytes_ = 0;
};

}  // namespace cohort::comm
