// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Functions that another process calls: which may be called so, how their arguments become
/// bytes, and how they run on the other side.
///
/// ```
/// std::vector<double> scaled(std::span<const double> values, double by);  // may be called
/// asio::awaitable<int> counted(cluster::call_context& context, std::string path);  // so may this
/// void doubled(double& value);  // not this: it would change a copy, and does not compile
/// ```
///
/// Nothing here sends anything. The caller's side is encode_arguments and decode_result; the
/// callee's side is run<F> or run_now<F>, found by its number in the function table as remote<F>
/// registers it.

#include <cohort/cluster/link/attachment.hpp>
#include <cohort/core/asio.hpp>
#include <cohort/core/error.hpp>
#include <cohort/core/function_table.hpp>
#include <cohort/core/wire.hpp>
#include <cohort/core/wire_std.hpp>

#include <cstddef>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace cohort::cluster {

/// Who calls, and how the call may be given up. A callee may take it by reference as its first
/// parameter, which is then no argument of the call.
class call_context;

/// A callee in the table, from the arguments to the result as they travel: a coroutine. What the
/// callee throws leaves it; what are no arguments of its own is a cohort::error whose code is a
/// wire_errc and whose text names the function and the argument.
using runner = asio::awaitable<payload>(call_context&, payload);
/// The same of a callee that is no coroutine.
using plain_runner = payload(call_context&, payload);

namespace detail {
template <auto F>
struct checked;
}  // namespace detail

/// What is known about the function or captureless lambda `F`. It must be a function that can be
/// named by one pointer: neither overloaded nor a template.
///
/// A callee takes its arguments by value, by `const T&` or `T&&`: what arrives is stored until the
/// callee has ended, a coroutine included. `std::string_view` and `std::span<const T>` with a
/// trivially copyable T are views of the message, without a copy. What would change the caller's
/// objects or point into its memory does not compile.
///
/// An argument or a result that is a vector of numbers or bytes, a text, or a span, of at least
/// `attachment_size` bytes, is received in the memory in which the callee or the caller gets it.
template <auto F>
struct callee {
  /// What it returns; for a coroutine asio::awaitable<R> this is R.
  using result = typename detail::checked<F>::result;
  /// A coroutine is awaited, anything else is called.
  static constexpr bool is_coroutine = detail::checked<F>::is_coroutine;
  static constexpr bool takes_context = detail::checked<F>::takes_context;
  /// How many arguments a call has.
  static constexpr std::size_t arity = detail::checked<F>::arity;
  /// What the compiler calls it, for messages.
  static constexpr std::string_view name() noexcept { return function_name<F>(); }
};

/// The arguments of a call of F as they travel. They are converted to the parameters' types first,
/// as in any call, so that an int for a double travels as a double. Nothing is kept of arguments
/// that are lvalues; large rvalues are moved and sent from where they lie. O(bytes), one copy of
/// what is not moved.
template <auto F, class... Args>
[[nodiscard]] payload encode_arguments(Args&&... arguments);

/// Calls F with the arguments and returns its result, which is empty for void. For functions that
/// are no coroutines; on the calling thread. The arguments live until F returns.
template <auto F>
[[nodiscard]] payload run_now(call_context& context, payload arguments);

/// The same for coroutines, which it awaits. The context must live until it ends.
template <auto F>
asio::awaitable<payload> run(call_context& context, payload arguments);

namespace detail {
template <auto F>
[[nodiscard]] constexpr auto callee_code() noexcept {
  if constexpr (checked<F>::ok && !checked<F>::is_coroutine) {
    return &run_now<F>;
  } else {
    return &run<F>;
  }
}
}  // namespace detail

/// F in the function table: `remote<F>::index()` is its number, and in every process of the program
/// `function_table::instance().at<Type>(number)` is run<F>, whose type is runner, if F is a
/// coroutine, else run_now<F>, a plain_runner.
template <auto F>
using remote = registered<detail::callee_code<F>(), F>;

/// The result of a callee that returns R. Throws cohort::error with a wire_errc if it is none;
/// `name` is the function's, for that text.
template <class R>
[[nodiscard]] R decode_result(payload result, std::string_view name = "?");

}  // namespace cohort::cluster

#include <cohort/cluster/detail/function.ipp>
