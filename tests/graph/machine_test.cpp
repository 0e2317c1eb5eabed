// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// Ranks of the task graph's machine that talk to each other: each rule once, and who sees what.

#include "support/catch.hpp"

#include "graph/fake_ranks.hpp"

#include <string>
#include <vector>

using namespace graph_test;
using Catch::Matchers::ContainsSubstring;

namespace {

void check_closed(fake_ranks& all, int scope = 0) {
  for (int rank = 0; rank < all.size(); ++rank) {
    if (!all.at(rank).dead) CHECK(all.of(rank, scope).closed());
  }
}
const failure& failure_in(const std::shared_ptr<awaited>& one) {
  REQUIRE(one->ended());
  REQUIRE(one->what->failed() != nullptr);
  return *one->what->failed();
}
std::int64_t value_in(const std::shared_ptr<awaited>& one) {
  REQUIRE(one->ended());
  if (one->what->failed() != nullptr) FAIL(one->what->failed()->text);
  return number_in(one->what);
}

}  // namespace

TEST_CASE("a diamond gives the same value on each rank, whoever spawns it") {
  for (const int ranks : {1, 2, 3, 4}) {
    for (const bool only_first : {false, true}) {
      fake_ranks all(ranks);
      for (int rank = 0; rank < (only_first ? 1 : ranks); ++rank) {
        all.spawn(rank, "d0", {plain("b1"), plain("c2")}, 1000);
        all.spawn(rank, "b1", {plain("a0")}, 10);
        all.spawn(rank, "c2", {plain("a0")}, 100);
        all.spawn(rank, "a0");
      }
      std::vector<std::shared_ptr<awaited>> got;
      for (int rank = 0; rank < ranks; ++rank) got.push_back(all.await(rank, "d0"));
      all.run();
      for (const auto& one : got) CHECK(value_in(one) == 1112);
      all.all_end(window_end::close);
      check_closed(all);
      for (int rank = 0; rank < ranks; ++rank) {
        CHECK(all.in(rank).ends.size() == 1);
        CHECK(all.in(rank).ends[0].failed == 0);
        CHECK(all.in(rank).ends[0].divergences.empty());
      }
    }
  }
}
