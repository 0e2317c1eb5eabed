// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// Which calls of a step fit, and the words for one that does not.

#include <cohort/core/asio.hpp>
#include <cohort/rendezvous/key.hpp>
#include <cohort/rendezvous/value.hpp>

#include <concepts>
#include <cstddef>
#include <span>
#include <tuple>
#include <type_traits>

namespace cohort::meeting {

/// Of a receive that was called without a type. Not receivable.
struct no_type {
  no_type() = delete;
};
struct no_argument {};

template <class...>
inline constexpr bool never = false;

template <std::size_t Index, class... Arguments>
using argument_at =
    std::tuple_element_t<Index,
                         std::tuple<Arguments&&..., no_argument&&, no_argument&&, no_argument&&>>;

template <class Argument>
concept key_argument = std::convertible_to<Argument, const rendezvous_key&>;

template <class Argument, class Signature>
concept token_or_none =
    std::same_as<Argument, no_argument&&> || completion_token_for<Argument, Signature>;

template <class T>
inline constexpr bool is_writable_span = false;
template <class E, std::size_t N>
inline constexpr bool is_writable_span<std::span<E, N>> = !std::is_const_v<E> && plain<E>;

/// send(key, value[, dead]).
template <class... Arguments>
concept send_fits =
    (sizeof...(Arguments) == 2 || sizeof...(Arguments) == 3) &&
    key_argument<argument_at<0, Arguments...>> && sendable<argument_at<1, Arguments...>> &&
    (sizeof...(Arguments) == 2 || std::convertible_to<argument_at<2, Arguments...>, bool>);

/// recv<T>(key[, token]), and next.
template <class T, class Signature, class... Arguments>
concept receive_fits = receivable<T> && (sizeof...(Arguments) == 1 || sizeof...(Arguments) == 2) &&
                       key_argument<argument_at<0, Arguments...>> &&
                       token_or_none<argument_at<1, Arguments...>, Signature>;

/// recv_into(key, span[, token]).
template <class... Arguments>
concept receive_into_fits = (sizeof...(Arguments) == 2 || sizeof...(Arguments) == 3) &&
                            key_argument<argument_at<0, Arguments...>> &&
                            is_writable_span<std::remove_cvref_t<argument_at<1, Arguments...>>>;

template <class... Arguments>
consteval void explain_send() {
  constexpr bool has_key = key_argument<argument_at<0, Arguments...>>;
  static_assert(has_key, "the first argument is no key: pass a cohort::rendezvous_key");
  if constexpr (has_key) {
    constexpr bool has_value = sizeof...(Arguments) > 1;
    static_assert(has_value, "the value is missing: send_dead(key) sends none");
    if constexpr (has_value) {
      constexpr bool can = sendable<argument_at<1, Arguments...>>;
      static_assert(can,
                    "this type cannot be sent: values are trivially copyable and no pointers, "
                    "std::string, vectors and spans of such, what core/wire.hpp can serialise, "
                    "or a std::shared_ptr<const T> of one of the first three");
      static_assert(!can || never<Arguments...>,
                    "this call does not fit: it is send(key, value[, dead])");
    }
  }
}

template <class T, class... Arguments>
consteval void explain_receive() {
  constexpr bool has_type = !std::same_as<T, no_type>;
  static_assert(has_type, "name the type that is received, as in step.recv<std::string>(key)");
  if constexpr (has_type) {
    constexpr bool can = receivable<T>;
    static_assert(can,
                  "this type cannot be received: values are objects (no reference, no const, no "
                  "view) that are trivially copyable and no pointers, std::string, vectors of "
                  "such, or what core/wire.hpp can serialise; recv_into fills a span");
    if constexpr (can) {
      constexpr bool has_key = key_argument<argument_at<0, Arguments...>>;
      static_assert(has_key, "the first argument is no key: pass a cohort::rendezvous_key");
      static_assert(!has_key || never<Arguments...>,
                    "this call does not fit: after the key comes only a completion token");
    }
  }
}

template <class... Arguments>
consteval void explain_receive_into() {
  constexpr bool has_key = key_argument<argument_at<0, Arguments...>>;
  static_assert(has_key, "the first argument is no key: pass a cohort::rendezvous_key");
  if constexpr (has_key) {
    constexpr bool has_span = is_writable_span<std::remove_cvref_t<argument_at<1, Arguments...>>>;
    static_assert(has_span,
                  "a receive into memory needs a std::span of trivially copyable elements that "
                  "are not const");
    static_assert(!has_span || never<Arguments...>,
                  "this call does not fit: it is recv_into(key, span[, token])");
  }
}

}  // namespace cohort::meeting
