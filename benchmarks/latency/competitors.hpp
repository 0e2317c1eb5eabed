// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// The competitors of this benchmark. Each runs one chunk of equal operations, one after the other,
/// and returns nanoseconds per operation.

#include <cohort/comm/operation.hpp>

#include <vector>

namespace raw_mpi {

double blocking_all_reduce(MPI_Comm comm, std::vector<double>& buffer, int rounds);
double all_reduce(MPI_Comm comm, std::vector<double>& buffer, int rounds);  // MPI_Iallreduce, Wait
double ping_pong(MPI_Comm comm, std::vector<double>& buffer, int rounds);
/// By MPI_Isend, MPI_Irecv and MPI_Wait.
double nonblocking_ping_pong(MPI_Comm comm, std::vector<double>& buffer, int rounds);
// Between two ranks: 6 messages each way, which divide the buffer, with one MPI_Waitall.
double halo(MPI_Comm comm, std::vector<double>& buffer, int rounds);
double persistent_halo(MPI_Comm comm, std::vector<double>& buffer, int rounds);

}  // namespace raw_mpi

namespace with_cohort {

using buffer = std::vector<double>&;

asio::awaitable<double> await_all_reduce(cohort::communicator world, buffer values, int rounds);
asio::awaitable<double> await_adasum(cohort::communicator world, buffer values, int rounds);
asio::awaitable<double> future_all_reduce(cohort::communicator world, buffer values, int rounds);
asio::awaitable<double> callback_all_reduce(cohort::communicator world, buffer values, int rounds);
asio::awaitable<double> ping_pong(cohort::communicator world, buffer values, int rounds);
/// A coroutine with one all_reduce at a time, on a loop that nobody runs.
double sync_wait_all_reduce(const cohort::communicator& world, buffer values, int rounds);
/// The same by `cohort::blocking`.
double blocking_all_reduce(const cohort::communicator& world, buffer values, int rounds);
double persistent_all_reduce(const cohort::communicator& world, buffer values, int rounds);
double blocking_ping_pong(const cohort::communicator& world, buffer values, int rounds);

asio::awaitable<double> await_halo(cohort::communicator world, buffer values, int rounds);
asio::awaitable<double> await_persistent_halo(cohort::communicator world, buffer values,
                                              int rounds);
asio::awaitable<double> future_halo(cohort::communicator world, buffer values, int rounds);
double blocking_halo(const cohort::communicator& world, buffer values, int rounds);
double blocking_persistent_halo(const cohort::communicator& world, buffer values, int rounds);

}  // namespace with_cohort
