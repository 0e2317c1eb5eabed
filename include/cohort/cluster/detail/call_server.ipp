// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Bodies of cluster/call_server.hpp.

#include <cohort/cluster/call_server.hpp>
#include <cohort/cluster/error.hpp>
#include <cohort/core/function_table.hpp>
#include <cohort/core/host.hpp>

#include <algorithm>

namespace cohort::cluster {

template <class Any>
typename basic_call_server<Any>::caller_ptr basic_call_server<Any>::caller_behind(
    const std::shared_ptr<link>& from) {
  caller_ptr& at = callers_[from.get()];
  if (!at) {
    at = std::make_shared<caller>();
    at->back = from;
  }
  return at;
}

template <class Any>
void basic_call_server<Any>::called(const std::shared_ptr<link>& from, message&& each) {
  const auto refuse = [&](errc code, const std::string& text) {
    answer_error(*from, each.id, std::make_exception_ptr(error(code, text)));
  };
  if (each.oversize) return refuse(errc::message_too_long, "arguments above max_message");
  const auto tail = call_tail::take_from(each.bytes);
  if (!tail) return refuse(errc::unknown_function, "a call without a function");
  const auto& table = function_table::instance();
  plain_runner* const function = table.find<plain_runner>(tail->function);
  runner* const coroutine = function == nullptr ? table.find<runner>(tail->function) : nullptr;
  if (function == nullptr && coroutine == nullptr) {
    return refuse(errc::unknown_function, "no function " + std::to_string(tail->function) + " of " +
                                              std::to_string(table.size()));
  }
  std::optional<call_context::clock::time_point> deadline;
  if ((tail->flags & call_tail::limited) != 0) {
    constexpr std::uint64_t most = std::uint64_t{1} << 61U;
    deadline =
        call_context::clock::now() + std::chrono::nanoseconds(std::min(tail->remaining, most));
  }
  const caller_ptr behind = caller_behind(from);
  const bool everyone = (tail->flags & call_tail::with_manager) != 0;
  auto call =
      std::make_shared<running>(io_, place_, everyone ? place_->everyone : place_->world, deadline);
  call->function = function;
  call->coroutine = coroutine;
  call->arguments = std::move(each.bytes);
  call->id = each.id;
  call->tail = *tail;
  call->from = behind;
  if (!behind->calls.emplace(each.id, call).second) {
    return refuse(errc::invalid_argument, "the id of a running call");
  }
  ++running_;
  if ((tail->flags & call_tail::ordered) == 0) return begin(call);
  if (behind->dropped.erase(call->id) != 0) {
    forget(behind, call);
    behind->ordered.emplace(call->tail.order, nullptr);
  } else {
    behind->ordered.emplace(call->tail.order, call);
  }
  begin_ordered(behind);
}

// Large calls may arrive after small ones that were made later.
template <class Any>
void basic_call_server<Any>::begin_ordered(const caller_ptr& from) {
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
    const bool everyone = (call->tail.flags & call_tail::with_manager) != 0;
    call->context.world(everyone ? place_->everyone : place_->world);  // it may be a new one
    if (const communicator& world = call->context.world()) {
      const comm::request_source::guard hold(world.state()->source);
      call->live_before = world.state()->live;
      call->operations_before = world.state()->sequence;
    }
    from->last_begun = call->id;
    begin(call);
  }
}

/// What goes on would be taken by other ranks for what the next call begins there, and so would
/// what some have begun and others not.
template <class Any>
communicator_use basic_call_server<Any>::use_by(const running& call) {
  const communicator& world = call.context.world();
  if (!world) return {};
  const comm::communicator_state& state = *world.state();
  const comm::request_source::guard hold(state.source);
  return {state.sequence - call.operations_before,
          state.creations != nullptr || state.live > call.live_before};
}

/// Resumed by the loop: what Asio resumes there ends without one more turn of it.
struct resumed_by_loop {
  template <class Handler>
  void operator()(Handler&& handler, progress::engine* engine) const {
    using handler_type = std::decay_t<Handler>;
    progress::posted_handler<handler_type>(std::forward<Handler>(handler), *engine).post();
  }
};

template <class Any>
asio::awaitable<std::vector<std::byte>> basic_call_server<Any>::execute(running_ptr call) {
  co_await asio::this_coro::reset_cancellation_state(asio::enable_total_cancellation());
  auto& engine = asio::use_service<progress::engine>(call->context.context());
  co_await asio::async_initiate<const asio::use_awaitable_t<>, void()>(resumed_by_loop(),
                                                                       awaiting<Any>, &engine);
  call->entered = true;
  auto body = call->coroutine(call->context, std::move(call->arguments));
  co_return co_await std::move(body);
}

template <class Any>
void basic_call_server<Any>::run_plain(const running_ptr& call) {
  std::exception_ptr failed;
  std::vector<std::byte> result;
  try {
    result = call->function(call->context, std::move(call->arguments));
  } catch (...) {
    failed = std::current_exception();
  }
  ended(call, failed, std::move(result));
}

