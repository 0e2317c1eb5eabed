// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// Bodies of `comm/requests/source.hpp`.

#include <cohort/comm/communicator_state.hpp>
#include <cohort/comm/creation.hpp>
#include <cohort/comm/requests/cross_rank_check.ipp>
#include <cohort/comm/requests/source.hpp>

namespace cohort::comm {

COHORT_INLINE source_lock::source_lock(bool one_thread) : one_thread_(one_thread) {
  const bool is_second = alive_.fetch_add(1) > 0;
  if (one_thread_) promises_.fetch_add(1);
  if (is_second && promises_.load() > 0) {
    alive_.fetch_sub(1);
    if (one_thread_) promises_.fetch_sub(1);
    throw error(errc::single_thread_violation, "a second engine beside one with single_thread");
  }
  if (one_thread_ || level_ < mpi::thread_level::serialized) {
    locking_ = locking::none;
  } else if (level_ == mpi::thread_level::serialized) {
    locking_ = locking::process_wide;
  } else {
    locking_ = locking::own;
  }
}

COHORT_INLINE source_lock::~source_lock() {
  alive_.fetch_sub(1);
  if (one_thread_) promises_.fetch_sub(1);
}

COHORT_INLINE bool source_lock::acquire() {
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

COHORT_INLINE void source_lock::release(bool owns) noexcept {
  if (!owns) return;
  if (locking_ == locking::own) {
    own_mutex_.unlock();
  } else {
    mpi::lock::release();
  }
}

template <std::derived_from<asio::execution_context> Context>
request_source::request_source(Context& context)
    : asio::execution_context::service(context),
      look_hooks(static_cast<request_counts&>(*this)),
      engine_(asio::use_service<progress::engine>(context)),
      lock_(engine_.options().single_thread) {
  engine_.attach(*this);
  mpi::watch_finalize();  // the engine's hook then leaves before MPI_Finalize goes on
}

COHORT_INLINE request_source::~request_source() {
  engine_.detach(this);
  {
    const guard hold(*this);
    progress_.reset();
  }
  states_.clear();  // they use what is declared after them
}

COHORT_INLINE errc request_source::why_not_usable() const noexcept {
  if (mpi::running()) return errc::wrong_thread;
  return mpi::initialized() ? errc::finalized : errc::not_initialized;
}

// ---- looking ---------------------------------------------------------------------------------

COHORT_INLINE bool request_source::begin_lap(progress::ready_queue& ready) {
  if (lock_.is_wrong_thread()) [[unlikely]] {
    fail_everything(errc::wrong_thread, ready);
    return false;
  }
  const bool owns = lock_.acquire();
  lap_owns_ = owns;
  if (!mpi::running()) [[unlikely]] {
    fail_everything(errc::finalized, ready);
    end_lap();
    return false;
  }
  return true;
}

COHORT_INLINE std::size_t request_source::test(progress::ready_queue& ready) {
  if (has_nothing() && !has_due()) return 0;
  return test_all(ready);
}

COHORT_INLINE std::size_t request_source::test_all(progress::ready_queue& ready) {
  const auto is_complete = [&](request_operation& op) { finish(op, ready); };
  std::size_t found = has_due() ? run_due() : 0;
  found += test_requests(is_complete);
  return has_probes() ? found + test_probes(is_complete) : found;
}

COHORT_INLINE bool request_source::look_for_end(const request_operation& op) {
  progress::ready_queue ended;
  std::size_t found = 0;
  unsigned looks = 0;
  bool has_ended = false;
  const auto is_complete = [&](request_operation& one) { finish(one, ended); };
  for (; looks < most_looks && !has_ended; ++looks) {  // what becomes due waits for a lap
    std::size_t now = test_requests(is_complete);
    if (has_probes()) now += test_probes(is_complete);
    found += now;
    while (now != 0 && !ended.empty()) {
      progress::operation* const one = ended.pop();
      if (one == &op) {
        has_ended = true;
      } else {  // one of its stages has started it
        engine_.complete(one);
      }
    }
  }
  engine_.count_looks(looks, found);
  return has_ended;
}

COHORT_INLINE bool request_source::look_for_end(MPI_Request& request, MPI_Status& status,
                                                int& return_code) {
  int is_complete = 0;
  unsigned looks = 0;
  do {
    ++looks;
    return_code = MPI_Test(&request, &is_complete, &status);
  } while (is_complete == 0 && return_code == MPI_SUCCESS && looks < most_looks);
  const bool has_ended = is_complete != 0 || return_code != MPI_SUCCESS;
  engine_.count_looks(looks, has_ended ? 1 : 0);
  return has_ended;
}

/// All requests of `op` are complete: the next stage, or the ready queue.
COHORT_INLINE void request_source::finish(request_operation& op, progress::ready_queue& ready) {
  op.slot_ = request_operation::nowhere;
  // A comparison between ranks that MPI has failed must still leave the queue of those that wait.
  if (op.advance_ != nullptr && (!op.failed() || op.advances_failed_)) {
    try {
      if (op.advance_(&op) && (op.parts_ != 0 || op.waits_for_turn_)) return;
    } catch (...) {
      op.fail_as_thrown();
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

// ---- cancelling and ending -------------------------------------------------------------------

COHORT_INLINE void request_source::cancel(request_operation& op) {
  if (usable() != errc{}) return;
  bool given_up = false;
  {
    const guard hold(*this);
    given_up = give_up(op);
  }
  if (given_up) engine_.started();  // look soon
}

COHORT_INLINE void request_source::leave() {
  if (usable() != errc{}) return;
  const guard hold(*this);
  run_due();  // what they post is given up with the rest
  leave_optional();
  give_up_all();
}

COHORT_INLINE void request_source::leave_optional() {
  static auto& left = *new std::vector<request_operation*>;  // outlives static objects
  request_list::leave_to_mpi([&](request_operation& op) {
    if (op.optional_on == nullptr) return false;
    op.optional_on->keep();
    left.push_back(&op);
    return true;
  });
}

COHORT_INLINE void request_source::abandon() {
  const guard hold(*this);
  // The operations are leaked with their handlers: MPI may still write into what they own.
  drop_all([](request_operation& op) { op.settle(); });
  for (const auto& state : states_) {
    cross_rank_check::abandon(*state);
    creation::abandon(*state);
  }
  forget_due();
  count_nothing();
}

/// Ends every operation with `why`. Their requests stay with MPI, which cannot be called.
COHORT_INLINE void request_source::fail_everything(std::error_code why,
                                                   progress::ready_queue& ready) {
  drop_all([&](request_operation& op) {
    op.fail(why);
    took(op, MPI_SUCCESS);
    if (op.parts_ == 0) {
      op.settle();
      ready.push(&op);
    }
  });
  for (const auto& state : states_) {
    cross_rank_check::fail_waiting(*state, why, ready);
    creation::fail_waiting(*state, why, ready);
  }
}

// ---- parking ---------------------------------------------------------------------------------

// The sender posts, makes sure the message has left, fences and reads the flag; the receiver sets
// the flag, fences and looks once more. At least one of the two sees the other.
COHORT_INLINE progress::park_result request_source::park(progress::ready_queue& ready) {
  if (idle() == 0 && announced() == 0) return progress::park_result::nothing;
  const bool rings = bell_.may_park();
  if (!begin_lap(ready)) return progress::park_result::busy;
  if (rings) bell_.set_parked(1, std::memory_order_seq_cst);
  std::atomic_thread_fence(std::memory_order_seq_cst);  // before what lies in shared memory is read
  // Open MPI's MPI_Testsome makes progress after it has looked: what has arrived may be taken in by
  // one look and reported by the next.
  std::size_t found = 0;
  for (int looks = 0; looks < 3 && found == 0; ++looks) found = test(ready);
  end_lap();
  if (found != 0) return progress::park_result::busy;
  return rings ? progress::park_result::quiet : progress::park_result::no_bell;
}

COHORT_INLINE progress::doorbell& source_bell::get(progress::engine& of) {
  if (!bell_) {
    bell_ = std::make_unique<progress::doorbell>(of);
    of.set_wake_up(bell_.get());
  }
  return *bell_;
}

COHORT_INLINE void source_bell::close(progress::engine& of) {
  of.set_wake_up(nullptr);
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
  if (!op.age_.has_begun() && !pending(op)) return "not posted to MPI";
  return op.age_.text(progress::engine::clock::now());
}

COHORT_INLINE void request_source::list(progress::pending_lines& lines) {
  const guard hold(*this);
  const auto look_at = [&](request_operation& op, const char* note) {
    if (!lines.names(op.age_) || op.idle_ || !op.stalls) return;
    std::string line = "rank " + std::to_string(op.rank) + ": " + op.verb;
    if (op.sequence != 0) line += " #" + std::to_string(op.sequence);
    if (op.peer >= 0) line += ", peer " + std::to_string(op.peer);
    lines.add(line + ", " + std::to_string(op.bytes) + " bytes" + note, op.age_);
  };
  for (request_operation* op : operations()) look_at(*op, "");
  for (request_operation* op : probing()) look_at(*op, "");
  for (request_operation* op : waiting_creations()) {
    look_at(*op, ", waits for its turn to make a communicator");
  }
}

COHORT_INLINE void request_source::describe(std::string& text) {
  polled_source::describe(text);
  const guard hold(*this);
  list_waiting(text, steady_clock::now());
}

COHORT_INLINE void request_source::make_progress() {
  if (usable() != errc{}) return;
  const guard hold(*this);
  if (operations().empty()) progress_.make_progress();  // else each look does
}

COHORT_INLINE void request_source::tick(steady_clock::time_point now) {
  polled_source::tick(now);
  bool creates = false;
  {
    const guard hold(*this);
    for (const auto& state : states_) creates = creates || state->creations != nullptr;
    tick_watching(now);
  }
  if (creates) process::look_at_all();  // a creation of another context may be in the way
}

}  // namespace cohort::comm
