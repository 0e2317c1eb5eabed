// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What becomes of a call of all when one rank has failed and others wait for it in a
/// collective.
///
/// 1. A worker on which such a call has failed, or that is told of it, begins no other one yet, as
///    the others may be in a collective for which the next call's would be taken.
/// 2. The manager has all callees cancelled, and waits for as long as the grace says.
/// 3. If all have ended, have left nothing over on their communicator and have used it equally
///    often, they go on.
/// 4. If not, each worker is asked to set the call aside: where it runs, it is kept for ever,
///    because MPI has no means to give a collective up. A worker whose own part had succeeded may
///    have begun later calls with the same communicator: these are given up and set aside as well.
/// 5. Who has answered makes a communicator without those who have not, and goes on with that.
///    Those are stuck, in the middle of a function, until they answer.

#include <cohort/cluster/calls/call_client.hpp>
#include <cohort/cluster/membership/invitation.hpp>
#include <cohort/cluster/membership/membership.hpp>
#include <cohort/cluster/membership/own_calls.hpp>
#include <cohort/core/log.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cohort::cluster {

/// All calls of all that have failed on one rank. Part of a manager.
template <class Any>
class basic_stalls {
 public:
  using call_ptr = std::shared_ptr<const call_of_all>;

  basic_stalls(membership& workers, call_client& calls) : workers_(workers), calls_(calls) {}

  /// `here`: of an adopted job; `control`: without collectives.
  void begin(std::shared_ptr<own_calls> here, communicator control) {
    here_ = std::move(here);
    control_ = std::move(control);
  }

  /// It has been sent to all.
  void made(const call_ptr& call) {
    while (!all_.empty() && all_.front().expired()) all_.pop_front();
    all_.push_back(call);
    const auto oldest = all_.front().lock();
    const auto forget = [&](std::map<std::uint64_t, communicator_use>& used) {
      used.erase(used.begin(), used.lower_bound(oldest->parts.front().id));
    };
    for (const member_ptr& each : workers_.ranks) forget(each->used);
    if (here_) forget(here_->used);
  }
  /// A part of it has failed.
  void watch(call_ptr call) {
    // Before who waits for this call can make another one.
    for (const auto& [rank, id] : call->parts) {
      if (is_here(rank)) {
        here_->server().hold(here_->far(), id);
      } else if (workers_.at(rank)->is(worker_state::ready)) {
        workers_.at(rank)->control->send(message_kind::hold, id);
      }
    }
    run(settle(std::move(call)));
  }
  /// Calls of all of which a part has failed, and that are not settled.
  [[nodiscard]] int watched() const noexcept { return watched_; }

  /// What a worker says of a call that it was asked to set aside.
  void stands_aside(const member_ptr& from, std::uint64_t id, const standing_aside& said) {
    const auto at = from->asked_about.find(id);
    if (at == from->asked_about.end()) return;
    from->begun = said.begun;
    if (said.runs) {
      from->runs_aside = true;
      from->aside = at->second;
    }
    from->asked_about.erase(at);
    if (from->is(worker_state::stuck) && from->asked_about.empty()) {
      from->can_be_taken_in = true;
      take_in_again();
    }
    workers_.changed.notify();
  }

  [[nodiscard]] bool is_left_out(int rank, bool with_manager) const {
    if (workers_.ranks.empty() || is_here(rank)) return false;
    const member& whom = *workers_.at(rank);
    return !whom.is(worker_state::ready) && whom.left_out[with_manager ? 1 : 0];
  }

  /// Those that were stuck and have answered take part again, as soon as no call is under way that
  /// was made without them.
  void take_in_again() {
    const auto is_back = [](const member_ptr& each) {
      return each->is(worker_state::stuck) && each->can_be_taken_in;
    };
    if (!workers_.any(is_back)) return;
    if (watched_ > 0 || workers_.closing || calls_.any_is_pending()) return;
    call_of_all again;
    again.name = "?";
    again.grace = std::chrono::seconds(5);
    for (const member_ptr& each : workers_.ranks) {
      if (is_back(each)) {
        each->state = worker_state::ready;
        each->can_be_taken_in = false;
        each->cause.clear();
        again.failed = each->rank;
      }
      again.parts.push_back({each->rank, 0});
    }
    call_of_all with_manager = again;
    with_manager.with_manager = true;
    with_manager.parts.push_back({0, 0});
    run(take_in(std::make_shared<const call_of_all>(std::move(again)),
                std::make_shared<const call_of_all>(std::move(with_manager))));
  }

  /// MPI_Finalize would wait for a rank that is lost, or for one that is stuck.
  [[nodiscard]] bool leaves_mpi_as_it_is() const {
    return workers_.any([](const member_ptr& each) {
      return each->is(worker_state::lost) || each->is(worker_state::stuck) || !each->aside.empty();
    });
  }

