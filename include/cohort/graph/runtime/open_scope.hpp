// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// One open scope on this rank as an interface: what handles, awaits and running tasks call.
///
/// The room `graph/runtime` owns the machine of a rank on the engine and on MPI. Spawns and awaits
/// of programs enter by this interface, messages by `comm/channel.hpp`; tasks that run, the ends of
/// awaits, messages and large values leave. All of it happens on the thread of the loop.

#include <cohort/core/asio.hpp>
#include <cohort/graph/machine/action.hpp>
#include <cohort/graph/machine/content.hpp>
#include <cohort/graph/machine/definition.hpp>
#include <cohort/graph/machine/names.hpp>
#include <cohort/graph/machine/report.hpp>
#include <cohort/graph/machine/stall.hpp>
#include <cohort/graph/result_store.hpp>
#include <cohort/graph/task_hash.hpp>
#include <cohort/progress/engine.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <source_location>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace cohort::graph::runtime {

class recorder;

/// Of a running task, which awaits nothing.
inline constexpr machine::producer no_producer = ~machine::producer{0};

/// Somebody who waits for a value, for the end of a window, or for a report of what waits.
class waiter {
 public:
  waiter() noexcept {}
  waiter(const waiter&) = delete;
  waiter& operator=(const waiter&) = delete;

  /// Called once, when it has what it will get.
  virtual void end() = 0;
  /// The context goes away.
  virtual void drop() noexcept = 0;

  machine::content_ptr what;         ///< a value or a failure
  bool may_move = false;             ///< the value is its alone
  std::exception_ptr error;          ///< instead of both
  machine::window_report report;     ///< of a window
  machine::stall_report stalled;     ///< of what waits
  machine::await_number number = 0;  ///< 0: it waits for no value

 protected:
  ~waiter() = default;
};

/// How a source is hashed; null where its type has no wire format.
using source_hasher = task_hash (*)(machine::content& value);

/// See above. Open from when it is made until its window is closed; then the object stays, so that
/// handles which are left can see that they are stale (graph K4), and is used again.
class open_scope {
 public:
  open_scope(const open_scope&) = delete;
  open_scope& operator=(const open_scope&) = delete;

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int ranks() const noexcept { return ranks_; }
  [[nodiscard]] const machine::scope_id& id() const noexcept { return id_; }
  /// Which opening this is, and which window: numbers that are used once on this rank. 0 while it
  /// is not open.
  [[nodiscard]] std::uint64_t opening() const noexcept { return opening_; }
  [[nodiscard]] std::uint64_t window() const noexcept { return window_; }
  [[nodiscard]] progress::engine& engine() const noexcept { return engine_; }
  /// How it has ended, until it is opened again: failures and divergences of all windows.
  [[nodiscard]] const machine::window_report& last_report() const noexcept { return last_; }
  /// From any thread.
  [[nodiscard]] bool is_cancelled() const noexcept {
    return cancelled_.load(std::memory_order_relaxed);
  }

