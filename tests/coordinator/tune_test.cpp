// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// Options that follow from measured costs. Part of the executable coordinator.plan.
#include <cohort/collectives/all_gather.hpp>
#include <cohort/collectives/all_reduce.hpp>
#include <cohort/core/log.hpp>
#include <cohort/progress/deadline.hpp>

#include <bit>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <string>
#include <vector>

#include "coordinator/support.hpp"

namespace {

using cohort::coordinator_options;
using cohort::fit_to;
using cohort::operation_costs;
using cohort_test::on_world;

bool in_range(const coordinator_options& options) {
  const auto between = [](std::uint64_t value, std::uint64_t low, std::uint64_t high) {
    return value >= low && value <= high && std::has_single_bit(value);
  };
  return between(options.fusion_threshold, 4096, 1U << 20U) &&
         between(options.piece, 1U << 16U, 1U << 24U) &&
         between(options.fusion_buffer, 1U << 16U, 1U << 24U) &&
         options.fusion_buffer >= 4 * options.fusion_threshold;
}

}  // namespace

TEST_CASE("thresholds follow from the costs", "[coordinator][tune]") {
  // 10 us: as long as copying 100 kB twice at 20 GB/s, and 1/64 of 1.28 MB at 2 GB/s.
  const auto usual = fit_to({10'000, 0.5, 0.05});
  CHECK(usual.fusion_threshold == 65536);
  CHECK(usual.piece == 1U << 20U);
  CHECK(usual.fusion_buffer == 1U << 20U);
  const auto far = fit_to({40'000, 0.5, 0.05});
  CHECK(far.fusion_threshold == 4 * usual.fusion_threshold);
  CHECK(far.piece == 4 * usual.piece);
  const auto slow_copies = fit_to({10'000, 0.5, 0.2});
  CHECK(slow_copies.fusion_threshold == usual.fusion_threshold / 4);
  CHECK(slow_copies.piece == usual.piece);
}

TEST_CASE("whatever is measured, the options are in range", "[coordinator][tune]") {
  constexpr double huge = std::numeric_limits<double>::max();
  constexpr double infinite = std::numeric_limits<double>::infinity();
  constexpr double none = std::numeric_limits<double>::quiet_NaN();
  for (const double latency : {0.0, -1.0, 1.0, 1e9, huge, infinite, none}) {
    for (const double per_byte : {0.0, -1.0, 1e-9, 1.0, huge, infinite, none}) {
      for (const double copy : {0.0, -1.0, 1e-9, 1.0, huge, infinite, none}) {
        INFO(latency << " " << per_byte << " " << copy);
        coordinator_options options;
        options.slots = 1;
        options = fit_to({latency, per_byte, copy}, options);
        CHECK(in_range(options));
        CHECK(options.slots == 1);
        CHECK_NOTHROW(validate(options));
      }
    }
  }
}

TEST_CASE("all ranks come to the same options, and a coordinator takes them",
          "[coordinator][tune]") {
  cohort::log::capture lines;
  cohort::log::set_threshold(cohort::log::level::debug);
  int rank = 0;
  on_world([&](cohort::communicator world) -> asio::awaitable<void> {
    rank = world.rank();
    const auto costs = co_await cohort::measure_costs(world);
    CHECK(costs.latency > 0);
    CHECK(costs.copy_per_byte > 0);
    CHECK(costs.per_byte >= 0);
    const coordinator_options options = co_await cohort::tune(world);
    CHECK(in_range(options));
    const std::vector<std::uint64_t> mine{options.fusion_threshold, options.fusion_buffer,
                                          options.piece};
    std::vector<std::uint64_t> all(3 * static_cast<std::size_t>(world.size()));
    co_await cohort::all_gather(world, mine, all);
    for (std::size_t i = 0; i < all.size(); ++i) CHECK(all[i] == mine[i % 3]);

    cohort::coordinator coord(world, options);
    CHECK(describe(coord.options()) == describe(options));
    co_await cohort_test::works(coord, "a");
    std::vector<int> large(3'000'000, 1);
    co_await coord.all_reduce("large", large, cohort::op::sum);
    CHECK(large == std::vector<int>(3'000'000, coord.size()));
    co_await coord.shutdown();
  });
  cohort::log::set_threshold(cohort::log::level::warning);
  const std::string text = lines.text();
  int told = 0;
  for (std::size_t at = text.find("tune: all_reduce"); at != std::string::npos;
       at = text.find("tune: all_reduce", at + 1)) {
    ++told;
  }
  CHECK(told == (rank == 0 ? 1 : 0));
}

TEST_CASE("options and tuning in one expression", "[coordinator][tune]") {
  on_world([](cohort::communicator world) -> asio::awaitable<void> {
    cohort::coordinator coord(
        world, co_await cohort::tune(
                   world, cohort::parse_options("slots=1\npack=\"a longer name\" \"b\"")));
    CHECK(in_range(coord.options()));
    CHECK(coord.options().slots == 1);
    CHECK(coord.options().frozen_plan == cohort::fusion_plan{{"a longer name", "b"}});
    co_await cohort_test::works(coord, "a");
    co_await coord.shutdown();
    cohort::coordinator again(world, co_await cohort::tune(world));
    CHECK(in_range(again.options()));
    co_await again.shutdown();
  });
}

TEST_CASE("a rank that gives up tuning takes part in it to its end", "[coordinator][tune]") {
  on_world([](cohort::communicator world) -> asio::awaitable<void> {
    try {
      auto tuning = cohort::tune(world);
      if (world.rank() == 0) {
        tuning = cohort::with_deadline(std::move(tuning), std::chrono::nanoseconds(1));
      }
      co_await std::move(tuning);
    } catch (const cohort::deadline_error&) {
      CHECK(world.rank() == 0);
    }
    int sum = 1;
    co_await cohort::all_reduce(world, sum, cohort::op::sum);
    CHECK(sum == world.size());
  });
}

TEST_CASE("the environment wins over what was measured", "[coordinator][tune]") {
  on_world([](cohort::communicator world) -> asio::awaitable<void> {
    const coordinator_options options = co_await cohort::tune(world);
    ::setenv("COHORT_PIECE", "12345", 1);
    cohort::coordinator coord(world, options);
    ::unsetenv("COHORT_PIECE");
    CHECK(coord.options().piece == 12345);
    CHECK(coord.options().fusion_threshold == options.fusion_threshold);
    co_await cohort_test::works(coord, "a");
    co_await coord.shutdown();
  });
}
