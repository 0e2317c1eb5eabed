// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// The operation behind every verb: handler, executor, cancellation and the verb's body.

#include <cohort/comm/detail/aborted_delivery.hpp>
#include <cohort/comm/memory_check.hpp>
#include <cohort/comm/operation.hpp>
#include <cohort/core/log.hpp>
#include <cohort/progress/associated_future.hpp>
#include <cohort/progress/deadline_record.hpp>
#include <cohort/progress/handler_executor.hpp>

#include <exception>
#include <memory>
#include <optional>
#include <system_error>
#include <type_traits>
#include <utility>

namespace cohort::comm::detail {

/// Which exception a handler is given that takes one in place of a code.
template <class Signature>
struct exception_of {
  static constexpr bool is_wanted = false;
};
template <class... Values>
struct exception_of<void(std::exception_ptr, Values...)> {
  static constexpr bool is_wanted = true;
  std::exception_ptr why;  // with all facts, once they have been told
};

/// The handler as a body calls it, with a code.
template <class Handler>
struct throwing_handler {
  Handler handler;
  std::exception_ptr why;

  template <class... Values>
  void operator()(std::error_code error, Values&&... values) {
    if (!error) why = nullptr;
    if (error && !why) why = std::make_exception_ptr(std::system_error(error));
    std::move(handler)(std::move(why), std::forward<Values>(values)...);
  }
};

template <class Handler, class Body, class Signature>
class typed_operation final : public request_operation {
  using memory = operation_memory<typed_operation, Handler>;

 public:
  typed_operation(Handler& handler, communicator_ref comm, Body&& body)
      : request_operation(&run), handler_(std::move(handler)), comm_(comm), body_(std::move(body)) {
    verb = Body::name;
    bytes = body_.bytes();
    cancellable = Body::cancellation == cancels::receive;
    if constexpr (requires(poster & post) { body_.advance(post); }) advance_ = &advance_body;
  }

  static typed_operation* make(Handler& handler, communicator_ref comm, Body&& body) {
    return memory::make(handler, comm, std::move(body));
  }

  /// 1. What this rank can see to be wrong ends the operation before any MPI call. 2. A backend may
  /// take it. 3. Everything is posted under the guard. After that the operation may be gone.
  void start() {
    connect_cancellation();
    if constexpr (fills_future) {
      future()->belongs_to(state().engine, *this, Body::cancellation != cancels::detach);
    }
    errc bad = state().source.usable();
    if (bad == errc{} && !comm_.alive()) bad = errc::invalid_communicator;
    if (bad == errc{} && state().engine.stopped()) bad = errc::engine_stopped;
    if (bad == errc{}) bad = body_.check(state());
    if (bad != errc{}) [[unlikely]] {
      fail(bad);
      describe();
      explain();
      state().engine.complete(this);
      return;
    }
    if constexpr (requires { body_.call(); }) {
      // What ranks must compare first is posted by MPI.
      if (!is_gated && state().backend && state().options.checks != checks::cross_rank)
          [[unlikely]] {
        const collective_call call = body_.call();
        if (state().backend->takes(call)) {
          {
            const request_source::guard hold(state().source);
            count_as_live();
            state().by_backend.add(bytes);
          }
          describe();
          state().backend->start(call, backend_completion(state().engine, *this));
          return;
        }
      }
    }
    post_now();
  }

 private:
  [[nodiscard]] communicator_state& state() const noexcept { return *comm_.state; }

  void post_now() {
    request_source& source = state().source;
    progress::engine& engine = state().engine;
    bool nothing_pending = false;
    {
      const request_source::guard hold(source);
      count_as_live();
      if constexpr (is_idle) state().source.mark_idle(*this);
      post_body();
      describe();
      nothing_pending = !source.pending(*this) && !waits_for_turn_;
    }
    // With something pending another thread's lap may have finished the operation by now.
    if (nothing_pending) {
      engine.complete(this);
    } else {
      engine.started();
    }
  }

  void count_as_live() noexcept {
    sequence = ++state().sequence;
    live_on = comm_.state;
    ++live_on->live;
  }

  /// What can wait until MPI has the request: it then costs no latency.
  void describe() {
    rank = state().data.rank();
    if constexpr (requires { body_.peer(); }) peer = body_.peer();
    if constexpr (!is_idle) executor_.set(*handler_, state().engine.get_executor());
  }

