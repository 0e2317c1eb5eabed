// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// Every named verb: its result, in place and out of place, owned and borrowed, fused and alone.
#include <cohort/coordinator.hpp>
#include <cohort/progress/context.hpp>
#include <cohort/progress/future.hpp>
#include <cohort/progress/sync_wait.hpp>
#include <cohort/progress/when_all.hpp>

#include <chrono>
#include <complex>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "coordinator/support.hpp"
#include "support/catch.hpp"
#include "support/patience.hpp"
#include "support/world.hpp"

namespace {

using cohort_test::on_world;

/// Runs `body(coord)` and shuts the coordinator down.
template <class Body>
void with_coordinator(Body body, const cohort::coordinator_options& options = {}) {
  on_world([&](cohort::communicator world) -> asio::awaitable<void> {
    cohort::coordinator coord(world, options);
    co_await body(coord);
    co_await coord.shutdown();
  });
}

template <class T>
T sum_of_ranks(int size) {
  return static_cast<T>(size * (size + 1) / 2);
}

}  // namespace

TEMPLATE_TEST_CASE("all_reduce sums every type", "[coordinator]", std::int8_t, std::uint16_t, int,
                   std::int64_t, float, double, std::complex<float>, cohort::f16, cohort::bf16) {
  with_coordinator([](cohort::coordinator coord) -> asio::awaitable<void> {
    using value = TestType;
    std::vector<value> data(7, value(static_cast<float>(coord.rank() + 1)));
    co_await coord.all_reduce("sum", data, cohort::op::sum);
    for (const value& each : data) {
      CHECK(each == value(static_cast<float>(sum_of_ranks<int>(coord.size()))));
    }
  });
}

TEST_CASE("all_reduce by every reduction", "[coordinator]") {
  with_coordinator([](cohort::coordinator coord) -> asio::awaitable<void> {
    const int me = coord.rank();
    const int n = coord.size();
    int value = me + 1;
    co_await coord.all_reduce("product", value, cohort::op::product);
    int factorial = 1;
    for (int i = 1; i <= n; ++i) factorial *= i;
    CHECK(value == factorial);
    value = me;
    co_await coord.all_reduce("min", value, cohort::op::min);
    CHECK(value == 0);
    value = me;
    co_await coord.all_reduce("max", value, cohort::op::max);
    CHECK(value == n - 1);
    value = me == 0 ? 1 : 0;
    co_await coord.all_reduce("and", value, cohort::op::logical_and);
    CHECK(value == (n == 1 ? 1 : 0));
    value = me == 0 ? 1 : 0;
    co_await coord.all_reduce("or", value, cohort::op::logical_or);
    CHECK(value == 1);
    value = 1;
    co_await coord.all_reduce("xor", value, cohort::op::logical_xor);
    CHECK(value == n % 2);
    value = 1 << me;
    co_await coord.all_reduce("bits", value, cohort::op::bit_or);
    CHECK(value == (1 << n) - 1);
    value = ~(1 << me);
    co_await coord.all_reduce("all bits", value, cohort::op::bit_and);
    CHECK(value == ~((1 << n) - 1));
    cohort::located<double> where{static_cast<double>(me % 2), me};
    co_await coord.all_reduce("where", where, cohort::op::max_loc);
    CHECK(where.location == (n == 1 ? 0 : 1));
    double own = 1.0 / (me + 2);
    co_await coord.all_reduce(
        "own", own,
        cohort::user_op{[](double a, double b) { return a + b - a * b; }, cohort::commutative});
    double expected = 0;
    for (int i = 0; i < n; ++i) expected = expected + 1.0 / (i + 2) - expected / (i + 2);
    CHECK(own == Approx(expected));
  });
}

