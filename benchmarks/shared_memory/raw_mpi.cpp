// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

#include "competitors.hpp"
#include "support/statistics.hpp"

namespace raw_mpi {

double nonblocking(MPI_Comm comm, const numbers& in, numbers& out, int rounds) {
  const auto start = bench::clock::now();
  for (int i = 0; i < rounds; ++i) {
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Iallreduce(in.data(), out.data(), static_cast<int>(in.size()), MPI_FLOAT, MPI_SUM, comm,
                   &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  }
  return bench::nanoseconds_since(start) / rounds;
}

double blocking(MPI_Comm comm, const numbers& in, numbers& out, int rounds) {
  const auto start = bench::clock::now();
  for (int i = 0; i < rounds; ++i) {
    MPI_Allreduce(in.data(), out.data(), static_cast<int>(in.size()), MPI_FLOAT, MPI_SUM, comm);
  }
  return bench::nanoseconds_since(start) / rounds;
}

}  // namespace raw_mpi
