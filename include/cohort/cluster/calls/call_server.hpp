// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Runs the functions that other processes call, and answers them.

#include <cohort/cluster/call_context.hpp>
#include <cohort/cluster/error.hpp>
#include <cohort/cluster/event.hpp>
#include <cohort/cluster/function.hpp>
#include <cohort/cluster/link/link.hpp>
#include <cohort/cluster/link/message.hpp>
#include <cohort/comm/operation.hpp>
#include <cohort/comm/requests/source.hpp>
#include <cohort/core/function_table.hpp>
#include <cohort/core/process.hpp>
#include <cohort/progress/engine.hpp>
#include <cohort/progress/handler_operation.hpp>
#include <cohort/progress/operation.hpp>

#include <asio/thread_pool.hpp>

#include <algorithm>
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

/// Has the loop resume a coroutine: what Asio resumes so ends without one more turn of the loop.
struct resumed_by_loop {
  template <class Handler>
  void operator()(Handler&& handler, progress::engine* engine) const {
    using handler_type = std::decay_t<Handler>;
    progress::posted_handler<handler_type>(std::forward<Handler>(handler), *engine).post();
  }
};

/// Ordered calls (`call_tail::ordered`) of one caller are begun one after the other; all others run
/// beside each other on the loop, or on threads. Used by the thread that runs the context. Must be
/// owned by a shared_ptr: what runs keeps it.
template <class Any>
class basic_call_server : public std::enable_shared_from_this<basic_call_server<Any>> {
 public:
  explicit basic_call_server(asio::io_context& io)
      : io_(io), engine_(asio::use_service<progress::engine>(io)) {}
  basic_call_server(const basic_call_server&) = delete;
  basic_call_server& operator=(const basic_call_server&) = delete;

  /// What callees can know of their place. Before the first call, or while calls of all are held.
  void place(call_place where) { place_ = std::make_shared<const call_place>(std::move(where)); }
  /// Called whenever the last callee has ended.
  void on_idle(std::function<void()> function) { idle_ = std::move(function); }
  /// Nothing runs but what has been set aside.
  [[nodiscard]] bool idle() const noexcept { return running_ == 0; }
  [[nodiscard]] const call_place& place() const noexcept { return *place_; }