TEST_CASE("the average of integers truncates toward zero", "[coordinator]") {
  with_coordinator([](cohort::coordinator coord) -> asio::awaitable<void> {
    const int n = coord.size();
    std::vector<int> data{coord.rank() + 1, -(coord.rank() + 1)};
    co_await coord.all_reduce("average", data, cohort::op::average);
    CHECK(data[0] == sum_of_ranks<int>(n) / n);
    CHECK(data[1] == -(sum_of_ranks<int>(n) / n));
    std::vector<float> mean{static_cast<float>(coord.rank())};
    co_await coord.all_reduce("mean", mean, cohort::op::average);
    CHECK(mean[0] == static_cast<float>(n * (n - 1) / 2) / static_cast<float>(n));
  });
}

TEST_CASE("scale factors before and after", "[coordinator]") {
  with_coordinator([](cohort::coordinator coord) -> asio::awaitable<void> {
    cohort::call_options options;
    options.prescale = 0.5;
    options.postscale = 4;
    const auto n = static_cast<double>(coord.size());
    // Alone, in pieces, and packed with others.
    std::vector<double> alone(10, 1.0);
    std::vector<double> large(1 << 20, 1.0);
    co_await coord.all_reduce("alone", alone, cohort::op::sum, options);
    co_await coord.all_reduce("large", large, cohort::op::sum, options);
    CHECK(alone == std::vector<double>(10, 2 * n));
    CHECK(large == std::vector<double>(1 << 20, 2 * n));
    std::vector<std::vector<double>> some(5, std::vector<double>(3, 1.0));
    std::vector<cohort::future<void>> all;
    for (std::size_t i = 0; i < some.size(); ++i) {
      all.push_back(coord.all_reduce("some " + std::to_string(i), some[i], cohort::op::average,
                                     options, cohort::as_future));
    }
    co_await cohort::when_all(std::move(all));
    for (const auto& each : some) CHECK(each == std::vector<double>(3, 2.0));
    int whole = 1;
    const auto refused =
        co_await cohort_test::code_of(coord.all_reduce("whole", whole, cohort::op::sum, options));
    CHECK(refused == cohort::errc::invalid_argument);
  });
}

TEST_CASE("out of place, and buffers that are handed back", "[coordinator]") {
  with_coordinator([](cohort::coordinator coord) -> asio::awaitable<void> {
    const int n = coord.size();
    const std::vector<int> in(4, coord.rank() + 1);
    std::vector<int> out(4);
    co_await coord.all_reduce("out", in, out, cohort::op::sum);
    CHECK(out == std::vector<int>(4, sum_of_ranks<int>(n)));
    CHECK(in == std::vector<int>(4, coord.rank() + 1));
    std::vector<int> mine(4, 2);
    auto back = co_await coord.all_reduce("kept", std::move(mine), cohort::op::sum);
    CHECK(back == std::vector<int>(4, 2 * n));
    std::vector<int> shorter(3);
    const auto code =
        co_await cohort_test::code_of(coord.all_reduce("wrong", in, shorter, cohort::op::sum));
    CHECK(code == cohort::errc::size_mismatch);
  });
}

TEST_CASE("tensors of all sizes at once", "[coordinator]") {
  cohort::coordinator_options options;
  options.fusion_threshold = 4096;
  options.fusion_buffer = 8192;
  options.piece = 10000;
  with_coordinator(
      [](cohort::coordinator coord) -> asio::awaitable<void> {
        const int n = coord.size();
        std::vector<std::vector<float>> data;
        for (std::size_t i = 0; i < 60; ++i) data.emplace_back(i * i * 7, 1.0F);
        for (int round = 0; round < 5; ++round) {
          std::vector<cohort::future<void>> all;
          for (std::size_t k = 0; k < data.size(); ++k) {
            // Another order on each rank and in each round.
            const std::size_t i =
                (k * 7 + static_cast<std::size_t>(13 * coord.rank() + round)) % data.size();
            data[i].assign(data[i].size(), static_cast<float>(coord.rank() + 1 + round));
            all.push_back(coord.all_reduce("t" + std::to_string(i), data[i], cohort::op::sum,
                                           cohort::as_future));
          }
          co_await cohort::when_all(std::move(all));
          const auto expected = static_cast<float>(sum_of_ranks<int>(n) + n * round);
          for (std::size_t i = 0; i < data.size(); ++i) {
            INFO("tensor " << i << ", round " << round);
            REQUIRE(data[i] == std::vector<float>(i * i * 7, expected));
          }
        }
      },
      options);
}

