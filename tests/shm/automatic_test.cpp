// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// Communicators that choose their backend themselves.

#include <cohort/collectives.hpp>
#include <cohort/core/log.hpp>
#include <cohort/p2p.hpp>
#include <cohort/progress/future.hpp>
#include <cohort/shm.hpp>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/large_message.hpp"
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

/// Collectives until this communicator has chosen; as many on all ranks.
asio::awaitable<void> until_chosen(communicator world) {
  while (world.size() > 1 && world.stats().backend.empty()) co_await cohort::barrier(world);
}
/// More than it takes to begin to choose.
asio::awaitable<void> many_barriers(communicator world) {
  for (int i = 0; i < 100; ++i) co_await cohort::barrier(world);
}

// made_elsewhere.cpp
communicator made_elsewhere(asio::io_context& io, backend_choice choice);
communicator made_afterwards(asio::io_context& io, backend_choice choice);

}  // namespace automatic_test

TEST_CASE("a communicator chooses shared memory where the file that makes it includes that",
          "[shm]") {
  using namespace automatic_test;
  asio::io_context io;
  const communicator here = made_afterwards(io, backend_choice::automatic);
  const communicator elsewhere = made_elsewhere(io, backend_choice::automatic);
  const cohort::log::capture log;
  cohort::log::set_threshold(cohort::log::level::info);
  while (here.size() > 1 && here.stats().backend.empty()) {
    cohort::barrier(here, cohort::blocking);
    cohort::barrier(elsewhere, cohort::blocking);
  }
  CHECK(here.stats().backend == expected(here));
  for (int i = 0; i < 100; ++i) cohort::barrier(elsewhere, cohort::blocking);
  CHECK(elsewhere.stats().backend.empty());
  cohort::log::set_threshold(cohort::log::level::warning);
  const bool tells = elsewhere.rank() == 0 && elsewhere.size() > 1;
  CHECK(log.contains("does not include <cohort/shm.hpp>") == tells);
}

TEST_CASE("who asks for shared memory where it is not included hears of it", "[shm]") {
  using namespace automatic_test;
  const auto choice = GENERATE(backend_choice::shm, backend_choice::hierarchical);
  asio::io_context io;
  const cohort::log::capture log;
  const communicator elsewhere = made_elsewhere(io, choice);
  CHECK(log.contains("does not include <cohort/shm.hpp>") == (elsewhere.rank() == 0));
}

TEST_CASE("a communicator that chooses opens shared memory with its sixteenth collective",
          "[shm]") {
  using namespace automatic_test;
  on_world(
      [](communicator world) -> asio::awaitable<void> {
        for (int i = 0; i < 16; ++i) {
          const bool right = co_await sums_right(world, 10);
          CHECK(right);
        }
        CHECK(world.stats().by_backend.operations == 0);
        co_await until_chosen(world);
        const auto before = world.stats();
        CHECK(before.backend == expected(world));
        for (const std::size_t count : {1U, 1000U, 300'000U}) {
          const bool right = co_await sums_right(world, count);
          CHECK(right);
        }
        const auto done = world.stats();
        CHECK(done.operations == before.operations + 3);
        const auto by_backend = done.by_backend.operations - before.by_backend.operations;
        CHECK(by_backend == (world.size() == 1 ? 0U : 3U));
      },
      choosing());
}

TEST_CASE("a communicator that does not choose goes through MPI", "[shm]") {
  using namespace automatic_test;
  on_world(
      [](communicator world) -> asio::awaitable<void> {
        co_await many_barriers(world);
        CHECK(world.stats().backend.empty());
      },
      choosing(backend_choice::mpi));
}

TEST_CASE("nothing waits for the opening, and all ranks go over with the same collective",
          "[shm]") {
  using namespace automatic_test;
  on_world(
      [](communicator world) -> asio::awaitable<void> {
        const int ranks = world.size();
        const int rank = world.rank();
        std::vector<std::vector<double>> sums;
        for (std::size_t i = 0; i < 60; ++i) sums.emplace_back(50 * i + 1, rank);
        std::vector<int> scanned{rank};
        std::vector<cohort::future<>> all;
        // Ranks look at different times, so they learn at different times that all have come.
        for (std::size_t i = 0; i < sums.size(); ++i) {
          if (i == 30) all.push_back(cohort::scan(world, scanned, op::sum, as_future));  // MPI's
          if (i % 2 == 0) {
            all.push_back(cohort::all_reduce(world, sums[i], op::max, as_future));
          } else {
            all.push_back(cohort::broadcast(world, sums[i], ranks - 1, as_future));
          }
          const std::size_t every = 3 + static_cast<std::size_t>(rank);
          if (i % every == 0) co_await std::move(all[i / 2]);
        }
        for (auto& each : all) {
          if (each.valid()) co_await std::move(each);
        }
        for (const auto& each : sums) {
          CHECK(each == std::vector<double>(each.size(), ranks - 1.0));
        }
        CHECK(scanned[0] == rank * (rank + 1) / 2);
        co_await until_chosen(world);
        std::vector<std::uint64_t> by{world.stats().by_backend.operations};
        std::vector<std::uint64_t> least = by;
        co_await cohort::all_reduce(world, least, op::min);
        CHECK(by == least);
      },
      choosing());
}

TEST_CASE("what is started while shared memory is opened needs no rank to look", "[shm]") {
  using namespace automatic_test;
  on_world(
      [](communicator world) -> asio::awaitable<void> {
        if (world.size() == 1) co_return;
        const auto beside = co_await world.dup();
        for (int i = 0; i < 15; ++i) co_await cohort::barrier(world);
        // Rank 0 begins, and then is inside MPI until the last rank has all that it wants.
        std::vector<double> x(1000, 1.0);
        std::vector<cohort::future<>> all;
        for (int i = 0; i < 5; ++i) all.push_back(cohort::all_reduce(world, x, op::max, as_future));
        int sent = 1;
        if (world.rank() == 0) {
          MPI_Recv(&sent, 1, MPI_INT, world.size() - 1, 1, beside.native(), MPI_STATUS_IGNORE);
        }
        for (auto& each : all) co_await std::move(each);
        if (world.rank() == world.size() - 1) {
          MPI_Send(&sent, 1, MPI_INT, 0, 1, beside.native());
        }
        CHECK(x == std::vector<double>(1000, 1.0));
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
          co_await until_chosen(each);
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
    co_await many_barriers(on);
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
          co_await many_barriers(each);
          CHECK(each.stats().by_backend.operations == 0);
        }
      },
      choosing());
}

