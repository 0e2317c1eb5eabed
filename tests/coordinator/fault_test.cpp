// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// A data operation that fails on a rank after election, by an MPI function that says so.
#include <cohort/coordinator.hpp>
#include <cohort/core/log.hpp>
#include <cohort/progress/future.hpp>

#include <chrono>
#include <string>
#include <vector>

#include "coordinator/support.hpp"
#include "faults/interposer.hpp"

namespace {

using cohort::as_future;
using cohort::errc;
using cohort_test::caught;
using cohort_test::has;
using cohort_test::works;
namespace op = cohort::op;

}  // namespace

TEST_CASE("a data operation that fails on one rank ends the coordinator on all",
          "[coordinator][failures]") {
  const cohort::log::capture lines;
  cohort_test::on_world([&](cohort::communicator world) -> asio::awaitable<void> {
    const int last = world.size() - 1;
    cohort::coordinator coord(world);
    co_await works(coord, "before");
    // A leaf of the broadcast does not take part. The others need not wait for it.
    std::vector<int> data(4, 1);
    int value = 1;
    const bool fails = world.rank() == last;
    // Its decision cannot come before that of the broadcast on the rank that waits for it.
    auto pending = fails ? cohort::future<void>(coord.barrier("unused", as_future))
                         : coord.all_reduce("pending", value, op::sum, as_future);
    if (fails) pending.cancel();
    faults::reset();
    if (fails) faults::fail_next("MPI_Ibcast", MPI_ERR_OTHER);
    if (fails) {
      const auto problem = co_await caught<cohort::data_error>(coord.broadcast("broken", data, 0));
      REQUIRE(problem);
      CHECK(problem->ranks() == std::vector<int>{last});
      CHECK(has(problem->what(), "rank " + std::to_string(last) + ": broadcast #"));
      CHECK(lines.contains("rank " + std::to_string(last) + ": broadcast #"));
      CHECK(faults::failed_as_asked("MPI_Ibcast"));
    } else {
      co_await coord.broadcast("broken", data, 0);
    }
    const auto check = [&](asio::awaitable<void> work) -> asio::awaitable<void> {
      const auto problem = co_await caught<cohort::data_error>(std::move(work));
      REQUIRE(problem);
      CHECK(problem->code() == errc::data_operation_failed);
      CHECK(problem->ranks() == std::vector<int>{last});
      CHECK(has(problem->what(), "a data operation failed on rank " + std::to_string(last) + ": "));
    };
    if (fails) {
      // It was cancelled before or ends with the coordinator.
      const std::error_code code = co_await cohort_test::code_of(std::move(pending));
      CHECK(code);
    } else {
      co_await check(std::move(pending));
    }
    const auto later =
        co_await caught<cohort::data_error>(coord.all_reduce("later", value, op::sum));
    CHECK(later);
    co_await check(coord.barrier());
    CHECK(coord.pending().empty());
    co_await coord.shutdown();
    faults::reset();
    cohort::coordinator next(world);
    co_await works(next, "after");
    co_await next.shutdown();
  });
}

TEST_CASE("a data operation that fails on all ranks", "[coordinator][failures]") {
  const std::string function = GENERATE(as<std::string>{}, "MPI_Iallreduce", "MPI_Ibarrier",
                                        "MPI_Iallgather", "MPI_Iallgatherv", "MPI_Ireduce");
  const cohort::log::capture lines;
  cohort_test::on_world([&](cohort::communicator world) -> asio::awaitable<void> {
    cohort::coordinator coord(world);
    co_await works(coord, "before");
    std::vector<int> data(4, 1);
    faults::reset();
    faults::fail_next(function, MPI_ERR_NO_MEM);
    const auto submit = [&]() -> asio::awaitable<void> {
      if (function == "MPI_Iallreduce") {
        co_await coord.all_reduce("broken", data, op::sum);
      } else if (function == "MPI_Ibarrier") {
        co_await coord.barrier("broken");
      } else if (function == "MPI_Ireduce") {
        co_await coord.reduce("broken", data, op::sum, 0);
      } else {
        co_await coord.all_gather("broken", data);
      }
    };
    // Several at once, one of them fails; whatever waits behind it ends too.
    auto one = asio::co_spawn(coord.get_executor(), submit(), as_future);
    const auto problem = co_await caught<cohort::data_error>(std::move(one));
    CHECK(problem);
    CHECK(faults::failed_as_asked(function));
    const auto later = co_await caught<cohort::data_error>(coord.barrier());
    CHECK(later);
    co_await coord.shutdown();
    faults::reset();
    cohort::coordinator next(world);
    co_await works(next, "after");
    co_await next.shutdown();
  });
}