TEST_CASE("reduce leaves the result at the root", "[coordinator]") {
  with_coordinator([](cohort::coordinator coord) -> asio::awaitable<void> {
    for (int root = 0; root < coord.size(); ++root) {
      std::vector<double> data(3, coord.rank() + 1.0);
      co_await coord.reduce("r", data, cohort::op::average, root);
      const double mean = sum_of_ranks<double>(coord.size()) / coord.size();
      const double own = coord.rank() + 1.0;
      CHECK(data == std::vector<double>(3, coord.rank() == root ? mean : own));
    }
  });
}

TEST_CASE("broadcast, packed and in pieces", "[coordinator]") {
  with_coordinator([](cohort::coordinator coord) -> asio::awaitable<void> {
    const int root = coord.size() - 1;
    const bool sends = coord.rank() == root;
    std::vector<int> one(5, sends ? 1 : 0);
    std::vector<int> two(6, sends ? 2 : 0);
    std::vector<int> large(1 << 20, sends ? 3 : 0);
    auto a = coord.broadcast("one", one, root, cohort::as_future);
    auto b = coord.broadcast("two", two, root, cohort::as_future);
    auto c = coord.broadcast("large", large, root, cohort::as_future);
    co_await std::move(a);
    co_await std::move(b);
    co_await std::move(c);
    CHECK(one == std::vector<int>(5, 1));
    CHECK(two == std::vector<int>(6, 2));
    CHECK(large == std::vector<int>(1 << 20, 3));
    const auto code = co_await cohort_test::code_of(coord.broadcast("no", one, coord.size()));
    CHECK(code == cohort::errc::bad_root);
  });
}

TEST_CASE("all_gather with sizes that change", "[coordinator]") {
  with_coordinator([](cohort::coordinator coord) -> asio::awaitable<void> {
    const int n = coord.size();
    for (int round = 0; round < 6; ++round) {
      const int grows = round / 2;  // every second time the sizes are known
      const std::vector<int> mine(static_cast<std::size_t>(coord.rank() + grows), coord.rank());
      const auto rows = co_await coord.all_gather("rows", mine);
      std::vector<int> expected;
      for (int rank = 0; rank < n; ++rank) {
        expected.insert(expected.end(), static_cast<std::size_t>(rank + grows), rank);
      }
      CHECK(rows == expected);
    }
    CHECK(coord.stats().size_exchanges == 3);
  });
}

TEST_CASE("all_to_all with splits", "[coordinator]") {
  with_coordinator([](cohort::coordinator coord) -> asio::awaitable<void> {
    const int n = coord.size();
    const int me = coord.rank();
    for (int round = 0; round < 3; ++round) {
      std::vector<int> splits;
      std::vector<int> data;
      for (int to = 0; to < n; ++to) {
        splits.push_back(me + to);
        data.insert(data.end(), static_cast<std::size_t>(me + to), 100 * me + to);
      }
      const auto [come, from] = co_await coord.all_to_all("tokens", data, splits);
      std::vector<int> expected;
      std::vector<std::size_t> sizes;
      for (int rank = 0; rank < n; ++rank) {
        sizes.push_back(static_cast<std::size_t>(rank + me));
        expected.insert(expected.end(), static_cast<std::size_t>(rank + me), 100 * rank + me);
      }
      CHECK(come == expected);
      CHECK(from == sizes);
    }
    CHECK(coord.stats().size_exchanges == 1);
    std::vector<int> data(3);
    std::vector<int> wrong(static_cast<std::size_t>(n), 7);
    const auto code = co_await cohort_test::code_of(coord.all_to_all("wrong", data, wrong));
    CHECK(code == cohort::errc::invalid_argument);
  });
}