  static constexpr bool throws = exception_of<Signature>::is_wanted;
  static constexpr bool fills_future = progress::fills_future<Handler>;
  [[nodiscard]] auto future() const noexcept {
    return progress::associated_future<Handler>::get(*handler_);
  }

  static constexpr bool is_idle = requires { Body::idle; };
  static constexpr bool has_agreed = requires(const Body& body) { body.agreed(); };
  static constexpr bool is_gated = requires { Body::gated; };

  void post_body() noexcept {
    try {
      poster post(state(), *this);
      int rc = MPI_SUCCESS;
      if (has_agreed && (is_gated || state().queues) && !check_) [[unlikely]] {
        rc = post_check(post);
      } else {
        rc = body_.post(post);
      }
      if (rc != MPI_SUCCESS) [[unlikely]]
        fail(mpi::make_error(rc));
    } catch (const std::system_error& problem) {
      fail(problem.code());
    } catch (...) {
      fail(std::make_error_code(std::errc::not_enough_memory));
    }
  }

  int post_check(poster& post) {
    if constexpr (has_agreed) {
      advance_ = &advance_body;
      const auto post_it = [](request_operation* base) {
        static_cast<typed_operation*>(base)->post_body();
      };
      check_ = state().source.make_check(state(), *this, post_it);
      if constexpr (is_gated) {
        check_->hold();
        body_.begin(post, check_.get());
      } else if (state().options.checks == checks::cross_rank) {
        if (in_device_memory(body_) != nullptr) fail(errc::not_supported);  // the others are told
      }
      return check_->post(body_.agreed(), post);
    }
    return MPI_SUCCESS;
  }

  static bool advance_body(request_operation* base) {
    if constexpr (has_agreed) {
      const auto& check = static_cast<typed_operation*>(base)->check_;
      if (check && !check->done()) return check->completed();
    }
    if constexpr (requires(Body & body, poster & post) { body.advance(post); }) {
      auto* self = static_cast<typed_operation*>(base);
      poster post(self->state(), *self);
      return self->body_.advance(post);
    }
    return false;
  }

  void explain() {
    failure_text text(rank, verb, sequence);
    body_.explain(text);
    if (check_) check_->explain(text);
    if constexpr (has_agreed && !is_gated) {
      const bool asked = check_ && error() == errc::not_supported;
      const char* const field = asked ? in_device_memory(body_) : nullptr;
      if (field != nullptr) text.with(field, "device memory; pass a device::span of it");
    }
    if constexpr (fills_future) {
      if (handler_) future()->explain(error(), text.str());
    }
    if constexpr (throws) {
      exception_.why = std::make_exception_ptr(std::system_error(error(), text.str()));
    }
    state().fail(text.with_code(error()));
  }

  // ---- cancellation

  struct on_cancel {
    typed_operation* self;
    void operator()(asio::cancellation_type type) const { self->cancel(type); }
  };

  void connect_cancellation() {
    auto slot = asio::get_associated_cancellation_slot(*handler_);
    has_slot_ = slot.is_connected();
    if (has_slot_) slot.template emplace<on_cancel>(on_cancel{this});
    if constexpr (fills_future) {  // a dropped future cancels too, whatever slot was bound
      if (auto own = future()->slot(); own != slot)
        own.template emplace<on_cancel>(on_cancel{this});
    }
  }

  void disconnect_cancellation() {
    auto slot = asio::get_associated_cancellation_slot(*handler_);
    if constexpr (fills_future) {
      future()->clear_cancellation();  // its owner may cancel on another thread
      if (slot == future()->slot()) return;
    }
    if (has_slot_) slot.clear();
  }

  void cancel(asio::cancellation_type type) {
    if constexpr (Body::cancellation == cancels::receive) {
      if (type == asio::cancellation_type::none) return;
      if constexpr (requires { body_.give_up(); }) body_.give_up();
      state().source.cancel(*this);
    } else if constexpr (Body::cancellation == cancels::detach) {
      if ((type & asio::cancellation_type::terminal) != asio::cancellation_type::none) detach();
    } else {
      if (progress::emitting_deadline()) report_deadline();
    }
  }

