// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// Bodies of `comm/requests/body_operation.hpp`, and the operation behind a verb that blocks.

#include <cohort/comm/mpi_blocking.hpp>
#include <cohort/comm/requests/body_operation.hpp>
#include <cohort/core/log.hpp>
#include <cohort/core/process.hpp>
#include <cohort/mpi/layout.hpp>
#include <cohort/progress/engine.hpp>

#include <atomic>
#include <cstdint>
#include <string>
#include <system_error>
#include <utility>

namespace cohort::comm::detail {

COHORT_INLINE bool body_operation::start(bool stays) {
  request_source& source = state().source;
  progress::engine& engine = state().engine;
  errc bad = source.usable();
  if (bad == errc{} && !comm_.alive()) bad = errc::invalid_communicator;
  if (bad == errc{} && engine.stopped()) bad = errc::engine_stopped;
  const bool usable = bad == errc{};
  const bool has_agreed = functions_.agreed != nullptr;
  if (usable) bad = functions_.check(body_, state());
  if (bad != errc{}) [[unlikely]] {
    fail(bad);
    const bool compares = usable && has_agreed && state().options.checks == checks::cross_rank;
    if (!compares) {  // else the others are told
      end_unposted();
      return true;
    }
  }
  any_backend* backend = nullptr;
  bool has_ended = false;
  {
    const request_source::guard hold(source);
    count_as_live();
    const bool is_alone = stays && source.is_quiet();
    const bool waits =
        has_agreed && (functions_.is_gated || functions_.keeps_turn || state().queues);
    try {
      if (!waits) backend = find_backend();
      if (backend == nullptr) [[likely]] {
        poster post(state(), *this);
        const int rc = waits ? post_check(post) : functions_.post(body_, post);
        if (rc != MPI_SUCCESS) [[unlikely]]
          fail(mpi::make_error(rc));
      }
    } catch (...) {
      fail_as_thrown();
    }
    if (failed() && !waits) [[unlikely]]
      not_begun();
    posted();
    has_ended = !source.pending(*this) && !waits_for_turn_;
    if (is_alone && source.pending(*this)) has_ended = source.look_for_end(*this);
    if (!has_ended || failed()) describe();
  }
  // With something pending another thread's lap may have finished the operation by now.
  if (backend == nullptr && has_ended) return true;
  if (stays) leave_to_laps();
  if (backend != nullptr) [[unlikely]] {
    give_to(*backend);
  } else {
    engine.started();
  }
  return false;
}

COHORT_INLINE void body_operation::end_unposted() {
  describe();
  posted();
  explain();
}

COHORT_INLINE void body_operation::report_deadline() {
  const bool abort = state().options.on_deadline == on_deadline::abort;
  failure_text text = name();
  text.with("bytes", bytes);
  std::string who = "MPI";
  if (live_on != nullptr) {  // else it is complete
    if (backend_has_it()) {
      who = state().backend->name();
    } else {
      text.note(state().source.age_of(*this));
    }
  }
  text.note(abort ? std::string("ending the job") : who + " cannot give it up; waiting on");
  const failure what = text.with_code(errc::deadline_exceeded);
  state().fail(what);
  if (abort) process::end_job(what.text);
}

/// Null if MPI does it: what ranks must compare first, say. With the guard held.
COHORT_INLINE any_backend* body_operation::find_backend() {
  if (functions_.call == nullptr) return nullptr;
  if (state().choosing != backend_choosing::over) [[unlikely]]
    state().choose_backend();
  any_backend* const found = state().backend.get();
  if (functions_.is_gated || found == nullptr || state().options.checks == checks::cross_rank)
    return nullptr;
  if (!found->takes(functions_.call(body_))) return nullptr;
  state().by_backend.add(bytes);
  return found;
}

/// The program may try it again, so its number is given to the next one. With the guard held.
COHORT_INLINE void body_operation::not_begun() noexcept {
  if (functions_.call == nullptr || state().choosing == backend_choosing::over) return;
  if (!request_source::pending(*this) && !waits_for_turn_) --state().collectives;
}

COHORT_INLINE void body_operation::give_to(any_backend& backend) {
  if (functions_.cancellation == cancels::detach) enter_backend();
  backend.start(functions_.call(body_), backend_completion(state().engine, *this));
}

COHORT_INLINE void body_operation::count_as_live() noexcept {
  if (functions_.is_numbered) sequence = ++state().sequence;
  live_on = comm_.state;
  ++live_on->live;
}

/// What can wait until MPI has the request: it then costs no latency.
COHORT_INLINE void body_operation::describe() {
  rank = state().data.rank();
  if (functions_.peer != nullptr) peer = functions_.peer(body_);
}

COHORT_INLINE int body_operation::post_check(poster& post) {
  advance_ = &advance_body;
  check_ = state().source.make_check(state(), *this, &post_checked);
  const bool compares = state().options.checks == checks::cross_rank;
  if (failed()) {
    // Its arguments cannot be right: it is compared and never posted.
  } else if (functions_.is_gated) {
    check_->hold();
    try {
      functions_.begin(body_, post, check_.get());
    } catch (...) {
      if (!compares) throw;
      fail_as_thrown();  // the others are told
    }
  } else if (compares) {
    if (functions_.in_device_memory(body_) != nullptr)
      fail(errc::not_supported);  // the others are told
  }
  return check_->post(functions_.agreed(body_), post);
}

/// It is its turn. With the guard held.
COHORT_INLINE void body_operation::post_checked(request_operation* base) noexcept {
  auto& self = *static_cast<body_operation*>(base);
  try {
    if (any_backend* const backend = self.find_backend()) {
      self.waits_for_turn_ = true;  // without a request, and not at its end
      return self.give_to(*backend);
    }
    if (self.functions_.keeps_turn) {
      self.check_->hold();
      self.advances_failed_ = true;
    }
    poster post(self.state(), self);
    post.check(self.functions_.post(self.body_, post));
  } catch (...) {
    self.waits_for_turn_ = false;
    self.fail_as_thrown();
  }
  if (self.failed()) self.not_begun();
}

COHORT_INLINE bool body_operation::advance_body(request_operation* base) {
  auto& self = *static_cast<body_operation*>(base);
  if (self.check_ && !self.check_->done()) return self.check_->completed();
  if (self.functions_.advance == nullptr) return false;
  poster post(self.state(), self);
  if (self.functions_.keeps_turn) return self.advance_and_pass(post);
  return self.functions_.advance(self.body_, post);
}

/// The stage before has ended, well or not: after this one it is the others' turn.
COHORT_INLINE bool body_operation::advance_and_pass(poster& post) {
  advances_failed_ = false;
  bool more = false;
  try {
    more = !failed() && functions_.advance(body_, post);
  } catch (...) {
    fail_as_thrown();
  }
  check_->open({});
  return more;
}

COHORT_INLINE failure_text body_operation::name() const {
  return functions_.is_numbered ? failure_text(rank, verb, sequence) : failure_text(rank, verb);
}

COHORT_INLINE void body_operation::explain() {
  failure_text text = name();
  functions_.explain(body_, text);
  if (check_) {
    check_->explain(text);
    const bool asked = !functions_.is_gated && error() == errc::not_supported;
    const char* const field = asked ? functions_.in_device_memory(body_) : nullptr;
    if (field != nullptr) text.with(field, "device memory; pass a device::span of it");
  }
  tell(text);
  state().fail(text.with_code(error()));
}

COHORT_INLINE bool body_operation::backend_has_it() {
  const request_source::guard hold(state().source);
  return state().backend && !request_source::pending(*this) && !waits_for_turn_;
}

/// A failed operation, or one that was complete when it was posted.
COHORT_INLINE void body_operation::no_longer_live(bool deliver) {
  if (deliver && failed() && error() != asio::error::operation_aborted) explain();
  const request_source::guard hold(state().source);
  --live_on->live;
  if (live_on->closing) live_on->free_if_unused();
  live_on = nullptr;
}

// ---- what blocks ------------------------------------------------------------------------------

/// It lies on the caller's stack.
class blocking_operation final : public body_operation {
 public:
  blocking_operation(communicator_ref comm, const body_functions& functions, void* body)
      : body_operation(&ended, comm, functions, body, functions.bytes(body)) {}

