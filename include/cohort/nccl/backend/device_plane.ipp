// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// Bodies of `nccl/backend/device_plane.hpp`.

#include <cohort/comm/joint.hpp>
#include <cohort/core/log.hpp>
#include <cohort/device/device.hpp>
#include <cohort/nccl/backend/device_plane.hpp>
#include <cohort/nccl/backend/device_sets.ipp>
#include <cohort/nccl/backend/elected_calls.ipp>
#include <cohort/nccl/backend/elected_work.ipp>
#include <cohort/nccl/life/agreement.hpp>

#include <algorithm>
#include <utility>

namespace cohort::nccl {

COHORT_INLINE device_plane::device_plane(const backend_options& options)
    : marking_backend(detail::device_for(options.communicator.device)),
      options_(options),
      sets_(*this) {}

COHORT_INLINE void device_plane::facts(
    std::vector<std::pair<std::string, std::uint64_t>>& all) const {
  all.emplace_back("backend.pack_below", options_.pack_below);
  all.emplace_back("backend.hierarchical", options_.hierarchical ? 1 : 0);
  all.emplace_back("backend.host_path", options_.host_path ? 1 : 0);
  all.emplace_back("backend.node is given", options_.node >= 0 ? 1 : 0);
  all.emplace_back("backend.kernels", static_cast<std::uint64_t>(options_.kernels));
}

COHORT_INLINE std::string device_plane::refuses(const comm::device_call& what) const {
  if (!is_reduction(what.kind)) return {};
  if (!devices_have(what.reduction) && (extras_.host == nullptr || !options_.host_path)) {
    return "devices have no " + name_of(what.reduction);
  }
  const char* const why = detail::not_of_nccl(what);
  if (extras_.host != nullptr) {
    if (std::string text = extras_.host->refuses(what, why); !text.empty()) return text;
  } else if (why != nullptr) {
    return why;
  }
  const bool captured = what.use != comm::device_use::run;
  if (captured && !detail::allows_graphs(options_.communicator.config)) {
    return "config.graphUsageMode does not allow graphs beside plain operations";
  }
  return {};
}

COHORT_INLINE std::shared_ptr<comm::device_graph> device_plane::make_graph(
    const std::string& name) {
  if (extras_.make_graph == nullptr) return nullptr;
  device::check_usable(device_);
  return extras_.make_graph(name, device_);
}

// ---- sets ------------------------------------------------------------------------------------

COHORT_INLINE void device_plane::attach(const cohort::communicator& parent) {
  source_ = &detail::source_of(parent);
  // If somebody else has it, or there is no such device, the exchange before NCCL's init says so.
  if (!is_device() || source_->is_held_elsewhere(device_, this)) return;
  static_cast<void>(source_->hold(device_, this));
}

COHORT_INLINE void device_plane::open(std::uint32_t set, const cohort::communicator& over,
                                      std::function<void(std::exception_ptr)> done) {
  if (source_ == nullptr) attach(over);
  sets_.open(set, over, std::move(done));
}

COHORT_INLINE void device_plane::reserve(std::uint32_t set) {
  const auto lock = source_->lock();
  hold({nullptr, {}, set});
}

/// The place of a set whose opening has not been asked for.
COHORT_INLINE std::deque<device_plane::held>::iterator device_plane::reserved(std::uint32_t set) {
  return std::find_if(held_.begin(), held_.end(), [set](const held& each) {
    return each.op == nullptr && !each.begin && each.set == set;
  });
}

COHORT_INLINE void device_plane::hold_opening(std::uint32_t set, std::function<void()> begin) {
  if (const auto place = reserved(set); place != held_.end()) {
    place->begin = std::move(begin);
  } else {
    hold({nullptr, std::move(begin)});
  }
}

COHORT_INLINE void device_plane::close(std::uint32_t set) {
  if (source_ == nullptr) return;
  std::vector<device_set> gone;  // their last handles take the lock
  change([&] {
    gone = sets_.close(set, static_cast<bool>(failed_));
    if (const auto place = reserved(set); place != held_.end()) held_.erase(place);
  });
  gone.clear();
  source_->wake();  // for what has waited for a place
  if (set == 0 && is_device()) source_->let_go(device_, this);
}

// ---- operations ------------------------------------------------------------------------------

COHORT_INLINE void device_plane::start(comm::device_call& what, comm::backend_completion done) {
  if (what.kind == op_kind::arena_add) return extras_.arenas->start(what, done);
  auto op = std::make_unique<elected_work>(shared_from_this(), what, done);
  change([&] {
    live_.reserve(live_.size() + 1);
    hold({op.get()});
    live_.push_back(op.release());
  });
}

/// In the order in which they were started; the first that cannot be issued yet holds the others.
COHORT_INLINE void device_plane::submit_what_can_be() {
  while (!held_.empty()) {
    if (held_.front().op == nullptr) {
      if ((in_parts_ != nullptr || !held_.front().begin) && !failed_) return;
      const auto begin = std::move(held_.front().begin);
      held_.pop_front();  // first, for what fails at once goes on with the next
      if (begin) begin();
      continue;
    }
    elected_work& op = *held_.front().op;
    const device_set& set = sets_[op.what_->set];
    if (failed_ || set.failed) {
      op.fail(failed_ ? failed_ : set.failed);
    } else if (!set.comm || !op.what_->sized || in_parts_ != nullptr) {
      return;
    }
    held_.pop_front();
    if (!op.error()) {
      op.comm = set.comm.state();
      if (extras_.host != nullptr) extras_.host->take(op, set);
      if (op.stage_ == elected_work::stage::first_part) in_parts_ = &op;
      op.lay_out();
    }
    queue(op);
  }
  pack_ahead();
}

COHORT_INLINE void device_plane::queue(elected_work& op) {
  if (op.error() || !source_->submit_held(op)) {
    source_->end_at_next_look(op);
  } else {
    queued_.push_back(&op);
  }
}

/// What goes wrong here is tried once more when it is issued, and told if it goes wrong again.
COHORT_INLINE void device_plane::pack_ahead() noexcept {
  for (elected_work* const op : queued_) {
    if (op->error() || op->what_ == nullptr) continue;  // given up: it is not in anybody's way
    try {
      if (!op->pack()) return;
    } catch (...) {
      return;  // what is behind it would have the memory or the device no more than it
    }
  }
}

/// It has ended.
COHORT_INLINE void device_plane::forget(elected_work& op) noexcept {
  std::erase(live_, &op);
  std::erase_if(held_, [&](const held& each) { return each.op == &op; });
  std::erase(queued_, &op);
  if (in_parts_ == &op) in_parts_ = nullptr;
}

COHORT_INLINE void device_plane::come_back(elected_work& op, std::exception_ptr why) {
  std::error_code code = detail::problem_of(why).code;
  change([&] {
    if (op.what_ == nullptr) code = errc::aborted;
    // Nothing follows: the ranks do not agree any more on what MPI is to reduce next.
    if (code && !failed_) failed_ = code;
    op.begin_second_part(code);
    if (in_parts_ == &op) in_parts_ = nullptr;
    queue(op);
  });
}

COHORT_INLINE bool device_plane::forget(const comm::request_operation& op) {
  if (source_ == nullptr) return false;
  const auto lock = source_->lock();
  if (extras_.arenas != nullptr && extras_.arenas->forget(op)) return true;
  for (elected_work* const one : live_) {
    if (one->what_ == nullptr || !one->done_.is_of(op)) continue;
    const auto is_it = [&](const held& each) { return each.op == one; };
    if (std::any_of(held_.begin(), held_.end(), is_it)) return false;
    one->what_ = nullptr;
    return true;
  }
  return false;
}

COHORT_INLINE void device_plane::call_at_look(std::function<void()> what) const {
  progress::begin_look_task(detail::call_at_look(*source_, std::move(what)),
                            {.verb = "coordinator, on its device"}, [](std::exception_ptr) {});
}

COHORT_INLINE void device_plane::fail(std::error_code why, const std::string& text) {
  if (source_ == nullptr) return;
  std::optional<comm::backend_completion> between;
  change([&] {
    if (!failed_) failed_ = why;
    // What MPI has of it may never end.
    if (in_parts_ == nullptr || !in_parts_->is_between_parts()) return;
    in_parts_->what_ = nullptr;
    between = std::exchange(in_parts_, nullptr)->done_;
  });
  if (between) {
    call_at_look([self = shared_from_this(), each = *between, why] {
      auto& context = self->source_->engine().context();
      comm::joint::operation::leave_to_mpi(asio::use_service<comm::request_source>(context),
                                           self.get());
      each.in_look(why);
    });
  }
  sets_.bring_down(why, text);
}

// ---- a deadline over what is not in the queue of its device ----------------------------------

/// What the operation waits for, in words; empty if it is about to enter the queue, or to end.
COHORT_INLINE std::string device_plane::what_holds(const elected_work& op) {
  if (&op == in_parts_ && op.is_between_parts()) return extras_.host->in_words(op);
  const auto is_it = [&](const held& each) { return each.op == &op; };
  if (std::none_of(held_.begin(), held_.end(), is_it)) return {};
  if (in_parts_ != nullptr) {
    return std::string(in_parts_->verb) + " before it, and that for " +
           (in_parts_->is_between_parts() ? extras_.host->in_words(*in_parts_)
                                          : std::string("the first part of two"));
  }
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
    report_overdue(what, sequence, text);
    return true;
  }
  return source_->questions().inquire(
      *comm.state(), [weak = weak_from_this(), &what, sequence, text](const std::string& findings) {
        if (const auto self = weak.lock()) self->report_overdue(what, sequence, text + findings);
      });
}

