// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// Named operations on device memory, with a backend that the test has in its hands.
#include <cohort/coordinator.hpp>
#include <cohort/progress/deadline.hpp>
#include <cohort/progress/future.hpp>

#include <algorithm>
#include <chrono>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/support.hpp"
#include "gpu/coordinator/device_support.hpp"

namespace {

using namespace std::chrono_literals;
using cohort::as_future;
using cohort::errc;
using cohort_test::caught;
using cohort_test::device_script;
using cohort_test::fake_backend;
using cohort_test::fake_stream;
using cohort_test::fake_vector;
using cohort_test::has;
using cohort_test::meet;
using cohort_test::on_world;
namespace op = cohort::op;

/// Runs `body(world, coord, script)` with a coordinator that has a backend for devices.
template <class Body>
void on_devices(Body body, const cohort::coordinator_options& options = {}) {
  on_world([&](cohort::communicator world) -> asio::awaitable<void> {
    const fake_backend backend;
    cohort::coordinator coord(world, backend, options);
    co_await coord.barrier();
    co_await body(world, coord, *backend.script);
    co_await coord.shutdown();
    CHECK(backend.script->closes == 1);
    CHECK(backend.script->marks_alive == 0);
  });
}

std::vector<float> ramp(std::size_t count, int rank) {
  std::vector<float> all(count);
  std::iota(all.begin(), all.end(), static_cast<float>(100 * rank));
  return all;
}

/// The sum over all ranks of `ramp(count, rank)`.
std::vector<float> sum_of_ramps(std::size_t count, int ranks) {
  std::vector<float> all(count);
  for (int rank = 0; rank < ranks; ++rank) {
    for (std::size_t i = 0; i < count; ++i) all[i] += ramp(count, rank)[i];
  }
  return all;
}

template <class B>
concept mpi_takes = cohort::input_buffer<B> || cohort::output_buffer<B>;
static_assert(!mpi_takes<fake_vector<float>&> && !mpi_takes<fake_vector<float>> &&
              !mpi_takes<const fake_vector<float>&>);
static_assert(mpi_takes<std::vector<float>&> && mpi_takes<std::vector<float>>);

}  // namespace

TEST_CASE("device memory is reduced and broadcast", "[coordinator][device]") {
  on_devices([](auto world, auto coord, device_script& script) -> asio::awaitable<void> {
    const int ranks = world.size();
    fake_vector<float> sum(ramp(5, world.rank()));
    co_await coord.all_reduce("sum", sum, op::sum);
    CHECK(sum.values() == sum_of_ramps(5, ranks));
    fake_vector<int> sent(std::vector<int>(3, world.rank() + 7));
    co_await coord.broadcast("cast", sent, ranks - 1);
    CHECK(sent.values() == std::vector<int>(3, ranks + 6));
    CHECK(script.started == std::vector<std::string>{"all_reduce 1", "broadcast 1"});
    CHECK(script.on_streams == 0);
    CHECK(coord.stats().by_device.operations == 2);
    CHECK(coord.stats().by_device.bytes == 5 * sizeof(float) + 3 * sizeof(int));
  });
}

