// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// Tests in the spirit of those of Dagger, TaskTorrent, StarPU and PaRSEC: what they show with their
// ways of naming tasks and data, shown with this one. What other files have already is not here.
#include <cohort/core/wire_std.hpp>

#include <cohort/collectives.hpp>
#include <cohort/comm.hpp>
#include <cohort/graph.hpp>

#include <asio/experimental/awaitable_operators.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "graph/isend.hpp"
#include "graph/ranks_support.hpp"

namespace {

using namespace graph_test;
using cohort_test::meet;
using integers = std::vector<int>;

int port_same(int value) { return value; }
int port_twice(int value) { return 2 * value; }
int port_sum(std::span<const int> all) { return std::accumulate(all.begin(), all.end(), 0); }
int port_size() {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}
int port_second() { return std::min(1, port_size() - 1); }

// Port of Dagger test/mpi.jl, "Uniform chunk creation": all ranks agree on the owner of each chunk,
// the owners are all ranks, only the owner has it, and all can read it.
task port_chunks(graph::scope& s, cohort::communicator world) {
  auto chunk = s.tasks<integers>("chunk", graph::block_cyclic(1, s.size()));
  integers homes;
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 4; ++j) {
      homes.push_back(chunk(i, j).home());
      CHECK(chunk(i, j).here() == (homes.back() == s.rank()));
      if (chunk(i, j).here()) chunk(i, j).put(integers(9, 10 * i + j));
    }
  }
  integers largest = homes;
  integers smallest = homes;
  co_await cohort::all_reduce(world, largest, cohort::op::max);
  co_await cohort::all_reduce(world, smallest, cohort::op::min);
  CHECK(largest == homes);
  CHECK(smallest == homes);
  for (int rank = 0; rank < s.size(); ++rank) {
    CHECK(std::count(homes.begin(), homes.end(), rank) > 0);
  }
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 4; ++j) {
      const integers got = co_await chunk(i, j).get();
      CHECK(got == integers(9, 10 * i + j));
    }
  }
}

// Port of Dagger test/mpi.jl, "check_uniform": what depends on the rank is found on every rank, and
// what comes after it is not affected.
task port_rank_dependent(graph::scope& s) {
  auto f = s.tasks<&port_same>("f", graph::on(s.size() - 1));
  f(1).spawn(s.rank());
  const graph::report first = co_await s.fence();
  CHECK(first.divergences.size() == (s.size() > 1 ? 1U : 0U));
  f(2).spawn(7);
  const int got = co_await f(2).get();
  CHECK(got == 7);
  const graph::report second = co_await s.fence();
  CHECK(second.divergences.empty());
  CHECK(second.failed == 0);
}

// Port of Dagger test/mpi.jl, "Non-Chunk argument wrapping": of what all ranks have, the owner's
// counts, also for a task of another rank.
task port_owner_counts(graph::scope& s) {
  auto source = s.tasks<integers>("source", graph::on(0));
  auto sum = s.tasks<&port_sum>("sum", graph::on(port_second()));
  const integers mine{10 + s.rank(), 20 * s.rank(), 3};
  if (source().here()) source().put(mine);
  sum().spawn(source());
  const int got = co_await sum().get();
  CHECK(got == 13);
}

// Port of Dagger test/mpi.jl, "Error propagation": a task whose result is an int throws, all ranks
// see it, what does not depend on it is not affected, and neither is what comes later.
int port_concrete_fail(int value) {
  if (value > 0) throw std::runtime_error("Test concrete");
  return value + 1;
}
task port_error_for_all(graph::scope& s) {
  auto f = s.tasks<&port_concrete_fail>("f", graph::on(port_second()));
  for (const int value : {1, -1}) f(value).spawn(value);
  const auto why = co_await error_of(f(1).get());
  REQUIRE(why);
  CHECK(why->code() == errc::task_failed);
  CHECK(why->root() == "f(1)");
  CHECK(why->rank() == port_second());
  CHECK(has(why->what(), "Test concrete"));
  const int good = co_await f(-1).get();
  CHECK(good == 0);
  const graph::report ended = co_await s.fence();
  CHECK(ended.failed == 1);
  f(-2).spawn(-2);
  const int later = co_await f(-2).get();
  CHECK(later == -1);
}

