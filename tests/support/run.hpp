// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Runs a coroutine to its end, so that a test case reads like one.

#include <cohort/core/asio.hpp>

#include <exception>
#include <optional>
#include <stdexcept>
#include <type_traits>
#include <utility>

namespace cohort_test {

/// Runs the loop until `work` is done and the loop has nothing else to do; returns its result or
/// throws its exception. Throws std::logic_error if the loop ends before that.
template <class T>
T run(asio::io_context& io, asio::awaitable<T> work) {
  std::exception_ptr error;
  bool done = false;
  const auto run_loop = [&] {
    if (io.stopped()) io.restart();
    io.run();
    io.restart();
    if (!done) throw std::logic_error("the loop has ended before the coroutine");
    if (error) std::rethrow_exception(error);
  };
  if constexpr (std::is_void_v<T>) {
    asio::co_spawn(io, std::move(work), [&](std::exception_ptr failed) {
      error = failed;
      done = true;
    });
    run_loop();
  } else {
    std::optional<T> result;
    asio::co_spawn(io, std::move(work), [&](std::exception_ptr failed, T value) {
      error = failed;
      done = true;
      if (!failed) result.emplace(std::move(value));
    });
    run_loop();
    return std::move(*result);
  }
}

/// The code that an awaitable fails with, or no error.
template <class T>
asio::awaitable<std::error_code> code_of(asio::awaitable<T> work) {
  try {
    static_cast<void>(co_await std::move(work));
  } catch (const std::system_error& failed) {
    co_return failed.code();
  }
  co_return std::error_code();
}

template <>
inline asio::awaitable<std::error_code> code_of(asio::awaitable<void> work) {
  try {
    co_await std::move(work);
  } catch (const std::system_error& failed) {
    co_return failed.code();
  }
  co_return std::error_code();
}

}  // namespace cohort_test
