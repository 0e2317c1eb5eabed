// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What the tests of the coordinator on devices share.

#include <cohort/coordinator.hpp>
#include <cohort/nccl/backend.hpp>

#include "gpu/nccl/support.hpp"
#include "support/caught.hpp"

#include <algorithm>
#include <deque>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cohort_test {

/// The same elements in device memory.
template <class T>
asio::awaitable<device::vector<T>> on_device(device::stream on, std::vector<T> values) {
  device::vector<T> made(values.size(), on);
  device::pinned_vector<T> host(values.size(), on);
  std::copy(values.begin(), values.end(), host.begin());
  device::copy(on, host, made);
  auto done = device::done(on);
  co_await std::move(done);
  co_return made;
}

/// How a named operation has ended, if it has. Must outlive it.
struct ending {
  std::exception_ptr why;
  bool over = false;

  /// Takes results, and drops them.
  auto handler() {
    return [this](std::exception_ptr failed, auto&&...) {
      why = failed;
      over = true;
    };
  }
  [[nodiscard]] bool well() const noexcept { return over && !why; }
  [[nodiscard]] std::error_code code() const {
    try {
      if (why) std::rethrow_exception(why);
    } catch (const std::system_error& failed) {
      return failed.code();
    }
    return {};
  }
  [[nodiscard]] std::string text() const {
    try {
      if (why) std::rethrow_exception(why);
    } catch (const std::exception& failed) {
      return failed.what();
    }
    return {};
  }
  [[nodiscard]] bool is_data_error() const {
    try {
      if (why) std::rethrow_exception(why);
    } catch (const cohort::data_error& failed) {
      return failed.code() == cohort::errc::data_operation_failed && !failed.ranks().empty();
    } catch (...) {
      return false;
    }
    return false;
  }
};

[[nodiscard]] inline bool all_over(const std::deque<ending>& all) {
  return std::all_of(all.begin(), all.end(), [](const ending& one) { return one.over; });
}

[[nodiscard]] inline bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

/// An operation of this name has been elected, and has not ended.
[[nodiscard]] inline bool is_started(const cohort::coordinator& coord, std::string_view name) {
  const auto all = coord.pending();
  return std::any_of(all.begin(), all.end(),
                     [&](const auto& one) { return one.name == name && one.started; });
}

/// What device memory holds when all that its stream has queued is over.
template <class T>
asio::awaitable<std::vector<T>> now_in(const device::vector<T>& values) {
  auto all = read(values.producer(), values);
  co_return co_await std::move(all);
}

/// A named sum over all ranks, on devices, is right.
inline asio::awaitable<void> sums(cohort::coordinator coord, std::string name) {
  device::stream on;
  auto values = co_await filled(on, 5, static_cast<float>(coord.rank() + 1));
  co_await coord.all_reduce(name, values, op::sum);
  CHECK(co_await now_in(values) ==
        std::vector<float>(5, static_cast<float>(coord.size() * (coord.size() + 1) / 2)));
}

}  // namespace cohort_test