// Port of Dagger test/mpi.jl, "Untyped task results": the type of a result depends on its value.
using int_or_double = std::variant<int, double>;
int_or_double port_untyped(double value) {
  if (value > 0) return static_cast<int>(value);
  return value;
}
task port_untyped_results(graph::scope& s) {
  auto f = s.tasks<&port_untyped>("f", graph::on(s.size() - 1));
  f(0).spawn(3.0);
  f(1).spawn(-3.0);
  const int_or_double first = co_await f(0).get();
  const int_or_double second = co_await f(1).get();
  CHECK(first == int_or_double(3));
  CHECK(second == int_or_double(-3.0));
}

// Port of Dagger test/mpi.jl, "Stencils" (test/array/stencil_defs.jl): halos come from neighbours
// on other ranks, with borders that wrap and borders that are padded.
integers port_sweep(int pad, const integers& left, const integers& own, const integers& right) {
  integers made(own.size());
  for (std::size_t i = 0; i < own.size(); ++i) {
    const int before = i > 0 ? own[i - 1] : left.empty() ? pad : left.back();
    const int behind = i + 1 < own.size() ? own[i + 1] : right.empty() ? pad : right.front();
    made[i] = (before + 2 * own[i] + 3 * behind) % 10007;
  }
  return made;
}
task port_stencil(graph::scope& s, int blocks, int size, int steps, bool wraps) {
  constexpr int pad = 5;
  auto start = s.tasks<integers>("start", graph::block_cyclic(s.size(), 1));
  auto sweep = s.tasks<&port_sweep>("sweep", graph::block_cyclic(s.size(), 1));
  integers whole(static_cast<std::size_t>(blocks * size));
  std::iota(whole.begin(), whole.end(), 1);
  const auto block = [&](int b) {
    return integers(whole.begin() + b * size, whole.begin() + (b + 1) * size);
  };
  for (int b = 0; b < blocks; ++b) {
    if (start(b, 0).here()) start(b, 0).put(block(b));
  }
  const auto at = [&](int b, int step) -> graph::task<integers> {
    if (step == 0) return start(b, 0);
    return sweep(b, step);
  };
  for (int step = 1; step <= steps; ++step) {
    for (int b = 0; b < blocks; ++b) {
      const auto left = at((b + blocks - 1) % blocks, step - 1);
      const auto right = at((b + 1) % blocks, step - 1);
      const auto own = at(b, step - 1);
      if (wraps || (b > 0 && b < blocks - 1)) {
        sweep(b, step).spawn(pad, left, own, right);
      } else if (b > 0) {
        sweep(b, step).spawn(pad, left, own, integers());
      } else {
        sweep(b, step).spawn(pad, integers(), own, right);
      }
    }
    const integers border = wraps ? whole : integers();
    whole = port_sweep(pad, border, whole, border);
  }
  for (int b = 0; b < blocks; ++b) {
    const integers got = co_await sweep(b, steps).get();
    CHECK(got == block(b));
  }
}

// Port of PaRSEC dtd_test_war, and of the isolation of aliases in Dagger test/mpi.jl: readers on
// all ranks have the value as it was before it is written, also those that change their copy.
integers port_changed(int by, integers all) {
  for (int& one : all) one += by;
  return all;
}
task port_write_after_read(graph::scope& s, int readers) {
  auto value = s.tasks<integers>("value", graph::on(0));
  auto read = s.tasks<&port_changed>("read", graph::block_cyclic(s.size(), 1));
  auto written = s.tasks<&port_changed>("written", graph::on(0));
  if (value().here()) value().put(integers{1, 2, 3});
  std::vector<graph::task<integers>> all;
  for (int i = 0; i < readers; ++i) all.push_back(read(i, 0).spawn(i, value()));
  written().spawn(1000, take(value()), after(all));
  const integers now = co_await written().get();
  CHECK(now == integers{1001, 1002, 1003});
  for (int i = 0; i < readers; ++i) {
    const integers got = co_await all[static_cast<std::size_t>(i)].get();
    CHECK(got == integers{1 + i, 2 + i, 3 + i});
  }
}

