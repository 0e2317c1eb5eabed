// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// Named verbs whose results go into memory of the caller. Part of the executable coordinator.verbs.
#include <cohort/coordinator.hpp>
#include <cohort/progress/future.hpp>
#include <cohort/shm.hpp>

#include <algorithm>
#include <complex>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/support.hpp"
#include "support/catch.hpp"
#include "support/caught.hpp"
#include "support/world.hpp"

namespace {

using cohort_test::coordinated;
using cohort_test::has;

template <class T>
std::vector<T> filled_with(std::size_t count, int value) {
  return std::vector<T>(count, T(static_cast<float>(value)));
}

/// `count(rank)` elements of each rank, which say rank + 1.
template <class T, class Count>
std::vector<T> one_after_another(int ranks, Count count) {
  std::vector<T> all;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto block = filled_with<T>(count(rank), rank + 1);
    all.insert(all.end(), block.begin(), block.end());
  }
  return all;
}

/// Whether `out` begins with `expected`, and is `rest` after it.
template <class T>
bool begins_with(const std::vector<T>& out, const std::vector<T>& expected, const T& rest) {
  return out.size() >= expected.size() &&
         std::equal(expected.begin(), expected.end(), out.begin()) &&
         std::all_of(out.begin() + static_cast<std::ptrdiff_t>(expected.size()), out.end(),
                     [&](const T& each) { return each == rest; });
}

std::size_t rows_of(int rank, int round) {
  return rank == 1 ? 0 : static_cast<std::size_t>(rank + round / 2);
}

template <class T>
asio::awaitable<void> everything_into_memory(cohort::coordinator coord) {
  const int n = coord.size();
  const int me = coord.rank();
  const int root = n / 2;
  const T rest(static_cast<float>(99));
  for (int round = 0; round < 4; ++round) {  // every second time the sizes are known
    const auto count = [&](int rank) { return rows_of(rank, round); };
    const auto mine = filled_with<T>(count(me), me + 1);
    const auto expected = one_after_another<T>(n, count);
    std::vector<T> out(expected.size() + static_cast<std::size_t>(me), rest);
    const std::size_t come = co_await coord.all_gather("rows", mine, out);
    CHECK(come == expected.size());
    CHECK(begins_with(out, expected, rest));

    std::vector<int> splits;
    std::vector<T> outgoing;
    for (int to = 0; to < n; ++to) {
      splits.push_back((me + to + round / 2) % 3);
      const auto part = filled_with<T>(static_cast<std::size_t>(splits.back()), me + 1);
      outgoing.insert(outgoing.end(), part.begin(), part.end());
    }
    const auto from_rank = [&](int rank) {
      return static_cast<std::size_t>((me + rank + round / 2) % 3);
    };
    const auto wanted = one_after_another<T>(n, from_rank);
    out.assign(wanted.size() + 2, rest);
    const std::vector<std::size_t> sizes =
        co_await coord.all_to_all("parts", outgoing, splits, out);
    CHECK(begins_with(out, wanted, rest));
    CHECK(sizes.size() == static_cast<std::size_t>(n));
    for (int rank = 0; rank < n; ++rank) {
      CHECK(sizes[static_cast<std::size_t>(rank)] == from_rank(rank));
    }

    const auto block = filled_with<T>(2, me + 1);
    const auto blocks = one_after_another<T>(n, [](int) { return std::size_t{2}; });
    out.assign(me == root ? blocks.size() + 1 : 0, rest);
    const std::size_t gathered = co_await coord.gather("blocks", block, out, root);
    CHECK(gathered == (me == root ? blocks.size() : 0));
    if (me == root) CHECK(begins_with(out, blocks, rest));
  }
  for (int rows = 0; rows < 6; ++rows) {  // uneven, and nothing for some or all
    const auto data = filled_with<T>(static_cast<std::size_t>(rows), 1);
    const auto part = static_cast<std::size_t>(rows / n + (me < rows % n ? 1 : 0));
    std::vector<T> out(part + 1, rest);
    const std::size_t got =
        co_await coord.reduce_scatter("sum " + std::to_string(rows), data, out, cohort::op::sum);
    CHECK(got == part);
    CHECK(begins_with(out, filled_with<T>(part, n), rest));
  }
}