  /// The handler leaves with `operation_aborted`; buffers stay until MPI is done with them.
  void detach() {
    using aborted = aborted_delivery<Handler, Signature>;
    progress::operation* farewell = nullptr;
    progress::engine& engine = state().engine;
    {
      const request_source::guard hold(state().source);
      const bool goes_on = request_source::pending(*this) || waits_for_turn_;
      if (!goes_on || !handler_) return;
      asio::get_associated_cancellation_slot(*handler_).clear();
      if constexpr (fills_future) future()->slot().clear();  // inside a cancellation: not locked
      farewell = operation_memory<aborted, Handler>::make(*handler_, std::move(executor_), engine);
      detached_memory_.emplace(memory::of(*handler_));
      handler_.reset();
      if constexpr (requires { body_.let_go(); }) body_.let_go();
    }
    engine.complete(farewell);
  }

  void report_deadline() {
    const bool abort = state().options.on_deadline == on_deadline::abort;
    failure_text text(rank, verb, sequence);
    text.with("bytes", bytes);
    if (live_on != nullptr) text.note(state().source.age_of(*this));  // else it is complete
    text.note(abort ? "ending the job" : "MPI cannot give it up; waiting on");
    const failure what = text.with_code(errc::deadline_exceeded);
    state().fail(what);
    if (abort) process::end_job(what.text);
  }

  // ---- the end

  static void run(operation* base, action what) {
    auto* self = static_cast<typed_operation*>(base);
    // Here, because by the time a foreign executor has its turn the engine may be gone.
    if (self->live_on != nullptr) self->no_longer_live(what == action::deliver);
    if (what == action::deliver && self->handler_ && self->executor_.is_foreign()) {
      self->executor_.dispatch(self->state().engine.loop(), *self);
    } else {
      self->release(what != action::destroy);
    }
  }

  // Everything the handler needs moves to the stack and the memory goes back, so that the handler's
  // next operation finds it.
  void release(bool deliver) {
    if (!handler_) {  // detached
      auto allocator = *detached_memory_;
      free_self(allocator);
      return;
    }
    // Where the handler is not called, the context is going away and the signal may be gone
    // already.
    if (deliver) disconnect_cancellation();
    auto allocator = memory::of(*handler_);
    std::error_code result = error();
    if constexpr (fills_future) {
      if (deliver && !future()->begin_finish()) result = asio::error::operation_aborted;
    }
    const outcome_of_requests outcome{status, left, message};
    auto exception = std::move(exception_);
    Handler handler(std::move(*handler_));
    Body body(std::move(body_));
    free_self(allocator);
    if (!deliver) return;
    if constexpr (throws) {
      throwing_handler<Handler> told{std::move(handler), std::move(exception.why)};
      body.finish(std::move(told), result, outcome);
    } else {
      body.finish(std::move(handler), result, outcome);
    }
  }

  /// A failed operation, or one that was complete when it was posted.
  void no_longer_live(bool deliver) {
    if (deliver && failed() && error() != asio::error::operation_aborted) explain();
    const request_source::guard hold(state().source);
    --live_on->live;
    if (live_on->closing) live_on->free_if_unused();
    live_on = nullptr;
  }

  void free_self(typename memory::allocator& allocator) {
    this->~typed_operation();
    memory::traits::deallocate(allocator, this, 1);
  }

  progress::handler_executor<Handler> executor_;
  std::optional<Handler> handler_;  // empty once detached
  std::optional<typename memory::allocator> detached_memory_;
  std::unique_ptr<argument_check> check_;  // only with checks::cross_rank
  bool has_slot_ = false;
  communicator_ref comm_;
  Body body_;
  [[no_unique_address]] exception_of<Signature> exception_;
};

template <class Signature>
template <class Handler, class Body>
void start_operation<Signature>::operator()(Handler&& handler, communicator_ref comm,
                                            Body&& body) const {
  using handler_type = std::decay_t<Handler>;
  if (comm.state == nullptr) [[unlikely]] {
    // There is no engine to complete it through; Asio's own loop must do.
    const auto executor = executor_of(handler);  // before it is moved from
    asio::post(executor, [handler = handler_type(std::forward<Handler>(handler))]() mutable {
      with_defaults<Signature>::call(std::move(handler),
                                     make_error_code(errc::invalid_communicator));
    });
    return;
  }
  using operation = typed_operation<handler_type, Body, Signature>;
  if constexpr (std::is_same_v<Handler, handler_type>) {
    operation::make(handler, comm, std::move(body))->start();
  } else {
    handler_type copy(handler);
    operation::make(copy, comm, std::move(body))->start();
  }
}

}  // namespace cohort::comm::detail
