// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// The competitors of this benchmark. Each runs one chunk of equal all_reduces of 8 B, one after
/// the other, and returns nanoseconds per operation.

#include <cohort/coordinator.hpp>

namespace raw_mpi {

double blocking_all_reduce(MPI_Comm comm, double& value, int rounds);
double all_reduce(MPI_Comm comm, double& value, int rounds);  // MPI_Iallreduce, MPI_Wait

}  // namespace raw_mpi

namespace with_cohort {

asio::awaitable<double> direct(cohort::communicator world, double& value, int rounds);
asio::awaitable<double> named(cohort::process_set in, double& value, int rounds);
asio::awaitable<double> named_future(cohort::coordinator coord, double& value, int rounds);
/// Of the value with which the group has been made.
asio::awaitable<double> persistent(cohort::persistent_group group, double&, int rounds);
asio::awaitable<double> unnamed(cohort::coordinator coord, double& value, int rounds);
/// A name that has not been seen before, every time.
asio::awaitable<double> new_names(cohort::coordinator coord, double& value, int rounds);
/// By name in one set, while an operation of another set, of the same ranks, waits for the last.
asio::awaitable<double> beside_waiting(cohort::process_set in, cohort::process_set waiting,
                                       double& value, int rounds);

}  // namespace with_cohort
