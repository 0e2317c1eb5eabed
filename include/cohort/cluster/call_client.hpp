// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The calls that a process has made: their numbers, their answers, and how they are given
/// up.

#include <cohort/cluster/error.hpp>
#include <cohort/cluster/event.hpp>
#include <cohort/cluster/link.hpp>
#include <cohort/cluster/message.hpp>
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

  /// Either an error, or the bytes of the result. Runs no code of the user's before it returns.
  virtual void complete(std::exception_ptr failed, std::vector<std::byte>&& result) = 0;
};

/// One call as it is given to a client.
struct call_request {
  int rank = -1;
  std::size_t function = 0;  ///< index in the function table
  std::string_view name;     ///< of the function; for errors
  std::vector<std::byte> arguments;
  std::uint32_t flags = 0;  ///< of call_tail
  std::optional<std::chrono::nanoseconds> deadline;
};

/// A process that functions can be called in.
struct callee_process {
  std::shared_ptr<link> control;
  std::uint64_t* ordered =
      nullptr;  ///< how many ordered calls it has been sent; null: none allowed
};

/// Used by the thread that runs the context. Must be owned by a shared_ptr.
class call_client : public std::enable_shared_from_this<call_client> {
 public:
  /// Where a call of that rank goes; throws why it cannot be made. `text` says which call it is.
  using route_function = std::function<callee_process(int rank, const std::string& text)>;
  using notify_error_handler = std::function<void(int rank, std::exception_ptr)>;

  call_client(asio::io_context& io, std::size_t max_message, route_function route)
      : io_(io),
        engine_(asio::use_service<progress::engine>(io)),
        max_message_(max_message),
        route_(std::move(route)) {}
  call_client(const call_client&) = delete;
  call_client& operator=(const call_client&) = delete;

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

// ---- implementation --------------------------------------------------------------------------

inline void call_client::start(std::uint64_t id, call_request request,
                               std::shared_ptr<waiting_call> waiting) {
  callee_process callee;
  try {
    const std::string text = "call of " + std::string(request.name) + ": ";
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
  if ((tail.flags & call_tail::ordered) != 0) tail.order = (*callee.ordered)++;
  if (request.deadline) {
    tail.flags |= call_tail::limited;
    tail.remaining =
        static_cast<std::uint64_t>(std::max<std::int64_t>(request.deadline->count(), 0));
  }
  tail.append_to(request.arguments);
  if (waiting) {
    pending_call& made = pending_
                             .emplace(id, pending_call{request.rank, request.name, callee.control,
                                                       std::move(waiting), nullptr, false})
                             .first->second;
    made.ordered = (tail.flags & call_tail::ordered) != 0;
    if (request.deadline) {
      made.deadline = std::make_unique<asio::steady_timer>(io_, from_now(*request.deadline));
      made.deadline->async_wait([self = weak_from_this(), id](std::error_code stopped) {
        const auto here = self.lock();
        if (stopped || !here) return;
        const auto at = here->pending_.find(id);
        if (at == here->pending_.end()) return;
        here->give_up(id, std::make_exception_ptr(deadline_error(
                              "call of " + std::string(at->second.name) + ": rank " +
                              std::to_string(at->second.rank) + " has not answered in time")));
      });
    }
  }
  callee.control->send(message_kind::call, id, std::move(request.arguments));
}

inline void call_client::cancel_callee(std::uint64_t id) {
  const auto found = pending_.find(id);
  if (found != pending_.end()) found->second.control->send(message_kind::cancel, id);
}

inline void call_client::give_up(std::uint64_t id, std::exception_ptr why) {
  cancel_callee(id);
  const auto at = pending_.find(id);
  if (at != pending_.end() && at->second.ordered) {
    unanswered_[id] = at->second.rank;
  }
  complete(id, std::move(why), {});
}

inline void call_client::give_up_rank(
    int rank, const std::function<std::exception_ptr(std::string_view name)>& why) {
  for (const std::uint64_t id : calls_of(rank)) {
    const auto at = pending_.find(id);
    if (at != pending_.end()) give_up(id, why(at->second.name));
  }
}

inline void call_client::give_up_all(
    const std::function<std::exception_ptr(std::string_view name, int rank)>& why) {
  std::vector<std::uint64_t> ids;
  for (const auto& each : pending_) ids.push_back(each.first);
  for (const std::uint64_t id : ids) {
    const auto at = pending_.find(id);
    if (at != pending_.end()) give_up(id, why(at->second.name, at->second.rank));
  }
}

inline void call_client::interrupt() {
  ++interrupts_;
  give_up_all([](std::string_view, int) {
    return std::make_exception_ptr(std::system_error(asio::error::operation_aborted));
  });
}

inline bool call_client::answered(int rank, message&& each) {
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
    complete(each.id,
             std::make_exception_ptr(
                 error(errc::message_too_long, "call of " + std::string(at->second.name) +
                                                   ": rank " + std::to_string(rank) +
                                                   ": the result is above max_message")),
             {});
  } else if (each.kind == message_kind::result) {
    complete(each.id, nullptr, std::move(each.bytes));
  } else {
    wire::reader in(each.bytes);
    complete(each.id, decode_exception(in), {});
  }
  return true;
}

inline void call_client::notify_failed(int rank, const message& each) const {
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

inline std::vector<std::uint64_t> call_client::calls_of(int rank) const {
  std::vector<std::uint64_t> calls;
  for (const auto& [id, call] : pending_) {
    if (call.rank == rank) calls.push_back(id);
  }
  std::sort(calls.begin(), calls.end());
  return calls;
}

inline void call_client::lose(int rank, const std::string& whom, const std::string& cause) {
  std::erase_if(unanswered_, [rank](const auto& each) { return each.second == rank; });
  for (const std::uint64_t id : calls_of(rank)) {
    const auto at = pending_.find(id);
    if (at == pending_.end()) continue;
    complete(
        id,
        std::make_exception_ptr(peer_lost_error({rank}, "call of " + std::string(at->second.name) +
                                                            ": " + whom + " is lost: " + cause)),
        {});
  }
}

inline void call_client::complete(std::uint64_t id, std::exception_ptr failed,
                                  std::vector<std::byte>&& result) {
  auto node = pending_.extract(id);
  if (node.empty()) return;
  node.mapped().waiting->complete(std::move(failed), std::move(result));
  if (idle_ && pending_.empty()) idle_();
}

}  // namespace cohort::cluster
