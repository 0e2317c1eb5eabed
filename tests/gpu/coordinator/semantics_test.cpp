// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

/// \file What a coordinator promises on devices beside the results of its verbs: types, streams,
/// memory that goes, the order of launches, ranks that have joined.

#include "support.hpp"

#include <cohort/coordinator/bundle.hpp>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

using namespace cohort_test;

namespace {

/// Counts operations that have ended, and errors.
struct tally {
  std::size_t over = 0;
  std::size_t failed = 0;
  auto handler() {
    return [this](std::exception_ptr why) {
      ++over;
      if (!why) return;
      ++failed;
      try {
        std::rethrow_exception(why);
      } catch (const std::exception& problem) {
        UNSCOPED_INFO(problem.what());
      }
    };
  }
};

template <class T>
T number(int value) {
  return static_cast<T>(static_cast<float>(value));
}

/// All reductions of one type; every rank brings its number plus one, or something fixed.
template <class T>
asio::awaitable<void> reduce_all(cohort::coordinator coord, device::stream on, std::string type) {
  const int n = coord.size();
  const int mine = coord.rank() + 1;
  std::vector<device::vector<T>> values;
  for (const int value : {mine, mine, mine, 2, 2 * mine - 1}) {
    values.push_back(co_await filled(on, 5, number<T>(value)));
  }
  tally all;
  coord.all_reduce(type + " sum", values[0], op::sum, all.handler());
  coord.all_reduce(type + " max", values[1], op::max, all.handler());
  coord.all_reduce(type + " min", values[2], op::min, all.handler());
  coord.all_reduce(type + " product", values[3], op::product, all.handler());
  coord.all_reduce(type + " average", values[4], op::average, all.handler());
  CHECK(co_await soon([&] { return all.over == values.size(); }));
  CHECK(all.failed == 0);
  const std::array<int, 5> wanted{n * (n + 1) / 2, n, 1, 1 << n, n};
  for (std::size_t i = 0; i < values.size(); ++i) {
    INFO(type << ", reduction " << i);
    const std::vector<T> found = co_await now_in(values[i]);
    CHECK(std::all_of(found.begin(), found.end(), [&](const T& one) {
      return static_cast<float>(one) == static_cast<float>(wanted[i]);
    }));
  }
}

}  // namespace

TEST_CASE("a coordinator reduces every element type of NCCL's in every way") {
  on_gpus([](cohort::communicator world) -> asio::awaitable<void> {
    cohort::coordinator coord(world, nccl::backend());
    const device::stream on;
    co_await reduce_all<std::int8_t>(coord, on, "i8");
    co_await reduce_all<std::uint8_t>(coord, on, "u8");
    co_await reduce_all<std::int32_t>(coord, on, "i32");
    co_await reduce_all<std::uint32_t>(coord, on, "u32");
    co_await reduce_all<std::int64_t>(coord, on, "i64");
    co_await reduce_all<std::uint64_t>(coord, on, "u64");
    co_await reduce_all<float>(coord, on, "f32");
    co_await reduce_all<double>(coord, on, "f64");
    co_await reduce_all<cohort::f16>(coord, on, "f16");
    co_await reduce_all<cohort::bf16>(coord, on, "bf16");
    co_await reduce_all<__half>(coord, on, "CUDA's f16");
    co_await reduce_all<__nv_bfloat16>(coord, on, "CUDA's bf16");
    // What the host knows no element for is moved.
    const auto mine = static_cast<float>(world.rank() + 1);
    auto moved = co_await filled(on, 5, __nv_fp8_e4m3(mine));
    co_await coord.broadcast("fp8", moved, world.size() - 1);
    const auto found = co_await now_in(moved);
    CHECK(static_cast<float>(found[4]) == static_cast<float>(world.size()));
  });
}

