// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// Bodies of `comm/request_source.hpp`.

#include <cohort/comm/communicator.hpp>
#include <cohort/comm/creation.hpp>
#include <cohort/comm/detail/cross_rank_check.ipp>
#include <cohort/comm/request_source.hpp>
#include <cohort/mpi/status.hpp>

#include <algorithm>

namespace cohort::comm {

inline constexpr status empty_status;

template <std::derived_from<asio::execution_context> Context>
request_source::request_source(Context& context)
    : asio::execution_context::service(context),
      engine_(asio::use_service<progress::engine>(context)),
      level_(mpi::level()) {
  const bool is_second = sources_alive_.fetch_add(1) > 0;
  promised_one_thread_ = engine_.options().single_thread;
  if (promised_one_thread_) promises_.fetch_add(1);
  if (is_second && promises_.load() > 0) {
    count_out_of_process();
    throw error(errc::single_thread_violation, "a second engine beside one with single_thread");
  }
  if (engine_.options().single_thread || level_ < mpi::thread_level::serialized) {
    locking_ = locking::none;
  } else if (level_ == mpi::thread_level::serialized) {
    locking_ = locking::process_wide;
  } else {
    locking_ = locking::own;
  }
  make_room();
  engine_.attach(*this);
  mpi::watch_finalize();  // the engine's hook then leaves before MPI_Finalize goes on
}

COHORT_INLINE request_source::~request_source() {
  engine_.detach(this);
  states_.clear();  // they use what is declared after them
  count_out_of_process();
}

COHORT_INLINE void request_source::count_out_of_process() const noexcept {
  sources_alive_.fetch_sub(1);
  if (promised_one_thread_) promises_.fetch_sub(1);
}

COHORT_INLINE bool request_source::acquire() {
  switch (locking_) {
    case locking::none:
      return false;
    case locking::process_wide:
      return mpi::lock::acquire();
    case locking::own:
      own_mutex_.lock();
      return true;
  }
  return false;
}

COHORT_INLINE void request_source::release(bool owns) noexcept {
  if (!owns) return;
  if (locking_ == locking::own) {
    own_mutex_.unlock();
  } else {
    mpi::lock::release();
  }
}

COHORT_INLINE errc request_source::usable() const noexcept {
  if (!mpi::running()) [[unlikely]] {
    return mpi::initialized() ? errc::finalized : errc::not_initialized;
  }
  if (level_ < mpi::thread_level::serialized && !mpi::is_main_thread()) [[unlikely]] {
    return errc::wrong_thread;
  }
  return errc{};
}

// ---- adding ----------------------------------------------------------------------------------

// Counters are written under the guard only, so no read-modify-write is needed.
COHORT_INLINE void request_source::count_in(const request_operation& op) noexcept {
  auto& counter = op.idle_ ? idle_ : pending_;
  counter.store(counter.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  if (op.announced_) count_announced(1);
  if (op.parts_ == 1) {
    bytes_.store(bytes_.load(std::memory_order_relaxed) + op.bytes, std::memory_order_relaxed);
  }
}

COHORT_INLINE void request_source::count_out(const request_operation& op) noexcept {
  auto& counter = op.idle_ ? idle_ : pending_;
  counter.store(counter.load(std::memory_order_relaxed) - 1, std::memory_order_relaxed);
  if (op.announced_) count_announced(-1);
  if (op.parts_ == 0) {
    bytes_.store(bytes_.load(std::memory_order_relaxed) - op.bytes, std::memory_order_relaxed);
  }
}

COHORT_INLINE void request_source::add(MPI_Request request, request_operation& op) {
  if (count_ == room_) [[unlikely]]
    make_room();  // there was no memory at the end of the last call
  requests_[count_] = request;
  operations_[count_] = &op;
  op.slot_ = count_++;
  op.is_probe_ = false;
  ++op.parts_;
  count_in(op);
  if (count_ == room_) [[unlikely]]
    make_room();
}

/// Doubles the arrays.
COHORT_INLINE void request_source::make_room() {
  const std::size_t room = std::max<std::size_t>(64, 2 * room_);
  auto requests = std::make_unique_for_overwrite<MPI_Request[]>(room);
  auto operations = std::make_unique_for_overwrite<request_operation*[]>(room);
  std::copy_n(requests_.get(), count_, requests.get());
  std::copy_n(operations_.get(), count_, operations.get());
  if (room_ < window) {
    const std::size_t looked_at = std::min<std::size_t>(room, window);
    auto indices = std::make_unique_for_overwrite<int[]>(looked_at);
    auto statuses = std::make_unique_for_overwrite<MPI_Status[]>(looked_at);
    std::fill_n(statuses.get(), looked_at, empty_status.native());
    indices_ = std::move(indices);
    statuses_ = std::move(statuses);
  }
  requests_ = std::move(requests);
  operations_ = std::move(operations);
  room_ = room;
}

COHORT_INLINE void request_source::add_probe(int source, int tag, MPI_Comm comm, probe_kind kind,
                                             request_operation& op) {
  probes_.push_back({source, tag, comm, kind});
  probing_.push_back(&op);
  op.slot_ = probes_.size() - 1;
  op.is_probe_ = true;
  ++op.parts_;
  count_in(op);
}

COHORT_INLINE void request_source::remove_request(std::size_t slot) noexcept {
  const std::size_t last = --count_;
  if (slot != last) {
    requests_[slot] = requests_[last];
    operations_[slot] = operations_[last];
    if (request_operation& moved = *operations_[slot]; is_last_added(moved, last)) {
      moved.slot_ = slot;
    }
  }
}

COHORT_INLINE void request_source::remove_probe(std::size_t slot) noexcept {
  const std::size_t last = probes_.size() - 1;
  if (slot != last) {
    probes_[slot] = probes_[last];
    probing_[slot] = probing_[last];
    probing_[slot]->slot_ = slot;
  }
  probes_.pop_back();
  probing_.pop_back();
}

// ---- looking ---------------------------------------------------------------------------------

COHORT_INLINE bool request_source::begin_lap(progress::ready_queue& ready) {
  if (level_ < mpi::thread_level::serialized && !mpi::is_main_thread()) [[unlikely]] {
    fail_everything(errc::wrong_thread, ready);
    return false;
  }
  const bool owns = acquire();
  lap_owns_ = owns;
  if (!mpi::running()) [[unlikely]] {
    fail_everything(errc::finalized, ready);
    end_lap();
    return false;
  }
  return true;
}

COHORT_INLINE void request_source::end_lap() noexcept { release(lap_owns_); }

COHORT_INLINE void request_source::set_idle(request_operation& op, bool idle) noexcept {
  if (op.idle_ == idle) return;
  if (op.parts_ != 0) {
    auto& from = op.idle_ ? idle_ : pending_;
    auto& to = op.idle_ ? pending_ : idle_;
    from.store(from.load(std::memory_order_relaxed) - 1, std::memory_order_relaxed);
    to.store(to.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    if (!idle) count_announced(1);
    if (op.announced_) count_announced(-1);
  }
  op.idle_ = idle;
  op.announced_ = !idle;
}

COHORT_INLINE void request_source::at_next_look(look_hook& hook) noexcept {
  if (hook.waits_) return;
  hook.waits_ = true;
  hook.next_ = nullptr;
  (hooks_ == nullptr ? hooks_ : last_hook_->next_) = &hook;
  last_hook_ = &hook;
  pending_.store(pending_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

COHORT_INLINE void request_source::forget(look_hook& hook) noexcept {
  std::erase(watching_, &hook);
  if (!hook.waits_) return;
  look_hook* before = nullptr;
  for (look_hook* at = hooks_; at != &hook; at = at->next_) before = at;
  (before == nullptr ? hooks_ : before->next_) = hook.next_;
  if (last_hook_ == &hook) last_hook_ = before;
  if (last_due_ == &hook) last_due_ = before;
  hook.waits_ = false;
  pending_.store(pending_.load(std::memory_order_relaxed) - 1, std::memory_order_relaxed);
}

COHORT_INLINE std::size_t request_source::run_hooks() {
  std::size_t done = 0;
  last_due_ = last_hook_;  // what is added meanwhile waits for the next look
  while (hooks_ != nullptr && last_due_ != nullptr) {
    look_hook* hook = hooks_;
    hooks_ = hook->next_;
    hook->waits_ = false;
    pending_.store(pending_.load(std::memory_order_relaxed) - 1, std::memory_order_relaxed);
    if (hook == last_due_) last_due_ = nullptr;
    done += hook->at_look();
  }
  return done;
}

COHORT_INLINE std::size_t request_source::test(progress::ready_queue& ready) {
  std::size_t found = 0;
  if (hooks_ != nullptr) found += run_hooks();
  if (count_ != 0) found += test_requests(ready);
  if (!probes_.empty()) found += test_probes(ready);
  return found;
}

/// Notes that the request of `op` in `slot` is complete, and empties `status` for the next one:
/// MPICH writes almost nothing into that of a send, so it would tell of an earlier message.
COHORT_INLINE void request_source::took_request(request_operation& op, std::size_t slot,
                                                MPI_Status& status, int error_of_request) noexcept {
  if (is_last_added(op, slot)) [[likely]] {
    op.status = status;
    op.left = requests_[slot];
    op.slot_ = request_operation::nowhere;
    if (op.cancelled_) [[unlikely]] {
      int given_up = 0;
      MPI_Test_cancelled(&op.status, &given_up);
      if (given_up != 0) op.fail(asio::error::operation_aborted);
    }
  }
  status = empty_status.native();
  took(op, error_of_request);
}

/// Notes the outcome of one request or probe of `op`.
COHORT_INLINE void request_source::took(request_operation& op, int error_of_request) noexcept {
  if (error_of_request != MPI_SUCCESS) [[unlikely]]
    op.fail(mpi::make_error(error_of_request));
  --op.parts_;
  count_out(op);
}

/// All requests of `op` are complete: the next stage, or the ready queue.
COHORT_INLINE void request_source::finish(request_operation& op, progress::ready_queue& ready) {
  op.slot_ = request_operation::nowhere;
  // A comparison between ranks that MPI has failed must still leave the queue of those that wait.
  if (op.advance_ != nullptr && (!op.failed() || op.advances_failed_)) {
    try {
      if (op.advance_(&op) && (op.parts_ != 0 || op.waits_for_turn_)) return;
    } catch (const std::system_error& failed) {
      op.fail(failed.code());
    } catch (...) {
      op.fail(std::make_error_code(std::errc::not_enough_memory));
    }
    if (op.parts_ != 0) return;  // part of a stage was posted: its requests come first
  }
  // A failed operation stays live until its failure has been reported on the communicator.
  if (op.live_on != nullptr && !op.failed()) [[likely]] {
    --op.live_on->live;
    if (op.live_on->closing) op.live_on->free_if_unused();
    op.live_on = nullptr;
  }
  op.settle();
  ready.push(&op);
}

COHORT_INLINE communicator_state* request_source::new_state() {
  const guard hold(*this);
  if (free_states_.empty()) {
    states_.push_back(std::make_unique<communicator_state>(*this, engine_));
    free_states_.reserve(states_.size());  // so that recycling never allocates
    return states_.back().get();
  }
  communicator_state* state = free_states_.back();
  free_states_.pop_back();
  return state;
}

/// An MPI may return codes of its own, of which only the class is known.
COHORT_INLINE bool is_of_class(int code, int error_class) noexcept {
  int found = code;
  MPI_Error_class(code, &found);
  return found == error_class;
}

/// A single request, the usual case: Open MPI's MPI_Test looks once more after it has made
/// progress, where MPI_Testsome leaves that to the next call.
COHORT_INLINE std::size_t request_source::test_only_one(progress::ready_queue& ready) {
  int done = 0;
  const int rc = MPI_Test(requests_.get(), &done, statuses_.get());
  if (done == 0 && rc == MPI_SUCCESS) [[likely]]
    return 0;
  request_operation& op = *operations_[0];
  took_request(op, 0, statuses_[0], rc);
  count_ = 0;
  if (op.parts_ == 0) finish(op, ready);
  return 1;
}

COHORT_INLINE std::size_t request_source::test_requests(progress::ready_queue& ready) {
  const std::size_t n = count_;
  if (n == 1) return test_only_one(ready);
  std::size_t first = 0;
  std::size_t count = n;
  if (n > window) [[unlikely]] {  // round robin over windows
    if (next_window_ >= n) next_window_ = 0;
    first = next_window_;
    count = std::min<std::size_t>(window, n - first);
    next_window_ = first + count;
  }
  int found = 0;
  const int rc = MPI_Testsome(static_cast<int>(count), requests_.get() + first, &found,
                              indices_.get(), statuses_.get());
  if (rc == MPI_SUCCESS && (found == 0 || found == MPI_UNDEFINED)) return 0;
  if (rc == MPI_SUCCESS && found == 1) [[likely]] {
    const std::size_t slot = first + static_cast<std::size_t>(indices_[0]);
    request_operation& op = *operations_[slot];
    took_request(op, slot, statuses_[0], MPI_SUCCESS);
    remove_request(slot);
    if (op.parts_ == 0) finish(op, ready);
    return 1;
  }
  if (rc != MPI_SUCCESS && !is_of_class(rc, MPI_ERR_IN_STATUS)) [[unlikely]] {
    test_one_by_one(static_cast<int>(first), static_cast<int>(count), found);
  }
  // 1. Note outcomes, in whatever order MPI reports them; their slots become empty. Entries whose
  //    error is "pending" stay.
  // 2. Fill the empty slots with the last entries.
  // 3. Only then finish: a next stage adds entries.
  progress::ready_queue finished;
  std::size_t completions = 0;
  for (int i = 0; i < found; ++i) {
    const std::size_t slot = first + static_cast<std::size_t>(indices_[i]);
    const int error = rc == MPI_SUCCESS ? MPI_SUCCESS : statuses_[i].MPI_ERROR;
    if (error != MPI_SUCCESS && is_of_class(error, MPI_ERR_PENDING)) continue;
    ++completions;
    request_operation& op = *operations_[slot];
    took_request(op, slot, statuses_[i], error);
    operations_[slot] = nullptr;
    if (op.parts_ == 0) finished.push(&op);
  }
  for (int i = 0; i < found; ++i) {
    while (count_ != 0 && operations_[count_ - 1] == nullptr) --count_;
    const std::size_t slot = first + static_cast<std::size_t>(indices_[i]);
    if (slot < count_ && operations_[slot] == nullptr) remove_request(slot);
  }
  while (!finished.empty()) finish(static_cast<request_operation&>(*finished.pop()), ready);
  return completions;
}

/// The whole call failed, so it says nothing about single requests: ask for each.
COHORT_INLINE void request_source::test_one_by_one(int first, int count, int& found) {
  found = 0;
  for (int i = 0; i < count; ++i) {
    int done = 0;
    MPI_Status status = empty_status.native();
    const int rc = MPI_Test(&requests_[first + i], &done, &status);
    if (rc == MPI_SUCCESS && done == 0) continue;
    status.MPI_ERROR = is_of_class(rc, MPI_ERR_IN_STATUS) ? status.MPI_ERROR : rc;
    indices_[found] = i;
    statuses_[found] = status;
    ++found;
  }
}

COHORT_INLINE std::size_t request_source::test_probes(progress::ready_queue& ready) {
  std::size_t found = 0;
  for (std::size_t slot = 0; slot < probes_.size();) {
    request_operation& op = *probing_[slot];
    int flag = 0;
    const int rc = op.cancelled_ ? MPI_SUCCESS : look_for(probes_[slot], flag, op);
    if (rc == MPI_SUCCESS && flag == 0 && !op.cancelled_) {
      ++slot;
      continue;
    }
    remove_probe(slot);
    op.slot_ = request_operation::nowhere;
    took(op, rc);
    if (op.cancelled_ && flag == 0) op.fail(asio::error::operation_aborted);
    ++found;
    // What was found must be taken at once, also while another request of the operation pends: the
    // two ranks of an exchange would otherwise wait for each other.
    if (op.parts_ == 0 || !op.failed()) finish(op, ready);
  }
  return found;
}

COHORT_INLINE int request_source::look_for(const probe& wanted, int& flag, request_operation& op) {
  if (wanted.kind == probe_kind::look) {
    return MPI_Iprobe(wanted.source, wanted.tag, wanted.comm, &flag, &op.status);
  }
  return MPI_Improbe(wanted.source, wanted.tag, wanted.comm, &flag, &op.message, &op.status);
}

// ---- cancelling and ending -------------------------------------------------------------------

COHORT_INLINE void request_source::cancel(request_operation& op) {
  if (usable() != errc{}) return;
  {
    const guard hold(*this);
    if (op.slot_ == request_operation::nowhere || op.cancelled_) return;
    op.cancelled_ = true;
    // A cancelled probe is taken out by the next look.
    if (!op.is_probe_ && MPI_Cancel(&requests_[op.slot_]) != MPI_SUCCESS) return;
  }
  engine_.started();  // look soon
}

COHORT_INLINE void request_source::leave() {
  if (usable() != errc{}) return;
  const guard hold(*this);
  if (hooks_ != nullptr) run_hooks();  // what they post is cancelled with the rest
  // From now on somebody waits for control receives too: whoever makes the engine leave.
  for (request_operation* op : operations()) {
    if (!op->idle_) continue;
    op->idle_ = false;
    op->age_ = {};  // how long it has been posted says nothing
    idle_.store(idle_.load(std::memory_order_relaxed) - 1, std::memory_order_relaxed);
    pending_.store(pending_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  for (std::size_t slot = 0; slot < count_; ++slot) {
    request_operation& op = *operations_[slot];
    if (op.cancelled_ || !op.cancellable || !is_last_added(op, slot)) continue;
    op.cancelled_ = true;
    MPI_Cancel(&requests_[slot]);
  }
  for (request_operation* op : probing_) op->cancelled_ = true;
}

COHORT_INLINE void request_source::abandon() {
  const guard hold(*this);
  // The operations are leaked with their handlers: MPI may still write into what they own.
  for (request_operation* op : operations()) op->settle();
  for (request_operation* op : probing_) op->settle();
  for (const auto& state : states_) {
    cross_rank_check::abandon(*state);
    creation::abandon(*state);
  }
  count_ = 0;
  probes_.clear();
  probing_.clear();
  while (hooks_ != nullptr) {
    hooks_->waits_ = false;
    hooks_ = hooks_->next_;
  }
  pending_.store(0, std::memory_order_relaxed);
  idle_.store(0, std::memory_order_relaxed);
  announced_.store(0, std::memory_order_relaxed);
  bytes_.store(0, std::memory_order_relaxed);
}

/// Ends every operation with `why`. Their requests stay with MPI, which cannot be called.
COHORT_INLINE void request_source::fail_everything(std::error_code why,
                                                   progress::ready_queue& ready) {
  const auto end = [&](request_operation& op) {
    op.fail(why);
    took(op, MPI_SUCCESS);
    if (op.parts_ == 0) {
      op.settle();
      ready.push(&op);
    }
  };
  for (request_operation* op : operations()) end(*op);
  for (request_operation* op : probing_) end(*op);
  for (const auto& state : states_) {
    cross_rank_check::fail_waiting(*state, why, ready);
    creation::fail_waiting(*state, why, ready);
  }
  count_ = 0;
  probes_.clear();
  probing_.clear();
}

// ---- parking ---------------------------------------------------------------------------------

// The sender posts, makes sure the message has left, fences and reads the flag; the receiver sets
// the flag, fences and looks once more. At least one of the two sees the other.
COHORT_INLINE progress::park_result request_source::park(progress::ready_queue& ready) {
  if (idle() == 0 && announced_.load(std::memory_order_relaxed) == 0)
    return progress::park_result::nothing;
  const bool rings = may_park_ && bell_ != nullptr;
  if (!begin_lap(ready)) return progress::park_result::busy;
  if (rings) {
    for (auto* flag : parked_flags_) flag->store(1, std::memory_order_seq_cst);
  }
  // Open MPI's MPI_Testsome makes progress after it has looked: what has arrived may be taken in by
  // one look and reported by the next.
  std::size_t found = 0;
  for (int looks = 0; looks < 3 && found == 0; ++looks) found = test(ready);
  end_lap();
  if (found != 0) return progress::park_result::busy;
  return rings ? progress::park_result::quiet : progress::park_result::no_bell;
}

COHORT_INLINE void request_source::unpark() {
  const guard hold(*this);
  for (auto* flag : parked_flags_) flag->store(0, std::memory_order_relaxed);
}

COHORT_INLINE progress::doorbell& request_source::bell() {
  const guard hold(*this);
  if (!bell_) {
    bell_ = std::make_unique<progress::doorbell>(engine_);
    engine_.set_wake_up(bell_.get());
  }
  return *bell_;
}

COHORT_INLINE void request_source::shutdown() {
  engine_.set_wake_up(nullptr);
  bell_.reset();  // before the reactor that its descriptor is registered with
}

COHORT_INLINE std::vector<request_operation*> request_source::waiting_creations() const {
  std::vector<request_operation*> all;
  for (const auto& state : states_) {
    for (creation* one = state->creations; one != nullptr; one = one->next()) {
      if (one->is_waiting()) all.push_back(&one->operation());
    }
  }
  return all;
}

// ---- reports ---------------------------------------------------------------------------------

COHORT_INLINE std::string request_source::age_of(const request_operation& op) {
  const guard hold(*this);
  if (!op.age_.has_begun() && !pending(op)) return "not posted to MPI";  // a backend's, say
  return op.age_.text(progress::engine::clock::now());
}

COHORT_INLINE std::string request_source::line_about(const request_operation& op,
                                                     progress::engine::clock::time_point now) {
  std::string line = "rank " + std::to_string(op.rank) + ": " + op.verb;
  if (op.sequence != 0) line += " #" + std::to_string(op.sequence);
  if (op.peer >= 0) line += ", peer " + std::to_string(op.peer);
  return line + ", " + std::to_string(op.bytes) + " bytes, " + op.age_.text(now);
}

COHORT_INLINE void request_source::describe(std::string& text) {
  const auto now = progress::engine::clock::now();
  const guard hold(*this);
  for (const request_operation* op : operations()) {
    if (!op->idle_ && op->stalls) text += "  " + line_about(*op, now) + "\n";
  }
  for (const request_operation* op : probing_) text += "  " + line_about(*op, now) + "\n";
  for (const request_operation* op : waiting_creations()) {
    text += "  " + line_about(*op, now) + ", waits for its turn to make a communicator\n";
  }
  for (look_hook* each : watching_) each->list_waiting(text, now);
}

COHORT_INLINE void request_source::tick(progress::engine::clock::time_point now) {
  std::string lines;
  bool creates = false;
  {
    const guard hold(*this);
    for (const auto& state : states_) creates = creates || state->creations != nullptr;
    const auto look_at = [&](request_operation& op) {
      const bool is_due = stalls_.is_due(op.age_, now);
      if (is_due && !op.idle_ && op.stalls) lines += "\n  " + line_about(op, now);
    };
    for (request_operation* op : operations()) look_at(*op);
    for (request_operation* op : probing_) look_at(*op);
    for (request_operation* op : waiting_creations()) look_at(*op);
    for (std::size_t i = 0; i < watching_.size(); ++i) watching_[i]->at_tick(now);
  }
  if (creates) process::look_at_all();  // a creation of another context may be in the way
  stalls_.warn(lines);
}

}  // namespace cohort::comm
