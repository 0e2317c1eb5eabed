// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// The operations that wait in a scope with their handlers.

#include <cohort/core/asio.hpp>
#include <cohort/graph/error.hpp>
#include <cohort/graph/runtime/open_scope.hpp>
#include <cohort/graph/value.hpp>
#include <cohort/progress/handler_operation.hpp>

#include <chrono>
#include <concepts>
#include <exception>
#include <memory>
#include <source_location>
#include <string>
#include <system_error>
#include <tuple>
#include <type_traits>
#include <utility>

namespace cohort::graph::runtime {

/// Who waits in a scope. The body says for what: `start(waiter, scope)` hands it in,
/// `cancel(waiter, scope)` asks for its end, and `finish(waiter)` gives what the handler is told.
template <class Handler, class Body>
class await_operation final
    : public progress::handler_operation<await_operation<Handler, Body>, Handler>,
      public waiter {
 public:
  await_operation(Handler& handler, open_scope& where, Body&& body)
      : await_operation::handler_operation(handler),
        where_(where),
        keep_(where.keep()),
        body_(std::move(body)) {}

  /// After this the operation may be gone.
  void start() {
    this->connect(owner(), false);
    owner().get_executor().on_work_started();
    try {
      body_.start(*this, where_);
    } catch (...) {
      error = std::current_exception();
      end();
    }
  }

  [[nodiscard]] progress::engine& owner() const noexcept { return where_.engine(); }
  void cancel(asio::cancellation_type) { body_.cancel(*this, where_); }
  [[nodiscard]] auto outcome(bool dropped) {
    if (dropped) error = std::make_exception_ptr(std::system_error(asio::error::operation_aborted));
    return [until_the_end = work{owner(), std::move(keep_)}, result = body_.finish(*this)](
               Handler&& handler) mutable { std::apply(std::move(handler), std::move(result)); };
  }

  void end() override { owner().post(this); }
  void drop() noexcept override { this->destroy(); }

 private:
  /// Ends when the handler has returned.
  struct work {
    work(progress::engine& of, std::shared_ptr<void> with) noexcept
        : engine(&of), keep(std::move(with)) {}
    work(work&&) noexcept = default;
    ~work() {
      if (keep && !engine->stopped()) engine->get_executor().on_work_finished();
    }
    progress::engine* engine;
    std::shared_ptr<void> keep;
  };

  open_scope& where_;
  std::shared_ptr<void> keep_;
  Body body_;
};

struct start_await : progress::initiation {
  using progress::initiation::initiation;

  template <class Handler, class Body>
  void operator()(Handler&& handler, open_scope* where, Body&& body) const {
    using handler_type = std::decay_t<Handler>;
    using body_type = std::decay_t<Body>;
    if (where == nullptr) {
      progress::post_without_engine(std::forward<Handler>(handler), [](handler_type&& own) {
        std::apply(std::move(own), body_type::nowhere());
      });
      return;
    }
    handler_type own(std::forward<Handler>(handler));
    await_operation<handler_type, body_type>::make(own, *where, std::move(body))->start();
  }
};

template <class Body, class Token>
auto initiate(open_scope* where, Body&& body, Token& token) {
  using signature = typename std::decay_t<Body>::signature;
  progress::engine* const engine = where != nullptr ? &where->engine() : nullptr;
  return asio::async_initiate<Token, signature>(start_await(engine), token, where,
                                                std::forward<Body>(body));
}

// ---- a value ------------------------------------------------------------------------------------

template <class T>
struct value_signature {
  using type = void(std::exception_ptr, T);
};
template <>
struct value_signature<void> {
  using type = void(std::exception_ptr);
};

/// The part that knows no type.
struct awaited_task {
  machine::task_name name;
  std::uint64_t window = 0;
  machine::producer who = 0;
  bool takes = false;
  machine::content_ptr refused;  ///< what a spawn has said
  std::source_location site;

  void start(waiter& one, open_scope& where) {
    if (refused || window != where.window() || window == 0) {
      one.what = refused ? std::move(refused) : where.stale(name, window, site);
      one.end();
    } else {
      where.await(who, name, takes, site, one);
    }
  }
  void cancel(waiter& one, open_scope& where) const { where.withdraw(name, one); }
};

template <class T>
struct value_body : awaited_task {
  using signature = typename value_signature<T>::type;

