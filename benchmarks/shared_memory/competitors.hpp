// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// The competitors of this benchmark: each sums a vector of floats over the ranks, `rounds` times,
/// and returns nanoseconds for one sum.

#include <cohort/comm/communicator.hpp>
#include <cohort/core/asio.hpp>

#include <vector>

using numbers = std::vector<float>;

namespace raw_mpi {

double nonblocking(MPI_Comm comm, const numbers& in, numbers& out, int rounds);
double blocking(MPI_Comm comm, const numbers& in, numbers& out, int rounds);

}  // namespace raw_mpi

namespace with_cohort {

/// Through whatever the communicator works with.
asio::awaitable<double> awaited(cohort::communicator comm, const numbers& in, numbers& out,
                                int rounds);

}  // namespace with_cohort
