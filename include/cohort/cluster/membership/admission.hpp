// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Lets the workers of one start in, until all are there or something is wrong, and looks
/// whether they live.

#include <cohort/cluster/link/handshake.hpp>
#include <cohort/cluster/link/reception.hpp>
#include <cohort/cluster/membership/membership.hpp>
#include <cohort/core/crypto.hpp>
#include <cohort/core/function_table.hpp>
#include <cohort/core/process.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace cohort::cluster {

/// Which workers are asked for signs of life, and who is lost for want of them.
template <class Any>
class basic_heartbeats {
 public:
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
      co_await workers_.changed.wait_while(has_workers, next);
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

/// The door: who has proved that it belongs to the launch, and who has begun.
template <class Any>
class basic_admission {
 public:
  using clock = std::chrono::steady_clock;

  basic_admission(membership& workers, heartbeats& beats, std::function<void()> all_are_there)
      : workers_(workers), beats_(beats), all_are_there_(std::move(all_are_there)) {}

  /// Those of an earlier start are forgotten.
  void begin() {
    workers_.joined.clear();
    begun_.assign(static_cast<std::size_t>(workers_.size()), nullptr);
    token_ = random_bytes<std::tuple_size_v<launch_token>>();
    problem_.clear();
  }
  /// See reception.
  void listen() {
    const auto made = std::make_shared<reception>(
        workers_.io, token_, begun_.size() * 4 + 16,
        [self = std::weak_ptr(workers_.kept(this))](const greeting& hello) {
          const auto here = self.lock();
          return here && here->expects(hello);
        },
        [self = std::weak_ptr(workers_.kept(this))](const greeting& hello, tcp_socket&& socket) {
          if (const auto here = self.lock()) here->arrived(hello, std::move(socket));
        });
    made->listen(workers_.options.interface());
    door_ = made;
  }
  void open() { door_->open(); }
  void close() {
    if (door_) door_->close();
  }
  [[nodiscard]] std::string addresses() const { return door_->addresses(); }
  [[nodiscard]] std::size_t refused() const noexcept { return door_ ? door_->refused() : 0; }
  [[nodiscard]] const launch_token& token() const noexcept { return token_; }

  /// Why it has failed; empty if it has not.
  [[nodiscard]] const std::string& problem() const noexcept { return problem_; }
  [[nodiscard]] errc problem_code() const noexcept { return code_; }
  void fail(errc code, const std::string& text) {
    if (!workers_.is_starting() || !problem_.empty()) return;
    problem_ = text;
    code_ = code;
    workers_.changed.notify();
  }
  /// In an attempt that is over.
  void set_problem(std::string text) { problem_ = std::move(text); }

  /// Until all are there or it has failed.
  asio::awaitable<void> wait(clock::time_point limit) {
    while (workers_.is_starting() && problem_.empty()) {
      const bool in_time = co_await workers_.changed.wait_until(limit);
      if (!in_time) fail(errc::deadline_exceeded, "the time is over; " + missing());
    }
  }
  [[nodiscard]] std::string missing() const {
    std::vector<int> absent;
    for (std::size_t i = 0; i < begun_.size(); ++i) {
      if (begun_[i] == nullptr) absent.push_back(workers_.first() + static_cast<int>(i));
    }
    std::string text =
        absent.empty() ? "all ranks had begun" : "missing: " + detail::rank_list(absent);
    std::size_t listed = 0;
    for (const member_ptr& each : workers_.joined) {
      if (each->rank >= 0 || each->is(worker_state::lost) || ++listed > 8) continue;
      text += listed == 1 ? "; connected, but their MPI has not begun: " : ", ";
      text += each->label();
    }
    return text;
  }

