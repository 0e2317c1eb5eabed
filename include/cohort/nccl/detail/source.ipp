// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// The queues of devices and what is on them: bodies of `nccl/source.hpp` and `nccl/state.hpp`.

#include <cohort/core/log.hpp>
#include <cohort/device/nvtx.hpp>
#include <cohort/nccl/source.hpp>

#include <algorithm>
#include <new>
#include <string>
#include <utility>
#include <vector>

namespace cohort::nccl {

COHORT_INLINE void communicator_state::remember(failure what) {
  log::write(log::level::error, what.text);
  const std::lock_guard hold(failure_mutex_);
  last_failure_ = std::move(what);
}

COHORT_INLINE std::string communicator_state::history() const {
  std::string text;
  for (std::size_t back = history_.size(); back-- > 0;) {
    if (sequence < back) continue;
    const record& one = history_[(sequence - back) % history_.size()];
    if (one.verb == nullptr) continue;
    text.append(text.empty() ? "" : ", ").append(one.verb).append(" #");
    text.append(std::to_string(one.sequence)).append(" of ").append(std::to_string(one.bytes));
    text.append(" bytes");
  }
  return text;
}

COHORT_INLINE void communicator_state::end_graphs(bool tells) noexcept {
  for (const std::weak_ptr<captured_calls>& each : graphs) {
    const auto one = each.lock();
    if (!one || !one->end() || !tells) continue;
    log::write(
        log::level::warning,
        "rank " + std::to_string(rank) + ": " + one->name +
            " was still held when its coordinator closed; what it has on the device is gone");
  }
}

COHORT_INLINE void communicator_state::abandon_captures() noexcept {
  for (const std::weak_ptr<captured_calls>& each : graphs) {
    if (const auto one = each.lock()) one->abandon();
  }
}

template <std::derived_from<asio::execution_context> Context>
issue_source::issue_source(Context& context)
    : asio::execution_context::service(context),
      engine_(asio::use_service<progress::engine>(context)),
      to_peers_(engine_.get_executor()) {
  device::attach_tools();
  engine_.attach(*this);
}

COHORT_INLINE void issue_source::claim(int device) {
  {
    const std::lock_guard hold(mutex_);
    if (const std::error_code why = why_unusable(queue_of(device))) {
      throw error(why, "device " + std::to_string(device) + ": an abort has not come back");
    }
  }
  issue_source* owner = nullptr;
  auto& place = owners()[static_cast<std::size_t>(device)];
  if (place.compare_exchange_strong(owner, this) || owner == this) return;
  throw error(errc::single_thread_violation,
              "device " + std::to_string(device) + " has NCCL communicators of another io_context");
}

COHORT_INLINE issue_source::~issue_source() {
  engine_.detach(this);
  for (auto& owner : owners()) {
    issue_source* mine = this;
    owner.compare_exchange_strong(mine, nullptr);
  }
  for (auto& job : aborts_) job->let_go();
}

COHORT_INLINE void turn::release() noexcept {
  if (!place_) return;
  source_->exclusively([&] {
    place_->over = true;
    source_->recount();
  });
  place_.reset();
  try {
    source_->engine().started();
  } catch (const std::bad_alloc&) {
    // The next look at the device finds it.
  }
}

COHORT_INLINE issue_source::queue& issue_source::queue_of(int device) {
  for (queue& one : queues_) {
    if (one.device == device) return one;
  }
  queue& made = queues_.emplace_back();
  made.device = device;
  made.generation = device::state_of(device).generation();
  return made;
}

COHORT_INLINE void issue_source::recount() noexcept {
  std::size_t count = conditions_.size() + aborts_.size() + leaving_ + ended_in_lap_.size();
  for (const queue& one : queues_) {
    count += one.waiting.size() + (one.launching != nullptr ? 1 : 0) + one.flights.size();
  }
  for (const auto& comm : comms_) count += comm->asked && comm->asked->tell ? 1 : 0;
  for (const parting& each : partings_) count += each.comm->borrowed ? 0 : 1;
  pending_.store(count, std::memory_order_relaxed);
  std::size_t bytes = 0;
  for (const queue& one : queues_) {
    if (one.launching != nullptr) bytes += one.launching->bytes;
    for (const flight& each : one.flights) bytes += each.op != nullptr ? each.op->bytes : 0;
  }
  in_flight_.store(bytes, std::memory_order_relaxed);
}

COHORT_INLINE turn issue_source::reserve(int device) {
  const std::lock_guard hold(mutex_);
  auto place = std::make_shared<queue_place>();
  queue_of(device).waiting.push_back({nullptr, place});
  recount();
  return turn(std::move(place), *this);
}

COHORT_INLINE bool issue_source::is_gone(const queue& one) {
  return one.domain && !device::state_of(one.device).holds(one.generation);
}

COHORT_INLINE std::error_code issue_source::why_unusable(const queue& one) {
  return device::state_of(one.device).holds(one.generation) ? one.lost : std::error_code();
}

COHORT_INLINE device::stream issue_source::domain_of(int device) {
  const std::lock_guard hold(mutex_);
  queue& one = queue_of(device);
  if (const std::error_code why = why_unusable(one)) {
    throw std::system_error(why, "device " + std::to_string(device));
  }
  if (!one.domain) {
    device::stream made(device::stream_options{.device = device, .high_priority = true});
    one.scratch = device::vector<std::int32_t>(1, made);
    one.domain.emplace(std::move(made));
    one.generation = device::state_of(device).generation();
  }
  return *one.domain;
}

COHORT_INLINE void issue_source::add(std::shared_ptr<communicator_state> comm) {
  const std::lock_guard hold(mutex_);
  comm->own_place.push_back({nullptr, std::make_shared<queue_place>()});
  comms_.push_back(std::move(comm));
}

COHORT_INLINE bool issue_source::hold(int device, const void* orderer) {
  const std::lock_guard lock(mutex_);
  queue& one = queue_of(device);
  if (one.orderer != nullptr && one.orderer != orderer) return false;
  one.orderer = orderer;
  return true;
}

COHORT_INLINE void issue_source::let_go(int device, const void* orderer) {
  const std::lock_guard lock(mutex_);
  queue& one = queue_of(device);
  if (one.orderer == orderer) one.orderer = nullptr;
}

COHORT_INLINE bool issue_source::admits(int device, const void* orderer) {
  const std::lock_guard lock(mutex_);
  const void* const holder = queue_of(device).orderer;
  return holder == nullptr || holder == orderer;
}

COHORT_INLINE bool issue_source::is_held_elsewhere(int device, const void* orderer) const {
  const std::lock_guard lock(mutex_);
  return std::any_of(queues_.begin(), queues_.end(), [&](const queue& one) {
    return one.device != device && one.orderer != nullptr && one.orderer != orderer;
  });
}

COHORT_INLINE std::error_code issue_source::why_refused(const queue& one,
                                                        const communicator_state& comm) const {
  if (ending_ || engine_.stopped()) return errc::engine_stopped;
  if (comm.stands != phase::ready) return comm.why ? comm.why : make_error_code(errc::closed);
  if (one.orderer != nullptr && one.orderer != comm.orderer) return errc::device_ordered;
  return {};
}

COHORT_INLINE bool issue_source::submit_held(work& op) {
  communicator_state& comm = *op.comm;
  // The loss of a device may have been seen while nothing was pending on it.
  queue& one = queue_of(comm.device);
  if (is_gone(one)) device_gone(one);
  op.age.since = clock::now();
  op.sequence = ++comm.sequence;
  comm.note(op);
  if (const std::error_code why = why_refused(one, comm)) {
    op.fail(why);
  } else if (!op.error()) {
    ++comm.outstanding;
    op.pending_ = true;
    if (op.everybody) op.collective = ++comm.collectives;
    one.waiting.push_back({&op, nullptr});
    recount();
  }
  return op.pending_;
}

COHORT_INLINE void issue_source::submit(work& op) {
  bool ended = false;  // once the lock is free, the operation may be over and gone
  {
    const std::lock_guard hold(mutex_);
    ended = !submit_held(op);
  }
  if (ended) {
    engine_.complete(&op);
  } else {
    engine_.started();
  }
}

COHORT_INLINE ncclResult_t issue_source::issue(queue& one, work& op) {
  communicator_state& comm = *op.comm;
  const device::scoped_device here(one.device);
  for (const device::event& mark : op.after) one.domain->wait(mark);
  op.after.clear();
  const cudaStream_t on = op.steps == nullptr ? one.domain->get() : op.steps->calls_on(*one.domain);
  ncclRedOp_t reduction = ncclSum;
  if (op.more.empty()) {
    const ncclResult_t made = detail::resolve(op.one, comm, op.made_, reduction);
    return detail::failed(made) ? made : detail::post(op.one, reduction, comm, on);
  }
  // Reductions are made outside the group, one for calls in a row that have the same.
  std::vector<ncclRedOp_t> reductions;
  for (std::size_t i = 0; i < op.more.size(); ++i) {
    const call& part = op.more[i];
    const bool again = i != 0 && part.op == op.more[i - 1].op && part.type == op.more[i - 1].type;
    const ncclResult_t made =
        again ? ncclSuccess : detail::resolve(part, comm, op.made_, reduction);
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

COHORT_INLINE std::size_t issue_source::finish(work& op, progress::ready_queue& ready) {
  work* const over = concluded(op);
  if (over == nullptr) return 0;
  over->settle();
  if (over->steps != nullptr) {
    ended_in_lap_.push_back(over);
  } else {
    ready.push(over);
  }
  return 1;
}

/// The memory of operations that were aborted is free when the stream has come so far.
COHORT_INLINE void issue_source::mark_what_aborts_left(queue& one) {
  for (flight& each : one.flights) {
    if (each.mark.valid()) continue;
    if (each.ahead) one.domain->wait(*each.ahead);
    each.mark = one.domain->record();
  }
}

/// Step 4 of the operation at hand: its kernel is in the stream.
COHORT_INLINE std::size_t issue_source::launched(queue& one, progress::ready_queue& ready) {
  work& op = *one.launching;
  communicator_state& comm = *op.comm;
  const device::scoped_device here(one.device);
  for (const ncclRedOp_t made : op.made_) static_cast<void>(ncclRedOpDestroy(made, comm.native));
  op.made_.clear();
  mark_what_aborts_left(one);
  flight& now = one.flights.emplace_back();
  one.launching = nullptr;
  now.comm = op.comm;
  now.op = &op;
  now.uses = std::move(op.uses);
  now.mark = op.steps == nullptr ? one.domain->record() : op.steps->conclude(*one.domain);
  if (op.ends == until::complete) return 0;
  // A stream that is being captured by now cannot wait. The operation then ends when it is over.
  bool all_wait = !op.user || op.user->try_wait(now.mark);
  for (const buffer_use& use : now.uses) {
    if (!use.producer || use.producer == op.user) continue;
    all_wait = use.producer->try_wait(now.mark) && all_wait;
  }
  if (!all_wait) return 0;
  now.op = nullptr;
  return finish(op, ready);
}

/// What goes wrong at the head of the queue. A device that has gone is seen by the next lap.
COHORT_INLINE void issue_source::fall_with(queue& one, communicator_state& comm,
                                           const detail::problem& bad) {
  ask_whether_gone(one);
  if (!device::state_of(one.device).holds(one.generation)) return;
  fall(comm, bad.code, bad.text, false, true);
}

/// An operation with steps of its own says what is to be called. False: that has failed.
COHORT_INLINE bool issue_source::prepared(queue& one, work& op) {
  one.launching = &op;
  try {
    op.steps->prepare(*one.domain);
    one.launching = nullptr;
    return true;
  } catch (...) {
    fall_with(one, *op.comm, detail::problem_of(std::current_exception()));
    return false;
  }
}

/// Step 5: what has been reached, in order.
COHORT_INLINE std::size_t issue_source::land(queue& one, progress::ready_queue& ready) {
  std::size_t found = 0;
  while (!one.flights.empty() && one.flights.front().mark.valid()) {
    flight& first = one.flights.front();
    const cudaError_t code = first.mark.query();
    if (code == cudaErrorNotReady) break;
    if (code != cudaSuccess) [[unlikely]] {
      if (code == cudaErrorInvalidResourceHandle) {
        device::state_of(one.device).context_gone(first.mark.generation());
      }
      device::detail::note(code, one.device, first.mark.generation());
      if (!device::state_of(one.device).holds(one.generation)) break;  // see device_gone
      if (first.op != nullptr && is_up(*first.comm)) {
        fall(*first.comm, device::make_error(code), "cudaEventQuery", false, true);
        continue;  // the flight has lost its operation
      }
    }
    communicator_state& comm = *first.comm;
    // What a failed communicator has left in memory is no result, whatever the event says.
    if (first.op != nullptr && comm.native != nullptr) {
      ncclResult_t state = ncclSuccess;
      const ncclResult_t asked = ncclCommGetAsyncError(comm.native, &state);
      if (detail::failed(asked)) state = asked;
      if (detail::failed(state)) {
        fall(comm, make_error(state), "an asynchronous error", false, true);
        continue;  // the flight has lost its operation
      }
    }
    work* const op = first.op;
    --comm.outstanding;
    const auto ended = std::move(first);  // lets the memory go
    one.flights.pop_front();
    if (op == nullptr) continue;
    if (code != cudaSuccess) op->fail(device::make_error(code));
    found += finish(*op, ready);
  }
  return found;
}

// 1. If the device was lost or reset, all ends there.
// 2. Ask for the state of the call at hand.
// 3. Issue what is at the head, until something is in progress.
// 4. Look at the events.
COHORT_INLINE std::size_t issue_source::advance(queue& one, progress::ready_queue& ready) {
  std::size_t found = 0;
  if (is_gone(one)) [[unlikely]] {
    device_gone(one);
    return 0;
  }
  while (!one.stopped) {
    if (one.launching != nullptr) {
      communicator_state* of = nullptr;
      const ncclResult_t state = state_of_launch(*one.launching, of);
      if (state == ncclInProgress) break;
      if (state != ncclSuccess) {
        fall(*of, make_error(state), "the launch failed", false, true);
        break;
      }
      try {
        found += launched(one, ready);
      } catch (...) {
        fall_with(one, *of, detail::problem_of(std::current_exception()));
        break;
      }
    }
    if (one.waiting.empty()) break;
    const entry& head = one.waiting.front();
    if (head.place) {
      head.place->come = true;
      if (!head.place->over) break;
      one.waiting.pop_front();
      continue;
    }
    work& op = *head.op;
    if (op.part_of != nullptr) {
      if (!is_together(*op.part_of)) break;
      found += issue_parts(*op.part_of, ready);
      continue;
    }
    one.waiting.pop_front();
    if (op.steps != nullptr && !prepared(one, op)) break;
    const bool any = op.more.empty()
                         ? detail::launches(op.one)
                         : std::any_of(op.more.begin(), op.more.end(), detail::launches);
    if (!any) {
      --op.comm->outstanding;
      found += finish(op, ready);
      continue;
    }
    one.launching = &op;
    detail::problem bad;
    try {
      const ncclResult_t code = issue(one, op);
      if (detail::failed(code)) bad = {make_error(code), "the call failed"};
    } catch (...) {
      bad = detail::problem_of(std::current_exception());
    }
    if (bad.code) {
      fall_with(one, *op.comm, bad);
      break;
    }
  }
  return found + land(one, ready);
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
    for (queue& one : queues_) {
      found += advance(one, ready);
      if (is_gone(one)) device_gone(one);
    }
    ask_for_errors();
    look_at_inquiries();
    found += look_at_aborts(ready);
    found += look_at_leaving(ready);
    look_at_partings();
  }
  std::vector<condition_base*> held;  // they may wait for more
  for (std::size_t i = 0; i < conditions_.size();) {
    if (!conditions_[i]->error && !conditions_[i]->holds()) {
      ++i;
      continue;
    }
    held.push_back(conditions_[i]);
    conditions_.erase(conditions_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  for (condition_base* const one : held) {
    if (one->in_lap != nullptr) {
      one->in_lap(one);
    } else {
      ready.push(one);
    }
  }
  found += held.size();
  // A coordinator goes on at once, also where nothing is delivered any more.
  for (work* const op : std::exchange(ended_in_lap_, {})) {
    if (!op->steps->end_in_lap()) ready.push(op);
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
    ncclResult_t state = ncclSuccess;
    const ncclResult_t asked = ncclCommGetAsyncError(comm.native, &state);
    if (detail::failed(asked)) state = asked;
    if (detail::failed(state)) {
      fall(comm, make_error(state), "an asynchronous error", false, true);
    }
  }
}

// ---- reports ---------------------------------------------------------------------------------

COHORT_INLINE std::string issue_source::line_about(const work& op, const char* stands) {
  std::string text = "  rank " + std::to_string(op.comm->rank);
  text.append(": nccl ").append(op.verb).append(" #").append(std::to_string(op.sequence));
  text.append(", bytes=").append(std::to_string(op.bytes)).append(", device=");
  text.append(std::to_string(op.comm->device)).append(", ").append(stands).append(", for ");
  return text.append(op.age.milliseconds(clock::now()));
}

/// Calls `function(work&, where it stands)` for all that have not ended, in the order of each
/// queue.
template <class Function>
void issue_source::for_each_pending(Function function) {
  for (queue& one : queues_) {
    for (flight& each : one.flights) {
      if (each.op != nullptr) function(*each.op, "on the device");
    }
    if (one.launching != nullptr) function(*one.launching, "being launched");
    for (entry& each : one.waiting) {
      if (each.op != nullptr) function(*each.op, "queued");
    }
  }
}

COHORT_INLINE void issue_source::describe(std::string& text) {
  const std::lock_guard hold(mutex_);
  for_each_pending([&](const work& op, const char* stands) {
    text.append(line_about(op, stands)).append("\n");
  });
  for (const auto& comm : comms_) {
    if (comm->stands != phase::leaving && comm->stands != phase::finalising) continue;
    text.append("  an nccl communicator of device ").append(std::to_string(comm->device));
    text.append(" is leaving\n");
  }
}

COHORT_INLINE void issue_source::tick(clock::time_point now) {
  std::string lines;
  {
    const std::lock_guard hold(mutex_);
    for_each_pending([&](work& op, const char* stands) {
      if (!stalls_.is_due(op.age, now)) return;
      ask(*op.comm, op, line_about(op, "stalled"), {}, false);
      lines.append("\n").append(line_about(op, stands));
    });
  }
  stalls_.warn(lines);
}

}  // namespace cohort::nccl
