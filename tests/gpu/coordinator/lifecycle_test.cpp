// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

/// \file How coordinators on devices come and go, what becomes of memory meanwhile, and who is
/// refused.

#include "support.hpp"

namespace {

using namespace cohort_test;
using cohort::communicator;
using cohort::coordinator;
using cohort::errc;

/// Reductions of all ranks but one, which has joined; `first` is the first of the others.
asio::awaitable<void> reduces_without_one(coordinator coord, int first,
                                          cohort::call_options factors) {
  const int active = coord.size() - 1;
  const device::stream on;
  const int mine = -5 - coord.rank();
  auto least = co_await filled(on, 7, std::int32_t{mine});
  auto mean = co_await filled(on, 9, std::int32_t{mine});
  auto value = co_await filled(on, 11, static_cast<float>(mine));
  auto scaled = co_await filled(on, 13, static_cast<double>(mine));
  co_await coord.all_reduce("max", least, op::max);
  co_await coord.all_reduce("mean", mean, op::average);
  co_await coord.all_reduce("half", value, op::average);
  co_await coord.all_reduce("scaled", scaled, op::sum, factors);
  int sum = 0;
  for (int rank = first; rank < first + active; ++rank) sum += -5 - rank;
  CHECK(co_await now_in(least) == std::vector<std::int32_t>(7, -5 - first));
  CHECK(co_await now_in(mean) == std::vector<std::int32_t>(9, sum / active));
  const auto means = co_await now_in(value);
  CHECK(means.front() == Approx(static_cast<float>(sum) / static_cast<float>(active)));
  const double factor = factors.prescale * factors.postscale;
  CHECK(co_await now_in(scaled) == std::vector<double>(13, factor * sum));
}

}  // namespace

TEST_CASE("a second coordinator on a device is refused on all ranks while the first has it") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    const cohort::log::capture log;
    auto beside = co_await world.dup();
    device::stream on;
    auto values = co_await filled(on, 4, 1.0F);
    {
      coordinator first(world, nccl::backend());
      co_await sums(first, "before");
      {
        coordinator second(beside, nccl::backend());
        auto refused = caught<cohort::rank_error>(second.all_reduce("second", values, op::sum));
        const auto why = co_await std::move(refused);
        REQUIRE(why);
        CHECK(why->code() == errc::device_ordered);
        CHECK(why->ranks().size() == static_cast<std::size_t>(world.size()));
        co_await second.shutdown();
      }
      co_await sums(first, "after");
      co_await first.shutdown();
    }
    auto later = co_await world.dup();
    coordinator next(later, nccl::backend());
    co_await sums(next, "next");
    co_await next.shutdown();
  });
}

DOUBLE_TEST_CASE("one device for two ranks is one error on all ranks of a coordinator") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    if (world.size() < 2) co_return;
    const cohort::log::capture log;
    if (world.rank() < 2) fake_gpu::set_bus_id(0, 7);
    device::stream on;
    auto values = co_await filled(on, 4, 1.0F);
    coordinator coord(world, nccl::backend());
    auto refused = caught<cohort::rank_error>(coord.all_reduce("it", values, op::sum));
    const auto why = co_await std::move(refused);
    REQUIRE(why);
    CHECK(why->code() == errc::wrong_device);
    CHECK(why->ranks() == std::vector<int>{0, 1});
    co_await coord.shutdown();
  });
}

DOUBLE_TEST_CASE("a rank without a device is one error on all ranks of a coordinator") {
  const bool everywhere = GENERATE(false, true);
  on_gpus([everywhere](communicator world) -> asio::awaitable<void> {
    const cohort::log::capture log;
    const int last = world.size() - 1;
    const bool has_none = everywhere || world.rank() == last;
    if (has_none) fake_gpu::fail_count(cudaErrorNoDevice);
    coordinator coord(world, nccl::backend());
    ending end;
    // It cannot be elected, so what ends it is the opening.
    std::vector<int> host(1);
    if (world.size() == 1) {
      CHECK(co_await soon([&] { return log.contains("no NCCL communicator can be made"); }));
    }
    coord.all_reduce("of rank " + std::to_string(world.rank()), host, op::sum, end.handler());
    CHECK(co_await soon([&] { return end.over; }));
    CHECK(end.code() == errc::no_device);
    CHECK(has(end.text(), "rank " + std::to_string(last) + " on "));
    co_await coord.shutdown();
    CHECK(fake_nccl::calls("ncclCommInitRankConfig") == 0);
  });
}

