// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

/// \file Persistent groups that are captured once and replayed.

#include "support.hpp"
#include "tensors_of_group.hpp"

namespace {

using namespace cohort_test;
using cohort::communicator;
using cohort::coordinator;
using cohort::errc;

[[nodiscard]] float sum_over(const communicator& world) {
  return static_cast<float>(world.size() * (world.size() + 1) / 2);
}

}  // namespace

TEST_CASE("a captured group reduces what its tensors hold at each replay") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    coordinator coord(world, nccl::backend());
    auto [all, group, captured] = co_await make_captured(coord, op::sum);
    CHECK(captured);
    co_await expect(all, 1.0F);  // nothing has run
    for (int step = 1; step < 5; ++step) {
      give(all, static_cast<float>((world.rank() + 1) * step));
      co_await group.replay(captured);
      co_await expect(all, sum_over(world) * static_cast<float>(step));
    }
    give(all, 1.0F);
    co_await group.start();  // a plain start beside it
    co_await expect(all, static_cast<float>(world.size()));
    captured = {};
    co_await group.remove();
    co_await coord.shutdown();
  });
}

DOUBLE_TEST_CASE("a replay is one launch of a graph, without a call of NCCL") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    coordinator coord(world, nccl::backend());
    auto [all, group, captured] = co_await make_captured(coord, op::sum);
    const auto launches = fake_gpu::calls("cudaGraphLaunch");
    const auto calls = fake_nccl::calls("ncclAllReduce");
    const auto groups = fake_nccl::calls("ncclGroupStart");
    const auto copies =
        fake_gpu::calls("cudaMemcpyAsync") + fake_gpu::calls("cudaMemcpyBatchAsync");
    CHECK(launches == 0);
    for (int step = 0; step < 5; ++step) co_await group.replay(captured);
    CHECK(fake_gpu::calls("cudaGraphLaunch") == 5);
    CHECK(fake_nccl::calls("ncclAllReduce") == calls);
    CHECK(fake_nccl::calls("ncclGroupStart") == groups);
    CHECK(fake_gpu::calls("cudaMemcpyAsync") + fake_gpu::calls("cudaMemcpyBatchAsync") == copies);
    captured = {};
    co_await coord.shutdown();
  });
}

TEST_CASE("replays keep one order with operations submitted in another order on each rank") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    coordinator coord(world, nccl::backend());
    auto [all, group, captured] = co_await make_captured(coord, op::average);
    device::stream beside;
    std::vector<device::vector<float>> others;
    for (std::size_t i = 0; i < 4; ++i) others.push_back(co_await filled(beside, 50 + i, 1.0F));
    float expected = 1.0F;
    for (std::size_t step = 0; step < 3; ++step) {
      give(all, static_cast<float>(world.rank() + 1));
      std::deque<ending> ends;
      for (std::size_t i = 0; i < 5; ++i) {
        const std::size_t k = (i + step + static_cast<std::size_t>(world.rank())) % 5;
        if (k == 4) {
          group.replay(captured, ends.emplace_back().handler());
        } else {
          coord.all_reduce(std::to_string(k), others[k], op::sum, ends.emplace_back().handler());
        }
      }
      CHECK(co_await soon([&] { return all_over(ends); }));
      for (const ending& one : ends) {
        INFO(one.text());
        CHECK(one.well());
      }
      expected *= static_cast<float>(world.size());
      co_await expect(all, sum_over(world) / static_cast<float>(world.size()));
      for (const auto& each : others) {
        CHECK(co_await now_in(each) == std::vector<float>(each.size(), expected));
      }
    }
    captured = {};
    co_await coord.shutdown();
  });
}

