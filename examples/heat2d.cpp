// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// Heat spreads over the unit square, whose edge stays cold: u_t = u_xx + u_yy. Each rank owns a
// tile of the grid. In every step the edges of the tiles travel to the neighbours while the points
// that need no neighbour are advanced. It starts as a sine, of which the solution is known.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cmath>
#include <cohort/cohort.hpp>
#include <cstdio>
#include <numbers>
#include <utility>
#include <vector>

using field = std::vector<double>;
using std::numbers::pi;

struct options {
  std::size_t rows = 120, columns = 90;
  int steps = 1000;
};

/// What one rank has of a dimension that is cut into parts of almost equal size.
struct extent {
  std::size_t points, parts, part;
  std::size_t first = points * part / parts;
  std::size_t size = points * (part + 1) / parts - first;
  double spacing = 1 / (double(points) + 1);

  std::size_t longest() const { return (points + parts - 1) / parts; }
  /// The start, and how fast it decays by differences of second order.
  double sine(std::size_t i) const { return std::sin(pi * spacing * double(first + i)); }
  double eigenvalue() const { return std::pow(2 / spacing * std::sin(pi * spacing / 2), 2); }
};

/// A tile with a halo one point wide, so that its own points are counted from one.
struct tile {
  extent rows, columns;
  std::size_t width = columns.size + 2;
  field now = field((rows.size + 2) * width), next = now;

  /// Calls f(point, halo, place) for the points along the four edges, in the order of neighbours:
  /// the point's index, that of the halo beside it, and its place in a message of such blocks.
  void each_edge(auto f) const {
    const std::size_t top = width + 1, bottom = rows.size * width + 1, block = edge();
    for (std::size_t c = 0; c < columns.size; ++c) {
      f(top + c, top + c - width, c);
      f(bottom + c, bottom + c + width, block + c);
    }
    for (std::size_t r = 0; r < rows.size; ++r) {
      const std::size_t left = top + r * width, right = left + columns.size - 1;
      f(left, left - 1, 2 * block + r);
      f(right, right + 1, 3 * block + r);
    }
  }
  /// The longest edge of any tile: all blocks of the message have this size.
  std::size_t edge() const { return std::max(rows.longest(), columns.longest()); }

  /// One explicit step for the points of some rows and columns.
  void advance(double step, std::size_t r0, std::size_t r1, std::size_t c0, std::size_t c1) {
    const double y = step / (rows.spacing * rows.spacing);
    const double x = step / (columns.spacing * columns.spacing);
    for (std::size_t r = r0; r <= r1; ++r) {
      for (std::size_t i = r * width + c0; i <= r * width + c1; ++i) {
        next[i] = now[i] + y * (now[i - width] - 2 * now[i] + now[i + width]) +
                  x * (now[i - 1] - 2 * now[i] + now[i + 1]);
      }
    }
  }
  void each_point(auto f) const {
    for (std::size_t r = 1; r <= rows.size; ++r)
      for (std::size_t c = 1; c <= columns.size; ++c)
        f(r * width + c, rows.sine(r) * columns.sine(c));
  }
};

asio::awaitable<int> solve(cohort::communicator world, options opts) {
  const auto shape = cohort::mpi::cartesian::balanced(world.size(), 2);
  const std::size_t down = shape.dims()[0], across = shape.dims()[1];
  if (opts.rows < down || opts.columns < across) {
    std::fprintf(stderr, "rank %d: %zu x %zu points are too few for %zu x %zu ranks\n",
                 world.rank(), opts.rows, opts.columns, down, across);
    co_return EXIT_FAILURE;
  }
  const auto grid = co_await world.create(shape);
  const auto here = cohort::mpi::grid(cohort::mpi::comm_ref(grid.native())).coordinates();
  const extent vertical{opts.rows, down, std::size_t(here[0])};
  const extent horizontal{opts.columns, across, std::size_t(here[1])};
  tile t{vertical, horizontal};
  t.each_point([&](std::size_t i, double sine) { t.now[i] = sine; });
  const double y = t.rows.spacing * t.rows.spacing, x = t.columns.spacing * t.columns.spacing;
  const double step = 0.4 / (1 / y + 1 / x);  // stable below 0.5
  const std::size_t rows = t.rows.size, columns = t.columns.size, half = rows / 2;
  field out(4 * t.edge()), in = out;  // what comes from beyond the edge of the square stays zero
  for (int n = 0; n < opts.steps; ++n) {
    t.each_edge([&](auto point, auto, auto place) { out[place] = t.now[point]; });
    auto arrival = cohort::neighbor_all_to_all(grid, out, in, cohort::as_future);
    t.advance(step, 2, half, 2, columns - 1);
    cohort::poll(grid);
    t.advance(step, half + 1, rows - 1, 2, columns - 1);
    co_await std::move(arrival);
    t.each_edge([&](auto, auto halo, auto place) { t.now[halo] = in[place]; });
    t.advance(step, 1, 1, 1, columns);
    t.advance(step, rows, rows, 1, columns);
    t.advance(step, 1, rows, 1, 1);
    t.advance(step, 1, rows, columns, columns);
    std::swap(t.now, t.next);
  }

  const double exact = std::exp(-2 * pi * pi * step * opts.steps);
  const double decay =
      std::pow(1 - step * (t.rows.eigenvalue() + t.columns.eigenvalue()), opts.steps);
  std::array<double, 2> error{};
  t.each_point([&](std::size_t i, double sine) {
    error[0] += std::pow(t.now[i] - exact * sine, 2);
    error[1] += std::pow(t.now[i] - decay * sine, 2);
  });
  co_await cohort::all_reduce(grid, error, cohort::op::sum);
  for (double& e : error) e = std::sqrt(e / double(opts.rows * opts.columns));
  const bool good = error[0] <= x + y && error[1] <= 1e-12;
  const int status = good ? EXIT_SUCCESS : EXIT_FAILURE;
  if (grid.rank() != 0) co_return status;
  std::printf("%zu x %zu points on %zu x %zu ranks, %d steps to t = %.4f\n", opts.rows,
              opts.columns, down, across, opts.steps, step * opts.steps);
  std::printf("error against the solution %.1e, tolerance %.1e\n", error[0], x + y);
  std::printf("error against the decay of the scheme %.1e, tolerance 1e-12\n", error[1]);
  std::puts(good ? "passed" : "FAILED");
  co_return status;
}

int main(int argc, char** argv) {
  options opts;
  CLI::App app{"Solves the heat equation on a grid of tiles, one for each rank."};
  app.add_option("--rows", opts.rows)->capture_default_str();
  app.add_option("--columns", opts.columns)->capture_default_str();
  app.add_option("--steps", opts.steps)->check(CLI::PositiveNumber)->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  return cohort::run(argc, argv, [&](cohort::communicator world) { return solve(world, opts); });
}
