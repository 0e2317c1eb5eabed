// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

#include "competitors.hpp"
#include "support/statistics.hpp"

#include <cohort/core/copy.hpp>
#include <cohort/mpi/comm.hpp>
#include <cohort/mpi/shared_window.hpp>

#include <algorithm>

copy_speeds measure_copies(MPI_Comm comm, std::size_t bytes) {
  const cohort::mpi::comm_ref world(comm);
  cohort::mpi::shared_window<std::byte> window(world, bytes);
  const std::vector<std::byte> from(bytes);
  std::vector<std::byte> to(bytes);
  const std::span<const std::byte> next = window.of((world.rank() + 1) % world.size());
  const std::span<std::byte> mine = window.local();
  const int repeated = static_cast<int>(std::clamp<std::size_t>((16U << 20U) / bytes, 3, 300));
  std::vector<double> own;
  std::vector<double> across;
  for (int i = 0; i < repeated; ++i) {
    std::fill(mine.begin(), mine.end(), static_cast<std::byte>(i));
    MPI_Barrier(comm);
    auto start = bench::clock::now();
    cohort::copy_bytes(to.data(), next.data(), bytes);
    across.push_back(bench::nanoseconds_since(start));
    cohort::copy_bytes(to.data(), from.data(), bytes);  // as near as it gets
    MPI_Barrier(comm);
    start = bench::clock::now();
    cohort::copy_bytes(to.data(), from.data(), bytes);
    own.push_back(bench::nanoseconds_since(start));
    MPI_Barrier(comm);
  }
  const auto size = static_cast<double>(bytes);
  return {size / bench::median(own), size / bench::median(across)};
}
