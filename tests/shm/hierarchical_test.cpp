// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// Collectives over several nodes: through shared memory on each, in messages between them. Ranks of
// this machine say which node they are on.

#include <cohort/collectives.hpp>
#include <cohort/core/element.hpp>
#include <cohort/core/log.hpp>
#include <cohort/mpi/comm.hpp>
#include <cohort/p2p/recv.hpp>
#include <cohort/p2p/send.hpp>
#include <cohort/progress/deadline.hpp>
#include <cohort/progress/future.hpp>
#include <cohort/progress/when_all.hpp>
#include <cohort/shm.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "shm/nodes.hpp"
#include "shm/support.hpp"
#include "support/catch.hpp"
#include "support/run.hpp"
#include "support/world.hpp"

namespace hierarchical_test {

using namespace shm_test;
using cohort::communicator;
using job = asio::awaitable<void>;
namespace op = cohort::op;
namespace shm = cohort::shm;

template <class T>
job all_kinds(communicator shared, std::size_t count) {
  const int n = shared.size();
  const std::uint64_t seed = 3 * count + sizeof(T);
  const std::vector<T> mine = numbers<T>(seed, shared.rank(), count);
  std::vector<T> out(count);
  co_await cohort::all_reduce(shared, mine, out, op::sum);
  CHECK(same(out, reduced<T>(seed, n, count, sum_of<T>)));
  out = mine;
  co_await cohort::all_reduce(shared, out, op::product);
  CHECK(same(out, reduced<T>(seed, n, count, product_of<T>)));
  co_await cohort::all_reduce(shared, mine, out, op::min);
  CHECK(same(out, reduced<T>(seed, n, count, least_of<T>)));
  out = mine;
  co_await cohort::all_reduce(shared, out, op::max);
  CHECK(same(out, reduced<T>(seed, n, count, greatest_of<T>)));
  for (int root = 0; root < n; ++root) {
    out.assign(count, T());
    co_await cohort::reduce(shared, mine, out, op::sum, root);
    if (shared.rank() == root) CHECK(same(out, reduced<T>(seed, n, count, sum_of<T>)));
    out = mine;
    co_await cohort::reduce(shared, out, op::max, root);
    const bool is_root = shared.rank() == root;
    CHECK(same(out, is_root ? reduced<T>(seed, n, count, greatest_of<T>) : mine));
    out = mine;
    co_await cohort::broadcast(shared, out, root);
    CHECK(same(out, numbers<T>(seed, root, count)));
  }
  co_await cohort::barrier(shared);
}

}  // namespace hierarchical_test

TEST_CASE("every kind and type over nodes, as computed serially", "[shm][hierarchical]") {
  using namespace hierarchical_test;
  on_nodes([](communicator world, int layout) -> job {
    {
      const communicator shared = co_await sharing(world, small);
      // Nothing, one, odd, a share below a cache line, a share each, more than all buffers hold.
      for (const std::size_t count : {0, 1, 3, 37, 333, 5001}) {
        co_await all_kinds<float>(shared, count);
        co_await all_kinds<cohort::bf16>(shared, count);
      }
      for (const std::size_t count : {37, 1001}) {
        if (layout != 0 && layout != 3) break;
        co_await all_kinds<double>(shared, count);
        co_await all_kinds<std::int8_t>(shared, count);
        co_await all_kinds<std::uint8_t>(shared, count);
        co_await all_kinds<std::int16_t>(shared, count);
        co_await all_kinds<std::uint16_t>(shared, count);
        co_await all_kinds<std::int32_t>(shared, count);
        co_await all_kinds<std::uint32_t>(shared, count);
        co_await all_kinds<std::int64_t>(shared, count);
        co_await all_kinds<std::uint64_t>(shared, count);
        co_await all_kinds<cohort::f16>(shared, count);
      }
      if (world.size() > 1) CHECK(went_between(shared, layout));
    }
  });
}

