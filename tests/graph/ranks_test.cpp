// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// Graphs on real ranks: what a serial program computes, whoever spawns which tasks in what order.
#include <cohort/collectives.hpp>
#include <cohort/comm.hpp>
#include <cohort/graph.hpp>

#include <asio/experimental/awaitable_operators.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/ranks_support.hpp"

namespace {

using namespace graph_test;

// ---- 1. Tiled Cholesky ----

struct tile {
  int size = 0;
  std::vector<double> at;
  double& operator()(int row, int column) {
    return at[static_cast<std::size_t>(row) * static_cast<std::size_t>(size) +
              static_cast<std::size_t>(column)];
  }
  double operator()(int row, int column) const {
    return at[static_cast<std::size_t>(row) * static_cast<std::size_t>(size) +
              static_cast<std::size_t>(column)];
  }
};

constexpr int tile_size = 5;

double element(int row, int column) {
  return row == column ? 40.0 + row : 1.0 / (1 + row + column);
}

tile load(int row, int column) {
  tile one{tile_size, std::vector<double>(tile_size * tile_size)};
  for (int i = 0; i < tile_size; ++i) {
    for (int j = 0; j < tile_size; ++j) {
      one(i, j) = element(row * tile_size + i, column * tile_size + j);
    }
  }
  return one;
}

tile factor(tile a) {
  for (int k = 0; k < a.size; ++k) {
    a(k, k) = std::sqrt(a(k, k));
    for (int i = k + 1; i < a.size; ++i) a(i, k) /= a(k, k);
    for (int i = k + 1; i < a.size; ++i) {
      for (int j = k + 1; j <= i; ++j) a(i, j) -= a(i, k) * a(j, k);
    }
  }
  return a;
}
tile solve(const tile& diagonal, tile a) {
  for (int k = 0; k < a.size; ++k) {
    for (int i = 0; i < a.size; ++i) {
      for (int j = 0; j < k; ++j) a(i, k) -= a(i, j) * diagonal(k, j);
      a(i, k) /= diagonal(k, k);
    }
  }
  return a;
}
tile update(const tile& row, const tile& column, tile c) {
  for (int i = 0; i < c.size; ++i) {
    for (int j = 0; j < c.size; ++j) {
      for (int k = 0; k < c.size; ++k) c(i, j) -= row(i, k) * column(j, k);
    }
  }
  return c;
}

/// The lower triangle, without tiles.
std::vector<std::vector<double>> factored(int n) {
  const auto size = static_cast<std::size_t>(n * tile_size);
  std::vector<std::vector<double>> a(size, std::vector<double>(size));
  for (std::size_t i = 0; i < size; ++i) {
    for (std::size_t j = 0; j < size; ++j) {
      a[i][j] = element(static_cast<int>(i), static_cast<int>(j));
    }
  }
  for (std::size_t k = 0; k < size; ++k) {
    a[k][k] = std::sqrt(a[k][k]);
    for (std::size_t i = k + 1; i < size; ++i) a[i][k] /= a[k][k];
    for (std::size_t i = k + 1; i < size; ++i) {
      for (std::size_t j = k + 1; j <= i; ++j) a[i][j] -= a[i][k] * a[j][k];
    }
  }
  return a;
}

task cholesky(graph::scope& s, int n, graph::block_cyclic grid) {
  auto A = s.tasks<&update>("A", grid);
  auto potrf = s.tasks<&factor>("potrf", grid);
  auto trsm = s.tasks<&solve>("trsm", grid);
  for (int i = 0; i < n; ++i) {
    for (int j = 0; j <= i; ++j) {
      if (A(i, j, 0).here()) A(i, j, 0).put(load(i, j));
    }
  }
  for (int k = 0; k < n; ++k) {
    potrf(k).spawn(take(A(k, k, k)));
    for (int i = k + 1; i < n; ++i) trsm(i, k).spawn(potrf(k), take(A(i, k, k)));
    for (int i = k + 1; i < n; ++i) {
      for (int j = k + 1; j <= i; ++j) {
        A(i, j, k + 1).spawn(trsm(i, k), trsm(j, k), take(A(i, j, k)));
      }
    }
  }
  const auto expected = factored(n);
  for (int i = 0; i < n; ++i) {
    for (int j = 0; j <= i; ++j) {
      tile got;
      if (i == j) {
        got = co_await potrf(i).get();
      } else {
        got = co_await trsm(i, j).get();
      }
      double worst = 0;
      for (int y = 0; y < tile_size; ++y) {
        for (int x = 0; x < (i == j ? y + 1 : tile_size); ++x) {
          const double wanted = expected[static_cast<std::size_t>(i * tile_size + y)]
                                        [static_cast<std::size_t>(j * tile_size + x)];
          worst = std::max(worst, std::abs(got(y, x) - wanted));
        }
      }
      CHECK(worst < 1e-12);
    }
  }
  if (auto report = co_await s.fence(); report.failed) throw graph::error(report);
}

// ---- 2. A spawn that only one rank knows of ----

double step(double before) { return before + 1; }
double mend(double broken) { return -broken; }

task conditional(graph::scope& s, cohort::communicator world, bool suspicious) {
  auto advance = s.tasks<&step>("advance", graph::on(0));
  auto repair = s.tasks<&mend>("repair");
  advance().spawn(0.5);
  const int last = world.size() - 1;
  if (world.rank() == last && suspicious) repair().spawn(advance());
  if (world.rank() != 0) co_return;
  try {
    const double repaired = co_await repair().get();
    CHECK(suspicious);
    CHECK(repaired == -1.5);
  } catch (const graph::error& e) {
    CHECK_FALSE(suspicious);
    CHECK(e.code() == errc::not_spawned);
    CHECK(e.root() == "repair()");
    CHECK(has(e.what(), "repair()"));
  }
}

// ---- 3. One graph, run many times ----

struct parameters {
  int point = 0;
  int round = 0;
};
struct result {
  double value = 0;
  int point = -1;
};

result simulate(parameters p) {
  return {static_cast<double>((p.point * 7919 + p.round * 104729) % 1000), p.point};
}
result choose(result best, std::span<const result> each) {
  for (const result& one : each) {
    if (one.value > best.value) best = one;
  }
  return best;
}

task sweep(graph::scope& s, int points, int rounds) {
  auto input = s.tasks<parameters>("input");
  auto point = s.tasks<&simulate>("point");
  auto best = s.tasks<result>("best", graph::on(0));
  auto better = s.tasks<&choose>("better", graph::on(0));
  std::vector<graph::task<result>> each;
  for (int p = 0; p < points; ++p) each.push_back(point(p).spawn(take(input(p))));
  better().spawn(take(best()), each);
  result found;
  result expected;
  for (int w = 0; w < rounds; ++w) {
    for (int p = 0; p < points; ++p) {
      if (input(p).here()) input(p).put(parameters{p, w});
      const result one = simulate({p, w});
      if (one.value > expected.value) expected = one;
    }
    if (best().here()) best().put(found);
    if (best().here()) {
      found = co_await take(better()).get();
      CHECK(found.value == expected.value);
      CHECK(found.point == expected.point);
    }
    auto ending = w < rounds - 1 ? s.again() : s.fence();
    const graph::report ended = co_await std::move(ending);
    CHECK(ended.failed == 0);
    CHECK(ended.divergences.empty());
  }
}

// ---- shapes ----

int one_more(int before) { return before + 1; }
int sum_of_two(int a, int b) { return a + b; }
long sum(std::span<const int> all) { return std::accumulate(all.begin(), all.end(), 0L); }
std::vector<int> sorted(std::vector<int> all) {
  std::sort(all.begin(), all.end());
  return all;
}
int square(int i) { return i * i; }

task diamond(graph::scope& s) {
  auto top = s.tasks<&one_more>("top", graph::on(0));
  auto side = s.tasks<&one_more>("side", graph::placement());
  auto bottom = s.tasks<&sum_of_two>("bottom", graph::on(s.size() - 1));
  // In no useful order: names need not be spawned before they are used.
  bottom().spawn(side(0), side(1));
  side(1).spawn(top());
  side(0).spawn(top());
  top().spawn(1);
  const auto got_1 = co_await bottom().get();
  CHECK(got_1 == 6);
  const auto got_2 = co_await side(1).get();
  CHECK(got_2 == 3);
}

task chain(graph::scope& s, int length) {
  auto f = s.tasks<&one_more>("f");
  f(0).spawn(0);
  for (int i = 1; i < length; ++i) f(i).spawn(f(i - 1));
  const auto got_3 = co_await f(length - 1).get();
  CHECK(got_3 == length);
}

task fan(graph::scope& s, int width) {
  auto leaf = s.tasks<&square>("leaf");
  auto total = s.tasks<&sum>("total", graph::on(s.size() / 2));
  auto list = s.tasks<&sorted>("list", graph::on(s.size() - 1));
  std::vector<graph::task<int>> leaves;
  long expected = 0;
  for (int i = 0; i < width; ++i) {
    leaves.push_back(leaf(i).spawn(i));
    expected += square(i);
  }
  total().spawn(leaves);
  list().spawn(take(leaves), after(total()));
  const long got = co_await total().get();
  CHECK(got == expected);
  const std::vector<int> in_order = co_await list().get();
  CHECK(in_order.size() == static_cast<std::size_t>(width));
  CHECK(std::is_sorted(in_order.begin(), in_order.end()));
}

std::string joined(std::string_view a, const std::string& b, std::span<const double> numbers,
                   std::vector<std::string> more, int count) {
  std::string all(a);
  all += b;
  for (const double one : numbers) all += std::to_string(static_cast<int>(one));
  for (const std::string& one : more) all += one;
  return all + std::to_string(count);
}
std::string shout(const std::string& text) { return text + "!"; }

task parameters_of_all_kinds(graph::scope& s) {
  auto word = s.tasks<&shout>("word");
  auto all = s.tasks<&joined>("all");
  word(0).spawn("hello");
  word(1).spawn(word(0));
  word(2).spawn("hello");
  std::array<graph::task<std::string>, 2> both{word(2), word(1)};
  const std::vector<double> numbers{1, 2};
  all(1, 2, 3, 4, 5, 6).spawn(word(0), std::string(" "), numbers, take(both), 7);
  all(-1).spawn("a", word(0), std::vector<double>(), std::vector<std::string>{"x", "y"}, 1L);
  const auto got_4 = co_await all(1, 2, 3, 4, 5, 6).get();
  CHECK(got_4 == "hello! 12hello!hello!!7");
  const auto got_5 = co_await all(-1).get();
  CHECK(got_5 == "ahello!xy1");
}

std::vector<double> longer(std::vector<double> values) {
  values.push_back(static_cast<double>(values.size()));
  return values;
}

task in_place(graph::scope& s, int length, int size, int stays) {
  auto at = s.tasks<&longer>("at", graph::block_cyclic(s.size(), 1));
  const auto place = [&](int i) { return (i / stays) % s.size(); };
  auto here = [&](int i) { return at(place(i), 0, i); };
  if (here(0).here()) here(0).put(std::vector<double>(static_cast<std::size_t>(size), 1.0));
  for (int i = 1; i < length; ++i) here(i).spawn(take(here(i - 1)));
  const auto last = co_await here(length - 1).get();
  CHECK(last.size() == static_cast<std::size_t>(size + length - 1));
  CHECK(last.back() == size + length - 2);
}

task one_spawns(graph::scope& s, int count, int who) {
  auto f = s.tasks<&one_more>("f");
  auto all = s.tasks<&sum>("sum");
  if (s.rank() == who) {
    std::vector<graph::task<int>> each;
    for (int i = 0; i < count; ++i) each.push_back(f(i).spawn(i));
    all().spawn(each);
  }
  const long total = co_await all().get();
  CHECK(total == static_cast<long>(count) * (count + 1) / 2);
}

void count_call(int) {}
task nothing_is_a_value(graph::scope& s) {
  auto f = s.tasks<&count_call>("f");
  auto flag = s.tasks<void>("flag", graph::on(0));
  auto g = s.tasks<&square>("g", graph::on(s.size() - 1));
  f(1).spawn(1);
  g().spawn(5, after(f(1)), after(flag()));
  if (flag().here()) flag().put();
  co_await f(1).get();
  const auto got_6 = co_await g().get();
  CHECK(got_6 == 25);
}

// ---- tasks that spawn, and coroutines ----

int fibonacci_sum(int a, int b) { return a + b; }
int fibonacci(graph::task_context& context, int n) {
  CHECK(context.name() == "fib(" + std::to_string(n) + ")");
  if (n < 2) return n;
  auto fib = context.tasks<&fibonacci>("fib");
  auto add = context.tasks<&fibonacci_sum>("add");
  auto value = context.tasks<int>("value");
  static_cast<void>(value);
  const auto of = [&](int i) -> graph::task<int> {
    if (i < 2) return fib(i);
    return add(i);
  };
  fib(n - 1).spawn(n - 1);
  fib(n - 2).spawn(n - 2);
  add(n).spawn(of(n - 1), of(n - 2));
  return n;
}

task tasks_spawn(graph::scope& s) {
  auto fib = s.tasks<&fibonacci>("fib");
  auto add = s.tasks<&fibonacci_sum>("add");
  fib(15).spawn(15);
  const auto got_7 = co_await add(15).get();
  CHECK(got_7 == 610);
}

const cohort::communicator* everyone = nullptr;

asio::awaitable<int> sum_of_ranks(graph::task_context& context, int mine) {
  int total = mine;
  cohort::communicator world = *everyone;
  co_await cohort::all_reduce(world, total, cohort::op::sum);
  co_await cohort::barrier(world);
  CHECK(context.rank() == world.rank());
  co_return total;
}
asio::awaitable<void> sleep_a_little(int) {
  asio::steady_timer timer(co_await asio::this_coro::executor, std::chrono::milliseconds(1));
  co_await timer.async_wait(asio::use_awaitable);
}

task coroutines(graph::scope& s, cohort::communicator world) {
  everyone = &world;
  auto all = s.tasks<&sum_of_ranks>("all", graph::block_cyclic(s.size(), 1));
  auto pause = s.tasks<&sleep_a_little>("pause");
  for (int rank = 0; rank < s.size(); ++rank) all(rank, 0).spawn(rank + 1, after(pause(rank)));
  for (int i = 0; i < 8; ++i) pause(i).spawn(i);
  const int expected = s.size() * (s.size() + 1) / 2;
  for (int rank = 0; rank < s.size(); ++rank) {
    const int got = co_await all(rank, 0).get();
    CHECK(got == expected);
  }
  co_await s.fence();
  everyone = nullptr;
}

}  // namespace

