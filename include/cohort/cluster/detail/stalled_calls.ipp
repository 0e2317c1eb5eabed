// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Bodies of manager.hpp: what becomes of a call of all when one rank has failed and others
/// wait for it in a collective.

#include <cohort/cluster/manager.hpp>

namespace cohort::cluster {

// 1. A worker on which such a call has failed begins no other one yet, as the others may be in a
//    collective for which the next call's would be taken. 2. The manager has all callees cancelled,
//    and waits for as long as the grace says. 3. If all have ended they go on. 4. If not, each
//    worker is asked to set the call aside: where it runs, it is kept for ever, because MPI has no
//    means to give a collective up. 5. Who has answered makes a communicator without those who have
//    not, and goes on with that. Those are stuck, in the middle of a function, until they answer.

template <class Any>
void basic_manager<Any>::watch(std::shared_ptr<const call_of_all> call,
                               std::function<void()> on_stall) {
  ++watched_calls_;
  run_beside(io_, settle_call(std::move(call), std::move(on_stall)),
             [self = this->shared_from_this()](const std::exception_ptr& failed) {
               self->call_is_settled(failed);
             });
}

template <class Any>
void basic_manager<Any>::call_is_settled(const std::exception_ptr& failed) {
  --watched_calls_;
  try {
    if (failed) std::rethrow_exception(failed);
  } catch (const std::exception& problem) {
    log::write(log::level::error,
               std::string("call_all: no communicator in place of the one that is stuck: ") +
                   problem.what());
  }
  take_in_again();
  changed_.notify();
}

template <class Any>
asio::awaitable<void> basic_manager<Any>::settle_call(std::shared_ptr<const call_of_all> call,
                                                      std::function<void()> on_stall) {
  const auto is_owed = [&] {
    return !ended_ && !starts_again_ &&
           std::any_of(call->parts.begin(), call->parts.end(),
                       [&](const auto& each) { return calls_->is_owed(each.id); });
  };
  const auto limit = from_now(call->grace);
  for (bool in_time = true; in_time && is_owed();) in_time = co_await changed_.wait_until(limit);
  if (ended_) co_return;
  if (!is_owed()) {
    tell_to_go_on(*call, new_members());
    if (adopted_ && call->with_manager) server_->go_on(here_->far, call->parts.back().id);
    co_return;
  }
  on_stall();
  auto setting = set_aside(*call, false);
  co_await std::move(setting);
}

/// `anew`: there is a new communicator in any case.
template <class Any>
asio::awaitable<void> basic_manager<Any>::set_aside(const call_of_all& call, bool anew) {
  while (sets_aside_) co_await changed_.wait();
  sets_aside_ = true;
  std::vector<member_ptr> asked;
  for (const auto& [rank, id] : call.parts) {
    calls_->forget(id);
    if (adopted_ && rank == 0) {
      anew |= server_->set_aside(here_->far, id);
      continue;
    }
    const member_ptr each = ranks_[static_cast<std::size_t>(rank - first_)];
    if (each->state != worker_state::ready) continue;
    each->stands_aside = each->runs_aside = false;
    each->asked_about = call.name;
    each->control->send(message_kind::set_aside, id);
    asked.push_back(each);
  }
  const auto is_silent = [](const member_ptr& each) {
    return each->state == worker_state::ready && !each->stands_aside;
  };
  const auto goes_on = [&] { return !ended_ && !starts_again_; };
  const auto limit =
      from_now(std::max<std::chrono::nanoseconds>(call.grace, std::chrono::seconds(5)));
  for (bool in_time = true;
       in_time && goes_on() && std::any_of(asked.begin(), asked.end(), is_silent);) {
    in_time = co_await changed_.wait_until(limit);
  }
  sets_aside_ = false;
  changed_.notify();
  if (!goes_on()) co_return;
  new_members whom;
  whom.round = ++rounds_;
  whom.with_manager = call.with_manager;
  if (call.with_manager) whom.ids.push_back(0);
  for (const member_ptr& each : asked) {
    if (is_silent(each)) make_stuck(each, call);
    anew |= each->runs_aside || each->state == worker_state::stuck;
    if (each->state == worker_state::ready) whom.ids.push_back(each->rank);
  }
  if (anew) {
    for (const member_ptr& each : ranks_) {
      each->left_out[call.with_manager ? 1 : 0] = each->state != worker_state::ready;
    }
  } else {  // all have ended in the meantime
    whom.ids.clear();
  }
  tell_to_go_on(call, whom);
  if (!adopted_ || !call.with_manager) co_return;
  if (anew && control_) {
    // To make it blocks, and what has not left by then, or has not rung at who sleeps, never does.
    auto leaving = until_told(asked);
    co_await std::move(leaving);
    if (!goes_on()) co_return;
    call_place place = server_->place();
    place.everyone = renew(place.everyone, control_, whom.ids, whom.round);
    server_->place(std::move(place));
  }
  server_->go_on(here_->far, call.parts.back().id);
}

/// Until all that has been sent to them has left.
template <class Any>
asio::awaitable<void> basic_manager<Any>::until_told(std::vector<member_ptr> them) {
  for (const member_ptr& each : them) {
    each->told = false;
    each->control->when_flushed([weak = std::weak_ptr(each), self = this->weak_from_this()] {
      if (const auto one = weak.lock()) one->told = true;
      if (const auto here = self.lock()) here->changed_.notify();
    });
  }
  const auto is_untold = [](const member_ptr& each) {
    return each->state == worker_state::ready && !each->told;
  };
  while (!ended_ && std::any_of(them.begin(), them.end(), is_untold)) co_await changed_.wait();
}

template <class Any>
void basic_manager<Any>::stands_aside(const member_ptr& from, bool still_runs) {
  from->stands_aside = true;
  from->runs_aside = still_runs;
  if (still_runs) from->aside = from->asked_about;
  if (from->state == worker_state::stuck) {
    from->can_be_taken_in = true;
    take_in_again();
  }
  changed_.notify();
}

/// The workers; this process goes on by itself.
template <class Any>
void basic_manager<Any>::tell_to_go_on(const call_of_all& call, const new_members& whom) {
  const std::vector<std::byte> bytes = wire::encode(whom);
  for (const auto& [rank, id] : call.parts) {
    if (adopted_ && rank == 0) continue;
    const member_ptr each = ranks_[static_cast<std::size_t>(rank - first_)];
    if (each->state == worker_state::ready) {
      each->control->send(message_kind::go_on, id, bytes);
    }
  }
}

/// It is in a function that does not let its loop run.
template <class Any>
void basic_manager<Any>::make_stuck(const member_ptr& whom, const call_of_all& call) {
  whom->state = worker_state::stuck;
  whom->left_out[call.with_manager ? 1 : 0] = true;
  whom->cause =
      "it does not answer since a call_all of " + std::string(call.name) + " has failed elsewhere";
  calls_->give_up_rank(whom->rank, [&](std::string_view name) {
    return std::make_exception_ptr(rank_error(
        errc::stalled, {whom->rank},
        "call of " + std::string(name) + ": " + label(*whom) + " is stuck: " + whom->cause));
  });
}

template <class Any>
bool basic_manager<Any>::is_left_out(int rank, bool with_manager) const {
  if (ranks_.empty() || (adopted_ && rank == 0)) return false;
  const member& whom = at(rank);
  return whom.state != worker_state::ready && whom.left_out[with_manager ? 1 : 0];
}

/// Those that were stuck and have answered take part again, as soon as no call is under way that
/// was made without them.
template <class Any>
void basic_manager<Any>::take_in_again() {
  const auto is_back = [](const member_ptr& each) {
    return each->state == worker_state::stuck && each->can_be_taken_in;
  };
  if (!std::any_of(ranks_.begin(), ranks_.end(), is_back)) return;
  if (watched_calls_ > 0 || closing_ || calls_->any_is_owed()) return;
  const auto again = std::make_shared<call_of_all>();
  again->name = "?";
  again->grace = std::chrono::seconds(5);
  for (const member_ptr& each : ranks_) {
    if (is_back(each)) {
      each->state = worker_state::ready;
      each->can_be_taken_in = false;
      each->cause.clear();
    }
    again->parts.push_back({each->rank, 0});
  }
  const auto with_manager = std::make_shared<call_of_all>(*again);
  with_manager->with_manager = true;
  with_manager->parts.push_back({0, 0});
  ++watched_calls_;
  run_beside(
      io_,
      [](std::shared_ptr<manager> self, std::shared_ptr<const call_of_all> workers,
         std::shared_ptr<const call_of_all> all) -> asio::awaitable<void> {
        auto setting = self->set_aside(*workers, true);
        co_await std::move(setting);
        if (!self->adopted_) co_return;
        auto with_this = self->set_aside(*all, true);
        co_await std::move(with_this);
      }(this->shared_from_this(), again, with_manager),
      [self = this->shared_from_this()](const std::exception_ptr& failed) {
        self->call_is_settled(failed);
      });
}

/// MPI_Finalize would wait for a rank that is lost, or for one that is stuck.
template <class Any>
bool basic_manager<Any>::leaves_mpi_as_it_is() const {
  return std::any_of(ranks_.begin(), ranks_.end(), [](const member_ptr& each) {
    return each->state == worker_state::lost || each->state == worker_state::stuck ||
           !each->aside.empty();
  });
}

}  // namespace cohort::cluster
