// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// Bodies of `nccl/queue/device_queue.hpp`, and of operations that are posted together.

#include <cohort/nccl/queue/calls.ipp>
#include <cohort/nccl/source.hpp>

#include <algorithm>
#include <array>
#include <exception>
#include <string>
#include <utility>
#include <vector>

namespace cohort::nccl {

COHORT_INLINE bool device_access::claim(int device, const issue_source& by) {
  static std::array<std::atomic<const issue_source*>, device::detail::most_devices> owners{};
  auto& owner = owners[static_cast<std::size_t>(device)];
  const issue_source* other = nullptr;
  if (!owner.compare_exchange_strong(other, &by) && other != &by) return false;
  claimed_ = &owner;
  return true;
}

COHORT_INLINE const device::stream& device_queue::open() {
  if (const std::error_code why = why_unusable()) {
    throw std::system_error(why, "device " + std::to_string(device_));
  }
  if (!domain_) {
    device::stream made(device::stream_options{.device = device_, .high_priority = true});
    scratch_ = device::vector<std::int32_t>(1, made);
    domain_.emplace(std::move(made));
    generation_ = device::state_of(device_).generation();
  }
  return *domain_;
}

COHORT_INLINE void device_queue::ask_whether_gone() {
  if (!domain_) return;
  const cudaError_t code = cudaStreamQuery(domain_->get());
  if (code == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());
  if (code == cudaErrorNotReady) return;
  if (code == cudaErrorInvalidResourceHandle) device::state_of(device_).context_gone(generation_);
  device::detail::note(code, device_, generation_);
}

COHORT_INLINE bool device_queue::works_for(const communicator_state& comm) const noexcept {
  if (launching_ != nullptr && launching_->comm.get() == &comm) return true;
  return std::any_of(flights_.begin(), flights_.end(),
                     [&](const flight& each) { return each.comm.get() == &comm; });
}

COHORT_INLINE std::size_t device_queue::bytes() const noexcept {
  std::size_t all = launching_ != nullptr ? launching_->bytes : 0;
  for (const flight& each : flights_) all += each.op != nullptr ? each.op->bytes : 0;
  return all;
}

// ---- issuing ---------------------------------------------------------------------------------

COHORT_INLINE bool device_queue::begin(work& op) {
  launching_ = &op;
  if (op.hooks != nullptr) op.hooks->prepare(*domain_);
  const bool any = op.more.empty() ? detail::launches(op.one)
                                   : std::any_of(op.more.begin(), op.more.end(), detail::launches);
  if (any) return true;
  launching_ = nullptr;
  --op.comm->outstanding;
  return false;
}

COHORT_INLINE ncclResult_t device_queue::issue(work& op) {
  communicator_state& comm = *op.comm;
  const device::scoped_device here(device_);
  for (const device::event& mark : op.after) domain_->wait(mark);
  op.after.clear();
  const cudaStream_t on = op.hooks == nullptr ? domain_->get() : op.hooks->calls_on(*domain_);
  ncclRedOp_t reduction = ncclSum;
  if (op.more.empty()) {
    const ncclResult_t made = detail::resolve(op.one, comm, op.reductions, reduction);
    return detail::failed(made) ? made : detail::post(op.one, reduction, comm, on);
  }
  // Reductions are made outside the group, one for calls in a row that have the same.
  std::vector<ncclRedOp_t> reductions;
  for (std::size_t i = 0; i < op.more.size(); ++i) {
    const call& part = op.more[i];
    const bool again = i != 0 && part.op == op.more[i - 1].op && part.type == op.more[i - 1].type;
    const ncclResult_t made =
        again ? ncclSuccess : detail::resolve(part, comm, op.reductions, reduction);
    if (detail::failed(made)) return made;
    reductions.push_back(reduction);
  }
  ncclResult_t all = ncclGroupStart();
  if (detail::failed(all)) return all;
  for (std::size_t i = 0; i < op.more.size(); ++i) {
    const call& part = op.more[i];
    if (detail::launches(part)) detail::keep(all, detail::post(part, reductions[i], comm, on));
  }
  detail::keep(all, ncclGroupEnd());
  return all;
}

/// Handles what goes wrong at the head of the queue. The next lap sees a device that has gone.
COHORT_INLINE void device_queue::fall_with(communicator_state& comm, const detail::problem& bad) {
  ask_whether_gone();
  if (!device::state_of(device_).holds(generation_)) return;
  source_.ladder().fall(comm, bad.code, bad.text, false, true);
}

COHORT_INLINE void device_queue::mark_what_aborts_left() {
  for (flight& each : flights_) {
    if (each.mark.valid()) continue;
    if (each.ahead) domain_->wait(*each.ahead);
    each.mark = domain_->record();
  }
}

/// Step 4 of the operation at hand: its kernel is in the stream.
COHORT_INLINE std::size_t device_queue::launched(progress::ready_queue& ready) {
  work& op = *launching_;
  const device::scoped_device here(device_);
  for (const ncclRedOp_t made : op.reductions)
    static_cast<void>(ncclRedOpDestroy(made, op.comm->native));
  op.reductions.clear();
  mark_what_aborts_left();
  flight& now = flights_.emplace_back();
  launching_ = nullptr;
  now.comm = op.comm;
  now.op = &op;
  now.uses = std::move(op.uses);
  now.mark = op.hooks == nullptr ? domain_->record() : op.hooks->conclude(*domain_);
  if (op.ends == until::complete) return 0;
  // A stream that is being captured by now cannot wait. The operation then ends when it is over.
  bool all_wait = !op.user || op.user->try_wait(now.mark);
  for (const buffer_use& use : now.uses) {
    if (!use.producer || use.producer == op.user) continue;
    all_wait = use.producer->try_wait(now.mark) && all_wait;
  }
  if (!all_wait) return 0;
  now.op = nullptr;
  return source_.finish(op, ready);
}

/// Step 5: what has been reached, in order.
COHORT_INLINE std::size_t device_queue::land(progress::ready_queue& ready) {
  std::size_t found = 0;
  while (!flights_.empty() && flights_.front().mark.valid()) {
    flight& first = flights_.front();
    const cudaError_t code = first.mark.query();
    if (code == cudaErrorNotReady) break;
    if (code != cudaSuccess) [[unlikely]] {
      if (code == cudaErrorInvalidResourceHandle) {
        device::state_of(device_).context_gone(first.mark.generation());
      }
      device::detail::note(code, device_, first.mark.generation());
      if (!device::state_of(device_).holds(generation_)) break;  // see abort_ladder::device_gone
      if (first.op != nullptr && first.comm->is_up()) {
        source_.ladder().fall(*first.comm, device::make_error(code), "cudaEventQuery", false, true);
        continue;  // the flight has lost its operation
      }
    }
    communicator_state& comm = *first.comm;
    // What a failed communicator has left in memory is no result, whatever the event says.
    if (first.op != nullptr && comm.native != nullptr) {
      const ncclResult_t state = detail::state_of(comm.native);
      if (detail::failed(state)) {
        source_.ladder().fall(comm, make_error(state), "an asynchronous error", false, true);
        continue;  // the flight has lost its operation
      }
    }
    work* const op = first.op;
    --comm.outstanding;
    const auto ended = std::move(first);  // lets the memory go
    flights_.pop_front();
    if (op == nullptr) continue;
    if (code != cudaSuccess) op->fail(device::make_error(code));
    found += source_.finish(*op, ready);
  }
  return found;
}

COHORT_INLINE std::size_t device_queue::advance(progress::ready_queue& ready) {
  std::size_t found = 0;
  while (!stopped_) {
    if (launching_ != nullptr) {
      communicator_state* of = launching_->comm.get();
      ncclResult_t state = detail::state_of(of->native);
      work_set* const group = launching_->part_of;
      if (state == ncclSuccess && group != nullptr) state = group->state_of_others(of);
      if (state == ncclInProgress) break;
      if (state != ncclSuccess) {
        source_.ladder().fall(*of, make_error(state), "the launch failed", false, true);
        break;
      }
      try {
        found += launched(ready);
      } catch (...) {
        fall_with(*of, detail::problem_of(std::current_exception()));
        break;
      }
    }
    if (waiting_.empty()) break;
    const queue_entry& head = waiting_.front();
    if (head.place) {
      head.place->come = true;
      if (!head.place->over) break;
      waiting_.pop_front();
      continue;
    }
    work& op = *head.op;
    if (op.part_of != nullptr) {
      if (!op.part_of->is_together()) break;
      found += op.part_of->post(ready);
      continue;
    }
    take_head();
    bool is_called = true;
    detail::problem bad;
    try {
      is_called = begin(op);
      const ncclResult_t code = is_called ? issue(op) : ncclSuccess;
      if (detail::failed(code)) bad = {make_error(code), "the call failed"};
    } catch (...) {
      bad = detail::problem_of(std::current_exception());
    }
    if (bad.code) {
      fall_with(*op.comm, bad);
      break;
    }
    if (!is_called) found += source_.finish(op, ready);
  }
  return found + land(ready);
}

// ---- what ends before its time ---------------------------------------------------------------

/// Ends an operation that has not been issued. What it has queued ahead on other streams goes on
/// there, with the memory that it uses.
COHORT_INLINE void device_queue::give_up(work& op, std::error_code why) {
  op.fail(why);
  --op.comm->outstanding;
  if (op.hooks == nullptr) return;
  flight half;
  half.uses = std::move(op.uses);
  if (std::optional<device::event> ahead = op.hooks->give_up(half.uses)) {
    half.comm = op.comm;
    half.mark = std::move(*ahead);
    ++op.comm->outstanding;
    flights_.push_back(std::move(half));
  }
}

COHORT_INLINE void device_queue::collect(const communicator_state* only, std::error_code why,
                                         std::vector<work*>& ended) {
  const auto concerned = [&](const communicator_state& comm) {
    return only == nullptr || &comm == only;
  };
  for (flight& each : flights_) {
    if (each.op == nullptr || !concerned(*each.comm)) continue;
    each.op->fail(why);
    if (each.op->hooks != nullptr) {
      each.ahead = each.op->hooks->give_up(each.uses);
      if (each.mark.valid()) detail::let_free_behind(each.uses, each.mark);
    }
    ended.push_back(std::exchange(each.op, nullptr));
  }
  if (launching_ != nullptr && concerned(*launching_->comm)) {
    work& op = *std::exchange(launching_, nullptr);
    op.fail(why);
    op.reductions.clear();  // they go with the communicator
    flight& half = flights_.emplace_back();
    half.comm = op.comm;
    half.uses = std::move(op.uses);
    if (op.hooks != nullptr) half.ahead = op.hooks->give_up(half.uses);
    ended.push_back(&op);
  }
  for (queue_entry& each : waiting_) {
    if (each.op == nullptr || !concerned(*each.op->comm)) continue;
    give_up(*each.op, why);
    ended.push_back(std::exchange(each.op, nullptr));
  }
  std::erase_if(waiting_,
                [](const queue_entry& each) { return each.op == nullptr && !each.place; });
}

COHORT_INLINE void device_queue::drop_all(std::error_code why, std::vector<work*>& ended) {
  collect(nullptr, why, ended);
  for (flight& each : flights_) --each.comm->outstanding;
  flights_.clear();
  stopped_ = false;
}

COHORT_INLINE void device_queue::leak(std::vector<work*>& ended) {
  collect(nullptr, errc::engine_stopped, ended);
  waiting_.clear();
  if (flights_.empty()) return;
  device::state_of(device_).stop_frees();
  flights_.clear();
}

COHORT_INLINE void device_queue::forget_context(std::error_code why) noexcept {
  domain_.reset();
  scratch_ = {};
  lost_ = why;
}

COHORT_INLINE void device_queue::go_on() {
  if (!std::exchange(stopped_, false) || launching_ != nullptr) return;  // see launched()
  try {
    mark_what_aborts_left();
  } catch (const std::system_error&) {
    // The device has gone: abort_ladder::device_gone() sees to it.
  }
}

// ---- operations that are posted together -----------------------------------------------------

// 1. The parts are queued at once, each on its device, so their places are the same on all ranks.
// 2. A part at the head of its queue holds it until all the others are at the head of theirs.
// 3. One group of NCCL posts them.
// 4. Nothing else is called on these devices until all communicators of the group say success.
// 5. From there on each is an operation of its device. The last one to end ends the whole.
//
// A part whose communicator has failed is left out: the others may be of other communicators, whose
// peers count on this rank.

COHORT_INLINE bool work_set::is_together() const {
  return std::all_of(parts.begin(), parts.end(), [](const work& part) {
    return part.error() || part.comm->source.queue_of(part.comm->device).is_at_head(part);
  });
}

COHORT_INLINE ncclResult_t work_set::state_of_others(communicator_state*& of) {
  if (launched) return ncclSuccess;
  for (const work& part : parts) {
    communicator_state& comm = *part.comm;
    if (&comm == of || !comm.source.queue_of(comm.device).is_launching(part)) continue;
    const ncclResult_t state = detail::state_of(comm.native);
    if (state == ncclSuccess) continue;
    of = &comm;
    return state;
  }
  launched = true;
  return ncclSuccess;
}

COHORT_INLINE std::size_t work_set::post(progress::ready_queue& ready) {
  std::size_t found = 0;
  issue_source& source = whole->comm->source;
  std::vector<work*> posted;
  for (work& part : parts) {
    if (part.error()) continue;
    device_queue& its = source.queue_of(part.comm->device);
    its.take_head();
    if (its.begin(part)) {
      posted.push_back(&part);
    } else {
      found += source.finish(part, ready);
    }
  }
  if (posted.empty()) return found;
  detail::problem bad;
  work* culprit = posted.front();
  const auto note = [&](ncclResult_t code) {
    if (detail::failed(code) && !bad.code) bad = {make_error(code), "the call failed"};
  };
  note(ncclGroupStart());
  const bool is_open = !bad.code;
  for (work* const part : posted) {
    if (bad.code) break;
    culprit = part;
    try {
      note(source.queue_of(part->comm->device).issue(*part));
    } catch (...) {
      bad = detail::problem_of(std::current_exception());
    }
  }
  if (is_open) note(ncclGroupEnd());
  if (bad.code) source.ladder().fall(*culprit->comm, bad.code, bad.text, false, true);
  return found;
}

}  // namespace cohort::nccl
