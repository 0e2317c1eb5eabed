// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// Bodies of `nccl/source.hpp` and `nccl/state.hpp`.

#include <cohort/comm/control.hpp>
#include <cohort/core/duration.hpp>
#include <cohort/core/log.hpp>
#include <cohort/device/memory.hpp>
#include <cohort/device/nvtx.hpp>

#include <asio/bind_cancellation_slot.hpp>

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

namespace cohort::nccl {

inline void communicator_state::remember(failure what) {
  log::write(log::level::error, what.text);
  const std::lock_guard hold(failure_mutex_);
  last_failure_ = std::move(what);
}

inline std::string communicator_state::history() const {
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

inline void communicator_state::end_graphs(bool tells) noexcept {
  for (const std::weak_ptr<captured_calls>& each : std::exchange(graphs, {})) {
    const auto one = each.lock();
    if (!one || !one->end() || !tells) continue;
    log::write(
        log::level::warning,
        "rank " + std::to_string(rank) + ": " + one->name +
            " was still held when its coordinator closed; what it has on the device is gone");
  }
}

// ---- calls of NCCL ---------------------------------------------------------------------------

namespace detail {

inline constexpr int fault_tag = 0;  // the duplicate carries no other message of this layer

[[nodiscard]] inline bool launches(const call& one) noexcept {
  return one.count != 0 || one.what == call::kind::barrier || one.what == call::kind::graph ||
         one.what == call::kind::host;
}

/// From 2.28.3 on NCCL has all_to_all, gather and scatter; before they are groups of messages.
[[nodiscard]] inline bool has_native_exchange() noexcept {
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 3)
  return library_version() >= NCCL_VERSION(2, 28, 3);
#else
  return false;
#endif
}

[[nodiscard]] inline bool failed(ncclResult_t code) noexcept {
  return code != ncclSuccess && code != ncclInProgress;
}

/// Keeps the first failure, and "in progress" before success.
inline void keep(ncclResult_t& all, ncclResult_t one) noexcept {
  if (!failed(all) && one != ncclSuccess) all = one;
}

/// all_to_all, gather and scatter as messages.
inline ncclResult_t exchange(const call& one, const communicator_state& comm, cudaStream_t on) {
  using kind = call::kind;
  const std::size_t step = one.count * one.width;
  const auto* from = static_cast<const std::byte*>(one.from);
  auto* to = static_cast<std::byte*>(one.to);
  const bool is_root = comm.rank == one.root;
  ncclResult_t all = ncclGroupStart();
  if (failed(all)) return all;
  for (int peer = 0; peer < comm.size; ++peer) {
    const std::size_t at = static_cast<std::size_t>(peer) * step;
    const bool sends =
        one.what == kind::all_to_all || (one.what == kind::gather ? peer == one.root : is_root);
    const bool receives =
        one.what == kind::all_to_all || (one.what == kind::gather ? is_root : peer == one.root);
    if (sends) {
      const std::byte* part = one.what == kind::gather ? from : from + at;
      keep(all, ncclSend(part, one.count, one.type, peer, comm.native, on));
    }
    if (receives) {
      std::byte* part = one.what == kind::scatter ? to : to + at;
      keep(all, ncclRecv(part, one.count, one.type, peer, comm.native, on));
    }
  }
  keep(all, ncclGroupEnd());
  return all;
}

inline ncclResult_t post(const call& one, ncclRedOp_t op, communicator_state& comm,
                         cudaStream_t on) {
  const ncclComm_t native = comm.native;
  using kind = call::kind;
  switch (one.what) {
    case kind::all_reduce:
      return ncclAllReduce(one.from, one.to, one.count, one.type, op, native, on);
    case kind::broadcast:
      return ncclBroadcast(one.from, one.to, one.count, one.type, one.root, native, on);
    case kind::reduce:
      return ncclReduce(one.from, one.to, one.count, one.type, op, one.root, native, on);
    case kind::all_gather:
      return ncclAllGather(one.from, one.to, one.count, one.type, native, on);
    case kind::reduce_scatter:
      return ncclReduceScatter(one.from, one.to, one.count, one.type, op, native, on);
    case kind::all_to_all:
    case kind::gather:
    case kind::scatter:
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 3)
      if (comm.native_exchange) {
        if (one.what == kind::all_to_all) {
          return ncclAlltoAll(one.from, one.to, one.count, one.type, native, on);
        }
        if (one.what == kind::gather) {
          return ncclGather(one.from, one.to, one.count, one.type, one.root, native, on);
        }
        return ncclScatter(one.from, one.to, one.count, one.type, one.root, native, on);
      }
#endif
      return exchange(one, comm, on);
    case kind::send:
      return ncclSend(one.from, one.count, one.type, one.root, native, on);
    case kind::recv:
      return ncclRecv(one.to, one.count, one.type, one.root, native, on);
    case kind::barrier:
      return ncclAllReduce(comm.scratch, comm.scratch, 1, ncclInt32, ncclSum, native, on);
    case kind::graph:
      device::check(cudaGraphLaunch(static_cast<cudaGraphExec_t>(one.to), on), "cudaGraphLaunch",
                    comm.device);
      return ncclSuccess;
    case kind::host:
      return ncclSuccess;
  }
  return ncclInternalError;
}

/// Of an operation that has failed: who frees borrowed memory in the order of its stream now frees
/// it after what is queued still.
inline void let_free_behind(const std::vector<buffer_use>& uses,
                            const device::event& mark) noexcept {
  for (const buffer_use& use : uses) {
    try {
      // What has a lease is held until then, and the stream of nobody waits for it.
      if (use.producer && !use.lease) static_cast<void>(use.producer->try_wait(mark));
    } catch (...) {  // a device that has gone frees nothing
    }
  }
}

/// The operation of a call; one that is made for it is kept in `made`.
inline ncclResult_t resolve(const call& one, const communicator_state& comm,
                            std::vector<ncclRedOp_t>& made, ncclRedOp_t& op) {
  op = one.op.op;
  if (!one.op.is_scaled) return ncclSuccess;
  auto factor = one.op.factor;
  const ncclResult_t code =
      ncclRedOpCreatePreMulSum(&op, factor.data(), one.type, ncclScalarHostImmediate, comm.native);
  if (!failed(code)) made.push_back(op);
  return code;
}

}  // namespace detail

