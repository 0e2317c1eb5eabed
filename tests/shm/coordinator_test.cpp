// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// A coordinator over shared memory: packs, pieces and large operations in random order.

#include <cohort/shm.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <cohort/core/log.hpp>
#include <cohort/mpi/comm.hpp>
#include <cohort/progress/when_all.hpp>

#include "coordinator/support.hpp"
#include "support/large_message.hpp"

namespace {

using cohort::as_future;
namespace op = cohort::op;

/// Shared memory that refuses this rank's broadcasts, and minima, when it is told to.
struct refusing {
  cohort::shm::backend by;
  const bool* refuses;
  [[nodiscard]] bool takes(const cohort::comm::collective_call& call) const noexcept {
    return by.takes(call);
  }
  void start(const cohort::comm::collective_call& call,
             cohort::comm::backend_completion done) const {
    if (*refuses && (call.kind == cohort::op_kind::broadcast || call.op == MPI_MIN)) {
      return done(std::make_error_code(std::errc::not_enough_memory));
    }
    by.start(call, done);
  }
  [[nodiscard]] bool takes_scattered() const noexcept { return by.takes_scattered(); }
  bool forget(const cohort::comm::request_operation& op) const noexcept { return by.forget(op); }
};

/// Shared memory that leaves everything to MPI.
struct refusing_all : cohort::shm::backend {
  [[nodiscard]] bool takes(const cohort::comm::collective_call&) const noexcept { return false; }
};

using task = asio::awaitable<void>;

/// Runs `body(world, coord)` with a coordinator whose collectives go through shared memory, in
/// chunks of so many bytes: all but `by_mpi` of them, for the results are the same through MPI.
template <class Body>
void through_memory(std::size_t chunk, Body body, std::uint64_t by_mpi = 0) {
  cohort_test::on_world([&](cohort::communicator world) -> task {
    cohort::coordinator_options options;
    options.fusion_threshold = 4096;
    options.fusion_buffer = 16384;
    options.piece = 65536;
    options.pieces_in_flight = 3;
    const auto by =
        co_await cohort::shm::make_backend(world, {.chunk = chunk, .whole_up_to = 1024});
    REQUIRE(by.active());
    cohort::coordinator coord(world, by, options);
    co_await coord.barrier();
    co_await body(world, coord);
    const cohort::coordinator_statistics done = coord.stats();
    CHECK(done.by_backend.operations > 0);
    CHECK(done.by_backend.bytes > 0);
    CHECK(done.by_mpi.operations == (world.size() > 1 ? by_mpi : 0));
    CHECK(done.by_device.operations == 0);
    co_await coord.shutdown();
  });
}

}  // namespace

TEST_CASE("named operations in random order through shared memory", "[shm][coordinator]") {
  through_memory(8192, [](cohort::communicator world, cohort::coordinator coord) -> task {
    const auto ranks = static_cast<float>(world.size());
    std::mt19937_64 own(static_cast<std::uint64_t>(world.rank()) + 11);
    constexpr std::size_t tensors = 40;
    std::vector<std::size_t> sizes(tensors);
    for (std::size_t i = 0; i < tensors; ++i) {
      sizes[i] = i % 8 == 0 ? 20000 + 5000 * i : 10 + 37 * i;  // some in pieces, most packed
    }
    for (int round = 0; round < 25; ++round) {
      std::vector<std::vector<float>> data(tensors);
      std::vector<std::vector<int>> rows(tensors);
      std::vector<std::size_t> order(tensors);
      std::iota(order.begin(), order.end(), std::size_t{0});
      std::shuffle(order.begin(), order.end(), own);
      std::vector<cohort::future<void>> all;
      for (const std::size_t i : order) {
        const std::string name = "t" + std::to_string(i);
        data[i].assign(sizes[i], static_cast<float>(world.rank() + 1));
        switch (i % 5) {
          case 0:
          case 1:
            all.push_back(coord.all_reduce(name, data[i], op::sum, as_future));
            break;
          case 2:
            all.push_back(coord.all_reduce(name, data[i], op::average, as_future));
            break;
          case 3:
            all.push_back(coord.broadcast(name, data[i], world.size() - 1, as_future));
            break;
          default:
            rows[i].assign(sizes[i] + static_cast<std::size_t>(world.rank()), world.rank());
            all.push_back(coord.all_reduce(name, data[i], op::max, as_future));
            break;
        }
        if (own() % 16 == 0) co_await cohort_test::pause(std::chrono::microseconds(own() % 200));
      }
      co_await cohort::when_all(std::move(all));
      for (std::size_t i = 0; i < tensors; ++i) {
        const float expected = i % 5 <= 1   ? ranks * (ranks + 1) / 2
                               : i % 5 == 2 ? (ranks + 1) / 2
                                            : ranks;
        const bool right = std::all_of(data[i].begin(), data[i].end(),
                                       [&](float each) { return each == expected; });
        CAPTURE(round, i, data[i].front(), expected);
        CHECK(right);
      }
    }
  });
}

