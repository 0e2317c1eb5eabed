// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

#include "competitors.hpp"
#include "support/raw_ping_pong.hpp"
#include "support/statistics.hpp"

namespace raw_mpi {

double blocking_all_reduce(MPI_Comm comm, std::vector<double>& buffer, int rounds) {
  const auto start = bench::clock::now();
  for (int i = 0; i < rounds; ++i) {
    MPI_Allreduce(MPI_IN_PLACE, buffer.data(), static_cast<int>(buffer.size()), MPI_DOUBLE, MPI_MAX,
                  comm);
  }
  return bench::nanoseconds_since(start) / rounds;
}

double all_reduce(MPI_Comm comm, std::vector<double>& buffer, int rounds) {
  const auto start = bench::clock::now();
  for (int i = 0; i < rounds; ++i) {
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Iallreduce(MPI_IN_PLACE, buffer.data(), static_cast<int>(buffer.size()), MPI_DOUBLE,
                   MPI_MAX, comm, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  }
  return bench::nanoseconds_since(start) / rounds;
}

double ping_pong(MPI_Comm comm, std::vector<double>& buffer, int rounds) {
  return bench::raw_ping_pong(comm, buffer, rounds);
}

}  // namespace raw_mpi
