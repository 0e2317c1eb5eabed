// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// The layer p2p: messages between two ranks, and any other request of MPI.
///
/// \code
/// std::vector<double> out(100), in(100);
/// const int right = (world.rank() + 1) % world.size();
/// const int left = (world.rank() + world.size() - 1) % world.size();
/// const cohort::status st = co_await cohort::send_recv(world, out, right, in, left, /*tag*/ 7);
/// std::printf("%zu numbers from rank %d\n", st.count<double>(), st.source());
///
/// MPI_Request request = MPI_REQUEST_NULL;  // of MPI's own functions
/// co_await cohort::wait(world, request);
/// \endcode

#include <cohort/p2p/batch.hpp>
#include <cohort/p2p/probe.hpp>
#include <cohort/p2p/recv.hpp>
#include <cohort/p2p/send.hpp>
#include <cohort/p2p/send_recv.hpp>
#include <cohort/p2p/serialized.hpp>
#include <cohort/p2p/wait.hpp>