 private:
  void run(asio::awaitable<void> work) {
    ++watched_;
    run_beside(workers_.io, std::move(work),
               [self = workers_.kept(this)](const std::exception_ptr& failed) {
                 self->call_is_settled(failed);
               });
  }
  void call_is_settled(const std::exception_ptr& failed) {
    --watched_;
    try {
      if (failed) std::rethrow_exception(failed);
    } catch (const std::exception& problem) {
      log::write(log::level::error,
                 std::string("call_all: no communicator in place of the one that is stuck: ") +
                     problem.what());
    }
    take_in_again();
    workers_.changed.notify();
  }

  [[nodiscard]] bool is_here(int rank) const noexcept { return workers_.adopted && rank == 0; }
  [[nodiscard]] const std::map<std::uint64_t, communicator_use>& used_by(int rank) const {
    return is_here(rank) ? here_->used : workers_.at(rank)->used;
  }
  [[nodiscard]] bool is_pending(const call_of_all& call) const {
    return std::any_of(call.parts.begin(), call.parts.end(),
                       [this](const auto& part) { return calls_.is_pending(part.id); });
  }

  asio::awaitable<void> settle(call_ptr call) {
    const auto waits = [&] { return workers_.runs() && is_pending(*call); };
    const auto limit = from_now(call->grace);
    co_await workers_.changed.wait_while(waits, limit);
    if (workers_.ended()) co_return;
    if (waits()) {
      call->on_stall(call->failed);
    } else if (!has_left_over(*call) && !is_uneven(*call)) {
      go_on_as_before(*call);
      co_return;
    }
    co_await set_aside(std::move(call), false);
  }
  asio::awaitable<void> take_in(call_ptr workers, call_ptr all) {
    co_await set_aside(std::move(workers), true);
    if (!workers_.adopted) co_return;
    co_await set_aside(std::move(all), true);
  }

  /// Whether something is under way on the communicator of a call that has ended.
  [[nodiscard]] bool has_left_over(const call_of_all& call) const {
    return std::any_of(call.parts.begin(), call.parts.end(), [this](const auto& each) {
      const auto& used = used_by(each.rank);
      const auto by_it = used.find(each.id);
      return by_it != used.end() && by_it->second.goes_on;
    });
  }
  /// Whether ranks have not begun equally many operations there. Then they are not at the same one
  /// of its collectives, even if MPI calls all of them complete.
  [[nodiscard]] bool is_uneven(const call_of_all& call) const {
    std::optional<std::uint64_t> operations;
    for (const auto& [rank, id] : call.parts) {
      if (!is_here(rank) && !workers_.at(rank)->is(worker_state::ready)) continue;
      const auto& used = used_by(rank);
      const auto by_it = used.find(id);
      const std::uint64_t here = by_it == used.end() ? 0 : by_it->second.operations;
      if (operations.value_or(here) != here) return true;
      operations = here;
    }
    return false;
  }
  [[nodiscard]] bool earlier_one_runs(const call_of_all& call) const {
    return std::any_of(all_.begin(), all_.end(), [&](const auto& weak) {
      const call_ptr each = weak.lock();
      return each && each->with_manager == call.with_manager &&
             each->parts.front().id < call.parts.front().id && is_pending(*each);
    });
  }
  /// Those after it that a worker has begun with the same communicator, as it has answered.
  [[nodiscard]] std::vector<call_ptr> begun_after(const call_of_all& call) const {
    std::uint64_t last = workers_.adopted && call.with_manager ? here_->begun : 0;
    for (const member_ptr& each : workers_.ranks) {
      if (each->is(worker_state::ready)) last = std::max(last, each->begun);
    }
    std::vector<call_ptr> later;
    for (const auto& weak : all_) {
      const call_ptr each = weak.lock();
      if (!each || each->with_manager != call.with_manager) continue;
      const std::uint64_t id = each->parts.front().id;
      if (id > call.parts.front().id && id <= last) later.push_back(each);
    }
    return later;
  }

  /// `anew`: there is a new communicator in any case.
  asio::awaitable<void> set_aside(call_ptr call, bool anew) {
    // A slow rank runs earlier calls with the communicator that the others had.
    while (workers_.runs() && earlier_one_runs(*call)) co_await workers_.changed.wait();
    while (sets_aside_) co_await workers_.changed.wait();
    std::uint64_t& settled = settled_[call->with_manager ? 1 : 0];
    if (!anew && call->parts.front().id <= settled) {  // with another one
      go_on_as_before(*call);
      co_return;
    }
    sets_aside_ = true;
    std::vector<call_ptr> calls{call};
    anew |= co_await ask_to_set_aside(calls);
    anew = anew || is_uneven(*call);
    if (anew && workers_.runs()) {
      const std::vector<call_ptr> later = begun_after(*call);
      for (const call_ptr& each : later) each->on_stall(call->failed);
      static_cast<void>(co_await ask_to_set_aside(later));
      calls.insert(calls.end(), later.begin(), later.end());
    }
    sets_aside_ = false;
    workers_.changed.notify();
    if (!workers_.runs()) co_return;
    new_members whom;
    whom.round = ++rounds_;
    whom.with_manager = call->with_manager;
    std::vector<member_ptr> them;
    if (anew) {
      if (call->with_manager) whom.ids.push_back(0);
      settled = std::max(settled, calls.back()->parts.front().id);
      for (const member_ptr& each : workers_.ranks) {
        const bool takes_part = each->is(worker_state::ready);
        each->left_out[call->with_manager ? 1 : 0] = !takes_part;
        if (!takes_part) continue;
        whom.ids.push_back(each->rank);
        them.push_back(each);
      }
    }  // else all have ended in the meantime
    send_go_on(*call, whom);
    for (std::size_t i = 1; i < calls.size(); ++i) send_go_on(*calls[i], new_members());
    if (!workers_.adopted || !call->with_manager) co_return;
    if (anew && control_) {
      // To make it blocks this thread: what has not left by then, or has not woken who sleeps,
      // never would.
      co_await until_flushed(them);
      if (!workers_.runs()) co_return;
      call_place place = here_->server().place();
      place.everyone = renew(place.everyone, control_, whom.ids, whom.round);
      here_->server().place(std::move(place));
    }
    for (const call_ptr& each : calls) here_->server().go_on(here_->far(), each->parts.back().id);
  }

