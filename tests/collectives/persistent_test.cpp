// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

#include <cohort/collectives.hpp>
#include <cohort/mpi/persistent.hpp>
#include <cohort/mpi/topology.hpp>
#include <cohort/p2p/recv.hpp>
#include <cohort/p2p/send.hpp>
#include <cohort/progress/future.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "support/catch.hpp"
#include "support/world.hpp"

namespace persistent_test {

using cohort::communicator;
using cohort_test::code_of;
using cohort_test::on_world;
using cohort_test::on_world_of_mpi;
using ints = std::vector<int>;

/// Backends take runs as they take the verbs: each case is for all ways to carry it.
template <class Body>
void in_every_way(Body body) {
  on_world(body);
  on_world_of_mpi(body);
  cohort::communicator_options options;
  options.backend = cohort::backend_choice::mpi_blocking;
  on_world(body, options);
  options = {};
  options.checks = cohort::checks::cross_rank;
  on_world(body, options);
}

/// More runs than a communicator needs to open its backend.
constexpr int many = 40;

int sum_of_ranks(const communicator& world) { return world.size() * (world.size() - 1) / 2; }

}  // namespace persistent_test

using namespace persistent_test;

TEST_CASE("persistent reductions give each run the sum of what is there then") {
  in_every_way([](communicator world) -> asio::awaitable<void> {
    const int size = world.size();
    ints in(3), all(3), one(3), place(3), own(1);
    ints blocks(static_cast<std::size_t>(size));
    auto to_all = cohort::all_reduce_init(world, in, all, cohort::op::sum);
    auto in_place = cohort::all_reduce_init(world, place, cohort::op::max);
    auto to_one = cohort::reduce_init(world, in, one, cohort::op::sum, size - 1);
    auto scattered = cohort::reduce_scatter_init(world, blocks, own, cohort::op::sum);
    for (int step = 0; step < many; ++step) {
      in.assign(3, world.rank() + step);
      place.assign(3, world.rank() * step);
      std::iota(blocks.begin(), blocks.end(), step);
      one.assign(3, -1);
      co_await to_all.run();
      co_await in_place.run();
      co_await to_one.run();
      co_await scattered.run();
      const int expected = sum_of_ranks(world) + size * step;
      REQUIRE(all == ints(3, expected));
      REQUIRE(place == ints(3, (size - 1) * step));
      REQUIRE(one == ints(3, world.rank() == size - 1 ? expected : -1));
      REQUIRE(own == ints(1, size * (world.rank() + step)));
    }
  });
}

TEST_CASE("a persistent reduce in place is the root's") {
  in_every_way([](communicator world) -> asio::awaitable<void> {
    int value = 0;
    auto sum = cohort::reduce_init(world, value, cohort::op::sum, 0);
    for (int step = 0; step < many; ++step) {
      value = step;
      co_await sum.run();
      REQUIRE(value == (world.rank() == 0 ? step * world.size() : step));
    }
  });
}

TEST_CASE("persistent movements move what is there when they run") {
  in_every_way([](communicator world) -> asio::awaitable<void> {
    const auto size = static_cast<std::size_t>(world.size());
    const int rank = world.rank();
    const int root = world.size() - 1;
    int value = 0, mine = 0, part = 0;
    ints everyones(size), gathered(size), out(size), in(size), spread(size), places(size);
    auto broadcast = cohort::broadcast_init(world, value, root);
    auto all_gather = cohort::all_gather_init(world, mine, everyones);
    auto in_place = cohort::all_gather_init(world, places);
    auto all_to_all = cohort::all_to_all_init(world, out, in);
    auto gather = cohort::gather_init(world, mine, gathered, root);
    auto scatter = cohort::scatter_init(world, spread, part, root);
    auto meet = cohort::barrier_init(world);
    for (int step = 0; step < many; ++step) {
      value = rank == root ? step : -1;
      mine = rank + step;
      places.assign(size, -1);
      places[static_cast<std::size_t>(rank)] = rank * step;
      for (std::size_t i = 0; i < size; ++i) {
        out[i] = rank * 100 + static_cast<int>(i) + step;
        spread[i] = rank == root ? static_cast<int>(i) * 10 + step : -1;
      }
      co_await broadcast.run();
      co_await all_gather.run();
      co_await in_place.run();
      co_await all_to_all.run();
      co_await gather.run();
      co_await scatter.run();
      co_await meet.run();
      REQUIRE(value == step);
      REQUIRE(part == rank * 10 + step);
      for (std::size_t i = 0; i < size; ++i) {
        const int other = static_cast<int>(i);
        REQUIRE(everyones[i] == other + step);
        REQUIRE(places[i] == other * step);
        REQUIRE(in[i] == other * 100 + rank + step);
        if (rank == root) REQUIRE(gathered[i] == other + step);
      }
    }
  });
}

