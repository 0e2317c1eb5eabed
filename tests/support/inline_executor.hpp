// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The default of `asio::associated_executor` from Asio 1.37 on, for older ones: it calls
/// functions in place, and nothing can be posted to it.

#include <utility>

namespace cohort_test {

struct inline_executor {
  template <class Function>
  void execute(Function&& function) const {
    std::forward<Function>(function)();
  }
  friend bool operator==(const inline_executor&, const inline_executor&) noexcept { return true; }
  friend bool operator!=(const inline_executor&, const inline_executor&) noexcept { return false; }
};

}  // namespace cohort_test
