// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// The layer testing: what tests of a program that uses cohort need in place of MPI, a poll source
/// whose operations end when the test says so, a clock that it moves, and a network in one process.
///
/// \code
/// #include <cohort/cohort.hpp>
/// #include <cohort/testing.hpp>
///
/// int main() {
///   asio::io_context io;
///   cohort::testing::manual_source source{io};
///   auto first = source.start(1, cohort::as_future);  // engine, futures, deadlines: the real ones
///   asio::post(io, [&] { source.complete(1); });
///   io.run();
///   return first.is_ready() ? 0 : 1;
/// }
/// \endcode

#include <cohort/testing/manual_clock.hpp>
#include <cohort/testing/manual_source.hpp>
#include <cohort/testing/network.hpp>
