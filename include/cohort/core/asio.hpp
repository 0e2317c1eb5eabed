// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// The one place that knows which Asio it is built on (1.22.1 up to the newest).
///
/// It includes the fine-grained headers that the library and the call sites in the documentation
/// need, and smooths over the names that moved between versions. `<asio.hpp>` is never included: it
/// costs a second per translation unit, this subset about 0.6 s.

#include <cohort/core/config.hpp>
#include <cohort/core/token.hpp>

#include <asio/version.hpp>

#if ASIO_VERSION < 102201
#error "cohort needs Asio 1.22.1 or newer"
#endif

// Asio before 1.26 switches coroutines off on Clang unless it is told otherwise, because it asks
// for the macro of the Coroutines TS. That must happen before the first Asio header is seen.
#if defined(__clang__) && ASIO_VERSION < 102600 && !defined(ASIO_HAS_CO_AWAIT)
#if defined(ASIO_DETAIL_CONFIG_HPP)
#error \
    "include a cohort header before the first Asio header, or define ASIO_HAS_CO_AWAIT=1: \
this Asio does not see Clang's C++20 coroutines by itself"
#endif
#define ASIO_HAS_CO_AWAIT 1
#if !defined(ASIO_HAS_STD_COROUTINE)
#define ASIO_HAS_STD_COROUTINE 1
#endif
#endif

#include <asio/any_io_executor.hpp>
#include <asio/associated_allocator.hpp>
#include <asio/associated_cancellation_slot.hpp>
#include <asio/associated_executor.hpp>
#include <asio/async_result.hpp>
#include <asio/awaitable.hpp>
#include <asio/bind_cancellation_slot.hpp>
#include <asio/bind_executor.hpp>
#include <asio/cancellation_signal.hpp>
#include <asio/co_spawn.hpp>
#include <asio/defer.hpp>
#include <asio/detached.hpp>
#include <asio/dispatch.hpp>
#include <asio/error.hpp>
#include <asio/execution_context.hpp>
#include <asio/io_context.hpp>
#include <asio/post.hpp>
#include <asio/redirect_error.hpp>
#include <asio/steady_timer.hpp>
#include <asio/system_executor.hpp>
#include <asio/this_coro.hpp>
#include <asio/use_awaitable.hpp>
#include <asio/use_future.hpp>
#if ASIO_VERSION < 102300
#include <asio/experimental/as_tuple.hpp>
#include <asio/experimental/deferred.hpp>
#else
#include <asio/as_tuple.hpp>
#include <asio/deferred.hpp>
#endif

#include <type_traits>
#include <typeinfo>
#include <utility>

COHORT_MUST_BE_SAME(asio, COHORT_TEXT(ASIO_VERSION));

namespace cohort {

#if ASIO_VERSION < 102300
using asio::experimental::deferred;
template <class Token>
using basic_as_tuple = asio::experimental::as_tuple_t<Token>;
#else
using asio::deferred;
template <class Token>
using basic_as_tuple = asio::as_tuple_t<Token>;
#endif

/// Type of `as_tuple`. Used bare it means `as_tuple(use_awaitable)`.
struct as_tuple_token : basic_as_tuple<asio::use_awaitable_t<>> {
  constexpr as_tuple_token() : basic_as_tuple<asio::use_awaitable_t<>>(asio::use_awaitable) {}

  template <class Token>
  [[nodiscard]] constexpr auto operator()(Token&& token) const {
    return basic_as_tuple<std::decay_t<Token>>(std::forward<Token>(token));
  }
};

/// Delivers the completion arguments, the error code included, as one `std::tuple` and throws
/// nothing: `auto [ec] = co_await cohort::barrier(world, cohort::as_tuple);`. Also
/// `cohort::as_tuple(token)`. One name on every Asio version (1.22 has no `asio::as_tuple`).
inline constexpr as_tuple_token as_tuple{};

namespace detail {

template <class Token, class Signature>
inline constexpr bool is_token_of<with_asio, Token, Signature> =
    asio::completion_token_for<Token, Signature>;

template <class... Arguments>
inline constexpr bool has_tokens<with_asio, Arguments...> = true;

template <class Context>
inline constexpr bool is_loop<with_asio, Context> = std::is_same_v<Context, asio::io_context>;

}  // namespace detail

/// Where a handler is called that no loop can call: on its own executor, or on a thread of Asio's
/// pool for the process. The pool is named here because from 1.37 on Asio's own default calls
/// handlers in place, which `post` refuses; and a handler of another library may only answer who
/// names one.
template <class Handler>
using executor_of_t = asio::associated_executor_t<Handler, asio::system_executor>;
template <class Handler>
[[nodiscard]] executor_of_t<Handler> executor_of(const Handler& handler) noexcept {
  return asio::get_associated_executor(handler, asio::system_executor());
}

/// What is inside a type-erased executor if that is a `Wanted`, else null. Asio 1.22 itself answers
/// `target<Wanted>()` with whatever is there: a strand would be taken for the loop that it is on.
template <class Wanted, class Executor>
[[nodiscard]] const Wanted* executor_inside(const Executor& executor) noexcept {
#if !defined(ASIO_NO_TYPEID)
  if (executor.target_type() != typeid(Wanted)) return nullptr;
#endif
  return executor.template target<Wanted>();
}

}  // namespace cohort

template <class Signature>
class asio::async_result<cohort::default_token, Signature> {
  using awaited = asio::async_result<asio::use_awaitable_t<>, Signature>;

 public:
  using return_type = typename awaited::return_type;
  using handler_type = typename awaited::handler_type;

  template <class Initiation, class Token, class... Arguments>
  static return_type initiate(Initiation&& initiation, Token&&, Arguments&&... arguments) {
    return awaited::initiate(std::forward<Initiation>(initiation), asio::use_awaitable_t<>(),
                             std::forward<Arguments>(arguments)...);
  }
};

template <class... Signatures>
class asio::async_result<cohort::as_tuple_token, Signatures...>
    : public asio::async_result<cohort::basic_as_tuple<asio::use_awaitable_t<>>, Signatures...> {};
