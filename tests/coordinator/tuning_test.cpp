// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// Numbers that change while a coordinator runs. Part of the executable coordinator.plan.
#include <cohort/collectives/all_gather.hpp>
#include <cohort/collectives/broadcast.hpp>
#include <cohort/progress/when_all.hpp>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "coordinator/support.hpp"
#include "coordinator/text_files.hpp"

namespace {

using cohort::coordinator_options;
using cohort::coordination::tuned_options;
using cohort_test::coordinated;
using cohort_test::on_world;
using cohort_test::scratch_file;

std::vector<std::uint64_t> tuned_numbers(const coordinator_options& options) {
  std::vector<std::uint64_t> all;
  for (const auto& row : tuned_options()) all.push_back(row.get(options));
  return all;
}

/// Steps of a small model, with exact sums, until rank 0 says that it is enough.
template <class Enough>
asio::awaitable<void> train(cohort::communicator world, cohort::coordinator coord, Enough enough,
                            bool marks = false) {
  const std::vector<std::size_t> counts{100'000, 5, 30'000, 1000, 7, 64'000};
  std::vector<std::vector<int>> gradients;
  for (const std::size_t count : counts) gradients.emplace_back(count);
  for (int step = 0;; ++step) {
    std::vector<cohort::future<void>> all;
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      gradients[i].assign(counts[i], step + world.rank());
      all.push_back(coord.all_reduce("gradient " + std::to_string(i), gradients[i], cohort::op::sum,
                                     cohort::as_future));
    }
    co_await cohort::when_all(std::move(all));
    if (marks) coord.step();
    const int sum = world.size() * step + world.size() * (world.size() - 1) / 2;
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      REQUIRE(gradients[i] == std::vector<int>(counts[i], sum));
    }
    if (step % 50 != 49) continue;
    int stop = enough() ? 1 : 0;
    co_await cohort::broadcast(world, stop, 0);
    if (stop != 0) co_return;
  }
}

asio::awaitable<void> check_same_numbers(cohort::communicator world,
                                         const coordinator_options& options) {
  const std::vector<std::uint64_t> mine = tuned_numbers(options);
  std::vector<std::uint64_t> all(mine.size() * static_cast<std::size_t>(world.size()));
  co_await cohort::all_gather(world, mine, all);
  for (std::size_t i = 0; i < all.size(); ++i) CHECK(all[i] == mine[i % mine.size()]);
}

}  // namespace

TEST_CASE("sums are right while numbers change, and all ranks have the same in the end",
          "[coordinator][tune]") {
  coordinator_options options;
  options.tune = true;
  on_world([&](cohort::communicator world) -> asio::awaitable<void> {
    if (world.size() == 1) co_return;
    for (const bool marks : {false, true}) {
      cohort::coordinator coord(world, options);
      co_await coord.barrier();
      std::uint64_t asked = 0;  // after 50 steps each
      const auto enough = [&] { return ++asked != 0 && coord.stats().tuning.trials >= 2; };
      co_await train(world, coord, enough, marks);
      if (world.rank() == 0) CHECK(coord.stats().tuning.steps >= 45 * asked);
      if (world.rank() != 0) CHECK(coord.stats().tuning.trials == 0);
      co_await coord.shutdown();
      co_await check_same_numbers(world, coord.options());
    }
  });
}

TEST_CASE("nothing changes where nobody has asked for it", "[coordinator][tune]") {
  coordinated([](cohort::communicator world, cohort::coordinator coord) -> asio::awaitable<void> {
    int rounds = 0;
    co_await train(world, coord, [&] { return ++rounds == 4; });
    CHECK(coord.stats().tuning.steps == 0);
    CHECK(tuned_numbers(coord.options()) == tuned_numbers(coordinator_options()));
  });
}

TEST_CASE("what was kept is a file of options", "[coordinator][tune]") {
  const scratch_file file("kept");
  for (const std::uint64_t piece : {4096U, 81920U}) {
    coordinator_options options;
    options.piece = piece;
    options.backend_up_to = 0;
    cohort::coordination::save_tuned(file.path(), options, "piece down");
    CHECK(tuned_numbers(cohort::load_options(file.path())) == tuned_numbers(options));
  }
  CHECK_THROWS_AS(cohort::coordination::save_tuned("/nowhere/at/all", coordinator_options(), ""),
                  std::system_error);
}

