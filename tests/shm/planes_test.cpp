// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// Every call goes through a plane chosen at random: MPI, shared memory with small and with large
// chunks, messages between nodes. Many are under way at once, and ranks come to them out of step.

#include <cohort/collectives.hpp>
#include <cohort/comm/operation.hpp>
#include <cohort/core/element.hpp>
#include <cohort/progress/future.hpp>
#include <cohort/progress/when_all.hpp>
#include <cohort/shm.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "shm/nodes.hpp"
#include "shm/support.hpp"
#include "support/catch.hpp"
#include "support/run.hpp"

namespace planes_test {

using namespace shm_test;
using cohort::communicator;
using job = asio::awaitable<void>;
namespace op = cohort::op;

/// What all ranks choose alike, and what this one does by itself.
struct chance {
  std::mt19937_64 same;
  std::mt19937_64 own;

  chance(std::uint64_t seed, int rank) : same(seed), own(seed * 64 + std::uint64_t(rank)) {}
  std::size_t below(std::size_t bound) { return same() % bound; }
  /// Nothing, one, what fits into a cache line, some chunks, more than all buffers hold.
  std::size_t count() {
    switch (below(8)) {
      case 0:
        return below(2);
      case 1:
      case 2:
      case 3:
        return below(12);
      case 4:
        return 4000 + below(9000);
      default:
        return below(900);
    }
  }
};

/// A call under way, and what must come of it.
template <class T>
struct call {
  std::vector<T> in, out, expected;
};

template <class T>
std::vector<T> block(const std::vector<T>& of, std::size_t which, std::size_t count) {
  const auto begin = of.begin() + std::ptrdiff_t(which * count);
  return {begin, begin + std::ptrdiff_t(count)};
}

/// An all_reduce, reduce or reduce_scatter of sum, minimum or maximum.
template <class T, class Op, class Serial>
cohort::future<void> start_reduction(const communicator& by, chance& chosen, call<T>& one, Op op,
                                     Serial serial) {
  const int n = by.size();
  const std::size_t count = chosen.count();
  const std::uint64_t seed = chosen.same();
  const auto root = int(chosen.below(std::size_t(n)));
  const std::size_t kind = chosen.below(3);
  const std::size_t whole = kind == 2 ? count * std::size_t(n) : count;
  one.in = numbers<T>(seed, by.rank(), whole);
  one.expected = reduced<T>(seed, n, whole, serial);
  one.out.assign(count, T());
  if (kind == 0) return cohort::all_reduce(by, one.in, one.out, op, cohort::as_future);
  if (kind == 2) {
    one.expected = block(one.expected, std::size_t(by.rank()), count);
    return cohort::reduce_scatter(by, one.in, one.out, op, cohort::as_future);
  }
  if (by.rank() != root) one.expected = one.out;
  return cohort::reduce(by, one.in, one.out, op, root, cohort::as_future);
}

/// A broadcast, all_gather, all_to_all or barrier.
template <class T>
cohort::future<void> start_movement(const communicator& by, chance& chosen, call<T>& one) {
  const auto n = std::size_t(by.size());
  const auto me = std::size_t(by.rank());
  const std::size_t count = chosen.count();
  const std::uint64_t seed = chosen.same();
  const auto root = int(chosen.below(n));
  const auto append = [&](std::vector<T> some) {
    one.expected.insert(one.expected.end(), some.begin(), some.end());
  };
  switch (chosen.below(4)) {
    case 0:
      one.out = numbers<T>(seed, int(me), count);
      one.expected = numbers<T>(seed, root, count);
      return cohort::broadcast(by, one.out, root, cohort::as_future);
    case 1:
      one.in = numbers<T>(seed, int(me), count);
      one.out.assign(n * count, T());
      for (std::size_t rank = 0; rank < n; ++rank) append(numbers<T>(seed, int(rank), count));
      return cohort::all_gather(by, one.in, one.out, cohort::as_future);
    case 2:
      one.in = numbers<T>(seed, int(me), n * count);
      one.out.assign(n * count, T());
      for (std::size_t rank = 0; rank < n; ++rank)
        append(block(numbers<T>(seed, int(rank), n * count), me, count));
      return cohort::all_to_all(by, one.in, one.out, cohort::as_future);
    default:
      return cohort::barrier(by, cohort::as_future);
  }
}

template <class T>
job round_of(const std::vector<communicator>& planes, chance& chosen) {
  std::vector<call<T>> calls(1 + chosen.below(10));
  std::vector<cohort::future<void>> all;
  for (call<T>& one : calls) {
    const communicator& by = planes[chosen.below(planes.size())];
    switch (chosen.below(6)) {
      case 0:
        all.push_back(start_reduction(by, chosen, one, op::min, least_of<T>));
        break;
      case 1:
        all.push_back(start_reduction(by, chosen, one, op::max, greatest_of<T>));
        break;
      case 2:
        all.push_back(start_reduction(by, chosen, one, op::sum, sum_of<T>));
        break;
      default:
        all.push_back(start_movement(by, chosen, one));
        break;
    }
    if (chosen.own() % 6 == 0)
      co_await cohort_test::pause(std::chrono::microseconds(chosen.own() % 200));
  }
  co_await cohort::when_all(std::move(all));
  for (const call<T>& one : calls) CHECK(same(one.out, one.expected));
}

}  // namespace planes_test

TEST_CASE("each call through a plane chosen at random", "[shm][hierarchical]") {
  using namespace planes_test;
  on_nodes([](communicator world, int layout) -> job {
    // Of the same ranks, which are on one node in truth.
    const asio::any_io_executor here = co_await asio::this_coro::executor;
    auto& io = static_cast<asio::io_context&>(asio::query(here, asio::execution::context));
    communicator together(io, {.backend = cohort::backend_choice::mpi});
    std::vector<communicator> planes{world};
    const std::vector<communicator> over{together, world};
    for (const communicator& one : over) {
      communicator in_small_chunks = co_await sharing(one, small);
      planes.push_back(std::move(in_small_chunks));
      communicator as_shipped = co_await sharing(one);
      planes.push_back(std::move(as_shipped));
    }
    chance chosen(std::uint64_t(layout) + 1, world.rank());
    for (int round = 0; round < 5; ++round) {
      co_await round_of<std::int32_t>(planes, chosen);
      co_await round_of<double>(planes, chosen);
      co_await round_of<cohort::bf16>(planes, chosen);
    }
    if (world.size() == 1) co_return;
    CHECK(world.stats().by_backend.operations == 0);
    for (std::size_t i = 1; i < planes.size(); ++i) CHECK(planes[i].stats().by_backend.operations);
    CHECK(planes[1].stats().backend == "shm");
    CHECK(went_between(planes[3], layout));
    CHECK(went_between(planes[4], layout));
  });
}
