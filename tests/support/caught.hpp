// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The error that an awaitable fails with, for tests that look at more than its code.

#include <cohort/core/asio.hpp>

#include <exception>
#include <optional>
#include <utility>

#include "support/catch.hpp"

namespace cohort_test {

/// The error of class E that an awaitable fails with. Anything else fails the test.
template <class E, class T>
asio::awaitable<std::optional<E>> caught(asio::awaitable<T> work) {
  try {
    co_await std::move(work);
    FAIL_CHECK("completed, but must fail");
  } catch (const E& problem) {
    co_return problem;
  } catch (const std::exception& problem) {
    FAIL_CHECK("another error: " << problem.what());
  }
  co_return std::nullopt;
}

}  // namespace cohort_test
