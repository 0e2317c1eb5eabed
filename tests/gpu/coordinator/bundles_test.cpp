// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

/// \file Bundles in device memory that are gathered, scattered and exchanged.

#include "support.hpp"

namespace {

using namespace cohort_test;
using cohort::bundle;
using cohort::coordinator;
using cohort::errc;

std::size_t number(int value) { return static_cast<std::size_t>(value); }

/// A rank's elements of a member, of which it has `first + rank`.
std::vector<int> own(int rank, int first) {
  return std::vector<int>(number(first + rank), 100 * first + rank);
}

asio::awaitable<void> all_gathers(coordinator coord, std::string name) {
  const device::stream one;
  const device::stream other;
  const int me = coord.rank();
  const int n = coord.size();
  // Of "odd" some ranks have nothing.
  auto a = co_await on_device(one, own(me, 2));
  auto b = co_await on_device(other, std::vector<double>(3, me + 0.5));
  auto odd = co_await on_device(one, std::vector<int>(me % 2 == 0 ? 0U : 5U, me));
  auto all =
      co_await coord.grouped_all_gather(bundle(name).add("a", a).add("b", b).add("odd", odd));
  std::vector<int> expected;
  std::vector<int> odds;
  std::vector<std::size_t> counts;
  for (int rank = 0; rank < n; ++rank) {
    const auto part = own(rank, 2);
    expected.insert(expected.end(), part.begin(), part.end());
    counts.push_back(part.size());
    odds.insert(odds.end(), rank % 2 == 0 ? 0U : 5U, rank);
  }
  CHECK(all.counts("a") == counts);
  CHECK_THROWS_AS(all.get<int>("a"), cohort::error);
  CHECK_THROWS_AS(all.take<device::vector<float>>("a"), cohort::error);
  const auto come = all.take<device::vector<int>>("a");
  CHECK(co_await now_in(come) == expected);
  const auto halves = all.take<device::vector<double>>("b");
  const auto found = co_await now_in(halves);
  REQUIRE(found.size() == 3 * number(n));
  CHECK(found.back() == n - 0.5);
  const auto rest = all.take<device::vector<int>>("odd");
  CHECK(co_await now_in(rest) == odds);
}

asio::awaitable<void> gathers_and_scatters(coordinator coord, int root) {
  const device::stream on;
  const int me = coord.rank();
  const int n = coord.size();
  const std::vector<int> mine{me, 10 + me};
  auto a = co_await on_device(on, mine);
  auto b = co_await on_device(on, std::vector<double>(3, me + 0.5));
  device::vector<float> none(0, on);
  auto all =
      co_await coord.grouped_gather(bundle("g").add("a", a).add("none", none).add("b", b), root);
  if (me == root) {
    std::vector<int> expected;
    for (int rank = 0; rank < n; ++rank) expected.insert(expected.end(), {rank, 10 + rank});
    const auto come = all.take<device::vector<int>>("a");
    CHECK(co_await now_in(come) == expected);
    const auto halves = all.take<device::vector<double>>("b");
    const auto found = co_await now_in(halves);
    REQUIRE(found.size() == 3 * number(n));
    CHECK(found.back() == n - 0.5);
    CHECK(all.take<device::vector<float>>("none").size() == 0);
    CHECK(all.counts("a") == std::vector<std::size_t>(number(n), 2));
  } else {
    CHECK(all.take<device::vector<int>>("a").size() == 0);
  }

  std::vector<int> wholes;
  std::vector<double> parts;
  for (int rank = 0; me == root && rank < n; ++rank) {
    wholes.insert(wholes.end(), {rank, -rank});
    parts.push_back(rank / 2.0);
  }
  auto whole = co_await on_device(on, wholes);
  auto halves = co_await on_device(on, parts);
  auto part = co_await on_device(on, std::vector<int>(2, 99));
  auto small = co_await on_device(on, std::vector<double>(1, 99));
  co_await coord.grouped_scatter(bundle("s").add("x", whole).add("y", halves),
                                 bundle("s").add("x", part).add("y", small), root);
  const std::vector<int> parted{me, -me};
  const std::vector<double> halved{me / 2.0};
  CHECK(co_await now_in(part) == parted);
  CHECK(co_await now_in(small) == halved);
}

asio::awaitable<void> exchanges(coordinator coord, std::string name, bool both) {
  const device::stream on;
  const int me = coord.rank();
  const int n = coord.size();
  std::vector<int> blocks;
  std::vector<std::uint8_t> bytes;
  for (int rank = 0; rank < n; ++rank) {
    blocks.insert(blocks.end(), {100 * me + rank, -1});
    bytes.push_back(static_cast<std::uint8_t>(16 * me + rank));
  }
  auto i = co_await on_device(on, blocks);
  auto s = co_await on_device(on, bytes);
  bundle all(name);
  all.add("i", i);
  if (both) all.add("s", s);
  auto come = co_await coord.grouped_all_to_all(all);
  const auto numbers = come.take<device::vector<int>>("i");
  const auto found = co_await now_in(numbers);
  REQUIRE(found.size() == 2 * number(n));
  for (int rank = 0; rank < n; ++rank) CHECK(found[2 * number(rank)] == 100 * rank + me);
  if (!both) co_return;
  const auto small = come.take<device::vector<std::uint8_t>>("s");
  const auto come_small = co_await now_in(small);
  for (int rank = 0; rank < n; ++rank) CHECK(come_small[number(rank)] == 16 * rank + me);
}

asio::awaitable<void> reduces_and_scatters(coordinator coord, std::size_t count) {
  const device::stream on;
  const auto n = number(coord.size());
  const auto part = [&](std::size_t of, std::size_t rank) {
    return of / n + (rank < of % n ? 1 : 0);
  };
  std::vector<float> ramp(count);
  for (std::size_t i = 0; i < count; ++i) {
    ramp[i] = static_cast<float>(i) + static_cast<float>(coord.rank());
  }
  auto a = co_await on_device(on, ramp);
  auto b = co_await on_device(on, std::vector<std::int64_t>(7, coord.rank()));
  auto mine = co_await coord.grouped_reduce_scatter(bundle("rs").add("a", a).add("b", b), op::sum);
  const auto me = number(coord.rank());
  std::size_t begin = 0;
  for (std::size_t rank = 0; rank < me; ++rank) begin += part(count, rank);
  const auto floats = mine.take<device::vector<float>>("a");
  const auto got = co_await now_in(floats);
  REQUIRE(got.size() == part(count, me));
  for (std::size_t i = 0; i < got.size(); ++i) {
    CHECK(got[i] == static_cast<float>(n * (begin + i) + n * (n - 1) / 2));
  }
  const auto ids = mine.take<device::vector<std::int64_t>>("b");
  CHECK(co_await now_in(ids) ==
        std::vector<std::int64_t>(part(7, me), static_cast<std::int64_t>(n * (n - 1) / 2)));
}

}  // namespace