TEST_CASE("a tiled Cholesky factorisation is that of the whole matrix", "[graph][ranks]") {
  in_scope(&cholesky, 1, graph::block_cyclic(1, 1));
  in_scope(&cholesky, 6, graph::block_cyclic(2, 2));
  in_scope(graph::tasks_options{.eager = 64}, &cholesky, 5, graph::block_cyclic(1, 4));
}

TEST_CASE("a spawn that one rank knows of needs no word of the others", "[graph][ranks]") {
  for (const bool suspicious : {true, false}) {
    cohort_test::on_world([&](cohort::communicator world) -> task {
      graph::tasks all(world);
      auto running = all.run("conditional", &conditional, world, suspicious);
      co_await std::move(running);
    });
  }
}

TEST_CASE("a graph runs again, and only what is put changes", "[graph][ranks]") {
  in_scope(&sweep, 200, 20);
  in_scope(&sweep, 1, 3);
}

TEST_CASE("diamonds, chains and fans compute what a serial program does", "[graph][ranks]") {
  in_scope(&diamond);
  in_scope(&chain, 1);
  in_scope(&chain, 500);
  in_scope(&fan, 1);
  in_scope(&fan, 300);
}

TEST_CASE("parameters are filled by values, tasks, texts and ranges", "[graph][ranks]") {
  in_scope(&parameters_of_all_kinds);
  in_scope(&nothing_is_a_value);
}

