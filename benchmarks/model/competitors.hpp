// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// The competitors of this benchmark: each sums the gradients of a model over the ranks, in place,
/// the last layer first, and returns nanoseconds.

#include <cohort/coordinator.hpp>

#include <cstddef>
#include <string>
#include <vector>

/// A gradient with its name.
struct gradient {
  std::string name;
  std::vector<float> values;
};
/// In the order in which back-propagation makes them.
using model = std::vector<gradient>;

namespace raw_mpi {

/// How to sum the gradients by hand.
struct policy {
  std::size_t fuse_below;  ///< smaller ones are copied together, into buffers of 1 MiB
  std::size_t piece;       ///< larger ones go in pieces of so many bytes; 0: whole
  std::size_t in_flight;   ///< operations at once; 0: blocking
};

double run(MPI_Comm comm, model& gradients, policy by);
double all_at_once(MPI_Comm comm, model& gradients);  // MPI_Iallreduce for each, MPI_Waitall

}  // namespace raw_mpi

namespace with_cohort {

asio::awaitable<double> callbacks(cohort::coordinator coord, model& gradients);
asio::awaitable<double> futures(cohort::coordinator coord, model& gradients);

}  // namespace with_cohort

/// A coordinator that tunes itself and begins with `begin`, against one with `other`, step by step.
asio::awaitable<void> contest_of_tuning(cohort::communicator world, model& gradients,
                                        cohort::coordinator_options begin,
                                        cohort::coordinator_options other, int steps);