TEST_CASE("reduce_scatter with uneven rows", "[coordinator]") {
  with_coordinator([](cohort::coordinator coord) -> asio::awaitable<void> {
    const int n = coord.size();
    for (int rows = 0; rows < 11; ++rows) {
      std::vector<double> data(static_cast<std::size_t>(rows));
      std::iota(data.begin(), data.end(), 0.0);
      const auto part =
          co_await coord.reduce_scatter("part " + std::to_string(rows), data, cohort::op::average);
      const int mine = rows / n + (coord.rank() < rows % n ? 1 : 0);
      const int first = coord.rank() * (rows / n) + std::min(coord.rank(), rows % n);
      std::vector<double> expected(static_cast<std::size_t>(mine));
      std::iota(expected.begin(), expected.end(), static_cast<double>(first));
      CHECK(part == expected);
    }
  });
}

TEST_CASE("gather and scatter", "[coordinator]") {
  with_coordinator([](cohort::coordinator coord) -> asio::awaitable<void> {
    const int n = coord.size();
    const int root = n / 2;
    const std::vector<int> mine(2, coord.rank());
    const auto all = co_await coord.gather("g", mine, root);
    std::vector<int> expected;
    for (int rank = 0; rank < n; ++rank) expected.insert(expected.end(), 2, rank);
    CHECK(all == (coord.rank() == root ? expected : std::vector<int>()));
    std::vector<int> part(2, -1);
    co_await coord.scatter("s", all, part, root);
    CHECK(part == mine);
  });
}

TEST_CASE("bundles", "[coordinator]") {
  with_coordinator([](cohort::coordinator coord) -> asio::awaitable<void> {
    const int n = coord.size();
    std::vector<float> a(3, 1.0F);
    std::vector<float> b(300000, 2.0F);
    std::vector<int> c(2, 3);
    co_await coord.grouped_all_reduce(cohort::bundle("bucket").add("a", a).add("b", b).add("c", c),
                                      cohort::op::sum);
    CHECK(a == std::vector<float>(3, static_cast<float>(n)));
    CHECK(b == std::vector<float>(300000, static_cast<float>(2 * n)));
    CHECK(c == std::vector<int>(2, 3 * n));
    const auto whole = static_cast<float>(coord.rank());
    a.assign(3, whole);
    c.assign(2, coord.rank());
    co_await coord.grouped_broadcast(cohort::bundle("back").add("a", a).add("c", c), 0);
    CHECK(a == std::vector<float>(3, 0.0F));
    CHECK(c == std::vector<int>(2, 0));
    CHECK_THROWS_AS(cohort::bundle("twice").add("a", a).add("a", a), cohort::error);
  });
}

TEST_CASE("objects of any size", "[coordinator]") {
  with_coordinator([](cohort::coordinator coord) -> asio::awaitable<void> {
    const std::vector<std::string> words(static_cast<std::size_t>(coord.rank() + 1), "word");
    const auto all = co_await coord.all_gather_object("words", words);
    REQUIRE(all.size() == static_cast<std::size_t>(coord.size()));
    for (std::size_t rank = 0; rank < all.size(); ++rank) CHECK(all[rank].size() == rank + 1);
    const int root = coord.size() - 1;
    const auto one = co_await coord.broadcast_object("last", words, root);
    CHECK(one.size() == static_cast<std::size_t>(coord.size()));
  });
}

TEST_CASE("barriers and operations without a name", "[coordinator]") {
  with_coordinator([](cohort::coordinator coord) -> asio::awaitable<void> {
    for (int i = 0; i < 3; ++i) {
      int value = i;
      co_await coord.all_reduce(value, cohort::op::sum);
      CHECK(value == i * coord.size());
      co_await coord.barrier();
      co_await coord.barrier("named");
    }
  });
}