// Port of TaskTorrent random_graph_test: tasks in a random order with random owners, each of which
// spawns its own only.
struct port_seed {
  std::uint64_t seed;
};
int port_owner(graph::indices name, int ranks, const port_seed& how) {
  numbers random(how.seed * 1'000'003 + static_cast<std::uint64_t>(name[0]));
  return static_cast<int>(random.below(static_cast<std::uint64_t>(ranks)));
}
int port_node(int own, std::span<const int> before) {
  return std::accumulate(before.begin(), before.end(), own,
                         [](int a, int b) { return (3 * a + b) % 1'000'003; });
}
task port_random_owners(graph::scope& s, std::uint64_t seed, int size) {
  auto node = s.tasks<&port_node>("node", graph::placement::by<&port_owner>(port_seed{seed}));
  numbers random(seed);
  integers order(static_cast<std::size_t>(size));
  std::iota(order.begin(), order.end(), 0);
  random.shuffle(order);
  integers expected(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    integers before;
    std::vector<graph::task<int>> reads;
    for (std::uint64_t n = i == 0 ? 0 : random.below(4); n > 0; --n) {
      const int other = order[random.below(i)];
      before.push_back(expected[static_cast<std::size_t>(other)]);
      reads.push_back(node(other));
    }
    expected[static_cast<std::size_t>(order[i])] = port_node(order[i], before);
    if (node(order[i]).here()) node(order[i]).spawn(order[i], reads);
  }
  for (int i = 0; i < size; ++i) {
    if (!node(i).here() && i % 7 != 0) continue;
    const int got = co_await node(i).get();
    CHECK(got == expected[static_cast<std::size_t>(i)]);
  }
}

// Port of TaskTorrent tests_completion: each task sets off one on another rank, nobody awaits any,
// and a fence ends when the last one has run.
int port_hops = 0;  // on this rank, in all windows: those of the next one may begin before it does
int port_hop_sum = 0;
int port_hop(graph::task_context& context, int chain, int left) {
  ++port_hops;
  port_hop_sum += left;
  if (left > 0) {
    auto hop = context.tasks<&port_hop>("hop", graph::block_cyclic(context.size(), 1));
    hop(left - 1 + chain, chain).spawn(chain, left - 1);
  }
  return left;
}
task port_completion(graph::scope& s, cohort::communicator world, int chains, int length) {
  auto hop = s.tasks<&port_hop>("hop", graph::block_cyclic(s.size(), 1));
  for (int round = 1; round <= 3; ++round) {
    for (int chain = 0; chain < chains; ++chain) {
      if (chain % s.size() == s.rank()) hop(length + chain, chain).spawn(chain, length);
    }
    const graph::report ended = co_await s.fence();
    CHECK(ended.failed == 0);
    integers ran{port_hops, port_hop_sum};
    co_await cohort::all_reduce(world, ran, cohort::op::sum);
    CHECK(ran ==
          integers{round * chains * (length + 1), round * chains * length * (length + 1) / 2});
  }
}

// Port of StarPU early_stuff and early_request: values, and requests for values, come to ranks that
// have not opened the scope yet.
task port_early(graph::scope& s, cohort::communicator world, int packets, const int* sent) {
  auto source = s.tasks<int>("source", graph::on(0));
  auto f = s.tasks<&port_twice>("f", graph::block_cyclic(s.size(), 1));
  if (source().here()) source().put(21);
  for (int rank = 0; rank < s.size(); ++rank) f(rank, 0).spawn(source());
  if (packets >= 0) {
    while (*sent < packets) {
      co_await asio::post(co_await asio::this_coro::executor, asio::use_awaitable);
    }
    co_await meet(world);
  }
  for (int rank = 0; rank < s.size(); ++rank) {
    const int got = co_await f(rank, 0).get();
    CHECK(got == 42);
  }
}

// Port of StarPU insert_task_count: a counter goes round the ranks, each adds its part.
int port_count(int own, int before) { return before + own; }
task port_counter(graph::scope& s, int rounds) {
  auto start = s.tasks<int>("start", graph::on(0));
  auto token = s.tasks<&port_count>("token", graph::block_cyclic(s.size(), 1));
  if (start().here()) start().put(12);
  token(0, 0).spawn(1, take(start()));
  for (int i = 1; i < rounds * s.size(); ++i) {
    token(i, 0).spawn(i % s.size() + 1, take(token(i - 1, 0)));
  }
  const int got = co_await token(rounds * s.size() - 1, 0).get();
  CHECK(got == 12 + rounds * s.size() * (s.size() + 1) / 2);
}