TEST_CASE("tensors of many streams travel together, each ordered with its own") {
  on_gpus([](cohort::communicator world) -> asio::awaitable<void> {
    cohort::coordinator coord(world, nccl::backend());
    constexpr std::size_t streams = 8;
    const auto n = static_cast<float>(world.size());
    std::vector<device::stream> on(streams);
    std::vector<device::vector<float>> values;
    std::vector<device::pinned_vector<float>> before;
    std::vector<device::pinned_vector<float>> after;
    for (std::size_t i = 0; i < streams; ++i) {
      values.emplace_back(100 + i, on[i]);
      before.emplace_back(100 + i, on[i]);
      after.emplace_back(100 + i, on[i]);
    }
    for (int step = 0; step < 5; ++step) {
      tally all;
      for (std::size_t i = 0; i < streams; ++i) {
        write(on[i], before[i], values[i], static_cast<float>(step) + static_cast<float>(i));
      }
      for (std::size_t k = 0; k < streams; ++k) {
        const std::size_t i = (k + static_cast<std::size_t>(3 * world.rank())) % streams;
        cohort::call_options queued;
        queued.on = on[i];
        queued.ends = cohort::until::enqueued;
        coord.all_reduce("of stream " + std::to_string(i), values[i], op::sum, queued,
                         all.handler());
      }
      CHECK(co_await soon([&] { return all.over == streams; }));
      CHECK(all.failed == 0);
      for (std::size_t i = 0; i < streams; ++i) {
        device::copy(on[i], values[i], after[i]);  // nobody has waited for the sum
      }
      for (std::size_t i = 0; i < streams; ++i) {
        auto copied = device::done(on[i]);
        co_await std::move(copied);
        const float wanted = n * (static_cast<float>(step) + static_cast<float>(i));
        CHECK(std::count(after[i].begin(), after[i].end(), wanted) == std::ptrdiff_t(100 + i));
      }
    }
    if (world.size() > 1) CHECK(coord.stats().packs > 0);
  });
}

TEST_CASE("a pack is reduced when the last of its tensors is there, and not before") {
  on_gpus([](cohort::communicator world) -> asio::awaitable<void> {
    cohort::coordinator coord(world, nccl::backend());
    const auto n = static_cast<float>(world.size());
    const device::stream late;
    std::vector<device::stream> on(4);
    std::vector<device::vector<float>> values;
    for (const device::stream& each : on) values.push_back(co_await filled(each, 100, -1.0F));
    co_await coord.all_reduce("opens the device, which waits for it", values[0], op::sum);
    for (int step = 0; step < 4; ++step) {
      const auto mine = static_cast<std::size_t>((step + world.rank()) % 4);
      tally all;
      held_stream held(late);
      on[mine].wait(late.record());
      for (std::size_t i = 0; i < on.size(); ++i) {
        device::fill(on[i], values[i], static_cast<float>(step + 1));
        cohort::call_options queued;
        queued.ends = cohort::until::enqueued;
        coord.all_reduce(std::to_string(i), values[i], op::sum, queued, all.handler());
      }
      CHECK(co_await soon([&] { return all.over == on.size(); }));
      co_await pause(10ms);
      held.let_go();
      for (const auto& each : values) {
        const std::vector<float> found = co_await now_in(each);
        CHECK(found == std::vector<float>(100, n * static_cast<float>(step + 1)));
      }
    }
    if (world.size() > 1) CHECK(coord.stats().packs > 0);
  });
}

TEST_CASE("a buffer may go while its named operation is enqueued or has only been submitted") {
  on_gpus([](cohort::communicator world) -> asio::awaitable<void> {
    cohort::coordinator coord(world, nccl::backend());
    const int n = world.size();
    const device::stream compute;
    device::pinned_vector<int> result(1000, compute);
    for (int round = 0; round < 5; ++round) {
      tally all;
      {
        const device::stream elsewhere;  // goes too
        auto enqueued = co_await filled(elsewhere, 1000, round + 1);
        auto submitted = co_await filled(elsewhere, 1000, 1);
        cohort::call_options queued;
        queued.on = compute;
        queued.ends = cohort::until::enqueued;
        coord.all_reduce("submitted", submitted, op::sum, all.handler());
        co_await coord.all_reduce("enqueued", enqueued, op::sum, queued);
        device::copy(compute, enqueued, result);
      }
      const device::stream other;
      auto filler = co_await filled(other, 1000, -1);  // may get the memory
      auto copied = device::done(compute);
      co_await std::move(copied);
      CHECK(std::count(result.begin(), result.end(), n * (round + 1)) == 1000);
      CHECK(co_await soon([&] { return all.over == 1; }));
      CHECK(all.failed == 0);
    }
  });
}

