// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// The verbs that move equal blocks: broadcast, barrier, all_gather, gather, scatter, all_to_all.

#include <cohort/collectives/all_gather.hpp>
#include <cohort/collectives/all_to_all.hpp>
#include <cohort/collectives/barrier.hpp>
#include <cohort/collectives/broadcast.hpp>
#include <cohort/collectives/gather.hpp>
#include <cohort/collectives/scatter.hpp>
#include <cohort/progress/future.hpp>

#include <array>
#include <vector>

#include "collectives/support.hpp"
#include "support/catch.hpp"
#include "support/world.hpp"

namespace {

using namespace collectives_test;
using cohort::communicator;
using cohort_test::on_world;

template <class T>
std::vector<T> values_of_all(const communicator& world, std::size_t count) {
  std::vector<T> all;
  for (int rank = 0; rank < world.size(); ++rank) append(all, values<T>(rank, count));
  return all;
}

/// What rank `to` gets in an exchange where rank r gives `100 r + i` as its i-th element.
std::vector<int> exchanged(const communicator& world, std::size_t block) {
  const auto ranks = static_cast<std::size_t>(world.size());
  std::vector<int> result;
  for (int from = 0; from < world.size(); ++from) {
    const auto given = values<int>(from, block * ranks);
    const auto first = given.begin() + static_cast<long>(block) * world.rank();
    result.insert(result.end(), first, first + static_cast<long>(block));
  }
  return result;
}

std::size_t ranks_of(const communicator& world) { return static_cast<std::size_t>(world.size()); }

}  // namespace

TEST_CASE("a barrier completes when all have come") {
  on_world([](communicator world) -> task {
    co_await cohort::barrier(world);
    auto [ec] = co_await cohort::barrier(world, cohort::as_tuple);
    CHECK_FALSE(ec);
  });
}

TEST_CASE("broadcast gives every rank the root's elements") {
  on_world([](communicator world) -> task {
    for (int root = 0; root < world.size(); ++root) {
      auto data = values<double>(world.rank(), 7);
      co_await cohort::broadcast(world, data, root);
      CHECK(data == values<double>(root, 7));
      particle one = particle_of(world.rank(), 3);
      co_await cohort::broadcast(world, one, static_cast<unsigned>(root));
      CHECK(one == particle_of(root, 3));
      std::array<short, 3> fixed{};
      if (world.rank() == root) fixed = {1, 2, 3};
      co_await cohort::broadcast(world, fixed, static_cast<long long>(root));
      CHECK(fixed[2] == 3);
      // Rows here, columns there.
      std::vector<int> matrix(12, -1);
      if (world.rank() == root) {
        for (std::size_t i = 0; i < 4; ++i) matrix[3 * i] = static_cast<int>(i);
        co_await cohort::broadcast(world, cohort::strided_view<int>(matrix.data(), 4, 1, 3), root);
      } else {
        co_await cohort::broadcast(world, cohort::strided_view<int>(matrix.data(), 2, 2, 6), root);
        CHECK(matrix == std::vector<int>{0, 1, -1, -1, -1, -1, 2, 3, -1, -1, -1, -1});
      }
    }
    std::vector<float> none;
    co_await cohort::broadcast(world, none, 0);
    std::vector<double> data = values<double>(world.rank(), 3);
    const double* const place = data.data();
    data = co_await cohort::broadcast(world, std::move(data), 0);
    CHECK(data.data() == place);
    CHECK(data == values<double>(0, 3));
  });
}

TEST_CASE("all_gather puts the blocks of all ranks side by side") {
  on_world([](communicator world) -> task {
    const auto in = values<double>(world.rank(), 3);
    const auto all = values_of_all<double>(world, 3);
    std::vector<double> out(all.size());
    co_await cohort::all_gather(world, in, out);
    CHECK(out == all);

    out.assign(all.size(), -1);
    std::copy(in.begin(), in.end(), out.begin() + 3 * world.rank());
    co_await cohort::all_gather(world, out);
    CHECK(out == all);

    particle one = particle_of(world.rank(), 1);
    std::vector<particle> everyone(ranks_of(world));
    co_await cohort::all_gather(world, one, everyone);
    for (int rank = 0; rank < world.size(); ++rank) {
      CHECK(everyone[static_cast<std::size_t>(rank)] == particle_of(rank, 1));
    }
    std::vector<int> none;
    std::vector<int> nothing;
    co_await cohort::all_gather(world, none, nothing);
    co_await cohort::all_gather(world, none);
  });
}

