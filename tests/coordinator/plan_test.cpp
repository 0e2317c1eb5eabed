// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// Frozen plans: the same packs in every run. Part of the executable coordinator.verbs.
#include <cohort/core/log.hpp>
#include <cohort/progress/when_all.hpp>

#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "coordinator/support.hpp"

namespace {

using namespace std::chrono_literals;
using cohort_test::coordinated;

constexpr std::size_t tensors = 24;

cohort::coordinator_options planned() {
  cohort::coordinator_options options;
  for (std::size_t i = 0; i < tensors; ++i) {
    if (i % 6 == 0) options.frozen_plan.emplace_back();
    options.frozen_plan.back().push_back("g" + std::to_string(i));
  }
  return options;
}

}  // namespace

TEST_CASE("determinism: bit-identical sums whatever the order of submission",
          "[coordinator][plan]") {
  std::vector<std::vector<float>> first;
  std::mt19937 random(4711);  // another order in each run, and on each rank
  for (int run = 0; run < 100; ++run) {
    coordinated(
        [&](cohort::communicator world, cohort::coordinator coord) -> asio::awaitable<void> {
          std::mt19937 values(static_cast<unsigned>(world.rank()));
          std::vector<std::vector<float>> data;
          for (std::size_t i = 0; i < tensors; ++i) {
            auto& one = data.emplace_back(11 + 17 * i);
            for (float& value : one) {
              value = std::uniform_real_distribution<float>(-1.0F, 1.0F)(values);
            }
          }
          std::vector<std::size_t> order(tensors);
          std::iota(order.begin(), order.end(), std::size_t{0});
          random.discard(static_cast<unsigned>(world.rank()));
          std::shuffle(order.begin(), order.end(), random);
          std::vector<cohort::future<void>> all;
          for (const std::size_t i : order) {
            all.push_back(coord.all_reduce("g" + std::to_string(i), data[i], cohort::op::sum,
                                           cohort::as_future));
            if (i % 5 == 0)
              co_await asio::post(co_await asio::this_coro::executor, asio::use_awaitable);
          }
          co_await cohort::when_all(std::move(all));
          CHECK(coord.stats().packs == tensors / 6);
          CHECK(coord.stats().packed == tensors);
          if (first.empty()) first = data;
          REQUIRE(data == first);
        },
        planned());
  }
}

TEST_CASE("a frozen plan whose tensor stays away is given up", "[coordinator][plan]") {
  auto options = planned();
  options.plan_patience = 200ms;
  cohort::log::capture lines;
  coordinated(
      [](cohort::communicator, cohort::coordinator coord) -> asio::awaitable<void> {
        std::vector<float> data(3, 1.0F);
        co_await coord.all_reduce("g1", data, cohort::op::sum);  // g0, g2 … never come
        CHECK(data == std::vector<float>(3, static_cast<float>(coord.size())));
        if (coord.rank() == 0) CHECK(coord.stats().packs == 0);
      },
      options);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  CHECK(lines.contains("the frozen plan is given up; it waits for 'g0' 'g2'") == (rank == 0));
}
