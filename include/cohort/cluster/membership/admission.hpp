// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Lets the workers of one start in, until all are there or something is wrong.

#include <cohort/cluster/link/handshake.hpp>
#include <cohort/cluster/link/reception.hpp>
#include <cohort/cluster/membership/heartbeats.hpp>
#include <cohort/cluster/membership/membership.hpp>
#include <cohort/core/crypto.hpp>
#include <cohort/core/function_table.hpp>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace cohort::cluster {

/// (A template, so that only who uses it compiles its bodies.)
template <class Any>
class basic_admission {
 public:
  using clock = std::chrono::steady_clock;

  basic_admission(membership& workers, heartbeats& beats, std::function<void()> all_are_there)
      : workers_(workers), beats_(beats), all_are_there_(std::move(all_are_there)) {}

  /// Those of an earlier start are forgotten.
  void begin(std::shared_ptr<capture> output) {
    output_ = std::move(output);
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
        output_->read(std::move(socket), owner->printed, rank, stream);
      } else {
        owner->printed.unread.emplace_back(std::move(socket), stream);
      }
    }
  }
  void read_unread(const member_ptr& from, int rank) {
    if (output_) output_->read_unread(from->printed, rank);
  }
  void refuse(const member_ptr& whom, errc code, const std::string& text) {
    std::vector<std::byte> bytes;
    wire::writer(bytes).text(text);
    whom->control->send(message_kind::refused, 0, std::move(bytes));
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
  std::shared_ptr<capture> output_;  // null: nobody wants it
  launch_token token_{};
  std::shared_ptr<reception> door_;  // where TCP is used
  std::vector<member_ptr> begun_;    // null until that rank has
  std::string problem_;
  errc code_ = errc::launch_failed;
};
using admission = basic_admission<void>;

}  // namespace cohort::cluster
