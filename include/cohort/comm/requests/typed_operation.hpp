// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// The operation behind a verb whose token makes a handler: its executor and its cancellation.

#include <cohort/comm/operation.hpp>
#include <cohort/comm/requests/body_operation.hpp>
#include <cohort/progress/handler_operation.hpp>
#include <cohort/progress/operation.hpp>

#include <exception>
#include <memory>
#include <string>
#include <system_error>
#include <tuple>
#include <type_traits>
#include <utility>

namespace cohort::comm::detail {

/// What a handler is given that takes an exception in place of a code.
template <class Signature>
struct exception_of {
  static constexpr bool is_wanted = false;
  static std::error_code in_place_of(std::error_code error) noexcept { return error; }
};
template <class... Values>
struct exception_of<void(std::exception_ptr, Values...)> {
  static constexpr bool is_wanted = true;
  std::exception_ptr why;  // with all facts, once they have been told

  std::exception_ptr in_place_of(std::error_code error) {
    if (!error) return nullptr;
    return why ? std::move(why) : std::make_exception_ptr(std::system_error(error));
  }
};

/// What a handler of `Signature` is told of an error: that, and nothing else worth having.
template <class Signature>
struct only_error;
template <class... Values>
struct only_error<void(std::error_code, Values...)> {
  static std::tuple<std::error_code, Values...> of(std::error_code error) {
    return {error, Values()...};
  }
};
template <class... Values>
struct only_error<void(std::exception_ptr, Values...)> {
  static std::tuple<std::exception_ptr, Values...> of(std::error_code error) {
    return {std::make_exception_ptr(std::system_error(error)), Values()...};
  }
};

template <class Handler, class Body, class Signature>
class typed_operation final
    : public progress::handler_operation<typed_operation<Handler, Body, Signature>, Handler,
                                         body_operation> {
  using parent = typename typed_operation::handler_operation;
  using parent::fills_future;
  using parent::future;
  using parent::has_handler;
  using parent::state;
  using typename parent::action;

 public:
  typed_operation(Handler& handler, communicator_ref comm, Body&& body)
      : parent(handler, comm, functions_of<Body>, std::addressof(body_), body.bytes()),
        body_(std::move(body)) {}

  /// After that the operation may be gone.
  void start() {
    progress::engine& engine = state().engine;
    this->connect_cancellation(engine, Body::cancellation != cancels::detach);
    if (parent::start()) engine.complete(this);
  }

  void cancel(asio::cancellation_type type) {
    if constexpr (Body::cancellation == cancels::receive) {
      if constexpr (requires { body_.give_up(); }) body_.give_up();
      state().source.cancel(*this);
    } else if constexpr (Body::cancellation == cancels::detach) {
      if ((type & asio::cancellation_type::terminal) != asio::cancellation_type::none) detach();
    } else {
      if (progress::emitting_deadline()) this->report_deadline();
    }
  }

  void leaves(action what) { this->end(what == action::deliver); }

  /// What `finish` needs moves to the stack, for the operation's memory goes back before it.
  [[nodiscard]] auto outcome(bool dropped) {
    return [body = std::move(body_), why = std::move(exception_),
            result = dropped ? std::error_code(asio::error::operation_aborted) : this->error(),
            seen = outcome_of_requests{this->status, this->left, this->message, dropped}](
               Handler&& handler) mutable {
      std::apply(
          [&](auto&&... values) {
            std::move(handler)(why.in_place_of(result), std::move(values)...);
          },
          body.finish(result, seen));
    };
  }

 private:
  void posted() override { this->find_executor(state().engine); }
  void tell(const failure_text& text) override {
    if constexpr (fills_future) {
      if (has_handler()) future()->explain(this->error(), text.str());
    }
    if constexpr (exception_of<Signature>::is_wanted) {
      exception_.why = std::make_exception_ptr(std::system_error(this->error(), text.str()));
    }
  }

  /// The handler leaves with `operation_aborted`; buffers stay until MPI, or a backend, is done
  /// with them.
  void detach() {
    progress::operation* farewell = nullptr;
    progress::engine& engine = state().engine;
    {
      const request_source::guard hold(state().source);
      const request_operation::stay_in_backend stays(*this);
      const bool goes_on = request_source::pending(*this) || this->waits_for_turn_ || stays;
      if (!goes_on || !has_handler()) return;
      farewell = parent::detach(engine, only_error<Signature>::of(asio::error::operation_aborted));
      if constexpr (requires { body_.let_go(); }) body_.let_go();
    }
    engine.complete(farewell);
  }

  Body body_;
  [[no_unique_address]] exception_of<Signature> exception_;
};

template <class Signature>
template <class Handler, class Body>
void start_operation<Signature>::operator()(Handler&& handler, communicator_ref comm,
                                            Body&& body) const {
  using handler_type = std::decay_t<Handler>;
  if (comm.state == nullptr) [[unlikely]] {
    progress::post_without_engine(std::forward<Handler>(handler), [](handler_type&& own) {
      std::apply(std::move(own),
                 only_error<Signature>::of(make_error_code(errc::invalid_communicator)));
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
