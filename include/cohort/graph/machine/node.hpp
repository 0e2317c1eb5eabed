// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// One rank in one scope: the protocol of the task graph as a machine.

#include <cohort/graph/machine/content.hpp>
#include <cohort/graph/machine/definition.hpp>
#include <cohort/graph/machine/names.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace cohort::graph::machine {

// INTERFACE DRAFT: what the runtime and the checker call. Private parts are for the implementation.

struct node_options {
  int rank = 0;
  int ranks = 1;
  std::size_t eager = 8192;        ///< larger values are offered (graph L1)
  std::size_t credit = 256 * 1024; ///< bytes of unasked values, for each pair of ranks (graph U2)
  bool fail_fast = false;          ///< graph F4
  std::string agreed;              ///< all other options as a text, equal on all ranks (graph K3)
};

/// One divergence, found by a home, by a spawner or by the root of the wave.
struct divergence {
  std::string task;   ///< or the family, or "options of the scope"
  std::string text;   ///< the field, the ranks on each side and both sites or values
  friend bool operator==(const divergence&, const divergence&) = default;
};

/// How a window has ended; equal on all ranks, but for `closed` (graph P8, T8).
struct window_report {
  std::uint64_t failed = 0;              ///< tasks
  std::optional<failure> first_failure;  ///< of the smallest key
  std::vector<divergence> divergences;   ///< sorted
  bool closed = false;     ///< others have closed or fenced, this rank had asked for less
  std::optional<failure> cancelled;  ///< the cause, where the scope is
};

enum class window_end : std::uint8_t { again, fence, close };

/// A coroutine of the program that spawns and awaits in this scope (graph O3).
using producer = std::uint32_t;
/// A task of this rank that is ready, running or done: valid in its window.
using task_index = std::uint32_t;
/// An await that goes on.
using await_number = std::uint64_t;

/// What became of a spawn. With a failure the task has not been spawned by it (graph S2, S4, S5),
/// and the handle ends with that.
struct spawn_result {
  content_ptr refused;  ///< null: spawned
};

/// An await that has begun. `ended`: with this value or failure, and nothing follows.
struct await_start {
  content_ptr ended;
  bool may_move = false;    ///< of a take: the value is the caller's alone
  await_number number = 0;  ///< else; comes back in `action_kind::resume`
};

enum class action_kind : std::uint8_t {
  resume,        ///< the await `number` ends with `what` (a value or a failure); `may_move` as above
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
  content_ptr what;
  bool may_move = false;
  int rank = -1;
  int tag = 0;
  std::size_t bytes = 0;
  key value;
  std::string text;
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

class endpoint;

template <class Any = void>
class basic_node {
 public:
  basic_node(endpoint& owner, scope_id id, const node_options& options);

  // ---- names ----
  /// The number of a family of that name on this rank; the first naming of the window is told (K3).
  std::uint32_t family(const family_facts& facts);
  /// Which window it is: names of an earlier one are stale (K4).
  [[nodiscard]] std::uint32_t window() const noexcept;
  /// "factor(3)".
  [[nodiscard]] std::string text_of(const task_name& name) const;

  // ---- the program of this rank ----
  spawn_result spawn(const task_name& task, const definition_view& what, spawn_site site);
  /// Its home puts the value of a source; elsewhere refused.
  spawn_result put(const task_name& task, content_ptr value, spawn_site site);
  await_start await(producer who, const task_name& task, bool takes, spawn_site site);
  /// The await is not continued: no `resume` follows (C4). Its claim stands.
  void withdraw(await_number which);
  [[nodiscard]] producer fork();
  void end(producer who);  ///< it will not do anything any more
  /// The producer waits for the end of the window. `window_ended` tells when all ranks' have.
  void end_window(producer who, window_end how);
  void cancel(failure cause);

  // ---- the scheduler of this rank ----
  /// Takes a task that is ready, the newest or the oldest; nothing if none is.
  [[nodiscard]] std::optional<running_task> start_newest();
  [[nodiscard]] std::optional<running_task> start_oldest();
  [[nodiscard]] bool has_ready() const noexcept;
  void ended(task_index which, content_ptr what);

  // ---- actions ----
  [[nodiscard]] std::span<action> actions() noexcept;
  void clear_actions();
  [[nodiscard]] const window_report& report() const noexcept;  ///< of the last window
  [[nodiscard]] const std::optional<failure>& cause() const noexcept;  ///< of the cancellation
  [[nodiscard]] bool closed() const noexcept;

  // ---- timers: what it would do only when idle, it may do before ----
  [[nodiscard]] bool has_wants() const noexcept;           ///< want_delay
  [[nodiscard]] bool has_announcements() const noexcept;   ///< announce_delay
  void flush_wants();
  void flush_announcements();
};

using node = basic_node<>;

}  // namespace cohort::graph::machine
