// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// Bodies of `nccl/source.hpp`.

#include <cohort/device/nvtx.hpp>
#include <cohort/nccl/source.hpp>

#include <algorithm>
#include <new>
#include <string>
#include <utility>
#include <vector>

namespace cohort::nccl {

template <std::derived_from<asio::execution_context> Context>
issue_source::issue_source(Context& context)
    : dear_source(asio::use_service<progress::engine>(context)),
      asio::execution_context::service(context),
      ladder_(*this),
      leaving_(*this),
      messages_(*this),
      questions_(*this) {
  device::attach_tools();
  engine_.attach(*this);
}

COHORT_INLINE issue_source::~issue_source() {
  engine_.detach(this);
  conditions_.destroy_all();
}

COHORT_INLINE void issue_source::wake_if_possible() noexcept {
  try {
    engine_.started();
  } catch (const std::bad_alloc&) {
  }
}

COHORT_INLINE void issue_source::recount() noexcept {
  std::size_t count = conditions_.pending() + ended_in_lap_.size() + ladder_.pending() +
                      leaving_.pending() + messages_.pending() + questions_.pending();
  std::size_t bytes = 0;
  for (const device_queue& one : queues_) {
    count += one.pending();
    bytes += one.bytes();
  }
  pending_.store(count, std::memory_order_relaxed);
  in_flight_.store(bytes, std::memory_order_relaxed);
}

// ---- devices and places ----------------------------------------------------------------------

COHORT_INLINE device_queue& issue_source::queue_of(int device) {
  for (device_queue& one : queues_) {
    if (one.device() == device) return one;
  }
  return queues_.emplace_back(*this, device);
}

COHORT_INLINE void issue_source::claim(int device) {
  const std::lock_guard hold(mutex_);
  device_queue& one = queue_of(device);
  if (const std::error_code why = one.why_unusable()) {
    throw error(why, "device " + std::to_string(device) + ": an abort has not come back");
  }
  if (one.access.claim(device, *this)) return;
  throw error(errc::single_thread_violation,
              "device " + std::to_string(device) + " has NCCL communicators of another io_context");
}

COHORT_INLINE bool issue_source::is_held_elsewhere(int device, const void* orderer) const {
  const std::lock_guard lock(mutex_);
  return std::any_of(queues_.begin(), queues_.end(), [&](const device_queue& one) {
    return one.device() != device && !one.access.admits(orderer);
  });
}

COHORT_INLINE turn issue_source::reserve(int device) {
  const std::lock_guard hold(mutex_);
  auto place = queue_of(device).reserve();
  recount();
  return turn(std::move(place), *this);
}

COHORT_INLINE void turn::release() noexcept {
  if (!place_) return;
  source_->exclusively([&] {
    place_->over = true;
    source_->recount();
  });
  place_.reset();
  source_->wake_if_possible();
}

COHORT_INLINE void issue_source::add(std::shared_ptr<communicator_state> comm) {
  const std::lock_guard hold(mutex_);
  comm->own_place.push_back({nullptr, std::make_shared<queue_place>()});
  comms_.push_back(std::move(comm));
}

// ---- operations ------------------------------------------------------------------------------

COHORT_INLINE std::error_code issue_source::why_refused(const device_queue& one,
                                                        const communicator_state& comm) const {
  if (ending_ || engine_.stopped()) return errc::engine_stopped;
  if (comm.stands != phase::ready) return comm.why ? comm.why : make_error_code(errc::closed);
  if (!one.access.admits(comm.orderer)) return errc::device_ordered;
  return {};
}

COHORT_INLINE bool issue_source::submit_held(work& op) {
  communicator_state& comm = *op.comm;
  // The loss of a device may have been seen while nothing was pending on it.
  device_queue& one = queue_of(comm.device);
  if (one.is_gone()) ladder_.device_gone(one);
  op.age.begin(clock::now());
  op.sequence = ++comm.sequence;
  comm.note(op);
  if (const std::error_code why = why_refused(one, comm)) {
    op.fail(why);
  } else if (!op.error()) {
    ++comm.outstanding;
    op.pending = true;
    if (op.everybody) op.collective = ++comm.collectives;
    one.push(op);
    recount();
  }
  return op.pending;
}

COHORT_INLINE bool issue_source::take_parts(work& whole) {
  work_set& set = *whole.joined;
  whole.age.begin(clock::now());
  for (const work& part : set.parts) {
    device_queue& one = queue_of(part.comm->device);
    if (one.is_gone()) ladder_.device_gone(one);
    whole.fail(why_refused(one, *part.comm));
  }
  if (whole.error()) return false;
  whole.pending = true;
  set.left = set.parts.size();
  for (work& part : set.parts) static_cast<void>(submit_held(part));
  return true;
}

COHORT_INLINE void issue_source::submit(work& op) {
  // Once the lock is free, the operation may be over and gone.
  if (exclusively([&] { return op.joined ? take_parts(op) : submit_held(op); })) {
    engine_.started();
  } else {
    engine_.complete(&op);
  }
}

COHORT_INLINE work* issue_source::concluded(work& op) noexcept {
  op.pending = false;
  if (op.part_of == nullptr) return &op;
  work_set& set = *op.part_of;
  set.whole->fail(op.error());
  if (--set.left != 0) return nullptr;
  set.whole->pending = false;
  return set.whole;
}

COHORT_INLINE std::size_t issue_source::finish(work& op, progress::ready_queue& ready) {
  work* const over = concluded(op);
  if (over == nullptr) return 0;
  over->settle();
  if (over->hooks != nullptr) {
    ended_in_lap_.push_back(over);
  } else {
    ready.push(over);
  }
  return 1;
}

COHORT_INLINE void issue_source::end_at_next_look(work& ended) {
  ended.settle();
  ended_in_lap_.push_back(&ended);
  recount();
}

// ---- looks -----------------------------------------------------------------------------------

COHORT_INLINE void look_condition::begin() { source_.wait_for(*this); }

COHORT_INLINE void issue_source::wait_for(look_condition& one) {
  exclusively([&] {
    if (ending_ && !one.bounded) one.error = asio::error::operation_aborted;
    conditions_.add(one);
    recount();
  });
  wake_if_possible();  // an exception would end the frame of what is in the list
}

COHORT_INLINE std::size_t look_conditions::look() {
  std::vector<look_condition*> held;  // they may wait for more
  for (std::size_t i = 0; i < waiting_.size();) {
    if (!waiting_[i]->error && !waiting_[i]->holds()) {
      ++i;
      continue;
    }
    held.push_back(waiting_[i]);
    waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  for (look_condition* const one : held) one->go_on();
  return held.size();
}

COHORT_INLINE void look_conditions::abort_unbounded() noexcept {
  for (look_condition* const each : waiting_) {
    if (!each->bounded) each->error = asio::error::operation_aborted;
  }
}

COHORT_INLINE std::vector<look_condition*> look_conditions::take_all(std::error_code why) noexcept {
  for (look_condition* const each : waiting_) each->error = why;
  return std::exchange(waiting_, {});
}

COHORT_INLINE void look_conditions::destroy_all() noexcept {
  while (!waiting_.empty()) {
    look_condition* const one = waiting_.back();
    waiting_.pop_back();
    one->destroy();
  }
}

COHORT_INLINE std::size_t issue_source::test(progress::ready_queue& ready) {
  const std::uint32_t changes = device::device_state::changes().load(std::memory_order_acquire);
  if (pending() == 0 && changes == seen_changes_) {
    const bool asks = !comms_.empty() && engine_.coarse_now() - last_asked_ >= error_period;
    if (!asks) return 0;
  }
  seen_changes_ = changes;
  std::size_t found = 0;
  {
    const device::detail::relaxed_capture may_ask;
    for (device_queue& one : queues_) {
      if (!one.is_gone()) [[likely]]
        found += one.advance(ready);
      if (one.is_gone()) [[unlikely]]
        ladder_.device_gone(one);
    }
    ask_for_errors();
    questions_.look();
    found += ladder_.look(ready);
    found += leaving_.look(ready);
    messages_.look();
  }
  found += conditions_.look();
  // A coordinator goes on at once, also where nothing is delivered any more.
  for (work* const op : std::exchange(ended_in_lap_, {})) {
    if (!op->hooks->end_in_lap()) ready.push(op);
  }
  recount();
  return found;
}

/// By the clock: a communicator may break while no call of it is at hand, and a peer may wait then.
COHORT_INLINE void issue_source::ask_for_errors() {
  const auto now = engine_.coarse_now();
  if (now - last_asked_ < error_period) return;
  last_asked_ = now;
  for (std::size_t i = 0; i < comms_.size(); ++i) {
    communicator_state& comm = *comms_[i];
    const phase stands = comm.stands.load();
    if (comm.native == nullptr) continue;
    if (stands != phase::ready && stands != phase::leaving) continue;
    const ncclResult_t state = detail::state_of(comm.native);
    if (detail::failed(state)) {
      ladder_.fall(comm, make_error(state), "an asynchronous error", false, true);
    }
  }
}

// ---- the end of the engine -------------------------------------------------------------------

/// The engine ends, or MPI does. What has not been issued is given up, the rest is waited for in
/// place, without handlers, and all communicators leave.
COHORT_INLINE void issue_source::leave() {
  std::vector<work*> ended;
  std::vector<fault_messages::parting> gone;
  {
    const std::lock_guard hold(mutex_);
    ending_ = engine_.stopped();
    const auto is_given_up = [&](const std::shared_ptr<queue_place>& place) {
      return std::none_of(comms_.begin(), comms_.end(),
                          [&](const auto& comm) { return comm->place == place; });
    };
    for (device_queue& one : queues_) {
      one.drop_waiting(asio::error::operation_aborted, ended, is_given_up);
    }
    conditions_.abort_unbounded();
    const auto all = comms_;
    for (const auto& comm : all) leaving_.begin(*comm);  // what is being made goes on
    in_place_ = true;
    gone = messages_.let_go();
    for (work*& op : ended) op = concluded(*op);
    recount();
  }
  for (work* const over : ended) {
    if (over != nullptr) engine_.complete(over);
  }
}

/// Waiting has not helped. Communicators and the memory that they use are leaked, and the awaiters
/// end.
COHORT_INLINE void issue_source::end() {
  std::vector<work*> ended;
  std::vector<look_condition*> given_up;
  std::vector<fault_messages::parting> gone;
  {
    const std::lock_guard hold(mutex_);
    gone = messages_.let_go();
    for (device_queue& one : queues_) one.leak(ended);
    ladder_.give_up(ended);
    for (const auto& comm : comms_) {
      comm->keep_mpi();
      if (comm->native == nullptr && comm->stands != phase::failed) continue;
      device::state_of(comm->device).stop_frees();
      comm->end_as(phase::leaked, comm->why);
      comm->remember({errc::stalled, "an nccl communicator has not ended with its loop; leaked"});
    }
    comms_.clear();
    for (work* const op : std::exchange(ended_in_lap_, {})) ended.push_back(op);
    given_up = conditions_.take_all(errc::engine_stopped);
    recount();
  }
  for (look_condition* const each : given_up) engine_.complete(each);
  for (work* const op : ended) {
    if (work* const over = concluded(*op)) engine_.complete(over);
  }
}

COHORT_INLINE void issue_source::describe(std::string& text) {
  const std::lock_guard hold(mutex_);
  for_each_pending(
      [&](const work& op, standing where) { text.append(op.line(in_words(where))).append("\n"); });
  for (const auto& comm : comms_) {
    if (!comm->is_leaving()) continue;
    text.append("  an nccl communicator of device ").append(std::to_string(comm->device));
    text.append(" is leaving\n");
  }
}

}  // namespace cohort::nccl