  /// Starts it and waits. Throws what it has failed with.
  outcome_of_requests run() {
    start_and_wait();
    if (failed()) [[unlikely]]
      throw std::system_error(error(), why_);
    return {status, left, message};
  }
  /// Throws what MPI's blocking call has said, of the operation of that number.
  [[noreturn]] void fail_after(int return_code, std::uint64_t number) {
    sequence = number;
    fail(mpi::make_error(return_code));
    end_unposted();
    throw std::system_error(error(), why_);
  }

 private:
  using waiting = progress::engine::in_place;

  void start_and_wait() {
    waiting place(owner(), waiting::on_trouble::stay);
    place_ = &place;
    progress::engine& engine = owner();
    const bool stays =
        !engine.has_own_thread() && !engine.oversubscribed() && !engine.owes_turn_after_call();
    if (!stays) place.begin();
    if (start(stays)) {
      if (stays) return end(true);
      engine.complete(this);
    }
    place.wait(&is_over, &is_over_);
  }

  void leave_to_laps() override { place_->begin(); }

  void posted() override {}
  void tell(const failure_text& text) override { why_ = text.str(); }

  static bool is_over(const void* flag) {
    return static_cast<const std::atomic<bool>*>(flag)->load(std::memory_order_acquire);
  }
  static void ended(progress::operation* base, action what) {
    auto& self = static_cast<blocking_operation&>(*base);
    if (what == action::destroy) self.fail(errc::engine_stopped);
    self.end(what != action::destroy);
    progress::engine& engine = self.owner();
    self.is_over_.store(true, std::memory_order_release);  // the operation may be gone then
    engine.end_wait();
  }