TEST_CASE("what follows an enqueued replay on its stream sees the result") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    coordinator coord(world, nccl::backend());
    auto [all, group, captured] = co_await make_captured(coord, op::sum);
    device::stream compute;
    device::vector<float> seen(1000, compute);
    device::pinned_vector<float> written(1000, compute);
    for (int step = 1; step < 4; ++step) {
      const auto value = static_cast<float>(step * (world.rank() + 1));
      std::fill(written.begin(), written.end(), value);
      device::copy(compute, written, all.b);
      co_await group.replay(captured, {.on = compute, .ends = cohort::until::enqueued});
      device::copy(compute, all.b, seen);
      CHECK(co_await read(compute, seen) ==
            std::vector<float>(1000, sum_over(world) * static_cast<float>(step)));
    }
    captured = {};
    co_await coord.shutdown();
  });
}

TEST_CASE("an enqueued replay over memory that no stream is ordered with is refused by name") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    coordinator coord(world, nccl::backend());
    device::stream on;
    auto owner = co_await filled(on, 10, 1.0F);
    const device::span<float> plain(owner.data(), owner.size());
    cohort::bundle one("plain");
    one.add("w", plain);
    auto group = co_await coord.make_persistent(std::move(one), op::sum);
    auto captured = co_await group.capture();
    const cohort::replay_options nowhere{.ends = cohort::until::enqueued};
    ending end;
    group.replay(captured, nowhere, end.handler());
    CHECK(co_await soon([&] { return end.over; }));
    INFO(end.text());
    CHECK(has(end.text(), "member: until::enqueued needs the option `on`"));
    CHECK(co_await now_in(owner) == std::vector<float>(10, 1.0F));
    const cohort::replay_options ordered{.on = on, .ends = cohort::until::enqueued};
    auto replayed = group.replay(captured, ordered);
    co_await std::move(replayed);
    const auto sum = static_cast<float>(world.size());
    CHECK(co_await now_in(owner) == std::vector<float>(10, sum));
    captured = {};
    co_await coord.shutdown();
  });
}

TEST_CASE("a rank that starts plainly where others capture or replay is a mismatch on all") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    if (world.size() < 2) co_return;
    coordinator coord(world, nccl::backend());
    auto all = co_await make_tensors();
    auto group = co_await coord.make_persistent(bundle_of(all), op::sum);
    {
      ending end;
      if (world.rank() == 0) group.start(end.handler());
      if (world.rank() != 0) group.capture(end.handler());
      CHECK(co_await soon([&] { return end.over; }));
      CHECK(end.code() == errc::cross_rank_mismatch);
      INFO(end.text());
      CHECK(has(end.text(), "start differs"));
      CHECK(has(end.text(), "plain on rank 0"));
      CHECK(has(end.text(), "capture on rank"));
    }
    auto first = co_await group.capture();
    auto second = co_await group.capture();
    {
      ending end;
      if (world.rank() == 0) group.start(end.handler());
      if (world.rank() != 0) group.replay(first, end.handler());
      CHECK(co_await soon([&] { return end.over; }));
      CHECK(end.code() == errc::cross_rank_mismatch);
      INFO(end.text());
      CHECK(has(end.text(), "replay of what start 2 captured on rank"));
    }
    {
      ending end;
      group.replay(world.rank() == 0 ? first : second, end.handler());
      CHECK(co_await soon([&] { return end.over; }));
      CHECK(end.code() == errc::cross_rank_mismatch);
    }
    co_await expect(all, 1.0F);
    co_await group.replay(second);
    co_await expect(all, static_cast<float>(world.size()));
    first = {};
    second = {};
    co_await group.remove();
    co_await coord.shutdown();
  });
}

TEST_CASE("a replay that a rank which leaves has not made ends with peer_lost") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    const cohort::log::capture log;
    auto all = co_await make_tensors();
    {
      coordinator coord(world, nccl::backend());
      auto group = co_await coord.make_persistent(bundle_of(all), op::sum);
      auto captured = co_await group.capture();
      co_await group.replay(captured);
      if (world.rank() != 0) {
        auto lost = caught<cohort::peer_lost_error>(group.replay(captured));
        const auto problem = co_await std::move(lost);
        CHECK(problem.has_value());
      }
    }
    co_await meet(world);
  });
}