  /// Whether something of these calls runs on, or may. Who has not answered in time is stuck.
  asio::awaitable<bool> ask_to_set_aside(std::vector<call_ptr> calls) {
    bool runs = false;
    std::chrono::nanoseconds patience = std::chrono::seconds(5);
    for (const member_ptr& each : workers_.ranks) each->runs_aside = false;
    for (const call_ptr& call : calls) {
      patience = std::max(patience, call->grace);
      for (const auto& [rank, id] : call->parts) {
        calls_.forget(id);
        if (is_here(rank)) {
          const standing_aside here = here_->server().set_aside(here_->far(), id);
          here_->begun = here.begun;
          runs |= here.runs;
          continue;
        }
        const member_ptr& each = workers_.at(rank);
        if (!each->is(worker_state::ready)) continue;
        each->asked_about[id] = call->name;
        each->control->send(message_kind::set_aside, id);
      }
    }
    const auto is_silent = [](const member_ptr& each) {
      return each->is(worker_state::ready) && !each->asked_about.empty();
    };
    const auto waits = [&] { return workers_.runs() && workers_.any(is_silent); };
    co_await workers_.changed.wait_while(waits, from_now(patience));
    if (!workers_.runs()) co_return runs;
    for (const member_ptr& each : workers_.ranks) {
      runs |= each->runs_aside || is_silent(each);
      if (is_silent(each)) make_stuck(each, *calls.front());
    }
    co_return runs;
  }
  /// It is in a function that does not let its loop run.
  void make_stuck(const member_ptr& whom, const call_of_all& call) {
    whom->state = worker_state::stuck;
    whom->left_out[call.with_manager ? 1 : 0] = true;
    whom->cause = "it does not answer since a call_all of " + std::string(call.name) +
                  " has failed elsewhere";
    const auto why = [&](const std::string& text, int rank) {
      return std::make_exception_ptr(
          rank_error(errc::stalled, {rank}, text + whom->label() + " is stuck: " + whom->cause));
    };
    calls_.give_up_all(why, whom->rank);
  }

  void go_on_as_before(const call_of_all& call) {
    send_go_on(call, new_members());
    if (workers_.adopted && call.with_manager) {
      here_->server().go_on(here_->far(), call.parts.back().id);
    }
  }
  /// The workers; this process goes on by itself.
  void send_go_on(const call_of_all& call, const new_members& whom) {
    const std::vector<std::byte> bytes = wire::encode(whom);
    for (const auto& [rank, id] : call.parts) {
      if (is_here(rank)) continue;
      const member_ptr& each = workers_.at(rank);
      if (each->is(worker_state::ready)) each->control->send(message_kind::go_on, id, bytes);
    }
  }
  /// Until all that has been sent to them has left.
  asio::awaitable<void> until_flushed(std::vector<member_ptr> them) {
    for (const member_ptr& each : them) {
      each->flushed = false;
      each->control->when_flushed(
          [weak = std::weak_ptr(each), self = std::weak_ptr(workers_.kept(&workers_))] {
            if (const auto one = weak.lock()) one->flushed = true;
            if (const auto here = self.lock()) here->changed.notify();
          });
    }
    const auto is_unflushed = [](const member_ptr& each) {
      return each->is(worker_state::ready) && !each->flushed;
    };
    while (!workers_.ended() && std::any_of(them.begin(), them.end(), is_unflushed)) {
      co_await workers_.changed.wait();
    }
  }

  membership& workers_;
  call_client& calls_;
  std::shared_ptr<own_calls> here_;
  communicator control_;
  std::deque<std::weak_ptr<const call_of_all>> all_;  // in the order of their ids
  std::array<std::uint64_t, 2> settled_{};  // by a renewal, up to that id; without and with us
  int watched_ = 0;
  bool sets_aside_ = false;  // one after the other
  std::int32_t rounds_ = 0;  // of new communicators
};
using stalls = basic_stalls<void>;

}  // namespace cohort::cluster
