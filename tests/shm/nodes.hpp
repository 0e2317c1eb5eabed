// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What the tests of collectives over several nodes share: ranks of this machine say which
/// node they are on.

#include <cohort/comm/operation.hpp>
#include <cohort/mpi/comm.hpp>
#include <cohort/shm.hpp>

#include <algorithm>
#include <utility>
#include <vector>

#include "shm/support.hpp"
#include "support/world.hpp"

namespace shm_test {

/// The node of a rank in each of the layouts that are tried.
inline int node_in(int layout, int rank, int ranks) {
  switch (layout) {
    case 0:
      return rank;  // one rank on each
    case 1:
      return rank / 2;  // blocks of two, the last may be smaller
    case 2:
      return rank % 2;  // in turns
    case 3:
      return rank == 0 ? 0 : 1;  // uneven
    case 4:
      return rank % 3;  // in turns, uneven with four ranks
    default:
      return rank + 1 == ranks ? 7 : 3;  // uneven the other way round, numbers with gaps
  }
}
inline constexpr int layouts = 6;

/// Runs `body(world, layout)` with a world whose ranks are on nodes as the layout says.
template <class Body>
void on_nodes(Body body, cohort::backend_choice choice = cohort::backend_choice::mpi) {
  const auto all = cohort::mpi::comm_ref::world();
  for (int layout = 0; layout < layouts; ++layout) {
    cohort::communicator_options options;
    options.node = node_in(layout, all.rank(), all.size());
    options.backend = choice;
    cohort_test::on_world(
        [&](cohort::communicator world) { return body(std::move(world), layout); }, options);
  }
}

/// Whether the plane did everything, and whether it is the one between nodes.
inline bool went_between(const cohort::communicator& shared, int layout) {
  const cohort::communicator_statistics done = shared.stats();
  bool several = false;
  for (int rank = 1; rank < shared.size(); ++rank) {
    several = several || node_in(layout, rank, shared.size()) != node_in(layout, 0, shared.size());
  }
  return done.operations != 0 && done.by_backend.operations == done.operations &&
         done.backend == (several ? "hierarchical" : "shm");
}

template <class T>
T sum_of(T a, T b) {
  return static_cast<T>(a + b);
}
template <class T>
T least_of(T a, T b) {
  return b < a ? b : a;
}
template <class T>
T greatest_of(T a, T b) {
  return a < b ? b : a;
}

/// 16-bit numbers by their bits, others as they are.
template <class T>
bool same(const std::vector<T>& a, const std::vector<T>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const T& x, const T& y) {
    if constexpr (requires { x.bits; })
      return x.bits == y.bits || (!x.bits && y.bits == 0x8000);
    else
      return x == y;
  });
}

}  // namespace shm_test
