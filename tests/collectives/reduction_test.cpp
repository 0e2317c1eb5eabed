// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// The verbs that combine: all_reduce, reduce, reduce_scatter and the scans, in and out of place.

#include <cohort/collectives/all_reduce.hpp>
#include <cohort/collectives/reduce.hpp>
#include <cohort/collectives/reduce_scatter.hpp>
#include <cohort/collectives/scan.hpp>

#include <array>
#include <cmath>
#include <complex>
#include <cstdint>
#include <numeric>
#include <vector>

#include "collectives/support.hpp"
#include "support/catch.hpp"
#include "support/world.hpp"

namespace {

using namespace collectives_test;
using cohort::communicator;
using cohort_test::on_world;
namespace op = cohort::op;

std::vector<double> mine(const communicator& world, std::size_t count = 5) {
  return values<double>(world.rank(), count);
}

/// The sum over the ranks `first` to `last - 1` of what `mine` gives each of them.
std::vector<double> sum_of(int first, int last, std::size_t count = 5) {
  std::vector<double> sum(count);
  for (int rank = first; rank < last; ++rank) {
    const auto part = values<double>(rank, count);
    for (std::size_t i = 0; i < count; ++i) sum[i] += part[i];
  }
  return sum;
}

}  // namespace

TEST_CASE("all_reduce combines in place and out of place") {
  on_world([](communicator world) -> task {
    auto data = mine(world);
    co_await cohort::all_reduce(world, data, op::sum);
    CHECK(data == sum_of(0, world.size()));

    const auto in = mine(world);
    std::vector<double> out(in.size());
    co_await cohort::all_reduce(world, in, out, op::max);
    CHECK(out == values<double>(world.size() - 1, in.size()));
    CHECK(in == mine(world));

    double mean = world.rank();
    co_await cohort::all_reduce(world, mean, op::average);
    CHECK(mean == (world.size() - 1) / 2.0);
    std::array<double, 2> means{};
    const std::array<double, 2> given{mean, 1.0 + world.rank()};
    co_await cohort::all_reduce(world, given, means, op::average);
    CHECK(means[1] == (world.size() + 1) / 2.0);
  });
}

TEST_CASE("reduce delivers to the root alone, and other ranks may pass an empty result") {
  on_world([](communicator world) -> task {
    for (int root = 0; root < world.size(); ++root) {
      const bool here = world.rank() == root;
      const auto in = mine(world);
      std::vector<double> out(here ? in.size() : 0);
      co_await cohort::reduce(world, in, out, op::sum, root);
      CHECK(out == (here ? sum_of(0, world.size()) : std::vector<double>()));

      auto data = mine(world);
      co_await cohort::reduce(world, data, op::sum, root);
      CHECK(data == (here ? sum_of(0, world.size()) : in));

      float mean = static_cast<float>(world.rank());
      co_await cohort::reduce(world, mean, op::average, root);
      CHECK(mean == (here ? static_cast<float>(world.size() - 1) / 2 : float(world.rank())));
    }
  });
}

TEST_CASE("scan combines up to this rank, exclusive_scan up to the one before") {
  on_world([](communicator world) -> task {
    const int rank = world.rank();
    const auto in = mine(world);
    std::vector<double> out(in.size(), -1);
    co_await cohort::scan(world, in, out, op::sum);
    CHECK(out == sum_of(0, rank + 1));
    auto data = mine(world);
    co_await cohort::scan(world, data, op::sum);
    CHECK(data == sum_of(0, rank + 1));

    const std::vector<double> untouched(in.size(), -1);
    out = untouched;
    co_await cohort::exclusive_scan(world, in, out, op::sum);
    CHECK(out == (rank == 0 ? untouched : sum_of(0, rank)));
    data = mine(world);
    co_await cohort::exclusive_scan(world, data, op::sum);
    CHECK(data == (rank == 0 ? in : sum_of(0, rank)));

    double mean = rank;
    co_await cohort::scan(world, mean, op::average);
    CHECK(mean == rank / 2.0);
    mean = rank;
    co_await cohort::exclusive_scan(world, mean, op::average);
    CHECK(mean == (rank == 0 ? 0 : (rank - 1) / 2.0));
  });
}