/// With the lock held. The call may have ended since, and another one be in its place.
COHORT_INLINE void device_plane::report_overdue(const comm::device_call& what,
                                                std::uint64_t sequence, const std::string& text) {
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
  const auto lock = source_->lock();
  for (elected_work* const op : live_) {
    if (op->what_ == &what) return source_->questions().deadline_passed(*op) || is_overdue(*op);
  }
  return true;  // it has ended
}

// ---- the timeline ----------------------------------------------------------------------------

COHORT_INLINE std::string device_plane::device_name() const {
  std::string name = "device " + std::to_string(device_);
  try {
    const device::device_uuid id = device::uuid(device_);
    if (id.known()) name += " " + id.text();
  } catch (const std::system_error&) {
    // The opening says what is wrong with it.
  }
  return name;
}

COHORT_INLINE void device_plane::record_times(bool yes) {
  if (source_ == nullptr || extras_.times == nullptr || !is_device()) return;
  const auto lock = source_->lock();
  extras_.times->record(yes, device_);
}

COHORT_INLINE void device_plane::take_times(
    const std::function<void(const comm::device_span&)>& visit) {
  if (source_ == nullptr || extras_.times == nullptr) return;
  const auto found = source_->exclusively([&] { return extras_.times->take(); });
  for (const comm::device_span& each : found) visit(each);
}

}  // namespace cohort::nccl
