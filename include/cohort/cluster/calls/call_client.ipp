// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Bodies of cluster/calls/call_client.hpp.

#include <cohort/cluster/calls/call_client.hpp>
#include <cohort/cluster/link/link.hpp>

#include <algorithm>

namespace cohort::cluster {

template <class Any>
void basic_call_client<Any>::start(std::uint64_t id, call_request request,
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
    const std::chrono::nanoseconds left = *request.deadline - std::chrono::steady_clock::now();
    tail.remaining = static_cast<std::uint64_t>(std::max<std::int64_t>(left.count(), 0));
  }
  tail.append_to(request.arguments);
  if (waiting) {
    pending_call& made = pending_
                             .emplace(id, pending_call{request.rank, request.name, callee.control,
                                                       std::move(waiting), nullptr, false})
                             .first->second;
    made.ordered = (tail.flags & call_tail::ordered) != 0;
    if (request.deadline) {
      made.deadline = std::make_unique<asio::steady_timer>(io_, *request.deadline);
      made.deadline->async_wait([self = this->weak_from_this(), id](std::error_code stopped) {
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

template <class Any>
void basic_call_client<Any>::cancel_callee(std::uint64_t id) {
  const auto found = pending_.find(id);
  if (found != pending_.end()) found->second.control->send(message_kind::cancel, id);
}

template <class Any>
void basic_call_client<Any>::give_up(std::uint64_t id, std::exception_ptr why) {
  cancel_callee(id);
  const auto at = pending_.find(id);
  if (at != pending_.end() && at->second.ordered) {
    unanswered_[id] = at->second.rank;
  }
  complete(id, std::move(why), {});
}

template <class Any>
void basic_call_client<Any>::give_up_rank(
    int rank, const std::function<std::exception_ptr(std::string_view name)>& why) {
  for (const std::uint64_t id : calls_of(rank)) {
    const auto at = pending_.find(id);
    if (at != pending_.end()) give_up(id, why(at->second.name));
  }
}

template <class Any>
void basic_call_client<Any>::give_up_all(
    const std::function<std::exception_ptr(std::string_view name, int rank)>& why) {
  std::vector<std::uint64_t> ids;
  for (const auto& each : pending_) ids.push_back(each.first);
  for (const std::uint64_t id : ids) {
    const auto at = pending_.find(id);
    if (at != pending_.end()) give_up(id, why(at->second.name, at->second.rank));
  }
}

template <class Any>
void basic_call_client<Any>::interrupt() {
  ++interrupts_;
  give_up_all([](std::string_view, int) {
    return std::make_exception_ptr(std::system_error(asio::error::operation_aborted));
  });
}

template <class Any>
bool basic_call_client<Any>::answered(int rank, message&& each) {
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

template <class Any>
void basic_call_client<Any>::notify_failed(int rank, const message& each) const {
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

template <class Any>
std::vector<std::uint64_t> basic_call_client<Any>::calls_of(int rank) const {
  std::vector<std::uint64_t> calls;
  for (const auto& [id, call] : pending_) {
    if (call.rank == rank) calls.push_back(id);
  }
  std::sort(calls.begin(), calls.end());
  return calls;
}

template <class Any>
void basic_call_client<Any>::lose(int rank, const std::string& whom, const std::string& cause) {
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

template <class Any>
void basic_call_client<Any>::complete(std::uint64_t id, std::exception_ptr failed,
                                      std::vector<std::byte>&& result) {
  auto node = pending_.extract(id);
  if (node.empty()) return;
  node.mapped().waiting->complete(std::move(failed), std::move(result));
  if (idle_ && pending_.empty()) idle_();
}

}  // namespace cohort::cluster