TEST_CASE("a detached named operation goes on, with what was moved into it") {
  on_gpus([](cohort::communicator world) -> asio::awaitable<void> {
    cohort::coordinator coord(world, nccl::backend());
    const device::stream on;
    auto out = co_await filled(on, 100, 0);
    std::weak_ptr<const void> memory;  // of what it reads, which it lets go when it has ended
    {
      const device::stream elsewhere;
      auto in = co_await filled(elsewhere, 100, world.rank() + 1);
      memory = in.lease();
      auto owned = co_await filled(elsewhere, 100, 1);
      coord.all_reduce("owned", std::move(owned), op::sum, asio::detached);
      coord.all_reduce("to a vector that stays", in, out, op::sum, asio::detached);
    }
    const std::vector<int> wanted(100, world.size() * (world.size() + 1) / 2);
    CHECK(co_await soon([&] { return memory.expired(); }));
    CHECK(co_await now_in(out) == wanted);
    co_await coord.shutdown();
  });
}

TEST_CASE("ranks that have joined bring what does not count to reductions on devices") {
  on_gpus([](cohort::communicator world) -> asio::awaitable<void> {
    cohort::coordinator coord(world, nccl::backend());
    const device::stream on;
    const int n = world.size();
    const bool joins = n > 1 && world.rank() == n - 1;
    const int active = n > 1 ? n - 1 : 1;
    if (!joins) {
      const int mine = world.rank() + 1;                              // 1 to `active`
      auto most = co_await filled(on, 7, static_cast<float>(-mine));  // 0 would be more
      auto least = co_await filled(on, 7, std::int64_t{mine});
      const int odd = 2 * mine - 1;  // `active` in the mean
      auto mean = co_await filled(on, 7, static_cast<double>(odd));
      const cohort::f16 half_of_it(static_cast<float>(odd));
      auto of_16_bits = co_await filled(on, 7, half_of_it);
      auto counted = co_await filled(on, 7, std::int32_t{-odd});
      auto small = co_await filled(on, 7, std::uint8_t{200});
      auto sum = co_await filled(on, 7, std::uint32_t{3});
      auto product = co_await filled(on, 7, 2.0F);
      tally all;
      coord.all_reduce("max", most, op::max, all.handler());
      coord.all_reduce("min", least, op::min, all.handler());
      coord.all_reduce("mean", mean, op::average, all.handler());
      coord.all_reduce("mean of 16 bits", of_16_bits, op::average, all.handler());
      coord.all_reduce("mean of integers", counted, op::average, all.handler());
      coord.all_reduce("max of bytes", small, op::max, all.handler());
      coord.all_reduce("sum", sum, op::sum, all.handler());
      coord.all_reduce("product", product, op::product, all.handler());
      CHECK(co_await soon([&] { return all.over == 8; }));
      CHECK(all.failed == 0);
      CHECK(co_await now_in(most) == std::vector<float>(7, -1.0F));
      CHECK(co_await now_in(least) == std::vector<std::int64_t>(7, 1));
      const auto means = co_await now_in(mean);
      for (const double one : means) CHECK(std::abs(one - active) < 1e-12);
      // A factor of 1/3 is rounded to 16 bits.
      const auto halves = co_await now_in(of_16_bits);
      const auto wanted = static_cast<float>(active);
      for (const cohort::f16 one : halves) {
        CHECK(std::abs(static_cast<float>(one) - wanted) < 0.01F);
      }
      CHECK(co_await now_in(counted) == std::vector<std::int32_t>(7, -active));
      CHECK(co_await now_in(small) == std::vector<std::uint8_t>(7, 200));
      CHECK(co_await now_in(sum) ==
            std::vector<std::uint32_t>(7, static_cast<std::uint32_t>(3 * active)));
      CHECK(co_await now_in(product) == std::vector<float>(7, static_cast<float>(1 << active)));
      // Each still has its part of what is scattered, and nothing comes from who has joined.
      auto all_of_them = co_await coord.all_gather("all", counted);
      CHECK(all_of_them.size() == 7 * static_cast<std::size_t>(active));
      auto part = co_await coord.reduce_scatter("part", counted, op::sum);
      CHECK(part.size() == cohort::part_of(7, world.rank(), n));
      CHECK(co_await now_in(part) == std::vector<std::int32_t>(part.size(), -active * active));
    }
    co_await coord.join();
    auto last = co_await filled(on, 3, 1.0F);
    co_await coord.all_reduce("all again", last, op::average);
    CHECK(co_await now_in(last) == std::vector<float>(3, 1.0F));
  });
}