TEST_CASE("what goes over the host between nodes is not captured, and told so on all ranks") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    nccl::backend_options options;
    options.hierarchical = true;
    coordinator coord(world, nccl::backend(options));
    auto all = co_await make_tensors();
    auto group = co_await coord.make_persistent(bundle_of(all), op::max, {.prescale = 2.0});
    {
      ending end;
      group.capture(end.handler());
      CHECK(co_await soon([&] { return end.over; }));
      CHECK(end.code() == errc::not_supported);
      INFO(end.text());
      CHECK(has(end.text(), "capture of persistent group 'step' of float32"));
      CHECK(has(end.text(), "over nodes it goes through the host"));
    }
    co_await group.start();
    co_await expect(all, 2.0F);
    {
      ending end;
      group.replay(cohort::captured_group(), end.handler());
      CHECK(co_await soon([&] { return end.over; }));
      CHECK(end.code() == errc::invalid_argument);
    }
    std::vector<float> host(10, 1.0F);
    auto on_host = co_await coord.make_persistent(cohort::bundle("host").add("h", host), op::sum);
    {
      ending end;
      on_host.capture(end.handler());
      CHECK(co_await soon([&] { return end.over; }));
      CHECK(end.code() == errc::not_supported);
      CHECK(has(end.text(), "memory of the host"));
    }
    co_await on_host.start();
    CHECK(host.front() == static_cast<float>(world.size()));
    co_await coord.shutdown();
  });
}

TEST_CASE("a coordinator that closes ends graphs that are still held, and names them") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    const cohort::log::capture log;
    auto all = co_await make_tensors();
    cohort::captured_group captured;
    cohort::persistent_group group;
    {
      coordinator coord(world, nccl::backend());
      group = co_await coord.make_persistent(bundle_of(all), op::sum);
      captured = co_await group.capture();
      co_await group.replay(captured, {.ends = cohort::until::enqueued});
      co_await coord.shutdown();
    }
    CHECK(co_await soon_on_double([] { return fake_nccl::live_communicators() == 0; }));
    CHECK(log.contains("the graph of persistent group 'step' was still held"));
    ending late;
    group.replay(captured, late.handler());
    CHECK(co_await soon([&] { return late.over; }));
    CHECK(late.why);
    CHECK(has(late.text(), "step"));
    co_await expect(all, static_cast<float>(world.size()));
    co_await meet(world);
  });
}

DOUBLE_TEST_CASE("a fault while a graph is replayed ends every operation of every rank") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    if (world.size() < 2) co_return;
    const cohort::log::capture log;
    coordinator coord(world, nccl::backend());
    auto [all, group, captured] = co_await make_captured(coord, op::sum);
    co_await group.replay(captured);
    const ncclComm_t comm = native(world);
    co_await hangs_next(world, comm);
    std::deque<ending> ends;
    for (int i = 0; i < 3; ++i) group.replay(captured, ends.emplace_back().handler());
    CHECK(co_await soon([&] { return fake_nccl::pending_kernels(comm) != 0; }));
    co_await meet(world);
    if (world.rank() == 1) fake_nccl::set_async_error(comm, ncclSystemError);
    CHECK(co_await soon([&] { return all_over(ends); }));
    for (const ending& one : ends) {
      INFO(one.text());
      CHECK(one.is_data_error());
    }
    ending late;
    group.replay(captured, late.handler());
    CHECK(co_await soon([&] { return late.over; }));
    CHECK(late.why);
    co_await coord.shutdown();
    CHECK(co_await soon([] { return fake_nccl::live_communicators() == 0; }));
  });
}

