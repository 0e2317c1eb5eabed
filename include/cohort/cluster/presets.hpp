// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The three ways to have workers, by the names that they have in Julia's MPI.jl.

#include <cohort/cluster/adopt_options.hpp>
#include <cohort/cluster/launch_options.hpp>

namespace cohort::cluster {

/// For `launch`: the manager is outside MPI and talks to the workers over TCP; they have MPI among
/// themselves. *Example*: `co_await launch(io, mpi_on_workers().ranks(4))`.
[[nodiscard]] inline launch_options mpi_on_workers() {
  launch_options options;
  options.transport(transport::tcp);
  return options;
}

/// For `adopt`: rank 0 of a running job is the manager and talks to the others over TCP; MPI only
/// carries what the workers do among themselves.
[[nodiscard]] inline adopt_options tcp_transport_all() {
  adopt_options options;
  options.transport(transport::tcp);
  return options;
}

/// For `adopt`: the same, and all messages travel over MPI.
[[nodiscard]] inline adopt_options mpi_transport_all() {
  adopt_options options;
  options.transport(transport::mpi);
  return options;
}

}  // namespace cohort::cluster
