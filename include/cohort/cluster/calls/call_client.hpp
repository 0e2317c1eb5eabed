// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The calls that a process has made: their numbers, their answers, and how they are given
/// up.

#include <cohort/cluster/error.hpp>
#include <cohort/cluster/event.hpp>
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

template <class Any>
class basic_link;
using link = basic_link<void>;

/// Somebody who waits for the answer to a call. Completed exactly once.
class waiting_call {
 public:
  waiting_call() = default;
  waiting_call(const waiting_call&) = delete;
  waiting_call& operator=(const waiting_call&) = delete;
  virtual ~waiting_call() = default;

  /// Either an error, or the bytes of the result. Runs no code of the user's before it returns.
  virtual void complete(std::exception_ptr failed, std::vector<std::byte>&& result) = 0;
};

/// One call as it is given to a client.
struct call_request {
  int rank = -1;
  std::size_t function = 0;  ///< index in the function table
  std::string_view name;     ///< of the function; for errors
  std::vector<std::byte> arguments;
  std::uint32_t flags = 0;                                        ///< of call_tail
  std::optional<std::chrono::steady_clock::time_point> deadline;  ///< one for all of a call of all
};

/// A process that functions can be called in.
struct callee_process {
  std::shared_ptr<link> control;
  std::uint64_t* ordered =
      nullptr;  ///< how many ordered calls it has been sent; null: none allowed
};

/// Used by the thread that runs the context. Must be owned by a shared_ptr.
/// (A template, so that only who uses it compiles its bodies.)
template <class Any>
class basic_call_client : public std::enable_shared_from_this<basic_call_client<Any>> {
 public:
  using call_client = basic_call_client;
  /// Where a call of that rank goes; throws why it cannot be made. `text` says which call it is.
  using route_function = std::function<callee_process(int rank, const std::string& text)>;
  using notify_error_handler = std::function<void(int rank, std::exception_ptr)>;

  basic_call_client(asio::io_context& io, std::size_t max_message, route_function route)
      : io_(io),
        engine_(asio::use_service<progress::engine>(io)),
        max_message_(max_message),
        route_(std::move(route)) {}
  basic_call_client(const call_client&) = delete;
  basic_call_client& operator=(const call_client&) = delete;

  /// A number for a call, by which it can be given up.
  [[nodiscard]] std::uint64_t next_id() noexcept { return ++last_id_; }
  /// Sends a call. Every problem reaches `waiting`, which is null for a call without answer; then
  /// problems found here are thrown.
  void start(std::uint64_t id, call_request request, std::shared_ptr<waiting_call> waiting);
  /// Asks the callee to end; the call still waits for its answer.
  void cancel_callee(std::uint64_t id);
  /// Completes the call with this error and has its callee cancelled. Nothing if it has ended.
  void give_up(std::uint64_t id, std::exception_ptr why);
  void give_up_all(const std::function<std::exception_ptr(std::string_view name, int rank)>& why);
  /// Gives all up; calls that follow from them, of `map`, are not made any more.
  void interrupt();
  [[nodiscard]] std::uint64_t interrupts() const noexcept { return interrupts_; }

  /// A result or a failure has come. False if that rank has never been asked: it breaks the
  /// protocol.
  [[nodiscard]] bool answered(int rank, message&& each);
  /// Whether the callee of that ordered call has not answered, also if the call was given up.
  [[nodiscard]] bool is_owed(std::uint64_t id) const {
    return pending_.count(id) != 0 || unanswered_.count(id) != 0;
  }
  [[nodiscard]] bool any_is_owed() const {
    return !unanswered_.empty() ||
           std::any_of(pending_.begin(), pending_.end(),
                       [](const auto& each) { return each.second.ordered; });
  }
  /// Nor will it.
  void forget(std::uint64_t id) { unanswered_.erase(id); }
  /// Gives up all calls of a rank.
  void give_up_rank(int rank, const std::function<std::exception_ptr(std::string_view name)>& why);
  /// Ends the calls of a rank with peer_lost_error.
  void lose(int rank, const std::string& whom, const std::string& cause);
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
    int rank;
    std::string_view name;
    std::shared_ptr<link> control;
    std::shared_ptr<waiting_call> waiting;
    std::unique_ptr<asio::steady_timer> deadline;
    bool ordered = false;
  };

  void complete(std::uint64_t id, std::exception_ptr failed, std::vector<std::byte>&& result);
  [[nodiscard]] std::vector<std::uint64_t> calls_of(int rank) const;
  void notify_failed(int rank, const message& each) const;

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

#ifndef COHORT_SEPARATE_COMPILATION
#include <cohort/cluster/calls/call_client.ipp>
#endif