TEST_CASE("persistent scans combine what is there when they run") {
  in_every_way([](communicator world) -> asio::awaitable<void> {
    const int rank = world.rank();
    int mine = 0, up_to_here = 0, place = 0, before = 0, own = 0;
    auto scan = cohort::scan_init(world, mine, up_to_here, cohort::op::sum);
    auto most = cohort::scan_init(world, place, cohort::op::max);
    auto exclusive = cohort::exclusive_scan_init(world, mine, before, cohort::op::sum);
    auto in_place = cohort::exclusive_scan_init(world, own, cohort::op::sum);
    for (int step = 0; step < many; ++step) {
      mine = own = rank + step;
      place = -rank * step;
      before = -1;
      co_await scan.run();
      co_await most.run();
      co_await exclusive.run();
      co_await in_place.run();
      const int below = rank * (rank - 1) / 2 + rank * step;
      REQUIRE(up_to_here == below + rank + step);
      REQUIRE(place == 0);
      REQUIRE(before == (rank == 0 ? -1 : below));
      REQUIRE(own == (rank == 0 ? step : below));
    }
  });
}

TEST_CASE("persistent neighbours give what the verbs give, also where some have none") {
  in_every_way([](communicator world) -> asio::awaitable<void> {
    const int size = world.size();
    const bool is_last = world.rank() == size - 1;
    // The last rank is alone; of the others each tells the next one, in a ring.
    const int others = size - 1;
    const auto next = [&](int by) {
      return is_last ? std::vector<int>{}
                     : std::vector<int>{(world.rank() + by + others) % std::max(others, 1)};
    };
    const communicator ring = co_await world.create(cohort::mpi::dist_graph(next(-1), next(1)));
    const communicator line = co_await world.create(cohort::mpi::cartesian::balanced(size, 1));
    const std::size_t around_ring = is_last ? 0 : 1;
    ints mine(2), heard(2 * around_ring), edges(2), halo(2, -1), plain(2);
    auto tell = cohort::neighbor_all_gather_init(ring, mine, heard);
    auto swap = cohort::neighbor_all_to_all_init(line, edges, halo);
    for (int step = 0; step < many; ++step) {
      mine.assign(2, world.rank() + step);
      edges = {world.rank() * 10 + step, world.rank() * 10 + 5 + step};
      halo.assign(2, -1);
      plain.assign(2, -1);
      co_await tell.run();
      co_await swap.run();
      co_await cohort::neighbor_all_to_all(line, edges, plain);
      if (!is_last) {
        const int left = (world.rank() + others - 1) % others;
        REQUIRE(heard == ints(2, left + step));
      }
      REQUIRE(halo == plain);
    }
    if (cohort::mpi::persistent::exists) {
      CHECK(tell.is_persistent());
      CHECK(swap.is_persistent());
    }
    auto nowhere = cohort::neighbor_all_gather_init(world, mine, heard);
    const auto bad = co_await code_of(nowhere.run());
    CHECK(bad == cohort::errc::invalid_communicator);
  });
}

TEST_CASE("averages are divided in each run, and elements with gaps are refused") {
  in_every_way([](communicator world) -> asio::awaitable<void> {
    std::vector<double> matrix(12);
    auto mean = cohort::all_reduce_init(world, matrix, cohort::op::average);
    for (int step = 0; step < many; ++step) {
      matrix.assign(12, world.rank() + step);
      co_await mean.run();
      REQUIRE(matrix == std::vector<double>(12, (world.size() - 1) / 2.0 + step));
    }
    const auto column = cohort::strided_view(matrix.data(), 4, 1, 3);
    std::error_code refused;
    try {
      auto none = cohort::all_reduce_init(world, column, cohort::op::average);
    } catch (const std::system_error& failed) {
      refused = failed.code();
    }
    CHECK(refused == cohort::errc::not_supported);
  });
}

