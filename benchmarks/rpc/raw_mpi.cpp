// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

#include "competitors.hpp"
#include "support/statistics.hpp"

#include <cohort/mpi/native.hpp>

#include <cstdint>

namespace raw_mpi {

std::vector<double> ask(int rounds) {
  std::vector<double> times;
  times.reserve(static_cast<std::size_t>(rounds));
  std::uint64_t value = 0;
  for (int i = 0; i < rounds; ++i) {
    const auto start = bench::clock::now();
    MPI_Send(&value, 8, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
    MPI_Recv(&value, 8, MPI_BYTE, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    times.push_back(bench::nanoseconds_since(start));
  }
  return times;
}

void answer(int rounds) {
  std::uint64_t value = 0;
  for (int i = 0; i < rounds; ++i) {
    MPI_Recv(&value, 8, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Send(&value, 8, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
  }
}

}  // namespace raw_mpi
