// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// The layer comm: communicators whose operations can be awaited, and what such operations are made
/// of. `cohort::run` makes what a program needs; a program that owns its loop makes the same
/// itself:
///
/// \code
/// cohort::communicator mine{io};                          // a duplicate of MPI_COMM_WORLD
/// auto half = co_await mine.split(mine.rank() % 2);       // made while other coroutines run
/// auto node = co_await mine.split_node();                 // the ranks that share memory
/// co_await cohort::barrier(half);                         // verbs: collectives.hpp, p2p.hpp
/// cohort::poll(mine);                                     // a look from inside a computation
/// const auto counts = node.stats();                       // what it has started on this rank
/// std::printf("rank %d of %d\n", half.rank(), half.size());
/// \endcode

#include <cohort/comm/backend.hpp>
#include <cohort/comm/communicator.hpp>
#include <cohort/comm/operation.hpp>
#include <cohort/comm/requests/source.hpp>
#include <cohort/comm/run.hpp>
#include <cohort/comm/sync_wait.hpp>