TEST_CASE("bundles on devices are gathered, scattered and exchanged, each member in its place") {
  on_gpus([](cohort::communicator world) -> asio::awaitable<void> {
    coordinator coord(world, nccl::backend());
    const auto n = number(world.size());
    for (int round = 0; round < 2; ++round) co_await all_gathers(coord, "all");
    for (int root = 0; root < world.size(); ++root) co_await gathers_and_scatters(coord, root);
    co_await exchanges(coord, "two", true);
    co_await exchanges(coord, "one", false);
    for (const std::size_t count : {5 * n, 5 * n + 1, std::size_t{1}}) {
      co_await reduces_and_scatters(coord, count);
    }
    co_await coord.shutdown();
  });
}

TEST_CASE("bundles on devices of a process set count its ranks") {
  on_gpus([](cohort::communicator world) -> asio::awaitable<void> {
    coordinator coord(world, nccl::backend());
    const auto upper = cohort::ranks::stride(world.size() / 2, world.size(), 1);
    const auto set = co_await coord.add_process_set(upper);
    if (set) {
      const device::stream on;
      auto a = co_await on_device(on, own(set.rank(), 1));
      auto all = co_await set.grouped_all_gather(bundle("it").add("a", a));
      const auto come = all.take<device::vector<int>>("a");
      std::vector<int> expected;
      for (int rank = 0; rank < set.size(); ++rank) {
        const auto part = own(rank, 1);
        expected.insert(expected.end(), part.begin(), part.end());
      }
      CHECK(co_await now_in(come) == expected);
    }
    co_await sums(coord, "after");
    co_await coord.shutdown();
  });
}

