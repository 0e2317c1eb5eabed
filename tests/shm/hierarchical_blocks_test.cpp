// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// Collectives over several nodes in which each rank has a block of its own.

#include <cohort/collectives.hpp>
#include <cohort/core/element.hpp>
#include <cohort/core/log.hpp>
#include <cohort/p2p/recv.hpp>
#include <cohort/p2p/send.hpp>
#include <cohort/progress/future.hpp>
#include <cohort/progress/when_all.hpp>
#include <cohort/shm.hpp>
#include <cohort/shm/between/nodes.hpp>
#include <cohort/shm/plane/sequence.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <set>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include "shm/nodes.hpp"
#include "shm/support.hpp"
#include "support/catch.hpp"
#include "support/run.hpp"

namespace hierarchical_blocks_test {

using namespace shm_test;
using cohort::communicator;
using job = asio::awaitable<void>;
namespace op = cohort::op;

/// Block `which` of a list of blocks.
template <class T>
std::vector<T> block_of(const std::vector<T>& list, int which, std::size_t count) {
  const auto begin = list.begin() + std::ptrdiff_t(std::size_t(which) * count);
  return {begin, begin + std::ptrdiff_t(count)};
}

/// What each rank has for all, and what comes of it on this one.
template <class T>
struct exchanged {
  std::vector<T> mine, gathered, swapped;

  exchanged(std::uint64_t seed, int rank, int ranks, std::size_t count) {
    mine = numbers<T>(seed, rank, std::size_t(ranks) * count);
    for (int source = 0; source < ranks; ++source) {
      const std::vector<T> theirs = numbers<T>(seed, source, std::size_t(ranks) * count);
      const auto append = [&](std::vector<T>& to, int which) {
        const std::vector<T> some = block_of(theirs, which, count);
        to.insert(to.end(), some.begin(), some.end());
      };
      append(gathered, 0);
      append(swapped, rank);
    }
  }
};

template <class T>
job moves(communicator shared, std::size_t count) {
  const int n = shared.size();
  const exchanged<T> what(5 * count + sizeof(T), shared.rank(), n, count);
  const std::vector<T> own = block_of(what.mine, 0, count);
  std::vector<T> out(what.mine.size());
  co_await cohort::all_gather(shared, own, out);
  CHECK(same(out, what.gathered));
  out.assign(out.size(), T());
  std::copy(own.begin(), own.end(),
            out.begin() + std::ptrdiff_t(std::size_t(shared.rank()) * count));
  co_await cohort::all_gather(shared, out);
  CHECK(same(out, what.gathered));
  out.assign(out.size(), T());
  co_await cohort::all_to_all(shared, what.mine, out);
  CHECK(same(out, what.swapped));
  out = what.mine;
  co_await cohort::all_to_all(shared, out);
  CHECK(same(out, what.swapped));
}

/// What this rank gets of a reduction, and what goes into it.
template <class T>
struct scattered_sum {
  std::size_t count;
  std::uint64_t seed = 7 * count + sizeof(T);
  int ranks, me;
  std::vector<T> mine = numbers<T>(seed, me, count* std::size_t(ranks));