// Its starts are in no log, so nothing tells ranks between which of them the numbers change.
TEST_CASE("a persistent group keeps the numbers that the coordinator was made with",
          "[coordinator][tune]") {
  const scratch_file file("for-others");
  file.fill("piece=4096\nfusion_buffer=8192\n");
  on_world([&](cohort::communicator world) -> asio::awaitable<void> {
    coordinator_options options;
    options.tune_file = file.path();
    cohort::coordinator coord(world, options);
    std::vector<float> data(100'000, 1);
    const auto group =
        co_await coord.make_persistent(cohort::bundle("g").add("data", data), cohort::op::max);
    co_await coord.barrier();
    const auto calls = [&coord] {
      const cohort::coordinator_statistics done = coord.stats();
      return done.by_mpi.operations + done.by_backend.operations;
    };
    const std::uint64_t before = calls();
    co_await group.start();
    CHECK(calls() == before + 1);
    co_await coord.all_reduce("data", data, cohort::op::max);
    CHECK(calls() == before + 1 + (400'000 + 4095) / 4096);
    co_await group.remove();
    co_await coord.shutdown();
  });
}

TEST_CASE("rank 0 reads the file, and all ranks work with what is in it", "[coordinator][tune]") {
  const scratch_file file("tuned");
  file.fill("# from another run\npiece=12288\nfusion_buffer=20480\npieces_in_flight=3\n");
  for (const bool tune : {false, true}) {
    coordinator_options options;
    options.tune = tune;
    ::setenv("COHORT_TUNE_FILE", file.path().c_str(), 1);
    ::setenv("COHORT_PIECES_IN_FLIGHT", "4", 1);  // the environment wins
    coordinated(
        [](cohort::communicator world, cohort::coordinator coord) -> asio::awaitable<void> {
          const coordinator_options now = coord.options();
          CHECK(now.piece == 12288);
          CHECK(now.fusion_buffer == 20480);
          CHECK(now.pieces_in_flight == 4);
          CHECK(now.fusion_threshold == coordinator_options().fusion_threshold);
          int rounds = 0;
          co_await train(world, coord, [&] { return ++rounds == 2; });
          // A set has what the program has chosen.
          cohort::process_set all =
              co_await coord.add_process_set(cohort::ranks::all(world.size()));
          CHECK(all.options().piece == coordinator_options().piece);
          CHECK(!all.options().tune);
          int one = 1;
          co_await all.all_reduce("one", one, cohort::op::sum);
          CHECK(one == world.size());
          co_await all.shutdown();
        },
        options);
    ::unsetenv("COHORT_TUNE_FILE");
    ::unsetenv("COHORT_PIECES_IN_FLIGHT");
  }
}

TEST_CASE("a file that is not there is none", "[coordinator][tune]") {
  coordinator_options options;
  options.tune_file = "/nowhere/at/all";
  coordinated(
      [](cohort::communicator, cohort::coordinator coord) -> asio::awaitable<void> {
        co_await cohort_test::works(coord, "a");
        CHECK(tuned_numbers(coord.options()) == tuned_numbers(coordinator_options()));
      },
      options);
}

TEST_CASE("a file that rank 0 cannot use is an error on all ranks", "[coordinator][tune]") {
  for (const char* const text : {"piece=one", "radix=2", "piece=4096\npiece=4096"}) {
    INFO(text);
    const scratch_file file("tuned");
    file.fill(text);
    coordinator_options options;
    options.tune_file = file.path();
    on_world([&](cohort::communicator world) -> asio::awaitable<void> {
      if (world.rank() == 0) {
        CHECK_THROWS_AS(cohort::coordinator(world, options), cohort::error);
        co_return;
      }
      cohort::coordinator coord(world, options);
      bool refused = false;
      try {
        co_await coord.barrier();
      } catch (const cohort::mismatch_error& problem) {
        refused = cohort_test::has(problem.what(), "rank 0 refused its options");
      }
      CHECK(refused);
    });
  }
}

TEST_CASE("all_reduce and broadcast of more than backend_up_to go by MPI", "[coordinator][tune]") {
  coordinator_options options;
  options.backend_up_to = 1000;
  coordinated(
      [](cohort::communicator world, cohort::coordinator coord) -> asio::awaitable<void> {
        const bool shares = coord.stats().by_backend.operations != 0;
        const auto calls_by_mpi = [&] { return coord.stats().by_mpi.operations; };
        for (const std::size_t count : {std::size_t{50}, std::size_t{5000}}) {
          std::vector<double> some(count, 1.0);
          const auto before = calls_by_mpi();
          co_await coord.all_reduce("some", some, cohort::op::sum);
          co_await coord.broadcast("some", some, 0);
          CHECK(some == std::vector<double>(count, world.size()));
          if (shares) CHECK(calls_by_mpi() - before == (count == 50 ? 0U : 2U));
        }
      },
      options);
}
