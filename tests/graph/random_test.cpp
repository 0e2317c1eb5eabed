// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// Random graphs: whatever subset each rank spawns, in whatever order, the values are those of a
// serial evaluation, and each task runs once.
#include <cohort/collectives.hpp>
#include <cohort/comm.hpp>
#include <cohort/graph.hpp>

#include <asio/experimental/awaitable_operators.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <numeric>
#include <span>
#include <vector>

#include "graph/ranks_support.hpp"

namespace {

using namespace graph_test;
using word = std::uint64_t;

/// The salt of a task is 1000 times the number of its graph, and its own number.
std::map<word, int> calls;  // on this rank, of each graph
void count(word salt) { ++calls[salt / 1000]; }

word mixed(word a, word b) { return numbers(a * 31 + b).next(); }
word of_none(word salt) {
  count(salt);
  return mixed(salt, 0);
}
word of_one(word salt, word a) {
  count(salt);
  return mixed(salt, a);
}
word of_two(word salt, word a, const word& b) {
  count(salt);
  return mixed(mixed(salt, a), b);
}
word of_many(word salt, std::span<const word> all) {
  count(salt);
  return std::accumulate(all.begin(), all.end(), salt, mixed);
}
asio::awaitable<word> later(word salt, word a) {
  count(salt);
  co_await asio::post(co_await asio::this_coro::executor, asio::use_awaitable);
  co_return mixed(salt, a);
}

struct node_plan {
  int kind = 0;  // 0 to 4, as above
  std::vector<int> reads;
  bool takes = false;  // the last of these, which nobody else reads
  word value = 0;      // by a serial evaluation
};

/// A graph whose tasks read earlier ones, the same on all ranks.
std::vector<node_plan> plan_of(numbers& random, int size, word graph) {
  std::vector<node_plan> all(static_cast<std::size_t>(size));
  std::vector<int> readers(all.size());
  for (int i = 0; i < size; ++i) {
    node_plan& one = all[static_cast<std::size_t>(i)];
    const auto some = static_cast<int>(random.below(i == 0 ? 1 : 4));
    for (int k = 0; k < some; ++k) {
      one.reads.push_back(static_cast<int>(random.below(static_cast<word>(i))));
    }
    one.kind = one.reads.empty() ? 0 : one.reads.size() == 2 ? 2 : one.reads.size() == 3 ? 3 : 1;
    if (one.kind == 1 && random.one_in(3)) one.kind = 4;
    for (const int each : one.reads) ++readers[static_cast<std::size_t>(each)];
  }
  for (int i = 0; i < size; ++i) {
    node_plan& one = all[static_cast<std::size_t>(i)];
    const auto value_of = [&](std::size_t at) {
      return all[static_cast<std::size_t>(one.reads[at])].value;
    };
    const auto salt = graph * 1000 + static_cast<word>(i);
    if (one.kind == 0) one.value = mixed(salt, 0);
    if (one.kind == 1 || one.kind == 4) one.value = mixed(salt, value_of(0));
    if (one.kind == 2) one.value = mixed(mixed(salt, value_of(0)), value_of(1));
    if (one.kind == 3) {
      one.value = salt;
      for (std::size_t at = 0; at < 3; ++at) one.value = mixed(one.value, value_of(at));
    }
    if ((one.kind == 1 || one.kind == 2) &&
        readers[static_cast<std::size_t>(one.reads.back())] == 1) {
      one.takes = random.one_in(2);
    }
  }
  return all;
}

struct families {
  families(const graph::scope& s, const graph::placement& where)
      : none(s.tasks<&of_none>("none", where)),
        one(s.tasks<&of_one>("one", where)),
        two(s.tasks<&of_two>("two", where)),
        many(s.tasks<&of_many>("many", where)),
        coroutine(s.tasks<&later>("later", where)) {}
  graph::task<word> name(const std::vector<node_plan>& all, int i) const {
    switch (all[static_cast<std::size_t>(i)].kind) {
      case 0:
        return none(i);
      case 1:
        return one(i);
      case 2:
        return two(i);
      case 3:
        return many(i);
      default:
        return coroutine(i);
    }
  }
  void spawn(const std::vector<node_plan>& all, int i, word graph) const {
    const node_plan& what = all[static_cast<std::size_t>(i)];
    const auto read = [&](std::size_t at) { return name(all, what.reads[at]); };
    const auto salt = graph * 1000 + static_cast<word>(i);
    if (what.kind == 0) none(i).spawn(salt);
    if (what.kind == 1 && what.takes) one(i).spawn(salt, take(read(0)));
    if (what.kind == 1 && !what.takes) one(i).spawn(salt, read(0));
    if (what.kind == 2 && what.takes) two(i).spawn(salt, read(0), take(read(1)));
    if (what.kind == 2 && !what.takes) two(i).spawn(salt, read(0), read(1));
    if (what.kind == 3) many(i).spawn(salt, std::vector{read(0), read(1), read(2)});
    if (what.kind == 4) coroutine(i).spawn(salt, read(0));
  }
  graph::family<word, &of_none> none;
  graph::family<word, &of_one> one;
  graph::family<word, &of_two> two;
  graph::family<word, &of_many> many;
  graph::family<word, &later> coroutine;
};

graph::placement some_placement(numbers& random, int ranks) {
  if (random.one_in(3)) return graph::block_cyclic(1, ranks);
  if (random.one_in(4)) return graph::on(static_cast<int>(random.below(static_cast<word>(ranks))));
  return graph::hash();
}

/// A window for each seed. Each task is spawned by one rank that all agree on, and perhaps by
/// others; each rank awaits values that nobody takes.
task random_windows(graph::scope& s, cohort::communicator world, word first, word seeds) {
  std::vector<int> sizes;
  for (word seed = first; seed < first + seeds; ++seed) {
    numbers common(seed);
    const int size = 1 + static_cast<int>(common.below(30));
    const std::vector<node_plan> all = plan_of(common, size, seed);
    const families names(s, graph::hash());
    std::vector<int> mine;
    std::vector<bool> is_taken(all.size());
    numbers own(seed * 1000 + static_cast<word>(s.rank()));
    const word share = 1 + common.below(3);
    for (int i = 0; i < size; ++i) {
      const auto must = static_cast<int>(common.below(static_cast<word>(s.size())));
      if (must == s.rank() || own.below(3) < share - 1) mine.push_back(i);
      const node_plan& what = all[static_cast<std::size_t>(i)];
      if (what.takes) is_taken[static_cast<std::size_t>(what.reads.back())] = true;
    }
    own.shuffle(mine);
    for (const int i : mine) names.spawn(all, i, seed);
    for (int k = 0; k < 3; ++k) {
      const auto i = own.below(all.size());
      if (is_taken[i]) continue;
      const word got = co_await names.name(all, static_cast<int>(i)).get();
      if (got != all[i].value) {
        INFO("seed " << seed << ", task " << i);
        CHECK(got == all[i].value);
      }
    }
    const graph::report ended = co_await s.fence();
    if (ended.failed != 0 || !ended.divergences.empty()) {
      INFO("seed " << seed << ": "
                   << (ended.first_failure ? ended.first_failure->text
                                           : ended.divergences.front().text));
      CHECK(ended.failed == 0);
      CHECK(ended.divergences.empty());
    }
    sizes.push_back(size);
  }
  std::vector<int> ran;
  for (word seed = first; seed < first + seeds; ++seed) ran.push_back(calls[seed]);
  co_await cohort::all_reduce(world, ran, cohort::op::sum);
  CHECK(ran == sizes);
}

task random_placements(graph::scope& s, word seed) {
  numbers common(seed);
  const int size = 1 + static_cast<int>(common.below(60));
  const std::vector<node_plan> all = plan_of(common, size, seed);
  const families names(s, some_placement(common, s.size()));
  numbers own(seed * 1000 + static_cast<word>(s.rank()));
  std::vector<int> mine(all.size());
  std::iota(mine.begin(), mine.end(), 0);
  own.shuffle(mine);
  for (const int i : mine) {
    names.spawn(all, i, seed);
    names.spawn(all, i, seed);  // again: nothing
  }
  const std::size_t last = all.size() - 1;
  const word got = co_await names.name(all, static_cast<int>(last)).get();
  CHECK(got == all[last].value);
}

// ---- two scopes at once ----

task ping(graph::scope& s, int rounds) {
  auto f = s.tasks<&of_one>("f");
  auto start = s.tasks<&of_none>("start", graph::on(s.size() - 1));
  start().spawn(1);
  graph::task<word> before = start();
  word expected = mixed(1, 0);
  for (int i = 0; i < rounds; ++i) {
    f(i).spawn(static_cast<word>(i), before);
    before = f(i);
    expected = mixed(static_cast<word>(i), expected);
    if (i % 10 == 9) {
      const word got = co_await before.get();
      CHECK(got == expected);
      if (i % 20 != 19) continue;
      const graph::report ended = co_await s.fence();
      CHECK(ended.failed == 0);
      start().spawn(expected);
      before = start();
      expected = mixed(expected, 0);
    }
  }
}

task two_coroutines(graph::scope& s) {
  const auto half = [](graph::scope mine, int from) -> task {
    auto f = mine.tasks<&of_none>("half");
    for (int i = from; i < 40; i += 2) {
      f(i).spawn(static_cast<word>(i));
      const word got = co_await f(i).get();
      CHECK(got == mixed(static_cast<word>(i), 0));
    }
    static_cast<void>(co_await mine.fence());
  };
  using namespace asio::experimental::awaitable_operators;
  auto both = half(s.fork(), 0) && half(s.fork(), 1);
  auto end = s.fence();
  auto all = std::move(both) && std::move(end);
  static_cast<void>(co_await std::move(all));
}

}  // namespace