  template <class Operation>
  std::vector<T> by(Operation operation) const {
    return block_of(reduced<T>(seed, ranks, mine.size(), operation), me, count);
  }
};

template <class T>
job sum(communicator shared, std::size_t count) {
  const scattered_sum<T> what{.count = count, .ranks = shared.size(), .me = shared.rank()};
  const std::vector<T> expected = what.by(sum_of<T>);
  std::vector<T> out(count);
  co_await cohort::reduce_scatter(shared, what.mine, out, op::sum);
  CHECK(same(out, expected));
  out = what.mine;
  co_await cohort::reduce_scatter(shared, out, op::sum);
  out.resize(count);
  CHECK(same(out, expected));
}

template <class T>
job sums(communicator shared, std::size_t count) {
  co_await sum<T>(shared, count);
  const scattered_sum<T> what{.count = count, .ranks = shared.size(), .me = shared.rank()};
  std::vector<T> out(count);
  co_await cohort::reduce_scatter(shared, what.mine, out, op::product);
  CHECK(same(out, what.by(product_of<T>)));
  co_await cohort::reduce_scatter(shared, what.mine, out, op::min);
  CHECK(same(out, what.by(least_of<T>)));
  co_await cohort::reduce_scatter(shared, what.mine, out, op::max);
  CHECK(same(out, what.by(greatest_of<T>)));
}

/// Many of them under way, of kinds and sizes at random, while ranks stop now and then.
job blocks_out_of_step(communicator shared, int rounds, std::uint64_t seed_of_all) {
  const int n = shared.size();
  const int me = shared.rank();
  std::mt19937_64 chosen(seed_of_all);
  std::mt19937_64 own(static_cast<std::uint64_t>(me));
  for (int round = 0; round < rounds; ++round) {
    const std::size_t calls = 1 + chosen() % 12;
    std::vector<std::vector<int>> in(calls), out(calls), expected(calls);
    std::vector<cohort::future<void>> all;
    for (std::size_t i = 0; i < calls; ++i) {
      const std::size_t count = chosen() % 3 == 0 ? chosen() % 1000 : chosen() % 20;
      const std::uint64_t seed = chosen();
      exchanged<int> what(seed, me, n, count);
      in[i] = what.mine;
      switch (chosen() % 4) {
        case 0:
          expected[i] = block_of(reduced<int>(seed, n, in[i].size(), sum_of<int>), me, count);
          out[i].resize(count);
          all.push_back(cohort::reduce_scatter(shared, in[i], out[i], op::sum, cohort::as_future));
          break;
        case 1:
          in[i].resize(count);
          expected[i] = what.gathered;
          out[i].resize(what.gathered.size());
          all.push_back(cohort::all_gather(shared, in[i], out[i], cohort::as_future));
          break;
        case 2:
          expected[i] = what.swapped;
          out[i].resize(what.swapped.size());
          all.push_back(cohort::all_to_all(shared, in[i], out[i], cohort::as_future));
          break;
        default:
          expected[i] = reduced<int>(seed, n, in[i].size(), sum_of<int>);
          out[i] = in[i];
          all.push_back(cohort::all_reduce(shared, out[i], op::sum, cohort::as_future));
          break;
      }
      if (own() % 8 == 0) co_await cohort_test::pause(std::chrono::microseconds(own() % 300));
    }
    co_await cohort::when_all(std::move(all));
    CHECK(out == expected);
  }
}

/// How what is awaited ends.
template <class Future>
asio::awaitable<std::error_code> end_of(Future work) {
  std::error_code end;
  try {
    co_await std::move(work);
  } catch (const std::system_error& why) {
    end = why.code();
  }
  co_return end;
}

}  // namespace hierarchical_blocks_test

TEST_CASE("a block of each rank goes over nodes, as computed serially", "[shm][hierarchical]") {
  using namespace hierarchical_blocks_test;
  on_nodes([](communicator world, int layout) -> job {
    const communicator shared = co_await sharing(world, small);
    // Nothing, one, odd, below a cache line, more than all buffers hold.
    for (const std::size_t count : {0, 1, 3, 37, 333, 1501}) {
      co_await moves<float>(shared, count);
      co_await moves<std::uint8_t>(shared, count);
      co_await sums<float>(shared, count);
      co_await sums<cohort::bf16>(shared, count);
    }
    for (const std::size_t count : {3, 301}) {
      co_await sums<double>(shared, count);
      co_await sums<std::int8_t>(shared, count);
      co_await sums<std::uint8_t>(shared, count);
      co_await sums<std::int16_t>(shared, count);
      co_await sums<std::uint16_t>(shared, count);
      co_await sums<std::int32_t>(shared, count);
      co_await sums<std::uint32_t>(shared, count);
      co_await sums<std::int64_t>(shared, count);
      co_await sums<std::uint64_t>(shared, count);
      co_await sums<cohort::f16>(shared, count);
    }
    if (world.size() > 1) CHECK(went_between(shared, layout));
  });
}

