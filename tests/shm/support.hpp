// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What the tests of shared memory share.

#include <cohort/collectives.hpp>
#include <cohort/progress/future.hpp>
#include <cohort/progress/when_all.hpp>
#include <cohort/shm.hpp>

#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <type_traits>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/run.hpp"
#include "support/world.hpp"

namespace shm_test {

namespace shm = cohort::shm;

/// A communicator of the same ranks that works through shared memory, with small buffers so that
/// collectives have many chunks.
inline asio::awaitable<cohort::communicator> sharing(cohort::communicator world,
                                                     shm::backend_options options = {}) {
  auto made = co_await world.dup();
  const shm::backend by = co_await shm::make_backend(world, options);
  REQUIRE(by.active());
  made.set_backend(by);
  co_return made;
}

/// Whether everything went through shared memory: the results are the same through MPI.
inline bool took_all(const cohort::communicator& shared) {
  const cohort::communicator_statistics done = shared.stats();
  return done.operations != 0 && done.by_backend.operations == done.operations;
}

inline constexpr shm::backend_options small{.chunk = 1024, .whole_up_to = 256};

/// Numbers that every rank can compute for all.
template <class T>
std::vector<T> numbers(std::uint64_t seed, int rank, std::size_t count) {
  std::mt19937_64 random(seed * 64 + static_cast<std::uint64_t>(rank));
  std::vector<T> list(count);
  for (T& each : list) each = static_cast<T>(static_cast<int>(random() % 7) - 3);
  return list;
}

/// Reduces rank by rank, from the left.
template <class T, class Operation>
std::vector<T> reduced(std::uint64_t seed, int ranks, std::size_t count, Operation operation) {
  std::vector<T> sum = numbers<T>(seed, 0, count);
  for (int rank = 1; rank < ranks; ++rank) {
    const std::vector<T> next = numbers<T>(seed, rank, count);
    for (std::size_t i = 0; i < count; ++i) sum[i] = operation(sum[i], next[i]);
  }
  return sum;
}

template <class T>
T product_of(T a, T b) {
  if constexpr (std::is_integral_v<T>) {  // wraps around
    return static_cast<T>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
  } else {
    return static_cast<T>(a * b);
  }
}

/// Many collectives under way, of kinds, sizes and roots at random, while ranks stop now and then.
inline asio::awaitable<void> out_of_step(cohort::communicator shared, int rounds,
                                         std::uint64_t seed_of_all) {
  const int ranks = shared.size();
  const int me = shared.rank();
  std::mt19937_64 same(seed_of_all);  // the ranks' common choices
  std::mt19937_64 own(static_cast<std::uint64_t>(me));
  for (int round = 0; round < rounds; ++round) {
    const std::size_t calls = 1 + same() % 12;
    std::vector<std::vector<int>> data(calls);
    std::vector<std::vector<int>> expected(calls);
    std::vector<cohort::future<void>> all;
    for (std::size_t i = 0; i < calls; ++i) {
      const std::size_t count = same() % 3 == 0 ? same() % 3000 : same() % 40;
      const std::uint64_t seed = same();
      const int root = static_cast<int>(same() % static_cast<std::uint64_t>(ranks));
      data[i] = numbers<int>(seed, me, count);
      switch (same() % 3) {
        case 0:
          expected[i] = reduced<int>(seed, ranks, count, [](int a, int b) { return a + b; });
          all.push_back(cohort::all_reduce(shared, data[i], cohort::op::sum, cohort::as_future));
          break;
        case 1:
          expected[i] = numbers<int>(seed, root, count);
          all.push_back(cohort::broadcast(shared, data[i], root, cohort::as_future));
          break;
        default:
          expected[i] = data[i];
          all.push_back(cohort::barrier(shared, cohort::as_future));
          break;
      }
      if (own() % 8 == 0) co_await cohort_test::pause(std::chrono::microseconds(own() % 300));
    }
    co_await cohort::when_all(std::move(all));
    CHECK(data == expected);
  }
}

/// Floats whose sum depends on the order, other ones on each rank.
inline std::vector<float> uneven_floats(int rank, std::size_t count) {
  std::mt19937 random(static_cast<unsigned>(rank) + 1);
  std::vector<float> list(count);
  for (float& each : list) each = std::ldexp(float(random() % 1000), int(random() % 40) - 20);
  return list;
}

}  // namespace shm_test