// Port of StarPU insert_task_dyn_handles, and of PaRSEC dtd_test_null_as_tile: as many inputs as
// the program finds, and none.
task port_some_inputs(graph::scope& s, int most) {
  auto leaf = s.tasks<&port_same>("leaf", graph::block_cyclic(s.size(), 1));
  auto total = s.tasks<&port_sum>("total", graph::block_cyclic(1, s.size()));
  for (int i = 0; i < most; ++i) leaf(i, 0).spawn(i + 1);
  for (int count = 0; count <= most; ++count) {
    std::vector<graph::task<int>> some;
    for (int i = 0; i < count; ++i) some.push_back(leaf(i, 0));
    total(0, count).spawn(some);
  }
  for (int count = 0; count <= most; ++count) {
    const int got = co_await total(0, count).get();
    CHECK(got == count * (count + 1) / 2);
  }
}

// Port of StarPU insert_task_owner, insert_task_node_choice and PaRSEC dtd_test_task_placement: a
// task runs where its placement says, wherever its inputs are.
int port_where(graph::task_context& context, int) { return context.rank(); }
task port_runs_where(graph::scope& s) {
  auto value = s.tasks<&port_same>("value", graph::block_cyclic(s.size(), 1));
  auto where = s.tasks<&port_where>("where", graph::block_cyclic(1, s.size()));
  for (int from = 0; from < s.size(); ++from) {
    value(from, 0).spawn(from);
    for (int to = 0; to < s.size(); ++to) where(from, to).spawn(value(from, 0));
  }
  for (int from = 0; from < s.size(); ++from) {
    for (int to = 0; to < s.size(); ++to) {
      const int got = co_await where(from, to).get();
      CHECK(got == to);
      CHECK(where(from, to).home() == to);
    }
  }
}

// Port of StarPU coop_wrong_order: each rank asks for the same large values in another order.
integers port_large(int number) { return integers(1000, number); }
task port_other_orders(graph::scope& s, int count) {
  auto large = s.tasks<&port_large>("large", graph::on(0));
  auto sum = s.tasks<&port_sum>("sum", graph::block_cyclic(s.size(), 1));
  integers order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  numbers(static_cast<std::uint64_t>(s.rank())).shuffle(order);
  for (const int i : order) {
    large(i).spawn(i);
    sum(s.rank(), i).spawn(large(i));
  }
  numbers(static_cast<std::uint64_t>(s.rank() + 100)).shuffle(order);
  for (const int i : order) {
    const integers got = co_await large(i).get();
    CHECK(got == integers(1000, i));
    const int added = co_await sum((s.rank() + 1) % s.size(), i).get();
    CHECK(added == 1000 * i);
  }
}

// Port of PaRSEC dtd_test_reduce, dtd_test_broadcast and dtd_test_allreduce: up a binary tree of
// ranks, and down again.
task port_all_reduce(graph::scope& s, int rounds) {
  const auto where = graph::block_cyclic(s.size(), 1);
  auto up = s.tasks<&port_sum>("up", where);
  auto down = s.tasks<&port_same>("down", where);
  auto own = s.tasks<int>("own", where);
  int expected = 0;
  for (int round = 0; round < rounds; ++round) {
    expected = 0;
    for (int rank = 0; rank < s.size(); ++rank) {
      const int mine = (rank + 1) * (round + 1);
      expected += mine;
      if (own(rank, round).here()) own(rank, round).put(mine);
      std::vector<graph::task<int>> parts{own(rank, round)};
      for (const int child : {2 * rank + 1, 2 * rank + 2}) {
        if (child < s.size()) parts.push_back(up(child, round));
      }
      up(rank, round).spawn(parts);
      if (rank == 0) {
        down(rank, round).spawn(up(0, round));
      } else {
        down(rank, round).spawn(down((rank - 1) / 2, round));
      }
    }
    const int got = co_await down(s.rank(), round).get();
    CHECK(got == expected);
  }
}

