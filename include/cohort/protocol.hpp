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
/// #include <cohort/protocol.hpp>
///
/// #include <iostream>
///
/// int main() {
///   using namespace cohort;
///   const std::vector<rank_set> sets = {rank_set{0, 1}};
///   protocol::node zero(protocol::tree::balanced(0, 2, 2), sets);  // the nodes of two ranks
///   protocol::node one(protocol::tree::balanced(1, 2, 2), sets);
///   zero.submit(0, "gradient", {}, 17);  // either is ready for it, and knows its own by a token
///   one.submit(0, "gradient", {}, 18);
///   std::vector<std::byte> bytes;
///   if (one.take_message(0, bytes)) zero.receive(1, bytes);  // rank 0 learns of it and decides
///   for (const protocol::action& next : zero.actions()) {
///     std::cout << next.token << " is elected\n";  // 17: start it
///   }
///   zero.clear_actions();
/// }
/// \endcode

#include <cohort/protocol/node.hpp>
#include <cohort/protocol/queues.hpp>
#include <cohort/protocol/validation.hpp>