TEST_CASE("a cancelled run of a persistent barrier goes on, and the next one too") {
  in_every_way([](communicator world) -> asio::awaitable<void> {
    auto gate = cohort::barrier_init(world);
    co_await gate.run();
    for (int step = 0; step < many; ++step) {
      if ((world.rank() + step) % 2 == 0) {
        asio::cancellation_signal signal;
        std::error_code ended = cohort::errc::stalled;
        gate.run(asio::bind_cancellation_slot(
            signal.slot(), [&](const std::error_code& error) { ended = error; }));
        signal.emit(asio::cancellation_type::terminal);
        co_await gate.finish();
        while (ended == cohort::errc::stalled) co_await asio::post(asio::use_awaitable);
        CHECK(!ended);
      } else {
        co_await gate.run();
      }
    }
  });
}

TEST_CASE("what is left to MPI is one persistent request, where it has them") {
  on_world_of_mpi([](communicator world) -> asio::awaitable<void> {
    int value = 1;
    auto most = cohort::all_reduce_init(world, value, cohort::op::max);
    CHECK_FALSE(most.is_persistent());
    co_await most.run();
    CHECK(most.is_persistent() == cohort::mpi::persistent::exists);
    co_await most.run();
    CHECK(most.is_persistent() == cohort::mpi::persistent::exists);
  });
}

TEST_CASE("a persistent operation runs with any token") {
  in_every_way([](communicator world) -> asio::awaitable<void> {
    int value = 0;
    auto sum = cohort::all_reduce_init(world, value, cohort::op::sum);
    const int expected = world.size();
    const auto fresh = [&] { value = 1; };
    fresh();
    auto [error] = co_await sum.run(cohort::as_tuple);
    CHECK_FALSE(error);
    CHECK(value == expected);
    fresh();
    auto later = sum.run(cohort::as_future);
    CHECK(sum.is_in_flight());
    co_await std::move(later);
    CHECK(value == expected);
    fresh();
    auto prepared = sum.run(cohort::deferred);
    CHECK_FALSE(sum.is_in_flight());
    co_await std::move(prepared)(asio::use_awaitable);
    CHECK(value == expected);
    fresh();
    std::optional<std::error_code> told;
    sum.run([&told](std::error_code code) { told = code; });
    co_await sum.finish();
    CHECK_FALSE(sum.is_in_flight());
    CHECK(value == expected);
    while (!told) co_await asio::post(co_await asio::this_coro::executor, asio::use_awaitable);
    CHECK_FALSE(*told);
  });
}

TEST_CASE("a run is started and finished apart") {
  in_every_way([](communicator world) -> asio::awaitable<void> {
    int value = 0;
    auto sum = cohort::all_reduce_init(world, value, cohort::op::sum);
    co_await sum.finish();  // never started
    for (int step = 1; step < many; ++step) {
      value = step;
      sum.start();
      co_await sum.finish();
      CHECK_FALSE(sum.is_in_flight());
      REQUIRE(value == step * world.size());
      co_await sum.finish();  // again
    }
  });
}

TEST_CASE("a persistent operation runs in code that is no coroutine") {
  const auto way = GENERATE(cohort::backend_choice::mpi, cohort::backend_choice::mpi_blocking,
                            cohort::communicator_options().backend);
  cohort::communicator_options options;
  options.backend = way;
  asio::io_context io;
  const communicator world(io, options);
  int value = 0;
  auto sum = cohort::all_reduce_init(world, value, cohort::op::sum);
  for (int step = 0; step < many; ++step) {
    value = step;
    sum.run(cohort::blocking);
    REQUIRE(value == step * world.size());
    value = step;
    sum.start();
    sum.finish(cohort::blocking);
    CHECK_FALSE(sum.is_in_flight());
    REQUIRE(value == step * world.size());
  }
}

TEST_CASE("one run at a time, and one who waits for it") {
  on_world_of_mpi([](communicator world) -> asio::awaitable<void> {
    if (world.size() == 1) co_return;  // it ends at once
    int value = 1;
    const int one = 1;
    auto sum = cohort::all_reduce_init(world, value, cohort::op::sum);
    if (world.rank() == 0) {
      sum.start();
      CHECK_THROWS_AS(sum.start(), cohort::error);
      const auto second = co_await code_of(sum.run());
      CHECK(second == cohort::errc::invalid_argument);
      CHECK(sum.is_in_flight());
      auto first = sum.finish(cohort::as_future);
      const auto other = co_await code_of(sum.finish());
      CHECK(other == cohort::errc::invalid_argument);
      for (int to = 1; to < world.size(); ++to) co_await cohort::send(world, one, to, 0);
      co_await std::move(first);
    } else {
      int go = 0;
      co_await cohort::recv(world, go, 0, 0);  // rank 0 has come so far alone
      co_await sum.run();
    }
    CHECK(value == world.size());
  });
}