  waiting* place_ = nullptr;
  std::atomic<bool> is_over_{false};
  std::string why_;
};

[[nodiscard]] COHORT_INLINE outcome_of_requests start_and_wait(communicator_state& on,
                                                               const body_functions& functions,
                                                               void* body) {
  const communicator_ref self{&on, on.generation.load(std::memory_order_relaxed)};
  return blocking_operation(self, functions, body).run();
}

/// Whether this thread may stay in a call of MPI.
[[nodiscard]] COHORT_INLINE bool may_stay(const communicator_state& on) noexcept {
  progress::engine& engine = on.engine;  // a thread of its own calls MPI too
  return on.source.usable() == errc{} && !engine.is_in_handler() && !engine.stopped() &&
         !engine.has_own_thread() && !engine.owes_turn_after_call();
}

/// By a blocking call of MPI, if this thread may stay there; else it has to be started.
[[nodiscard]] COHORT_INLINE outcome_of_requests call_mpi(communicator_state& on,
                                                         const body_functions& functions,
                                                         void* body) {
  const bool is_promised = on.backend == on.blocks;  // else there is one rank, which waits for none
  const bool is_message = functions.block != nullptr && is_promised;
  const bool has_call = is_message || (functions.call != nullptr && !functions.is_gated);
  if (!has_call || on.options.checks != checks::local || !may_stay(on) ||
      functions.check(body, on) != errc{}) {
    return start_and_wait(on, functions, body);
  }
  outcome_of_requests seen{{}, MPI_REQUEST_NULL, MPI_MESSAGE_NULL};
  std::uint64_t number = 0;
  int return_code = MPI_SUCCESS;
  if (is_message) {
    if (functions.bytes(body) <= mpi::max_int_count) {
      const request_source::guard hold(on.source);
      if (on.source.is_quiet()) number = ++on.sequence;
    }
    if (number == 0) return start_and_wait(on, functions, body);
    return_code = functions.block(body, on.plain.data, seen.status);
  } else {
    const collective_call call = functions.call(body);
    {
      const request_source::guard hold(on.source);
      if (!on.queues && (is_promised || on.source.is_quiet()) && on.blocks->takes(call)) {
        number = ++on.sequence;
        if (is_promised) on.by_backend.add(functions.bytes(body));
      }
    }
    if (number == 0) return start_and_wait(on, functions, body);
    const mpi::lock calls(!is_promised);
    return_code = on.blocks->run(call);
  }
  if (return_code == MPI_SUCCESS) [[likely]]
    return seen;
  const communicator_ref self{&on, on.generation.load(std::memory_order_relaxed)};
  blocking_operation(self, functions, body).fail_after(return_code, number);
}

}  // namespace cohort::comm::detail

namespace cohort::comm {

COHORT_INLINE outcome_of_requests communicator_state::run(const body_functions& functions,
                                                          void* body) {
  return blocks != nullptr ? detail::call_mpi(*this, functions, body)
                           : detail::start_and_wait(*this, functions, body);
}

}  // namespace cohort::comm
