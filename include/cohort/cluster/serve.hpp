// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file `cohort::cluster::serve`: what a process does that is a worker.
///
/// ```
/// int main(int argc, char** argv) {
///   if (cohort::cluster::serve(argc, argv)) return 0;  // this process was launched as a worker
///   ...                                                // any other: the manager's code
/// }
/// ```

#include <cohort/comm/operation.hpp>

#include <string_view>

namespace cohort::cluster {

/// The first line of main. In a process that `cluster::launch` has started: connects to the
/// manager, starts MPI, serves calls until the manager shuts down, finalizes MPI if it started it,
/// and returns true; main can go on with something of its own or return. In any other process: does
/// nothing and returns false. If another worker has been lost, or a function on one is stuck in a
/// collective, MPI stays as it is, because MPI_Finalize may wait for that one.
///
/// The process leaves (status 1) when the manager is lost, also in the middle of a call.
/// *Errors*: throws cohort::error(errc::refused) if no manager can be reached or the manager does
/// not take this worker, with the reason; errors of MPI.
template <class Any = void>
bool serve(int& argc, char**& argv);

/// In a job that mpirun has started, on every rank of `world` but 0: waits until rank 0 calls
/// `adopt`, serves calls until it shuts down, and returns. Runs the communicator's context itself
/// until then, so it is for the outermost code of a rank, not for a coroutine; other work of that
/// context goes on.
///
/// *Errors*: throws cohort::error(errc::refused) if rank 0 withdraws or does not take this rank,
/// errc::peer_lost if it lets its workers go without a shutdown, or dies; over MPI without
/// heartbeats the death of rank 0 is not noticed.
template <class Any = void>
void serve(const communicator& world);

/// For ranks that somebody else starts with mpirun: joins the manager that waits at one of these
/// addresses ("10.0.0.1:4711,…"), with the launch's token. `launch_options::by_hand` tells both.
/// Otherwise like the first one. Throws errc::invalid_argument for what is no address or no token.
template <class Any = void>
void serve(std::string_view endpoints, std::string_view token);

}  // namespace cohort::cluster

#ifndef COHORT_SEPARATE_COMPILATION
#include <cohort/cluster/worker/serve.ipp>
#endif
