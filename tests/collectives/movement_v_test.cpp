// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// The verbs that move blocks of any size: all_gather_v, gather_v, scatter_v, all_to_all_v.

#include <cohort/collectives/all_gather.hpp>
#include <cohort/collectives/all_to_all.hpp>
#include <cohort/collectives/block_list.hpp>
#include <cohort/collectives/gather.hpp>
#include <cohort/collectives/scatter.hpp>

#include <array>
#include <limits>
#include <list>
#include <vector>

#include "collectives/support.hpp"
#include "support/catch.hpp"
#include "support/world.hpp"

namespace {

using namespace collectives_test;
using cohort::block_list;
using cohort::communicator;
using cohort_test::on_world;

/// Rank r has r + 1 elements, rank 2 none.
std::size_t count_of(int rank) { return rank == 2 ? 0 : static_cast<std::size_t>(rank) + 1; }

std::vector<int> counts_of(const communicator& world) {
  std::vector<int> counts;
  for (int rank = 0; rank < world.size(); ++rank) {
    counts.push_back(static_cast<int>(count_of(rank)));
  }
  return counts;
}

/// Every block in five places of its own, the last rank's first.
std::vector<long> spread_over(const communicator& world) {
  std::vector<long> starts;
  for (int rank = 0; rank < world.size(); ++rank) starts.push_back(5 * (world.size() - 1 - rank));
  return starts;
}

std::vector<double> side_by_side(const communicator& world) {
  std::vector<double> all;
  for (int rank = 0; rank < world.size(); ++rank) {
    append(all, values<double>(rank, count_of(rank)));
  }
  return all;
}

std::vector<double> spread(const communicator& world, double gap) {
  std::vector<double> all(5 * static_cast<std::size_t>(world.size()), gap);
  for (int rank = 0; rank < world.size(); ++rank) {
    const auto block = values<double>(rank, count_of(rank));
    std::copy(block.begin(), block.end(), all.begin() + 5 * (world.size() - 1 - rank));
  }
  return all;
}

std::vector<double> mine(const communicator& world) {
  return values<double>(world.rank(), count_of(world.rank()));
}

}  // namespace

TEST_CASE("a list of blocks knows what buffers it fits") {
  const block_list dense(std::vector<int>{3, 0, 2});
  CHECK(dense.total() == 5);
  CHECK(dense.extent() == 5);
  CHECK(dense.displacements()[2] == 3);
  CHECK(dense.fits(3, 5));
  CHECK_FALSE(dense.fits(3, 4));
  CHECK_FALSE(dense.fits(2, 5));

  const std::array<unsigned char, 2> counts{2, 3};
  const block_list gaps(counts, std::list<long>{10, 0});  // any order, any integers
  CHECK(gaps.total() == 5);
  CHECK(gaps.extent() == 12);
  CHECK(gaps.fits(2, 12));
  CHECK_FALSE(gaps.fits(2, 11));
  CHECK(block_list(std::vector<int>{0}, std::vector<int>{99}).fits(1, 0));  // of no elements

  CHECK_FALSE(block_list(std::vector<int>{1, -1}).fits(2, 100));
  CHECK(block_list(std::vector<int>{1, -1}).extent() == 0);
  CHECK_FALSE(block_list(std::vector<int>{1}, std::vector<int>{-1}).fits(1, 100));
  CHECK_FALSE(block_list(std::vector<int>{1, 1}, std::vector<int>{0}).fits(2, 100));
  const std::vector<std::size_t> far{std::numeric_limits<std::size_t>::max()};
  CHECK_FALSE(block_list(std::vector<int>{2}, far).fits(1, 100));  // the sum would overflow

  CHECK(dense.digest() == block_list(std::vector<long>{3, 0, 2}).digest());
  CHECK(dense.digest() != block_list(std::vector<int>{3, 0, 3}).digest());
  CHECK(dense.digest() != block_list(std::vector<int>{0, 3, 2}).digest());
  CHECK(dense.digest() != block_list(std::vector<int>{3, 2}).digest());
}

TEST_CASE("all_gather_v returns the elements of all ranks in a vector") {
  on_world([](communicator world) -> task {
    auto own = mine(world);
    const auto counts = counts_of(world);
    const auto all = co_await cohort::all_gather_v(world, own, counts);
    CHECK(all == side_by_side(world));
    const auto placed =
        co_await cohort::all_gather_v(world, own, block_list(counts, spread_over(world)));
    auto expected = spread(world, 0);
    expected.resize(placed.size());
    CHECK(placed == expected);
    auto [ec, result, back] =
        co_await cohort::all_gather_v(world, std::move(own), counts, cohort::as_tuple);
    CHECK_FALSE(ec);
    CHECK(result == all);
    CHECK(back == mine(world));
  });
}