template <class Any>
asio::awaitable<std::vector<std::byte>> basic_call_server<Any>::execute_on_thread(
    running_ptr call) {
  if (call->function != nullptr) {
    co_return call->function(call->context, std::move(call->arguments));
  }
  auto body = call->coroutine(call->context, std::move(call->arguments));
  co_return co_await std::move(body);
}

// Callees begin in the order in which their calls have come, one after the other and not inside
// what has brought them.
template <class Any>
void basic_call_server<Any>::begin(const running_ptr& call) {
  call->begun = true;
  const bool on_thread = (call->tail.flags & call_tail::on_thread) != 0;
  if (!on_thread && call->function != nullptr) {
    return post([self = this->shared_from_this(), call] { self->run_plain(call); });
  }
  auto done = [self = this->shared_from_this(), call](std::exception_ptr failed,
                                                      std::vector<std::byte> result) {
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

template <class Any>
void basic_call_server<Any>::forget(const caller_ptr& from, const running_ptr& call) {
  if (from) from->calls.erase(call->id);
  --running_;
}

template <class Any>
void basic_call_server<Any>::ended(const running_ptr& call, const std::exception_ptr& failed,
                                   std::vector<std::byte>&& result) {
  call->entered = true;  // or it could not be
  if (call->aside) {
    if ((call->tail.flags & call_tail::on_thread) != 0) --threads_aside_;
    return;
  }
  const caller_ptr from = call->from.lock();
  forget(from, call);
  const bool ordered = (call->tail.flags & call_tail::ordered) != 0;
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
    answer_error(*from->back, call->id, failed);
  } else if ((call->tail.flags & call_tail::one_way) == 0) {
    from->back->send(message_kind::result, call->id, std::move(result));
  }
  if (from && ordered) {
    from->ordered_runs = false;
    if (failed) from->holds.insert(call->id);
    begin_ordered(from);
  }
  if (idle_ && idle()) idle_();
}

template <class Any>
standing_aside basic_call_server<Any>::set_aside(const std::shared_ptr<link>& from,
                                                 std::uint64_t id) {
  const caller_ptr behind = caller_behind(from);
  behind->holds.insert(id);
  const auto at = behind->calls.find(id);
  if (at == behind->calls.end()) {
    if (id > behind->last_begun) behind->dropped.insert(id);
    const running_ptr& left = behind->left_over;
    const bool runs = id != 0 && left && left->id >= id && (left->id > id || use_by(*left).goes_on);
    return {runs, behind->last_begun};
  }
  const running_ptr call = at->second;
  forget(behind, call);
  if (call->begun) {
    give_up(call);
    call->aside = true;
    if ((call->tail.flags & call_tail::on_thread) != 0) ++threads_aside_;
    behind->ordered_runs = false;
  } else {
    behind->ordered[call->tail.order] = nullptr;
  }
  if (idle_ && idle()) idle_();
  return {call->begun, behind->last_begun};
}

template <class Any>
void basic_call_server<Any>::go_on(const std::shared_ptr<link>& from, std::uint64_t id) {
  const caller_ptr behind = caller_behind(from);
  if (id == 0) {
    behind->holds.clear();
  } else {
    behind->holds.erase(id);
  }
  begin_ordered(behind);
}

template <class Any>
void basic_call_server<Any>::cancel(const std::shared_ptr<link>& from, std::uint64_t id) {
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
               std::make_exception_ptr(std::system_error(asio::error::operation_aborted)));
  if (idle_ && idle()) idle_();
}

template <class Any>
void basic_call_server<Any>::lose(const std::shared_ptr<link>& from) {
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

template <class Any>
void basic_call_server<Any>::give_up(const running_ptr& call) {
  call->context.cancel();
  if (!call->begun || call->function != nullptr) return;
  // What has come is begun: a coroutine is cancelled when it waits for something.
  if (!call->entered && (call->tail.flags & call_tail::on_thread) == 0) {
    return asio::post(io_, [self = this->shared_from_this(), call] { self->give_up(call); });
  }
  call->cancel.emit(asio::cancellation_type::total);
}

template <class Any>
void basic_call_server<Any>::answer_error(link& to, std::uint64_t id,
                                          const std::exception_ptr& failed) const {
  std::vector<std::byte> bytes;
  wire::writer out(bytes);
  encode_exception(out, failed, place_->id, process::host_name());
  to.send(message_kind::failure, id, std::move(bytes));
}

template <class Any>
void basic_call_server<Any>::end() {
  // What has been set aside may never end, and to wait for it would be the same.
  if (threads_aside_ > 0) static_cast<void>(threads_.release());
  threads_.reset();
  callers_.clear();
  place_ = std::make_shared<const call_place>();
}

}  // namespace cohort::cluster