TEST_CASE("a buffer on another device is refused by name, and the other ranks hear of it") {
  const auto body = [](communicator world) -> asio::awaitable<void> {
    const cohort::log::capture log;
    nccl::backend_options options;
    options.communicator.device = 0;
    coordinator coord(world, nccl::backend(options));
    const device::stream here(0);
    const device::stream there(1);
    const bool wrong = world.rank() == world.size() - 1;
    device::vector<float> values(4, wrong ? there : here);
    ending end;
    coord.all_reduce("it", values, op::sum, end.handler());
    CHECK(co_await soon([&] { return end.over; }));
    if (wrong) {
      CHECK(end.code() == errc::wrong_device);
      CHECK(has(end.text(), "device=1"));
    } else {
      CHECK(has(end.text(), "withdrawn by rank " + std::to_string(world.size() - 1)));
    }
    device::vector<float> good(4, here);
    ending named;
    coord.all_reduce("on", good, op::sum, {.on = there}, named.handler());
    CHECK(co_await soon([&] { return named.over; }));
    CHECK(named.code() == errc::wrong_device);
    CHECK(has(named.text(), "on: device=1"));
    co_await coord.shutdown();
  };
  on_gpus(body, false, 2);
}

TEST_CASE("buffers that overlap otherwise than in place are refused by name") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    coordinator coord(world, nccl::backend());
    const bool wrong = world.rank() == world.size() - 1;
    const device::stream on;
    auto values = co_await filled(on, 12, 1.0F);
    const device::span<float> all(values);
    const auto from = all.subspan(0, 8);
    const auto to = all.subspan(wrong ? 4 : 0, 8);
    ending end;
    coord.all_reduce("it", from, to, op::sum, end.handler());
    CHECK(co_await soon([&] { return end.over; }));
    if (wrong) {
      CHECK(end.code() == errc::invalid_argument);
      CHECK(has(end.text(), "in and out overlap in device memory"));
    } else {
      CHECK(has(end.text(), "withdrawn by rank " + std::to_string(world.size() - 1)));
    }
    auto part = all.subspan(6, 6);
    auto whole = all;
    ending members;
    coord.grouped_all_reduce(cohort::bundle("twice").add("whole", whole).add("part", part), op::sum,
                             members.handler());
    CHECK(co_await soon([&] { return members.over; }));
    CHECK(members.code() == errc::invalid_argument);
    co_await coord.all_reduce("in place", all, all, op::sum);
    const auto found = co_await now_in(values);
    CHECK(found == std::vector<float>(12, static_cast<float>(world.size())));
    co_await coord.shutdown();
  });
}

TEST_CASE("memory may go while an operation is enqueued, and what is moved in comes back") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    coordinator coord(world, nccl::backend());
    const auto ranks = static_cast<float>(world.size());
    device::stream on;
    device::vector<float> kept(100, on);
    {
      auto borrowed = co_await filled(on, 100, 1.0F);
      co_await coord.all_reduce("borrowed", borrowed, op::sum,
                                {.on = on, .ends = cohort::until::enqueued});
      device::copy(on, borrowed, kept);
    }
    CHECK(co_await now_in(kept) == std::vector<float>(100, ranks));
    auto mine = co_await filled(on, 100, 2.0F);
    const float* const before = mine.data();
    auto back = co_await coord.all_reduce("moved", std::move(mine), op::sum);
    CHECK(back.data() == before);
    CHECK(co_await now_in(back) == std::vector<float>(100, 2 * ranks));
    co_await sums(coord, "before it");
    std::weak_ptr<const void> memory;
    {
      auto last = co_await filled(on, 100, 3.0F);
      memory = last.lease();
      coord.all_reduce("detached", std::move(last), op::sum, asio::detached);
      CHECK_FALSE(memory.expired());
    }
    co_await sums(coord, "behind it");
    CHECK(co_await soon([&] { return memory.expired(); }));
    co_await coord.shutdown();
  });
}

