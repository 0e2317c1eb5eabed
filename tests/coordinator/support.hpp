// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What the tests of coordinators share.

#include <cohort/coordinator.hpp>
#include <cohort/progress/future.hpp>

#include <chrono>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "support/caught.hpp"
#include "support/patience.hpp"
#include "support/world.hpp"

namespace cohort_test {

/// Runs `body(world, coord)` and shuts the coordinator down. The coordinator is open by then: Open
/// MPI 4.1 confuses MPI_Comm_idup with collectives that are posted on the same communicator before
/// it has ended, which `meet` does.
template <class Body>
void coordinated(Body body, const cohort::coordinator_options& options = {}) {
  on_world([&](cohort::communicator world) -> asio::awaitable<void> {
    cohort::coordinator coord(world, options);
    co_await coord.barrier();
    co_await body(world, coord);
    co_await coord.shutdown();
  });
}

/// Options with which little data already goes in several pieces.
inline cohort::coordinator_options several_pieces() {
  cohort::coordinator_options options;
  options.fusion_threshold = 2048;
  options.fusion_buffer = 8192;
  options.piece = 16384;
  options.pieces_in_flight = 3;
  return options;
}

inline bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

/// 0, 1, … `end` - 1, without one of them.
inline std::vector<int> ranks_below(int end, int without = -1) {
  std::vector<int> all;
  for (int rank = 0; rank < end; ++rank) {
    if (rank != without) all.push_back(rank);
  }
  return all;
}

/// Until a message has left, which is the first since `before`.
inline asio::awaitable<void> until_sent(cohort::coordinator coord, std::uint64_t before) {
  const auto limit =
      std::chrono::steady_clock::now() + cohort_test::patient(std::chrono::seconds(20));
  while (coord.stats().messages_sent == before) {
    REQUIRE(std::chrono::steady_clock::now() < limit);
    co_await pause(std::chrono::milliseconds(1));
  }
}

/// Until rank 0 knows that all ranks below `last` have submitted what it waits for.
inline asio::awaitable<void> until_known(cohort::coordinator coord, int last) {
  const auto limit =
      std::chrono::steady_clock::now() + cohort_test::patient(std::chrono::seconds(20));
  for (;;) {
    coord.ask_pending();
    co_await pause(std::chrono::milliseconds(5));
    const auto pending = coord.pending();
    REQUIRE(pending.size() == 1);
    if (pending[0].asked && pending[0].ready == ranks_below(last)) break;
    REQUIRE(std::chrono::steady_clock::now() < limit);
  }
}

/// A named sum over all ranks works.
inline asio::awaitable<void> works(cohort::coordinator coord, std::string name) {
  std::vector<int> data(3, coord.rank() + 1);
  co_await coord.all_reduce(name, data, cohort::op::sum);
  CHECK(data == std::vector<int>(3, coord.size() * (coord.size() + 1) / 2));
}

}  // namespace cohort_test
