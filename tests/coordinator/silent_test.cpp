// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// Ranks that do not answer: what the others learn, and that nobody hangs. Part of the executable
// coordinator.verbs.
#include <thread>
#include <vector>

#include "coordinator/support.hpp"

namespace {

using namespace std::chrono_literals;
using cohort_test::caught;

cohort::coordinator_options impatient() {
  cohort::coordinator_options options;
  options.query_timeout = 100ms;
  options.decision_timeout = 400ms;
  return options;
}

}  // namespace

TEST_CASE("a root that computes: the others end at their decision timeout",
          "[coordinator][silent]") {
  // Whether the root takes in what has arrived before it submits: then it knows of the withdrawal.
  // Otherwise it may elect the operation first, and the data of those that gave up are still there.
  const bool looks_first = GENERATE(true, false);
  cohort_test::on_world([&](cohort::communicator world) -> asio::awaitable<void> {
    if (world.size() < 2) co_return;
    cohort::coordinator coord(world, impatient());
    co_await cohort_test::works(coord, "before");
    std::vector<int> data(3, 1);
    if (world.rank() == 0) {
      std::this_thread::sleep_for(1500ms);  // a long computation in one handler
      if (looks_first) {
        co_await cohort_test::pause(300ms);
        const auto told =
            co_await caught<cohort::withdrawn_error>(coord.all_reduce("x", data, cohort::op::sum));
        REQUIRE(told);
      } else {
        const auto code =
            co_await cohort_test::code_of(coord.all_reduce("x", data, cohort::op::sum));
        if (!code) CHECK(data == std::vector<int>(3, world.size()));
      }
    } else {
      cohort::call_options options;
      options.deadline = 50ms;
      const auto problem = co_await caught<cohort::deadline_error>(
          coord.all_reduce("x", data, cohort::op::sum, options));
      REQUIRE(problem);
      CHECK(cohort_test::has(problem->what(), "no decision within 400 ms"));
      CHECK(cohort_test::has(problem->what(), "rank 0, this rank's parent, does not answer"));
      CHECK(problem->stall().silent == std::vector<int>{0});
      const auto after =
          co_await cohort_test::code_of(coord.all_reduce("y", data, cohort::op::sum));
      CHECK(after == cohort::errc::not_accepting);
    }
    co_await coord.shutdown();
  });
}

TEST_CASE("a leaf that computes is named as silent or missing", "[coordinator][silent]") {
  cohort_test::on_world([](cohort::communicator world) -> asio::awaitable<void> {
    if (world.size() < 2) co_return;
    cohort::coordinator coord(world, impatient());
    co_await cohort_test::works(coord, "before");
    const int late = world.size() - 1;
    std::vector<int> data(3, 1);
    if (world.rank() == late) {
      std::this_thread::sleep_for(1200ms);
      static_cast<void>(
          co_await caught<cohort::withdrawn_error>(coord.all_reduce("x", data, cohort::op::sum)));
    } else if (world.rank() == 0) {
      cohort::call_options options;
      options.deadline = 50ms;
      const auto problem = co_await caught<cohort::deadline_error>(
          coord.all_reduce("x", data, cohort::op::sum, options));
      REQUIRE(problem);
      CHECK(problem->stall().missing == std::vector<int>{late});
      CHECK(problem->stall().ready == cohort_test::ranks_below(late));
    } else {
      const auto problem =
          co_await caught<cohort::withdrawn_error>(coord.all_reduce("x", data, cohort::op::sum));
      REQUIRE(problem);
      CHECK(problem->ranks() == std::vector<int>{0});
      CHECK(problem->stall().missing == std::vector<int>{late});
    }
    co_await cohort_test::works(coord, "after");
    co_await coord.shutdown();
  });
}
