// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// What a node is made with, what it answers, and what it tells its caller to do.

#include <cohort/graph/machine/content.hpp>
#include <cohort/graph/machine/definition.hpp>
#include <cohort/graph/machine/names.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace cohort::graph::machine {

struct node_options {
  int rank = 0;
  int ranks = 1;
  std::size_t eager = 8192;         ///< larger values are offered (graph L1)
  std::size_t credit = 256 * 1024;  ///< bytes of unasked values, for each pair of ranks (graph U2)
  bool fail_fast = false;           ///< graph F4
  bool patient = false;  ///< while something waits, contributes when it is told (graph T3)
  std::string agreed;    ///< all other options as a text, equal on all ranks (graph K3)
};

/// A coroutine of the program that spawns and awaits in this scope (graph O3).
using producer = std::uint32_t;
/// A task of this rank that is ready, running or done: valid in its window.
using task_index = std::uint32_t;
/// An await that goes on.
using await_number = std::uint64_t;

/// What became of a spawn. With a failure the task has not been spawned by it (graph S2, S4, S5),
/// and the handle ends with that.
struct spawn_result {
  content_ptr refused;    ///< null: spawned
  bool is_first = false;  ///< of a put: it is what has given the value
};

/// An await that has begun. `ended`: with this value or failure, and nothing follows.
struct await_start {
  content_ptr ended{};
  bool may_move = false;    ///< of a take: the value is the caller's alone
  await_number number = 0;  ///< else; comes back in `action_kind::resume`
};

enum class action_kind : std::uint8_t {
  resume,  ///< the await `number` ends with `what` (a value or a failure); `may_move` as above
  post_receive,  ///< of `bytes` bytes from `rank` with `tag` on the second communicator, before
                 ///< the next messages are taken; call `transferred` with the bytes
  send_value,    ///< `what` to `rank` with `tag` on the second communicator; call `sent_value` then
  window_ended,  ///< the fence, again or close that this rank asked for: `report()`
  cancelled,     ///< running tasks get their cancellation slot; `cause()`
  warn,          ///< `text` is for the log
};

struct action {
  action_kind kind{};
  await_number number = 0;
  content_ptr what{};
  bool may_move = false;
  int rank = -1;
  int tag = 0;
  std::size_t bytes = 0;
  key value{};
  std::string text{};
};

/// An input of a task that runs.
struct task_input {
  content_ptr what;       ///< null for `after`
  bool may_move = false;  ///< nobody else on this rank holds it
};

/// A task that is to be run. The spans are valid until `ended`.
struct running_task {
  task_index index = 0;
  std::uint32_t function = 0;
  std::span<const std::byte> arguments;
  std::span<const use_kind> uses;
  std::span<task_input> inputs;  ///< the body may move out of those that may be moved
};

}  // namespace cohort::graph::machine