TEST_CASE("handles may be dropped with operations in flight") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    device::stream on;
    auto values = co_await filled(on, 100, 1.0F);
    ending end;
    {
      coordinator coord(world, nccl::backend());
      coord.all_reduce("it", values, op::sum, end.handler());
    }
    CHECK(co_await soon([&] { return end.over; }));
    CHECK(end.well());
    CHECK(co_await now_in(values) == std::vector<float>(100, static_cast<float>(world.size())));
  });
}

TEST_CASE("ranks that have joined bring neutral elements on their devices") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    if (world.size() < 2) co_return;
    const auto coord = co_await opened(world);
    const int active = world.size() - 1;
    if (world.rank() != active) co_await reduces_without_one(coord, 0, {.prescale = 2});
    const auto newest = co_await coord.join();
    CHECK(newest == active - 1);
    co_await sums(coord, "after");
    co_await coord.shutdown();
  });
}

TEST_CASE("ranks that have joined bring neutral elements to reductions over nodes") {
  const int ranks_of_node = GENERATE(1, 2);
  const bool first_joins = GENERATE(false, true);  // it is the leader of its node
  on_gpus([=](communicator world) -> asio::awaitable<void> {
    if (world.size() < 2) co_return;
    const auto coord = co_await opened(world, over_nodes(world, ranks_of_node));
    const int joins = first_joins ? 0 : world.size() - 1;
    const cohort::call_options factors{.prescale = 2, .postscale = 3};
    if (world.rank() != joins) {
      co_await reduces_without_one(coord, first_joins ? 1 : 0, factors);
    }
    static_cast<void>(co_await coord.join());
    co_await sums(coord, "after");
    co_await coord.shutdown();
  });
}

TEST_CASE("a rank that leaves ends what needs it, and what is on the devices completes") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    if (world.size() < 2) co_return;
    device::stream on;
    auto values = co_await filled(on, 100, 1.0F);
    coordinator coord(world, nccl::backend());
    ending first;
    coord.all_reduce("all have it", values, op::sum, first.handler());
    if (world.rank() != 0) {
      auto more = co_await filled(on, 10, 1.0F);
      ending second;
      coord.all_reduce("not on rank 0", more, op::sum, second.handler());
      CHECK(co_await soon([&] { return second.over; }));
      CHECK(second.code() == errc::peer_lost);
    }
    co_await coord.shutdown();
    CHECK(first.well());
    CHECK(co_await now_in(values) == std::vector<float>(100, static_cast<float>(world.size())));
  });
}

TEST_CASE("a cancelled operation ends at once before its election, and completes after it") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    if (world.size() < 2) co_return;
    auto coord = co_await opened(world);
    device::stream on;
    auto values = co_await filled(on, 10, 1.0F);
    if (world.rank() == 0) {
      auto early = coord.all_reduce("early", values, op::sum, cohort::as_future);
      early.cancel();
      auto code = co_await code_of(static_cast<asio::awaitable<void>&&>(std::move(early)));
      CHECK(code == asio::error::operation_aborted);
    }
    auto& source = asio::use_service<nccl::issue_source>(world.get_executor().context());
    co_await meet(world);
    held_stream held(source.domain_of(values.device()));
    auto late = coord.all_reduce("late", values, op::sum, cohort::as_future);
    CHECK(co_await soon([&] { return is_started(coord, "late"); }));
    late.cancel();
    held.let_go();
    co_await std::move(late);
    CHECK(co_await now_in(values) == std::vector<float>(10, static_cast<float>(world.size())));
    co_await coord.shutdown();
  });
}