TEST_CASE("what is submitted again travels as a number, whatever its kind",
          "[coordinator][verbs]") {
  cohort_test::coordinated([](cohort::communicator world,
                              cohort::coordinator coord) -> asio::awaitable<void> {
    const int n = coord.size();
    if (n == 1) co_return;  // nothing travels
    const std::vector<int> mine(static_cast<std::size_t>(n), 1);
    std::vector<int> data = mine;
    std::vector<int> part(1);
    constexpr int kinds = 12;
    const auto submit = [&](int kind, const std::string& name) -> asio::awaitable<void> {
      if (kind == 0) co_await coord.all_reduce(name, data, cohort::op::sum);
      if (kind == 1) co_await coord.reduce(name, data, cohort::op::sum, 0);
      if (kind == 2) co_await coord.broadcast(name, data, 0);
      if (kind == 3) co_await coord.all_gather(name, mine);
      if (kind == 4) co_await coord.all_to_all(name, mine, mine);
      if (kind == 5) co_await coord.reduce_scatter(name, mine, cohort::op::sum);
      if (kind == 6) co_await coord.gather(name, part, 0);
      if (kind == 7) co_await coord.scatter(name, data, part, 0);
      if (kind == 8) co_await coord.barrier(name);
      const auto bundle = [&] { return cohort::bundle(name).add("data", data).add("part", part); };
      if (kind == 9) co_await coord.grouped_all_reduce(bundle(), cohort::op::sum);
      if (kind == 10) co_await coord.grouped_broadcast(bundle(), 0);
      if (kind == 11) co_await coord.broadcast_object(name, mine, 0);
    };
    constexpr std::size_t length = 2000;
    for (int kind = 0; kind < kinds; ++kind) {
      const std::string name = std::to_string(kind) + std::string(length, 'n');
      for (const bool again : {false, true}) {
        CAPTURE(kind, again);
        const auto before = coord.stats().bytes_sent;
        co_await submit(kind, name);
        co_await cohort_test::meet(world);  // all have heard of it
        CHECK((coord.stats().bytes_sent - before < length) == again);
      }
    }
  });
}

TEST_CASE("who waits for another rank sleeps until its doorbell rings", "[coordinator][verbs]") {
  asio::io_context io;
  cohort::communicator world(io);
  if (world.size() == 1) return;
  asio::co_spawn(
      io,
      [&io, world]() -> asio::awaitable<void> {
        using std::chrono::steady_clock;
        constexpr int tag = 79;
        const cohort::coordinator coord(world);
        co_await coord.barrier();
        for (int late = 0; late < 2; ++late) {  // on the root of the tree, and below it
          const auto before = cohort::engine_stats(io);
          const auto begun = steady_clock::now();
          const auto submit = [&] {
            return asio::co_spawn(io, cohort_test::works(coord, "late " + std::to_string(late)),
                                  cohort::as_future);
          };
          if (world.rank() == late) {
            for (int slept = 1; slept < world.size();) {
              int found = 0;
              MPI_Iprobe(MPI_ANY_SOURCE, tag, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE);
              if (found == 0) {
                co_await cohort_test::pause(std::chrono::milliseconds(5));
                continue;
              }
              MPI_Recv(nullptr, 0, MPI_BYTE, MPI_ANY_SOURCE, tag, MPI_COMM_WORLD,
                       MPI_STATUS_IGNORE);
              ++slept;
            }
            co_await submit();
            continue;
          }
          auto pending = submit();
          while (cohort::engine_stats(io).parked == before.parked) {
            REQUIRE(steady_clock::now() - begun < cohort_test::patient(std::chrono::seconds(20)));
            co_await cohort_test::pause(std::chrono::milliseconds(5));
          }
          // It may have spun for long before, on a busy machine, and may do so at the end.
          const auto laps_before = cohort::engine_stats(io).laps;
          const auto parked = steady_clock::now();
          co_await cohort_test::pause(std::chrono::milliseconds(500));
          const auto laps = cohort::engine_stats(io).laps - laps_before;
          const auto ms =
              std::chrono::duration_cast<std::chrono::milliseconds>(steady_clock::now() - parked)
                  .count();
          // Naps of a millisecond, as for an operation that only MPI knows of, are one lap each.
          CHECK(laps < static_cast<std::uint64_t>(ms) / 2);
          MPI_Send(nullptr, 0, MPI_BYTE, late, tag, MPI_COMM_WORLD);
          co_await std::move(pending);
        }
        co_await coord.shutdown();
      },
      cohort::rethrow);
  io.run();
}