  [[nodiscard]] static auto nowhere() {
    return result(std::make_exception_ptr(cohort::error(errc::invalid_argument, "graph: no task")));
  }
  [[nodiscard]] auto finish(waiter& one) const {
    if (!one.error && !one.what) {  // the context goes away
      one.error = std::make_exception_ptr(std::system_error(asio::error::operation_aborted));
    }
    if (!one.error && one.what->failed() != nullptr) one.error = exception_of(*one.what->failed());
    auto all = result(std::move(one.error));
    if constexpr (!std::is_void_v<T>) {
      if (!std::get<0>(all)) {
        try {
          take(one, std::get<1>(all));
        } catch (...) {
          std::get<0>(all) = std::current_exception();
        }
      }
    }
    one.what = nullptr;
    return all;
  }

 private:
  template <class U>
  static void take(waiter& one, U& to) {
    U& value = value_in<U>(*one.what);
    if (one.may_move) {
      to = std::move(value);
    } else if constexpr (std::is_copy_assignable_v<U>) {
      to = value;
    } else {
      throw cohort::error(
          errc::not_supported,
          std::string("graph: a ").append(type_name<U>()).append(" cannot be copied: take it"));
    }
  }
  [[nodiscard]] static auto result(std::exception_ptr why) {
    if constexpr (std::is_void_v<T>) {
      return std::tuple<std::exception_ptr>(std::move(why));
    } else {
      return std::tuple<std::exception_ptr, T>(std::move(why), T());
    }
  }
};

// ---- a window -----------------------------------------------------------------------------------

struct window_body {
  using signature = void(std::exception_ptr, report);
  machine::producer who = 0;
  machine::window_end how{};
  std::uint64_t opening = 0;
  bool reports = false;  ///< also what is wrong: for who closes

  [[nodiscard]] static std::tuple<std::exception_ptr, report> nowhere() {
    return {std::make_exception_ptr(cohort::error(errc::closed, "graph: no scope")), report()};
  }
  void start(waiter& one, open_scope& where) const {
    if (opening == where.opening()) return where.end_window(who, how, one);
    if (reports) {  // the other ranks have closed it
      one.report = where.last_report();
      return one.end();
    }
    throw cohort::error(errc::closed, "graph: the scope has ended");
  }
  /// Not withdrawn: the other ranks are in it too (graph C4).
  static void cancel(waiter& one, open_scope& where) { where.cancel_window(one); }
  [[nodiscard]] std::tuple<std::exception_ptr, report> finish(waiter& one) const {
    if (!one.error && !reports && (one.report.cancelled || one.report.closed)) {
      one.error = one.report.cancelled ? exception_of(cancellation_by(*one.report.cancelled))
                                       : std::make_exception_ptr(error(one.report));
    }
    return {std::move(one.error), std::move(one.report)};
  }
};

// ---- a report of what waits ---------------------------------------------------------------------

struct stall_body {
  using signature = void(std::exception_ptr, machine::stall_report);
  std::uint64_t opening = 0;
  bool withdrawn = false;  ///< see open_scope::ask

  [[nodiscard]] static std::tuple<std::exception_ptr, machine::stall_report> nowhere() {
    return {std::make_exception_ptr(cohort::error(errc::closed, "graph: no scope")), {}};
  }
  void start(waiter& one, open_scope& where) const {
    if (opening == 0 || opening != where.opening()) return one.end();
    where.ask(one, withdrawn);
  }
  static void cancel(waiter& one, open_scope& where) { where.stop_asking(one); }
  [[nodiscard]] static std::tuple<std::exception_ptr, machine::stall_report> finish(waiter& one) {
    return {std::move(one.error), std::move(one.stalled)};
  }
};

/// The end of the time to answer. Its handler may be called when nobody waits any more.
struct asking_time {
  explicit asking_time(const asio::any_io_executor& executor, std::chrono::nanoseconds within)
      : timer(executor, within) {}
  asio::steady_timer timer;
  asio::cancellation_signal stop;
};

/// Who has not answered in time is silent.
template <class Scope>
asio::awaitable<machine::stall_report> ask_within(Scope* where, std::uint64_t opening,
                                                  std::chrono::nanoseconds within,
                                                  bool withdrawn = false) {
  const auto time = std::make_shared<asking_time>(co_await asio::this_coro::executor, within);
  time->timer.async_wait([weak = std::weak_ptr(time)](const std::error_code& before) {
    const auto alive = weak.lock();
    if (!before && alive) alive->stop.emit(asio::cancellation_type::terminal);
  });
  auto token = asio::bind_cancellation_slot(time->stop.slot(), asio::use_awaitable);
  auto asking = initiate(where, stall_body{opening, withdrawn}, token);
  machine::stall_report told = co_await std::move(asking);
  co_return told;
}

}  // namespace cohort::graph::runtime
