// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// Bodies of `comm/requests/body_operation.hpp`.

#include <cohort/comm/requests/body_operation.hpp>
#include <cohort/core/log.hpp>
#include <cohort/core/process.hpp>
#include <cohort/progress/engine.hpp>

#include <atomic>
#include <cstdint>
#include <string>
#include <system_error>
#include <utility>

namespace cohort::comm::detail {

COHORT_INLINE bool body_operation::start() {
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
    count_as_live(functions_.is_numbered ? state().sequence.next() : 0);
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
    describe();
  }
  // With something pending another thread's lap may have finished the operation by now.
  if (backend == nullptr && has_ended) return true;
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

COHORT_INLINE void body_operation::count_as_live(std::uint64_t number) noexcept {
  sequence = number;
  live_on = comm_.state;
  ++live_on->live;
}

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

}  // namespace cohort::comm::detail