TEST_CASE("blocks of many pieces go over nodes", "[shm][hierarchical]") {
  using namespace hierarchical_blocks_test;
  on_nodes([](communicator world, int layout) -> job {
    // Several chunks of few pieces, and one of many.
    for (const auto& [chunk, count] : {std::pair<std::size_t, std::size_t>(32U << 10U, 20'001),
                                       std::pair<std::size_t, std::size_t>(1U << 20U, 60'001)}) {
      const communicator shared = co_await sharing(world, {.chunk = chunk});
      co_await moves<float>(shared, count);
      co_await sum<float>(shared, count);
      if (world.size() > 1) CHECK(went_between(shared, layout));
    }
  });
}

TEST_CASE("many calls of blocks between nodes under way, ranks out of step",
          "[shm][hierarchical]") {
  using namespace hierarchical_blocks_test;
  on_nodes([](communicator world, int layout) -> job {
    const communicator shared = co_await sharing(world, small);
    co_await blocks_out_of_step(shared, 15, static_cast<std::uint64_t>(layout) + 23);
    if (world.size() > 1) CHECK(went_between(shared, layout));
  });
}

TEST_CASE("sums of blocks over nodes are the same in every run", "[shm][hierarchical]") {
  using namespace hierarchical_blocks_test;
  on_nodes([](communicator world, int) -> job {
    const communicator shared = co_await sharing(world);
    for (const std::size_t count : {10, 5000, 100'000}) {
      const std::vector<float> mine =
          uneven_floats(world.rank(), count * std::size_t(world.size()));
      std::vector<float> first(count);
      co_await cohort::reduce_scatter(shared, mine, first, op::sum);
      for (int run = 0; run < 4; ++run) {
        std::vector<float> again(count);
        if ((run + world.rank()) % 3 == 0) {
          co_await cohort_test::pause(std::chrono::microseconds(300));
        }
        co_await cohort::reduce_scatter(shared, mine, again, op::sum);
        CHECK(again == first);
      }
    }
  });
}

TEST_CASE("nodes that tell of blocks of different sizes end with an error", "[shm][hierarchical]") {
  using namespace hierarchical_blocks_test;
  on_nodes([](communicator world, int layout) -> job {
    if (layout != 0 || world.size() != 2) co_return;
    const cohort::log::capture logged;
    const communicator shared = co_await sharing(world, small);
    const std::size_t count = world.rank() == 0 ? 10 : 20;
    const std::vector<float> in(count);
    std::vector<float> out(2 * count);
    const std::error_code why =
        co_await end_of(cohort::all_gather(shared, in, out, cohort::as_future));
    CHECK(why == cohort::errc::cross_rank_mismatch);
    CHECK(logged.contains("no collective goes through it any more"));
  });
}

TEST_CASE("ranks of one node that begin different calls of blocks are told",
          "[shm][hierarchical]") {
  using namespace hierarchical_blocks_test;
  on_nodes([](communicator world, int layout) -> job {
    if (layout != 3 || world.size() < 3) co_return;  // rank 0 alone, the others on one node
    const cohort::log::capture logged;
    const communicator shared = co_await sharing(world, small);
    const std::vector<float> in(std::size_t(world.size()) * 10);
    std::vector<float> out(in.size());
    std::error_code why;
    if (world.rank() == 2) {
      why = co_await end_of(cohort::all_to_all(shared, in, out, cohort::as_future));
    } else if (world.rank() != 0) {
      const std::vector<float> own(10);
      why = co_await end_of(cohort::all_gather(shared, own, out, cohort::as_future));
    } else {
      co_return;  // it would wait for ever, as with MPI
    }
    CHECK(why == cohort::errc::cross_rank_mismatch);
    CHECK(logged.contains("verb="));
  });
}

TEST_CASE("a call of blocks that is given up goes on for the others", "[shm][hierarchical]") {
  using namespace hierarchical_blocks_test;
  on_nodes([](communicator world, int) -> job {
    if (world.size() == 1) co_return;
    const communicator shared = co_await sharing(world, small);
    const auto n = static_cast<std::size_t>(world.size());
    constexpr std::size_t count = 300;
    std::vector<int> token(1);
    if (world.rank() == 0) {
      auto gather = cohort::all_gather(shared, std::vector<int>(count, 5),
                                       std::vector<int>(n * count), cohort::as_future);
      auto swap = cohort::all_to_all(shared, std::vector<int>(n * count, 5),
                                     std::vector<int>(n * count), cohort::as_future);
      auto sum = cohort::reduce_scatter(shared, std::vector<int>(n * count, 5),
                                        std::vector<int>(count), op::sum, cohort::as_future);
      gather.cancel();
      swap.cancel();
      sum.cancel();
      std::vector<std::error_code> ends(3);
      ends[0] = co_await end_of(std::move(gather));
      ends[1] = co_await end_of(std::move(swap));
      ends[2] = co_await end_of(std::move(sum));
      CHECK(ends == std::vector<std::error_code>(3, asio::error::operation_aborted));
      // The others begin only now.
      for (int rank = 1; rank < world.size(); ++rank) co_await cohort::send(world, token, rank, 1);
    } else {
      co_await cohort::recv(world, token, 0, 1);
      const int me = world.rank();
      exchanged<int> what(1, me, world.size(), count);
      std::vector<int> out(n * count, 9);
      co_await cohort::all_gather(shared, block_of(what.mine, 0, count), out);
      CHECK(std::equal(out.begin() + count, out.end(), what.gathered.begin() + count));
      co_await cohort::all_to_all(shared, what.mine, out);
      CHECK(std::equal(out.begin() + count, out.end(), what.swapped.begin() + count));
      std::vector<int> sum(count);
      co_await cohort::reduce_scatter(shared, what.mine, sum, op::sum);
    }
    std::vector<double> x(10, 1.0);
    co_await cohort::all_reduce(shared, x, op::sum);
    CHECK(x == std::vector<double>(10, world.size()));
    CHECK(took_all(shared));
  });
}

TEST_CASE("slots of a node map are of one rail and of one node each", "[shm][hierarchical]") {
  using cohort::op_kind;
  using cohort::shm::detail::node_map;
  std::mt19937 random(1);
  for (int i = 0; i < 60; ++i) {
    const int ranks = 1 + static_cast<int>(random() % 14);
    const std::uint64_t nodes = 1 + random() % 5;
    std::vector<std::uint64_t> on(static_cast<std::size_t>(ranks));
    for (auto& each : on) each = random() % nodes;
    std::vector<node_map> maps;
    for (int rank = 0; rank < ranks; ++rank) maps.emplace_back(rank, on);
    std::set<std::size_t> all;
    for (std::size_t rank = 0; rank < on.size(); ++rank) {
      const node_map& map = maps[rank];
      const std::size_t slot = map.slot_of(rank);
      const std::size_t rail = map.rail_of(rank);
      all.insert(slot);
      CHECK((map.rank_at(slot) == rank && slot >= map.first_slot(rail, map.node()) &&
             slot < map.first_slot(rail, map.node() + 1)));
      CHECK(map.room(op_kind::all_to_all) == maps[0].room(op_kind::all_to_all));
      CHECK(map.room(op_kind::all_gather) == maps[0].room(op_kind::all_gather));
      // A part fits into a rail's spare memory.
      for (std::size_t of = 0; of < map.rails() && map.nodes() > 1; ++of) {
        for (std::size_t node = 0; node < map.nodes(); ++node) {
          CHECK(map.slots(of, node) * map.rails() <= map.ranks());
        }
      }
    }
    CHECK(all.size() == on.size());
    // No two pairs lie in one place of a buffer: what goes out from here, what comes to here.
    std::vector<std::set<std::pair<std::size_t, std::size_t>>> used(maps[0].nodes());
    for (std::size_t source = 0; source < on.size(); ++source) {
      for (std::size_t target = 0; target < on.size(); ++target) {
        for (const std::size_t at : {source, target}) {
          const node_map& map = maps[at];
          const std::size_t where = map.pair_at(source, target);
          CHECK(where < map.room(op_kind::all_to_all));
          CHECK(used[map.node()].insert({map.rail_of(target), where}).second);
          if (map.node_of(source) == map.node_of(target)) break;
        }
      }
    }
  }
}

TEST_CASE("all ranks of unequal nodes come to the same choice", "[shm][hierarchical]") {
  using cohort::op_kind;
  namespace inner = cohort::shm::detail;
  std::mt19937 random(2);
  for (int i = 0; i < 50; ++i) {
    const int ranks = 2 + static_cast<int>(random() % 8);
    const std::uint64_t nodes = 2 + random() % 6;
    std::vector<std::uint64_t> on(static_cast<std::size_t>(ranks));
    for (auto& each : on) each = random() % nodes;
    const std::size_t chunk = 1024;
    std::vector<std::vector<bool>> taken;
    for (int rank = 0; rank < ranks; ++rank) {
      auto map = std::make_shared<inner::node_map>(rank, on);
      if (map->nodes() == 1) break;
      std::vector<std::byte> memory(inner::sequence::bytes(map->size_here(), chunk) + 64);
      const std::size_t skipped =
          (64 - reinterpret_cast<std::uintptr_t>(memory.data()) % 64) % 64;  // whole lines
      const inner::sequence one(
          std::span<std::byte>(memory).subspan(skipped, memory.size() - 64), map->place(),
          map->size_here(), chunk, 256, true,
          std::make_unique<inner::node_messages>(map, MPI_COMM_NULL, 0, inner::depth, chunk));
      std::vector<bool>& by = taken.emplace_back();
      for (int kind = 0; kind <= static_cast<int>(op_kind::barrier); ++kind) {
        for (const std::size_t count : {1, 100, 20'000, 40'000, 200'000, 1'000'000}) {
          const MPI_Op operation =
              cohort::is_reduction(static_cast<op_kind>(kind)) ? MPI_SUM : MPI_OP_NULL;
          by.push_back(one.takes(
              {static_cast<op_kind>(kind), nullptr, nullptr, count, MPI_FLOAT, operation, 0}));
        }
      }
      CHECK(by == taken.front());
    }
  }
}
