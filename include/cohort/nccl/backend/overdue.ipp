// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// A deadline over what has been elected and is not in the queue of its device.

#include <cohort/nccl/backend/device_plane.hpp>

#include <cohort/core/log.hpp>

#include <algorithm>
#include <string>
#include <utility>

namespace cohort::nccl {

/// In words; empty if it is about to enter the queue, or to end.
COHORT_INLINE std::string device_plane::what_holds(const elected_work& op) {
  if (const std::string why = host_.what_holds(op); !why.empty()) return why;
  const auto is_it = [&](const held& each) { return each.op == &op; };
  if (std::none_of(held_.begin(), held_.end(), is_it)) return {};
  if (host_.is_busy()) return host_.in_words();
  const elected_work* const first = held_.front().op;
  if (first == nullptr) return "the opening of a set before it";
  const bool is_open = static_cast<bool>(sets_[first->what_->set].comm);
  const std::string why = is_open ? "the sizes of all ranks" : "the opening of its set";
  if (first == &op) return why;
  return std::string(first->verb) + " before it, and that for " + why;
}

// 1. The ranks are asked where they stand, if there is a communicator on which to ask.
// 2. With their answers it is reported. By option all that the coordinator has on the device ends:
//    the peers are told, and what is held here ends with the deadline's error.
//
// With the lock held. False: to be asked again.
COHORT_INLINE bool device_plane::is_overdue(elected_work& op) {
  const std::string waits = what_holds(op);
  if (waits.empty()) return false;
  const comm::device_call& what = *op.what_;
  const communicator comm = sets_[what.set].comm;
  const std::string text = std::string(op.verb) + " in set " + std::to_string(what.set) +
                           " of a coordinator, device=" + std::to_string(device_) +
                           ", deadline, waits for " + waits;
  const std::uint64_t sequence = what.sequence;
  if (!comm) {
    tell_overdue(what, sequence, text);
    return true;
  }
  return source_->questions().inquire(
      *comm.state(), [weak = weak_from_this(), &what, sequence, text](const std::string& findings) {
        if (const auto self = weak.lock()) self->tell_overdue(what, sequence, text + findings);
      });
}

/// With the lock held. The call may have ended since, and another one be in its place.
COHORT_INLINE void device_plane::tell_overdue(const comm::device_call& what, std::uint64_t sequence,
                                              const std::string& text) {
  const auto found = std::find_if(live_.begin(), live_.end(), [&](const elected_work* each) {
    return each->what_ == &what && each->what_->sequence == sequence;
  });
  if (found == live_.end() || failed_) return;
  elected_work& op = **found;
  if (what_holds(op).empty()) {
    static_cast<void>(
        source_->questions().deadline_passed(op));  // it has come into the queue meanwhile
    return;
  }
  const bool aborts = options_.communicator.on_deadline == on_deadline::abort;
  const communicator comm = sets_[what.set].comm;
  const std::string line = (comm ? "rank " + std::to_string(comm.rank()) + ": nccl " : "nccl ") +
                           text + (aborts ? "" : "; waiting on");
  if (comm) {
    comm.state()->remember({errc::deadline_exceeded, line});
  } else {
    log::write(log::level::error, line);
  }
  if (aborts) fail(errc::deadline_exceeded, line);
}

COHORT_INLINE bool device_plane::deadline_passed(comm::device_call& what) {
  return source_->exclusively([&] {
    for (elected_work* const op : live_) {
      if (op->what_ == &what) return source_->questions().deadline_passed(*op) || is_overdue(*op);
    }
    return true;  // it has ended
  });
}

}  // namespace cohort::nccl
