// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file How workers are sent home: no call is under way any more, each is told so, each leaves.

#include <cohort/cluster/membership/membership.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace cohort::cluster {

/// What has come of it.
struct departure {
  std::vector<int> late;      ///< have not left
  std::vector<int> aside;     ///< have left MPI as it is, with a call that was set aside
  std::string what_is_aside;  ///< in the last of them
  std::chrono::steady_clock::time_point limit;
};

/// Waits until no worker runs anything and no message is under way between them. Each says, when
/// nothing runs, how many messages it has exchanged with the others; if the sums of all are
/// equal, and the same twice in succession, none can come any more. False if the time is over
/// before that.
template <class Any = void>
asio::awaitable<bool> settle(membership& workers, std::chrono::steady_clock::time_point limit) {
  peer_traffic before;
  for (bool first = true;; first = false) {
    std::vector<member_ptr> asked;
    for (const member_ptr& each : workers.ranks) {
      if (!each->is(worker_state::ready) || !each->peers) continue;
      each->traffic.reset();
      std::vector<std::byte> bytes;
      wire::writer(bytes).varint(each->control->sent());
      each->control->send(message_kind::ask_quiet, 0, std::move(bytes));
      asked.push_back(each);
    }
    const auto waits = [](const member_ptr& each) {
      return each->is(worker_state::ready) && !each->traffic;
    };
    const auto any_waits = [&] { return std::any_of(asked.begin(), asked.end(), waits); };
    const bool in_time = co_await workers.changed.wait_while(any_waits, limit);
    if (!in_time) co_return false;  // who is late is named afterwards
    peer_traffic sum;
    bool one_is_lost = false;
    for (const member_ptr& each : workers.ranks) {
      one_is_lost |= each->is(worker_state::lost);
      if (!each->traffic || !each->is(worker_state::ready)) continue;
      sum.sent += each->traffic->sent;
      sum.received += each->traffic->received;
    }
    if (sum == peer_traffic()) co_return true;
    // What was sent to a lost one, or by it, is in one of the sums only.
    const bool equal = sum.sent == sum.received || one_is_lost;
    if (!first && equal && sum == before) co_return true;
    before = sum;
    if (!equal) {
      asio::steady_timer pause(workers.io, std::chrono::milliseconds(1));
      co_await pause.async_wait(awaiting<Any>);
    }
  }
}

/// Tells them that no more calls come, and waits until they have left. `apart`: MPI stays as it
/// is, so all leave together, when they have said that they can.
template <class Any = void>
asio::awaitable<departure> dismiss(membership& workers, bool apart, std::chrono::nanoseconds bound,
                                   std::chrono::steady_clock::time_point limit) {
  std::vector<member_ptr> stuck;
  for (const member_ptr& each : workers.ranks) {
    if (each->is(worker_state::stuck)) stuck.push_back(each);
    if (!each->is(worker_state::ready) && !each->is(worker_state::stuck)) continue;
    each->state = worker_state::draining;
    std::vector<std::byte> bytes;
    wire::writer out(bytes);
    out.varint(each->control->sent());
    out.put(apart);
    each->control->send(message_kind::finish, 0, std::move(bytes));
  }
  const auto is_late = [apart](const member_ptr& each) {
    return each->is(worker_state::draining) && !(apart && each->finished);
  };
  const auto late = [&](bool also_stuck) {
    std::vector<int> ranks;
    for (const member_ptr& each : workers.ranks) {
      const bool was_stuck = std::find(stuck.begin(), stuck.end(), each) != stuck.end();
      if (is_late(each) && (also_stuck || !was_stuck)) ranks.push_back(each->rank);
    }
    return ranks;
  };
  // The limit may have gone by with waiting for one that is stuck.
  const std::chrono::nanoseconds least = std::chrono::seconds(1);
  const std::chrono::nanoseconds most = std::chrono::seconds(10);
  const auto enough = from_now(std::clamp(bound / 4, least, most));
  departure end;
  end.limit = std::max(limit, enough);
  const auto waits_for_others = [&] { return !late(false).empty(); };
  co_await workers.changed.wait_while(waits_for_others, end.limit);
  const auto waits_for_any = [&] { return !late(true).empty(); };
  co_await workers.changed.wait_while(waits_for_any, enough);
  end.late = late(true);
  for (const member_ptr& each : workers.ranks) {
    // An adopted one may have closed its connection by itself.
    const bool closed = each->is(worker_state::gone);
    if (!closed && (!each->is(worker_state::draining) || is_late(each))) continue;
    if (!each->aside.empty()) {
      end.aside.push_back(each->rank);
      end.what_is_aside = each->aside;
    }
    if (closed) continue;
    each->hang_up();
    workers.leaves(each);
  }
  co_return end;
}

}  // namespace cohort::cluster
