// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// The competitors of this benchmark. Each runs one chunk of equal rounds, one after the other, and
/// returns nanoseconds per round.

#include <cohort/rendezvous.hpp>

#include <memory>
#include <vector>

namespace raw_mpi {

/// There and back between two ranks.
double ping_pong(MPI_Comm comm, std::vector<double>& buffer, int rounds);

}  // namespace raw_mpi

namespace hand_written {

/// A value meets a callback that waits for it, in a map with the same key and a mutex; the callback
/// is posted to the context.
asio::awaitable<double> match(int rounds);

}  // namespace hand_written

namespace with_cohort {

/// There under one key, back under another.
asio::awaitable<double> round_trip(cohort::rendezvous_step step, int rank, int rounds);
/// The same with a large value that is shared and received in place.
asio::awaitable<double> round_trip_in_place(cohort::rendezvous_step step, int rank,
                                            std::shared_ptr<const std::vector<double>> value,
                                            std::vector<double>& into, int rounds);
/// The same with vectors that are moved in and come out new.
asio::awaitable<double> round_trip_of_vectors(cohort::rendezvous_step step, int rank,
                                              std::vector<double>& buffer, int rounds);
/// Receives of values that have arrived.
asio::awaitable<double> arrived(cohort::communicator world, cohort::rendezvous_step step,
                                int rounds);
/// A value meets a receive with a callback, on one rank.
asio::awaitable<double> match(cohort::rendezvous_step step, int rank, int rounds);
/// The same with co_await, the value first.
asio::awaitable<double> await_match(cohort::rendezvous_step step, int rank, int rounds);

}  // namespace with_cohort