TEST_CASE("every named reduction of device memory", "[coordinator][device]") {
  on_devices([](auto world, auto coord, device_script&) -> asio::awaitable<void> {
    const int ranks = world.size();
    const int rank = world.rank();
    fake_vector<float> mean(std::vector<float>(3, static_cast<float>(rank)));
    co_await coord.all_reduce("average", mean, op::average);
    CHECK(mean.values() == std::vector<float>(3, static_cast<float>(ranks - 1) / 2));
    fake_vector<int> truncated(std::vector<int>(2, rank));
    co_await coord.all_reduce("integers", truncated, op::average);
    CHECK(truncated.values() == std::vector<int>(2, ranks * (ranks - 1) / 2 / ranks));
    fake_vector<int> least(std::vector<int>(2, rank - 1));
    co_await coord.all_reduce("min", least, op::min);
    CHECK(least.values() == std::vector<int>(2, -1));
    fake_vector<int> most(std::vector<int>(2, rank));
    co_await coord.all_reduce("max", most, op::max);
    CHECK(most.values() == std::vector<int>(2, ranks - 1));
    fake_vector<int> product(std::vector<int>(2, 2));
    co_await coord.all_reduce("product", product, op::product);
    CHECK(product.values() == std::vector<int>(2, 1 << ranks));

    cohort::call_options scaled;
    scaled.prescale = 2;
    scaled.postscale = 0.5;
    const fake_vector<double> in(std::vector<double>(4, rank + 1));
    fake_vector<double> out(4);
    co_await coord.all_reduce("scaled", in, out, op::sum, scaled);
    CHECK(out.values() == std::vector<double>(4, ranks * (ranks + 1) / 2));
    CHECK(in.values() == std::vector<double>(4, rank + 1));

    fake_vector<float> rooted(ramp(3, rank));
    co_await coord.reduce("reduce", rooted, op::sum, 0);
    CHECK(rooted.values() == (rank == 0 ? sum_of_ramps(3, ranks) : ramp(3, rank)));
    const fake_vector<float> whole(ramp(7, rank));
    const fake_vector<float> part = co_await coord.reduce_scatter("parts", whole, op::sum);
    const auto all = sum_of_ramps(7, ranks);
    std::size_t begin = 0;
    for (int each = 0; each < rank; ++each) begin += cohort::coordination::part_of(7, each, ranks);
    const auto from = all.begin() + static_cast<std::ptrdiff_t>(begin);
    CHECK(part.values() ==
          std::vector<float>(from, from + static_cast<std::ptrdiff_t>(part.size())));
    CHECK(part.size() == cohort::coordination::part_of(7, rank, ranks));
  });
}

TEST_CASE("device memory is moved", "[coordinator][device]") {
  struct pair {
    std::int16_t a;
    std::int16_t b;
  };
  on_devices([](auto world, auto coord, device_script& script) -> asio::awaitable<void> {
    const int ranks = world.size();
    const int rank = world.rank();
    const fake_vector<int> mine(std::vector<int>(2, rank));
    const fake_vector<int> gathered = co_await coord.gather("gather", mine, ranks - 1);
    std::vector<int> expected;
    for (int each = 0; each < ranks; ++each) expected.insert(expected.end(), 2, each);
    CHECK(gathered.values() == (rank == ranks - 1 ? expected : std::vector<int>()));

    fake_vector<int> own(2);
    const fake_vector<int> given(rank == 0 ? expected : std::vector<int>());
    co_await coord.scatter("scatter", given, own, 0);
    CHECK(own.values() == std::vector<int>(2, rank));

    const fake_vector<int> uneven(std::vector<int>(static_cast<std::size_t>(rank) + 1, rank));
    const fake_vector<int> all = co_await coord.all_gather("all", uneven);
    expected.clear();
    for (int each = 0; each < ranks; ++each) {
      expected.insert(expected.end(), static_cast<std::size_t>(each) + 1, each);
    }
    CHECK(all.values() == expected);

    // Rank r sends s + 1 elements to rank s.
    std::vector<std::int64_t> splits;
    std::vector<int> values;
    for (int to = 0; to < ranks; ++to) {
      splits.push_back(to + 1);
      values.insert(values.end(), static_cast<std::size_t>(to) + 1, 10 * rank + to);
    }
    const fake_vector<int> sent(values);
    auto [come, counts] = co_await coord.all_to_all("each", sent, splits);
    expected.clear();
    for (int from = 0; from < ranks; ++from) {
      expected.insert(expected.end(), static_cast<std::size_t>(rank) + 1, 10 * from + rank);
    }
    CHECK(come.values() == expected);
    CHECK(counts == std::vector<std::size_t>(static_cast<std::size_t>(ranks),
                                             static_cast<std::size_t>(rank) + 1));
    CHECK(script.added == 2);  // results that were made after the sizes had been told

    fake_vector<pair> structs(std::vector<pair>{{static_cast<std::int16_t>(rank), 3}});
    co_await coord.broadcast("structs", structs, 0);
    CHECK(structs.values().front().a == 0);
    CHECK(structs.values().front().b == 3);
    fake_vector<float> nothing(0);
    co_await coord.all_reduce("nothing", nothing, op::sum);
  });
}

