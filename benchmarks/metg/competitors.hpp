// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// The competitors of this benchmark. Each runs all steps of a pattern of Task Bench with so much
/// work in each task, and checks what each task reads.

#include <cohort/graph.hpp>
#include "examples/support/dependence_patterns.hpp"

#include <mpi.h>

using support::dependence_pattern;

/// A row is cut into parts of almost equal size, one for each rank.
[[nodiscard]] inline long first_of_part(long part, long ranks, long width) {
  return (part * width + ranks - 1) / ranks;
}
[[nodiscard]] inline int part_of(long point, long ranks, long width) {
  return static_cast<int>(point * ranks / width);
}

namespace raw_mpi {

/// How a step's values travel.
enum class messages {
  of_edges,  ///< one for each pair of tasks, as in Task Bench's own program
  of_ranks,  ///< one for each pair of ranks, which takes more code
};

/// MPI_Irecv and MPI_Isend, then MPI_Waitall, then the step's tasks. All steps must have all
/// points.
void run(MPI_Comm comm, const dependence_pattern& pattern, long rounds, messages how);

}  // namespace raw_mpi

namespace with_cohort {

/// All steps in one window.
asio::awaitable<void> run(cohort::graph::tasks& graphs, dependence_pattern pattern, long rounds);

/// Some steps in a window, which is run again until all are done. Steps must have the same points
/// and dependences.
asio::awaitable<void> run_again(cohort::graph::tasks& graphs, dependence_pattern pattern,
                                long rounds);

}  // namespace with_cohort
