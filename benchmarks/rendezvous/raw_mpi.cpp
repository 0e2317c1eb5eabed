// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

#include "competitors.hpp"
#include "support/raw_ping_pong.hpp"

namespace raw_mpi {

double ping_pong(MPI_Comm comm, std::vector<double>& buffer, int rounds) {
  return bench::raw_ping_pong(comm, buffer, rounds);
}

}  // namespace raw_mpi