TEST_CASE("reduce_scatter gives each rank its block of the result") {
  on_world([](communicator world) -> task {
    const auto ranks = static_cast<std::size_t>(world.size());
    const auto rank = static_cast<std::size_t>(world.rank());
    const auto sum = sum_of(0, world.size(), 3 * ranks);
    const std::vector<double> block(sum.begin() + 3 * world.rank(),
                                    sum.begin() + 3 * (world.rank() + 1));
    const auto in = mine(world, 3 * ranks);
    std::vector<double> out(3);
    co_await cohort::reduce_scatter(world, in, out, op::sum);
    CHECK(out == block);
    auto data = in;
    co_await cohort::reduce_scatter(world, data, op::sum);
    data.resize(3);
    CHECK(data == block);
    co_await cohort::reduce_scatter(world, in, out, op::average);
    for (std::size_t i = 0; i < 3; ++i) CHECK(out[i] == block[i] / double(ranks));

    std::vector<int> counts(ranks);  // 0, 1, 2, ...
    std::iota(counts.begin(), counts.end(), 0);
    const std::size_t total = ranks * (ranks - 1) / 2;
    const std::size_t first = rank == 0 ? 0 : rank * (rank - 1) / 2;
    const auto uneven = sum_of(0, world.size(), total);
    const std::vector<double> part(uneven.begin() + first, uneven.begin() + first + rank);
    const auto given = mine(world, total);
    out.assign(rank, -1);
    co_await cohort::reduce_scatter_v(world, given, out, counts, op::sum);
    CHECK(out == part);
    data = given;
    co_await cohort::reduce_scatter_v(world, data, counts, op::sum);
    data.resize(rank);
    CHECK(data == part);
  });
}

TEST_CASE("a user operation that does not commute is applied in the order of the ranks") {
  const cohort::user_op after{compose{}, cohort::non_commutative};
  on_world([&](communicator world) -> task {
    const int ranks = world.size();
    const affine own = affine_of(world.rank());
    std::vector<affine> data(3, own);
    co_await cohort::all_reduce(world, data, after);
    CHECK(data == std::vector<affine>(3, fold(0, ranks)));
    data.assign(3, own);
    co_await cohort::reduce(world, data, after, ranks - 1);
    if (world.rank() == ranks - 1) CHECK(data == std::vector<affine>(3, fold(0, ranks)));
    data.assign(3, own);
    co_await cohort::scan(world, data, after);
    CHECK(data == std::vector<affine>(3, fold(0, world.rank() + 1)));
    data.assign(3, own);
    co_await cohort::exclusive_scan(world, data, after);
    CHECK(data == std::vector<affine>(3, world.rank() == 0 ? own : fold(0, world.rank())));
    data.assign(static_cast<std::size_t>(ranks), own);
    std::vector<affine> out(1);
    co_await cohort::reduce_scatter(world, data, out, after);
    CHECK(out[0] == fold(0, ranks));
    const std::vector<std::size_t> counts(data.size(), 1);
    co_await cohort::reduce_scatter_v(world, data, out, counts, after);
    CHECK(out[0] == fold(0, ranks));
  });
}

TEST_CASE("a user operation that commutes, on arithmetic elements") {
  const cohort::user_op probably{[](double a, double b) { return a + b - a * b; },
                                 cohort::commutative};
  on_world([&](communicator world) -> task {
    std::vector<double> v(4, 0.5);
    co_await cohort::all_reduce(world, v, probably);
    CHECK(v[3] == Approx(1 - std::pow(0.5, world.size())));
  });
}

TEST_CASE("reductions pack strided views and leave the gaps alone") {
  on_world([](communicator world) -> task {
    const auto ranks = static_cast<std::size_t>(world.size());
    const auto column = [](std::vector<double>& matrix, std::size_t rows) {
      return cohort::strided_view<double>(matrix.data(), rows, 1, 3);
    };
    const auto matrix_of = [&](std::size_t rows, double value) {
      std::vector<double> matrix(3 * rows, -1);
      for (std::size_t i = 0; i < rows; ++i) matrix[3 * i] = value;
      return matrix;
    };
    const double total = double(ranks * (ranks - 1)) / 2;
    auto data = matrix_of(4, world.rank());
    auto result = matrix_of(4, -5);
    co_await cohort::all_reduce(world, column(data, 4), column(result, 4), op::sum);
    CHECK(result == matrix_of(4, total));
    co_await cohort::scan(world, column(data, 4), column(result, 4), op::sum);
    CHECK(result == matrix_of(4, world.rank() * (world.rank() + 1) / 2.0));
    co_await cohort::reduce(world, column(data, 4), op::average, 0);
    CHECK(data == matrix_of(4, world.rank() == 0 ? total / double(ranks) : world.rank()));
    data = matrix_of(2 * ranks, world.rank());
    result = matrix_of(2, -5);
    co_await cohort::reduce_scatter(world, column(data, 2 * ranks), column(result, 2), op::sum);
    CHECK(result == matrix_of(2, total));
    co_await cohort::reduce_scatter(world, column(data, 2 * ranks), op::average);
    CHECK(data[0] == total / double(ranks));
    CHECK(data[1] == -1);
    CHECK(data[3] == total / double(ranks));
  });
}