TEST_CASE("a persistent operation that is dropped waits until its buffers are free") {
  on_world_of_mpi([](communicator world) -> asio::awaitable<void> {
    int value = 1;
    {
      auto sum = cohort::all_reduce_init(world, value, cohort::op::sum);
      sum.start();
    }
    CHECK(value == world.size());
    auto again = cohort::all_reduce_init(world, value, cohort::op::max);
    co_await again.run();
    CHECK(value == world.size());
  });
}

TEST_CASE("a wrong persistent operation fails when it runs, and each time") {
  on_world_of_mpi([](communicator world) -> asio::awaitable<void> {
    int value = 0;
    auto nowhere = cohort::broadcast_init(world, value, world.size());
    for (int i = 0; i < 2; ++i) {
      const auto bad = co_await code_of(nowhere.run());
      CHECK(bad == cohort::errc::bad_root);
      CHECK_FALSE(nowhere.is_in_flight());
    }
    nowhere.start();
    const auto started = co_await code_of(nowhere.finish());
    CHECK(started == cohort::errc::bad_root);
    const std::string text = world.last_failure().text;
    CHECK(text.find("finish: of the run: rank") != std::string::npos);
    CHECK(text.find("root=" + std::to_string(world.size())) != std::string::npos);

    auto empty = cohort::barrier_init(communicator());
    const auto none = co_await code_of(empty.run());
    CHECK(none == cohort::errc::invalid_communicator);
  });
}

TEST_CASE("a persistent operation that has failed in a call that blocks can run again") {
  asio::io_context io;
  const communicator world(io);
  int value = 0;
  auto nowhere = cohort::broadcast_init(world, value, world.size());
  for (int i = 0; i < 2; ++i) {
    try {
      nowhere.run(cohort::blocking);
      FAIL("it has not failed");
    } catch (const std::system_error& failed) {
      CHECK(failed.code() == cohort::errc::bad_root);
    }
    CHECK_FALSE(nowhere.is_in_flight());
  }
}

TEST_CASE("a context goes with a persistent operation in flight, which nobody is told of") {
  const bool somebody_waits = GENERATE(true, false);
  const auto kept = std::make_shared<int>(1);
  {
    asio::io_context io;
    const communicator self(io, MPI_COMM_SELF);
    auto meet = cohort::barrier_init(self);
    const auto untold = [kept](std::error_code) { FAIL("nobody is there to call it"); };
    meet.run(untold);
    if (somebody_waits) meet.finish(untold);
    CHECK(kept.use_count() > 2);
  }
  CHECK(kept.use_count() == 1);
}

TEST_CASE("ranks that give a persistent operation different sizes are told") {
  cohort::communicator_options options;
  options.checks = cohort::checks::cross_rank;
  on_world(
      [](communicator world) -> asio::awaitable<void> {
        if (world.size() == 1) co_return;
        ints values(world.rank() == 0 ? 3 : 2);
        auto sum = cohort::all_reduce_init(world, values, cohort::op::sum);
        const auto bad = co_await code_of(sum.run());
        CHECK(bad == cohort::errc::cross_rank_mismatch);
        CHECK_FALSE(sum.is_in_flight());
        co_await cohort::barrier(world);
      },
      options);
}

TEST_CASE("persistent operations and others take turns as they are started") {
  on_world_of_mpi([](communicator world) -> asio::awaitable<void> {
    int first = 1, second = 1, third = 1;
    auto a = cohort::all_reduce_init(world, first, cohort::op::sum);
    auto b = cohort::broadcast_init(world, third, 0);
    for (int step = 0; step < many; ++step) {
      first = second = step;
      third = world.rank() == 0 ? step : -1;
      a.start();
      auto between = cohort::all_reduce(world, second, cohort::op::max, cohort::as_future);
      b.start();
      co_await b.finish();
      co_await a.finish();
      co_await std::move(between);
      REQUIRE(first == step * world.size());
      REQUIRE(second == step);
      REQUIRE(third == step);
    }
  });
}
