// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// Neighbour collectives on grids and graphs, and the communicators for them.

#include <cohort/collectives/neighbor.hpp>
#include <cohort/mpi/topology.hpp>

#include <vector>

#include "collectives/support.hpp"
#include "support/catch.hpp"
#include "support/world.hpp"

namespace {

using namespace collectives_test;
using cohort::communicator;
using cohort_test::left_of;
using cohort_test::on_world;
using cohort_test::right_of;
namespace mpi = cohort::mpi;

/// A ring as a graph: hears from the left, then from the right; tells the right, then the left. For
/// one rank all are itself.
mpi::dist_graph ring_of(const communicator& world) {
  const int left = left_of(world);
  const int right = right_of(world);
  return mpi::dist_graph({left, right}, {right, left});
}

}  // namespace

TEST_CASE("a periodic grid gathers from both sides of every dimension") {
  on_world([](communicator world) -> task {
    const communicator ring =
        co_await world.create(mpi::cartesian::balanced(world.size(), 1, true));
    const auto own = values<int>(ring.rank(), 2);
    std::vector<int> expected = values<int>(left_of(ring), 2);
    append(expected, values<int>(right_of(ring), 2));
    std::vector<int> around(4, -1);
    co_await cohort::neighbor_all_gather(ring, own, around);
    CHECK(around == expected);
    around.assign(4, -1);
    const std::vector<int> counts(2, 2);
    co_await cohort::neighbor_all_gather_v(ring, own, around, counts);
    CHECK(around == expected);
  });
}

TEST_CASE("beyond the open end of a grid nothing is sent and nothing is written") {
  on_world([](communicator world) -> task {
    const communicator line = co_await world.create(mpi::cartesian::balanced(world.size(), 1));
    const int rank = line.rank();
    std::vector<double> out(2);
    out[0] = 10 * rank;      // to the left
    out[1] = 10 * rank + 1;  // to the right
    std::vector<double> in(2, -1);
    co_await cohort::neighbor_all_to_all(line, out, in);
    CHECK(in[0] == (rank == 0 ? -1 : 10 * (rank - 1) + 1));
    CHECK(in[1] == (rank + 1 == line.size() ? -1 : 10 * (rank + 1)));

    std::vector<double> matrix(6, -1);
    co_await cohort::neighbor_all_to_all(line, out,
                                         cohort::strided_view<double>(matrix.data(), 2, 1, 3));
    CHECK(matrix[0] == in[0]);
    CHECK(matrix[1] == -1);
    CHECK(matrix[3] == in[1]);
  });
}

TEST_CASE("neighbours in a graph exchange blocks of any size") {
  on_world([](communicator world) -> task {
    const communicator graph = co_await world.create(ring_of(world));
    if (world.size() == 2)
      co_return;  // both neighbours are one rank: which block is whose is MPI's
    const int rank = graph.rank();
    const int left = left_of(graph);
    const int right = right_of(graph);
    std::vector<int> around(2, -1);
    co_await cohort::neighbor_all_gather(graph, rank, around);
    CHECK(around == std::vector<int>{left, right});

    // r + 1 elements to the right, one to the left.
    const auto longer = [](int r) { return static_cast<std::size_t>(r) + 1; };
    std::vector<int> out(longer(rank), rank);
    out.push_back(1000 + rank);
    const std::vector<std::size_t> sent{longer(rank), 1};
    const std::vector<std::size_t> received{longer(left), 1};
    std::vector<int> in(longer(left) + 1, -1);
    co_await cohort::neighbor_all_to_all_v(graph, out, sent, in, received);
    if (world.size() > 1) {
      std::vector<int> expected(longer(left), left);
      expected.push_back(1000 + right);
      CHECK(in == expected);
    }
    auto [back, result] = co_await cohort::neighbor_all_to_all_v(graph, std::move(out), sent,
                                                                 std::move(in), received);
    CHECK(back.back() == 1000 + rank);
    CHECK(result.size() == longer(left) + 1);
  });
}

TEST_CASE("a rank without neighbours takes part with empty buffers") {
  on_world([](communicator world) -> task {
    const bool ends = world.rank() == 0 && world.size() > 1;
    std::vector<int> none;
    std::vector<int> partner;
    if (world.rank() < 2 && world.size() > 1) partner.push_back(1 - world.rank());
    const communicator graph = co_await world.create(mpi::dist_graph(partner, partner));
    std::vector<int> out(partner.size(), world.rank());
    std::vector<int> in(partner.size(), -1);
    co_await cohort::neighbor_all_to_all(graph, out, in);
    CHECK(in == partner);
    if (ends) CHECK(in[0] == 1);
  });
}

TEST_CASE("a rank may only send to neighbours, or only receive from them") {
  on_world([](communicator world) -> task {
    const bool first = world.rank() == 0;
    std::vector<int> from;
    std::vector<int> to;
    if (!first) from.push_back(0);
    for (int rank = 1; first && rank < world.size(); ++rank) to.push_back(rank);
    const communicator star = co_await world.create(mpi::dist_graph(from, to));
    std::vector<int> parts;
    for (const int rank : to) append(parts, values<int>(rank, 3));
    std::vector<int> mine(from.size() * 3, -1);
    co_await cohort::neighbor_all_to_all(star, parts, mine);
    CHECK(mine == (first ? std::vector<int>() : values<int>(world.rank(), 3)));
    const std::vector<int> news = first ? values<int>(5, 3) : std::vector<int>();
    co_await cohort::neighbor_all_gather(star, news, mine);
    CHECK(mine == (first ? std::vector<int>() : values<int>(5, 3)));
  });
}

TEST_CASE("ranks beyond a grid get no communicator") {
  on_world([](communicator world) -> task {
    const communicator first = co_await world.create(mpi::cartesian::of(1));
    CHECK(static_cast<bool>(first) == (world.rank() == 0));
  });
}

TEST_CASE("without a topology neighbour collectives complete with invalid_communicator") {
  on_world([](communicator world) -> task {
    std::vector<int> in(2);
    std::vector<int> out(2);
    auto [ec] = co_await cohort::neighbor_all_gather(world, in, out, cohort::as_tuple);
    CHECK(ec == cohort::errc::invalid_communicator);
    auto [again] = co_await cohort::neighbor_all_to_all(world, in, out, cohort::as_tuple);
    CHECK(again == cohort::errc::invalid_communicator);
  });
}