TEST_CASE("random subsets in random orders compute what a serial program does",
          "[graph][ranks][random]") {
  cohort_test::on_world([&](cohort::communicator world) -> task {
    graph::tasks all(world);
    auto running = all.run("windows", &random_windows, world, 1U, 100U);
    co_await std::move(running);
  });
}

// check_everything.sh long-runs
TEST_CASE("a thousand random graphs compute what a serial program does", "[.][long]") {
  cohort_test::on_world([&](cohort::communicator world) -> task {
    graph::tasks all(world);
    auto running = all.run("windows", &random_windows, world, 101U, 1000U);
    co_await std::move(running);
  });
}

TEST_CASE("random graphs are right with small credit and large values offered",
          "[graph][ranks][random]") {
  cohort_test::on_world([&](cohort::communicator world) -> task {
    graph::tasks all(world, graph::tasks_options{.eager = 4, .credit = 16});
    auto running = all.run("windows", &random_windows, world, 5000U, 100U);
    co_await std::move(running);
  });
}

TEST_CASE("many scopes follow one another, with all placements", "[graph][ranks][random]") {
  cohort_test::on_world([&](cohort::communicator world) -> task {
    graph::tasks all(world);
    for (word seed = 1; seed <= 100; ++seed) {
      auto running = all.run("placements", &random_placements, seed);
      co_await std::move(running);
    }
  });
}

TEST_CASE("two scopes are interleaved", "[graph][ranks]") {
  cohort_test::on_world([&](cohort::communicator world) -> task {
    graph::tasks all(world);
    using namespace asio::experimental::awaitable_operators;
    auto both = all.run("one", &ping, 60) && all.run("other", &ping, 45);
    co_await std::move(both);
  });
}

TEST_CASE("two coroutines of a rank spawn and await in one scope", "[graph][ranks]") {
  in_scope(&two_coroutines);
}