TEST_CASE("bundles of device memory", "[coordinator][device]") {
  on_devices([](auto world, auto coord, device_script& script) -> asio::awaitable<void> {
    const int ranks = world.size();
    fake_vector<float> a(ramp(3, world.rank()));
    fake_vector<int> b(std::vector<int>(2, 1));
    cohort::bundle both("both");
    both.add("a", a).add("b", b);
    co_await coord.grouped_all_reduce(both, op::sum);
    CHECK(a.values() == sum_of_ramps(3, ranks));
    CHECK(b.values() == std::vector<int>(2, ranks));
    co_await coord.grouped_reduce(both, op::sum, 0);
    CHECK(b.values() == std::vector<int>(2, world.rank() == 0 ? ranks * ranks : ranks));
    co_await coord.grouped_broadcast(both, 0);
    CHECK(b.values() == std::vector<int>(2, ranks * ranks));
    CHECK(script.started == std::vector<std::string>{"all_reduce 2", "reduce 2", "broadcast 2"});

    std::vector<float> host(3);
    CHECK_THROWS_WITH(both.add("host", host),
                      Catch::Matchers::ContainsSubstring("'host' is in another memory space"));
    cohort::gathered_bundle all = co_await coord.grouped_gather(both, 0);
    cohort::gathered_bundle parts = co_await coord.grouped_reduce_scatter(both, op::max);
    using vector = fake_vector<int>;
    CHECK_THROWS_WITH(all.take<fake_vector<float>>("b"),
                      Catch::Matchers::ContainsSubstring("no 'b' of this class"));
    CHECK(all.take<vector>("b").values() ==
          std::vector<int>(world.rank() == 0 ? 2 * world.size() : 0, ranks * ranks));
    const int mine = 2 / world.size() + (world.rank() < 2 % world.size() ? 1 : 0);
    CHECK(parts.take<vector>("b").values() ==
          std::vector<int>(static_cast<std::size_t>(mine), ranks * ranks));
    CHECK(script.started.size() == 5);
  });
}

TEST_CASE("streams are marked at submission, not when all ranks are there",
          "[coordinator][device]") {
  on_devices([](auto world, auto coord, device_script& script) -> asio::awaitable<void> {
    const fake_stream stream;
    fake_vector<float> data(ramp(4, world.rank()));
    if (world.rank() != 0) co_await meet(world);  // until rank 0 has submitted, and counted
    cohort::call_options options;
    options.on = stream;
    options.ends = cohort::until::enqueued;
    const int before = script.marks;
    auto done = coord.all_reduce("w", data, op::sum, options, as_future);
    CHECK(script.marks == before + 1);
    CHECK(script.on_streams == 1);
    CHECK(stream.handles() == 2);  // it may go now
    CHECK((world.rank() != 0 || script.started.empty()));
    if (world.rank() == 0) co_await meet(world);
    co_await std::move(done);
    CHECK(data.values() == sum_of_ramps(4, world.size()));
    CHECK(script.ends == std::vector<cohort::until>{cohort::until::enqueued});
    CHECK(stream.handles() == 1);
    co_await coord.all_reduce("w", data, op::sum, {.on = stream, .ends = cohort::until::enqueued});
    co_await coord.all_reduce("w", data, op::sum);
    CHECK(script.ends.back() == cohort::until::complete);
  });
}

