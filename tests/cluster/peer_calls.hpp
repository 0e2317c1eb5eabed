// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Functions that workers call on each other, and what must be true of them.

#include <cohort/cluster/call_context.hpp>
#include <cohort/cluster/calls/call_verbs.hpp>
#include <cohort/cluster/workers.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "cluster/support.hpp"
#include "support/catch.hpp"

namespace cohort_test {

using cohort::cluster::call_context;
using cohort::cluster::manager_id;
using ids = std::vector<int>;

inline std::vector<std::byte> echo_bytes(std::vector<std::byte> bytes) { return bytes; }
inline int square(int x) { return x * x; }
inline void fails(call_context& call) {
  throw std::range_error("from " + std::to_string(call.id()));
}
inline asio::awaitable<void> waits_long(call_context& call) {
  asio::steady_timer timer(call.context(), std::chrono::minutes(5));
  co_await timer.async_wait(asio::use_awaitable);
}

/// Goes on from worker to worker until all have been asked, and comes back.
inline asio::awaitable<ids> tour(call_context& call, ids left) {
  ids seen{call.id()};
  if (!left.empty()) {
    const int next = left.front();
    left.erase(left.begin());
    const ids rest = co_await call.peers().call<&tour>(next, left);
    seen.insert(seen.end(), rest.begin(), rest.end());
  }
  co_return seen;
}

inline std::atomic<int> notes{0};
inline void note() { ++notes; }
inline int notes_so_far() { return notes; }
inline void send_notes(call_context& call, int count, ids all) {
  for (int i = 0; i < count; ++i) {
    call.peers().notify<&note>(all[static_cast<std::size_t>(i) % all.size()]);
  }
}
/// Each note makes the receiver send another one, until `hops` have been made.
inline void relay(call_context& call, int hops, ids all) {
  ++notes;
  if (hops == 0) return;
  const auto next = static_cast<std::size_t>(call.id() + hops) % all.size();
  call.peers().notify<&relay>(all[next], hops - 1, all);
}
inline void send_relays(call_context& call, int count, int hops, ids all) {
  for (int i = 0; i < count; ++i) {
    call.peers().notify<&relay>(all[static_cast<std::size_t>(i) % all.size()], hops, all);
  }
}

inline asio::awaitable<std::string> asks_the_manager(call_context& call, int manager, int value) {
  try {
    const int squared = co_await call.peers().call<&square>(manager, value);
    co_return std::to_string(squared);
  } catch (const cohort::error& failed) {
    co_return failed.what();
  }
}
inline asio::awaitable<std::vector<std::byte>> fetch(call_context& call, int from,
                                                     std::vector<std::byte> bytes) {
  std::vector<std::byte> back = co_await call.peers().call<&echo_bytes>(from, bytes);
  co_return back;
}
inline asio::awaitable<std::string> hears_from(call_context& call, int from) {
  try {
    co_await call.peers().call<&fails>(from);
  } catch (const std::range_error& failed) {
    co_return failed.what();
  }
  co_return "nothing";
}
inline asio::awaitable<bool> gives_up(call_context& call, int on) {
  try {
    co_await call.peers().with(call_options{}.deadline(20ms)).call<&waits_long>(on);
  } catch (const cohort::deadline_error&) {
    co_return true;
  }
  co_return false;
}
inline asio::awaitable<std::string> hears_wrong_rank(call_context& call, int rank) {
  try {
    co_await call.peers().call<&fails>(rank);
  } catch (const cohort::error& failed) {
    co_return failed.what();
  }
  co_return "nothing";
}
/// "lost 1" if that rank is lost to this one before it answers.
inline asio::awaitable<std::string> depends_on(call_context& call, int on) {
  try {
    co_await call.peers().call<&waits_long>(on);
  } catch (const cohort::peer_lost_error& failed) {
    co_return "lost " + std::to_string(failed.ranks().front());
  }
  co_return "done";
}

/// The manager serves calls.
inline asio::awaitable<void> check_calls_between(workers all) {
  ids way = all.ids();
  if (way.empty()) co_return;
  way.erase(way.begin());
  const ids seen = co_await all.call<&tour>(all.ids().front(), way);
  CHECK(seen == all.ids());
  const ids every = all.ids();
  for (std::size_t i = 0; i < every.size(); ++i) {
    const int id = every[i];
    const int other = every[(i + 1) % every.size()];  // itself, if it is alone
    const std::string answer = co_await all.call<&asks_the_manager>(id, manager_id, 12);
    CHECK(answer == "144");
    std::vector<std::byte> bytes(300'000, static_cast<std::byte>(id + 1));
    const std::vector<std::byte> back = co_await all.call<&fetch>(id, other, bytes);
    CHECK(back == bytes);
    const std::string text = co_await all.call<&hears_from>(id, other);
    CHECK(has(text, "range_error: from " + std::to_string(other)));
    const bool gave_up = co_await all.call<&gives_up>(id, other);
    CHECK(gave_up);
    const std::string wrong = co_await all.call<&hears_wrong_rank>(id, 1000);
    CHECK(has(wrong, "1000"));
  }
}

}  // namespace cohort_test