TEST_CASE("large vectors go by halving and in a ring", "[shm][hierarchical]") {
  using namespace hierarchical_test;
  on_nodes([](communicator world, int layout) -> job {
    for (const std::size_t chunk : {std::size_t{32} << 10U, std::size_t{1} << 20U}) {
      const communicator shared = co_await sharing(world, {.chunk = chunk});
      for (const std::size_t count : {20'001, 300'001}) co_await all_kinds<float>(shared, count);
      if (world.size() > 1) CHECK(went_between(shared, layout));
    }
  });
}

TEST_CASE("many collectives between nodes under way, ranks out of step", "[shm][hierarchical]") {
  using namespace hierarchical_test;
  on_nodes([](communicator world, int layout) -> job {
    const communicator shared = co_await sharing(world, small);
    co_await out_of_step(shared, 15, static_cast<std::uint64_t>(layout) + 11);
    if (world.size() > 1) CHECK(went_between(shared, layout));
  });
}

TEST_CASE("sums over nodes are the same in every run, and on all ranks", "[shm][hierarchical]") {
  using namespace hierarchical_test;
  on_nodes([](communicator world, int) -> job {
    {
      const communicator shared = co_await sharing(world);
      for (const std::size_t count : {10, 5000, 30'000, 300'000}) {
        const std::vector<float> mine = uneven_floats(world.rank(), count);
        std::vector<float> first(count);
        co_await cohort::all_reduce(shared, mine, first, op::sum);
        for (int run = 0; run < 4; ++run) {
          std::vector<float> again(count);
          if ((run + world.rank()) % 3 == 0) {
            co_await cohort_test::pause(std::chrono::microseconds(300));
          }
          co_await cohort::all_reduce(shared, mine, again, op::sum);
          CHECK(again == first);
        }
        std::vector<float> lowest(count);
        std::vector<float> highest(count);
        co_await cohort::all_reduce(world, first, lowest, op::min);
        co_await cohort::all_reduce(world, first, highest, op::max);
        CHECK(lowest == highest);
      }
    }
  });
}

TEST_CASE("not a number and infinity go between nodes as through MPI", "[shm][hierarchical]") {
  using namespace hierarchical_test;
  on_nodes([](communicator world, int layout) -> job {
    if (layout != 0) co_return;
    const communicator shared = co_await sharing(world, small);
    constexpr double infinity = std::numeric_limits<double>::infinity();
    std::vector<double> x{1, infinity, infinity, std::nan("")};
    if (world.rank() != 0) x = {infinity, infinity, -infinity, 1};
    co_await cohort::all_reduce(shared, x, op::sum);
    if (world.size() == 1) co_return;
    CHECK(x[0] == infinity);
    CHECK(x[1] == infinity);
    CHECK(std::isnan(x[2]));
    CHECK(std::isnan(x[3]));
  });
}

TEST_CASE("what is not done between nodes is MPI's", "[shm][hierarchical]") {
  using namespace hierarchical_test;
  on_nodes([](communicator world, int layout) -> job {
    if (layout != 0) co_return;
    const communicator shared = co_await sharing(world, small);
    std::vector<int> bits{1 << world.rank()};
    co_await cohort::all_reduce(shared, bits, op::bit_or);
    CHECK(bits[0] == (1 << world.size()) - 1);
    CHECK(shared.stats().by_backend.operations == (world.size() == 1 ? 1U : 0U));
  });
}

TEST_CASE("who asks for it has it from the first collective on", "[shm][hierarchical]") {
  using namespace hierarchical_test;
  const auto body = [](communicator world, int layout) -> job {
    co_await all_kinds<float>(world, 1001);
    if (world.size() > 1 && !world.stats().backend.empty()) CHECK(went_between(world, layout));
    if (world.size() > 1 && layout != 1) CHECK(world.stats().backend == "hierarchical");
  };
  on_nodes(body, cohort::backend_choice::hierarchical);
}