DOUBLE_TEST_CASE(
    "an unchanged step makes one call of NCCL for a pack and allocates nothing on the device") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    coordinator coord(world, nccl::backend());
    device::stream on;
    std::vector<device::vector<float>> gradients;
    for (std::size_t i = 0; i < 20; ++i) gradients.push_back(co_await filled(on, 50 + i, 1.0F));
    std::uint64_t allocations = 0;
    std::uint64_t calls = 0;
    for (int step = 0; step < 6; ++step) {
      if (step == 2) {  // both buffers for packs are there
        allocations = fake_gpu::calls("cudaMallocAsync") + fake_gpu::calls("cudaMalloc") +
                      fake_gpu::calls("cudaHostAlloc");
        calls = fake_nccl::calls("ncclAllReduce");
      }
      cohort::bundle all("gradients");
      for (std::size_t i = 0; i < gradients.size(); ++i) {
        all.add(std::to_string(i), gradients[i]);
      }
      co_await coord.grouped_all_reduce(std::move(all), op::max);
    }
    CHECK(fake_gpu::calls("cudaMallocAsync") + fake_gpu::calls("cudaMalloc") +
              fake_gpu::calls("cudaHostAlloc") ==
          allocations);
    CHECK(fake_nccl::calls("ncclAllReduce") - calls == 4);
    co_await coord.shutdown();
  });
}

DOUBLE_TEST_CASE("a coordinator may reduce over nodes, and a fault in between ends all") {
  const bool fails = GENERATE(false, true);
  on_gpus([fails](communicator world) -> asio::awaitable<void> {
    const cohort::log::capture log;
    auto coord = co_await opened(world, over_nodes(world, 2));
    device::stream on;
    std::vector<device::vector<float>> values;
    for (std::size_t i = 0; i < 10; ++i) values.push_back(co_await filled(on, 50 + i, 1.0F));
    // With four ranks both nodes have a communicator of two, and there is one of all.
    const bool breaks = fails && world.size() == 4;
    co_await meet(world);
    if (breaks) {
      for (const ncclComm_t one : fake_nccl::communicators_of(2)) fake_nccl::hang_next(one);
    }
    co_await meet(world);
    std::deque<ending> ends;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::size_t k = (i * 3 + static_cast<std::size_t>(world.rank())) % values.size();
      coord.all_reduce(std::to_string(k), values[k], op::sum, ends.emplace_back().handler());
    }
    if (breaks) {
      const auto nodes = fake_nccl::communicators_of(2);
      REQUIRE(nodes.size() == 1);
      CHECK(co_await soon([&] { return fake_nccl::pending_kernels(nodes.front()) != 0; }));
      co_await meet(world);
      if (world.rank() == 3) fake_nccl::set_async_error(nodes.front(), ncclSystemError);
    }
    CHECK(co_await soon([&] { return all_over(ends); }));
    for (const ending& one : ends) {
      INFO(one.text());
      CHECK(one.well() != breaks);
      if (breaks) CHECK(one.is_data_error());
    }
    for (const auto& each : values) {
      if (breaks) break;
      CHECK(co_await now_in(each) ==
            std::vector<float>(each.size(), static_cast<float>(world.size())));
    }
    co_await coord.shutdown();
    CHECK(co_await soon([] { return fake_nccl::live_communicators() == 0; }));
  });
}

DOUBLE_TEST_CASE("a coordinator that was made while its predecessor closed holds the device") {
  on_gpus(
      [](communicator world) -> asio::awaitable<void> {
        const cohort::log::capture log;
        auto other = co_await world.dup();
        auto direct = co_await nccl::make_communicator(world);
        device::stream on;
        auto values = co_await filled(on, 5, 1.0F);
        auto more = co_await filled(on, 5, 1.0F);
        device::stream busy;
        auto filler = co_await filled(busy, 5, 1.0F);
        auto first = std::make_unique<coordinator>(world, nccl::backend());
        co_await sums(*first, "first");
        fake_gpu::hold(busy.get());  // what its successor takes waits for the device
        device::fill(busy, filler, 2.0F);
        coordinator second(other, nccl::backend());
        co_await pause(100ms);
        co_await first->shutdown();
        first.reset();
        fake_gpu::release(busy.get());
        ending end;
        second.all_reduce("x", more, op::sum, end.handler());
        CHECK(co_await soon([&] { return end.over; }));
        INFO(end.text());
        CHECK(end.well());
        outcome held;
        nccl::all_reduce(direct, on, values, op::sum, held.handler());
        CHECK(co_await soon([&] { return held.over; }));
        CHECK(held.code == errc::device_ordered);
        co_await second.shutdown();
        co_await nccl::all_reduce(direct, on, values, op::sum);
      },
      true);
}

