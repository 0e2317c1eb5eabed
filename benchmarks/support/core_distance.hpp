// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// How far apart two ranks' cores are right now: the round trip of a flag in shared memory.

#include <cohort/mpi/comm.hpp>
#include <cohort/mpi/shared_window.hpp>
#include <support/statistics.hpp>

#include <atomic>
#include <cstdint>

namespace bench {

/// Virtual machines move between physical cores while a benchmark runs, and everything between
/// ranks then takes two to three times as long. A probe before each chunk tells the states apart.
class core_distance {
 public:
  explicit core_distance(const cohort::mpi::comm_ref& world)
      : node_(world.split_node()), flags_(node_, 1) {}

  /// Nanoseconds of one round trip. Collective over two ranks on one node; 0 for other numbers.
  [[nodiscard]] double round_trip() {
    if (node_.size() != 2) return 0;
    constexpr std::uint32_t rounds = 500;
    auto& mine = flags_.local()[0].value;
    auto& theirs = flags_.of(1 - node_.rank())[0].value;
    MPI_Barrier(node_.native());
    const auto start = clock::now();
    for (std::uint32_t i = 0; i < rounds; ++i) {
      ++turn_;
      if (node_.rank() == 0) {
        mine.store(turn_, std::memory_order_release);
        while (theirs.load(std::memory_order_acquire) != turn_) continue;
      } else {
        while (theirs.load(std::memory_order_acquire) != turn_) continue;
        mine.store(turn_, std::memory_order_release);
      }
    }
    double result = nanoseconds_since(start) / rounds;
    MPI_Bcast(&result, 1, MPI_DOUBLE, 0, node_.native());
    return result;
  }

 private:
  struct alignas(128) flag {
    std::atomic<std::uint32_t> value;
  };
  cohort::mpi::comm node_;
  cohort::mpi::shared_window<flag> flags_;
  std::uint32_t turn_ = 0;
};

}  // namespace bench
