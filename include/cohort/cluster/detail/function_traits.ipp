// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// What may be a remote function: the traits behind `cluster/function.hpp`, and their messages.

namespace cohort::cluster::detail {

template <class... T>
struct types {
  static constexpr std::size_t size = sizeof...(T);
};

// --- The signature of a function or lambda ------------------------------------------------------

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
requires(std::is_empty_v<Callee>&& requires { &Callee::operator(); }) struct signature_of<Callee>
    : signature<decltype(&Callee::operator())> {
};

// --- The call_context in front ------------------------------------------------------------------

template <class Parameters>
struct without_context {
  static constexpr bool there = false;
  using parameters = Parameters;
};
template <class... Parameters>
struct without_context<types<call_context&, Parameters...>> {
  static constexpr bool there = true;
  using parameters = types<Parameters...>;
};
template <class... Parameters>
struct without_context<types<const call_context&, Parameters...>>
    : without_context<types<call_context&, Parameters...>> {};

// --- Results ------------------------------------------------------------------------------------

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

template <class T>
inline constexpr bool is_span = false;
template <class T, std::size_t N>
inline constexpr bool is_span<std::span<T, N>> = true;

template <class T>
inline constexpr bool is_pointer_like =
    std::is_pointer_v<T> || std::is_member_pointer_v<T> || std::is_null_pointer_v<T>;

template <class Result>
inline constexpr bool good_result =
    !std::is_reference_v<Result> && !is_pointer_like<std::remove_cv_t<Result>> &&
    !is_span<std::remove_cv_t<Result>> &&
    !std::is_same_v<std::remove_cv_t<Result>, std::string_view>;

// --- Parameters ---------------------------------------------------------------------------------

enum class problem { none, changes, pointer, changing_span, span_elements };

template <class Parameter>
struct parameter_problem {
  static constexpr problem value =
      std::is_lvalue_reference_v<Parameter> && !std::is_const_v<std::remove_reference_t<Parameter>>
          ? problem::changes
      : is_pointer_like<std::remove_cvref_t<Parameter>> ? problem::pointer
                                                        : problem::none;
};
template <class Parameter, class T, std::size_t N>
constexpr problem span_problem(std::type_identity<std::span<T, N>>) noexcept {
  if (std::is_lvalue_reference_v<Parameter> &&
      !std::is_const_v<std::remove_reference_t<Parameter>>) {
    return problem::changes;
  }
  if (!std::is_const_v<T>) return problem::changing_span;
  const bool good = std::is_trivially_copyable_v<T> && !is_pointer_like<std::remove_cv_t<T>>;
  return good ? problem::none : problem::span_elements;
}
template <class Parameter>
requires is_span<std::remove_cvref_t<Parameter>>
struct parameter_problem<Parameter> {
  static constexpr problem value =
      span_problem<Parameter>(std::type_identity<std::remove_cvref_t<Parameter>>());
};

template <class... Parameters>
constexpr bool none_has([[maybe_unused]] problem which, types<Parameters...>) noexcept {
  return ((parameter_problem<Parameters>::value != which) && ...);
}

/// The facts about F, and a sentence from the compiler for each rule that it breaks.
template <auto F>
struct checked {
  using type = std::remove_cv_t<decltype(F)>;
  using found = signature_of<type>;
  using context = without_context<typename found::parameters>;
  using parameters = typename context::parameters;
  using result = typename awaited<typename found::result>::type;
  static constexpr bool is_coroutine = awaited<typename found::result>::is_coroutine;
  static constexpr bool takes_context = context::there;
  static constexpr std::size_t arity = parameters::size;

  static constexpr bool changes_nothing = none_has(problem::changes, parameters());
  static constexpr bool no_pointer = none_has(problem::pointer, parameters());
  static constexpr bool no_changing_span = none_has(problem::changing_span, parameters());
  static constexpr bool good_elements = none_has(problem::span_elements, parameters());

  static_assert(found::known,
                "a remote function is a function or a captureless lambda, and no template");
  static_assert(changes_nothing,
                "a remote function cannot take T&, it would change a copy: return the new value");
  static_assert(no_pointer,
                "a remote function cannot take a pointer, it would point into another process");
  static_assert(no_changing_span,
                "a remote function cannot change the caller's elements: take std::span<const T>");
  static_assert(good_elements,
                "a remote function takes spans of trivially copyable elements: take std::vector");
  static_assert(good_result<result>,
                "a remote function cannot return a view, a reference or a pointer");

  static constexpr bool ok = found::known && changes_nothing && no_pointer && no_changing_span &&
                             good_elements && good_result<result>;
};

}  // namespace cohort::cluster::detail
