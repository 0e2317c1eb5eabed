// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// Where tensors lie in packs, and what is whose, for random sizes, limits and numbers of ranks.

#include <cohort/core/kinds.hpp>
#include <cohort/core/pack_layout.hpp>
#include <cohort/core/reduction.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "support/catch.hpp"

namespace packs = cohort::packs;

namespace {

/// Tensors and limits that a program may have.
struct job {
  explicit job(std::mt19937& random) {
    const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
    how = below(2) == 0 ? packs::spacing::tight : packs::spacing::wide;
    most = std::size_t{1} << (4 + below(12));
    items.resize(below(40));
    for (packs::item& each : items) {
      const std::size_t unit = std::size_t{1} << below(5);
      each.bytes = unit * below(below(2) == 0 ? 8 : 2000);
      each.small = each.bytes <= 512 || below(10) == 0;
      each.joins = below(4) != 0;
      if (below(2) == 0) each.piece = unit * (1 + below(300));
    }
  }
  [[nodiscard]] std::vector<packs::call> calls() const {
    std::vector<packs::call> all;
    packs::lay_out(
        items.size(), how, most, [this](std::uint32_t i) { return items[i]; },
        [&](const packs::call& one) { all.push_back(one); });
    return all;
  }

  packs::spacing how = packs::spacing::tight;
  std::size_t most = 0;
  std::vector<packs::item> items;
};

/// A call of small tensors, which lie in it one behind the other.
void check_pack(const job& of, const packs::call& one) {
  std::size_t end = 0;
  std::size_t visited = 0;
  packs::for_each_place(
      one.first, one.tensors, of.how, [&](std::size_t i) { return of.items[i].bytes; },
      [&](std::size_t i, std::size_t begin) {
        const std::size_t bytes = of.items[i].bytes;
        CHECK(i == one.first + visited++);
        CHECK(begin >= end);
        CHECK(begin < end + packs::line);
        if (of.how == packs::spacing::wide) {
          CHECK(begin % packs::line == 0);
        } else if (bytes != 0) {
          CHECK(begin % std::min(packs::line, bytes & (~bytes + 1)) == 0);
        }
        CHECK((visited == 1 || of.items[i].joins));
        CHECK(of.items[i].small);
        end = begin + bytes;
      });
  CHECK(visited == one.tensors);
  CHECK(end == one.bytes);
  CHECK((one.tensors == 1 || one.bytes <= of.most));
}

}  // namespace

TEST_CASE("each tensor is in one call, or in pieces that follow each other") {
  std::mt19937 random(21);
  for (int round = 0; round < 2000; ++round) {
    const job of(random);
    std::size_t next = 0;  // tensor
    std::size_t done = 0;  // of a large one, bytes
    for (const packs::call& one : of.calls()) {
      REQUIRE(one.first < of.items.size());
      // A large tensor of nothing is in no call where it is cut.
      while (next < one.first && !of.items[next].small && of.items[next].bytes == 0) ++next;
      REQUIRE(one.first == next);
      const packs::item& first = of.items[next];
      CHECK(one.small == first.small);
      if (one.small) {
        CHECK(one.offset == 0);
        check_pack(of, one);
        next += one.tensors;
        continue;
      }
      CHECK(one.tensors == 1);
      CHECK(one.offset == done);
      if (first.piece != 0) CHECK(one.bytes <= first.piece);
      done += one.bytes;
      if (done != first.bytes) CHECK(one.bytes == first.piece);
      if (done == first.bytes) {
        ++next;
        done = 0;
      }
    }
    while (next < of.items.size() && !of.items[next].small && of.items[next].bytes == 0) ++next;
    CHECK(next == of.items.size());
    CHECK(done == 0);
  }
}

TEST_CASE("a tensor that fits behind the one before it is in the same pack") {
  std::mt19937 random(22);
  for (int round = 0; round < 2000; ++round) {
    const job of(random);
    const std::vector<packs::call> calls = of.calls();
    for (std::size_t i = 1; i < calls.size(); ++i) {
      const packs::call& before = calls[i - 1];
      const packs::call& one = calls[i];
      const packs::item& first = of.items[one.first];
      if (!before.small || !one.small || one.first != before.first + before.tensors) continue;
      const std::size_t begin = packs::begin_behind(before.bytes, first.bytes, of.how);
      CHECK((!first.joins || begin + first.bytes > of.most));
    }
  }
}

TEST_CASE("small tensors in a row take no room for alignment that their size does not ask for") {
  std::vector<packs::call> calls;
  packs::lay_out(
      100, packs::spacing::tight, 4096, [](std::uint32_t) { return packs::item{4}; },
      [&](const packs::call& one) { calls.push_back(one); });
  REQUIRE(calls.size() == 1);
  CHECK(calls[0].bytes == 400);
  calls.clear();
  packs::lay_out(
      100, packs::spacing::wide, 4096, [](std::uint32_t) { return packs::item{4}; },
      [&](const packs::call& one) { calls.push_back(one); });
  REQUIRE(calls.size() == 2);
  CHECK(calls[0].tensors == 64);
  CHECK(calls[0].bytes == 63 * 64 + 4);
}

TEST_CASE("the parts of the ranks follow each other and differ by one element at most") {
  std::mt19937 random(23);
  for (int round = 0; round < 2000; ++round) {
    const int ranks = 1 + static_cast<int>(random() % 50);
    const std::size_t count = random() % 1000;
    std::size_t end = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      const cohort::rank_part mine = cohort::part_of_rank(count, rank, ranks);
      CHECK(mine.begin == end);
      CHECK(mine.count == cohort::part_of(count, rank, ranks));
      const std::size_t least = count / static_cast<std::size_t>(ranks);
      CHECK((mine.count == least || mine.count == least + 1));
      if (rank != 0) CHECK(mine.count <= cohort::part_of(count, rank - 1, ranks));
      end += mine.count;
    }
    CHECK(end == count);
  }
}

TEST_CASE("every kind has a name of its own, and says one thing about data and roots") {
  std::set<std::string> names;
  for (int value = 0; value <= static_cast<int>(cohort::op_kind::recv); ++value) {
    const auto kind = static_cast<cohort::op_kind>(value);
    CHECK(names.insert(std::string(cohort::name_of(kind))).second);
    CHECK((cohort::brings_data(kind, true) || cohort::gets_result(kind, true)));
    // Who is not the root takes part in what is rooted, from one side.
    if (!cohort::is_rooted(kind)) continue;
    CHECK(cohort::brings_data(kind, false) != cohort::gets_result(kind, false));
  }
  CHECK(names.count("?") == 0);
  CHECK(cohort::name_of(static_cast<cohort::op_kind>(200)) == "?");
  CHECK(cohort::name_of(cohort::reduction_code::bit_xor) == "bit_xor");
  CHECK(cohort::name_of(static_cast<cohort::reduction_code>(300)) == "user operation #300");
}

namespace {
template <class... Op>
void check_names(const Op&...) {
  CHECK(((cohort::name_of(Op::code) == Op::name) && ...));
}
}  // namespace

TEST_CASE("the reductions have their names in the list of numbers") {
  namespace op = cohort::op;
  check_names(op::sum, op::average, op::product, op::min, op::max, op::logical_and, op::logical_or,
              op::logical_xor, op::bit_and, op::bit_or, op::bit_xor, op::min_loc, op::max_loc);
}
