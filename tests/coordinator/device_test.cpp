// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// Named operations on device memory, with a backend that the test has in its hands.
#include <cohort/coordinator.hpp>
#include <cohort/progress/deadline.hpp>
#include <cohort/progress/future.hpp>

#include <algorithm>
#include <chrono>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/device_support.hpp"
#include "coordinator/support.hpp"

namespace {

using namespace std::chrono_literals;
using cohort::as_future;
using cohort::errc;
using cohort_test::caught;
using cohort_test::device_script;
using cohort_test::fake_backend;
using cohort_test::fake_stream;
using cohort_test::fake_vector;
using cohort_test::has;
using cohort_test::meet;
using cohort_test::on_world;
namespace op = cohort::op;

/// Runs `body(world, coord, script)` with a coordinator that has a backend for devices.
template <class Body>
void on_devices(Body body, const cohort::coordinator_options& options = {}) {
  on_world([&](cohort::communicator world) -> asio::awaitable<void> {
    const fake_backend backend;
    cohort::coordinator coord(world, backend, options);
    co_await coord.barrier();
    co_await body(world, coord, *backend.script);
    co_await coord.shutdown();
    CHECK(backend.script->closes == 1);
    CHECK(backend.script->marks_alive == 0);
  });
}

std::vector<float> ramp(std::size_t count, int rank) {
  std::vector<float> all(count);
  std::iota(all.begin(), all.end(), static_cast<float>(100 * rank));
  return all;
}

TEST_CASE("device memory is reduced and broadcast") {
  on_devices([](auto world, auto coord, device_script& script) -> asio::awaitable<void> {
    const int ranks = world.size();
    fake_vector<float> sum(ramp(5, world.rank()));
    co_await coord.all_reduce("sum", sum, op::sum);
    std::vector<float> expected(5);
    for (int rank = 0; rank < ranks; ++rank) {
      for (std::size_t i = 0; i < 5; ++i) expected[i] += ramp(5, rank)[i];
    }
    CHECK(sum.values() == expected);
    fake_vector<int> sent(std::vector<int>(3, world.rank() + 7));
    co_await coord.broadcast("cast", sent, ranks - 1);
    CHECK(sent.values() == std::vector<int>(3, ranks + 6));
    CHECK(script.started == std::vector<std::string>{"all_reduce 1", "broadcast 1"});
  });
}

}  // namespace
