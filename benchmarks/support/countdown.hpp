// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// What many callbacks share that end one wait.

#include <cstddef>
#include <exception>
#include <utility>

namespace bench {

/// Lies on the heap; calls `done` and frees itself when so many operations have completed.
template <class Done>
struct countdown {
  std::size_t left;
  Done done;

  void operator()(const std::exception_ptr& error) {
    if (error) std::rethrow_exception(error);
    if (--left != 0) return;
    Done last(std::move(done));
    delete this;
    std::move(last)();
  }
};

}  // namespace bench
