// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// Bodies of `nccl/backend/device_plane.hpp`.

#include <cohort/comm/joint.hpp>
#include <cohort/core/log.hpp>
#include <cohort/device/nvtx.hpp>
#include <cohort/device/uuid.hpp>
#include <cohort/nccl/backend/device_plane.hpp>
#include <cohort/nccl/backend/device_sets.ipp>
#include <cohort/nccl/backend/elected_calls.ipp>
#include <cohort/nccl/backend/elected_work.ipp>
#include <cohort/nccl/backend/overdue.ipp>
#include <cohort/nccl/extra/fusion_arena.ipp>
#include <cohort/nccl/extra/host_path.ipp>
#include <cohort/nccl/life/agreement.hpp>

#include <algorithm>
#include <utility>

namespace cohort::nccl {

COHORT_INLINE std::shared_ptr<comm::device_backend> make_device_plane(
    const backend_options& options) {
  return std::make_shared<device_plane>(options);
}

COHORT_INLINE device_plane::device_plane(const backend_options& options)
    : options_(options),
      device_(detail::device_for(options.communicator.device)),
      sets_(*this),
      submissions_(device_),
      arenas_(*this),
      host_(*this) {
  device::attach_tools();  // before the first operation is submitted
}

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
  const bool captured = what.use != comm::device_use::run;
  if (const char* const why = detail::not_of_nccl(what); why != nullptr) {
    if (!options_.host_path) return why;
    if (captured) return std::string(why) + ", and MPI's part cannot be captured";
    const std::string further = host_path::not_of_mpi(what);
    return further.empty() ? further : std::string(why) + ", " + further;
  }
  if (captured && options_.hierarchical) return "over nodes it goes through the host";
  if (captured && !detail::allows_graphs(options_.communicator.config)) {
    return "config.graphUsageMode does not allow graphs beside plain operations";
  }
  return {};
}

COHORT_INLINE std::shared_ptr<comm::device_graph> device_plane::make_graph(
    const std::string& name) {
  device::check_usable(device_);
  return std::make_shared<captured_calls>(name, device_);
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
  source_->exclusively([&] { hold({nullptr, {}, set}); });
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
  change([&](auto&) {
    gone = sets_.close(set, static_cast<bool>(failed_));
    if (const auto place = reserved(set); place != held_.end()) held_.erase(place);
  });
  gone.clear();
  source_->wake();  // for what has waited for a place
  if (set == 0 && is_device()) source_->let_go(device_, this);
}

// ---- operations ------------------------------------------------------------------------------

COHORT_INLINE void device_plane::start(comm::device_call& what, comm::backend_completion done) {
  if (what.kind == op_kind::arena_add) return arenas_.start(what, done);
  auto op = std::make_unique<elected_work>(shared_from_this(), what, done);
  change([&](auto&) {
    live_.reserve(live_.size() + 1);
    hold({op.get()});
    live_.push_back(op.release());
  });
}

/// In the order in which they were started; the first that cannot be issued yet holds the others.
COHORT_INLINE void device_plane::submit_what_can_be(std::vector<work*>& ended) {
  while (!held_.empty()) {
    if (held_.front().op == nullptr) {
      if ((host_.is_busy() || !held_.front().begin) && !failed_) return;
      const auto begin = std::move(held_.front().begin);
      held_.pop_front();  // first, for what fails at once goes on with the next
      if (begin) begin();
      continue;
    }
    elected_work& op = *held_.front().op;
    const device_set& set = sets_[op.what_->set];
    if (failed_ || set.failed) {
      op.fail(failed_ ? failed_ : set.failed);
    } else if (!set.comm || !op.what_->sized || host_.is_busy()) {
      return;
    }
    held_.pop_front();
    if (!op.error()) begin(op, set);
    queue(op, ended);
  }
  pack_ahead();
}

COHORT_INLINE void device_plane::begin(elected_work& op, const device_set& set) {
  op.comm = set.comm.state();
  op.by_host_ = host_.takes(*op.what_);
  const bool by_nodes = set.node && op.what_->kind == op_kind::all_reduce;
  if (!op.by_host_ && by_nodes) op.comm = set.node.state();
  if (op.by_host_ || by_nodes) host_.begin(op);
  try {
    op.lay_out();
    if (op.use_ != comm::device_use::capture) op.timed_ = times_.start(*op.what_);
  } catch (const std::system_error& failed) {
    op.fail(failed.code());
  } catch (const std::bad_alloc&) {
    op.fail(std::make_error_code(std::errc::not_enough_memory));
  }
}

COHORT_INLINE void device_plane::queue(elected_work& op, std::vector<work*>& ended) {
  if (op.error() || !source_->submit_held(op)) {
    ended.push_back(&op);
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
  host_.forget(op);
}

COHORT_INLINE bool device_plane::forget(const comm::request_operation& op) {
  if (source_ == nullptr) return false;
  return source_->exclusively([&] {
    if (arenas_.forget(op)) return true;
    for (elected_work* const one : live_) {
      if (one->what_ == nullptr || !one->done_.is_of(op)) continue;
      const auto is_it = [&](const held& each) { return each.op == one; };
      if (std::any_of(held_.begin(), held_.end(), is_it)) return false;
      one->what_ = nullptr;
      return true;
    }
    return false;
  });
}

COHORT_INLINE void device_plane::call_at_look(std::function<void()> what) const {
  progress::begin_look_task(detail::call_at_look(*source_, std::move(what)),
                            {.verb = "coordinator, on its device"}, [](std::exception_ptr) {});
}

COHORT_INLINE void device_plane::fail(std::error_code why, const std::string& text) {
  if (source_ == nullptr) return;
  std::optional<comm::backend_completion> between;
  change([&](auto&) {
    if (!failed_) failed_ = why;
    between = host_.give_up();
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
  if (source_ == nullptr || !is_device()) return;
  source_->exclusively([&] { times_.record(yes, device_); });
}

COHORT_INLINE void device_plane::take_times(
    const std::function<void(const comm::device_span&)>& visit) {
  if (source_ == nullptr) return;
  const auto found = source_->exclusively([&] { return times_.take(); });
  for (const comm::device_span& each : found) visit(each);
}

}  // namespace cohort::nccl