// Longer than what MPI sends at once: it leaves only when the receiver looks, which sleeps.
TEST_CASE("a long control message wakes a rank that waits for nothing", "[coordinator][verbs]") {
  cohort::coordinator_options options;
  options.control_message = 8192;
  cohort_test::coordinated(
      [](cohort::communicator world, cohort::coordinator coord) -> asio::awaitable<void> {
        if (world.size() == 1) co_return;
        const bool sleeps = world.rank() == 0;
        const auto before = coord.stats();
        co_await cohort_test::meet(world);
        constexpr std::size_t count = 200;
        std::vector<int> values(count, 1);
        std::vector<cohort::future<void>> sums;
        const auto submit = [&] {
          for (std::size_t i = 0; i < count; ++i) {
            const std::string name = std::string(150, 'n') + std::to_string(i);
            sums.push_back(coord.all_reduce(name, values[i], cohort::op::sum, cohort::as_future));
          }
        };
        if (!sleeps) {
          co_await cohort_test::pause(std::chrono::milliseconds(50));  // rank 0 falls asleep
          submit();
        } else {
          // Nothing is submitted here, so no look but what the bell asks for.
          const auto others = static_cast<std::uint64_t>(world.size() - 1);
          const auto limit =
              std::chrono::steady_clock::now() + cohort_test::patient(std::chrono::seconds(5));
          const auto heard = [&] { return coord.stats().messages_received; };
          while (heard() - before.messages_received < 4 * others &&
                 std::chrono::steady_clock::now() < limit) {
            co_await cohort_test::pause(std::chrono::milliseconds(5));
          }
          CHECK(heard() - before.messages_received >= 4 * others);
          submit();
        }
        for (auto& each : sums) co_await std::move(each);
        CHECK(values == std::vector<int>(count, world.size()));
        if (!sleeps) CHECK(coord.stats().bytes_sent - before.bytes_sent > 4 * 8192);
      },
      options);
}

// Each rank blocks in one of two operations, some in the first and some in the other.
TEST_CASE("named verbs block in plain code", "[coordinator]") {
  asio::io_context io;
  const cohort::communicator world(io);
  {
    cohort::coordinator coord(world);
    const int n = world.size();
    for (int i = 0; i < 50; ++i) {
      int sum = 1;
      int greatest = world.rank() + 1;
      if ((i + world.rank()) % 2 == 0) {
        auto other = coord.all_reduce("sum", sum, cohort::op::sum, cohort::as_future);
        coord.all_reduce("greatest", greatest, cohort::op::max, cohort::blocking);
        cohort::sync_wait(io, std::move(other));
      } else {
        auto other = coord.all_reduce("greatest", greatest, cohort::op::max, cohort::as_future);
        coord.all_reduce("sum", sum, cohort::op::sum, cohort::blocking);
        cohort::sync_wait(io, std::move(other));
      }
      CHECK(sum == n);
      CHECK(greatest == n);
    }
    std::error_code inside;
    const auto handler = [&]() -> asio::awaitable<void> {
      int value = 1;
      try {
        coord.all_reduce("inside", value, cohort::op::sum, cohort::blocking);
      } catch (const std::system_error& why) {
        inside = why.code();
      }
      co_return;
    };
    cohort::sync_wait(io, handler());
    CHECK(inside == std::errc::resource_deadlock_would_occur);
    cohort::sync_wait(io, coord.shutdown());
  }
}