TEST_CASE("what is set while it is opened is what counts", "[shm]") {
  using namespace automatic_test;
  on_world(
      [](communicator world) -> asio::awaitable<void> {
        for (int i = 0; i < 15; ++i) co_await cohort::barrier(world);
        auto begins = cohort::barrier(world, as_future);
        world.reset_backend();
        co_await std::move(begins);
        co_await many_barriers(world);
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
      if (chooses) co_await until_chosen(twin);
      if (!chooses) co_await many_barriers(twin);
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
        const std::size_t most = 64 << 20;  // unless something else is said
        if (world.rank() == poor) taken.emplace(most, most);
        co_await many_barriers(world);
        CHECK(world.stats().backend.empty());
        if (world.rank() == poor) {
          CHECK(lines.contains("rank " + std::to_string(poor) +
                               ": this process has no more than 67108864 bytes"));
        }
        taken.reset();
        co_await cohort_test::meet(world);
        const auto next = co_await world.dup();
        co_await until_chosen(next);
        CHECK(next.stats().backend == "shm");
      },
      choosing());
}

TEST_CASE("shared memory is chosen while the process may have it, to the byte", "[shm]") {
  using namespace automatic_test;
  using shm::detail::automatic_memory;
  std::size_t needed = 0;
  const auto try_with = [&needed](std::size_t most, bool suffices) {
    auto options = choosing();
    options.shared_memory = most;
    on_world(
        [&needed, suffices](communicator world) -> asio::awaitable<void> {
          const std::size_t before = automatic_memory::used();
          if (suffices) {
            co_await until_chosen(world);
            needed = automatic_memory::used() - before;
          } else {
            co_await many_barriers(world);
            CHECK(world.stats().backend.empty());
          }
        },
        options);
  };
  const std::size_t before = automatic_memory::used();
  try_with(before + (64 << 20), true);
  CHECK(automatic_memory::used() == before);
  const std::size_t one = needed;
  try_with(before + one, true);
  CHECK(needed == one);
  try_with(before + one - (one == 0 ? 0 : 1), false);
  try_with(0, false);
}

TEST_CASE("large blocks for each rank go through MPI where nobody has asked for memory", "[shm]") {
  using namespace automatic_test;
  on_world(
      [](communicator world) -> asio::awaitable<void> {
        co_await until_chosen(world);
        const auto ranks = static_cast<std::size_t>(world.size());
        const auto taken = [](const communicator& by, std::uint64_t before) {
          return by.stats().by_backend.operations != before;
        };
        for (const std::size_t block : {std::size_t{128} << 10U, (std::size_t{128} << 10U) + 1}) {
          const std::vector<char> mine(block * ranks, static_cast<char>(world.rank()));
          std::vector<char> all(block * ranks);
          const std::uint64_t before = world.stats().by_backend.operations;
          co_await cohort::all_to_all(world, mine, all);
          CHECK(taken(world, before) == (ranks > 1 && block == 128 << 10));
          for (std::size_t rank = 0; rank < ranks; ++rank) {
            CHECK(all[rank * block + block - 1] == static_cast<char>(rank));
          }
        }
        for (const std::size_t block : {std::size_t{512} << 10U, (std::size_t{512} << 10U) + 1}) {
          const std::vector<char> mine(block, static_cast<char>(world.rank()));
          std::vector<char> all(block * ranks);
          const std::uint64_t before = world.stats().by_backend.operations;
          co_await cohort::all_gather(world, mine, all);
          CHECK(taken(world, before) == (ranks > 2 || (ranks == 2 && block == 512 << 10)));
          for (std::size_t rank = 0; rank < ranks; ++rank) {
            CHECK(all[rank * block + block - 1] == static_cast<char>(rank));
          }
        }
      },
      choosing());
}

