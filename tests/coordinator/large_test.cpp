// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// Named operations of more than 2^31 elements, of one byte each. With two ranks they need up to 8
// GB in all, so these cases are hidden: run `coordinator_order_test "[large]"` under mpirun. What
// is not hidden does the same with few elements. Part of the executable coordinator.order.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "coordinator/support.hpp"

namespace {

using cohort_test::coordinated;
using bytes = std::vector<std::int8_t>;

constexpr std::size_t few = (std::size_t{3} << 20) + 4099;
constexpr std::size_t many = (std::size_t{1} << 31) + 4099;

// Small, so that sums of four ranks do not overflow.
std::int8_t at(std::size_t place) { return static_cast<std::int8_t>(place % 29); }

bytes filled(std::size_t count) {
  constexpr std::size_t period = std::size_t{29} << 16;
  bytes data(count);
  for (std::size_t i = 0; i < std::min(period, count); ++i) data[i] = at(i);
  for (std::size_t i = period; i < count; i += period) {
    std::memcpy(data.data() + i, data.data(), std::min(period, count - i));
  }
  return data;
}

/// Looks at the ends, at both sides of every multiple of a MiB, where pieces meet, and in between.
bool looks_right(const std::int8_t* data, std::size_t count, int factor) {
  const auto good = [&](std::size_t i) { return data[i] == factor * at(i); };
  for (std::size_t i = 0; i < count; i += 8191) {
    if (!good(i)) return false;
  }
  for (std::size_t edge = 0; edge <= count; edge += 1U << 20U) {
    for (std::size_t i = edge - std::min<std::size_t>(edge, 4); i < std::min(count, edge + 4);
         ++i) {
      if (!good(i)) return false;
    }
  }
  for (std::size_t i = count - std::min<std::size_t>(count, 8200); i < count; ++i) {
    if (!good(i)) return false;
  }
  return true;
}

void all_reduce(std::size_t count) {
  coordinated([=](cohort::communicator, cohort::coordinator coord) -> asio::awaitable<void> {
    bytes data = filled(count);
    co_await coord.all_reduce("sum", data, cohort::op::sum);
    CHECK(looks_right(data.data(), count, coord.size()));
  });
}

void broadcast(std::size_t count) {
  coordinated([=](cohort::communicator, cohort::coordinator coord) -> asio::awaitable<void> {
    bytes data = coord.rank() == 0 ? filled(count) : bytes(count);
    co_await coord.broadcast("copy", data, 0);
    CHECK(looks_right(data.data(), count, 1));
  });
}

/// The result is the root's; in place, so nothing more is needed there.
void reduce(std::size_t count) {
  coordinated([=](cohort::communicator, cohort::coordinator coord) -> asio::awaitable<void> {
    bytes data = filled(count);
    co_await coord.reduce("sum", data, cohort::op::sum, 0);
    CHECK(looks_right(data.data(), count, coord.rank() == 0 ? coord.size() : 1));
  });
}

/// `count` elements in all: with two ranks an odd number of them is uneven.
void reduce_scatter(std::size_t count) {
  coordinated([=](cohort::communicator, cohort::coordinator coord) -> asio::awaitable<void> {
    const auto ranks = static_cast<std::size_t>(coord.size());
    const auto me = static_cast<std::size_t>(coord.rank());
    const bytes data = filled(count);
    const bytes part = co_await coord.reduce_scatter("part", data, cohort::op::sum);
    CHECK(part.size() == count / ranks + (me < count % ranks ? 1 : 0));
    const std::size_t first = me * (count / ranks) + std::min(me, count % ranks);
    bool right = true;
    for (std::size_t i = 0; i < part.size() && right; i += i + 9000 < part.size() ? 8191 : 1) {
      right = part[i] == coord.size() * at(first + i);
    }
    CHECK(right);
  });
}

/// The first rank brings nearly all: no unit divides what ranks bring and where it goes.
void all_gather(std::size_t count) {
  coordinated([=](cohort::communicator, cohort::coordinator coord) -> asio::awaitable<void> {
    const auto others = static_cast<std::size_t>(coord.size() - 1);
    const bytes mine = filled(coord.rank() == 0 ? count : 13);
    for (int round = 0; round < 2; ++round) {  // the second time the sizes are known
      const bytes all = co_await coord.all_gather("rows", mine);
      CHECK(all.size() == count + 13 * others);
      CHECK(looks_right(all.data(), count, 1));
      for (std::size_t i = 0; i < 13 * others; ++i) CHECK(all[count + i] == at(i % 13));
      if (count > few) break;
    }
  });
}

/// The first rank sends nearly all to the last one.
void all_to_all(std::size_t count) {
  coordinated([=](cohort::communicator, cohort::coordinator coord) -> asio::awaitable<void> {
    const auto ranks = static_cast<std::size_t>(coord.size());
    std::vector<std::size_t> splits(ranks, 1);
    if (coord.rank() == 0) splits.back() = count;
    bytes mine(ranks - 1, at(1));
    if (coord.rank() == 0) {
      mine.resize(ranks - 1 + count);
      const bytes large = filled(count);
      std::memcpy(mine.data() + ranks - 1, large.data(), count);
    } else {
      mine.push_back(at(1));
    }
    const auto [come, from] = co_await coord.all_to_all("tokens", mine, splits);
    const bool last = coord.rank() + 1 == coord.size();
    CHECK(from.front() == (last ? count : 1));
    REQUIRE(come.size() == from.front() + ranks - 1);
    if (last) CHECK(looks_right(come.data(), count, 1));
    for (std::size_t i = from.front(); i < come.size(); ++i) CHECK(come[i] == at(1));
  });
}

/// A block of `count` elements for each rank, of which the root has all.
void gather_and_scatter(std::size_t count) {
  coordinated([=](cohort::communicator, cohort::coordinator coord) -> asio::awaitable<void> {
    bytes mine = filled(count);
    const bytes all = co_await coord.gather("g", mine, 0);
    if (coord.rank() == 0) {
      for (std::size_t rank = 0; rank * count < all.size(); ++rank) {
        CHECK(looks_right(all.data() + rank * count, count, 1));
      }
    }
    std::fill(mine.begin(), mine.end(), std::int8_t{0});
    co_await coord.scatter("s", all, mine, 0);
    CHECK(looks_right(mine.data(), count, 1));
  });
}

void message(std::size_t count) {
  coordinated([=](cohort::communicator, cohort::coordinator coord) -> asio::awaitable<void> {
    const int last = coord.size() - 1;
    if (last != 0 && coord.rank() == 0) {
      const bytes data = filled(count);
      co_await coord.send("message", data, last);
    } else if (last != 0 && coord.rank() == last) {
      bytes data(count);
      co_await coord.recv("message", data, 0);
      CHECK(looks_right(data.data(), count, 1));
    }
  });
}

}  // namespace

TEST_CASE("several pieces of elements of one byte", "[coordinator]") {
  all_reduce(few);
  broadcast(few);
  reduce(few);
  reduce_scatter(few);
  all_gather(few);
  all_to_all(few);
  gather_and_scatter(few);
  message(few);
}

TEST_CASE("a named all_reduce of more than 2^31 elements", "[.][large]") { all_reduce(many); }
TEST_CASE("a named broadcast of more than 2^31 elements", "[.][large]") { broadcast(many); }
TEST_CASE("a named reduce of more than 2^31 elements", "[.][large]") { reduce(many); }
TEST_CASE("a named reduce_scatter of more than 2^31 elements", "[.][large]") {
  reduce_scatter(many);
}
TEST_CASE("a named all_gather of more than 2^31 elements", "[.][large]") { all_gather(many); }
TEST_CASE("a named all_to_all of more than 2^31 elements", "[.][large]") { all_to_all(many); }
TEST_CASE("a named message of more than 2^31 elements", "[.][large]") { message(many); }
TEST_CASE("a named gather and scatter of more than 2^31 elements", "[.][large]") {
  gather_and_scatter(many);
}
