// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// Learning handwritten digits where ranks have different amounts of data. A rank that has shown its
// last batch joins: the gradients of the others go on being averaged, over those that are left. At
// the end all learn whose state is the newest, and take it over.

#include <CLI/CLI.hpp>
#include <cohort/cohort.hpp>
#include <valarray>
#include "support/digits.hpp"

using support::batch, support::digit, support::digits, support::part;
using floats = std::valarray<float>;
constexpr std::size_t batch_size = 16;

/// Rank r has r + 1 shares of the data.
batch shard(batch all, std::size_t rank, std::size_t ranks) {
  const std::size_t shares = ranks * (ranks + 1) / 2, first = rank * (rank + 1) / 2;
  const std::size_t begin = all.size() * first / shares;
  return all.subspan(begin, all.size() * (first + rank + 1) / shares - begin);
}
std::size_t batches(batch own) { return (own.size() + batch_size - 1) / batch_size; }

/// Adds a digit's part of the gradient; returns whether the model, ten rows of weights, is right.
bool look(const floats& weights, const digit& one, floats& gradient) {
  const auto row = [](std::size_t o) { return std::slice(64 * o, 64, 1); };
  floats in(64), out(10);
  for (std::size_t i = 0; i < 64; ++i) in[i] = one[i] / 16.F;
  for (std::size_t o = 0; o < 10; ++o) out[o] = (floats(weights[row(o)]) * in).sum();
  const bool right = out[one.back()] == out.max();
  out = std::exp(out) / std::exp(out).sum();
  out[one.back()] -= 1;
  for (std::size_t o = 0; o < 10; ++o) gradient[row(o)] += out[o] * in;
  return right;
}

/// Trains on the own batches, then joins. Returns whether every gradient had the right divisor.
asio::awaitable<bool> train(cohort::coordinator coord, batch all, floats& weights, int& steps) {
  const batch own = shard(all, coord.rank(), coord.size());
  bool fine = true;
  int active = 0;
  for (std::size_t step = 0; step < batches(own); ++step) {
    floats gradient(weights.size());
    for (const digit& one : part(own, step, batches(own))) look(weights, one, gradient);
    co_await coord.all_reduce("gradient", gradient, cohort::op::average);
    active = 1;
    co_await coord.all_reduce("active ranks", active, cohort::op::sum);
    int expected = 0;
    for (int r = 0; r < coord.size(); ++r) expected += batches(shard(all, r, coord.size())) > step;
    fine = fine && active == expected;
    weights -= 0.02F * gradient;
    ++steps;
  }
  std::printf("rank %d has shown its %d batches; the last gradient was the average of %d rank%s\n",
              coord.rank(), steps, active, active == 1 ? "" : "s");
  std::fflush(stdout);
  co_return fine;
}

asio::awaitable<int> run(cohort::communicator world, std::string file) {
  digits data;
  std::string trouble = "another rank could not read its data";
  bool fine = data.read(file, 16 * world.size(), trouble);
  co_await cohort::all_reduce(world, fine, cohort::op::logical_and);
  if (!fine) std::fprintf(stderr, "rank %d: %s\n", world.rank(), trouble.c_str());
  if (!fine) co_return EXIT_FAILURE;
  const cohort::coordinator coord(world);
  floats weights(10 * 64), unused(10 * 64);
  int steps = 0;
  fine = co_await train(coord, data.training, weights, steps);
  const int newest = co_await coord.join();
  const bool mine = newest == coord.rank();
  if (mine) std::printf("the newest state is that of rank %d, after %d batches\n", newest, steps);
  if (mine) std::fflush(stdout);
  co_await coord.broadcast("steps", steps, newest);
  co_await coord.broadcast("weights", weights, newest);
  double hits = 0;
  const batch test = part(data.held_out, coord.rank(), coord.size());
  for (const digit& one : test) hits += look(weights, one, unused);
  co_await coord.all_reduce("hits", hits, cohort::op::sum);
  co_await coord.all_reduce("fine", fine, cohort::op::logical_and);
  co_await coord.shutdown();
  if (mine) std::printf("divisors as expected: %s\n", fine ? "yes" : "NO");
  if (mine) std::printf("accuracy %.2f %%\n", 100 * hits / data.held_out.size());
  co_return fine ? EXIT_SUCCESS : EXIT_FAILURE;
}

int main(int argc, char** argv) {
  std::string file = "examples/data/digits.csv";
  CLI::App app{"Learns handwritten digits where every rank has a different number of batches."};
  app.add_option("file", file, "rows of 64 pixels and a label")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  return cohort::run(argc, argv, [&](cohort::communicator world) { return run(world, file); });
}