TEST_CASE("a buffer may go before its operation has ended, and one moved in comes back",
          "[coordinator][device]") {
  const int alive = cohort_test::locked_memory::alive;
  on_devices([alive](auto world, auto coord, device_script& script) -> asio::awaitable<void> {
    const int ranks = world.size();
    script.holds_data = true;
    fake_vector<float> moved(ramp(3, world.rank()));
    const float* const place = moved.data();
    auto first = coord.all_reduce("moved", std::move(moved), op::sum, as_future);
    auto gone = std::make_unique<fake_vector<float>>(ramp(2, world.rank()));
    auto second = coord.broadcast("gone", *gone, 0, as_future);
    auto kept = std::make_unique<fake_vector<float>>(ramp(1, world.rank()));
    auto third = coord.all_gather("kept", *kept, as_future);
    gone.reset();
    kept.reset();
    CHECK(cohort_test::locked_memory::alive >= alive + 3);
    script.holds_data = false;
    script.let_run();
    const fake_vector<float> back = co_await std::move(first);
    CHECK(back.data() == place);
    CHECK(back.values() == sum_of_ramps(3, ranks));
    co_await std::move(second);
    const fake_vector<float> all = co_await std::move(third);
    CHECK(all.size() == static_cast<std::size_t>(ranks));
  });
  CHECK(cohort_test::locked_memory::alive == alive);
}

TEST_CASE("operations on device memory start in one order on all ranks", "[coordinator][device]") {
  on_devices([](auto world, auto coord, device_script& script) -> asio::awaitable<void> {
    constexpr int count = 60;
    std::vector<fake_vector<float>> data;
    std::vector<std::vector<float>> host;
    std::vector<int> order(count);
    std::iota(order.begin(), order.end(), 0);
    std::mt19937 random(static_cast<unsigned>(world.rank()) + 11);
    std::shuffle(order.begin(), order.end(), random);
    for (int i = 0; i < count; ++i) {
      data.emplace_back(ramp(static_cast<std::size_t>(i % 5) + 1, world.rank()));
      host.push_back(ramp(static_cast<std::size_t>(i % 5) + 1, world.rank()));
    }
    std::vector<cohort::future<void>> all;
    std::vector<cohort::future<fake_vector<float>>> gathered;
    for (const int i : order) {
      const std::string name = std::to_string(i);
      auto& one = data[static_cast<std::size_t>(i)];
      if (i % 3 == 0) {
        gathered.push_back(coord.all_gather("g" + name, one, as_future));
      } else {
        all.push_back(coord.all_reduce("d" + name, one, op::sum, as_future));
      }
      all.push_back(
          coord.all_reduce("h" + name, host[static_cast<std::size_t>(i)], op::sum, as_future));
      if (i % 7 == 0) co_await asio::post(asio::use_awaitable);
    }
    for (auto& each : all) co_await std::move(each);
    for (auto& each : gathered) co_await std::move(each);
    for (int i = 0; i < count; ++i) {
      const auto at = static_cast<std::size_t>(i);
      const auto expected = sum_of_ramps(host[at].size(), world.size());
      CHECK(host[at] == expected);
      if (i % 3 != 0) CHECK(data[at].values() == expected);
    }
    CHECK(std::is_sorted(script.sequences.begin(), script.sequences.end()));
    const auto sequences = co_await coord.all_gather_object("sequences", script.sequences);
    const auto started = co_await coord.all_gather_object("started", script.started);
    for (const auto& each : sequences) CHECK(each == script.sequences);
    for (const auto& each : started) CHECK(each == script.started);
    // Of host and device together there were twice as many: none has been in the other's pack.
    CHECK(std::accumulate(script.tensors.begin(), script.tensors.end(), std::size_t{0}) == count);
  });
}

