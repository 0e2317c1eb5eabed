// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

/// \file Reductions of device memory that travel in 16 bits, with kernels and without.

#include "support.hpp"
#include "support/exact.hpp"

#include <cmath>

namespace {

using namespace cohort_test;
using cohort::communicator;
using cohort::compression;
using cohort::coordinator;
using cohort::errc;

nccl::backend_options with(nccl::kernel_use kernels) {
  nccl::backend_options made;
  made.kernels = kernels;
  if (kernels == nccl::kernel_use::required) made.nvrtc = COHORT_FAKE_NVRTC;
  return made;
}

/// The same operations with what the host and what the device has: equal to the bit, for what is
/// reduced has few significant bits.
template <class T>
asio::awaitable<void> reduces_as_the_host(coordinator coord, cohort::call_options options) {
  device::stream on;
  const int root = coord.size() - 1;
  for (const std::size_t count : {0, 1, 7, 900, 100003}) {
    INFO("elements: " << count);
    const std::vector<T> mine = exact<T>(count, coord.rank());
    std::vector<T> host = mine;
    co_await coord.all_reduce("host", host, op::sum, options);
    auto there = co_await on_device(on, mine);
    co_await coord.all_reduce("sum", there, op::sum, options);
    CHECK(co_await now_in(there) == host);

    host = mine;
    co_await coord.all_reduce("host mean", host, op::average, options);
    const auto from = co_await on_device(on, mine);
    device::vector<T> to(count, on);
    co_await coord.all_reduce("mean", from, to, op::average, options);
    CHECK(co_await now_in(to) == host);
    CHECK(co_await now_in(from) == mine);

    host = mine;
    co_await coord.all_reduce("host max", host, op::max, options);
    there = co_await on_device(on, mine);
    co_await coord.all_reduce("max", there, op::max, options);
    CHECK(co_await now_in(there) == host);

    host = mine;
    co_await coord.reduce("host to one", host, op::sum, root, options);
    there = co_await on_device(on, mine);
    co_await coord.reduce("to one", there, op::sum, root, options);
    CHECK(co_await now_in(there) == host);

    const auto part = co_await coord.reduce_scatter("host parts", mine, op::average, options);
    const auto share = co_await coord.reduce_scatter("parts", from, op::average, options);
    CHECK(co_await now_in(share) == part);
  }
}

}  // namespace

TEMPLATE_TEST_CASE("16 bits on the wire give on devices what they give on the host", "", float,
                   double) {
  const auto kernels = GENERATE(nccl::kernel_use::required, nccl::kernel_use::off);
  const auto how = GENERATE(compression::f16, compression::bf16);
  on_gpus([=](communicator world) -> asio::awaitable<void> {
    auto options = with(kernels);
    options.pack_below = 5000;  // large tensors travel alone
    coordinator coord(world, nccl::backend(options));
    co_await reduces_as_the_host<TestType>(coord, compressed(how));
    cohort::call_options scaled = compressed(how);
    scaled.prescale = 0.5;
    scaled.postscale = 4;
    co_await reduces_as_the_host<TestType>(coord, scaled);
    co_await coord.shutdown();
  });
}

TEST_CASE("other values are rounded once for each rank, and in their sums") {
  const auto kernels = GENERATE(nccl::kernel_use::required, nccl::kernel_use::off);
  const auto type = GENERATE(std::pair(compression::f16, 11), std::pair(compression::bf16, 8));
  on_gpus([=](communicator world) -> asio::awaitable<void> {
    coordinator coord(world, nccl::backend(with(kernels)));
    device::stream on;
    const auto [how, bits] = type;
    // Nearer to 1 than 16 bits can tell.
    auto near = co_await filled(on, 3, 1.0F + std::ldexp(1.0F, -bits - 1));
    co_await coord.all_reduce("near", near, op::average, compressed(how));
    CHECK(co_await now_in(near) == std::vector<float>(3, 1.0F));
    // Halfway between two: to the even one.
    near = co_await filled(on, 3, 1.0F + std::ldexp(3.0F, -bits));
    co_await coord.all_reduce("half", near, op::max, compressed(how));
    CHECK(co_await now_in(near) == std::vector<float>(3, 1.0F + std::ldexp(4.0F, -bits)));

    const inexact values(1000, coord.rank(), coord.size());
    auto there = co_await on_device(on, values.mine);
    co_await coord.all_reduce("random", there, op::sum, compressed(how));
    const auto seen = co_await now_in(there);
    const double bound = 2 * coord.size() * std::ldexp(1.0, -bits);
    const double worst = values.worst(seen);
    CHECK(worst <= bound);
    CHECK(worst > 0);  // it has been rounded
    co_await coord.shutdown();
  });
}