namespace {

device::stream domain_of(const cohort::communicator& world, const device::vector<float>& any) {
  auto& source = asio::use_service<nccl::issue_source>(world.get_executor().context());
  return source.domain_of(any.device());
}

}  // namespace

TEST_CASE("an enqueued named operation ends although the device has not begun it") {
  on_gpus([](cohort::communicator world) -> asio::awaitable<void> {
    cohort::coordinator coord(world, nccl::backend());
    const device::stream compute;
    auto values = co_await filled(compute, 100, 1.0F);
    device::pinned_vector<float> result(100, compute);
    co_await coord.all_reduce("w", values, op::max);  // all is made now
    held_stream held(domain_of(world, values));
    cohort::call_options queued;
    queued.on = compute;
    queued.ends = cohort::until::enqueued;
    tally one;
    tally other;
    auto second = co_await filled(device::stream(), 100, 1.0F);
    coord.all_reduce("w", values, op::sum, queued, one.handler());
    CHECK(co_await soon([&] { return one.over == 1; }));
    coord.all_reduce("v", second, op::sum, other.handler());  // not in one pack with the first
    device::copy(compute, values, result);
    co_await pause(20ms);
    CHECK(other.over == 0);  // that one waits for its data
    held.let_go();
    auto copied = device::done(compute);
    co_await std::move(copied);
    CHECK(std::count(result.begin(), result.end(), static_cast<float>(world.size())) == 100);
    CHECK(co_await soon([&] { return other.over == 1; }));
    CHECK(one.failed + other.failed == 0);
  });
}

DOUBLE_TEST_CASE("bundles are filled while the one before has not been reduced") {
  on_gpus([](cohort::communicator world) -> asio::awaitable<void> {
    cohort::coordinator coord(world, nccl::backend());
    const device::stream on;
    std::vector<device::vector<float>> values;
    for (int i = 0; i < 8; ++i) values.push_back(co_await filled(on, 16, 1.0F));
    device::pinned_vector<float> late(16, on);  // now, for it waits for the device
    const auto bundle_of = [&](const char* name, std::size_t first) {
      cohort::bundle made(name);
      for (std::size_t i = first; i < first + 4; ++i) {
        made.add(std::to_string(i), values[i]);
      }
      return made;
    };
    co_await coord.barrier("all are there");
    auto warm = co_await filled(on, 1, 1.0F);
    co_await coord.all_reduce("warm", warm, op::sum);
    const device::stream domain = domain_of(world, warm);
    co_await meet(world);
    fake_gpu::hold(domain.get());
    const std::uint64_t before = fake_gpu::calls("copies and kernels that are done");
    tally all;
    coord.grouped_all_reduce(bundle_of("first", 0), op::sum, all.handler());
    coord.grouped_all_reduce(bundle_of("second", 4), op::sum, all.handler());
    CHECK(co_await soon(
        [&] { return fake_gpu::calls("copies and kernels that are done") >= before + 2; }));
    std::fill(late.begin(), late.end(), 1000.0F);  // too late for both
    for (auto& each : values) device::copy(on, late, each);
    auto written = device::done(on);
    co_await std::move(written);
    CHECK(all.over == 0);
    fake_gpu::release(domain.get());
    CHECK(co_await soon([&] { return all.over == 2; }));
    CHECK(all.failed == 0);
    for (auto& each : values) {
      CHECK(co_await now_in(each) == std::vector<float>(16, static_cast<float>(world.size())));
    }
  });
}

