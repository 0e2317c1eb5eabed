// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// The words of a compile error for collectives that move data.

#include <cohort/core/carrier.hpp>

#include <concepts>
#include <tuple>
#include <type_traits>

namespace cohort::collectives::detail {

template <class...>
inline constexpr bool never = false;

/// Stands for an argument that was not given.
struct missing {};

template <std::size_t Index, class... Arguments>
using argument_at = std::tuple_element_t<Index, std::tuple<Arguments&&..., missing&&, missing&&>>;

template <class Argument>
concept any_buffer = verb_input<Argument> || owned_buffer<std::remove_reference_t<Argument>>;

template <class Argument>
struct element_of_any {
  using type = void;
};
template <any_buffer Argument>
struct element_of_any<Argument> {
  using type = element_of_t<std::remove_reference_t<Argument>&>;
};
template <class Argument>
using element_if_buffer = typename element_of_any<Argument>::type;

/// Whether a verb has a root.
enum class has_root : bool { no, yes };

/// A compile error that says what is wrong with a moving verb's arguments, buffers first.
template <has_root Rooted, class... Arguments>
consteval void explain_movement() {
  using first = argument_at<0, Arguments...>;
  using second = argument_at<1, Arguments...>;
  constexpr bool is_buffer = any_buffer<first>;
  static_assert(is_buffer,
                "the first argument is no buffer: pass a contiguous range or scalar lvalue, a "
                "span, a strided view, or a container rvalue (a temporary would dangle)");
  constexpr bool rooted =
      Rooted == has_root::no || (std::integral<std::remove_cvref_t<Arguments>> || ...);
  static_assert(!is_buffer || rooted, "the root is missing: an integer after the buffers");
  if constexpr (is_buffer && rooted) {
    using value = element_of_t<std::remove_reference_t<first>&>;
    constexpr bool one_type = !any_buffer<second> || std::integral<std::remove_cvref_t<second>> ||
                              std::same_as<value, element_if_buffer<second>>;
    static_assert(one_type, "both buffers need one element type");
    static_assert(!one_type || never<Arguments...>,
                  "this call does not fit: a buffer that receives must be writable (not const); "
                  "after the buffers come counts for the _v forms, then the root where there is "
                  "one, then a completion token");
  }
}

}  // namespace cohort::collectives::detail
