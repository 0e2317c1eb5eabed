// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The calls that a process has made: their numbers, their answers, and how they are given
/// up. Verbs and messages enter the room `calls`; answers leave.

#include <cohort/cluster/error.hpp>
#include <cohort/cluster/event.hpp>
#include <cohort/cluster/link/link.hpp>
#include <cohort/cluster/link/message.hpp>
#include <cohort/core/log.hpp>
#include <cohort/progress/engine.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace cohort::cluster {

/// Somebody who waits for the answer to a call. Completed exactly once.
class waiting_call {
 public:
  waiting_call() = default;
  waiting_call(const waiting_call&) = delete;
  waiting_call& operator=(const waiting_call&) = delete;
  virtual ~waiting_call() = default;

  /// Either an error, or the result. Runs no code of the user's before it returns.
  virtual void complete(std::exception_ptr failed, payload&& result) = 0;
};

/// One call as it is given to a client.
struct call_request {
  int rank = -1;
  std::size_t function = 0;  ///< index in the function table
  std::string_view name;     ///< of the function; for errors
  payload arguments;
  std::uint32_t flags = 0;                                        ///< of call_tail
  std::optional<std::chrono::steady_clock::time_point> deadline;  ///< one for all of a call of all
};

/// A process that functions can be called in.
struct callee_process {
  std::shared_ptr<link> control;
  /// How many ordered calls it has been sent; null: none are allowed.
  std::uint64_t* ordered = nullptr;
};

/// Used by the thread that runs the context. Must be owned by a shared_ptr.
template <class Any>
class basic_call_client : public std::enable_shared_from_this<basic_call_client<Any>> {
 public:
  /// Where a call of that rank goes; throws why it cannot be made. `text` says which call it is.
  using route_function = std::function<callee_process(int rank, const std::string& text)>;
  using notify_error_handler = std::function<void(int rank, std::exception_ptr)>;

  basic_call_client(asio::io_context& io, std::size_t max_message, route_function route)
      : io_(io),
        engine_(asio::use_service<progress::engine>(io)),
        max_message_(max_message),
        route_(std::move(route)) {}
  basic_call_client(const basic_call_client&) = delete;
  basic_call_client& operator=(const basic_call_client&) = delete;

  /// A number for a call, by which it can be given up.
  [[nodiscard]] std::uint64_t next_id() noexcept { return ++last_id_; }
  /// Sends a call. Every problem reaches `waiting`, which is null for a call without answer; then
  /// problems found here are thrown.
  void start(std::uint64_t id, call_request request, std::shared_ptr<waiting_call> waiting) {
    callee_process callee;
    try {
      const std::string text = text_of(request.name);
      if (!route_) throw error(errc::manager_reused, text + "no workers");
      callee = route_(request.rank, text);
      if (request.arguments.size() + call_tail::size > max_message_) {
        throw error(errc::message_too_long,
                    text + std::to_string(request.arguments.size()) +
                        " bytes of arguments are more than max_message allows");
      }
    } catch (...) {
      if (!waiting) throw;
      return waiting->complete(std::current_exception(), {});
    }
    call_tail tail;
    tail.function = static_cast<std::uint32_t>(request.function);
    tail.flags = request.flags;
    if (tail.is(call_tail::ordered)) tail.order = (*callee.ordered)++;
    if (request.deadline) {
      tail.flags |= call_tail::limited;
      const std::chrono::nanoseconds left = *request.deadline - std::chrono::steady_clock::now();
      tail.remaining = static_cast<std::uint64_t>(std::max<std::int64_t>(left.count(), 0));
    }
    tail.append_to(request.arguments.bytes);
    if (waiting) {
      pending_call& made = pending_[id];
      made.rank = request.rank;
      made.name = request.name;
      made.control = callee.control;
      made.waiting = std::move(waiting);
      made.ordered = tail.is(call_tail::ordered);
      if (request.deadline) {
        made.deadline = std::make_unique<asio::steady_timer>(io_, *request.deadline);
        made.deadline->async_wait([self = this->weak_from_this(), id](std::error_code stopped) {
          const auto here = self.lock();
          if (!stopped && here) here->is_late(id);
        });
      }
    }
    callee.control->send(message_kind::call, id, std::move(request.arguments));
  }
  /// Asks the callee to end; the call still waits for its answer.
  void cancel_callee(std::uint64_t id) {
    const auto found = pending_.find(id);
    if (found != pending_.end()) found->second.control->send(message_kind::cancel, id);
  }
  /// Completes the call with this error and has its callee cancelled. Nothing if it has ended.
  void give_up(std::uint64_t id, std::exception_ptr why) {
    cancel_callee(id);
    const auto at = pending_.find(id);
    if (at != pending_.end() && at->second.ordered) unanswered_[id] = at->second.rank;
    complete(id, std::move(why), {});
  }
  /// Why a call is given up. `call` begins the text: "call of NAME: ".
  using reason_function = std::function<std::exception_ptr(const std::string& call, int rank)>;
  /// Gives up all calls, or all of one rank.
  void give_up_all(const reason_function& why, std::optional<int> rank = std::nullopt) {
    for_each(rank, [&](std::uint64_t id, const pending_call& call) {
      give_up(id, why(text_of(call.name), call.rank));
    });
  }
  /// Gives all up; calls that follow from them, of `map`, are not made any more.
  void interrupt() {
    ++interrupts_;
    give_up_all([](const std::string&, int) {
      return std::make_exception_ptr(std::system_error(asio::error::operation_aborted));
    });
  }
  [[nodiscard]] std::uint64_t interrupts() const noexcept { return interrupts_; }