  /// A call has come over this link.
  void called(const std::shared_ptr<link>& from, message&& each) {
    const auto refuse = [&](errc code, const std::string& text) {
      answer_error(*from, each.id, std::make_exception_ptr(error(code, text)), place_->id);
    };
    if (each.oversize) return refuse(errc::message_too_long, "arguments above max_message");
    const auto tail = call_tail::take_from(each.bytes);
    if (!tail) return refuse(errc::unknown_function, "a call without a function");
    const auto& table = function_table::instance();
    plain_runner* const function = table.find<plain_runner>(tail->function);
    runner* const coroutine = function == nullptr ? table.find<runner>(tail->function) : nullptr;
    if (function == nullptr && coroutine == nullptr) {
      return refuse(errc::unknown_function, "no function " + std::to_string(tail->function) +
                                                " of " + std::to_string(table.size()));
    }
    std::optional<call_context::clock::time_point> deadline;
    if (tail->is(call_tail::limited)) {
      constexpr std::uint64_t most = std::uint64_t{1} << 61U;
      deadline =
          call_context::clock::now() + std::chrono::nanoseconds(std::min(tail->remaining, most));
    }
    const caller_ptr behind = caller_behind(from);
    const bool everyone = tail->is(call_tail::with_manager);
    auto call = std::make_shared<running>(io_, place_, everyone ? place_->everyone : place_->world,
                                          deadline);
    call->function = function;
    call->coroutine = coroutine;
    call->arguments = std::move(each);
    call->id = each.id;
    call->tail = *tail;
    call->from = behind;
    if (!behind->calls.emplace(each.id, call).second) {
      return refuse(errc::invalid_argument, "the id of a running call");
    }
    ++running_;
    if (!tail->is(call_tail::ordered)) return begin(call);
    if (behind->dropped.erase(call->id) != 0) {
      forget(behind, call);
      behind->ordered.emplace(call->tail.order, nullptr);
    } else {
      behind->ordered.emplace(call->tail.order, call);
    }
    begin_ordered(behind);
  }
  /// Its caller gives it up.
  void cancel(const std::shared_ptr<link>& from, std::uint64_t id) {
    const caller_ptr behind = caller_behind(from);
    const auto at = behind->calls.find(id);
    if (at == behind->calls.end()) return;
    const running_ptr call = at->second;
    give_up(call);
    if (call->begun) return;
    forget(behind, call);
    behind->ordered[call->tail.order] = nullptr;
    begin_ordered(behind);
    answer_error(*from, id,
                 std::make_exception_ptr(std::system_error(asio::error::operation_aborted)),
                 place_->id);
    if (idle_ && idle()) idle_();
  }
  /// That ordered call has failed in another process: none after it is begun until `go_on` with the
  /// same id.
  void hold(const std::shared_ptr<link>& from, std::uint64_t id) {
    caller_behind(from)->holds.insert(id);
  }
  /// Nobody waits any more for that ordered call, and its end may never come: a collective of MPI
  /// cannot be given up. It is kept, but counts no more. No ordered call is begun until `go_on`
  /// with the same id.
  standing_aside set_aside(const std::shared_ptr<link>& from, std::uint64_t id) {
    const caller_ptr behind = caller_behind(from);
    behind->holds.insert(id);
    const auto at = behind->calls.find(id);
    if (at == behind->calls.end()) {
      if (id > behind->last_begun) behind->dropped.insert(id);
      const running_ptr& left = behind->left_over;
      const bool runs =
          id != 0 && left && left->id >= id && (left->id > id || use_by(*left).goes_on);
      return {runs, behind->last_begun};
    }
    const running_ptr call = at->second;
    forget(behind, call);
    if (call->begun) {
      give_up(call);
      call->aside = true;
      if (call->tail.is(call_tail::on_thread)) ++threads_aside_;
      behind->ordered_runs = false;
    } else {
      behind->ordered[call->tail.order] = nullptr;
    }
    if (idle_ && idle()) idle_();
    return {call->begun, behind->last_begun};
  }
  /// Of an ordered call that has failed, or been set aside: the next ones may begin. With id 0 of
  /// all of them.
  void go_on(const std::shared_ptr<link>& from, std::uint64_t id) {
    const caller_ptr behind = caller_behind(from);
    if (id == 0) {
      behind->holds.clear();
    } else {
      behind->holds.erase(id);
    }
    begin_ordered(behind);
  }
  /// That process is gone: what it has called is cancelled.
  void lose(const std::shared_ptr<link>& from) {
    const auto at = callers_.find(from.get());
    if (at == callers_.end()) return;
    const caller_ptr behind = std::move(at->second);
    callers_.erase(at);
    std::vector<running_ptr> begun;
    for (const auto& [id, call] : behind->calls) {
      if (call->begun) begun.push_back(call);
    }
    running_ -= behind->calls.size() - begun.size();
    for (const running_ptr& call : begun) give_up(call);
  }
  /// That call has failed, in the process of that rank.
  static void answer_error(link& to, std::uint64_t id, const std::exception_ptr& failed, int rank) {
    std::vector<std::byte> bytes;
    wire::writer out(bytes);
    encode_exception(out, failed, rank, process::host_name());
    to.send(message_kind::failure, id, std::move(bytes));
  }
  /// Waits for the threads of callees, and forgets the place. With nothing that runs.
  void end() {
    // What has been set aside may never end, and to wait for it would be the same.
    if (threads_aside_ > 0) static_cast<void>(threads_.release());
    threads_.reset();
    callers_.clear();
    place_ = std::make_shared<const call_place>();
  }

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
    payload arguments;
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
    /// them: others may be in a collective that it has not entered, and would take that of the next
    /// call for it.
    std::set<std::uint64_t> holds;
  };
  using caller_ptr = std::shared_ptr<caller>;

  [[nodiscard]] caller_ptr caller_behind(const std::shared_ptr<link>& from) {
    caller_ptr& at = callers_[from.get()];
    if (!at) {
      at = std::make_shared<caller>();
      at->back = from;
    }
    return at;
  }
  // Callees begin in the order in which their calls have come, one after the other and not inside
  // what has brought them.
  void begin(const running_ptr& call) {
    call->begun = true;
    const bool on_thread = call->tail.is(call_tail::on_thread);
    if (!on_thread && call->function != nullptr) {
      return post([self = this->shared_from_this(), call] { self->run_plain(call); });
    }
    auto done = [self = this->shared_from_this(), call](std::exception_ptr failed, payload result) {
      self->ended(call, failed, std::move(result));
    };
    if (on_thread) {
      if (!threads_) threads_ = std::make_unique<asio::thread_pool>(4);
      asio::co_spawn(threads_->get_executor(), execute_on_thread(call),
                     asio::bind_executor(io_.get_executor(), std::move(done)));
    } else {
      asio::co_spawn(io_, execute(call),
                     asio::bind_cancellation_slot(call->cancel.slot(), std::move(done)));
    }
  }
  // Large calls may arrive after small ones that were made later.
  void begin_ordered(const caller_ptr& from) {
    for (auto next = from->ordered.find(from->next_ordered);
         !from->ordered_runs && next != from->ordered.end();
         next = from->ordered.find(from->next_ordered)) {
      const bool held =
          next->second && !from->holds.empty() && next->second->id > *from->holds.begin();
      if (held) return;
      const running_ptr call = std::move(next->second);
      from->ordered.erase(next);
      ++from->next_ordered;
      if (!call) continue;
      from->ordered_runs = true;
      const bool everyone = call->tail.is(call_tail::with_manager);
      call->context.world(everyone ? place_->everyone : place_->world);  // it may be a new one
      if (const communicator& world = call->context.world()) {
        const comm::request_source::guard hold(world.state()->source);
        call->live_before = world.state()->live;
        call->operations_before = world.state()->sequence.get();
      }
      from->last_begun = call->id;
      begin(call);
    }
  }
  /// What it has done on its communicator. Other ranks would take an operation that goes on for one
  /// that the next call begins there, and so with one that some have begun and others not.
  [[nodiscard]] static communicator_use use_by(const running& call) {
    const communicator& world = call.context.world();
    if (!world) return {};
    const comm::communicator_state& state = *world.state();
    const comm::request_source::guard hold(state.source);
    return {state.sequence.get() - call.operations_before,
            state.creations != nullptr || state.live > call.live_before};
  }
  void ended(const running_ptr& call, const std::exception_ptr& failed, payload&& result) {
    call->entered = true;  // or it could not be
    if (call->aside) {
      if (call->tail.is(call_tail::on_thread)) --threads_aside_;
      return;
    }
    const caller_ptr from = call->from.lock();
    forget(from, call);
    const bool ordered = call->tail.is(call_tail::ordered);
    if (from && ordered) {
      const communicator_use use = use_by(*call);
      if (use.goes_on) from->left_over = call;
      if (use.goes_on || use.operations != 0) {
        from->back->send(message_kind::used, call->id, wire::encode(use));
      }
    }
    if (!from) {
      // Lost in the meantime: nobody to answer.
    } else if (failed) {
      answer_error(*from->back, call->id, failed, place_->id);
    } else if (!call->tail.is(call_tail::one_way)) {
      from->back->send(message_kind::result, call->id, std::move(result));
    }
    if (from && ordered) {
      from->ordered_runs = false;
      if (failed) from->holds.insert(call->id);
      begin_ordered(from);
    }
    if (idle_ && idle()) idle_();
  }
  void forget(const caller_ptr& from, const running_ptr& call) {
    if (from) from->calls.erase(call->id);
    --running_;
  }
  static asio::awaitable<payload> execute(running_ptr call) {
    co_await asio::this_coro::reset_cancellation_state(asio::enable_total_cancellation());
    auto& engine = asio::use_service<progress::engine>(call->context.context());
    co_await asio::async_initiate<const asio::use_awaitable_t<>, void()>(resumed_by_loop(),
                                                                         awaiting<Any>, &engine);
    call->entered = true;
    co_return co_await call->coroutine(call->context, std::move(call->arguments));
  }
  static asio::awaitable<payload> execute_on_thread(running_ptr call) {
    if (call->function != nullptr) {
      co_return call->function(call->context, std::move(call->arguments));
    }
    co_return co_await call->coroutine(call->context, std::move(call->arguments));
  }
  void run_plain(const running_ptr& call) {
    std::exception_ptr failed;
    payload result;
    try {
      result = call->function(call->context, std::move(call->arguments));
    } catch (...) {
      failed = std::current_exception();
    }
    ended(call, failed, std::move(result));
  }
  void give_up(const running_ptr& call) {
    call->context.cancel();
    if (!call->begun || call->function != nullptr) return;
    // A coroutine that has not been entered is entered first, and cancelled when it waits.
    if (!call->entered && !call->tail.is(call_tail::on_thread)) {
      return asio::post(io_, [self = this->shared_from_this(), call] { self->give_up(call); });
    }
    call->cancel.emit(asio::cancellation_type::total);
  }
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