TEST_CASE("gather brings the blocks to the root, scatter takes them back") {
  on_world([](communicator world) -> task {
    const auto all = values_of_all<int>(world, 2);
    const auto own = values<int>(world.rank(), 2);
    for (int root = 0; root < world.size(); ++root) {
      const bool here = world.rank() == root;
      std::vector<int> out(here ? all.size() : 0);
      co_await cohort::gather(world, own, out, root);
      CHECK(out == (here ? all : std::vector<int>()));
      std::vector<int> mine(2);
      co_await cohort::scatter(world, out, mine, root);
      CHECK(mine == own);

      std::vector<int> data = own;
      if (here) {
        data.assign(all.size(), -1);
        std::copy(own.begin(), own.end(), data.begin() + 2 * root);
      }
      co_await cohort::gather(world, data, root);
      CHECK(data == (here ? all : own));
      if (!here) data.assign(2, -1);
      co_await cohort::scatter(world, data, root);
      CHECK(data == (here ? all : own));
    }
    std::vector<int> none;
    std::vector<int> nothing;
    co_await cohort::gather(world, none, nothing, 0);
    co_await cohort::scatter(world, none, nothing, 0);
  });
}

TEST_CASE("all_to_all exchanges blocks between all ranks") {
  on_world([](communicator world) -> task {
    const auto in = values<int>(world.rank(), 2 * ranks_of(world));
    std::vector<int> out(in.size());
    co_await cohort::all_to_all(world, in, out);
    CHECK(out == exchanged(world, 2));
    auto data = in;
    co_await cohort::all_to_all(world, data);
    CHECK(data == out);
    std::vector<int> none;
    std::vector<int> nothing;
    co_await cohort::all_to_all(world, none, nothing);
  });
}

TEST_CASE("blocks may be strided on either side, and gaps are left alone") {
  on_world([](communicator world) -> task {
    const std::size_t ranks = ranks_of(world);
    const auto column = [](std::vector<int>& matrix) {
      return cohort::strided_view<int>(matrix.data(), matrix.size() / 2, 1, 2);
    };
    const auto spread = [](const std::vector<int>& list) {
      std::vector<int> matrix(2 * list.size(), -1);
      for (std::size_t i = 0; i < list.size(); ++i) matrix[2 * i] = list[i];
      return matrix;
    };
    const auto own = values<int>(world.rank(), 3);
    const auto all = values_of_all<int>(world, 3);
    auto in = spread(own);
    auto out = spread(std::vector<int>(all.size(), -2));
    co_await cohort::all_gather(world, column(in), column(out));
    CHECK(out == spread(all));
    std::vector<int> dense(all.size());
    co_await cohort::all_gather(world, column(in), dense);
    CHECK(dense == all);
    out = spread(std::vector<int>(all.size(), -2));
    co_await cohort::gather(world, column(in), column(out), 0);
    CHECK(out == spread(world.rank() == 0 ? all : std::vector<int>(all.size(), -2)));
    in = spread(std::vector<int>(3, -2));
    co_await cohort::scatter(world, column(out), column(in), 0);
    CHECK(in == spread(own));
    in = spread(values<int>(world.rank(), 2 * ranks));
    out = spread(std::vector<int>(2 * ranks, -2));
    co_await cohort::all_to_all(world, column(in), column(out));
    CHECK(out == spread(exchanged(world, 2)));
    co_await cohort::all_to_all(world, column(in));
    CHECK(in == out);
  });
}

TEST_CASE("movements own rvalue containers and hand them back in the order of arguments") {
  on_world([](communicator world) -> task {
    const auto all = values_of_all<int>(world, 2);
    auto own = values<int>(world.rank(), 2);
    std::vector<int> out(all.size());
    const int* const in_place = own.data();
    const int* const out_place = out.data();
    auto [in, result] = co_await cohort::all_gather(world, std::move(own), std::move(out));
    CHECK(in.data() == in_place);
    CHECK(result.data() == out_place);
    CHECK(result == all);
    result = co_await cohort::all_gather(world, in, std::move(result));
    CHECK(result.data() == out_place);
    in = co_await cohort::gather(world, std::move(in), result, 0);
    CHECK(in.data() == in_place);
    auto [ec, back] = co_await cohort::scatter(world, result, std::move(in), 0, cohort::as_tuple);
    CHECK_FALSE(ec);
    CHECK(back == values<int>(world.rank(), 2));
    result = co_await cohort::all_gather(world, std::move(result));
    CHECK(result == all);
    std::vector<int> exchange(ranks_of(world), world.rank());
    exchange = co_await cohort::all_to_all(world, std::move(exchange));
    CHECK(exchange.back() == world.size() - 1);
  });
}

TEST_CASE("collectives in flight together each get what is theirs") {
  on_world([](communicator world) -> task {
    const auto own = values<int>(world.rank(), 1000);
    std::vector<int> all(own.size() * ranks_of(world));
    auto data = own;
    auto first = cohort::all_gather(world, own, all, cohort::as_future);
    auto second = cohort::broadcast(world, data, 0, cohort::as_future);
    auto third = cohort::barrier(world, cohort::as_future);
    co_await std::move(third);
    co_await std::move(second);
    co_await std::move(first);
    CHECK(all == values_of_all<int>(world, 1000));
    CHECK(data == values<int>(0, 1000));
  });
}
