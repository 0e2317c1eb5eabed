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

/// Every operation that there is has been elected.
[[nodiscard]] inline bool all_started(const cohort::coordinator& coord) {
  const auto all = coord.pending();
  return std::all_of(all.begin(), all.end(), [](const auto& one) { return one.started; });
}

/// A named sum over all ranks, on devices, is right.
inline asio::awaitable<void> sums(cohort::coordinator coord, std::string name) {
  device::stream on;
  auto values = co_await filled(on, 5, static_cast<float>(coord.rank() + 1));
  co_await coord.all_reduce(name, values, op::sum);
  CHECK(co_await now_in(values) ==
        std::vector<float>(5, static_cast<float>(coord.size() * (coord.size() + 1) / 2)));
}

/// A coordinator that has worked.
inline asio::awaitable<cohort::coordinator> opened(cohort::communicator world,
                                                   nccl::backend_options backend = {},
                                                   cohort::coordinator_options options = {}) {
  cohort::coordinator made(world, nccl::backend(backend), options);
  co_await sums(made, "before");
  co_return made;
}

/// The ranks of a coordinator that has ended work on with another one.
inline asio::awaitable<void> works_anew(cohort::communicator world) {
  const auto again = co_await world.dup();
  cohort::coordinator fresh(again, nccl::backend());
  co_await sums(fresh, "after");
  co_await fresh.shutdown();
}

/// Reductions go over nodes, of so many ranks each.
inline nccl::backend_options over_nodes(const cohort::communicator& world, int ranks_of_node,
                                        nccl::backend_options options = {}) {
  options.hierarchical = true;
  options.node = world.rank() / ranks_of_node;
  return options;
}

/// Who hears nothing from a rank gives up within half a second.
inline cohort::coordinator_options impatient() {
  cohort::coordinator_options options;
  options.query_timeout = 100ms;
  options.decision_timeout = 400ms;
  return options;
}

/// Once that communicator hangs on all ranks, rank 0 loses its device, or NCCL fails there.
inline asio::awaitable<void> fails_on_rank_0(cohort::communicator world, ncclComm_t comm,
                                             bool lost) {
  CHECK(co_await soon([&] { return fake_nccl::pending_kernels(comm) != 0; }));
  co_await meet(world);
  if (world.rank() != 0) co_return;
  if (lost) {
    fake_gpu::break_device(0, cudaErrorIllegalAddress);
  } else {
    fake_nccl::set_async_error(comm, ncclRemoteError);
  }
}

/// What ends an operation that is never elected, where the backend cannot be opened. Operations on
/// memory of the host that are elected before that is known may well be done. A single rank waits
/// for its device instead.
template <class Error>
asio::awaitable<std::optional<Error>> why_not_opened(cohort::coordinator coord) {
  if (coord.size() == 1) {
    device::vector<float> some(3);
    co_return co_await caught<Error>(coord.all_reduce("some", some, op::sum));
  }
  co_return co_await caught<Error>(coord.barrier("of rank " + std::to_string(coord.rank())));
}

/// The stream on which the first device does what has been elected.
inline device::stream domain_here(const cohort::communicator& world) {
  return asio::use_service<nccl::issue_source>(world.get_executor().context()).domain_of(0);
}

/// NCCL's communicator of all ranks, where there is one.
inline ncclComm_t native(const cohort::communicator& world) {
  const auto all = fake_nccl::communicators_of(world.size());
  REQUIRE(all.size() == 1);
  return all.front();
}

/// The next kernel of that communicator hangs, on all ranks.
inline asio::awaitable<void> hangs_next(cohort::communicator world, ncclComm_t comm) {
  co_await meet(world);
  fake_nccl::hang_next(comm);
  co_await meet(world);
}

}  // namespace cohort_test