DOUBLE_TEST_CASE("what nobody of this rank brings is gathered on the coordinator's device") {
  const gpus_of_ranks machine(2);
  device::set_default(0);
  on_world([](communicator world) -> asio::awaitable<void> {
    nccl::backend_options options;
    options.communicator.device = 1;
    coordinator coord(world, nccl::backend(options));
    const device::stream here(1);
    const bool is_last = world.rank() == world.size() - 1;
    const device::vector<int> mine = is_last ? device::vector<int>() : device::vector<int>(4, here);
    const auto others = 4 * static_cast<std::size_t>(world.size() - 1);
    auto gathering = coord.all_gather("g", mine);
    const device::vector<int> all = co_await std::move(gathering);
    CHECK(all.size() == others);
    CHECK(all.device() == 1);
    const std::vector<std::size_t> counts(static_cast<std::size_t>(world.size()), 0);
    auto exchanging = coord.all_to_all("e", device::vector<int>(), counts);
    const auto [none, sizes] = co_await std::move(exchanging);
    CHECK(none.empty());
    CHECK(sizes.size() == counts.size());
    co_await coord.shutdown();
  });
}

DOUBLE_TEST_CASE("an empty vector of another device is refused as others are") {
  const gpus_of_ranks machine(2);
  device::set_default(1);
  on_world([](communicator world) -> asio::awaitable<void> {
    const cohort::log::capture log;
    nccl::backend_options options;
    options.communicator.device = 1;
    coordinator coord(world, nccl::backend(options));
    const bool is_last = world.rank() == world.size() - 1;
    const device::stream elsewhere(is_last ? 0 : 1);
    const device::vector<int> mine(is_last ? 0 : 4, elsewhere);
    ending end;
    coord.all_gather("g", mine, end.handler());
    CHECK(co_await soon([&] { return end.over; }));
    INFO(end.text());
    CHECK_FALSE(end.well());
    if (is_last) CHECK(end.code() == errc::wrong_device);
    co_await sums(coord, "after");
    co_await coord.shutdown();
  });
}

TEST_CASE("a coordinator has one device in each process") {
  const gpus_of_ranks machine(2);
  if (machine.lacks()) return;
  on_world([](communicator world) -> asio::awaitable<void> {
    const cohort::log::capture log;
    auto other = co_await world.dup();
    const std::vector<int> both = {0, 1};
    {
      auto several = co_await nccl::make_communicators(world, both);
      std::error_code why;
      try {
        static_cast<void>(nccl::backend(several.front()));
      } catch (const std::system_error& refused) {
        why = refused.code();
      }
      CHECK(why == errc::not_supported);
    }
    nccl::backend_options options;
    options.communicator.device = 0;
    coordinator first(world, nccl::backend(options));
    const device::stream on(0);
    auto values = co_await filled(on, 4, 1.0F);
    co_await first.all_reduce("first", values, op::sum);
    {
      options.communicator.device = 1;
      coordinator second(other, nccl::backend(options));
      const device::stream there(1);
      auto more = co_await filled(there, 4, 1.0F);
      auto refused = caught<cohort::rank_error>(second.all_reduce("second", more, op::sum));
      const auto why = co_await std::move(refused);
      REQUIRE(why);
      CHECK(why->code() == errc::not_supported);
      co_await second.shutdown();
    }
    co_await first.all_reduce("again", values, op::sum);
    co_await first.shutdown();
  });
}
