// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// What this benchmark compares: the engine's laps, and a loop over `MPI_Testsome`.

#include "support/statistics.hpp"

#include <cohort/comm/operation.hpp>

#include <cstddef>
#include <vector>

namespace raw_mpi {

/// Receives that nothing has been sent to, and the arrays that `MPI_Testsome` fills.
class receives {
 public:
  receives(MPI_Comm comm, int tag, int count);
  ~receives();
  receives(const receives&) = delete;

  /// Nanoseconds of one `MPI_Testsome` over all of them.
  double test(int rounds);
  /// Lets the first `count` complete at once: nanoseconds until all have been seen. Posts them
  /// anew.
  double complete(int count);

 private:
  void post(std::size_t slot);

  MPI_Comm comm_;
  int tag_;
  std::vector<double> values_;
  std::vector<MPI_Request> requests_;
  std::vector<int> indices_;
  std::vector<MPI_Status> statuses_;
};

}  // namespace raw_mpi

namespace with_cohort {

/// The same receives, with callbacks.
class receives {
 public:
  receives(const cohort::communicator& world, asio::io_context& io, int tag, int count);
  ~receives();
  receives(const receives&) = delete;

  /// Nanoseconds of one test, everything that a lap does besides included.
  double test(std::chrono::nanoseconds duration);
  double complete(int count);

 private:
  void post(std::size_t slot);

  cohort::communicator world_;
  asio::io_context& io_;
  int tag_;
  std::size_t wanted_ = 0;
  std::vector<std::size_t> finished_;
  bench::clock::time_point all_finished_;
  std::vector<double> values_;
  std::vector<asio::cancellation_signal> signals_;
};

/// Sends `total` messages to this rank itself and receives them, 64 at a time.
void exchange(const cohort::communicator& world, asio::io_context& io, int total);

}  // namespace with_cohort