TEST_CASE("tensors on a device share a pack", "[coordinator][device]") {
  cohort::coordinator_options options;
  options.frozen_plan = {{"a", "host", "b", "c"}};
  on_devices(
      [](auto world, auto coord, device_script& script) -> asio::awaitable<void> {
        fake_vector<float> a(ramp(3, world.rank()));
        fake_vector<float> b(ramp(4, world.rank()));
        fake_vector<float> c(ramp(5, world.rank()));
        std::vector<float> host = ramp(3, world.rank());
        cohort::call_options enqueued;
        enqueued.ends = cohort::until::enqueued;
        auto one = coord.all_reduce("a", a, op::sum, as_future);
        auto two = coord.all_reduce("b", b, op::sum, enqueued, as_future);
        auto three = coord.all_reduce("c", c, op::sum, as_future);
        auto four = coord.all_reduce("host", host, op::sum, as_future);
        co_await std::move(one);
        co_await std::move(two);
        co_await std::move(three);
        co_await std::move(four);
        CHECK(c.values() == sum_of_ramps(5, world.size()));
        CHECK(host == sum_of_ramps(3, world.size()));
        CHECK(script.started == std::vector<std::string>{"all_reduce 1", "all_reduce 2"});
        // Enqueued only where all of a pack want no more.
        CHECK(script.ends == std::vector<cohort::until>(2, cohort::until::complete));
        CHECK(coord.stats().by_device.operations == 2);
        CHECK(coord.stats().by_device.bytes == 12 * sizeof(float));
        CHECK(coord.stats().by_mpi.bytes == 3 * sizeof(float));
      },
      options);
}

TEST_CASE("sizes that are told late keep their place in the order", "[coordinator][device]") {
  on_devices([](auto world, auto coord, device_script& script) -> asio::awaitable<void> {
    const auto rows = static_cast<std::size_t>(world.rank()) + 1;
    for (int round = 0; round < 2; ++round) {
      const fake_vector<float> mine(ramp(rows, world.rank()));
      fake_vector<float> data(ramp(4, world.rank()));
      auto gathered = coord.all_gather("g", mine, as_future);
      auto reduced = coord.all_reduce("r", data, op::sum, as_future);
      const fake_vector<float> all = co_await std::move(gathered);
      co_await std::move(reduced);
      CHECK(all.size() == static_cast<std::size_t>(world.size() * (world.size() + 1) / 2));
      CHECK(data.values() == sum_of_ramps(4, world.size()));
    }
    // What was new had its place before the sizes were known; what was not, comes with them.
    const auto first = std::find(script.started.begin(), script.started.end(), "all_gather 1");
    REQUIRE(first != script.started.end());
    CHECK_FALSE(script.sized_at_start[static_cast<std::size_t>(first - script.started.begin())]);
    const auto second = std::find(first + 1, script.started.end(), "all_gather 1");
    REQUIRE(second != script.started.end());
    CHECK(script.sized_at_start[static_cast<std::size_t>(second - script.started.begin())]);
    CHECK(std::is_sorted(script.sequences.begin(), script.sequences.end()));
    const auto rows_of_all = static_cast<std::size_t>(world.size() * (world.size() + 1) / 2);
    CHECK(coord.stats().by_device.operations == 4);
    CHECK(coord.stats().by_device.bytes == 2 * (rows_of_all + 4) * sizeof(float));
  });
}