/// What a rank without room is told.
void names_both_sizes(const std::optional<cohort::error>& told, int rank, const std::string& verb,
                      std::size_t room, std::size_t come) {
  REQUIRE(told);
  CHECK(told->code() == cohort::errc::size_mismatch);
  const std::string text = told->what();
  INFO(text);
  CHECK(has(text, "rank " + std::to_string(rank) + ": " + verb + ": out has room for " +
                      std::to_string(room) + " elements, of " + std::to_string(come)));
}

}  // namespace

TEMPLATE_TEST_CASE("named results into memory, of every type", "[coordinator]", std::int8_t,
                   std::uint16_t, int, std::int64_t, float, double, std::complex<float>,
                   cohort::f16, cohort::bf16) {
  coordinated([](cohort::communicator, cohort::coordinator coord) {
    return everything_into_memory<TestType>(coord);
  });
}

TEST_CASE("named results into memory through shared memory, and in a process set",
          "[coordinator]") {
  cohort_test::on_world([](cohort::communicator world) -> asio::awaitable<void> {
    const auto by = co_await cohort::shm::make_backend(world);
    cohort::coordinator coord(world, by);
    co_await everything_into_memory<float>(coord);
    if (world.size() > 1) CHECK(coord.stats().by_backend.operations > 0);
    const cohort::communicator half = co_await world.split(world.rank() % 2);
    const auto set = co_await coord.add_process_set(half);
    const std::vector<int> mine(2, set.rank());
    std::vector<int> all(2 * static_cast<std::size_t>(set.size()));
    const std::size_t come = co_await set.all_gather("rows", mine, all);
    CHECK(come == all.size());
    CHECK(all.back() == set.size() - 1);
    co_await set.shutdown();
    co_await coord.shutdown();
  });
}

TEST_CASE("a rank may take a vector where others give memory", "[coordinator]") {
  coordinated([](cohort::communicator, cohort::coordinator coord) -> asio::awaitable<void> {
    const int n = coord.size();
    const int me = coord.rank();
    for (int round = 0; round < 4; ++round) {
      const std::vector<int> mine(static_cast<std::size_t>(me + 1), me);
      std::vector<int> all(static_cast<std::size_t>(n * (n + 1) / 2));
      if ((me + round) % 2 == 0) {
        const std::size_t come = co_await coord.all_gather("rows", std::span(mine), std::span(all));
        CHECK(come == all.size());
      } else {
        all = co_await coord.all_gather("rows", mine);
      }
      int sum = 0;
      for (const int each : all) sum += each;
      CHECK(sum == (n - 1) * n * (n + 1) / 3);
    }
    CHECK(coord.stats().size_exchanges == 1);
  });
}

TEST_CASE("what is moved in comes back behind the count", "[coordinator]") {
  coordinated([](cohort::communicator, cohort::coordinator coord) -> asio::awaitable<void> {
    const auto n = static_cast<std::size_t>(coord.size());
    std::vector<int> room(2 * n, -1);
    std::vector<int> given(2, coord.rank());
    auto [count, in, out] = co_await coord.all_gather("owned", std::move(given), std::move(room));
    CHECK(count == 2 * n);
    CHECK(in == std::vector<int>(2, coord.rank()));
    CHECK(out.back() == coord.size() - 1);
    auto [part, back] = co_await coord.reduce_scatter("part", out, std::move(in), cohort::op::sum);
    CHECK(part == 2);
    CHECK(back == std::vector<int>(2, coord.size() * coord.rank()));
    cohort::call_options options;
    options.priority = 2;
    auto pending = coord.gather("later", back, out, 0, options, cohort::as_future);
    const std::size_t gathered = co_await std::move(pending);
    CHECK(gathered == (coord.rank() == 0 ? 2 * n : 0));
  });
}

TEST_CASE("compressed and scaled parts go into memory", "[coordinator]") {
  coordinated([](cohort::communicator, cohort::coordinator coord) -> asio::awaitable<void> {
    const int n = coord.size();
    cohort::call_options options;
    options.compression = cohort::compression::bf16;
    options.postscale = 0.5;
    const std::vector<float> data(static_cast<std::size_t>(3 * n), 2.0F);
    std::vector<float> part(4, -1.0F);
    const std::size_t count =
        co_await coord.reduce_scatter("part", data, part, cohort::op::sum, options);
    CHECK(count == 3);
    const auto whole = static_cast<float>(n);
    CHECK(part == std::vector<float>{whole, whole, whole, -1.0F});
  });
}