// ---- the source ------------------------------------------------------------------------------

template <std::derived_from<asio::execution_context> Context>
issue_source::issue_source(Context& context)
    : asio::execution_context::service(context),
      engine_(asio::use_service<progress::engine>(context)) {
  if (const auto warning = duration_from_environment("COHORT_STALL_WARNING")) {
    stall_warning_ = *warning;
  }
  device::attach_tools();
  engine_.attach(*this);
}

inline void issue_source::claim(int device) {
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

inline issue_source::~issue_source() {
  engine_.detach(this);
  for (auto& owner : owners()) {
    issue_source* mine = this;
    owner.compare_exchange_strong(mine, nullptr);
  }
  for (auto& job : aborts_) job->let_go();
}

inline void turn::release() noexcept {
  if (!place_) return;
  source_->exclusively([&] {
    place_->over = true;
    source_->recount();
  });
  place_.reset();
  source_->engine().started();
}

inline issue_source::queue& issue_source::queue_of(int device) {
  for (queue& one : queues_) {
    if (one.device == device) return one;
  }
  queue& made = queues_.emplace_back();
  made.device = device;
  made.generation = device::state_of(device).generation();
  return made;
}

inline void issue_source::recount() noexcept {
  std::size_t count = conditions_.size() + aborts_.size() + leaving_ + ended_in_lap_.size();
  for (const queue& one : queues_) {
    count += one.waiting.size() + (one.launching != nullptr ? 1 : 0) + one.flights.size();
  }
  for (const auto& comm : comms_) count += comm->asked && comm->asked->tell ? 1 : 0;
  pending_.store(count, std::memory_order_relaxed);
  std::size_t bytes = 0;
  for (const queue& one : queues_) {
    if (one.launching != nullptr) bytes += one.launching->bytes;
    for (const flight& each : one.flights) bytes += each.op != nullptr ? each.op->bytes : 0;
  }
  in_flight_.store(bytes, std::memory_order_relaxed);
}

inline turn issue_source::reserve(int device) {
  const std::lock_guard hold(mutex_);
  auto place = std::make_shared<queue_place>();
  queue_of(device).waiting.push_back({nullptr, place});
  recount();
  return turn(std::move(place), *this);
}

inline bool issue_source::is_gone(const queue& one) {
  return one.domain && !device::state_of(one.device).holds(one.generation);
}

inline std::error_code issue_source::why_unusable(const queue& one) {
  return device::state_of(one.device).holds(one.generation) ? one.lost : std::error_code();
}

inline device::stream issue_source::domain_of(int device) {
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

inline void issue_source::add(std::shared_ptr<communicator_state> comm) {
  const std::lock_guard hold(mutex_);
  comm->own_place.push_back({nullptr, std::make_shared<queue_place>()});
  comms_.push_back(std::move(comm));
}

inline bool issue_source::hold(int device, const void* orderer) {
  const std::lock_guard lock(mutex_);
  queue& one = queue_of(device);
  if (one.orderer != nullptr && one.orderer != orderer) return false;
  one.orderer = orderer;
  return true;
}

inline void issue_source::let_go(int device, const void* orderer) {
  const std::lock_guard lock(mutex_);
  queue& one = queue_of(device);
  if (one.orderer == orderer) one.orderer = nullptr;
}

inline std::error_code issue_source::why_refused(const queue& one,
                                                 const communicator_state& comm) const {
  if (ending_ || engine_.stopped()) return errc::engine_stopped;
  if (comm.stands != phase::ready) return comm.why ? comm.why : make_error_code(errc::closed);
  if (one.orderer != nullptr && one.orderer != comm.orderer) return errc::device_ordered;
  return {};
}

inline bool issue_source::submit_held(work& op) {
  communicator_state& comm = *op.comm;
  // The loss of a device may have been seen while nothing was pending on it.
  queue& one = queue_of(comm.device);
  if (is_gone(one)) device_gone(one);
  op.since = clock::now();
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

inline void issue_source::submit(work& op) {
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

inline ncclResult_t issue_source::issue(queue& one, work& op) {
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

inline std::size_t issue_source::finish(work& op, progress::ready_queue& ready) {
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
inline void issue_source::mark_what_aborts_left(queue& one) {
  for (flight& each : one.flights) {
    if (each.mark.valid()) continue;
    if (each.ahead) one.domain->wait(*each.ahead);
    each.mark = one.domain->record();
  }
}

/// Step 4 of the operation at hand: its kernel is in the stream.
inline std::size_t issue_source::launched(queue& one, progress::ready_queue& ready) {
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
inline void issue_source::fall_with(queue& one, communicator_state& comm,
                                    const detail::problem& bad) {
  ask_whether_gone(one);
  if (!device::state_of(one.device).holds(one.generation)) return;
  fall(comm, bad.code, bad.text, false, true);
}

/// An operation with steps of its own says what is to be called. False: that has failed.
inline bool issue_source::prepared(queue& one, work& op) {
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
inline std::size_t issue_source::land(queue& one, progress::ready_queue& ready) {
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
inline std::size_t issue_source::advance(queue& one, progress::ready_queue& ready) {
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

inline std::size_t issue_source::test(progress::ready_queue& ready) {
  if (asked_) return 0;
  asked_ = true;
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
inline void issue_source::ask_for_errors() {
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

// ---- failure ---------------------------------------------------------------------------------

/// Of an operation that has not been issued. What it has queued ahead on other streams goes on
/// there, with the memory that it uses.
inline void issue_source::give_up(queue& one, work& op, std::error_code why) {
  op.fail(why);
  --op.comm->outstanding;
  if (op.steps == nullptr) return;
  flight half;
  half.uses = std::move(op.uses);
  if (std::optional<device::event> ahead = op.steps->give_up(half.uses)) {
    half.comm = op.comm;
    half.mark = std::move(*ahead);
    ++op.comm->outstanding;
    one.flights.push_back(std::move(half));
  }
}

/// Takes the operations of one communicator, or of all, out of the queue and off the device's
/// list. What they use on the device stays held.
inline void issue_source::collect(queue& one, const communicator_state* only, std::error_code why,
                                  std::vector<work*>& ended) {
  const auto concerned = [&](const communicator_state& comm) {
    return only == nullptr || &comm == only;
  };
  for (flight& each : one.flights) {
    if (each.op == nullptr || !concerned(*each.comm)) continue;
    each.op->fail(why);
    if (each.op->steps != nullptr) {
      each.ahead = each.op->steps->give_up(each.uses);
      if (each.mark.valid()) detail::let_free_behind(each.uses, each.mark);
    }
    ended.push_back(std::exchange(each.op, nullptr));
  }
  if (one.launching != nullptr && concerned(*one.launching->comm)) {
    work& op = *std::exchange(one.launching, nullptr);
    op.fail(why);
    op.made_.clear();  // they go with the communicator
    flight& half = one.flights.emplace_back();
    half.comm = op.comm;
    half.uses = std::move(op.uses);
    if (op.steps != nullptr) half.ahead = op.steps->give_up(half.uses);
    ended.push_back(&op);
  }
  for (entry& each : one.waiting) {
    if (each.op == nullptr || !concerned(*each.op->comm)) continue;
    give_up(one, *each.op, why);
    ended.push_back(std::exchange(each.op, nullptr));
  }
  std::erase_if(one.waiting, [](const entry& each) { return each.op == nullptr && !each.place; });
}

/// The ladder. 1. No more calls on the devices concerned. 2. Their operations are failed, before an
/// abort lets their events come. 3. The report. 4. Peers are told. 5. One helper thread aborts.
/// 6. When it has, or its bound has passed, the awaiters end: look_at_aborts().
inline void issue_source::fall(communicator_state& comm, std::error_code why,
                               const std::string& text, bool only_this, bool tell_peers,
                               const std::vector<std::shared_ptr<communicator_state>>& together) {
  if (!is_up(comm)) return;
  // NCCL may see a sticky error before an event does. On a lost device nothing is aborted.
  queue& mine = queue_of(comm.device);
  ask_whether_gone(mine);
  if (is_gone(mine)) return device_gone(mine);
  auto job = std::make_unique<abort_job>();
  std::string report = "rank " + std::to_string(comm.rank) + ": nccl communicator on device " +
                       std::to_string(comm.device) + ": " + text + ": " + why.message();
  if (comm.native != nullptr) {
    const char* const last = ncclGetLastError(comm.native);
    if (last != nullptr && *last != '\0') report.append("; NCCL: ").append(last);
  }
  for_each_pending([&](const work& op, const char* stands) {
    report.append("\n").append(line_about(op, stands));
  });
  if (const std::string last = comm.history(); !last.empty()) {
    report.append("\n  started last: ").append(last);
  }
  report.append("\n  what these were to write, and what is queued behind them, is undefined");

  for (const auto& one : comms_) {
    const bool is_it = one.get() == &comm;
    const bool is_sister = one->is_sister(comm);
    const bool is_meant = std::find(together.begin(), together.end(), one) != together.end();
    if (!is_up(*one) || (only_this && !is_it && !is_sister && !is_meant)) continue;
    if (one->stands == phase::leaving || one->stands == phase::finalising) --leaving_;
    one->why = why;
    one->set_failed();
    one->stands = phase::failed;
    one->leaves.end();
    job->comms.push_back(one);
    if (one->native != nullptr && (!one->borrowed || one->options.abort_borrowed)) {
      job->call->natives.push_back(one->native);
      job->call->device = one->device;
    }
    one->end_graphs(false);  // an abort would wait for them
    one->native = nullptr;
    one->remember({why, is_it ? report : "ended with another communicator: " + text});
    // Who has told this rank has told all of that communicator, but nobody of the others.
    const bool tells = is_it || is_meant ? tell_peers : !only_this && !is_sister;
    if (tells) tell(one, why, text, only_this);
    silence(one);
  }
  for (queue& one : queues_) {
    const bool concerned = std::any_of(job->comms.begin(), job->comms.end(), [&](const auto& each) {
      return each->device == one.device;
    });
    if (!concerned) continue;
    one.stopped = true;
    for (const auto& each : job->comms) {
      if (each->device == one.device) collect(one, each.get(), why, job->ended);
    }
  }
  job->until = clock::now() + comm.options.abort_bound;
  if (job->call->natives.empty()) {
    job->call->done.store(true);
  } else {
    job->aborts = true;
    job->watched.begin(tools::category::communicator, tools::literal("abort"));
    job->start([its = job->call] {
      static_cast<void>(cudaSetDevice(its->device));
      static_cast<void>(ncclGroupStart());
      for (const ncclComm_t one : its->natives) static_cast<void>(ncclCommAbort(one));
      static_cast<void>(ncclGroupEnd());
      its->done.store(true);
    });
  }
  aborts_.push_back(std::move(job));
  recount();
}

inline void issue_source::bring_down(communicator_state& comm, std::error_code why,
                                     const std::string& text, bool only_this, bool tell_peers) {
  {
    const std::lock_guard hold(mutex_);
    fall(comm, why, text, only_this, tell_peers);
  }
  engine_.started();
}

inline void issue_source::bring_down(const std::vector<std::shared_ptr<communicator_state>>& all,
                                     std::error_code why, const std::string& text) {
  {
    const std::lock_guard hold(mutex_);
    const auto first =
        std::find_if(all.begin(), all.end(), [](const auto& one) { return is_up(*one); });
    if (first == all.end()) return;
    fall(**first, why, text, true, true, all);
  }
  engine_.started();
}

inline std::size_t issue_source::look_at_aborts(progress::ready_queue& ready) {
  std::size_t found = 0;
  for (std::size_t i = 0; i < aborts_.size();) {
    abort_job& job = *aborts_[i];
    const bool done = job.call->done.load();
    if (!done && clock::now() < job.until) {
      ++i;
      continue;
    }
    for (const auto& comm : job.comms) {
      comm->stands = done ? phase::gone : phase::leaked;
      if (done) comm->no_longer_launches();
      let_next_come(*comm);
      std::erase(comms_, comm);
    }
    std::vector<work*> ended = std::move(job.ended);
    if (!done) {
      log::write(log::level::error,
                 std::string("NCCL has not ") + (job.aborts ? "aborted" : "destroyed") +
                     " in time; its communicators are leaked, and nothing is freed any more on "
                     "their devices");
      for (const auto& comm : job.comms) {
        queue& one = queue_of(comm->device);
        device::state_of(one.device).stop_frees();
        if (!job.aborts || one.lost) continue;
        one.lost = errc::stalled;  // no call there is safe any more
        up_to_here(one, one.lost, phase::leaked, "hangs in an abort", ended);
      }
    }
    job.let_go();
    for (work* const op : ended) found += finish(*op, ready);
    aborts_.erase(aborts_.begin() + static_cast<std::ptrdiff_t>(i));
    if (!aborts_.empty()) continue;
    for (queue& one : queues_) {
      if (!one.stopped) continue;
      one.stopped = false;
      if (one.launching != nullptr) continue;  // of another communicator; see launched()
      try {
        mark_what_aborts_left(one);
      } catch (const std::system_error&) {
        // The device has gone: device_gone() sees to it.
      }
    }
  }
  return found;
}

/// Ends everything of a device without a call of NCCL.
inline void issue_source::up_to_here(queue& one, std::error_code why, phase then,
                                     const std::string& text, std::vector<work*>& ended) {
  collect(one, nullptr, why, ended);
  for (flight& each : one.flights) --each.comm->outstanding;
  one.flights.clear();
  one.stopped = false;
  const auto all = comms_;
  std::vector<std::shared_ptr<communicator_state>> gone;
  for (const auto& comm : all) {
    const phase stands = comm->stands.load();
    if (comm->device != one.device || stands == phase::failed) continue;
    gone.push_back(comm);
    if (stands == phase::leaving || stands == phase::finalising) --leaving_;
    comm->why = why;
    comm->stands = then;
    if (then == phase::gone) comm->no_longer_launches();
    comm->leaves.end();
    comm->set_failed();
    comm->native = nullptr;
    let_next_come(*comm);
    comm->remember({why, "rank " + std::to_string(comm->rank) + ": device " +
                             std::to_string(one.device) + " " + text + ": " + why.message()});
    tell(comm, why, "its device " + text, false);
    silence(comm);
    std::erase(comms_, comm);
  }
  // The same communicators on other devices of this process.
  for (const auto& comm : all) {
    const auto is_its = [&](const auto& each) { return each->is_sister(*comm); };
    if (comm->device == one.device || std::none_of(gone.begin(), gone.end(), is_its)) continue;
    fall(*comm, make_error(ncclRemoteError), "device " + std::to_string(one.device) + " " + text,
         false, false);
  }
}

/// A device that was lost or reset: nothing is called and nothing freed there any more.
inline void issue_source::device_gone(queue& one) {
  const device::device_state& state = device::state_of(one.device);
  const cudaError_t lost = state.lost();
  const auto why = device::make_error(lost == cudaSuccess ? cudaErrorContextIsDestroyed : lost);
  std::vector<work*> ended;
  up_to_here(one, why, phase::gone, "has gone", ended);
  one.domain.reset();
  one.scratch = {};
  one.lost = lost != cudaSuccess ? why : std::error_code();
  for (work* const op : ended) {
    if (work* const over = concluded(*op)) engine_.complete(over);
  }
}

/// The stream of the device was good once, so if CUDA refuses it now, somebody has reset the
/// device.
inline void issue_source::ask_whether_gone(queue& one) {
  if (!one.domain) return;
  const cudaError_t code = cudaStreamQuery(one.domain->get());
  if (code == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());
  if (code == cudaErrorNotReady) return;
  if (code == cudaErrorInvalidResourceHandle) {
    device::state_of(one.device).context_gone(one.generation);
  }
  device::detail::note(code, one.device, one.generation);
}

inline bool issue_source::deadline_passed(work& given) {
  {
    const std::lock_guard hold(mutex_);
    if (!given.pending_) return false;
    work* which = &given;
    if (given.joined) {
      auto& parts = given.joined->parts;
      which =
          &*std::find_if(parts.begin(), parts.end(), [](const work& one) { return one.pending_; });
    }
    work& op = *which;
    communicator_state& comm = *op.comm;
    const bool abort = comm.options.on_deadline == on_deadline::abort;
    const std::error_code why = errc::deadline_exceeded;
    const std::string text = line_about(op, "deadline");
    if (!abort || (comm.borrowed && !comm.options.abort_borrowed)) {
      comm.remember({why, text + "; NCCL cannot give it up; waiting on"});
      ask(comm, op, text, why, false);
      return true;
    }
    op.overdue_ = true;
    // Who holds it up is found out first.
    if (!ask(comm, op, text, why, true)) fall(comm, why, text, false, true);
  }
  engine_.started();
  return true;
}

// ---- the fault channel -----------------------------------------------------------------------

// What is posted to a strand while its context ends stays in the strand's own queue, so it must not
// keep the strand.
inline void issue_source::listen(const std::shared_ptr<communicator_state>& which) {
  if (which->mpi.size() == 1) return;
  asio::post(which->channel->strand.inner(), [still = std::weak_ptr(which)] {
    const auto comm = still.lock();
    if (!comm || !comm->mpi || comm->channel->silent) return;
    const auto channel = comm->channel;
    channel->listening = true;
    auto heard = [comm, channel](std::error_code error, status from) {
      channel->listening = false;
      if (error || !comm->mpi) return;
      if (comm->source.hear(*comm, decode(channel->heard), from.source())) {
        comm->source.listen(comm);
      }
    };
    // The slot is cleared in the strand too, where the handler runs.
    comm::control_recv(comm->mpi, std::span(channel->heard), MPI_ANY_SOURCE, detail::fault_tag,
                       asio::bind_executor(channel->strand,
                                           asio::bind_cancellation_slot(
                                               channel->stop_listening.slot(), std::move(heard))));
  });
}

inline bool issue_source::is_up(const communicator_state& comm) noexcept {
  const phase stands = comm.stands.load();
  return stands != phase::failed && stands != phase::gone && stands != phase::leaked;
}

/// With the lock held: this handle, or another one of the same communicator.
inline bool issue_source::has_sister_up(const communicator_state& comm) const {
  return std::any_of(comms_.begin(), comms_.end(),
                     [&](const auto& one) { return one->is_sister(comm) && is_up(*one); });
}

/// What is no message, or is about another communicator and has come late, is dropped. False: there
/// is nothing more to listen for.
inline bool issue_source::hear(const communicator_state& comm,
                               const std::optional<fault_message>& message, int from) {
  const auto token = [](const auto& one) { return one.token; };
  const bool is_ours = message && std::visit(token, *message) == comm.token;
  bool goes_on = false;
  {
    const std::lock_guard hold(mutex_);
    if (!is_ours) {
      // Nothing.
    } else if (const auto* const notice = std::get_if<fault_notice>(&*message)) {
      const std::string text =
          "told by rank " + std::to_string(comm.rank_of_process(from)) + ": " + notice->text;
      const auto all = comms_;
      for (const auto& one : all) {
        if (!one->is_sister(comm)) continue;
        fall(*one, make_error(ncclRemoteError), text, notice->only_this, false);
      }
    } else if (const auto* const question = std::get_if<position_question>(&*message)) {
      answer(comm, question->number, from);
    } else {
      note_answer(comm, position_answer(std::get<position_answer>(*message)));
    }
    goes_on = has_sister_up(comm);
  }
  engine_.started();
  return goes_on;
}

inline void issue_source::tell(const std::shared_ptr<communicator_state>& comm, std::error_code why,
                               const std::string& text, bool only_this) {
  if (!comm->mpi || engine_.stopped()) return;
  send_to(comm, fault_notice{comm->token, only_this, why.message() + ": " + text}, every_peer);
}

/// To one rank of MPI or to all others, from the loop: MPI's lock is not to be taken inside this
/// source's.
inline void issue_source::send_to(const std::shared_ptr<communicator_state>& comm,
                                  fault_message&& message, int only) {
  const auto bytes = std::make_shared<const fault_bytes>(encode(message));
  asio::post(engine_.get_executor(), [comm, bytes, only] {
    for (int peer = 0; comm->mpi && peer < comm->mpi.size(); ++peer) {
      if (peer == comm->mpi.rank() || (only != every_peer && peer != only)) continue;
      comm::control_send(comm->mpi, std::span(*bytes), peer, detail::fault_tag,
                         [comm, bytes](std::error_code) {});
    }
  });
}

inline void issue_source::silence(const std::shared_ptr<communicator_state>& comm) {
  if (engine_.stopped() || has_sister_up(*comm)) return;
  asio::post(comm->channel->strand.inner(), [still = std::weak_ptr(comm->channel)] {
    const auto channel = still.lock();
    if (!channel) return;
    channel->silent = true;
    if (channel->listening) channel->stop_listening.emit(asio::cancellation_type::total);
  });
}

// ---- the end of communicators ----------------------------------------------------------------

inline void issue_source::let_next_come(communicator_state& comm) noexcept {
  if (comm.place) comm.place->over = true;
}

inline void issue_source::take_leave(communicator_state& comm) {
  if (comm.stands != phase::ready) return;
  comm.stands = phase::leaving;
  comm.leaves.begin(tools::category::communicator, tools::literal("finalize"));
  comm.leave_until = clock::now() + comm.options.leave_bound;
  comm.place = comm.own_place.front().place;
  auto& waiting = queue_of(comm.device).waiting;
  waiting.splice(waiting.end(), comm.own_place);
  ++leaving_;
  recount();
}

inline void issue_source::leave(communicator_state& comm) {
  {
    const std::lock_guard hold(mutex_);
    take_leave(comm);
  }
  try {
    engine_.started();
  } catch (const std::bad_alloc&) {
    // It is a destructor that calls. The next look at the device finds it.
  }
}

/// Those that leave: when their place in the queue has come and nothing of theirs is on the device,
/// they are finalised; when that is over, destroyed, on a thread, because it may wait for the
/// device. The queue is held meanwhile, but not for ever: where the ranks leave in another order
/// than they start operations, finalising would wait for operations that wait for it. It launches
/// nothing, so going on does no harm.
inline std::size_t issue_source::look_at_leaving(progress::ready_queue& ready) {
  if (leaving_ == 0) return 0;
  std::size_t found = 0;
  const auto all = comms_;
  for (const auto& comm : all) {
    const phase stands = comm->stands.load();
    if (stands != phase::leaving && stands != phase::finalising) continue;
    if (clock::now() >= comm->leave_until) {
      queue& one = queue_of(comm->device);
      device::state_of(one.device).stop_frees();
      const auto is_its = [&](const flight& each) { return each.comm == comm; };
      std::vector<work*> ended;
      if ((one.launching != nullptr && one.launching->comm == comm) ||
          std::any_of(one.flights.begin(), one.flights.end(), is_its)) {
        // What is behind it on the stream of the device, and in its queue, will not come either.
        comm->remember({errc::stalled, "rank " + std::to_string(comm->rank) +
                                           ": an nccl communicator has not ended in time; started "
                                           "last: " +
                                           comm->history()});
        one.lost = errc::stalled;
        up_to_here(one, one.lost, phase::leaked, "hangs in a communicator that left", ended);
        for (work* const op : ended) found += finish(*op, ready);
        continue;
      }
      collect(one, comm.get(), errc::stalled, ended);
      for (work* const op : ended) found += finish(*op, ready);
      --leaving_;
      comm->why = errc::stalled;
      comm->stands = phase::leaked;
      comm->leaves.end();
      comm->native = nullptr;
      comm->remember({comm->why, "rank " + std::to_string(comm->rank) +
                                     ": an nccl communicator has not ended in time and is leaked; "
                                     "started last: " +
                                     comm->history()});
      let_next_come(*comm);
      silence(comm);
      std::erase(comms_, comm);
      continue;
    }
    if (stands == phase::leaving) {
      queue& one = queue_of(comm->device);
      if (!comm->place->come || comm->outstanding != 0) continue;
      if (one.launching != nullptr || one.stopped) continue;
      ask_whether_gone(one);
      if (is_gone(one)) {
        device_gone(one);
        continue;
      }
      comm->end_graphs(true);
      if (!comm->borrowed) {
        const ncclResult_t code = ncclCommFinalize(comm->native);
        if (detail::failed(code)) {
          fall(*comm, make_error(code), "ncclCommFinalize", true, false);
          continue;
        }
      }
      comm->stands = phase::finalising;
      comm->hold_until = clock::now() + longest_hold;
    }
    if (clock::now() >= comm->hold_until) let_next_come(*comm);
    if (!comm->borrowed) {
      ncclResult_t state = ncclSuccess;
      const ncclResult_t asked = ncclCommGetAsyncError(comm->native, &state);
      if (detail::failed(asked)) state = asked;
      if (state == ncclInProgress) continue;
      if (state != ncclSuccess) {
        fall(*comm, make_error(state), "ncclCommFinalize", true, false);
        continue;
      }
      auto job = std::make_unique<abort_job>();
      job->comms.push_back(comm);
      job->call->natives.push_back(comm->native);
      job->call->device = comm->device;
      job->until = comm->leave_until;
      job->watched.begin(tools::category::communicator, tools::literal("destroy"));
      job->start([its = job->call] {
        static_cast<void>(cudaSetDevice(its->device));
        static_cast<void>(ncclCommDestroy(its->natives.front()));
        its->done.store(true);
      });
      aborts_.push_back(std::move(job));
      comm->stands = phase::failed;  // until the thread has ended
    } else {
      comm->stands = phase::gone;
      comm->no_longer_launches();
      let_next_come(*comm);
      std::erase(comms_, comm);
    }
    --leaving_;
    comm->leaves.end();
    comm->native = nullptr;
    comm->why = errc::closed;
    silence(comm);
  }
  return found;
}

/// The engine ends. What has not been issued is given up, the rest is waited for, and all
/// communicators leave.
inline void issue_source::leave() {
  std::vector<progress::operation*> ended;
  {
    const std::lock_guard hold(mutex_);
    ending_ = engine_.stopped();
    for (queue& one : queues_) {
      for (const entry& each : one.waiting) {
        if (each.op == nullptr) continue;
        give_up(one, *each.op, asio::error::operation_aborted);
        if (work* const over = concluded(*each.op)) ended.push_back(over);
      }
      std::erase_if(one.waiting, [](const entry& each) { return each.op != nullptr; });
      for (const entry& each : one.waiting) {
        const bool leaves = std::any_of(comms_.begin(), comms_.end(), [&](const auto& comm) {
          return comm->place == each.place;
        });
        if (!leaves) each.place->over = true;  // who waits for it is given up
      }
    }
    std::erase_if(conditions_, [&](condition_base* each) {
      if (!each->bounded) each->error = asio::error::operation_aborted;
      if (each->in_lap != nullptr) return false;  // the next look goes on with it
      ended.push_back(each);
      return true;
    });
    const auto all = comms_;
    for (const auto& comm : all) take_leave(*comm);  // what is being made goes on
    recount();
  }
  for (progress::operation* const op : ended) engine_.complete(op);
}

/// Waiting has not helped. Communicators and the memory that they use are leaked, and the awaiters
/// end.
inline void issue_source::end() {
  std::vector<work*> ended;
  std::vector<condition_base*> given_up;
  {
    const std::lock_guard hold(mutex_);
    for (queue& one : queues_) {
      collect(one, nullptr, errc::engine_stopped, ended);
      one.waiting.clear();
      if (one.flights.empty()) continue;
      device::state_of(one.device).stop_frees();
      one.flights.clear();
    }
    for (auto& job : aborts_) {
      for (work* const op : job->ended) ended.push_back(op);
      job->let_go();
    }
    aborts_.clear();
    for (const auto& comm : comms_) {
      if (comm->native == nullptr && comm->stands != phase::failed) continue;
      device::state_of(comm->device).stop_frees();
      comm->stands = phase::leaked;
      comm->leaves.end();
      comm->native = nullptr;
      comm->remember({errc::stalled, "an nccl communicator has not ended with its loop; leaked"});
    }
    comms_.clear();
    leaving_ = 0;
    for (work* const op : std::exchange(ended_in_lap_, {})) ended.push_back(op);
    given_up = std::exchange(conditions_, {});
    for (condition_base* const each : given_up) each->error = errc::engine_stopped;
    recount();
  }
  for (condition_base* const each : given_up) engine_.complete(each);
  for (work* const op : ended) {
    if (work* const over = concluded(*op)) engine_.complete(over);
  }
}

// ---- reports ---------------------------------------------------------------------------------

inline std::string issue_source::line_about(const work& op, const char* stands) {
  const auto age = std::chrono::duration_cast<std::chrono::milliseconds>(clock::now() - op.since);
  std::string text = "  rank " + std::to_string(op.comm->rank);
  text.append(": nccl ").append(op.verb).append(" #").append(std::to_string(op.sequence));
  text.append(", bytes=").append(std::to_string(op.bytes)).append(", device=");
  text.append(std::to_string(op.comm->device)).append(", ").append(stands).append(", for ");
  return text.append(std::to_string(age.count())).append(" ms");
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

inline void issue_source::describe(std::string& text) {
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

/// Names what has not ended for longer than COHORT_STALL_WARNING, once each.
inline void issue_source::tick(clock::time_point now) {
  if (stall_warning_ <= std::chrono::nanoseconds::zero()) return;
  std::string lines;
  {
    const std::lock_guard hold(mutex_);
    for_each_pending([&](work& op, const char* stands) {
      if (op.stall_reported_ || now - op.since < stall_warning_) return;
      op.stall_reported_ = true;
      ask(*op.comm, op, line_about(op, "stalled"), {}, false);
      lines.append("\n").append(line_about(op, stands));
    });
  }
  if (!lines.empty()) log::write(log::level::warning, "stalled:" + lines);
}

// ---- conditions ------------------------------------------------------------------------------

template <class Handler>
class issue_source::condition_operation final : public condition_base {
 public:
  explicit condition_operation(Handler&& handler)
      : condition_base(&run), handler_(std::move(handler)) {}

 private:
  static void run(progress::operation* base, action what) {
    auto* const self = static_cast<condition_operation*>(base);
    Handler handler(std::move(self->handler_));
    const std::error_code error = self->error;
    delete self;
    if (what != action::destroy) std::move(handler)(error);
  }
  Handler handler_;
};

struct issue_source::start_condition {
  template <class Handler>
  void operator()(Handler&& handler, issue_source* source, std::function<bool()> holds) const {
    using operation = condition_operation<std::decay_t<Handler>>;
    auto* const op = new operation(std::decay_t<Handler>(std::forward<Handler>(handler)));
    op->holds = std::move(holds);
    source->wait_for(*op);
  }
};

inline void issue_source::wait_for(condition_base& one) {
  bool late = false;
  {
    const std::lock_guard hold(mutex_);
    if (ending_ && !one.bounded) one.error = asio::error::operation_aborted;
    late = ending_ && one.in_lap == nullptr;
    if (!late) {
      conditions_.push_back(&one);
      recount();
    }
  }
  if (late) {
    engine_.complete(&one);
  } else {
    engine_.started();
  }
}

class issue_source::call_at_look final : public condition_base {
 public:
  explicit call_at_look(std::function<void()> what) : condition_base(&run), what_(std::move(what)) {
    holds = [] { return true; };
    in_lap = [](condition_base* base) { static_cast<call_at_look*>(base)->deliver(); };
    bounded = true;
  }

 private:
  static void run(progress::operation* base, action what) {
    const std::unique_ptr<call_at_look> self(static_cast<call_at_look*>(base));
    if (what != action::destroy) self->what_();
  }
  std::function<void()> what_;
};

inline void issue_source::at_next_look(std::function<void()> what) {
  wait_for(*std::make_unique<call_at_look>(std::move(what)).release());
}

inline void issue_source::end_at_next_look(const std::vector<work*>& ended) {
  if (ended.empty()) return;
  for (work* const op : ended) op->settle();
  {
    const std::lock_guard hold(mutex_);
    ended_in_lap_.insert(ended_in_lap_.end(), ended.begin(), ended.end());
    recount();
  }
  engine_.started();
}

template <class Token>
auto issue_source::when(std::function<bool()> condition, Token&& token) {
  return asio::async_initiate<Token, void(std::error_code)>(start_condition{}, token, this,
                                                            std::move(condition));
}

}  // namespace cohort::nccl