TEST_CASE("factors apply before the rounding and after the reduction") {
  const auto kernels = GENERATE(nccl::kernel_use::required, nccl::kernel_use::off);
  on_gpus([=](communicator world) -> asio::awaitable<void> {
    coordinator coord(world, nccl::backend(with(kernels)));
    device::stream on;
    // More than f16 can hold, before and after.
    cohort::call_options options = compressed(compression::f16);
    options.prescale = 1.0 / 65536;
    options.postscale = 65536;
    auto large = co_await filled(on, 5, 131072.0F);
    co_await coord.all_reduce("large", large, op::sum, options);
    CHECK(co_await now_in(large) ==
          std::vector<float>(5, 131072.0F * static_cast<float>(world.size())));
    auto lost = co_await filled(on, 1, 131072.0F);
    co_await coord.all_reduce("lost", lost, op::sum, compressed(compression::f16));
    CHECK(std::isinf((co_await now_in(lost)).front()));
    co_await coord.shutdown();
  });
}

TEST_CASE("a bundle compresses what is float or double, and mixes types over the ranks") {
  const auto kernels = GENERATE(nccl::kernel_use::required, nccl::kernel_use::off);
  on_gpus([=](communicator world) -> asio::awaitable<void> {
    coordinator coord(world, nccl::backend(with(kernels)));
    device::stream on;
    const auto ranks = world.size();
    auto a = co_await filled(on, 33, 1.5F);
    auto b = co_await filled(on, 7, std::int32_t{2});
    auto c = co_await filled(on, 900, 2.5);
    auto own = co_await filled(on, 5, cohort::bf16(1.0F));
    cohort::bundle some("some");
    some.add("a", a).add("b", b).add("c", c).add("own", own);
    cohort::call_options options = compressed(compression::bf16);
    options.postscale = 1;
    co_await coord.grouped_all_reduce(some, op::sum, options);
    CHECK(co_await now_in(a) == std::vector<float>(33, 1.5F * static_cast<float>(ranks)));
    CHECK(co_await now_in(b) == std::vector<std::int32_t>(7, 2 * ranks));
    CHECK(co_await now_in(c) == std::vector<double>(900, 2.5 * ranks));
    for (const cohort::bf16 each : co_await now_in(own)) {
      CHECK(static_cast<float>(each) == static_cast<float>(ranks));
    }

    // What a rank compresses from is its own affair: also 16 bits that it had before.
    cohort::call_options scaled = compressed(compression::f16);
    scaled.prescale = 2;
    scaled.postscale = 0.25;
    const float expected = 0.5F * static_cast<float>(ranks);
    for (int tensors = 0; tensors < 3; ++tensors) {
      INFO("type " << tensors);
      auto narrow = co_await filled(on, 40, 1.0F);
      auto wide = co_await filled(on, 40, 1.0);
      auto of_16_bits = co_await filled(on, 40, cohort::f16(1.0F));
      auto beside = co_await filled(on, 10, 1.0F);
      cohort::bundle mixed("mixed");
      const int kind = (world.rank() + tensors) % 3;
      if (kind == 0) mixed.add("x", narrow);
      if (kind == 1) mixed.add("x", wide);
      if (kind == 2) mixed.add("x", of_16_bits);
      mixed.add("y", beside);
      co_await coord.grouped_all_reduce(mixed, op::sum, scaled);
      if (kind == 0) CHECK(co_await now_in(narrow) == std::vector<float>(40, expected));
      if (kind == 1) CHECK(co_await now_in(wide) == std::vector<double>(40, expected));
      for (const cohort::f16 each : co_await now_in(of_16_bits)) {
        CHECK(static_cast<float>(each) == (kind == 2 ? expected : 1.0F));
      }
      CHECK(co_await now_in(beside) == std::vector<float>(10, expected));
    }
    co_await coord.shutdown();
  });
}

TEST_CASE("ranks that have joined bring neutral elements of 16 bits") {
  const auto kernels = GENERATE(nccl::kernel_use::required, nccl::kernel_use::off);
  on_gpus([=](communicator world) -> asio::awaitable<void> {
    auto backend = with(kernels);
    backend.pack_below = 1000;
    coordinator coord(world, nccl::backend(backend));
    const int n = world.size();
    const bool joins = n > 1 && world.rank() == n - 1;
    if (!joins) {
      device::stream on;
      const auto active = static_cast<float>(n > 1 ? n - 1 : 1);
      for (const std::size_t count : {10, 3000}) {
        INFO("elements: " << count);
        const auto value = static_cast<float>(world.rank()) - 10;
        const auto is = [&](const std::vector<float>& seen, float wanted) {
          return seen == std::vector<float>(count, wanted);
        };
        auto data = co_await filled(on, count, value);
        co_await coord.all_reduce("max", data, op::max, compressed(compression::f16));
        CHECK(is(co_await now_in(data), active - 11));
        data = co_await filled(on, count, value + 20);
        co_await coord.all_reduce("min", data, op::min, compressed(compression::bf16));
        CHECK(is(co_await now_in(data), 10));
        data = co_await filled(on, count, 2.0F);
        co_await coord.all_reduce("product", data, op::product, compressed(compression::f16));
        CHECK(is(co_await now_in(data), std::exp2(active)));
        data = co_await filled(on, count, 3.0F);
        co_await coord.all_reduce("average", data, op::average, compressed(compression::f16));
        CHECK(is(co_await now_in(data), 3.0F));
        auto part = co_await coord.reduce_scatter("parts", data, op::average,
                                                  compressed(compression::bf16));
        CHECK(co_await now_in(part) == std::vector<float>(part.size(), 3.0F));
      }
    }
    co_await coord.join();
    co_await coord.shutdown();
  });
}

