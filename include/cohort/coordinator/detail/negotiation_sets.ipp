// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Bodies of coordinator/negotiation.hpp: process sets in the log of their coordinator.

#include <cohort/coordinator/negotiation.hpp>
#include <cohort/core/log.hpp>

#include <utility>

namespace cohort::coordination {

/// All members are here; the set exists in the log, with a number. It can be used when the backend
/// for devices is open, too.
template <class Any>
void negotiation<Any>::make_view(task& own, creation& record, mpi::comm shared) {
  mpi::comm slot = shared.dup();
  mpi::comm second = shared.dup();
  mpi::comm data = shared.dup();
  mpi::comm exchange = shared.dup();
  communicator host = communicator::adopt(control_, std::move(shared), std::move(slot));
  communicator over = communicator::adopt(control_, std::move(data), std::move(exchange));
  coordinator_options options = options_;
  options.timeline.clear();
  options.frozen_plan.clear();
  auto made = std::make_unique<view>(*this, host, options, record);
  made->take(std::move(host), std::move(second), std::move(over));
  made->opening = true;
  made->maker = &own;
  made_ = views_.emplace(record.number, std::move(made)).first->second.get();
  open_made();
}

template <class Any>
void negotiation<Any>::open_made() {
  if (unplaced_ == 0) open_device(*std::exchange(made_, nullptr));  // else `place_set` comes back
}

/// Takes the place of a set's opening among the operations: that of its election, which is the same
/// on all ranks, however long MPI takes here to make its communicator. NCCL's first call on a
/// communicator waits for the other ranks, so two of them in another order on another rank would
/// wait for ever.
template <class Any>
void negotiation<Any>::place_set() {
  if (!plane_.started_what_it_may()) return source_.at_next_look(*this);
  device_->reserve(std::exchange(unplaced_, 0));
  plane_.hold_nothing();
  plane_.run();
  if (made_ != nullptr) open_made();
}

/// That place is not needed: the set has not been made.
template <class Any>
void negotiation<Any>::unplace_set(std::uint32_t set) {
  if (unplaced_ == set) {
    unplaced_ = 0;
    plane_.hold_nothing();
  } else if (!views_.contains(set)) {
    device_->close(set);
  }
}

// In the order of the log: what is freed there may have to meet.
template <class Any>
void negotiation<Any>::release_ended() {
  while (!ended_.empty() && !faulted_) {
    const auto found = views_.find(ended_.front());
    if (found != views_.end()) {
      view& one = *found->second;
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

/// What waits for a set to be opened ends; without a reason, by the fault.
template <class Any>
void negotiation<Any>::end_makers(const std::exception_ptr& why) {
  for (const auto& [set, one] : views_) {
    if (task* const own = std::exchange(one->maker, nullptr)) {
      own->fail(why ? why : fault_of(*own));
      complete(*own);
    }
  }
}

template <class Any>
void negotiation<Any>::watch_leaving(clock::time_point at) {
  for (const auto& [set, one] : views_) {
    if (!one->left || one->leave_expired || at <= one->leave_until) continue;
    if (one->is_whole()) {
      leave_has_expired();
    } else {
      one->expire();
    }
  }
}

template <class Any>
bool negotiation<Any>::opens_sets() const noexcept {
  return std::any_of(views_.begin(), views_.end(), [](const auto& one) {
    return one.second->opening && !one.second->is_whole();
  });
}

}  // namespace cohort::coordination
