// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// A verb's body at work: how it starts, goes from stage to stage and ends, whoever waits for it.

#include <cohort/comm/operation.hpp>
#include <cohort/core/log.hpp>

#include <memory>
#include <string>
#include <system_error>
#include <utility>

namespace cohort::comm::detail {

/// \tparam Waiter (of some functions) is what derives from it. It has
/// - `void posted()`, called once the body is with MPI, under the guard,
/// - `void tell(const failure_text&)`, what is to be said of the error that the body has failed
///   with.
template <class Body>
class body_operation : public request_operation {
 public:
  [[nodiscard]] progress::engine& owner() const noexcept { return state().engine; }

 protected:
  body_operation(function run, communicator_ref comm, Body&& body)
      : request_operation(run), comm_(comm), body_(std::move(body)) {
    this->verb = Body::name;
    this->bytes = body_.bytes();
    this->cancellable = Body::cancellation == cancels::receive;
    if constexpr (requires(poster& post) { body_.advance(post); }) this->advance_ = &advance_body;
  }
  ~body_operation() = default;

  [[nodiscard]] communicator_state& state() const noexcept { return *comm_.state; }

  /// What this rank can see to be wrong ends the operation before any MPI call. Under the guard it
  /// is posted, or queued, or a backend is found that takes it. After that the operation may be
  /// gone.
  template <class Waiter>
  void start(Waiter& waiter) {
    request_source& source = state().source;
    progress::engine& engine = state().engine;
    errc bad = source.usable();
    if (bad == errc{} && !comm_.alive()) bad = errc::invalid_communicator;
    if (bad == errc{} && engine.stopped()) bad = errc::engine_stopped;
    const bool usable = bad == errc{};
    if (usable) bad = body_.check(state());
    if (bad != errc{}) [[unlikely]] {
      this->fail(bad);
      const bool compares = usable && has_agreed && state().options.checks == checks::cross_rank;
      if (!compares) {  // else the others are told
        end_unposted(waiter);
        return engine.complete(this);
      }
    }
    any_backend* backend = nullptr;
    bool nothing_pending = false;
    {
      const request_source::guard hold(source);
      count_as_live();
      const bool waits = has_agreed && (is_gated || keeps_turn<Body> || state().queues);
      try {
        if (!waits) backend = find_backend();
        if (backend == nullptr) [[likely]] {
          poster post(state(), *this);
          const int rc = waits ? post_check(post) : body_.post(post);
          if (rc != MPI_SUCCESS) [[unlikely]]
            this->fail(mpi::make_error(rc));
        }
      } catch (...) {
        this->fail_as_thrown();
      }
      if (this->failed() && !waits) [[unlikely]]
        not_begun();
      describe();
      waiter.posted();
      nothing_pending = !source.pending(*this) && !this->waits_for_turn_;
    }
    // With something pending another thread's lap may have finished the operation by now.
    if (backend != nullptr) [[unlikely]] {
      give_to(*backend);
    } else if (nothing_pending) {
      engine.complete(this);
    } else {
      engine.started();
    }
  }

  /// When it ends, and its handler is to be called if `deliver`. Here, because by the time a
  /// foreign executor has its turn the engine may be gone.
  template <class Waiter>
  void end(bool deliver, Waiter& waiter) {
    if (this->live_on != nullptr) no_longer_live(deliver, waiter);
  }

  /// The same for what was never started.
  template <class Waiter>
  void end_unposted(Waiter& waiter) {
    describe();
    waiter.posted();
    explain(waiter);
  }