  /// A result or a failure has come. False if that rank has never been asked: it breaks the
  /// protocol.
  [[nodiscard]] bool answered(int rank, message&& each) {
    if ((each.id & one_way_bit) != 0 && each.kind == message_kind::failure) {
      notify_failed(rank, each);
      return true;
    }
    const auto at = pending_.find(each.id);
    if (at == pending_.end()) {  // given up before
      unanswered_.erase(each.id);
      return true;
    }
    if (at->second.rank != rank) return false;
    if (each.oversize) {
      const std::string text = text_of(at->second.name) + "rank " + std::to_string(rank) +
                               ": the result is above max_message";
      complete(each.id, std::make_exception_ptr(error(errc::message_too_long, text)), {});
    } else if (each.kind == message_kind::result) {
      complete(each.id, nullptr, std::move(each));
    } else {
      wire::reader in(each.bytes);
      complete(each.id, decode_exception(in), {});
    }
    return true;
  }
  /// Whether the callee of that ordered call has not answered, also if the call was given up.
  [[nodiscard]] bool is_pending(std::uint64_t id) const {
    return pending_.count(id) != 0 || unanswered_.count(id) != 0;
  }
  [[nodiscard]] bool any_is_pending() const {
    return !unanswered_.empty() ||
           std::any_of(pending_.begin(), pending_.end(),
                       [](const auto& each) { return each.second.ordered; });
  }
  /// No answer to that ordered call is expected any more.
  void forget(std::uint64_t id) { unanswered_.erase(id); }
  /// Ends the calls of a rank with peer_lost_error.
  void lose(int rank, const std::string& whom, const std::string& cause) {
    std::erase_if(unanswered_, [rank](const auto& each) { return each.second == rank; });
    for_each(rank, [&](std::uint64_t id, const pending_call& call) {
      const std::string text = text_of(call.name) + whom + " is lost: " + cause;
      complete(id, std::make_exception_ptr(peer_lost_error({rank}, text)), {});
    });
  }
  /// Bytes of the arguments of a call.
  void max_message(std::size_t bytes) noexcept { max_message_ = bytes; }
  /// No more calls can be made.
  void retire() { route_ = nullptr; }
  /// Lets go of who waits, without completing them: at the end of the loop.
  void drop() { std::exchange(pending_, {}).clear(); }

  void on_notify_error(notify_error_handler handler) { notify_error_ = std::move(handler); }
  /// Called when the last pending call has ended.
  void on_idle(std::function<void()> function) { idle_ = std::move(function); }

  [[nodiscard]] asio::io_context& context() const noexcept { return io_; }
  [[nodiscard]] progress::engine& engine() const noexcept { return engine_; }
  [[nodiscard]] std::size_t pending() const noexcept { return pending_.size(); }

 private:
  struct pending_call {
    int rank = -1;
    std::string_view name;
    std::shared_ptr<link> control;
    std::shared_ptr<waiting_call> waiting;
    std::unique_ptr<asio::steady_timer> deadline;
    bool ordered = false;
  };

  [[nodiscard]] static std::string text_of(std::string_view name) {
    return "call of " + std::string(name) + ": ";
  }
  /// In the order in which they were made; one may end others.
  template <class Body>
  void for_each(std::optional<int> rank, const Body& body) {
    std::vector<std::uint64_t> ids;
    for (const auto& [id, call] : pending_) {
      if (!rank || call.rank == *rank) ids.push_back(id);
    }
    std::sort(ids.begin(), ids.end());
    for (const std::uint64_t id : ids) {
      const auto at = pending_.find(id);
      if (at != pending_.end()) body(id, at->second);
    }
  }
  void is_late(std::uint64_t id) {
    const auto at = pending_.find(id);
    if (at == pending_.end()) return;
    give_up(id, std::make_exception_ptr(deadline_error(text_of(at->second.name) + "rank " +
                                                       std::to_string(at->second.rank) +
                                                       " has not answered in time")));
  }
  void complete(std::uint64_t id, std::exception_ptr failed, payload&& result) {
    auto found = pending_.extract(id);
    if (found.empty()) return;
    found.mapped().waiting->complete(std::move(failed), std::move(result));
    if (idle_ && pending_.empty()) idle_();
  }
  void notify_failed(int rank, const message& each) const {
    wire::reader in(each.bytes);
    const std::exception_ptr failed = decode_exception(in);
    if (notify_error_) {
      asio::post(io_, [handler = notify_error_, rank, failed] { handler(rank, failed); });
      return;
    }
    std::string text = "?";
    try {
      std::rethrow_exception(failed);
    } catch (const std::exception& problem) {
      text = problem.what();
    } catch (...) {
    }
    log::write(log::level::warning, "notify: " + text);
  }

  asio::io_context& io_;
  progress::engine& engine_;
  std::size_t max_message_;
  route_function route_;
  std::unordered_map<std::uint64_t, pending_call> pending_;
  std::unordered_map<std::uint64_t, int> unanswered_;  // ranks of ordered ones that were given up
  notify_error_handler notify_error_;
  std::function<void()> idle_;
  std::uint64_t last_id_ = 0;
  std::uint64_t interrupts_ = 0;
};
using call_client = basic_call_client<void>;

}  // namespace cohort::cluster
