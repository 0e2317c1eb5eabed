// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file A handler of another library, which tells its executor only who names one for the case
/// that it has none. That of `use_sender` in stdexec is such a handler.

#include <cohort/core/asio.hpp>

#include <utility>

namespace cohort_test {

template <class Function>
struct foreign_handler {
  Function function;
  template <class... Results>
  void operator()(Results&&... results) {
    function(std::forward<Results>(results)...);
  }
};
template <class Function>
foreign_handler(Function) -> foreign_handler<Function>;

}  // namespace cohort_test

template <class Function, class Executor>
struct asio::associated_executor<cohort_test::foreign_handler<Function>, Executor> {
  using type = Executor;
  static type get(const cohort_test::foreign_handler<Function>&,
                  const Executor& fallback) noexcept {
    return fallback;
  }
};
