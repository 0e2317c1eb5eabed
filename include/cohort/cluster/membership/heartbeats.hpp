// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Which workers are asked for signs of life, and who is lost for want of them.

#include <cohort/cluster/membership/membership.hpp>
#include <cohort/core/process.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

namespace cohort::cluster {

/// (A template, so that only who uses it compiles its bodies.)
template <class Any>
class basic_heartbeats {
 public:
  using heartbeats = basic_heartbeats;
  using nanoseconds = std::chrono::nanoseconds;

  explicit basic_heartbeats(membership& workers)
      : workers_(workers),
        period_(workers.options.heartbeat().value_or(std::chrono::seconds(5))),
        machine_(process::host_id()) {}

  [[nodiscard]] bool wanted() const noexcept { return period_ > period_.zero(); }
  void do_without() noexcept { period_ = period_.zero(); }

  /// Decides whether that worker is asked for signs of life.
  [[nodiscard]] welcome ask(member& whom) const {
    const auto& asked_for = workers_.options.heartbeat();
    welcome said;
    // Over TCP the end of a process is noticed, but not that of its machine, or of the way there.
    whom.beats = wanted() && (asked_for || !whom.over_tcp || whom.who.machine != machine_);
    if (whom.beats) said.heartbeat = period_.count();
    if (!asked_for) {
      const nanoseconds most = std::chrono::seconds(2);
      said.heartbeat_patience = std::min(most, nanoseconds(workers_.options.timeout() / 4)).count();
    }
    return said;
  }
  void connected(const member_ptr& whom, tcp_socket&& socket) {
    whom->life.emplace(std::move(socket));
    whom->shows_life = true;  // the connection is a sign; one that stops before the first is lost
    run_beside(workers_.io, listen_to(workers_.kept(&workers_), whom), [](std::exception_ptr) {});
  }
  /// All are there.
  void watch() {
    if (workers_.any([](const member_ptr& one) { return one->shows_life; })) {
      workers_.run(look_for_silent_ones());
    }
  }

 private:
  /// Signs of life, until the worker says that it leaves.
  static asio::awaitable<void> listen_to(std::weak_ptr<membership> over, member_ptr whom) {
    std::array<life_sign, 64> signs{};
    bool any = false;
    for (;;) {
      std::error_code failed;
      const std::size_t got = co_await whom->life->async_read_some(
          asio::buffer(signs), asio::redirect_error(awaiting<Any>, failed));
      if (failed) break;
      any = whom->heard = true;
      whom->shows_life = signs[got - 1] != life_sign::leaves;
    }
    if (!any) {  // it has given up before it was let in
      whom->shows_life = false;
      whom->life.reset();
    }
    // Where messages travel over MPI, this is what tells that a process has ended. Where they
    // travel over TCP their connection does, behind the last of them.
    const auto here = over.lock();
    if (here && whom->shows_life && !whom->over_tcp) here->connection_ended(whom, asio::error::eof);
  }

  /// A worker is lost after some looks in succession at which nothing had come: if it was this
  /// process that stood still, the first look counts once, and what has arrived meanwhile is read
  /// before the second.
  asio::awaitable<void> look_for_silent_ones() {
    const auto has_workers = [&] {
      return workers_.has_begun() && workers_.any([](const member_ptr& each) {
        return !each->has_left() && !each->is(worker_state::starting);
      });
    };
    while (has_workers()) {
      const auto next = from_now(period_);
      for (bool waiting = true; waiting && has_workers();) {
        waiting = co_await workers_.changed.wait_until(next);
      }
      for (const member_ptr& each : workers_.ranks) {
        if (!each->shows_life) continue;
        each->silent = std::exchange(each->heard, false) ? 0 : each->silent + 1;
        if (each->silent < silent_heartbeats) continue;
        workers_.lose(each, "nothing was heard of it for " + std::to_string(silent_heartbeats) +
                                " heartbeats: it stands still, or its machine has vanished");
      }
    }
  }

  membership& workers_;
  nanoseconds period_;
  std::uint64_t machine_;
};
using heartbeats = basic_heartbeats<void>;

}  // namespace cohort::cluster
