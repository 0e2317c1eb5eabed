// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// Coroutines that go on in the looks of an engine, and what they do with the other ranks.

#include <cohort/comm/joint.hpp>
#include <cohort/core/log.hpp>
#include <cohort/progress/look_task.hpp>

#include <array>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "support/catch.hpp"
#include "support/world.hpp"

namespace {

using cohort::communicator;
using cohort::progress::begin_look_task;
using cohort::progress::look_task;
using task = asio::awaitable<void>;
namespace joint = cohort::comm::joint;

/// How a look task has ended.
template <class T>
struct outcome {
  std::exception_ptr why;
  std::optional<T> result;
};

/// Runs it, and lets the loop go on until it has ended.
template <class T>
asio::awaitable<outcome<T>> run_in_looks(look_task<T> work, const char* verb) {
  outcome<T> end;
  asio::steady_timer ended(co_await asio::this_coro::executor,
                           asio::steady_timer::time_point::max());
  auto wakes =
      std::make_unique<asio::steady_timer*>(&ended);  // what is called then may be move-only
  begin_look_task(std::move(work), {.verb = verb},
                  [&end, wakes = std::move(wakes)](std::exception_ptr why, T result) {
                    end = {std::move(why), std::move(result)};
                    (*wakes)->expires_at(asio::steady_timer::time_point::min());
                  });
  std::error_code cancelled;
  co_await ended.async_wait(asio::redirect_error(asio::use_awaitable, cancelled));
  co_return end;
}

look_task<std::vector<int>> squares_of_all(communicator over) {
  const int mine = over.rank() * over.rank();
  std::vector<int> all(static_cast<std::size_t>(over.size()));
  auto gathering = joint::all_gather(over, mine, all);
  co_await gathering;
  int first = all[0] + 5;
  if (over.rank() != 0) first = 0;
  auto telling = joint::broadcast(over, first, 0);
  co_await telling;
  all.push_back(first);
  co_return all;
}

/// Rank r brings r numbers.
look_task<std::vector<int>> as_many_as_rank(communicator over) {
  const std::vector<int> mine(static_cast<std::size_t>(over.rank()), over.rank());
  std::vector<int> counts;
  for (int rank = 0; rank < over.size(); ++rank) counts.push_back(rank);
  std::vector<int> all(static_cast<std::size_t>(over.size() * (over.size() - 1) / 2));
  auto gathering = joint::all_gather_v(over, mine, all, counts);
  co_await gathering;
  co_return all;
}

look_task<std::array<int, 4>> sizes_of_new(communicator over) {
  auto duplicating = joint::duplicate(over);
  const communicator copy = co_await duplicating;
  auto splitting = joint::split(copy, copy.rank() % 2);
  const communicator half = co_await splitting;
  auto leaving = joint::split(copy, copy.rank() == 0 ? -1 : 0);
  const communicator rest = co_await leaving;
  auto dividing = joint::split_nodes(copy, copy.rank());
  const communicator alone = co_await dividing;
  const int size_of_rest = rest ? rest.size() : -1;
  co_return std::array<int, 4>{copy.size(), half.size(), size_of_rest, alone.size()};
}

look_task<int> refused(communicator over) {
  auto asking = joint::request(over, [](MPI_Request*) { return MPI_ERR_COUNT; });
  co_await asking;
  co_return 1;
}

look_task<int> throws_while_made(communicator over) {
  auto making = joint::create(over, [](cohort::mpi::comm) { throw std::runtime_error("not so"); });
  co_await making;
  co_return 1;
}

}  // namespace

TEST_CASE("look tasks exchange with the other ranks", "[joint]") {
  cohort_test::on_world([](communicator world) -> task {
    const auto squares = co_await run_in_looks(squares_of_all(world), "squares");
    REQUIRE_FALSE(squares.why);
    std::vector<int> expected;
    for (int rank = 0; rank < world.size(); ++rank) expected.push_back(rank * rank);
    expected.push_back(5);
    CHECK(squares.result == expected);
    const auto many = co_await run_in_looks(as_many_as_rank(world), "many");
    REQUIRE_FALSE(many.why);
    expected.clear();
    for (int rank = 0; rank < world.size(); ++rank) {
      expected.insert(expected.end(), static_cast<std::size_t>(rank), rank);
    }
    CHECK(many.result == expected);
  });
}

TEST_CASE("look tasks make communicators", "[joint]") {
  cohort_test::on_world([](communicator world) -> task {
    const auto of_all = co_await run_in_looks(sizes_of_new(world), "sizes");
    REQUIRE_FALSE(of_all.why);
    const int even = (world.size() + 1) / 2;
    const bool is_even = world.rank() % 2 == 0;
    const bool first = world.rank() == 0;
    CHECK(of_all.result == std::array<int, 4>{world.size(), is_even ? even : world.size() - even,
                                              first ? -1 : world.size() - 1, 1});
  });
}

TEST_CASE("what fails in a look task is told with its verb", "[joint]") {
  cohort_test::on_world([](communicator world) -> task {
    const auto failed = co_await run_in_looks(refused(world), "a refusal");
    REQUIRE(failed.why);
    try {
      std::rethrow_exception(failed.why);
    } catch (const std::system_error& error) {
      CHECK(cohort::mpi::error_class(error.code()) == MPI_ERR_COUNT);
      CHECK(std::string(error.what()).starts_with("a refusal"));
    }
    const auto thrown = co_await run_in_looks(throws_while_made(world), "making");
    REQUIRE(thrown.why);
    CHECK_THROWS_AS(std::rethrow_exception(thrown.why), std::runtime_error);
    auto copy = co_await world.dup();  // the turn has been given back
    CHECK(copy.size() == world.size());
  });
}

TEST_CASE("a look task is seen through by a context that ends", "[joint]") {
  std::optional<int> copied;
  {
    asio::io_context io;
    const communicator world(io);
    begin_look_task(sizes_of_new(world), {.verb = "sizes"},
                    [&](std::exception_ptr why, std::array<int, 4> found) {
                      if (!why) copied = found[0];
                    });
  }  // no handler has run
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  CHECK(copied == size);
}