TEST_CASE("compressed operations through shared memory", "[shm][coordinator]") {
  const auto body = [](cohort::communicator world, cohort::coordinator coord) -> task {
    const auto ranks = static_cast<double>(world.size());
    const auto mine = static_cast<float>(world.rank() + 1);
    for (const auto how : {cohort::compression::f16, cohort::compression::bf16}) {
      cohort::call_options compressed;
      compressed.compression = how;
      compressed.postscale = 0.5;
      // Empty, packed, alone, in pieces of several chunks.
      std::vector<std::vector<float>> data;
      std::vector<std::vector<double>> wide;
      const std::vector<std::size_t> sizes{0, 1, 7, 300, 900, 5000, 30'001, 100'000};
      for (const std::size_t size : sizes) {
        data.emplace_back(size, mine);
        wide.emplace_back(size, 1.0);
        for (std::size_t i = 0; i < size; i += 3) data.back()[i] = -mine;
      }
      std::vector<cohort::future<void>> all;
      for (std::size_t i = 0; i < sizes.size(); ++i) {
        const std::string name = std::to_string(i);
        all.push_back(coord.all_reduce("f" + name, data[i], op::sum, compressed, as_future));
        all.push_back(coord.all_reduce("d" + name, wide[i], op::average, compressed, as_future));
      }
      co_await cohort::when_all(std::move(all));
      const auto sum = static_cast<float>(ranks * (ranks + 1) / 4);
      for (std::size_t i = 0; i < sizes.size(); ++i) {
        std::vector<float> expected(sizes[i], sum);
        for (std::size_t k = 0; k < sizes[i]; k += 3) expected[k] = -sum;
        CHECK(data[i] == expected);
        CHECK(wide[i] == std::vector<double>(sizes[i], 0.5));
      }
      std::vector<float> more(7001, mine);
      co_await coord.reduce("root", more, op::max, world.size() - 1, compressed);
      const bool root = world.rank() == world.size() - 1;
      CHECK(more == std::vector<float>(7001, root ? mine / 2 : mine));
      const std::vector<double> whole(7003, 2.0);
      const auto part = co_await coord.reduce_scatter("part", whole, op::sum, compressed);
      CHECK(part == std::vector<double>(part.size(), ranks));
    }
    // Who has joined brings neutral elements to what is staged, too.
    cohort::call_options compressed;
    compressed.compression = cohort::compression::bf16;
    for (int step = 0; step <= world.rank(); ++step) {
      for (const std::size_t size : {10, 100'000}) {
        std::vector<float> data(size, mine);
        co_await coord.all_reduce("least", data, op::min, compressed);
        CHECK(data == std::vector<float>(size, static_cast<float>(step + 1)));
      }
    }
    co_await coord.join();
  };
  // The parts of each reduce_scatter are unequal: shared memory does not do that.
  through_memory(4096, body, 2);
}

TEST_CASE("process sets and persistent groups beside shared memory", "[shm][coordinator]") {
  cohort_test::on_world([](cohort::communicator world) -> asio::awaitable<void> {
    cohort::coordinator coord(world, co_await cohort::shm::make_backend(world));
    co_await coord.barrier();
    // Each has memory of its own, where it has more than one rank.
    auto set = co_await coord.add_process_set(cohort::ranks::stride(0, world.size(), 2));
    std::vector<double> kept(700, 1);
    auto tensors = cohort::bundle("kept").add("values", kept);
    const auto group = co_await coord.make_persistent(tensors, op::sum);
    const cohort::coordinator_statistics before = coord.stats();
    std::vector<int> value(1000, 1);
    std::vector<int> other(1000, 1);
    auto everywhere = coord.all_reduce("all", value, op::sum, as_future);
    auto again = group.start(as_future);
    if (world.rank() % 2 == 0) {
      co_await set.all_reduce("some", other, op::sum);
      CHECK(other.back() == (world.size() + 1) / 2);
      const auto of_set = set.stats();
      const auto& by = set.size() > 1 ? of_set.by_backend : of_set.by_mpi;
      CHECK(by.operations == 1);
      CHECK(by.bytes == 1000 * sizeof(int));
      CHECK(of_set.by_mpi.operations + of_set.by_backend.operations == 1);
    }
    co_await std::move(everywhere);
    co_await std::move(again);
    co_await group.start();
    CHECK(value.back() == world.size());
    CHECK(kept == std::vector<double>(700, world.size() * world.size()));
    const cohort::coordinator_statistics after = coord.stats();
    const unsigned starts = world.size() > 1 ? 2 : 0;  // through memory
    CHECK(after.by_backend.operations == before.by_backend.operations + 1 + starts);
    CHECK(after.by_backend.bytes ==
          before.by_backend.bytes + 1000 * sizeof(int) + starts * 700 * sizeof(double));
    CHECK(after.by_mpi.operations == before.by_mpi.operations + 2 - starts);
    CHECK(after.by_mpi.bytes == before.by_mpi.bytes + (2 - starts) * 700 * sizeof(double));
    co_await coord.shutdown();
  });
}

TEST_CASE("what shared memory does not take is counted as MPI's", "[shm][coordinator]") {
  cohort_test::on_world([](cohort::communicator world) -> asio::awaitable<void> {
    const auto by = co_await cohort::shm::make_backend(world);
    cohort::coordinator coord(world, refusing_all{by});
    co_await coord.barrier();
    std::vector<int> value(1000, 1);
    co_await coord.all_reduce("value", value, op::sum);
    CHECK(value.back() == world.size());
    const std::vector<int> rows(10, world.rank());
    const auto all = co_await coord.all_gather("rows", rows);
    CHECK(all.size() == 10 * std::size_t(world.size()));
    const cohort::coordinator_statistics done = coord.stats();
    CHECK(done.by_backend.operations == 0);
    CHECK(done.by_mpi.operations == 3);
    CHECK(done.by_mpi.bytes == (1000 + all.size()) * sizeof(int));
    co_await coord.shutdown();
  });
}

TEST_CASE("ranks with different backends for the host do not open", "[shm][coordinator]") {
  const std::string what = GENERATE(as<std::string>{}, "none", "inactive", "another");
  cohort_test::on_world([what](cohort::communicator world) -> asio::awaitable<void> {
    const cohort::log::capture quiet;
    const int last = world.size() - 1;
    const auto by = co_await cohort::shm::make_backend(world);
    cohort::coordinator coord;
    const bool never = false;
    if (world.rank() != last) {
      coord = cohort::coordinator(world, by);
    } else if (what == "none") {
      coord = cohort::coordinator(world);
    } else if (what == "inactive") {
      coord = cohort::coordinator(world, cohort::shm::backend());
    } else {
      coord = cohort::coordinator(world, refusing{by, &never});
    }
    if (last != 0) {
      std::vector<int> value(1000, 1);
      const auto problem = co_await cohort_test::caught<cohort::mismatch_error>(
          coord.all_reduce("x", value, op::sum));
      REQUIRE(problem);
      CHECK(problem->fields() == std::vector<std::string>{"backend for the host"});
      REQUIRE(problem->sides().size() == 2);
      CHECK(problem->sides()[0].ranks == cohort_test::ranks_below(last));
      CHECK(problem->sides()[0].values == std::vector<std::string>{"shm"});
      CHECK(problem->sides()[1].ranks == std::vector<int>{last});
      CHECK(problem->sides()[1].values ==
            std::vector<std::string>{what == "another" ? "unnamed" : "none"});
      CHECK(value == std::vector<int>(1000, 1));
    }
    co_await coord.shutdown();
  });
}

TEST_CASE("after a fault shared memory leaves the callers' memory alone", "[shm][coordinator]") {
  const bool on_one_node = GENERATE(true, false);  // or each rank on another: from their memory
  cohort::communicator_options places;
  if (!on_one_node) places.node = cohort::mpi::comm_ref::world().rank();
  const auto body = [on_one_node](cohort::communicator world) -> asio::awaitable<void> {
    if (world.size() < 3) co_return;  // the others must be able to start without the last rank
    for (const bool packed : {true, false}) {
      bool refuses = false;
      cohort::coordinator_options options;
      options.fusion_threshold = packed ? 1 << 20 : 4096;
      options.fusion_buffer = 4 << 20;
      options.piece = 4 << 20;
      options.bytes_in_flight = 64 << 20;
      const auto by = co_await cohort::shm::make_backend(world, {.chunk = 1024, .whole_up_to = 0});
      cohort::coordinator coord(world, refusing{by, &refuses}, options);
      co_await coord.barrier();
      refuses = world.rank() == world.size() - 1;
      std::vector<int> a(100000, 1);
      std::vector<int> b(100000, 2);
      std::vector<int> d(10, world.rank());
      std::vector<cohort::future<void>> all;
      // Between nodes a broadcast does not wait for all ranks.
      if (!on_one_node) all.push_back(coord.all_reduce("d", d, op::min, as_future));
      all.push_back(coord.all_reduce("a", a, op::sum, as_future));
      all.push_back(coord.all_reduce("b", b, op::sum, as_future));
      if (on_one_node) all.push_back(coord.broadcast("d", d, 0, as_future));
      if (world.rank() == 1) {  // starts its part, and is away when the others end
        for (;;) {
          const auto pending = coord.pending();
          if (pending.empty() || pending[0].started) break;
          co_await cohort_test::pause(std::chrono::microseconds(5));
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(400));
      }
      int failed = 0;
      for (auto& each : all) {
        try {
          co_await std::move(each);
        } catch (const cohort::data_error&) {
          ++failed;
        }
      }
      CHECK(failed > 0);
      CHECK(coord.stats().by_mpi.operations == 0);
      if (world.rank() != world.size() - 1) CHECK(coord.stats().by_backend.operations > 1);
      // The buffers are this function's again.
      std::fill(a.begin(), a.end(), -77);
      std::fill(b.begin(), b.end(), -77);
      co_await cohort_test::pause(std::chrono::milliseconds(700));
      CHECK(std::count(a.begin(), a.end(), -77) == 100000);
      CHECK(std::count(b.begin(), b.end(), -77) == 100000);
      co_await coord.shutdown();
      co_await cohort_test::meet(world);
    }
  };
  cohort_test::on_world(body, places);
}

TEST_CASE("a named operation in shared memory ends also where nothing is delivered",
          "[shm][coordinator]") {
  cohort_test::on_world([](cohort::communicator world) -> asio::awaitable<void> {
    const auto by = co_await cohort::shm::make_backend(world, {.chunk = 1024, .whole_up_to = 0});
    cohort::coordinator coord(world, by);
    co_await coord.barrier();
    for (int round = 0; round < 3; ++round) {
      std::vector<int> value(500000, 1);  // in pieces, each in many chunks
      {
        auto dropped = coord.all_reduce("value", value, op::sum, as_future);
        for (;;) {
          const auto pending = coord.pending();
          if (pending.empty() || pending[0].started) break;
          co_await cohort_test::pause(std::chrono::microseconds(20));
        }
      }  // waits in place
      CHECK(std::count(value.begin(), value.end(), world.size()) == 500000);
    }
    CHECK(coord.stats().by_mpi.operations == 0);
    CHECK(coord.stats().by_backend.bytes == 3 * 500000 * sizeof(int));
    co_await coord.shutdown();
  });
}

namespace {

const cohort::communicator_options choosing{.backend = cohort::backend_choice::automatic};

/// Some sums by a coordinator to which nobody has given a backend; what it has counted.
asio::awaitable<cohort::coordinator_statistics> sums_by_default(cohort::communicator world) {
  cohort::coordinator coord(world);
  for (const std::size_t size : {1UL, 1000UL, 300'000UL}) {
    std::vector<int> data(size, world.rank() + 1);
    co_await coord.all_reduce("sum", data, op::sum);
    const int expected = world.size() * (world.size() + 1) / 2;
    const bool right = data == std::vector<int>(size, expected);
    CHECK(right);
  }
  const cohort::coordinator_statistics done = coord.stats();
  co_await coord.shutdown();
  co_return done;
}
bool all_in_memory(const cohort::coordinator_statistics& done) {
  return done.by_backend.operations != 0 && done.by_mpi.operations == 0;
}

}  // namespace

TEST_CASE("a coordinator without a backend chooses shared memory if its communicator does",
          "[shm][coordinator]") {
  cohort_test::on_world(
      [](cohort::communicator world) -> task {
        const auto done = co_await sums_by_default(world);
        CHECK(all_in_memory(done) == (world.size() > 1));
      },
      choosing);
}

TEST_CASE("a rank that waits for a name goes on with what MPI has", "[shm][coordinator]") {
  cohort_test::on_world(
      [](cohort::communicator world) -> task {
        if (world.size() == 1) co_return;
        cohort::coordinator coord(world);
        co_await coord.barrier("open");
        cohort_test::large_message message;
        co_await coord.barrier("posted");
        CHECK(message.send());
        co_await coord.barrier("sent");
        CHECK(message.arrives());
        co_await coord.shutdown();
      },
      choosing);
}

TEST_CASE("a coordinator over several nodes chooses what goes between them", "[shm][coordinator]") {
  const auto all = cohort::mpi::comm_ref::world();
  if (all.size() == 1) return;
  for (const bool in_turns : {true, false}) {
    cohort::communicator_options options = choosing;
    options.node = in_turns ? all.rank() % 2 : all.rank() / 2;
    cohort_test::on_world(
        [](cohort::communicator world) -> task {
          const auto done = co_await sums_by_default(world);
          CHECK(all_in_memory(done));
        },
        options);
    options.backend = cohort::backend_choice::hierarchical;
    cohort_test::on_world(
        [](cohort::communicator world) -> task {
          const auto done = co_await sums_by_default(world);
          CHECK(all_in_memory(done));
        },
        options);
    options.backend = cohort::backend_choice::shm;
    cohort_test::on_world(
        [](cohort::communicator world) -> task {
          const auto done = co_await sums_by_default(world);
          CHECK(all_in_memory(done) == (world.local_size() == world.size()));
        },
        options);
  }
}

TEST_CASE("a coordinator goes through MPI where its communicator does", "[shm][coordinator]") {
  for (const int who : {0, 1}) {  // all ranks say so, or one
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    cohort::communicator_options options = choosing;
    if (who == 0 || rank == 0) options.backend = cohort::backend_choice::mpi;
    cohort_test::on_world(
        [](cohort::communicator world) -> task {
          const auto done = co_await sums_by_default(world);
          CHECK(done.by_backend.operations == 0);
        },
        options);
  }
}

TEST_CASE("a coordinator whose rank has no memory left goes through MPI", "[shm][coordinator]") {
  cohort_test::on_world(
      [](cohort::communicator world) -> task {
        if (world.size() == 1) co_return;
        using cohort::shm::detail::automatic_memory;
        std::optional<automatic_memory> taken;
        if (world.rank() == world.size() - 1) taken.emplace(64 << 20, 64 << 20);
        const auto done = co_await sums_by_default(world);
        CHECK(done.by_backend.operations == 0);
        taken.reset();
        co_await cohort_test::meet(world);
        const auto later = co_await sums_by_default(world);
        CHECK(all_in_memory(later));
      },
      choosing);
}

TEST_CASE("starts of a group go on inside calls of MPI over several nodes, too",
          "[shm][coordinator]") {
  cohort::communicator_options options = choosing;
  options.node = cohort::mpi::comm_ref::world().rank();
  cohort_test::on_world(
      [](cohort::communicator world) -> task {
        if (world.size() == 1) co_return;
        constexpr int tag = 77;
        cohort::coordinator coord(world);
        std::vector<float> data(1000, 1);
        const auto group =
            co_await coord.make_persistent(cohort::bundle("g").add("data", data), op::sum);
        int token = 0;
        if (world.rank() == 0) {
          auto started = group.start(cohort::as_future);
          MPI_Recv(&token, 1, MPI_INT, 1, tag, world.native(), MPI_STATUS_IGNORE);
          co_await std::move(started);
        } else {
          co_await group.start();
          if (world.rank() == 1) MPI_Send(&token, 1, MPI_INT, 0, tag, world.native());
        }
        CHECK(data.front() == static_cast<float>(world.size()));
        co_await group.remove();
        co_await coord.shutdown();
      },
      options);
}
