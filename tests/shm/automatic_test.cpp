// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// Communicators that choose their backend themselves.

#include <cohort/collectives.hpp>
#include <cohort/core/log.hpp>
#include <cohort/p2p.hpp>
#include <cohort/progress/future.hpp>
#include <cohort/shm.hpp>

#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/run.hpp"
#include "support/world.hpp"

namespace automatic_test {

using cohort::as_future;
using cohort::backend_choice;
using cohort::communicator;
using cohort_test::on_world;
namespace op = cohort::op;
namespace shm = cohort::shm;

cohort::communicator_options choosing(backend_choice choice = backend_choice::automatic) {
  cohort::communicator_options options;
  options.backend = choice;
  return options;
}

/// Sums the ranks, 1 to n, in a vector of `count`.
asio::awaitable<bool> sums_right(communicator world, std::size_t count) {
  std::vector<double> x(count, world.rank() + 1.0);
  co_await cohort::all_reduce(world, x, op::sum);
  const double sum = world.size() * (world.size() + 1) / 2.0;
  co_return x == std::vector<double>(count, sum);
}

const char* expected(const communicator& world) { return world.size() == 1 ? "" : "shm"; }

}  // namespace automatic_test

TEST_CASE("a communicator that chooses opens shared memory with its first collective", "[shm]") {
  using namespace automatic_test;
  on_world(
      [](communicator world) -> asio::awaitable<void> {
        CHECK(world.stats().backend.empty());
        for (const std::size_t count : {1U, 1000U, 300'000U}) {
          const bool right = co_await sums_right(world, count);
          CHECK(right);
        }
        const auto done = world.stats();
        CHECK(done.backend == expected(world));
        CHECK(done.operations == 3);
        CHECK(done.by_backend.operations == (world.size() == 1 ? 0U : 3U));
      },
      choosing());
}

TEST_CASE("a communicator that does not choose goes through MPI", "[shm]") {
  using namespace automatic_test;
  on_world(
      [](communicator world) -> asio::awaitable<void> {
        const bool right = co_await sums_right(world, 10);
        CHECK(right);
        CHECK(world.stats().backend.empty());
      },
      choosing(backend_choice::mpi));
}

TEST_CASE("collectives of all kinds that are started at once wait for the opening, in order",
          "[shm]") {
  using namespace automatic_test;
  on_world(
      [](communicator world) -> asio::awaitable<void> {
        const int ranks = world.size();
        const int rank = world.rank();
        std::vector<std::vector<double>> sums;
        for (std::size_t i = 0; i < 20; ++i) sums.emplace_back(100 * i + 1, rank);
        std::vector<int> scanned{rank};
        std::vector<int> sent{rank};
        std::vector<int> received{-1};
        std::vector<cohort::future<>> all;
        for (std::size_t i = 0; i < 10; ++i) {
          all.push_back(cohort::all_reduce(world, sums[i], op::max, as_future));
        }
        all.push_back(cohort::scan(world, scanned, op::sum, as_future));  // MPI's
        for (std::size_t i = 10; i < 20; ++i) {
          all.push_back(cohort::broadcast(world, sums[i], ranks - 1, as_future));
        }
        all.push_back(cohort::barrier(world, as_future));
        // Messages do not wait.
        auto arriving = cohort::recv(world, received, cohort_test::left_of(world), 5, as_future);
        co_await cohort::send(world, sent, cohort_test::right_of(world), 5);
        co_await std::move(arriving);
        for (auto& each : all) co_await std::move(each);
        for (const auto& each : sums) {
          CHECK(each == std::vector<double>(each.size(), ranks - 1.0));
        }
        CHECK(scanned[0] == rank * (rank + 1) / 2);
        CHECK(received[0] == cohort_test::left_of(world));
        CHECK(world.stats().by_backend.operations == (ranks == 1 ? 0U : 21U));
      },
      choosing());
}

TEST_CASE("communicators that are made from one choose as it does", "[shm]") {
  using namespace automatic_test;
  on_world(
      [](communicator world) -> asio::awaitable<void> {
        const auto twin = co_await world.dup();
        const auto half = co_await world.split(world.rank() % 2);
        for (const communicator& each : {twin, half}) {
          const bool right = co_await sums_right(each, 50);
          CHECK(right);
          CHECK(each.stats().backend == expected(each));
        }
        CHECK(world.stats().backend.empty());  // no collective was started on it
      },
      choosing());
}

TEST_CASE("ranks that do not want the same go through MPI", "[shm]") {
  using namespace automatic_test;
  asio::io_context io;
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const communicator world(io,
                           choosing(rank == 0 ? backend_choice::mpi : backend_choice::automatic));
  cohort_test::run(io, [](communicator on) -> asio::awaitable<void> {
    const bool right = co_await sums_right(on, 10);
    CHECK(right);
    CHECK(on.stats().backend.empty());
  }(world));
}

TEST_CASE("a backend that is set, or taken away, is what counts", "[shm]") {
  using namespace automatic_test;
  on_world(
      [](communicator world) -> asio::awaitable<void> {
        auto set = co_await world.dup();
        auto none = co_await world.dup();
        set.set_backend(shm::backend());  // takes nothing
        none.reset_backend();
        for (const communicator& each : {set, none}) {
          const bool right = co_await sums_right(each, 10);
          CHECK(right);
          CHECK(each.stats().by_backend.operations == 0);
        }
      },
      choosing());
}

TEST_CASE("what is set while it is opened is what counts", "[shm]") {
  using namespace automatic_test;
  on_world(
      [](communicator world) -> asio::awaitable<void> {
        auto first = cohort::barrier(world, as_future);
        world.reset_backend();
        co_await std::move(first);
        const bool right = co_await sums_right(world, 10);
        CHECK(right);
        CHECK(world.stats().backend.empty());
      },
      choosing());
}

TEST_CASE("the environment is read when a communicator is constructed, and not again", "[shm]") {
  using namespace automatic_test;
  for (const bool chooses : {false, true}) {
    ::setenv("COHORT_BACKEND", chooses ? "auto" : "mpi", 1);
    on_world([chooses](communicator world) -> asio::awaitable<void> {
      if (world.rank() == 0) ::unsetenv("COHORT_BACKEND");
      CHECK(world.options().backend == (chooses ? backend_choice::automatic : backend_choice::mpi));
      const auto twin = co_await world.dup();
      const bool right = co_await sums_right(twin, 10);
      CHECK(right);
      CHECK(twin.stats().backend == (chooses ? expected(twin) : std::string()));
    });
    ::unsetenv("COHORT_BACKEND");
  }
}

TEST_CASE("an environment that says something else is an error that names it", "[shm]") {
  using namespace automatic_test;
  ::setenv("COHORT_BACKEND", "fastest", 1);
  asio::io_context io;
  CHECK_THROWS_WITH(communicator(io), Catch::Matchers::ContainsSubstring("COHORT_BACKEND=fastest"));
  ::unsetenv("COHORT_BACKEND");
}

TEST_CASE("where one rank has no memory left for it, all go through MPI, and one says why",
          "[shm]") {
  using namespace automatic_test;
  on_world(
      [](communicator world) -> asio::awaitable<void> {
        if (world.size() == 1) co_return;
        const cohort::log::capture lines;
        std::optional<shm::detail::automatic_memory> taken;
        const int poor = world.size() - 1;
        if (world.rank() == poor) taken.emplace(shm::detail::automatic_memory::most);
        const bool right = co_await sums_right(world, 10);
        CHECK(right);
        CHECK(world.stats().backend.empty());
        if (world.rank() == 0) {
          CHECK(lines.contains("rank " + std::to_string(poor) +
                               ": this process has no more than 64 MiB"));
        }
        taken.reset();
        co_await cohort_test::meet(world);
        const auto next = co_await world.dup();
        const bool again = co_await sums_right(next, 10);
        CHECK(again);
        CHECK(next.stats().backend == "shm");
      },
      choosing());
}

TEST_CASE("a barrier that is given up while it waits for the opening holds nothing up", "[shm]") {
  using namespace automatic_test;
  on_world(
      [](communicator world) -> asio::awaitable<void> {
        auto given_up = cohort::barrier(world, as_future);
        given_up.cancel();
        std::error_code how;
        try {
          co_await std::move(given_up);
        } catch (const std::system_error& why) {
          how = why.code();
        }
        CHECK((!how || how == asio::error::operation_aborted));
        const bool right = co_await sums_right(world, 10);
        CHECK(right);
      },
      choosing());
}

TEST_CASE("a context that goes away while shared memory is opened", "[shm]") {
  using namespace automatic_test;
  std::vector<double> x(10, 1.0);
  {
    asio::io_context io;
    const communicator world(io, choosing());
    bool called = false;
    cohort::all_reduce(world, x, op::sum, [&](const std::error_code&) { called = true; });
    cohort::all_reduce(world, x, op::sum, [&](const std::error_code&) { called = true; });
    CHECK_FALSE(called);
  }
  on_world([](communicator world) -> asio::awaitable<void> {
    const bool right = co_await sums_right(world, 10);
    CHECK(right);
  });
}