// Port of PaRSEC dtd_test_interleave_actions: tasks are spawned, awaited and fenced in turn, and a
// value goes from window to window.
task port_interleaved(graph::scope& s, int windows) {
  auto f = s.tasks<&port_twice>("f");
  auto kept = s.tasks<int>("kept", graph::on(0));
  int value = 1;
  for (int window = 0; window < windows; ++window) {
    if (kept().here()) kept().put(value);
    f(0).spawn(kept());
    const int once = co_await f(0).get();
    CHECK(once == 2 * value);
    f(1).spawn(f(0));
    f(2).spawn(f(1));
    const int thrice = co_await f(2).get();
    CHECK(thrice == 8 * value);
    value = thrice % 1009;
    const graph::report ended = co_await s.fence();
    CHECK(ended.failed == 0);
  }
}

// Port of PaRSEC dtd_test_empty: windows without a task end, and the one after them is as any.
task port_empty(graph::scope& s) {
  for (int window = 0; window < 3; ++window) {
    const graph::report ended = co_await s.fence();
    CHECK(ended.failed == 0);
  }
  auto f = s.tasks<&port_twice>("f", graph::on(s.size() - 1));
  f().spawn(4);
  const int got = co_await f().get();
  CHECK(got == 8);
}

// Port of PaRSEC dtd_test_simple_gemm: tiles of C are updated in place along k, on a grid.
integers port_multiply(int size, const integers& a, const integers& b, integers c) {
  for (int i = 0; i < size; ++i) {
    for (int j = 0; j < size; ++j) {
      for (int k = 0; k < size; ++k) {
        c[static_cast<std::size_t>(i * size + j)] +=
            a[static_cast<std::size_t>(i * size + k)] * b[static_cast<std::size_t>(k * size + j)];
      }
    }
  }
  return c;
}
task port_gemm(graph::scope& s, int tiles, int size) {
  const graph::block_cyclic grid(2, 2);
  auto A = s.tasks<integers>("A", grid);
  auto B = s.tasks<integers>("B", grid);
  auto C = s.tasks<&port_multiply>("C", grid);  // C(i, j, k): after k updates
  const auto element = [](int row, int column) { return (7 * row + 3 * column) % 11 - 5; };
  const auto tile = [&](int row, int column) {
    integers all;
    for (int i = 0; i < size; ++i) {
      for (int j = 0; j < size; ++j) all.push_back(element(row * size + i, column * size + j));
    }
    return all;
  };
  for (int i = 0; i < tiles; ++i) {
    for (int j = 0; j < tiles; ++j) {
      if (A(i, j).here()) A(i, j).put(tile(i, j));
      if (B(i, j).here()) B(i, j).put(tile(j, i));  // transposed by tiles
      if (C(i, j, 0).here()) C(i, j, 0).put(integers(static_cast<std::size_t>(size * size)));
      for (int k = 0; k < tiles; ++k)
        C(i, j, k + 1).spawn(size, A(i, k), B(k, j), take(C(i, j, k)));
    }
  }
  for (int i = 0; i < tiles; ++i) {
    for (int j = 0; j < tiles; ++j) {
      integers expected(static_cast<std::size_t>(size * size));
      for (int k = 0; k < tiles; ++k)
        expected = port_multiply(size, tile(i, k), tile(j, k), expected);
      const integers got = co_await C(i, j, tiles).get();
      CHECK(got == expected);
    }
  }
}

// Port of StarPU temporary, and of PaRSEC dtd_test_new_tile: values that are made on the way, of a
// size that nobody knows before, and are gone when they are used.
integers port_made(int count) {
  integers all(static_cast<std::size_t>(count));
  std::iota(all.begin(), all.end(), 1);
  return all;
}
integers port_joined(integers a, integers b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}
task port_temporaries(graph::scope& s, int count) {
  auto made = s.tasks<&port_made>("made", graph::block_cyclic(s.size(), 1));
  auto joined = s.tasks<&port_joined>("joined", graph::block_cyclic(1, s.size()));
  integers expected;
  for (int i = 0; i < count; ++i) {
    made(i, 0).spawn(i);
    expected = port_joined(std::move(expected), port_made(i));
  }
  joined(0, 1).spawn(take(made(0, 0)), take(made(1, 0)));
  for (int i = 2; i < count; ++i) joined(0, i).spawn(take(joined(0, i - 1)), take(made(i, 0)));
  const integers got = co_await joined(0, count - 1).get();
  CHECK(got == expected);
  const auto gone = co_await error_of(made(count / 2, 0).get());
  REQUIRE(gone);
  CHECK(gone->code() == errc::taken);
}