  void report_deadline() {
    const bool abort = state().options.on_deadline == on_deadline::abort;
    failure_text text = name();
    text.with("bytes", this->bytes);
    std::string who = "MPI";
    if (this->live_on != nullptr) {  // else it is complete
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

  const communicator_ref comm_;
  Body body_;

 private:
  /// Null if MPI does it: what ranks must compare first, say. With the guard held.
  [[nodiscard]] any_backend* find_backend() {
    if constexpr (requires { body_.call(); }) {
      if (state().choosing != backend_choosing::over) [[unlikely]]
        state().choose_backend();
      any_backend* const found = state().backend.get();
      if (is_gated || found == nullptr || state().options.checks == checks::cross_rank)
        return nullptr;
      if (!found->takes(body_.call())) return nullptr;
      state().by_backend.add(this->bytes);
      return found;
    }
    return nullptr;
  }
  /// The program may try it again, so its number is given to the next one. With the guard held.
  void not_begun() noexcept {
    if constexpr (requires { body_.call(); }) {
      const bool has_number = state().choosing != backend_choosing::over;
      if (has_number && !request_source::pending(*this) && !this->waits_for_turn_)
        --state().collectives;
    }
  }
  void give_to(any_backend& backend) {
    if constexpr (requires { body_.call(); }) {
      if constexpr (Body::cancellation == cancels::detach) this->enter_backend();
      backend.start(body_.call(), backend_completion(state().engine, *this));
    }
  }

  void count_as_live() noexcept {
    if constexpr (is_numbered) this->sequence = ++state().sequence;
    this->live_on = comm_.state;
    ++this->live_on->live;
  }

  /// What can wait until MPI has the request: it then costs no latency.
  void describe() {
    this->rank = state().data.rank();
    if constexpr (requires { body_.peer(); }) this->peer = body_.peer();
  }

  static constexpr bool has_agreed = requires(const Body& body) { body.agreed(); };
  static constexpr bool is_gated = requires { Body::gated; };
  static constexpr bool is_numbered = !requires { Body::unnumbered; };

  int post_check(poster& post) {
    if constexpr (has_agreed) {
      this->advance_ = &advance_body;
      check_ = state().source.make_check(state(), *this, &post_checked);
      const bool compares = state().options.checks == checks::cross_rank;
      if (this->failed()) {
        // Its arguments cannot be right: it is compared and never posted.
      } else if constexpr (is_gated) {
        check_->hold();
        try {
          body_.begin(post, check_.get());
        } catch (...) {
          if (!compares) throw;
          this->fail_as_thrown();  // the others are told
        }
      } else if (compares) {
        if (in_device_memory(body_) != nullptr)
          this->fail(errc::not_supported);  // the others are told
      }
      return check_->post(body_.agreed(), post);
    }
    return MPI_SUCCESS;
  }
  /// It is its turn. With the guard held.
  static void post_checked(request_operation* base) noexcept {
    auto& self = *static_cast<body_operation*>(base);
    try {
      if (any_backend* const backend = self.find_backend()) {
        self.waits_for_turn_ = true;  // without a request, and not at its end
        return self.give_to(*backend);
      }
      if constexpr (keeps_turn<Body>) {
        self.check_->hold();
        self.advances_failed_ = true;
      }
      poster post(self.state(), self);
      post.check(self.body_.post(post));
    } catch (...) {
      self.waits_for_turn_ = false;
      self.fail_as_thrown();
    }
    if (self.failed()) self.not_begun();
  }

  static bool advance_body(request_operation* base) {
    if constexpr (has_agreed) {
      const auto& check = static_cast<body_operation*>(base)->check_;
      if (check && !check->done()) return check->completed();
    }
    if constexpr (requires(Body& body, poster& post) { body.advance(post); }) {
      auto* self = static_cast<body_operation*>(base);
      poster post(self->state(), *self);
      if constexpr (keeps_turn<Body>) return self->advance_and_pass(post);
      return self->body_.advance(post);
    }
    return false;
  }
  /// The stage before has ended, well or not: after this one it is the others' turn.
  bool advance_and_pass(poster& post) {
    advances_failed_ = false;
    bool more = false;
    try {
      more = !this->failed() && body_.advance(post);
    } catch (...) {
      this->fail_as_thrown();
    }
    check_->open({});
    return more;
  }

  [[nodiscard]] failure_text name() const {
    if constexpr (is_numbered) return failure_text(this->rank, this->verb, this->sequence);
    return failure_text(this->rank, this->verb);
  }

  template <class Waiter>
  void explain(Waiter& waiter) {
    failure_text text = name();
    body_.explain(text);
    if (check_) check_->explain(text);
    if constexpr (has_agreed && !is_gated) {
      const bool asked = check_ && this->error() == errc::not_supported;
      const char* const field = asked ? in_device_memory(body_) : nullptr;
      if (field != nullptr) text.with(field, "device memory; pass a device::span of it");
    }
    waiter.tell(text);
    state().fail(text.with_code(this->error()));
  }

  [[nodiscard]] bool backend_has_it() {
    const request_source::guard hold(state().source);
    return state().backend && !request_source::pending(*this) && !this->waits_for_turn_;
  }
  /// A failed operation, or one that was complete when it was posted.
  template <class Waiter>
  void no_longer_live(bool deliver, Waiter& waiter) {
    if (deliver && this->failed() && this->error() != asio::error::operation_aborted)
      explain(waiter);
    const request_source::guard hold(state().source);
    --this->live_on->live;
    if (this->live_on->closing) this->live_on->free_if_unused();
    this->live_on = nullptr;
  }

  std::unique_ptr<argument_check> check_;  // only with checks::cross_rank
};

}  // namespace cohort::comm::detail
