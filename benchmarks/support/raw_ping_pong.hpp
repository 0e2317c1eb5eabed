// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// Messages there and back between two ranks by MPI alone.

#include <cohort/mpi/native.hpp>
#include <support/statistics.hpp>

#include <vector>

namespace bench {

/// Nanoseconds of a round trip.
inline double raw_ping_pong(MPI_Comm comm, std::vector<double>& buffer, int rounds) {
  int rank = 0;
  MPI_Comm_rank(comm, &rank);
  const int count = static_cast<int>(buffer.size());
  const auto send = [&] { MPI_Send(buffer.data(), count, MPI_DOUBLE, 1 - rank, 0, comm); };
  const auto recv = [&] {
    MPI_Recv(buffer.data(), count, MPI_DOUBLE, 1 - rank, 0, comm, MPI_STATUS_IGNORE);
  };
  const auto start = clock::now();
  for (int i = 0; i < rounds; ++i) {
    if (rank == 0) send();
    recv();
    if (rank == 1) send();
  }
  return nanoseconds_since(start) / rounds;
}

}  // namespace bench