// Port of PaRSEC dtd_test_multiple_handle_wait: several graphs at once, one of which ends long
// before another that has begun earlier.
task port_handle(graph::scope& s, int length, int factor) {
  auto f = s.tasks<&port_count>("f", graph::block_cyclic(s.size(), 1));
  f(0, 0).spawn(factor, 0);
  for (int i = 1; i < length; ++i) f(i, 0).spawn(factor, f(i - 1, 0));
  const int got = co_await f(length - 1, 0).get();
  CHECK(got == factor * length);
}

void with_world(task (*program)(graph::scope&, cohort::communicator)) {
  cohort_test::on_world([&](cohort::communicator world) -> task {
    graph::tasks all(world);
    auto running = all.run("test", program, world);
    co_await std::move(running);
  });
}

}  // namespace

TEST_CASE("what Dagger's tests of MPI show of chunks and owners", "[graph][ports]") {
  with_world(&port_chunks);
  in_scope(&port_owner_counts);
  in_scope(&port_untyped_results);
}

TEST_CASE("what Dagger's tests of MPI show of ranks that differ, and of errors", "[graph][ports]") {
  const auto differs = error_of_scope({}, &port_rank_dependent);
  CHECK(differs.has_value() == (port_size() > 1));
  const auto fails = error_of_scope({}, &port_error_for_all);
  REQUIRE(fails);
  CHECK(fails->code() == errc::task_failed);
}

TEST_CASE("a stencil with borders that wrap or are padded is that of the whole array",
          "[graph][ports]") {
  for (const bool wraps : {true, false}) in_scope(&port_stencil, 5, 4, 10, wraps);
}

TEST_CASE("readers have a value as it was before it is written", "[graph][ports]") {
  in_scope(&port_write_after_read, 9);
}

TEST_CASE("random graphs with random owners, each spawned by its owner", "[graph][ports]") {
  for (const std::uint64_t seed : {1U, 2U, 3U}) in_scope(&port_random_owners, seed, 150);
}

TEST_CASE("a fence ends when tasks that set off one another have ended", "[graph][ports]") {
  cohort_test::on_world([&](cohort::communicator world) -> task {
    graph::tasks all(world);
    auto running = all.run("test", &port_completion, world, 5, 20);
    co_await std::move(running);
  });
}

TEST_CASE("values and requests come before the scope is open", "[graph][ports]") {
  for (const bool first_is_early : {true, false}) {
    cohort_test::on_world_of_mpi([&](cohort::communicator world) -> task {
      int sent = 0;
      on_isend = [&](std::span<const std::byte> what, int, MPI_Comm) {
        if (what.size() > 1) ++sent;  // communicators are made with messages of one byte
      };
      {
        graph::tasks all(world);
        const bool early = (world.rank() == 0) == first_is_early;
        if (!early) co_await meet(world);
        const int packets = !early ? -1 : world.rank() == 0 ? world.size() - 1 : 1;
        auto running = all.run("test", &port_early, world, packets, &sent);
        co_await std::move(running);
      }
      on_isend = nullptr;
    });
  }
}

TEST_CASE("what StarPU's tests of insert_task show", "[graph][ports]") {
  in_scope(&port_counter, 20);
  in_scope(&port_some_inputs, 10);
  in_scope(&port_runs_where);
}

TEST_CASE("ranks ask for the same values in different orders", "[graph][ports]") {
  in_scope(&port_other_orders, 20);
  in_scope(graph::tasks_options{.eager = 64}, &port_other_orders, 20);
}

TEST_CASE("what PaRSEC's tests of dynamic tasks show", "[graph][ports]") {
  in_scope(&port_all_reduce, 10);
  in_scope(&port_interleaved, 8);
  in_scope(&port_empty);
  in_scope(&port_gemm, 4, 3);
  cohort_test::on_world([&](cohort::communicator world) -> task {
    graph::tasks all(world);
    using namespace asio::experimental::awaitable_operators;
    auto three = all.run("long", &port_handle, 60, 2) && all.run("short", &port_handle, 1, 3) &&
                 all.run("middle", &port_handle, 15, 5);
    co_await std::move(three);
  });
}

TEST_CASE("values that are made on the way are gone when they are used", "[graph][ports]") {
  const auto why = error_of_scope({}, &port_temporaries, 12);
  CHECK_FALSE(why);
}