  [[nodiscard]] virtual std::uint32_t family(const machine::family_facts& facts) = 0;
  /// Null, or why not.
  virtual machine::content_ptr spawn(const machine::task_name& task,
                                     const machine::definition_view& what,
                                     const std::source_location& site) = 0;
  virtual machine::content_ptr put(const machine::task_name& task, machine::content_ptr value,
                                   source_hasher hasher, const std::source_location& site) = 0;
  /// What a handle ends with that names a task of an earlier window (graph K4).
  [[nodiscard]] virtual machine::content_ptr stale(const machine::task_name& task,
                                                   std::uint64_t window,
                                                   const std::source_location& site) const = 0;
  /// A spawn that only this rank knows to be wrong (graph S5).
  virtual machine::content_ptr refuse(const machine::task_name& task, errc why, std::string text,
                                      const std::source_location& site) = 0;
  /// Perhaps it ends at once.
  virtual void await(machine::producer who, const machine::task_name& task, bool takes,
                     const std::source_location& site, waiter& one) = 0;
  virtual void withdraw(const machine::task_name& task, waiter& one) = 0;
  virtual void end_window(machine::producer who, machine::window_end how, waiter& one) = 0;
  /// Cancels the scope, unless the window has ended already.
  virtual void cancel_window(waiter& one) = 0;
  /// Asks the homes of all that waits here (graph Q1); ends when they have answered, or are told
  /// not to be waited for any longer. `withdrawn`: and of what awaits have been withdrawn from.
  virtual void ask(waiter& one, bool withdrawn) = 0;
  virtual void stop_asking(waiter& one) = 0;
  [[nodiscard]] virtual machine::producer fork() = 0;
  virtual void end(machine::producer who) = 0;
  virtual void cancel(machine::failure cause) = 0;
  [[nodiscard]] virtual std::string text_of(const machine::task_name& task) const = 0;
  [[nodiscard]] virtual std::string name_of(machine::task_index task) const = 0;
  /// Throw cohort::error if this rank does not know it, and why.
  [[nodiscard]] virtual task_hash hash_of(const machine::task_name& task) = 0;
  [[nodiscard]] virtual task_hash hash_of(machine::task_index task) = 0;
  /// Of a family of this scope: results of its tasks are kept, under this version or, if that is
  /// empty, that of the build. Throws cohort::error where it is another one already.
  virtual void cache(std::uint32_t family, const std::string& version) = 0;
  /// Where results are kept. Before anything runs.
  virtual void keep_results(std::shared_ptr<result_store> in) = 0;
  /// Null if nothing is recorded.
  [[nodiscard]] virtual recorder* recording() noexcept = 0;
  /// Keeps this and all that it needs.
  [[nodiscard]] virtual std::shared_ptr<void> keep() = 0;

  bool has_program = false;  ///< which may still ask how it has ended
  // Of a spawn, so that it allocates nothing.
  std::vector<std::byte> arguments;
  std::vector<machine::dependency> dependencies;
  /// Of families that are cached, by number, what the arguments of their tasks begin with; of
  /// others nothing.
  std::vector<std::vector<std::byte>> beginnings;

 protected:
  open_scope(progress::engine& engine, int rank, int ranks) noexcept
      : engine_(engine), rank_(rank), ranks_(ranks) {}
  virtual ~open_scope() = default;

  progress::engine& engine_;
  const int rank_;
  const int ranks_;
  machine::scope_id id_;
  std::uint64_t opening_ = 0;
  std::uint64_t window_ = 0;
  machine::window_report last_;
  std::atomic<bool> cancelled_{false};
};

// ---- how tasks run ------------------------------------------------------------------------------

/// A task that is about to run.
struct call {
  open_scope& scope;
  machine::running_task& task;
};

/// One with its inputs, to be run on another thread.
class prepared_call {
 public:
  prepared_call() noexcept {}
  prepared_call(const prepared_call&) = delete;
  prepared_call& operator=(const prepared_call&) = delete;
  virtual ~prepared_call() = default;
  [[nodiscard]] virtual machine::content_ptr run() = 0;
};

/// The ways to run a function of the program; what it throws leaves them.
struct task_code {
  machine::content_ptr (*run)(call&) = nullptr;  ///< null for a coroutine
  /// What the call needs is copied, and lives until the coroutine has ended.
  asio::awaitable<machine::content_ptr> (*start)(call&) = nullptr;
  /// Null for one that takes a task_context.
  std::unique_ptr<prepared_call> (*prepare)(call&) = nullptr;
  /// Which function it is, for the hash; without a version, that of this build.
  function_identity (*identity)(const std::string* version) = nullptr;
  /// A result that was kept; throws cohort::error if these bytes are none.
  machine::content_ptr (*decode)(std::span<const std::byte> kept) = nullptr;
};

/// As it is in the function table.
using code_function = const task_code&();

}  // namespace cohort::graph::runtime
