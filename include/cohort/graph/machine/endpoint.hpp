// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// All scopes of one rank: packets, scopes by their id, tags of large values.

#include <cohort/graph/machine/names.hpp>
#include <cohort/graph/machine/node.hpp>

#include <cstddef>
#include <span>
#include <vector>

namespace cohort::graph::machine {

// INTERFACE DRAFT.

/// Not an endpoint of MPI: what one rank knows of all open scopes. *Use*: make nodes with it; call
/// what has happened; do what each node's `actions` say; send what `take_message` gives, to each
/// rank for which no message is under way.
class endpoint {
 public:
  endpoint(int rank, int ranks, int tags_per_pair = 16);

  // ---- the other ranks ----
  /// A packet. Throws wire errors for bytes that are no packet (the caller then loses that rank).
  void receive(int from, std::span<const std::byte> packet);
  [[nodiscard]] bool has_message(int to) const noexcept;
  bool take_message(int to, std::vector<std::byte>& out);
  /// A receive of `post_receive` has completed. / A send of `send_value` has.
  void transferred(int from, int tag, std::vector<std::byte> bytes);
  void sent_value(int to, int tag);
  /// The transport says that a rank is dead: its receives are ended by MPI (graph X1).
  void lost(int rank);
  /// Whether any node has actions; which nodes are open, for the caller's loop.
  [[nodiscard]] std::span<node* const> open_nodes() const noexcept;
};

}  // namespace cohort::graph::machine
