// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file `cohort::cluster::adopt_options`: how a running job becomes a manager and its workers.
/// \file The three ways to have workers, by the names that they have in Julia's MPI.jl.

#include <cohort/cluster/launch_options.hpp>

#include <cstddef>
#include <string>
#include <utility>

namespace cohort::cluster {

/// Each function with an argument sets: `adopt_options{}.transport(transport::tcp)`. What they mean
/// is told at the function of that name in launch_options.
class adopt_options {
 public:
  using duration = launch_options::duration;

  // Provided by us: g++ 12 copies a temporary aggregate bit by bit in an expression with co_await.
  adopt_options() { all_.transport(cluster::transport::mpi).on_loss(loss_policy::fail); }

  /// Default: MPI, on a communicator of its own. With TCP the manager listens, and MPI only carries
  /// what the workers do among themselves.
  adopt_options& transport(cluster::transport which) { return all_.transport(which), *this; }
  /// Until all ranks serve; default 60 s.
  adopt_options& timeout(duration bound) { return all_.timeout(bound), *this; }
  adopt_options& max_message(std::size_t bytes) { return all_.max_message(bytes), *this; }
  adopt_options& interface(std::string address) {
    return all_.interface(std::move(address)), *this;
  }
  /// Default fail: the whole job ends. An MPI that has no fault tolerance ends it anyway when a
  /// rank dies.
  adopt_options& on_loss(loss_policy policy) { return all_.on_loss(policy), *this; }
  /// Over MPI the signs of life travel over TCP as well; by default a worker that cannot connect
  /// goes without them, with a warning.
  adopt_options& heartbeat(duration period) { return all_.heartbeat(period), *this; }
  adopt_options& serve_calls(bool wanted) { return all_.serve_calls(wanted), *this; }
  /// One more sink. Without any, the ranks print where the launcher of the job lets them. With one,
  /// their output comes to the manager over TCP, whichever way the messages take.
  adopt_options& sink(output_sink another) { return all_.sink(std::move(another)), *this; }
  adopt_options& overflow(overflow_policy policy) { return all_.overflow(policy), *this; }
  adopt_options& output_bound(std::size_t bytes) { return all_.output_bound(bytes), *this; }
  adopt_options& longest_line(std::size_t bytes) { return all_.longest_line(bytes), *this; }

  /// The same, as the manager keeps them.
  [[nodiscard]] launch_options for_ranks(int count) const {
    launch_options all = all_;
    return all.ranks(count);
  }

 private:
  launch_options all_;
};

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
