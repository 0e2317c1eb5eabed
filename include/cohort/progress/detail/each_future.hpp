// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// Goes through the futures that one coroutine waits for: a range of them, or a tuple.

#include <cohort/progress/future.hpp>

#include <span>  // brings the range concepts
#include <tuple>
#include <type_traits>
#include <utility>

namespace cohort::progress::detail {

template <class T>
struct is_future : std::false_type {};
template <class T>
struct is_future<future<T>> : std::true_type {};

/// Calls `call(future)` for each, in order.
template <class Futures, class Call>
void each_future(Futures& futures, Call call) {
  if constexpr (std::ranges::range<Futures&>) {
    for (auto& one : futures) call(one);
  } else {
    std::apply([&call](auto&... ones) { (call(ones), ...); }, futures);
  }
}

}  // namespace cohort::progress::detail