TEST_CASE("COHORT_SHM_MEMORY says how much shared memory is chosen", "[shm]") {
  using namespace automatic_test;
  for (const char* said : {"much", "1M", "-1"}) {
    ::setenv("COHORT_SHM_MEMORY", said, 1);
    asio::io_context io;
    CHECK_THROWS_WITH(communicator(io),
                      Catch::Matchers::ContainsSubstring("COHORT_SHM_MEMORY=" + std::string(said)));
  }
  ::setenv("COHORT_SHM_MEMORY", "1000", 1);
  on_world(
      [](communicator world) -> asio::awaitable<void> {
        co_await many_barriers(world);
        CHECK(world.stats().backend.empty());
      },
      choosing());
  ::unsetenv("COHORT_SHM_MEMORY");
}

TEST_CASE("a context that goes away while shared memory is opened", "[shm]") {
  using namespace automatic_test;
  std::vector<double> x(10, 1.0);
  {
    asio::io_context io;
    const communicator world(io, choosing());
    bool called = false;
    for (int i = 0; i < 20; ++i) {
      cohort::all_reduce(world, x, op::sum, [&](const std::error_code&) { called = true; });
    }
    CHECK_FALSE(called);
  }
  on_world([](communicator world) -> asio::awaitable<void> {
    const bool right = co_await sums_right(world, 10);
    CHECK(right);
  });
}

TEST_CASE("nobody waits for the opening, not even the end of a context", "[shm]") {
  using namespace automatic_test;
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (size != 2) return;  // the root of a small broadcast between two ranks needs nobody
  std::vector<int> values(20);
  {
    asio::io_context io;
    cohort::use_engine(io, {.drain = std::chrono::milliseconds(1)});  // or else the job ends
    const communicator world(io, choosing());
    if (rank == 0) MPI_Recv(nullptr, 0, MPI_INT, 1, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    int done = 0;
    for (int& each : values) {
      if (rank == 1) each = 5;
      cohort::broadcast(world, each, 1, [&](const std::error_code& why) { done += why ? 0 : 1; });
    }
    io.run();
    CHECK(done == 20);
  }
  if (rank == 1) MPI_Send(nullptr, 0, MPI_INT, 0, 7, MPI_COMM_WORLD);
  CHECK(values == std::vector<int>(20, 5));
}

TEST_CASE("what only MPI can reduce stays with MPI, which goes on inside its own calls", "[shm]") {
  using namespace automatic_test;
  on_world(
      [](communicator world) -> asio::awaitable<void> {
        if (world.size() == 1) co_return;
        const auto beside = co_await world.dup();
        co_await until_chosen(world);
        const auto before = world.stats().by_backend.operations;
        std::vector<int> all_true(100'000, 1);
        int sent = 1;
        auto summing = cohort::all_reduce(world, all_true, op::logical_and, as_future);
        if (world.rank() == 0) {
          MPI_Recv(&sent, 1, MPI_INT, world.size() - 1, 1, beside.native(), MPI_STATUS_IGNORE);
        }
        co_await std::move(summing);
        if (world.rank() == world.size() - 1) MPI_Send(&sent, 1, MPI_INT, 0, 1, beside.native());
        CHECK(all_true == std::vector<int>(100'000, 1));
        CHECK(world.stats().by_backend.operations == before);
      },
      choosing());
}

TEST_CASE("a rank that waits in shared memory goes on with what MPI has", "[shm]") {
  using namespace automatic_test;
  asio::io_context io;
  const communicator world(io, choosing());
  if (world.size() == 1) return;
  cohort_test::run(io, until_chosen(world));
  const auto before = world.stats().by_backend.operations;
  cohort_test::large_message awaited;
  cohort_test::run(io, cohort::barrier(world));
  CHECK(awaited.send());
  cohort_test::run(io, cohort::barrier(world));
  CHECK(awaited.arrives());
  cohort_test::large_message in_place;
  cohort_test::run(io, cohort::barrier(world));
  CHECK(in_place.send());
  std::vector<int> ones(100, 1);
  // A future that goes waits in place, for it has borrowed the vector.
  static_cast<void>(cohort::all_reduce(world, ones, op::sum, as_future));
  CHECK(ones == std::vector<int>(100, world.size()));
  CHECK(in_place.arrives());
  CHECK(world.stats().by_backend.operations == before + 4);
}