TEST_CASE("without room one rank ends with both sizes, and the others have their results",
          "[coordinator]") {
  coordinated([](cohort::communicator, cohort::coordinator coord) -> asio::awaitable<void> {
    const int n = coord.size();
    const int me = coord.rank();
    const bool lacks = me == n - 1;
    const std::vector<int> mine(3, me);
    const auto total = static_cast<std::size_t>(3 * n);
    for (int round = 0; round < 3; ++round) {  // also where the sizes are known
      std::vector<int> out(lacks ? total - 1 : total, -1);
      auto gathering = coord.all_gather("rows", mine, out);
      if (lacks) {
        const auto told = co_await cohort_test::caught<cohort::error>(std::move(gathering));
        names_both_sizes(told, me, "all_gather 'rows'", total - 1, total);
        CHECK(out == std::vector<int>(total - 1, -1));
      } else {
        const std::size_t come = co_await std::move(gathering);
        CHECK(come == total);
        CHECK(out.back() == n - 1);
      }
      const std::vector<int> threes(static_cast<std::size_t>(n), 3);
      const std::vector<int> outgoing(total, me);
      std::vector<int> incoming(lacks ? 0 : total, -1);
      auto exchanging = coord.all_to_all("parts", outgoing, threes, incoming);
      if (lacks) {
        const auto told = co_await cohort_test::caught<cohort::error>(std::move(exchanging));
        names_both_sizes(told, me, "all_to_all 'parts'", 0, total);
      } else {
        const auto sizes = co_await std::move(exchanging);
        CHECK(sizes == std::vector<std::size_t>(static_cast<std::size_t>(n), 3));
        CHECK(incoming.front() == 0);
      }
    }
    CHECK(coord.stats().failed == (lacks ? 6U : 0U));
    co_await cohort_test::works(coord, "after it");
  });
}

TEST_CASE("without room for a known size no rank starts", "[coordinator]") {
  coordinated([](cohort::communicator, cohort::coordinator coord) -> asio::awaitable<void> {
    const int n = coord.size();
    const int me = coord.rank();
    const int last = n - 1;
    const std::vector<int> data(static_cast<std::size_t>(2 * n), 1);
    std::vector<int> out(me == last ? 1 : 2, -1);
    auto scattering = coord.reduce_scatter("part", data, out, cohort::op::sum);
    if (me == last) {
      const auto told = co_await cohort_test::caught<cohort::error>(std::move(scattering));
      names_both_sizes(told, me, "reduce_scatter 'part'", 1, 2);
    } else {
      const auto told =
          co_await cohort_test::caught<cohort::withdrawn_error>(std::move(scattering));
      REQUIRE(told);
      CHECK(told->ranks() == std::vector<int>{last});
    }
    CHECK(out.front() == -1);
    const std::vector<int> mine(2, me);
    std::vector<int> all(me == last ? data.size() - 1 : 0, -1);
    auto gathering = coord.gather("blocks", mine, all, last);
    if (me == last) {
      const auto told = co_await cohort_test::caught<cohort::error>(std::move(gathering));
      names_both_sizes(told, me, "gather 'blocks'", data.size() - 1, data.size());
    } else {
      const auto told = co_await cohort_test::caught<cohort::withdrawn_error>(std::move(gathering));
      CHECK(told);
    }
    // The names can be used again.
    std::vector<int> room(data.size());
    const std::size_t part = co_await coord.reduce_scatter("part", data, room, cohort::op::sum);
    CHECK(part == 2);
    CHECK(room.front() == n);
    const std::size_t blocks = co_await coord.gather("blocks", mine, room, last);
    CHECK(blocks == (me == last ? data.size() : 0));
  });
}

TEST_CASE("memory and ranks that have joined", "[coordinator]") {
  coordinated([](cohort::communicator, cohort::coordinator coord) -> asio::awaitable<void> {
    const int n = coord.size();
    if (coord.rank() == n - 1) {
      co_await coord.join();
      co_return;
    }
    const std::vector<int> mine(2, coord.rank());
    std::vector<int> out(static_cast<std::size_t>(2 * n), -1);
    const std::size_t come = co_await coord.all_gather("rows", mine, out);
    CHECK(come == static_cast<std::size_t>(2 * (n - 1)));
    CHECK(out.back() == -1);
    co_await coord.join();
  });
}
