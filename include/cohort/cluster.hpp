// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// The layer cluster: a program that is started once launches workers, ranks of MPI that run the
/// same program, and calls functions on them.
///
/// \code
/// #include <cohort/cluster.hpp>
///
/// #include <cstdio>
///
/// double energy(double x, double step) { return x * x * step; }
///
/// asio::awaitable<void> work(asio::io_context& io) {
///   const auto options = cohort::cluster::launch_options{}.ranks(4);
///   auto workers = co_await cohort::cluster::launch(io, options);  // runs mpiexec
///   std::printf("%g\n", co_await workers.call<&energy>(/*rank*/ 2, 3.0, 0.1));
///   co_await workers.shutdown();
/// }
///
/// int main(int argc, char** argv) { return cohort::cluster::run(argc, argv, work); }
/// \endcode

#include <cohort/cluster/call_context.hpp>
#include <cohort/cluster/calls/call_verbs.hpp>
#include <cohort/cluster/error.hpp>
#include <cohort/cluster/function.hpp>
#include <cohort/cluster/launch_options.hpp>
#include <cohort/cluster/run.hpp>
#include <cohort/cluster/serve.hpp>
#include <cohort/cluster/sinks.hpp>
#include <cohort/cluster/workers.hpp>
#include <cohort/progress/context.hpp>