TEST_CASE("a rank that has joined brings nothing to a bundle gathered on devices") {
  on_gpus([](cohort::communicator world) -> asio::awaitable<void> {
    if (world.size() < 2) co_return;
    coordinator coord(world, nccl::backend());
    const int active = world.size() - 1;
    const device::stream on;
    if (world.rank() != active) {
      auto a = co_await on_device(on, own(world.rank(), 1));
      auto b = co_await on_device(on, std::vector<double>(4, world.rank()));
      auto all = co_await coord.grouped_all_gather(bundle("it").add("a", a).add("b", b));
      CHECK(all.counts("a").back() == 0);
      CHECK(all.take<device::vector<double>>("b").size() == 4 * number(active));
      auto mine = co_await coord.grouped_reduce_scatter(bundle("sum").add("b", b), op::sum);
      const auto part = mine.take<device::vector<double>>("b");
      const auto sums_of_part = co_await now_in(part);
      for (const double one : sums_of_part) CHECK(one == active * (active - 1) / 2.0);
      // An exchange needs all.
      auto blocks = co_await on_device(on, std::vector<int>(number(world.size()), 1));
      auto others = co_await on_device(on, std::vector<int>(number(world.size()), 2));
      auto refused = caught<cohort::joined_error>(
          coord.grouped_all_to_all(bundle("all").add("i", blocks).add("j", others)));
      const auto problem = co_await std::move(refused);
      CHECK(problem.has_value());
    }
    static_cast<void>(co_await coord.join());
    co_await sums(coord, "after");
    co_await coord.shutdown();
  });
}

TEST_CASE("bundles on devices that cannot be cut or differ are told of by name") {
  on_gpus([](cohort::communicator world) -> asio::awaitable<void> {
    if (world.size() < 2) co_return;
    coordinator coord(world, nccl::backend());
    const device::stream on;
    auto odd = co_await on_device(on, std::vector<int>(number(world.size()) + 1));
    auto code = co_await code_of(coord.grouped_all_to_all(bundle("odd").add("a", odd)));
    CHECK(code == errc::size_mismatch);
    auto some = co_await on_device(on, std::vector<int>(world.rank() == 0 ? 3 : 4));
    auto differs =
        caught<cohort::mismatch_error>(coord.grouped_gather(bundle("differ").add("a", some), 0));
    const auto problem = co_await std::move(differs);
    REQUIRE(problem);
    CHECK(has(problem->what(), "1:a int32 x3"));
    std::vector<int> host(4);
    auto spaces = caught<cohort::mismatch_error>(
        world.rank() == 0 ? coord.grouped_gather(bundle("space").add("a", host), 0)
                          : coord.grouped_gather(bundle("space").add("a", some), 0));
    const auto other = co_await std::move(spaces);
    REQUIRE(other);
    CHECK(has(other->what(), "device"));
    co_await gathers_and_scatters(coord, 0);
    co_await coord.shutdown();
  });
}

TEST_CASE("buffers of a bundle on devices may go while it is gathered") {
  on_gpus([](cohort::communicator world) -> asio::awaitable<void> {
    auto coord = co_await opened(world);
    const device::stream on;
    std::optional<cohort::gathered_bundle> come;
    {
      auto a = co_await on_device(on, own(world.rank(), 3));
      coord.grouped_all_gather(bundle("it").add("a", a),
                               [&](std::exception_ptr why, cohort::gathered_bundle all) {
                                 CHECK_FALSE(why);
                                 come.emplace(std::move(all));
                               });
    }
    CHECK(co_await soon([&] { return come.has_value(); }));
    std::vector<int> expected;
    for (int rank = 0; rank < world.size(); ++rank) {
      const auto part = own(rank, 3);
      expected.insert(expected.end(), part.begin(), part.end());
    }
    const auto all = come->take<device::vector<int>>("a");
    CHECK(co_await now_in(all) == expected);
    co_await coord.shutdown();
  });
}