TEST_CASE("over several nodes a communicator's own verbs are MPI's unless asked for",
          "[shm][hierarchical]") {
  using namespace hierarchical_test;
  const auto body = [](communicator world, int layout) -> job {
    for (int i = 0; i < 10; ++i) co_await all_kinds<int>(world, 10);
    if (layout == 0) CHECK(world.stats().backend.empty());
  };
  on_nodes(body, cohort::backend_choice::automatic);
  on_nodes(body, cohort::backend_choice::shm);
}

TEST_CASE("nodes that tell of different verbs end with an error, not by waiting",
          "[shm][hierarchical]") {
  using namespace hierarchical_test;
  on_nodes([](communicator world, int layout) -> job {
    if (layout != 0 || world.size() != 2) co_return;
    const cohort::log::capture logged;
    const communicator shared = co_await sharing(world, small);
    std::vector<float> x(world.rank() == 0 ? 10 : 20);
    const auto [why] = co_await cohort::all_reduce(shared, x, op::sum, cohort::as_tuple);
    CHECK(why);
    CHECK(logged.contains("no collective goes through it any more"));
  });
}

TEST_CASE("a large vector that is sent from where it is, of another length on another node",
          "[shm][hierarchical]") {
  using namespace hierarchical_test;
  on_nodes([](communicator world, int layout) -> job {
    if (layout != 0 || world.size() != 2) co_return;
    const cohort::log::capture logged;
    const communicator shared = co_await sharing(world, small);
    std::vector<float> x(world.rank() == 0 ? 100'000 : 60'001);
    std::vector<float> y(x.size());
    const auto [why] = co_await cohort::all_reduce(shared, x, y, op::sum, cohort::as_tuple);
    CHECK(why);
    CHECK(logged.contains("no collective goes through it any more"));
    const auto [again] = co_await cohort::all_reduce(shared, x, op::sum, cohort::as_tuple);
    CHECK(again);
  });
}

TEST_CASE("what goes from the caller's memory goes on after its handler has left",
          "[shm][hierarchical]") {
  using namespace hierarchical_test;
  on_nodes([](communicator world, int layout) -> job {
    if (world.size() == 1) co_return;
    const communicator shared = co_await sharing(world);
    constexpr std::size_t count = 300'000;
    std::vector<int> token(1);
    if (world.rank() == 0) {
      auto sum =
          cohort::all_reduce(shared, std::vector<double>(count, 1.0), op::sum, cohort::as_future);
      for (int i = 0; i < 100; ++i) cohort::poll(world);
      sum.cancel();
      std::error_code why;
      try {
        co_await std::move(sum);
      } catch (const std::system_error& problem) {
        why = problem.code();
      }
      CHECK(why == asio::error::operation_aborted);
      // The others begin only now.
      for (int rank = 1; rank < world.size(); ++rank) co_await cohort::send(world, token, rank, 1);
    } else {
      co_await cohort::recv(world, token, 0, 1);
      const auto sum =
          co_await cohort::all_reduce(shared, std::vector<double>(count, 1.0), op::sum);
      CHECK(sum == std::vector<double>(count, world.size()));
    }
    std::vector<double> x(count, 1.0);
    co_await cohort::all_reduce(shared, x, op::sum);
    CHECK(x == std::vector<double>(count, world.size()));
    CHECK(went_between(shared, layout));
  });
}

TEST_CASE("a context that ends while messages between nodes are under way", "[shm][hierarchical]") {
  using namespace hierarchical_test;
  const auto all = cohort::mpi::comm_ref::world();
  cohort::communicator_options options;
  options.node = all.rank();
  options.backend = cohort::backend_choice::hierarchical;
  std::vector<float> x(2000, 1.0F);  // not so long that MPI has it
  asio::io_context io;
  cohort::use_engine(io, {.drain = std::chrono::milliseconds(100)});
  communicator world(io, options);
  if (world.rank() == 0 && world.size() > 1) {
    cohort::all_reduce(world, x, op::sum, [](std::error_code) {});
    for (int i = 0; i < 100; ++i) cohort::poll(world);
  }
}