TEST_CASE("ranks that have joined bring neutral elements to devices", "[coordinator][device]") {
  on_devices([](auto world, auto coord, device_script& script) -> asio::awaitable<void> {
    const int ranks = world.size();
    const bool joins = world.rank() == ranks - 1 && ranks > 1;
    const int active = ranks > 1 ? ranks - 1 : 1;
    if (!joins) {
      fake_vector<float> mean(std::vector<float>(3, 6));
      co_await coord.all_reduce("mean", mean, op::average);
      CHECK(mean.values() == std::vector<float>(3, 6));
      fake_vector<int> least(std::vector<int>(2, 5));
      co_await coord.all_reduce("min", least, op::min);
      CHECK(least.values() == std::vector<int>(2, 5));
      const fake_vector<float> mine(ramp(2, world.rank()));
      const fake_vector<float> all = co_await coord.all_gather("all", mine);
      CHECK(all.size() == 2 * static_cast<std::size_t>(active));
      fake_vector<float> a(std::vector<float>(3, 1));
      fake_vector<double> b(std::vector<double>(1, 2));
      co_await coord.grouped_all_reduce(cohort::bundle("two").add("a", a).add("b", b), op::sum);
      CHECK(a.values() == std::vector<float>(3, static_cast<float>(active)));
      CHECK(b.values() == std::vector<double>(1, 2 * active));
      const fake_vector<float> part = co_await coord.reduce_scatter("part", mine, op::sum);
      CHECK(part.size() == cohort::coordination::part_of(2, world.rank(), ranks));
    }
    co_await coord.join();
    CHECK(script.started.size() == 5);
    for (const bool each : script.all_bring) CHECK(each == (ranks == 1));
  });
}

TEST_CASE("what is submitted before the device is open waits for it", "[coordinator][device]") {
  on_world([](cohort::communicator world) -> asio::awaitable<void> {
    const fake_backend backend;
    backend.script->holds_open = true;
    cohort::coordinator coord(world, backend);
    co_await coord.barrier();  // memory of the host does not wait
    fake_vector<float> data(ramp(4, world.rank()));
    auto done = coord.all_reduce("w", data, op::sum, as_future);
    co_await coord.barrier();  // elected later, so the other has been started
    CHECK(backend.script->started.size() == 1);
    CHECK_FALSE(done.is_ready());
    backend.script->let_open();
    co_await std::move(done);
    CHECK(data.values() == sum_of_ramps(4, world.size()));
    co_await coord.shutdown();
  });
}

TEST_CASE("a persistent group of device memory", "[coordinator][device]") {
  on_devices([](auto world, auto coord, device_script& script) -> asio::awaitable<void> {
    const int ranks = world.size();
    fake_vector<float> a(std::vector<float>(3, 1));
    fake_vector<int> b(std::vector<int>(2, 1));
    cohort::bundle both("both");
    both.add("a", a).add("b", b);
    const fake_stream stream;
    cohort::call_options options;
    options.on = stream;
    options.ends = cohort::until::enqueued;
    const auto group = co_await coord.make_persistent(both, op::sum, options);
    CHECK(script.marks == 0);
    int expected = 1;
    for (int round = 0; round < 3; ++round) {
      // Every start takes its place among what else is on the device, whoever calls first.
      fake_vector<float> other(ramp(2, world.rank()));
      auto before = world.rank() % 2 == 0 ? group.start(as_future)
                                          : coord.all_reduce("o", other, op::sum, as_future);
      auto after = world.rank() % 2 != 0 ? group.start(as_future)
                                         : coord.all_reduce("o", other, op::sum, as_future);
      CHECK(script.marks == 2 * round + 2);
      CHECK(script.on_streams == round + 1);
      co_await std::move(before);
      co_await std::move(after);
      expected *= ranks;
      CHECK(a.values() == std::vector<float>(3, static_cast<float>(expected)));
      CHECK(b.values() == std::vector<int>(2, expected));
    }
    const auto started = co_await coord.all_gather_object("started", script.started);
    for (const auto& each : started) CHECK(each == script.started);
    CHECK(std::count(script.ends.begin(), script.ends.end(), cohort::until::enqueued) == 3);
    co_await group.remove();
    const auto late = co_await caught<cohort::error>(group.start());
    REQUIRE(late);
    CHECK(late->code() == errc::not_accepting);
    const auto refused = co_await caught<cohort::error>(
        coord.make_persistent(cohort::bundle("bits").add("b", b), op::bit_or));
    REQUIRE(refused);
    CHECK(refused->code() == errc::not_supported);
  });
}
