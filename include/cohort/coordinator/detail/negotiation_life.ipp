// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Looks and ticks, deadlines, leaving, closing and the end.

#include <cohort/coordinator/negotiation.hpp>

#include <cohort/core/log.hpp>

#include <algorithm>

namespace cohort::coordination {

/// With the guard held.
template <class Any>
void negotiation<Any>::touch() {
  if (!ready_ || closed_) return;
  source_.at_next_look(*this);
  engine_.started();
}

/// While this rank waits for others its engine looks for their messages; otherwise it may sleep
/// until the doorbell rings.
template <class Any>
void negotiation<Any>::stay_awake() {
  if (edges_.empty()) {  // alone: what waits, waits for a plan, or on a device for its deadline
    if (node_.pending() != 0 || deadlines_ != 0) source_.at_next_look(*this);
    return;
  }
  const bool leaves = std::any_of(views_.begin(), views_.end(),
                                  [](const auto& one) { return !one.second->closing.empty(); });
  const bool waits = first_ != nullptr || leaves || (whole().left && !whole().leave_expired) ||
                     node_.deadline().has_value() || (closed_by_fault_ && !settled_);
  channel_.expect(waits);
}

template <class Any>
std::size_t negotiation<Any>::at_look() {
  if (broken_) check_released();
  // Its backend may have stopped looking: the ticks that give it up must come.
  if (device_failed_ && !closed_ && plane_.on_devices() != 0) source_.at_next_look(*this);
  if (!ready_ || broken_ || to_break_) return 0;
  const std::size_t before = completed_;
  try {
    advance();
    release_ended();
  } catch (...) {
    break_down(std::current_exception());
    return completed_ - before;
  }
  stay_awake();
  check_released();
  return completed_ - before;
}

template <class Any>
void negotiation<Any>::at_tick(clock::time_point at) {
  if (closed_) return;
  take_device_times();
  timeline_->flush();
  watch_fault(at);
  watch_device(at);
  watch_leaving(at);
  if (broken_ || to_break_ || closed_) return;
  try {
    if (const auto due = node_.deadline(); due && *due <= nanoseconds(at)) {
      node_.expire(nanoseconds(at));
      touch();
    }
    for (task* each = deadlines_ == 0 ? nullptr : first_; each != nullptr;) {
      task* const next = each->after;
      if (!each->withdrawn && each->deadline <= at) {
        withdraw(*each, protocol::withdrawal_reason::deadline);
      }
      each = next;
    }
    if (ready_) {
      watch_undecided(at);
      watch_plan(at);
    }
  } catch (...) {
    return break_down(std::current_exception());
  }
  const task* oldest = first_;  // that is not elected
  while (oldest != nullptr && oldest->started) oldest = oldest->after;
  if (options_.stall_warning > std::chrono::nanoseconds::zero() && oldest != nullptr &&
      at - oldest->submitted > options_.stall_warning && at - warned_ > options_.stall_warning) {
    warned_ = at;
    if (!ready_) {
      std::string lines = "\n";
      list_waiting(lines, at);
      lines.pop_back();
      warn_stalled(lines);
    } else if (node_.request_report(nanoseconds(at))) {
      touch();
    }
  }
}

// What others have posted and the rank that failed has not, never ends. Its awaiters end here: at
// once, where MPI works on memory of the library; where it may write to that of callers, when no
// rank can start its part any more and what was on its way has had time to arrive. If some rank
// does not even close, a late message of it could be written to memory that is gone, and the job
// ends.
template <class Any>
void negotiation<Any>::watch_fault(clock::time_point at) {
  if ((!faulted_ && !broken_) || closed_ || under_way() == 0) return;
  if (fault_until_ == clock::time_point::max()) fault_until_ = at + engine_.drain_bound();
  if (settled_) settled_at_ = std::min(settled_at_, at);
  const bool settled = settled_ && at - settled_at_ >= settling_time;
  if (faulted_ || at >= fault_until_) give_up_data(settled, at >= fault_until_);
  if (under_way() == 0 || at < fault_until_) return;
  std::string text =
      "coordinator: a data operation has failed on some rank, not all ranks have closed since, and "
      "these did not end:";
  const auto name = [&](const execution& one) {
    for (const task* each : one.tasks) {
      text += "\n  " + std::string(each->verb()) + " #" + std::to_string(one.log_count);
      if (each->name != protocol::none) text += " '" + std::string(given_name(*each)) + "'";
    }
  };
  plane_.for_each_under_way(name);
  for (const auto& group : groups_) group->plane_.for_each_under_way(name);
  process::end_job(text);
}

// A pack of the frozen plan that has waited for too long goes without its missing members, and the
// plan is over: sums are no longer the same from run to run. [protocol R4]
template <class Any>
void negotiation<Any>::watch_plan(clock::time_point at) {
  if (options_.plan_patience <= std::chrono::nanoseconds::zero() || options_.frozen_plan.empty() ||
      !node_.shape().is_root()) {
    return;
  }
  const std::vector<std::string> awaited = node_.plan_awaits();
  if (awaited.empty()) {
    plan_waits_since_ = clock::time_point::max();
    return;
  }
  plan_waits_since_ = std::min(plan_waits_since_, at);
  if (at - plan_waits_since_ < options_.plan_patience) return;
  std::string text = "rank 0: coordinator: the frozen plan is given up; it waits for";
  for (const std::string& name : awaited) text += " '" + name + "'";
  log::write(log::level::warning, text);
  if (node_.give_up_plan()) touch();
}

/// The others may still come; this rank goes on serving them while its loop runs. [protocol L6]
template <class Any>
void negotiation<Any>::leave_has_expired() {
  process::missing.fetch_add(1);
  const std::string besides = "; its communicators are kept";
  log::write(log::level::error, whole().not_left_in_time() + besides);
  whole().expire(besides);
  stay_awake();
}

/// Who leaves set 0 leaves all that is agreed upon.
template <class Any>
void negotiation<Any>::leave(std::uint32_t set, protocol::departure how) {
  if (broken_ || (set != 0 && whole().left)) return;
  try {
    if (set == 0) {
      node_.leave(how);
    } else {
      node_.leave_set(set, how);
    }
  } catch (...) {
    return break_down(std::current_exception());
  }
  if (!ready_) return;
  stay_awake();
  touch();
}

template <class Any>
void negotiation<Any>::check_released() {
  if (!broken_ && !(ready_ && node_.released())) return;
  if (whole().opening) return;
  if (!broken_ && !closed_by_fault_ && opens_sets()) {
    if (!abandoned_) return;
    // The other ranks wait for it, and it goes on in the looks; but not for ever.
    const auto at = clock::now();
    if (device_until_ == clock::time_point::max()) device_until_ = at + engine_.drain_bound() / 4;
    if (at < device_until_) return source_.at_next_look(*this);
    fail_device();  // what it works on stays
    keeps_ = true;
  }
  if (closed_by_fault_ && !broken_) {
    if (node_.shape().is_root()) settle();
    if (!settled_) return;
  }
  if (plane_.under_way() != 0 || plane_.waiting() != 0) return;
  for (const auto& group : groups_) {
    if (group->plane_.under_way() != 0 || group->plane_.waiting() != 0) return;
  }
  if (channel_.sending()) return;
  for (const edge& one : edges_) {
    if (one.settles && !broken_) return;
  }
  channel_.close();
  if (openings_ == 0 && channel_.operations() == 0 && !closed_) finish_closing();
}

template <class Any>
void negotiation<Any>::finish_closing() {
  closed_ = true;
  if (whole().leave_expired && !broken_) process::missing.fetch_sub(1);  // they have come after all
  if (whole().id == 0) end_timeline();                                   // it is the coordinator's
  source_.forget(*this);
  if (!broken_) release_ended();  // first, as on ranks that have looked since the log said so
  close_device();
  if (keeps_) {
    leave_to_mpi();
  } else {
    groups_.clear();
  }
  control_ = communicator();
  slots_ = communicator();
  ended_.clear();
  for (const auto& [set, one] : views_) one->release();
}

// MPI may free a communicator under what still goes on there, and freeing is collective: after a
// fault no rank does.
template <class Any>
void negotiation<Any>::leave_to_mpi() {
  progress::left_to_mpi().add(this->shared_from_this());
  for (const communicator& each : {control_, slots_}) {
    if (each) each.state()->keep();
  }
  for (const auto& [set, each] : views_) each->leave_to_mpi();
  for (const auto& group : groups_) group->comm_.keep();
  parent_ = communicator();
}

/// For destructors, outside the loop.
template <class Any>
void negotiation<Any>::end_in_place() {
  // While another thread runs the loop, nothing of ours may be read.
  if (engine_.get_executor().running_in_this_thread() || !engine_.context().stopped() || closed_ ||
      !ready_) {
    return;
  }
  engine_.drive_until([this] { return closed_; },
                      std::min<std::chrono::nanoseconds>(engine_.drain_bound(),
                                                         whole().leave_until - clock::now()));
}

template <class Any>
void negotiation<Any>::abandon() {
  whole().leave(protocol::departure::abandoned);
  abandoned_ = true;
  // Before the first instance of the context is driven: they are waited for together, and no longer
  // than for one. What has waited already takes in what is there.
  const auto at = clock::now();
  clock::time_point& until = whole().leave_until;
  until = std::min(std::max(until, at + settling_time), at + engine_.drain_bound());
}

template <class Any>
void negotiation<Any>::drive() {
  if (engine_.drive_until([this] { return closed_; }, whole().leave_until - clock::now())) return;
  const comm::request_source::guard hold(source_);
  if (broken_) return;
  if (!whole().leave_expired) leave_has_expired();
  if (!ready_) return;  // the engine may see it through
  // The engine ends the receives next, which is no lost connection.
  break_down(std::make_exception_ptr(error(errc::stalled, whole().not_left_in_time())), true);
  channel_.close();
}

// What dies with one operation, a coroutine say, must not wait for another.
template <class Any>
void negotiation<Any>::settle_tasks() {
  for (task* each = first_; each != nullptr; each = each->after) {
    if (!each->started) each->settle();
  }
  for (const auto& [set, one] : views_) {
    if (one->maker != nullptr) one->maker->settle();
  }
}

template <class Any>
void negotiation<Any>::destroy_tasks() {
  close_device();  // before the services that it uses go
  for (task* each = first_; each != nullptr;) {
    task* const next = each->after;
    if (!each->started) {
      unlink(*each);  // reports may still come
      each->destroy();
    }
    each = next;
  }
  for (const auto& [set, one] : views_) one->destroy_tasks();
}

}  // namespace cohort::coordination