DOUBLE_TEST_CASE(
    "a fault or a lost device in the middle of a capture ends every operation of every rank") {
  const bool lost = GENERATE(false, true);
  const bool recorded = GENERATE(false, true);  // NCCL has written its calls, and nobody has looked
  if (lost && recorded) return;
  on_gpus(
      [lost, recorded](communicator world) -> asio::awaitable<void> {
        if (world.size() < 2) co_return;
        const cohort::log::capture log;
        auto all = co_await make_tensors();
        nccl::backend_options options;
        options.communicator.abort_bound = 5s;
        coordinator coord(world, nccl::backend(options));
        auto group = co_await coord.make_persistent(bundle_of(all), op::sum);
        co_await group.start();
        co_await meet(world);
        const ncclComm_t comm = native(world);
        const auto before = fake_gpu::calls("cudaStreamBeginCapture");
        fake_nccl::hold_launches(true);  // the capture is begun, and its calls are in progress
        std::deque<ending> ends;
        group.capture(ends.emplace_back().handler());
        group.start(ends.emplace_back().handler());
        CHECK(co_await soon([&] { return fake_gpu::calls("cudaStreamBeginCapture") != before; }));
        co_await meet(world);
        if (world.rank() == 1 && lost) fake_gpu::break_device(0, cudaErrorIllegalAddress);
        if (world.rank() == 1 && recorded) {
          fake_nccl::hold_launches(false);
          std::this_thread::sleep_for(50ms);
        }
        if (world.rank() == 1 && !lost) {
          fake_nccl::set_async_error(comm, ncclSystemError);
        }
        co_await pause(50ms);
        fake_nccl::hold_launches(false);
        CHECK(co_await soon([&] { return all_over(ends); }));
        // A rank whose capture had ended before it heard of the fault has a graph.
        INFO(ends.front().text() << ends.back().text());
        CHECK((ends.front().is_data_error() || (world.rank() != 1 && ends.front().well())));
        CHECK(ends.back().is_data_error());
        CHECK_FALSE(log.contains("NCCL has not aborted in time"));
        ending late;
        group.start(late.handler());
        CHECK(co_await soon([&] { return late.over; }));
        CHECK(late.why);
        co_await coord.shutdown();
        co_await meet(world);
      },
      lost);
}

TEST_CASE("a capture or a replay that is cancelled before its election leaves the group usable") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    if (world.size() < 2) co_return;
    coordinator coord(world, nccl::backend());
    auto [all, group, captured] = co_await make_captured(coord, op::sum);
    co_await meet(world);
    for (const bool replays : {false, true}) {
      if (world.rank() == 0) {  // the others do not come
        std::error_code code;
        if (replays) {
          auto early = group.replay(captured, cohort::as_future);
          early.cancel();
          code = co_await code_of(static_cast<asio::awaitable<void>&&>(std::move(early)));
        } else {
          auto early = group.capture(cohort::as_future);
          early.cancel();
          code = co_await code_of(
              static_cast<asio::awaitable<cohort::captured_group>&&>(std::move(early)));
        }
        CHECK(code == asio::error::operation_aborted);
      } else {
        ending end;
        if (replays) {
          group.replay(captured, end.handler());
        } else {
          group.capture(end.handler());
        }
        CHECK(co_await soon([&] { return end.over; }));
        INFO(end.text());
        CHECK(has(end.text(), "withdrawn by rank 0"));
      }
      co_await meet(world);
    }
    give(all, static_cast<float>(world.rank() + 1));
    co_await group.replay(captured);
    co_await expect(all, sum_over(world));
    co_await coord.shutdown();
  });
}

TEST_CASE("a group without elements is captured and replayed, and does nothing") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    coordinator coord(world, nccl::backend());
    const device::stream on;
    device::vector<float> none(0, on);
    auto group =
        co_await coord.make_persistent(cohort::bundle("nothing").add("none", none), op::sum);
    co_await group.start();
    auto captured = co_await group.capture();
    for (int i = 0; i < 2; ++i) co_await group.replay(captured);
    co_await sums(coord, "after");
    co_await coord.shutdown();
  });
}