TEST_CASE("reductions of other elements") {
  on_world([](communicator world) -> task {
    const int ranks = world.size();
    std::complex<double> z(1, world.rank());
    co_await cohort::all_reduce(world, z, op::sum);
    CHECK(z == std::complex<double>(ranks, ranks * (ranks - 1) / 2));
    bool all = world.rank() != 1;
    co_await cohort::all_reduce(world, all, op::logical_and);
    CHECK(all == (ranks < 2));
    cohort::located<double> best{double(-world.rank()), world.rank()};
    co_await cohort::all_reduce(world, best, op::min_loc);
    CHECK(best.location == ranks - 1);
    std::vector<cohort::bf16> small(3, cohort::bf16(1.0F));
    co_await cohort::all_reduce(world, small, op::sum);
    CHECK(static_cast<float>(small[2]) == static_cast<float>(ranks));
    std::vector<char> letters(2, static_cast<char>(world.rank()));
    co_await cohort::all_reduce(world, letters, op::max);
    CHECK(letters[1] == ranks - 1);
    std::uint64_t bits = std::uint64_t{1} << world.rank();
    co_await cohort::all_reduce(world, bits, op::bit_or);
    CHECK(bits == (std::uint64_t{1} << ranks) - 1);
  });
}

TEST_CASE("reductions of empty buffers complete") {
  on_world([](communicator world) -> task {
    std::vector<float> in;
    std::vector<float> out;
    co_await cohort::all_reduce(world, in, op::sum);
    co_await cohort::all_reduce(world, in, out, op::average);
    co_await cohort::reduce(world, in, out, op::sum, 0);
    co_await cohort::reduce(world, in, op::sum, 0);
    co_await cohort::scan(world, in, out, op::sum);
    co_await cohort::exclusive_scan(world, in, out, op::sum);
    co_await cohort::reduce_scatter(world, in, out, op::sum);
    co_await cohort::reduce_scatter(world, in, op::sum);
    const std::vector<int> none(static_cast<std::size_t>(world.size()), 0);
    co_await cohort::reduce_scatter_v(world, in, out, none, op::sum);
    co_await cohort::reduce_scatter_v(world, in, none, op::sum);
    CHECK(out.empty());
  });
}

TEST_CASE("reductions own rvalue containers and hand them back in the order of arguments") {
  on_world([](communicator world) -> task {
    const double total = world.size() * (world.size() - 1) / 2.0;
    std::vector<double> data(3, world.rank());
    const double* const place = data.data();
    data = co_await cohort::all_reduce(world, std::move(data), op::sum);
    CHECK(data.data() == place);
    CHECK(data == std::vector<double>(3, total));

    std::vector<double> in(3, world.rank());
    std::vector<double> out(3);
    const double* const in_place = in.data();
    const double* const out_place = out.data();
    auto [back, result] =
        co_await cohort::all_reduce(world, std::move(in), std::move(out), op::average);
    CHECK(back.data() == in_place);
    CHECK(result.data() == out_place);
    CHECK(result[2] == total / world.size());

    back.assign(3, world.rank());
    auto [ec, given] =
        co_await cohort::reduce(world, std::move(back), result, op::sum, 0, cohort::as_tuple);
    CHECK_FALSE(ec);
    CHECK(given.data() == in_place);
    if (world.rank() == 0) CHECK(result[0] == total);
    given = co_await cohort::scan(world, std::move(given), op::max);
    CHECK(given[0] == world.rank());
    std::vector<double> blocks(static_cast<std::size_t>(world.size()), 1);
    blocks = co_await cohort::reduce_scatter(world, std::move(blocks), op::sum);
    CHECK(blocks[0] == world.size());
  });
}
