// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// What one rank knows of a task and its value.

#include <cohort/graph/machine/arena.hpp>
#include <cohort/graph/machine/content.hpp>
#include <cohort/graph/machine/definition.hpp>
#include <cohort/graph/machine/names.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace cohort::graph::machine {

/// Looks into a node and an endpoint; tests define it.
struct inspector;

enum class task_state : std::uint8_t { absent, waiting, ready, running, done };

/// A task and its value, in whatever role this rank has for it: home, spawner, consumer. What few
/// records have stands in tables beside. Numbers are `none` where there is nothing.
///
/// What is compared together does not stand together: a processor waits for what has just been
/// written as one half of what it is to read.
struct record {
  key what;
  content_ptr value;
  std::uint32_t name = none;        // where its family and indices are
  std::uint32_t definition = none;  // at home the decided one, else what this rank has spawned
  std::uint32_t waiters = none;     // the last edge that waits for the value; a ring
  std::uint32_t missing = 0;        // values that the task waits for, one for each edge
  std::uint32_t awaits = none;      // the last await that waits for it; a ring
  std::uint32_t taker = none;       // who has the claim; at home the first of all that were told
  std::uint32_t unclaimed = 0;      // claims of the task that are not confirmed (graph M2)
  std::uint32_t peers = none;       // ranks that have to do with the value
  std::uint32_t declared = none;    // what others have declared here
  task_state state = task_state::absent;
  bool decided : 1 = false;        // at home: has a definition
  bool source : 1 = false;         // put, not run
  bool spawned : 1 = false;        // by this rank, in this window
  bool takes : 1 = false;          // the task takes some of its inputs
  bool wanted : 1 = false;         // somebody here needs the value and has asked
  bool unsent : 1 = false;         // a want for it is to be sent
  bool unasked : 1 = false;        // it was pushed, and nobody here has used it yet (graph U3)
  bool gone : 1 = false;           // taken: handed over to `taker`
  bool unknown : 1 = false;        // at home: is in the list of keys that may be unspawned
  bool marked : 1 = false;         // by who looks for doubles
  bool remote_takers : 1 = false;  // tasks of other ranks that take it, spawned here
};

/// What another rank has declared at its home, or this rank otherwise than was decided.
struct declaration {
  int rank = -1;
  std::uint32_t definition = none;
  std::uint32_t next = none;
};

/// A rank that has to do with a value that is at home here.
struct peer {
  std::uint32_t value = none;
  int rank = -1;
  std::uint32_t next = none;
  bool asked = false;     // waits until it is done
  bool consumer = false;  // home of a task spawned here that reads it (graph U1)
  bool sent = false;      // the value, or an offer of it (graph W3)
  bool given = false;     // the value itself
};

/// A task or an await that takes a value.
struct taker {
  key what{};                  // of the task; of an await a number and its rank
  std::uint32_t name = none;   // of the task
  spawn_site site{};           // of the task or the await
  std::uint32_t local = none;  // the record, or the slot of the await, where it is here
  std::uint32_t next = none;   // at home: another taker that was told who has the claim
  bool await = false;
  bool unsent = false;  // its want is to be sent
  [[nodiscard]] bool is(const taker& other) const noexcept {
    return what == other.what && await == other.await;
  }
};

/// An await that has not ended.
struct waiting_await {
  std::uint32_t value = none;
  std::uint32_t next = none;  // in the ring of the value's awaits; or another free slot
  std::uint32_t previous = none;
  std::uint32_t who = 0;
  std::uint32_t turn = 1;
  spawn_site site;
  bool takes = false;
  bool waits = false;
};

}  // namespace cohort::graph::machine