  /// Which program it is.
  void on_identity(const member_ptr& from, const message& each) {
    wire::reader in(each.bytes);
    identity who;
    in.get(who);
    if (!in.ok() || from->known) return workers_.lose(from, "it broke the protocol: identity");
    from->who = std::move(who);
    from->known = true;
    if (!from->over_tcp) from->session = from->who.session;
    if (from->who.table != function_table::instance().digest()) {
      from->asked = true;
      from->control->send(message_kind::ask_table, 0);
    } else if (from->who.program != program_id()) {
      refuse(from, errc::binary_mismatch,
             from->label() + other_program + from->who.program + ", not " + program_id() +
                 "; their function tables are equal");
    } else {
      from->welcome = true;
      from->control->send(message_kind::welcome, 0, wire::encode(beats_.ask(*from)));
    }
  }
  /// Its functions, as they are not the manager's.
  void on_table(const member_ptr& from, const message& each) {
    wire::reader in(each.bytes);
    std::vector<function_table::entry> theirs;
    in.get(theirs);
    if (!in.ok()) return workers_.lose(from, "it broke the protocol: table");
    refuse(from, errc::binary_mismatch,
           from->label() + other_program +
               first_difference(function_table::instance().entries(), theirs, "in the manager",
                                "in the worker"));
  }
  /// Its MPI has begun.
  void on_started(const member_ptr& from, const message& each) {
    wire::reader in(each.bytes);
    const auto said = in.get<started>();
    if (!in.ok() || !from->welcome || from->rank >= 0 || said.rank < 0) {
      return workers_.lose(from, "it broke the protocol: started");
    }
    const int all = workers_.first() + workers_.size();
    const std::string says = from->label() + " says that it is rank " + std::to_string(said.rank);
    if (said.size != all) {
      return refuse(from, errc::launch_failed,
                    says + " of " + std::to_string(said.size) + ", not of " + std::to_string(all) +
                        ": this launcher belongs to another MPI than the program");
    }
    const auto place = static_cast<std::size_t>(said.rank - workers_.first());
    if (!workers_.has(said.rank) || place >= begun_.size() || begun_[place] != nullptr) {
      return refuse(from, errc::launch_failed, says + ", as another one has said before");
    }
    from->rank = said.rank;
    from->peers = said.peers;
    begun_[place] = from;
    read_unread(from, from->rank);
    // One may have begun and be lost by now, which ends the launch a little later.
    const auto begun = [](const member_ptr& one) {
      return one != nullptr && one->is(worker_state::starting);
    };
    if (!problem_.empty() || !std::all_of(begun_.begin(), begun_.end(), begun)) return;
    workers_.ranks = std::exchange(begun_, {});
    workers_.stage = job_stage::running;
    close();
    all_are_there_();
  }
  /// Before all were there.
  void on_lost(const member_ptr& whom) {
    read_unread(whom, launcher_rank);  // its rank will never be known
    // The launcher's own words say more, if they come soon.
    workers_.run(fail_soon(whom->label() + " was lost before all had begun: " + whom->cause));
  }
  /// What remains of an attempt that has failed.
  void part_from_all() {
    for (const member_ptr& each : workers_.joined) {
      workers_.part_from(each, problem_);
      read_unread(each, launcher_rank);
      if (!each->is(worker_state::lost)) each->state = worker_state::gone;
    }
  }

 private:
  static constexpr const char* other_program = " runs another program than this one: ";

  [[nodiscard]] member_ptr member_of(const greeting& hello) const {
    for (const member_ptr& each : workers_.joined) {
      if (each->session == hello.session) return each;
    }
    return nullptr;
  }
  [[nodiscard]] bool expects(const greeting& hello) const {
    if (!workers_.is_starting() || !problem_.empty()) return false;
    const member_ptr owner = member_of(hello);
    if (hello.purpose == purpose::control) {
      return !owner && workers_.joined.size() < begun_.size();
    }
    if (hello.purpose != purpose::heartbeat) return owner != nullptr;
    return owner && !owner->life && owner->beats;
  }
  void arrived(const greeting& hello, tcp_socket&& socket) {
    const member_ptr owner = member_of(hello);
    if (hello.purpose == purpose::control) {
      const auto with =
          std::make_shared<tcp_link>(std::move(socket), workers_.options.max_message());
      workers_.join(with)->session = hello.session;
    } else if (hello.purpose == purpose::heartbeat) {
      beats_.connected(owner, std::move(socket));
    } else {
      const bool out = hello.purpose == purpose::standard_output;
      const output_stream stream = out ? output_stream::out : output_stream::err;
      const int rank = owner->rank >= 0 ? owner->rank : owner->who.rank;
      if (workers_.has(rank)) {
        workers_.output->read(std::move(socket), owner->printed, rank, stream);
      } else {
        owner->printed.unread.emplace_back(std::move(socket), stream);
      }
    }
  }
  void read_unread(const member_ptr& from, int rank) {
    if (workers_.output) workers_.output->read_unread(from->printed, rank);
  }
  void refuse(const member_ptr& whom, errc code, const std::string& text) {
    whom->control->send(message_kind::refused, 0, wire::encode(text));
    fail(code, text);
  }
  asio::awaitable<void> fail_soon(std::string text) {
    asio::steady_timer pause(workers_.io, std::chrono::milliseconds(500));
    co_await pause.async_wait(awaiting<Any>);
    fail(errc::launch_failed, text + "; " + missing());
  }

  membership& workers_;
  heartbeats& beats_;
  std::function<void()> all_are_there_;
  launch_token token_{};
  std::shared_ptr<reception> door_;  // where TCP is used
  std::vector<member_ptr> begun_;    // null until that rank has
  std::string problem_;
  errc code_ = errc::launch_failed;
};
using admission = basic_admission<void>;

}  // namespace cohort::cluster