DOUBLE_TEST_CASE("persistent groups are compressed, plain and captured") {
  const auto kernels = GENERATE(nccl::kernel_use::required, nccl::kernel_use::off);
  on_gpus([=](communicator world) -> asio::awaitable<void> {
    auto backend = with(kernels);
    backend.pack_below = 5000;
    coordinator coord(world, nccl::backend(backend));
    device::stream on;
    auto a = co_await filled(on, 10, 1.0F);
    auto b = co_await filled(on, 1000, 1.0);
    auto large = co_await filled(on, 100000, 1.0F);
    device::pinned_vector<float> next(100000, on);
    device::pinned_vector<double> wide(1000, on);
    cohort::bundle bundle("step");
    bundle.add("a", a).add("b", b).add("large", large);
    cohort::call_options options = compressed(compression::bf16);
    options.prescale = 0.5;
    auto group = co_await coord.make_persistent(bundle, op::average, options);
    // Not a number of 8 bits before it is halved and rounded.
    const auto give = [&](float value) {
      std::fill(next.begin(), next.end(), value);
      std::fill(wide.begin(), wide.end(), static_cast<double>(value));
      device::copy(on, std::span(next).first(a.size()), a);
      device::copy(on, wide, b);
      device::copy(on, next, large);
    };
    const auto holds = [&](float value) -> asio::awaitable<void> {
      CHECK(co_await now_in(a) == std::vector<float>(10, value));
      CHECK(co_await now_in(b) == std::vector<double>(1000, static_cast<double>(value)));
      CHECK(co_await now_in(large) == std::vector<float>(100000, value));
    };
    give(2.0F);
    co_await group.start();
    co_await holds(1.0F);
    auto captured = co_await group.capture();
    const auto launches = fake_gpu::calls("cuLaunchKernel");
    for (int step = 1; step < 4; ++step) {
      const auto exact = static_cast<float>(2 * step);
      give(exact + std::ldexp(exact, -12));
      co_await group.replay(captured);
      co_await holds(static_cast<float>(step));
    }
    CHECK(fake_gpu::calls("cuLaunchKernel") == launches);
    if (kernels == nccl::kernel_use::off) CHECK(launches == 0);
    captured = {};
    co_await group.remove();
    co_await coord.shutdown();
  });
}

TEST_CASE("over nodes 16 bits travel too") {
  const auto kernels = GENERATE(nccl::kernel_use::required, nccl::kernel_use::off);
  on_gpus([=](communicator world) -> asio::awaitable<void> {
    auto backend = with(kernels);
    backend.hierarchical = true;
    backend.node = world.rank() * 2 / world.size();
    coordinator coord(world, nccl::backend(backend));
    device::stream on;
    auto data = co_await filled(on, 777, 1.0F + std::ldexp(1.0F, -12));
    cohort::call_options options = compressed(compression::bf16);
    options.postscale = 3;
    co_await coord.all_reduce("over nodes", data, op::average, options);
    CHECK(co_await now_in(data) == std::vector<float>(777, 3.0F));
    CHECK_DOUBLE((fake_nccl::calls("ncclReduce") != 0) == (world.size() > 1));
    CHECK_DOUBLE((fake_nccl::calls("ncclAllReduce") != 0) == (world.size() == 1));
    co_await coord.shutdown();
  });
}

TEST_CASE("what cannot be compressed on devices is refused as on the host") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    coordinator coord(world, nccl::backend());
    device::stream on;
    auto counts = co_await filled(on, 3, std::int32_t{1});
    auto whole = caught<cohort::error>(
        coord.all_reduce("counts", counts, op::sum, compressed(compression::f16)));
    const auto integers = co_await std::move(whole);
    REQUIRE(integers);
    CHECK(integers->code() == errc::invalid_argument);
    CHECK(has(integers->what(), "all_reduce 'counts': compression needs elements of float"));
    auto data = co_await filled(on, 3, 1.0F);
    auto moved =
        caught<cohort::error>(coord.broadcast("moved", data, 0, compressed(compression::f16)));
    const auto moves = co_await std::move(moved);
    REQUIRE(moves);
    CHECK(moves->code() == errc::invalid_argument);
    if (world.size() > 1) {
      const auto mine = compressed(world.rank() == 0 ? compression::f16 : compression::none);
      auto one = caught<cohort::mismatch_error>(coord.all_reduce("one", data, op::sum, mine));
      const auto differs = co_await std::move(one);
      REQUIRE(differs);
      CHECK(has(differs->what(), "compression"));
    }
    co_await coord.all_reduce("after", data, op::sum, compressed(compression::f16));
    CHECK(co_await now_in(data) == std::vector<float>(3, static_cast<float>(world.size())));
    co_await coord.shutdown();
  });
}