TEST_CASE("a value is updated in place, here and on its way through the ranks", "[graph][ranks]") {
  in_scope(&in_place, 100, 10, 5);
  in_scope(&in_place, 40, 5000, 1);   // large: offered and granted
  in_scope(&in_place, 40, 5000, 50);  // stays where it is
}

TEST_CASE("one rank spawns for all", "[graph][ranks]") {
  in_scope(&one_spawns, 100, 0);
  cohort_test::on_world([&](cohort::communicator world) -> task {
    graph::tasks all(world);
    for (int who = 0; who < world.size(); ++who) {
      auto running = all.run("one", &one_spawns, 30, who);
      co_await std::move(running);
    }
  });
}

TEST_CASE("tasks spawn tasks", "[graph][ranks]") { in_scope(&tasks_spawn); }

TEST_CASE("a coroutine awaits collectives and timers as a task", "[graph][ranks]") {
  cohort_test::on_world([&](cohort::communicator world) -> task {
    graph::tasks all(world);
    auto running = all.run("coroutines", &coroutines, world);
    co_await std::move(running);
  });
}

TEST_CASE("functions run on threads while the loop communicates", "[graph][ranks][threads]") {
  const auto options = graph::tasks_options().on_threads(2);
  in_scope(options, &cholesky, 6, graph::block_cyclic(2, 2));
  in_scope(options, &fan, 200);
  in_scope(options, &chain, 100);
  in_scope(options, &tasks_spawn);
  in_scope(options, &in_place, 40, 5000, 3);
}
