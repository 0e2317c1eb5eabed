// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// The Cholesky factorisation of a covariance matrix of handwritten digits, tile by tile, as a graph
// of tasks over the ranks. With --subset no rank spawns all of it, and each in another order.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cohort/cohort.hpp>
#include <cohort/graph.hpp>
#include <cstdio>
#include <random>
#include <string>
#include <utility>
#include <vector>
#include "support/covariance.hpp"

namespace graph = cohort::graph;
using graph::take, support::covariance, support::tile;
using support::factor, support::solve, support::update;
constexpr double tolerance = 1e-10;

/// What this rank spawns, and in which order: everything as it is written, or a random part of it,
/// such that each task is spawned by one rank at least.
class part {
 public:
  part(cohort::communicator world, bool subset)
      : ranks_{world.size()}, rank_{world.rank()}, subset_{subset}, random_(unsigned(rank_) + 1) {}

  std::vector<int> from(int first, int end) {
    std::vector<int> all;
    for (int i = first; i < end; ++i) all.push_back(i);
    if (subset_) std::shuffle(all.begin(), all.end(), random_);
    return all;
  }
  bool has(int i, int j, int k) {
    return !subset_ || (7 * i + 3 * j + k) % ranks_ == rank_ || random_() % 3 == 0;
  }

 private:
  int ranks_, rank_;
  bool subset_;
  std::minstd_rand random_;
};

/// A(i, j, k) is tile (i, j) after k updates, each in place. Returns the lower triangle.
asio::awaitable<void> cholesky(graph::scope& s, covariance matrix, graph::block_cyclic grid,
                               part mine, std::string draw, std::vector<tile>* lower) {
  const int n = matrix.tiles;
  auto A = s.tasks<&update>("A", grid);
  auto potrf = s.tasks<&factor>("potrf", grid);
  auto trsm = s.tasks<&solve>("trsm", grid);
  for (int i = 0; i < n; ++i)
    for (int j = 0; j <= i; ++j)
      if (A(i, j, 0).here()) A(i, j, 0).put(matrix.load(i, j));
  for (int k : mine.from(0, n)) {
    if (mine.has(k, k, k)) potrf(k).spawn(take(A(k, k, k)));
    for (int i : mine.from(k + 1, n))
      if (mine.has(i, k, k)) trsm(i, k).spawn(potrf(k), take(A(i, k, k)));
    for (int i : mine.from(k + 1, n))
      for (int j : mine.from(k + 1, i + 1))
        if (mine.has(i, j, k)) A(i, j, k + 1).spawn(trsm(i, k), trsm(j, k), take(A(i, j, k)));
  }
  for (int i = 0; i < n; ++i) {
    for (int j = 0; j < i; ++j) lower->push_back(co_await trsm(i, j).get());
    lower->push_back(co_await potrf(i).get());
  }
  if (auto report = co_await s.fence(); report.failed) throw graph::error(report);
  if (draw.empty()) co_return;
  co_await s.write_dot(draw + ".dot");
  s.write_schedule(draw + ".json");
}

/// The largest difference from a factorisation without tiles, relative to the largest element.
double difference(const covariance& matrix, const std::vector<tile>& lower) {
  const std::size_t size = matrix.size(), side = matrix.side;
  tile whole;
  for (std::size_t i = 0; i < size * size; ++i) whole.push_back(matrix.at(i / size, i % size));
  whole = factor(std::move(whole));
  double worst = 0;
  auto one = lower.begin();
  for (std::size_t i = 0; i < size; i += side)
    for (std::size_t j = 0; j <= i; j += side, ++one)
      for (std::size_t e = 0; e < one->size(); ++e)
        worst = std::max(worst, std::abs((*one)[e] - whole[(i + e / side) * size + j + e % side]));
  return worst / std::sqrt(matrix.at(0, 0));
}

asio::awaitable<int> run(cohort::communicator world, std::string file, int tiles, std::size_t side,
                         bool subset, std::string draw) {
  support::digits data;
  std::string trouble = "another rank could not read its data";
  bool fine = data.read(file, world.size(), trouble);
  if (fine && data.training.size() < std::size_t(tiles) * side) {
    trouble = file + ": has " + std::to_string(data.training.size()) + " digits to train on, " +
              std::to_string(std::size_t(tiles) * side) + " are needed";
    fine = false;
  }
  co_await cohort::all_reduce(world, fine, cohort::op::logical_and);
  if (!fine) std::fprintf(stderr, "rank %d: %s\n", world.rank(), trouble.c_str());
  if (!fine) co_return EXIT_FAILURE;

  int rows = int(std::sqrt(world.size()));
  while (world.size() % rows != 0) --rows;
  const covariance matrix{data.training, tiles, side};
  std::vector<tile> lower;
  graph::tasks graphs{world};
  graph::scope_options with{"cholesky"};
  if (!draw.empty()) with = std::move(with).record();
  co_await graphs.run(with, &cholesky, matrix, graph::block_cyclic(rows, world.size() / rows),
                      part(world, subset), draw, &lower);

  std::vector<double> low, high;
  for (const tile& one : lower) low.insert(low.end(), one.begin(), one.end());
  high = low;
  co_await cohort::all_reduce(world, low, cohort::op::min);
  co_await cohort::all_reduce(world, high, cohort::op::max);
  if (world.rank() != 0) co_return EXIT_SUCCESS;
  const double error = difference(matrix, lower);
  std::printf("%d x %d tiles of %zu x %zu on %d x %d ranks\n", tiles, tiles, side, side, rows,
              world.size() / rows);
  std::printf("tiles identical on all %d ranks: %s\n", world.size(), low == high ? "yes" : "NO");
  std::printf("difference from a factorisation without tiles %.1e, tolerance %.0e\n", error,
              tolerance);
  const bool good = low == high && error <= tolerance;
  std::puts(good ? "passed" : "FAILED");
  co_return good ? EXIT_SUCCESS : EXIT_FAILURE;
}

int main(int argc, char** argv) {
  std::string file = "examples/data/digits.csv";
  int tiles = 8;
  std::size_t side = 32;
  CLI::App app{"Factorises a covariance matrix of handwritten digits, a tile at a time."};
  app.add_option("file", file, "rows of 64 pixels and a label")->capture_default_str();
  app.add_option("--tiles", tiles, "in a row")->check(CLI::Range(1, 1000))->capture_default_str();
  app.add_option("--tile", side, "rows of a tile")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  const auto* subset = app.add_flag("--subset")->description("each rank spawns a random part");
  std::string draw;
  app.add_option("--draw", draw, "writes NAME.dot, and NAME.RANK.json for scripts/timeline_merge");
  CLI11_PARSE(app, argc, argv);
  return cohort::run(argc, argv, [&](cohort::communicator world) {
    return run(world, file, tiles, side, bool(*subset), draw);
  });
}
