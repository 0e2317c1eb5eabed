// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Bodies of coordinator/negotiation.hpp and detail/subset.ipp: process sets in the log
/// of their coordinator.

#include <cohort/coordinator/detail/subset.ipp>

#include <cohort/core/log.hpp>

#include <utility>

namespace cohort::coordination {

// ---- the life of a set --------------------------------------------------------------------------

/// All members are here; the set exists in the log, with a number. It can be used when the backend
/// for devices is open, too.
template <class Any>
void negotiation<Any>::make_subset(task& own, creation& record, mpi::comm shared) {
  mpi::comm slot = shared.dup();
  mpi::comm second = shared.dup();
  mpi::comm data = shared.dup();
  mpi::comm exchange = shared.dup();
  communicator host = communicator::adopt(control_, std::move(shared), std::move(slot));
  communicator over = communicator::adopt(control_, std::move(data), std::move(exchange));
  coordinator_options options = options_;
  options.timeline.clear();
  options.frozen_plan.clear();
  const std::uint32_t number = record.number;
  subset& made =
      *subsets_
           .emplace(number, std::make_unique<subset>(*this, std::move(host), std::move(second),
                                                     std::move(over), options, record))
           .first->second;
  made.opening = true;
  made.maker = &own;
  made_ = &made;
  open_subset();
}

template <class Any>
void negotiation<Any>::open_subset() {
  if (unplaced_ != 0) return;  // `place_subset` comes back
  subset& made = *std::exchange(made_, nullptr);
  const std::uint32_t number = made.place.set;
  try {
    device_->open(number, made.over(),
                  [weak = this->weak_from_this(), number](std::exception_ptr why) {
                    if (const auto self = weak.lock()) self->subset_opened(number, std::move(why));
                  });
  } catch (...) {
    made.opening = false;
    if (task* const own = std::exchange(made.maker, nullptr)) {
      set_failed(*own, std::current_exception());
    }
  }
}

/// Takes the place of a set's opening among the operations: that of its election, which is the same
/// on all ranks, however long MPI takes here to make its communicator. NCCL's first call on a
/// communicator waits for the other ranks, so two of them in another order on another rank would
/// wait for ever.
template <class Any>
void negotiation<Any>::place_subset() {
  if (!plane_.started_what_it_may()) return source_.at_next_look(*this);
  device_->reserve(std::exchange(unplaced_, 0));
  plane_.hold_nothing();
  plane_.run();
  if (made_ != nullptr) open_subset();
}

/// That place is not needed: the set has not been made.
template <class Any>
void negotiation<Any>::unplace_subset(std::uint32_t set) {
  if (unplaced_ == set) {
    unplaced_ = 0;
    plane_.hold_nothing();
  } else if (!subsets_.contains(set)) {
    device_->close(set);
  }
}

template <class Any>
void negotiation<Any>::subset_opened(std::uint32_t set, std::exception_ptr why) {
  const comm::request_source::guard hold(source_);
  subset& one = *subsets_.at(set);
  one.opening = false;
  if (task* const own = std::exchange(one.maker, nullptr)) {
    if (why) {
      own->fail(std::move(why));
      leave_set(set, protocol::departure::abandoned);
    } else {
      // The handle keeps this negotiation, to which the set belongs.
      static_cast<creation*>(own->context)->made = std::make_shared<instance_handle>(
          std::shared_ptr<instance>(this->shared_from_this(), &one));
    }
    complete(*own);
  }
  touch();
}

template <class Any>
void negotiation<Any>::leave_set(std::uint32_t set, protocol::departure how) {
  const comm::request_source::guard hold(source_);
  if (const auto found = subsets_.find(set); found != subsets_.end()) {
    if (std::exchange(found->second->left, true)) return;
    found->second->leave_until = clock::now() + options_.leave_deadline;
  }
  if (broken_ || left_) return;  // that is more
  try {
    node_.leave_set(set, how);
  } catch (...) {
    return break_down(std::current_exception());
  }
  stay_awake();
  touch();
}

// In the order of the log: what is freed there may have to meet.
template <class Any>
void negotiation<Any>::release_subsets() {
  while (!ended_.empty() && !faulted_) {
    const auto found = subsets_.find(ended_.front());
    if (found != subsets_.end()) {
      subset& one = *found->second;
      if (one.opening || !plane_.idle_at(one.place)) return;
      try {
        device_->close(one.place.set);
      } catch (const std::exception& problem) {
        log::write(log::level::error, problem.what());
      }
      one.release();
    }
    ended_.pop_front();
  }
}

/// What waits for a set to be opened ends.
template <class Any>
void negotiation<Any>::break_subsets(const std::exception_ptr& why) {
  for (const auto& [set, one] : subsets_) {
    one->joining = nullptr;
    if (task* const own = std::exchange(one->maker, nullptr)) {
      own->fail(why);
      complete(*own);
    }
  }
}

template <class Any>
void negotiation<Any>::watch_subsets(clock::time_point at) {
  for (const auto& [set, one] : subsets_) {
    if (one->leave_until > at || one->closing.empty()) continue;
    for (task* each : std::exchange(one->closing, {})) {
      each->fail(std::make_exception_ptr(error(
          errc::stalled, "rank " + std::to_string(one->rank()) + " of process set " +
                             one->members().str() + ": the other ranks have not left in time")));
      engine_.complete(each);
    }
  }
}

/// At the end of the instance; the backend closes all at once.
template <class Any>
void negotiation<Any>::close_subsets() {
  ended_.clear();
  for (const auto& [set, one] : subsets_) one->release();
}

template <class Any>
bool negotiation<Any>::opens_subsets() const noexcept {
  for (const auto& [set, one] : subsets_) {
    if (one->opening) return true;
  }
  return false;
}

template <class Any>
bool negotiation<Any>::leaves_subsets() const noexcept {
  for (const auto& [set, one] : subsets_) {
    if (!one->closing.empty()) return true;
  }
  return false;
}

// ---- a set's own view ---------------------------------------------------------------------------

template <class Any>
const instance& negotiation<Any>::instance_of(std::uint32_t set) const {
  const auto found = subsets_.find(set);
  if (found == subsets_.end()) return *this;
  return *found->second;
}

template <class Any>
task*& negotiation<Any>::joining_in(std::uint32_t set) {
  return set == 0 ? joining_ : subsets_.at(set)->joining;
}

template <class Any>
coordinator_statistics& negotiation<Any>::statistics_of(std::uint32_t set) {
  return set == 0 ? statistics_ : subsets_.at(set)->counted;
}

/// In the timeline a set is the log count of its creation, whether it has a log of its own or not.
template <class Any>
std::uint32_t negotiation<Any>::timeline_set(std::uint32_t set) const {
  return set == 0 ? set_ : static_cast<std::uint32_t>(subsets_.at(set)->id);
}

template <class Any>
rank_set negotiation<Any>::seen_from(std::uint32_t set, const rank_set& of) const {
  if (set == 0) return of;
  rank_set result;
  const ranks& members = instance_of(set).members();
  for (const int rank : of.list()) {
    if (members.contains(rank)) result.insert(members.position_of(rank));
  }
  return result;
}

/// Ranks in the set's numbers. A fault is of the whole coordinator, and keeps its numbers.
template <class Any>
protocol::verdict negotiation<Any>::seen_from(std::uint32_t set,
                                              const protocol::verdict& why) const {
  protocol::verdict result = why;
  if (set == 0 || why.kind == protocol::failure_kind::data) return result;
  const ranks& members = instance_of(set).members();
  if (why.rank >= 0) result.rank = members.position_of(why.rank);
  for (rank_set* each :
       {&result.ready, &result.missing, &result.silent, &result.unknown, &result.ranks}) {
    *each = seen_from(set, *each);
  }
  for (protocol::side& each : result.sides) {
    each.ranks = seen_from(set, each.ranks);
    if (each.sig.root >= 0) each.sig.root = members.position_of(each.sig.root);
    if (each.sig.kind == op_kind::message) {
      each.sig.detail =
          static_cast<std::uint64_t>(members.position_of(static_cast<int>(each.sig.detail)));
    }
  }
  return result;
}

template <class Any>
void negotiation<Any>::subset::wait_closed(task& one) {
  const comm::request_source::guard hold(owner_.source_);
  one.set = place.set;
  one.submitted = owner_.now();
  if (closed() || owner_.closed_) {
    engine_.complete(&one);
  } else {
    closing.push_back(&one);
    owner_.stay_awake();
  }
}

template <class Any>
void negotiation<Any>::subset::stop_waiting(task& one) {
  const comm::request_source::guard hold(owner_.source_);
  if (std::erase(closing, &one) == 0) return;
  one.fail(std::make_exception_ptr(std::system_error(asio::error::operation_aborted)));
  engine_.complete(&one);
}

template <class Any>
void negotiation<Any>::subset::destroy_tasks() {
  for (task* each : std::exchange(closing, {})) each->destroy();
  if (maker != nullptr) std::exchange(maker, nullptr)->destroy();
}

template <class Any>
void negotiation<Any>::subset::release() {
  host_ = communicator();
  second_ = mpi::comm();
  over_ = communicator();
  for (task* each : std::exchange(closing, {})) engine_.complete(each);
}

template <class Any>
void negotiation<Any>::subset::leave_to_mpi() {
  for (const communicator& each : {host_, over_}) {
    if (each) each.state()->keep();
  }
  second_.keep();
}

}  // namespace cohort::coordination
