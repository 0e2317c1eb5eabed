// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// The shape of what an operation returns.

#include <tuple>
#include <utility>

namespace cohort::progress {

/// void, one value, or a tuple: what `co_await` returns.
template <class... Values>
struct value_of {
  using type = std::tuple<Values...>;
};
template <>
struct value_of<> {
  using type = void;
};
template <class Value>
struct value_of<Value> {
  using type = Value;
};

template <class... Values>
typename value_of<Values...>::type shaped(std::tuple<Values...>&& all) {
  if constexpr (sizeof...(Values) == 1) {
    return std::get<0>(std::move(all));
  } else if constexpr (sizeof...(Values) > 1) {
    return std::move(all);
  }
}

}  // namespace cohort::progress
