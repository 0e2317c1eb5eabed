// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Runs the functions that other processes call, and answers them.

#include <cohort/cluster/call_context.hpp>
#include <cohort/cluster/event.hpp>
#include <cohort/cluster/function.hpp>
#include <cohort/cluster/link.hpp>
#include <cohort/cluster/message.hpp>
#include <cohort/comm/communicator.hpp>
#include <cohort/comm/requests/source.hpp>
#include <cohort/progress/engine.hpp>
#include <cohort/progress/handler_operation.hpp>
#include <cohort/progress/operation.hpp>
#include <cohort/progress/pool.hpp>

#include <asio/thread_pool.hpp>

#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace cohort::cluster {

/// Calls of one kind are begun one after the other for each caller (`call_tail::ordered`); all
/// others run beside each other on the loop, or on threads. Used by the thread that runs the
/// context. Must be owned by a shared_ptr: what runs keeps it.
/// (A template, so that only who uses it compiles its bodies.)
template <class Any>
class basic_call_server : public std::enable_shared_from_this<basic_call_server<Any>> {
 public:
  using call_server = basic_call_server;
  explicit basic_call_server(asio::io_context& io)
      : io_(io), engine_(asio::use_service<progress::engine>(io)) {}
  basic_call_server(const call_server&) = delete;
  basic_call_server& operator=(const call_server&) = delete;

  /// What callees can know of their place. Before the first call, or while calls of all are held.
  void place(call_place where) { place_ = std::make_shared<const call_place>(std::move(where)); }
  /// Called whenever the last callee has ended.
  void on_idle(std::function<void()> function) { idle_ = std::move(function); }
  /// Nothing runs but what has been set aside.
  [[nodiscard]] bool idle() const noexcept { return running_ == 0; }
  [[nodiscard]] const call_place& place() const noexcept { return *place_; }

  /// A call has come over this link.
  void called(const std::shared_ptr<link>& from, message&& each);
  /// Its caller gives it up.
  void cancel(const std::shared_ptr<link>& from, std::uint64_t id);
  /// That ordered call has failed in another process: none after it is begun until `go_on` with the
  /// same id.
  void hold(const std::shared_ptr<link>& from, std::uint64_t id) {
    caller_behind(from)->holds.insert(id);
  }
  /// Nobody waits any more for that ordered call, and its end may never come: a collective of MPI
  /// cannot be given up. It is kept, but counts no more. No ordered call is begun until `go_on`
  /// with the same id.
  standing_aside set_aside(const std::shared_ptr<link>& from, std::uint64_t id);
  /// Of an ordered call that has failed, or been set aside: the next ones may begin. With id 0 of
  /// all of them.
  void go_on(const std::shared_ptr<link>& from, std::uint64_t id);
  /// That process is gone: what it has called is cancelled.
  void lose(const std::shared_ptr<link>& from);
  /// Waits for the threads of callees, and forgets the place. With nothing that runs.
  void end();

 private:
  struct caller;
  struct running {
    running(asio::io_context& io, const std::shared_ptr<const call_place>& where,
            const communicator& world, std::optional<call_context::clock::time_point> deadline)
        : context(io, where, world, deadline) {}

    call_context context;
    asio::cancellation_signal cancel;
    runner* coroutine = nullptr;  // or
    plain_runner* function = nullptr;
    std::vector<std::byte> arguments;
    std::uint64_t id = 0;
    call_tail tail;
    bool begun = false;                   // nothing stands before it any more
    bool entered = false;                 // the coroutine
    bool aside = false;                   // see set_aside
    std::size_t live_before = 0;          // operations on its communicator when it began, under way
    std::uint64_t operations_before = 0;  // and all
    std::weak_ptr<caller> from;           // which has it
  };
  using running_ptr = std::shared_ptr<running>;
  struct caller {
    std::shared_ptr<link> back;
    std::unordered_map<std::uint64_t, running_ptr> calls;
    std::map<std::uint64_t, running_ptr> ordered;  // by place; null: it has been cancelled
    std::uint64_t next_ordered = 0;
    std::uint64_t last_begun = 0;     // id of an ordered call
    running_ptr left_over;            // the last one that has left something over
    std::set<std::uint64_t> dropped;  // set aside before they had come
    bool ordered_runs = false;
    /// Ordered calls after which none begins yet; 0: none at all. One that has failed is among
    /// them: others may be in a collective that it has not entered, and the next call's would be
    /// taken for that.
    std::set<std::uint64_t> holds;
  };
  using caller_ptr = std::shared_ptr<caller>;

  [[nodiscard]] caller_ptr caller_behind(const std::shared_ptr<link>& from);
  void begin(const running_ptr& call);
  void begin_ordered(const caller_ptr& from);
  [[nodiscard]] static communicator_use use_by(const running& call);
  void ended(const running_ptr& call, const std::exception_ptr& failed,
             std::vector<std::byte>&& result);
  void forget(const caller_ptr& from, const running_ptr& call);
  void answer_error(link& to, std::uint64_t id, const std::exception_ptr& failed) const;
  static asio::awaitable<std::vector<std::byte>> execute(running_ptr call);
  static asio::awaitable<std::vector<std::byte>> execute_on_thread(running_ptr call);
  void run_plain(const running_ptr& call);
  void give_up(const running_ptr& call);
  /// Called by the loop.
  template <class Function>
  void post(Function function) {
    progress::posted_handler<Function>(std::move(function), engine_).post();
  }

  asio::io_context& io_;
  progress::engine& engine_;
  std::shared_ptr<const call_place> place_ = std::make_shared<const call_place>();
  std::unordered_map<link*, caller_ptr> callers_;
  std::size_t running_ = 0;
  std::unique_ptr<asio::thread_pool> threads_;
  std::size_t threads_aside_ = 0;  // of set aside calls
  std::function<void()> idle_;
};
using call_server = basic_call_server<void>;

}  // namespace cohort::cluster

#ifndef COHORT_SEPARATE_COMPILATION
#include <cohort/cluster/detail/call_server.ipp>
#endif
