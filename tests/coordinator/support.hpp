// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What the tests of coordinators share.

#include <cohort/coordinator.hpp>
#include <cohort/progress/future.hpp>

#include <chrono>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "support/caught.hpp"
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

/// A named sum over all ranks works.
inline asio::awaitable<void> works(cohort::coordinator coord, std::string name) {
  std::vector<int> data(3, coord.rank() + 1);
  co_await coord.all_reduce(name, data, cohort::op::sum);
  CHECK(data == std::vector<int>(3, coord.size() * (coord.size() + 1) / 2));
}

}  // namespace cohort_test
