// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Bodies of manager.hpp: what becomes of a call of all when one rank has failed and others
/// wait for it in a collective.

#include <cohort/cluster/manager.hpp>

namespace cohort::cluster {

// 1. A worker on which such a call has failed, or that is told of it, begins no other one yet, as
//    the others may be in a collective for which the next call's would be taken. 2. The manager has
//    all callees cancelled, and waits for as long as the grace says. 3. If all have ended, have
//    left nothing over on their communicator and have used it equally often, they go on. 4. If not,
//    each worker is asked to set the call aside: where it runs, it is kept for ever, because MPI
//    has no means to give a collective up. A worker whose own part had succeeded may have begun
//    later calls with the same communicator: these are given up and set aside as well. 5. Who has
//    answered makes a communicator without those who have not, and goes on with that. Those are
//    stuck, in the middle of a function, until they answer.

template <class Any>
void basic_manager<Any>::made(const std::shared_ptr<const call_of_all>& call) {
  while (!calls_of_all_.empty() && calls_of_all_.front().expired()) calls_of_all_.pop_front();
  calls_of_all_.push_back(call);
  const auto oldest = calls_of_all_.front().lock();
  const auto forget = [&](std::map<std::uint64_t, communicator_use>& used) {
    used.erase(used.begin(), used.lower_bound(oldest->parts.front().id));
  };
  for (const member_ptr& each : ranks_) forget(each->used);
  if (here_) forget(here_->used);
}

template <class Any>
void basic_manager<Any>::watch(std::shared_ptr<const call_of_all> call) {
  ++watched_calls_;
  // Before who waits for this call can make another one.
  for (const auto& [rank, id] : call->parts) {
    if (adopted_ && rank == 0) {
      server_->hold(here_->far, id);
    } else if (at(rank).state == worker_state::ready) {
      at(rank).control->send(message_kind::hold, id);
    }
  }
  run_beside(io_, settle_call(std::move(call)),
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
asio::awaitable<void> basic_manager<Any>::settle_call(call_ptr call) {
  const auto is_owed = [&] {
    return !ended_ && !starts_again_ &&
           std::any_of(call->parts.begin(), call->parts.end(),
                       [&](const auto& each) { return calls_->is_owed(each.id); });
  };
  const auto limit = from_now(call->grace);
  for (bool in_time = true; in_time && is_owed();) in_time = co_await changed_.wait_until(limit);
  if (ended_) co_return;
  if (is_owed()) {
    call->on_stall(call->failed);
  } else if (!has_left_over(*call) && !is_uneven(*call)) {
    go_on_as_before(*call);
    co_return;
  }
  auto setting = set_aside(std::move(call), false);
  co_await std::move(setting);
}

/// Whether something is under way on the communicator of a call that has ended.
template <class Any>
bool basic_manager<Any>::has_left_over(const call_of_all& call) const {
  return std::any_of(call.parts.begin(), call.parts.end(), [this](const auto& each) {
    const auto& used = (adopted_ && each.rank == 0 ? *here_ : at(each.rank)).used;
    const auto by_it = used.find(each.id);
    return by_it != used.end() && by_it->second.goes_on;
  });
}

/// Whether ranks have not begun equally many operations there. Then they are not at the same one of
/// its collectives, even if MPI calls all of them complete.
template <class Any>
bool basic_manager<Any>::is_uneven(const call_of_all& call) const {
  std::optional<std::uint64_t> operations;
  for (const auto& [rank, id] : call.parts) {
    const member& whom = adopted_ && rank == 0 ? *here_ : at(rank);
    if (whom.state != worker_state::ready) continue;
    const auto by_it = whom.used.find(id);
    const std::uint64_t here = by_it == whom.used.end() ? 0 : by_it->second.operations;
    if (operations.value_or(here) != here) return true;
    operations = here;
  }
  return false;
}

/// `anew`: there is a new communicator in any case.
template <class Any>
asio::awaitable<void> basic_manager<Any>::set_aside(call_ptr call, bool anew) {
  const auto goes_on = [&] { return !ended_ && !starts_again_; };
  // A rank that is slow runs them with the communicator that the others had.
  while (goes_on() && earlier_one_runs(*call)) co_await changed_.wait();
  while (sets_aside_) co_await changed_.wait();
  std::uint64_t& settled = settled_[call->with_manager ? 1 : 0];
  if (!anew && call->parts.front().id <= settled) {  // with another one
    go_on_as_before(*call);
    co_return;
  }
  sets_aside_ = true;
  std::vector<call_ptr> calls{call};
  auto asking = ask_to_set_aside(calls);
  anew |= co_await std::move(asking);
  anew = anew || is_uneven(*call);
  if (anew && goes_on()) {
    const std::vector<call_ptr> later = begun_after(*call);
    for (const call_ptr& each : later) each->on_stall(call->failed);
    auto asking_again = ask_to_set_aside(later);
    static_cast<void>(co_await std::move(asking_again));
    calls.insert(calls.end(), later.begin(), later.end());
  }
  sets_aside_ = false;
  changed_.notify();
  if (!goes_on()) co_return;
  new_members whom;
  whom.round = ++rounds_;
  whom.with_manager = call->with_manager;
  std::vector<member_ptr> them;
  if (anew) {
    if (call->with_manager) whom.ids.push_back(0);
    settled = std::max(settled, calls.back()->parts.front().id);
    for (const member_ptr& each : ranks_) {
      const bool takes_part = each->state == worker_state::ready;
      each->left_out[call->with_manager ? 1 : 0] = !takes_part;
      if (!takes_part) continue;
      whom.ids.push_back(each->rank);
      them.push_back(each);
    }
  }  // else all have ended in the meantime
  tell_to_go_on(*call, whom);
  for (std::size_t i = 1; i < calls.size(); ++i) tell_to_go_on(*calls[i], new_members());
  if (!adopted_ || !call->with_manager) co_return;
  if (anew && control_) {
    // To make it blocks, and what has not left by then, or has not rung at who sleeps, never does.
    auto leaving = until_told(them);
    co_await std::move(leaving);
    if (!goes_on()) co_return;
    call_place place = server_->place();
    place.everyone = renew(place.everyone, control_, whom.ids, whom.round);
    server_->place(std::move(place));
  }
  for (const call_ptr& each : calls) server_->go_on(here_->far, each->parts.back().id);
}

/// Whether something of these calls runs on, or may. Who has not answered in time is stuck.
template <class Any>
asio::awaitable<bool> basic_manager<Any>::ask_to_set_aside(std::vector<call_ptr> calls) {
  bool runs = false;
  std::chrono::nanoseconds patience = std::chrono::seconds(5);
  for (const member_ptr& each : ranks_) each->runs_aside = false;
  for (const call_ptr& call : calls) {
    patience = std::max(patience, call->grace);
    for (const auto& [rank, id] : call->parts) {
      calls_->forget(id);
      if (adopted_ && rank == 0) {
        const standing_aside here = server_->set_aside(here_->far, id);
        here_->begun = here.begun;
        runs |= here.runs;
        continue;
      }
      const member_ptr each = ranks_[static_cast<std::size_t>(rank - first_)];
      if (each->state != worker_state::ready) continue;
      each->asked_about[id] = call->name;
      each->control->send(message_kind::set_aside, id);
    }
  }
  const auto is_silent = [](const member_ptr& each) {
    return each->state == worker_state::ready && !each->asked_about.empty();
  };
  const auto goes_on = [&] { return !ended_ && !starts_again_; };
  const auto limit = from_now(patience);
  for (bool in_time = true;
       in_time && goes_on() && std::any_of(ranks_.begin(), ranks_.end(), is_silent);) {
    in_time = co_await changed_.wait_until(limit);
  }
  if (!goes_on()) co_return runs;
  for (const member_ptr& each : ranks_) {
    runs |= each->runs_aside || is_silent(each);
    if (is_silent(each)) make_stuck(each, *calls.front());
  }
  co_return runs;
}

template <class Any>
bool basic_manager<Any>::earlier_one_runs(const call_of_all& call) const {
  return std::any_of(calls_of_all_.begin(), calls_of_all_.end(), [&](const auto& weak) {
    const call_ptr each = weak.lock();
    return each && each->with_manager == call.with_manager &&
           each->parts.front().id < call.parts.front().id &&
           std::any_of(each->parts.begin(), each->parts.end(),
                       [this](const auto& part) { return calls_->is_owed(part.id); });
  });
}

/// Those after it that a worker has begun with the same communicator, as it has answered.
template <class Any>
std::vector<typename basic_manager<Any>::call_ptr> basic_manager<Any>::begun_after(
    const call_of_all& call) const {
  std::uint64_t last = adopted_ && call.with_manager ? here_->begun : 0;
  for (const member_ptr& each : ranks_) {
    if (each->state == worker_state::ready) last = std::max(last, each->begun);
  }
  std::vector<call_ptr> later;
  for (const auto& weak : calls_of_all_) {
    const call_ptr each = weak.lock();
    if (!each || each->with_manager != call.with_manager) continue;
    const std::uint64_t id = each->parts.front().id;
    if (id > call.parts.front().id && id <= last) later.push_back(each);
  }
  return later;
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
void basic_manager<Any>::stands_aside(const member_ptr& from, std::uint64_t id,
                                      const standing_aside& said) {
  const auto at = from->asked_about.find(id);
  if (at == from->asked_about.end()) return;
  from->begun = said.begun;
  if (said.runs) {
    from->runs_aside = true;
    from->aside = at->second;
  }
  from->asked_about.erase(at);
  if (from->state == worker_state::stuck && from->asked_about.empty()) {
    from->can_be_taken_in = true;
    take_in_again();
  }
  changed_.notify();
}

template <class Any>
void basic_manager<Any>::go_on_as_before(const call_of_all& call) {
  tell_to_go_on(call, new_members());
  if (adopted_ && call.with_manager) server_->go_on(here_->far, call.parts.back().id);
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
      again->failed = each->rank;
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
        auto setting = self->set_aside(std::move(workers), true);
        co_await std::move(setting);
        if (!self->adopted_) co_return;
        auto with_this = self->set_aside(std::move(all), true);
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