TEST_CASE("all_gather_v into a buffer, with displacements, and in place") {
  on_world([](communicator world) -> task {
    const auto own = mine(world);
    const std::list<int> counts = [&] {
      const auto all = counts_of(world);
      return std::list<int>(all.begin(), all.end());
    }();
    std::vector<double> out(side_by_side(world).size());
    co_await cohort::all_gather_v(world, own, out, counts);
    CHECK(out == side_by_side(world));
    const block_list blocks(counts, spread_over(world));
    out.assign(5 * static_cast<std::size_t>(world.size()), -1);
    co_await cohort::all_gather_v(world, own, out, blocks);
    CHECK(out == spread(world, -1));
    out.assign(out.size(), -1);
    std::copy(own.begin(), own.end(), out.begin() + spread_over(world)[std::size_t(world.rank())]);
    co_await cohort::all_gather_v(world, cohort::in_place, out, blocks);
    CHECK(out == spread(world, -1));
  });
}

TEST_CASE("gather_v and scatter_v need the counts at the root only") {
  on_world([](communicator world) -> task {
    const auto own = mine(world);
    for (int root = 0; root < world.size(); ++root) {
      const bool here = world.rank() == root;
      const auto counts = here ? counts_of(world) : std::vector<int>();
      const auto all = here ? side_by_side(world) : std::vector<double>();
      std::vector<double> out(all.size());
      co_await cohort::gather_v(world, own, out, counts, root);
      CHECK(out == all);
      std::vector<double> got(own.size());
      co_await cohort::scatter_v(world, out, got, counts, root);
      CHECK(got == own);

      const block_list blocks = here ? block_list(counts, spread_over(world)) : block_list();
      const auto wide = here ? spread(world, -1) : std::vector<double>();
      out.assign(wide.size(), -1);
      co_await cohort::gather_v(world, own, out, blocks, root);
      CHECK(out == wide);
      got.assign(own.size(), -1);
      co_await cohort::scatter_v(world, out, got, blocks, root);
      CHECK(got == own);

      auto data = here ? std::vector<double>(wide.size(), -1) : own;
      if (here) {
        std::copy(own.begin(), own.end(), data.begin() + spread_over(world)[std::size_t(root)]);
      }
      co_await cohort::gather_v(world, data, blocks, root);
      CHECK(data == (here ? wide : own));
      if (!here) data.assign(own.size(), -1);
      co_await cohort::scatter_v(world, data, blocks, root);
      CHECK(data == (here ? wide : own));
    }
  });
}

TEST_CASE("all_to_all_v exchanges what each pair of ranks agrees on") {
  on_world([](communicator world) -> task {
    // Rank r sends r + s elements to rank s, which all say r.
    const int rank = world.rank();
    std::vector<std::size_t> counts;
    std::vector<int> in;
    std::vector<int> expected;
    for (int other = 0; other < world.size(); ++other) {
      counts.push_back(static_cast<std::size_t>(rank + other));
      in.insert(in.end(), counts.back(), rank);
      expected.insert(expected.end(), counts.back(), other);
    }
    std::vector<int> out(in.size(), -1);
    co_await cohort::all_to_all_v(world, in, counts, out, counts);
    CHECK(out == expected);
    auto data = in;
    co_await cohort::all_to_all_v(world, data, counts);
    CHECK(data == expected);

    std::vector<long> starts;
    for (int other = 0; other < world.size(); ++other) starts.push_back(8 * other + 1);
    std::vector<int> wide(8 * static_cast<std::size_t>(world.size()), -1);
    co_await cohort::all_to_all_v(world, in, counts, wide, block_list(counts, starts));
    std::vector<int> gathered;
    for (std::size_t other = 0; other < counts.size(); ++other) {
      const auto first = wide.begin() + starts[other];
      CHECK(*(first - 1) == -1);
      gathered.insert(gathered.end(), first, first + static_cast<long>(counts[other]));
    }
    CHECK(gathered == expected);
  });
}

TEST_CASE("blocks of a strided buffer leave the gaps of both kinds alone") {
  on_world([](communicator world) -> task {
    const auto own = mine(world);
    const auto wide = spread(world, -1);
    std::vector<double> matrix(3 * wide.size(), -7);
    for (std::size_t i = 0; i < wide.size(); ++i) matrix[3 * i] = -1;
    const cohort::strided_view<double> column(matrix.data(), wide.size(), 1, 3);
    co_await cohort::all_gather_v(world, own, column,
                                  block_list(counts_of(world), spread_over(world)));
    for (std::size_t i = 0; i < wide.size(); ++i) {
      CHECK(matrix[3 * i] == wide[i]);
      CHECK(matrix[3 * i + 1] == -7);
    }
  });
}

TEST_CASE("nobody gives anything") {
  on_world([](communicator world) -> task {
    const std::vector<int> counts(static_cast<std::size_t>(world.size()), 0);
    std::vector<float> in;
    std::vector<float> out;
    const auto all = co_await cohort::all_gather_v(world, in, counts);
    CHECK(all.empty());
    co_await cohort::gather_v(world, in, out, counts, 0);
    co_await cohort::scatter_v(world, in, out, counts, 0);
    co_await cohort::all_to_all_v(world, in, counts, out, counts);
    co_await cohort::all_to_all_v(world, in, counts);
  });
}
