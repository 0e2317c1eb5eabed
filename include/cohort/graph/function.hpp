// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// What may be the function of a task.
///
///     tile update(const tile& row, const tile& column, tile c);          // this may
///     asio::awaitable<tile> fetch(graph::task_context& context, int i);  // and a coroutine
///     result choose(result best, std::span<const result> each);          // of many tasks
///     void change(tile& one);  // not this: it would change what others read

#include <cohort/core/asio.hpp>
#include <cohort/core/function_table.hpp>
#include <cohort/graph/value.hpp>

#include <cstddef>
#include <span>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <vector>

namespace cohort::graph {

class task_context;

namespace runtime {

template <class... T>
struct types {
  static constexpr std::size_t size = sizeof...(T);
  template <std::size_t Index>
  using at = std::tuple_element_t<Index, std::tuple<T...>>;
};

// ---- its signature ------------------------------------------------------------------------------

/// Primary: not something that can be called in one way.
template <class Function>
struct signature {
  static constexpr bool known = false;
  using result = void;
  using parameters = types<>;
};
template <class Result, class... Parameters>
struct signature<Result(Parameters...)> {
  static constexpr bool known = true;
  using result = Result;
  using parameters = types<Parameters...>;
};
template <class Result, class... Parameters>
struct signature<Result(Parameters...) noexcept> : signature<Result(Parameters...)> {};
template <class Result, class Class, class... Parameters>
struct signature<Result (Class::*)(Parameters...) const> : signature<Result(Parameters...)> {};
template <class Result, class Class, class... Parameters>
struct signature<Result (Class::*)(Parameters...) const noexcept>
    : signature<Result(Parameters...)> {};

template <class Callee>
struct signature_of : signature<std::remove_pointer_t<Callee>> {};
template <class Callee>
  requires(std::is_empty_v<Callee> && requires { &Callee::operator(); })
struct signature_of<Callee> : signature<decltype(&Callee::operator())> {};

template <class Parameters>
struct without_context {
  static constexpr bool there = false;
  using parameters = Parameters;
};
template <class... Parameters>
struct without_context<types<task_context&, Parameters...>> {
  static constexpr bool there = true;
  using parameters = types<Parameters...>;
};
template <class... Parameters>
struct without_context<types<const task_context&, Parameters...>>
    : without_context<types<task_context&, Parameters...>> {};

template <class Result>
struct awaited {
  static constexpr bool is_coroutine = false;
  using type = Result;
};
template <class Result>
struct awaited<asio::awaitable<Result>> {
  static constexpr bool is_coroutine = true;
  using type = Result;
};

// ---- its parameters and result ------------------------------------------------------------------

template <class T>
inline constexpr bool is_span = false;
template <class T, std::size_t N>
inline constexpr bool is_span<std::span<T, N>> = true;
template <class T>
inline constexpr bool is_constant_span = false;
template <class T>
inline constexpr bool is_constant_span<std::span<const T>> = true;
template <class T>
inline constexpr bool is_vector = false;
template <class T>
inline constexpr bool is_vector<std::vector<T>> = true;

/// Whether a task may take it: nothing that would change what others read.
template <class Parameter>
inline constexpr bool reads_only =
    !(std::is_lvalue_reference_v<Parameter> &&
      !std::is_const_v<std::remove_reference_t<Parameter>>) &&
    (!is_span<std::remove_cvref_t<Parameter>> || is_constant_span<std::remove_cvref_t<Parameter>>);

template <class T>
inline constexpr bool is_view = is_span<T> || std::is_same_v<T, std::string_view>;
/// Whether it can be kept: it owns what it is.
template <class T>
inline constexpr bool is_kept =
    !std::is_reference_v<T> && !std::is_pointer_v<T> && !is_view<std::remove_cv_t<T>>;

template <class... Parameters>
[[nodiscard]] constexpr bool all_read_only(types<Parameters...>) noexcept {
  return (reads_only<Parameters> && ...);
}

/// The facts about F, and a sentence from the compiler for each rule that it breaks.
template <auto F>
struct function {
  using found = signature_of<std::remove_cv_t<decltype(F)>>;
  using context = without_context<typename found::parameters>;
  using parameters = typename context::parameters;
  using result = typename awaited<typename found::result>::type;
  static constexpr bool is_coroutine = awaited<typename found::result>::is_coroutine;
  static constexpr bool takes_context = context::there;
  static constexpr std::size_t arity = parameters::size;

  static constexpr bool good_parameters = all_read_only(parameters());
  static_assert(found::known,
                "the function of a task is a function or a captureless lambda, and no template");
  static_assert(good_parameters,
                "a task cannot take T& or std::span<T>, it would change what others read: take T "
                "and return it");
  static_assert(is_kept<result>, "a task cannot return a view, a reference or a pointer");

  static constexpr bool ok = found::known && good_parameters && is_kept<result>;
};

}  // namespace runtime
}  // namespace cohort::graph
