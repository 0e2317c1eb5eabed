// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// The umbrella: everything that needs no GPU (that is in `cohort/gpu.hpp`). Each layer has a
/// header of its name, which says what it is for.
///
/// \code
/// #include <cohort/cohort.hpp>
///
/// #include <cstdio>
///
/// asio::awaitable<void> train(cohort::communicator world) {
///   std::vector<double> gradient(1000, world.rank());
///   co_await cohort::all_reduce(world, gradient, cohort::op::average);
///   if (world.rank() == 0) std::printf("%g\n", gradient[0]);
/// }
///
/// int main(int argc, char** argv) { return cohort::run(argc, argv, train); }
/// \endcode

// What ranks do together that know of each other: communicators, and the verbs of MPI.
#include <cohort/collectives.hpp>
#include <cohort/comm.hpp>
#include <cohort/p2p.hpp>
#include <cohort/shm.hpp>

// What is made of that: operations by name in any order, values by key, tasks, workers.
#include <cohort/cluster.hpp>
#include <cohort/coordinator.hpp>
#include <cohort/graph.hpp>
#include <cohort/rendezvous.hpp>

// Objects of other libraries as their buffers.
#include <cohort/adapters.hpp>

// What both are made of, each usable alone: vocabulary, MPI's objects, the engine.
#include <cohort/core.hpp>
#include <cohort/mpi.hpp>
#include <cohort/progress.hpp>
