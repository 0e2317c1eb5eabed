// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// The layer protocol: how the ranks of a coordinator agree on what runs next. State machines
/// without MPI, Asio, threads or a clock: who uses one gives it the messages that have come and the
/// time, and sends what it answers. docs/design/protocol.md has the rules, by the labels that
/// comments cite.
///
/// \code
/// protocol::node mine(protocol::tree::balanced(0, 2, 2), {{0, 1}});  // rank 0 of two ranks
/// mine.submit(0, "gradient", what, 17);                             // ready for it here
/// mine.receive(1, message);                                         // rank 1 says that it is, too
/// for (const protocol::action& one : mine.actions()) start(one);    // elected
/// mine.clear_actions();
/// if (mine.take_message(1, bytes)) send(1, bytes);                  // and rank 1 learns of it
/// \endcode

#include <cohort/protocol/node.hpp>
#include <cohort/protocol/queues.hpp>
#include <cohort/protocol/validation.hpp>
