// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// The competitors of this benchmark. Each factorises the same matrix with the same kernels,
/// applied to each tile in the same order, and gives the same last tile, bit by bit.

#include <cohort/graph.hpp>
#include "examples/support/tiles.hpp"

#include <mpi.h>

#include <cmath>
#include <vector>

using support::tile;

struct problem {
  int tiles;
  std::size_t side;
  int ranks;
  /// Tiles of one column are on one rank, as with block_cyclic(1, ranks); else those of one
  /// diagonal from the lower left to the upper right.
  bool by_columns;

  [[nodiscard]] int owner(int i, int j) const { return (by_columns ? j : i + j) % ranks; }
  /// Of a matrix that is positive definite.
  [[nodiscard]] tile load(int i, int j) const {
    tile made(side * side);
    for (std::size_t r = 0; r < side; ++r) {
      for (std::size_t c = 0; c < side; ++c) {
        const double row = static_cast<double>(static_cast<std::size_t>(i) * side + r);
        const double column = static_cast<double>(static_cast<std::size_t>(j) * side + c);
        made[r * side + c] = row == column ? 32 : 1 / (1 + std::abs(row - column));
      }
    }
    return made;
  }
};

/// Where the last tile is, its last element; elsewhere 0.
struct outcome {
  double last = 0;
};

namespace raw_mpi {

/// Step by step, with MPI_Isend and MPI_Irecv: each rank has posted its receives of a step before
/// it works, and waits for all of them before it updates.
outcome run(MPI_Comm comm, const problem& what);

}  // namespace raw_mpi

namespace with_cohort {

asio::awaitable<outcome> run(cohort::graph::tasks& graphs, problem what);

}  // namespace with_cohort
