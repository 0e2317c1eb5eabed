// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// What does it cost to write the loops of a computation in a coroutine, and not in functions that
// it calls? A conjugate gradient on one rank, with a matrix of 27 numbers to a row, that awaits
// something which is over at once wherever it would exchange with others. One rank, without MPI.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <cohort/core/asio.hpp>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <utility>
#include <vector>

namespace {

using vector = std::vector<double>;

/// Couples each point of a cube to its neighbours, periodically.
struct matrix {
  std::vector<std::array<double, 27>> values;
  std::vector<std::array<int, 27>> columns;

  explicit matrix(int side) {
    const auto at = [side](int i, int j, int k) {
      return ((i + side) % side * side + (j + side) % side) * side + (k + side) % side;
    };
    for (int i = 0; i < side; ++i) {
      for (int j = 0; j < side; ++j) {
        for (int k = 0; k < side; ++k) {
          auto& value = values.emplace_back();
          auto& column = columns.emplace_back();
          for (int n = 0; n < 27; ++n) {
            value[std::size_t(n)] = n == 13 ? 27 : -1;
            column[std::size_t(n)] = at(i + n / 9 - 1, j + n / 3 % 3 - 1, k + n % 3 - 1);
          }
        }
      }
    }
  }
};

struct problem {
  matrix a;
  vector b = vector(a.values.size()), x = b, r = b, p = b, q = b;
};

asio::awaitable<void> exchange() { co_return; }

// In functions.

void multiply(const matrix& a, const vector& x, vector& y) {
  for (std::size_t i = 0; i < y.size(); ++i) {
    double sum = 0;
    for (std::size_t n = 0; n < 27; ++n) sum += a.values[i][n] * x[std::size_t(a.columns[i][n])];
    y[i] = sum;
  }
}
double dot(const vector& a, const vector& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}
void add(double alpha, const vector& x, double beta, const vector& y, vector& to) {
  for (std::size_t i = 0; i < to.size(); ++i) to[i] = alpha * x[i] + beta * y[i];
}

asio::awaitable<double> in_functions(problem& of, int steps) {
  of.x.assign(of.x.size(), 0);
  of.r = of.p = of.b;
  double rr = dot(of.r, of.r);
  for (int step = 0; step < steps; ++step) {
    co_await exchange();
    multiply(of.a, of.p, of.q);
    const double pq = dot(of.p, of.q);
    co_await exchange();
    const double alpha = rr / pq;
    add(1, of.x, alpha, of.p, of.x);
    add(1, of.r, -alpha, of.q, of.r);
    const double next = dot(of.r, of.r);
    co_await exchange();
    add(1, of.r, next / rr, of.p, of.p);
    rr = next;
  }
  co_return rr;
}

// The same, written out in the coroutine.

asio::awaitable<double> in_coroutine(problem& of, int steps) {
  const matrix& a = of.a;
  vector &x = of.x, &r = of.r, &p = of.p, &q = of.q;
  x.assign(x.size(), 0);
  r = p = of.b;
  double rr = 0;
  for (std::size_t i = 0; i < r.size(); ++i) rr += r[i] * r[i];
  for (int step = 0; step < steps; ++step) {
    co_await exchange();
    for (std::size_t i = 0; i < q.size(); ++i) {
      double sum = 0;
      for (std::size_t n = 0; n < 27; ++n) sum += a.values[i][n] * p[std::size_t(a.columns[i][n])];
      q[i] = sum;
    }
    double pq = 0;
    for (std::size_t i = 0; i < p.size(); ++i) pq += p[i] * q[i];
    co_await exchange();
    const double alpha = rr / pq;
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = x[i] + alpha * p[i];
    for (std::size_t i = 0; i < r.size(); ++i) r[i] = r[i] - alpha * q[i];
    double next = 0;
    for (std::size_t i = 0; i < r.size(); ++i) next += r[i] * r[i];
    co_await exchange();
    const double beta = next / rr;
    for (std::size_t i = 0; i < p.size(); ++i) p[i] = r[i] + beta * p[i];
    rr = next;
  }
  co_return rr;
}

/// One loop alone, over vectors that stay in the cache.
asio::awaitable<double> add_in_functions(problem& of, int times) {
  for (int n = 0; n < times; ++n) {
    add(0.5, of.b, 0.25, of.r, of.q);
    co_await exchange();
  }
  co_return of.q[1];
}
asio::awaitable<double> add_in_coroutine(problem& of, int times) {
  const vector &b = of.b, &r = of.r;
  vector& q = of.q;
  const double alpha = 0.5 * double(times > 0), beta = 0.25 * double(times > 0);
  for (int n = 0; n < times; ++n) {
    for (std::size_t i = 0; i < q.size(); ++i) q[i] = alpha * b[i] + beta * r[i];
    co_await exchange();
  }
  co_return q[1];
}

double seconds_of(asio::awaitable<double> work, double& result) {
  asio::io_context io;
  asio::co_spawn(io, std::move(work),
                 [&](const std::exception_ptr&, double value) { result = value; });
  const auto begin = std::chrono::steady_clock::now();
  io.run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double median(vector of) {
  std::sort(of.begin(), of.end());
  return of[of.size() / 2];
}

using loops = asio::awaitable<double> (*)(problem&, int);

/// Prints how long both take; false if their results differ.
bool compare(const char* what, loops functions, loops coroutine, problem& of, int steps,
             int rounds) {
  std::array<vector, 2> times;
  vector ratios;
  std::array<double, 2> results{};
  for (int round = 0; round < rounds; ++round) {
    std::array<double, 2> took{};
    for (int turn = 0; turn < 2; ++turn) {
      const std::size_t which = std::size_t(round + turn) % 2;
      took[which] = seconds_of((which == 0 ? functions : coroutine)(of, steps), results[which]);
      times[which].push_back(took[which]);
    }
    ratios.push_back(took[1] / took[0]);
  }
  std::printf("%-24s in functions %6.2f ms, in the coroutine %6.2f ms, %.2f times\n", what,
              1e3 * median(times[0]), 1e3 * median(times[1]), median(ratios));
  return results[0] == results[1];
}

}  // namespace

int main(int argc, char** argv) {
  int side = 32, steps = 20, rounds = 31;
  CLI::App app{"Loops of a conjugate gradient in functions and in a coroutine, by turns."};
  app.add_option("--side", side, "points along each edge of the cube")->capture_default_str();
  app.add_option("--steps", steps)->capture_default_str();
  app.add_option("--rounds", rounds)->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  problem whole{matrix(side)}, small{matrix(16)};
  for (problem* each : {&whole, &small})
    for (std::size_t i = 0; i < each->b.size(); ++i) each->b[i] = double(i % 7);
  const bool same = compare("conjugate gradient", in_functions, in_coroutine, whole, steps, rounds);
  const bool also =
      compare("a x + b y, 4096 numbers", add_in_functions, add_in_coroutine, small, 1000, rounds);
  return same && also ? EXIT_SUCCESS : EXIT_FAILURE;
}
