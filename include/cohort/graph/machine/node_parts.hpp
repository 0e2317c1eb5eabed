// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// What the state of a node is made of, beside records and definitions.

#include <cohort/graph/machine/arena.hpp>
#include <cohort/graph/machine/content.hpp>
#include <cohort/graph/machine/definition_store.hpp>
#include <cohort/graph/machine/hash.hpp>
#include <cohort/graph/machine/index_table.hpp>
#include <cohort/graph/machine/message.hpp>
#include <cohort/graph/machine/record.hpp>
#include <cohort/graph/machine/record_table.hpp>
#include <cohort/graph/machine/report.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace cohort::graph::machine {

/// The memory of a node for tasks and values, which grows with them. A node that has ended can
/// leave it to another one.
struct node_memory {
  record_table records;
  definition_store definitions;
  arena<peer> peers;
  index_table peer_table;
  /// Of most of it, in bytes.
  [[nodiscard]] std::size_t capacity() const noexcept {
    return records.capacity() + definitions.capacity() + peers.capacity();
  }
};

/// A producer (graph O3).
struct producer_state {
  std::uint32_t awaits = 0;
  bool ended = false;
  std::optional<window_end> ending;
  [[nodiscard]] bool busy() const noexcept { return !ended && awaits == 0 && !ending; }
};

/// A message of a later epoch (graph T7).
struct parked_message {
  int from;
  std::uint64_t epoch;
  message_kind kind;
  std::vector<std::byte> body;
};

/// A value that has come, and that some here wait for (graph F3).
struct wake_up {
  std::uint32_t value;
  content_ptr what;
};

/// What this rank has spawned for a home that is elsewhere.
struct announcement {
  task_sum sum;                         // of all (graph A2)
  std::vector<std::uint32_t> unlisted;  // records
  bool fresh = false;
  bool lists = false;  // it gets lists, from now on (graph A4); outlives the window
};

/// How this rank stands with another one, as to values.
struct account {
  std::uint64_t credit = 0;        // what may be pushed to it (graph U2)
  std::uint64_t owed = 0;          // credit that goes back to it (graph U3)
  std::uint32_t receives = 0;      // granted, and not complete
  std::optional<task_sum> digest;  // not compared yet
  std::size_t agreed = 0;          // so many of the own tasks its last digest was equal to
  bool goodbye = false;            // it has said so (graph X2)
  bool lost = false;               // for this scope (graph X1)
};

}  // namespace cohort::graph::machine