TEST_CASE("launches keep one order although each rank submits and has its data in another") {
  on_gpus([](cohort::communicator world) -> asio::awaitable<void> {
    nccl::backend_options alone;
    alone.pack_below = 0;  // a launch for each tensor
    cohort::coordinator coord(world, nccl::backend(alone));
    constexpr std::size_t tensors = 6;
    const auto rank = static_cast<std::size_t>(world.rank());
    std::vector<device::stream> on(tensors);
    const device::stream late;
    std::vector<device::vector<float>> values;
    for (std::size_t i = 0; i < tensors; ++i) {
      values.push_back(co_await filled(on[i], 10 + i, 1.0F));
    }
    float wanted = 1;
    for (int round = 0; round < 4; ++round) {
      held_stream held(late);
      on[rank].wait(late.record());  // the data of another tensor on each rank
      tally all;
      for (std::size_t k = 0; k < tensors; ++k) {
        const std::size_t i = (k + 2 * rank) % tensors;
        coord.all_reduce(std::to_string(i), values[i], op::sum, all.handler());
      }
      co_await pause(10ms);
      held.let_go();
      CHECK(co_await soon([&] { return all.over == tensors; }));
      CHECK(all.failed == 0);
      wanted *= static_cast<float>(world.size());
      for (std::size_t i = 0; i < tensors; ++i) {
        CHECK(co_await now_in(values[i]) == std::vector<float>(10 + i, wanted));
      }
    }
    CHECK_DOUBLE(fake_nccl::cycles().empty());
    co_await meet(world);
  });
}

DOUBLE_TEST_CASE(
    "tensors of a plan share a call of NCCL, which ends when none of them is enqueued") {
  on_gpus([](cohort::communicator world) -> asio::awaitable<void> {
    cohort::coordinator_options options;
    options.frozen_plan = {{"a", "host", "b", "c"}};
    cohort::coordinator coord(world, nccl::backend(), options);
    const device::stream on;
    const auto n = static_cast<float>(world.size());
    std::vector<device::vector<float>> values;
    for (std::size_t i = 0; i < 3; ++i) values.push_back(co_await filled(on, 3 + i, 1.0F));
    std::vector<float> host(3, 1);
    co_await sums(coord, "before");
    const auto before = coord.stats();
    const auto calls = fake_nccl::calls("ncclAllReduce");
    co_await meet(world);
    held_stream held(domain_of(world, values[0]));
    tally of_devices;
    tally of_host;
    cohort::call_options queued;
    queued.ends = cohort::until::enqueued;
    coord.all_reduce("a", values[0], op::sum, of_devices.handler());
    coord.all_reduce("b", values[1], op::sum, queued, of_devices.handler());
    coord.all_reduce("c", values[2], op::sum, of_devices.handler());
    coord.all_reduce("host", host, op::sum, of_host.handler());
    CHECK(co_await soon([&] { return of_host.over == 1; }));
    CHECK(co_await soon([&] { return fake_nccl::calls("ncclAllReduce") == calls + 2; }));
    co_await pause(20ms);
    CHECK(of_devices.over == 0);  // b is enqueued, and c of its pack is not
    held.let_go();
    CHECK(co_await soon([&] { return of_devices.over == 3; }));
    CHECK(of_devices.failed + of_host.failed == 0);
    for (const auto& each : values) {
      CHECK(co_await now_in(each) == std::vector<float>(each.size(), n));
    }
    CHECK(host == std::vector<float>(3, n));
    const auto after = coord.stats();
    CHECK(after.by_device.operations == before.by_device.operations + 2);
    CHECK(after.by_device.bytes == before.by_device.bytes + (3 + 4 + 5) * sizeof(float));
    CHECK(after.by_mpi.bytes == before.by_mpi.bytes + 3 * sizeof(float));
  });
}

DOUBLE_TEST_CASE(
    "what is submitted before the device is open waits for it, and the host does not") {
  on_gpus([](cohort::communicator world) -> asio::awaitable<void> {
    const device::stream on;
    const device::stream busy;
    auto values = co_await filled(on, 4, 1.0F);
    auto filler = co_await filled(busy, 4, 1.0F);
    held_stream held(busy);  // the opening takes pinned memory, which waits for the device
    device::fill(busy, filler, 2.0F);
    cohort::coordinator coord(world, nccl::backend());
    co_await coord.barrier();
    tally one;
    coord.all_reduce("w", values, op::sum, one.handler());
    co_await coord.barrier();  // elected later, so the other has been started
    CHECK(is_started(coord, "w"));
    CHECK(one.over == 0);
    held.let_go();
    CHECK(co_await soon([&] { return one.over == 1; }));
    CHECK(one.failed == 0);
    CHECK(co_await now_in(values) == std::vector<float>(4, static_cast<float>(world.size())));
    co_await coord.shutdown();
  });
}
