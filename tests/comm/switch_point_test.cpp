// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// Threads stand for ranks.

#include <cohort/comm/switch_point.hpp>

#include <atomic>
#include <cstdint>
#include <random>
#include <thread>
#include <vector>

#include "support/catch.hpp"

using cohort::comm::switch_point;

TEST_CASE("ranks go over with the same collective, whenever they come", "[comm]") {
  constexpr std::uint64_t most = 400;
  bool some_went = false;
  for (unsigned seed = 0; seed < 200; ++seed) {
    const int ranks = 1 + static_cast<int>(seed % 4);
    switch_point::word shared{0};
    // The first that each rank has not done through MPI.
    std::vector<std::uint64_t> first(static_cast<std::size_t>(ranks), most);
    std::vector<std::thread> all;
    for (std::size_t rank = 0; rank < first.size(); ++rank) {
      all.emplace_back([&, rank] {
        std::mt19937 random(seed * 64 + static_cast<unsigned>(rank));
        const std::uint64_t joins_at = random() % 100;
        switch_point point(shared, ranks);
        for (std::uint64_t number = 1; number < most; ++number) {
          if (number - 1 == joins_at) point.join(number - 1);
          const bool goes = number > joins_at && point.is_behind(number);
          if (!goes) continue;
          first[rank] = number;
          return;
        }
      });
    }
    for (std::thread& each : all) each.join();
    // One that has done all its collectives before the others came does the rest through MPI.
    for (const std::uint64_t each : first) CHECK(each == first[0]);
    some_went = some_went || first[0] != most;
  }
  CHECK(some_went);
}

TEST_CASE("a rank that waits no longer is heard, or it is too late", "[comm]") {
  switch_point::word shared{0};
  switch_point one(shared, 2);
  switch_point other(shared, 2);
  SECTION("before all have come") {
    one.join(5);
    CHECK_FALSE(one.is_behind(6));
    CHECK(one.refuse());
    other.join(4);
    for (std::uint64_t number = 5; number < 20; ++number) CHECK_FALSE(other.is_behind(number));
    CHECK(other.refuse());
  }
  SECTION("after that") {
    one.join(5);
    CHECK_FALSE(one.is_behind(6));
    other.join(4);
    CHECK_FALSE(one.refuse());
    CHECK_FALSE(other.is_behind(5));
    CHECK_FALSE(other.is_behind(6));
    CHECK(other.is_behind(7));
    CHECK(one.is_behind(7));
  }
}

TEST_CASE("ranks that come at different times", "[comm]") {
  switch_point::word shared{0};
  switch_point first(shared, 3);
  switch_point second(shared, 3);
  switch_point third(shared, 3);
  first.join(16);
  for (std::uint64_t number = 17; number <= 30; ++number) CHECK_FALSE(first.is_behind(number));
  second.join(20);
  CHECK_FALSE(second.is_behind(21));
  third.join(40);  // it has begun most of all through MPI
  CHECK(first.is_behind(41));
  for (std::uint64_t number = 22; number <= 40; ++number) CHECK_FALSE(second.is_behind(number));
  CHECK(second.is_behind(41));
  CHECK(third.is_behind(41));
}
