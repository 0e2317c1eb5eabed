// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

/// \file The backend with kernels that are compiled at run time, and without them.

#include "support.hpp"
#include "support/fake_gpu/nvrtc_control.hpp"
#include "tensors_of_group.hpp"

#include <dlfcn.h>

#include <thread>

namespace {

using namespace cohort_test;
using cohort::communicator;
using cohort::coordinator;
using cohort::errc;
using nccl::kernel_use;

nccl::backend_options kernels_are(kernel_use kernels) {
  nccl::backend_options made;
  made.kernels = kernels;
  made.nvrtc = COHORT_FAKE_NVRTC;
  return made;
}

/// Of the double of NVRTC, which is loaded.
template <class Function>
Function* nvrtc_control(const char* name) {
  void* const library = ::dlopen(COHORT_FAKE_NVRTC, RTLD_NOW | RTLD_LOCAL);
  REQUIRE(library != nullptr);
  auto* const found = reinterpret_cast<Function*>(::dlsym(library, name));
  REQUIRE(found != nullptr);
  return found;
}

/// A maximum with a factor, which NCCL has not, and an average of integers to which not all ranks
/// bring data, if there is more than one.
asio::awaitable<void> needs_kernels(coordinator coord) {
  device::stream on;
  auto values = co_await filled(on, 33, static_cast<float>(coord.rank() + 1));
  cohort::call_options scaled;
  scaled.prescale = 2;
  scaled.postscale = 0.5;
  co_await coord.all_reduce("scaled", values, op::max, scaled);
  CHECK(co_await now_in(values) == std::vector<float>(33, static_cast<float>(coord.size())));
}

}  // namespace

DOUBLE_TEST_CASE("kernels apply what NCCL cannot, and nothing goes through the host") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    auto options = kernels_are(kernel_use::required);
    options.pack_below = 2000;
    coordinator coord(world, nccl::backend(options));
    co_await sums(coord, "opened");
    device::stream on;
    const int n = world.size();
    const auto before = fake_gpu::calls("cudaLaunchHostFunc");
    co_await needs_kernels(coord);
    cohort::call_options scaled;
    scaled.prescale = 3;
    for (const std::size_t count : {1, 7, 1000}) {  // in packs and alone
      auto a = co_await filled(on, count, static_cast<double>(world.rank()));
      auto b = co_await filled(on, count + 1, cohort::bf16(2.0F));
      cohort::bundle both("both");
      both.add("a", a).add("b", b);
      co_await coord.grouped_all_reduce(both, op::min, scaled);
      CHECK(co_await now_in(a) == std::vector<double>(count, 0.0));
      for (const auto each : co_await now_in(b)) CHECK(static_cast<float>(each) == 6.0F);
      auto from = co_await filled(on, count * static_cast<std::size_t>(n), 1.0F);
      auto part = co_await coord.reduce_scatter("part", from, op::max, scaled);
      CHECK(co_await now_in(part) == std::vector<float>(count, 3.0F));
      co_await coord.reduce("root", from, op::max, 0, scaled);
      CHECK(co_await now_in(from) ==
            std::vector<float>(from.size(), world.rank() == 0 ? 3.0F : 1.0F));
    }
    CHECK(fake_gpu::calls("cudaLaunchHostFunc") == before);
    CHECK(fake_gpu::calls("cuLaunchKernel") > 0);
    co_await coord.shutdown();
  });
}

DOUBLE_TEST_CASE("a pack of a thousand tensors is filled and emptied by a few launches") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    cohort::coordinator_options options;
    options.fusion_buffer = std::size_t{1} << 20U;
    coordinator coord(world, nccl::backend(kernels_are(kernel_use::required)), options);
    device::stream on;
    constexpr std::size_t tensors = 1000;
    std::vector<device::vector<float>> all;
    for (std::size_t i = 0; i < tensors; ++i) {
      all.push_back(co_await filled(on, 1 + i % 13, static_cast<float>(world.rank() + 1)));
    }
    cohort::bundle bundle("thousand");
    for (std::size_t i = 0; i < tensors; ++i) bundle.add("t" + std::to_string(i), all[i]);
    co_await sums(coord, "opened");
    cohort::call_options scaled;
    scaled.prescale = 2;
    scaled.postscale = 3;
    const auto launches = fake_gpu::calls("cuLaunchKernel");
    const auto reductions = fake_nccl::calls("ncclAllReduce");
    co_await coord.grouped_all_reduce(bundle, op::max, scaled);
    CHECK(fake_gpu::calls("cuLaunchKernel") - launches == 12);  // 6 for 168 tensors each, twice
    CHECK(fake_nccl::calls("ncclAllReduce") - reductions == 1);
    const auto wanted = static_cast<float>(6 * world.size());
    for (std::size_t i = 0; i < tensors; i += 37) {
      CHECK(co_await now_in(all[i]) == std::vector<float>(1 + i % 13, wanted));
    }
    // What stays as it is goes the same way.
    const auto before = fake_gpu::calls("cuLaunchKernel");
    const auto copies = fake_gpu::calls("cudaMemcpyBatchAsync");
    co_await coord.grouped_all_reduce(bundle, op::max);
    CHECK(fake_gpu::calls("cuLaunchKernel") - before == 12);
    CHECK(fake_gpu::calls("cudaMemcpyBatchAsync") == copies);
    CHECK(co_await now_in(all[37]) == std::vector<float>(1 + 37 % 13, wanted));
    co_await coord.shutdown();
  });
}

DOUBLE_TEST_CASE("ranks that have joined bring their neutral elements in one launch") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    if (world.size() < 2) co_return;
    coordinator coord(world, nccl::backend(kernels_are(kernel_use::required)));
    const bool joins = world.rank() == world.size() - 1;
    co_await sums(coord, "opened");
    if (joins) {
      const auto launches = fake_gpu::calls("cuLaunchKernel");
      const auto fills = fake_gpu::calls("cudaMemsetAsync");
      const auto functions = fake_gpu::calls("cudaLaunchHostFunc");
      co_await coord.join();
      CHECK(fake_gpu::calls("cuLaunchKernel") - launches == 2);
      CHECK(fake_gpu::calls("cudaMemsetAsync") == fills);
      CHECK(fake_gpu::calls("cudaLaunchHostFunc") == functions);
    } else {
      device::stream on;
      const int active = world.size() - 1;
      auto a = co_await filled(on, 5, std::int32_t{-7});
      auto b = co_await filled(on, 100, std::int32_t{-9});
      cohort::bundle both("both");
      both.add("a", a).add("b", b);
      co_await coord.grouped_all_reduce(both, op::max);
      CHECK(co_await now_in(a) == std::vector<std::int32_t>(5, -7));
      CHECK(co_await now_in(b) == std::vector<std::int32_t>(100, -9));
      const auto value = static_cast<std::int32_t>(world.rank());
      a = co_await filled(on, 5, -value);
      cohort::bundle again("again");
      again.add("a", a).add("b", b);
      co_await coord.grouped_all_reduce(again, op::average);  // toward zero
      CHECK(co_await now_in(a) ==
            std::vector<std::int32_t>(5, -(active * (active - 1) / 2) / active));
      co_await coord.join();
    }
    co_await coord.shutdown();
  });
}

DOUBLE_TEST_CASE("groups with factors are captured, with kernels and without") {
  const auto kernels = GENERATE(kernel_use::required, kernel_use::off);
  on_gpus([=](communicator world) -> asio::awaitable<void> {
    auto options = kernels_are(kernels);
    options.pack_below = 5000;
    coordinator coord(world, nccl::backend(options));
    auto all = co_await make_tensors(11);
    cohort::call_options scaled;
    scaled.prescale = 2;
    scaled.postscale = 3;
    auto group = co_await coord.make_persistent(bundle_of(all), op::max, scaled);
    auto captured = co_await group.capture();
    auto again = co_await group.capture();
    for (int step = 1; step < 4; ++step) {
      give(all, static_cast<float>(step * (world.rank() + 1)));
      co_await group.replay(step == 2 ? again : captured);
      co_await expect(all, static_cast<float>(6 * step * world.size()));
      co_await needs_kernels(coord);  // beside it, through the host without kernels
    }
    CHECK((fake_gpu::calls("cuLaunchKernel") == 0) == (kernels == kernel_use::off));
    // What was enqueued ends, whoever lets go meanwhile.
    co_await group.replay(captured, {.ends = cohort::until::enqueued});
    captured = {};
    again = {};
    co_await group.remove();
    co_await coord.shutdown();
  });
}

DOUBLE_TEST_CASE("without NVRTC the host does it, and that is told once") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    const cohort::log::capture log;
    auto options = kernels_are(kernel_use::automatic);
    if (world.rank() == 0) options.nvrtc = "/nowhere/libnvrtc.so";
    {
      coordinator coord(world, nccl::backend(options));
      co_await sums(coord, "no need");
      CHECK_FALSE(log.contains("slow"));
      for (int i = 0; i < 3; ++i) co_await needs_kernels(coord);
      co_await coord.shutdown();
    }
    const std::string text = log.text();
    const std::string wanted = "which is slow, for there are no kernels: no NVRTC was found";
    INFO(text);
    const bool told = text.find(wanted) != text.npos;
    CHECK(told == (world.rank() == 0));
    CHECK((!told || text.find(wanted) == text.rfind(wanted)));
    CHECK((fake_gpu::calls("cuLaunchKernel") == 0) == (world.rank() == 0));
    co_await meet(world);
  });
}

DOUBLE_TEST_CASE("kernels that one rank cannot have are one outcome on all ranks") {
  enum class fault { library, compilation, module, function };
  const auto what = GENERATE(fault::library, fault::compilation, fault::module, fault::function);
  const auto use = GENERATE(kernel_use::automatic, kernel_use::required);
  on_gpus([=](communicator world) -> asio::awaitable<void> {
    const cohort::log::capture log;
    const int last = world.size() - 1;
    auto options = kernels_are(use);
    if (world.rank() == last) {
      if (what == fault::library) options.nvrtc = "/nowhere/libnvrtc.so";
      if (what == fault::module) {
        fake_gpu::fail_next("cuModuleLoadData", cudaErrorInvalidKernelImage);
      }
      if (what == fault::function) fake_gpu::fail_next("cuFuncLoad", cudaErrorMemoryAllocation);
      if (what == fault::compilation) {
        nvrtc_control<decltype(fake_nvrtc_fail)>("fake_nvrtc_fail")(1, 6, "line 3: no such thing");
      }
    }
    const char* const told = what == fault::library       ? "/nowhere/libnvrtc.so"
                             : what == fault::compilation ? "line 3: no such thing"
                             : what == fault::module      ? "cuModuleLoadData"
                                                          : "cuFuncLoad";
    {
      coordinator coord(world, nccl::backend(options));
      if (use == kernel_use::automatic) {
        co_await needs_kernels(coord);
        CHECK(log.contains(told) == (world.rank() == last));
        CHECK((fake_gpu::calls("cuLaunchKernel") == 0) == (world.rank() == last));
      } else {
        auto failed = co_await why_not_opened<cohort::rank_error>(coord);
        REQUIRE(failed);
        INFO(failed->what());
        CHECK(failed->code() == errc::not_supported);
        CHECK(failed->ranks() == std::vector<int>{last});
        CHECK(has(failed->what(), "kernels are required"));
        CHECK(has(failed->what(), told));
      }
      co_await coord.shutdown();
    }
    co_await meet(world);
    auto again = co_await world.dup();
    coordinator fresh(again, nccl::backend(kernels_are(kernel_use::required)));
    co_await needs_kernels(fresh);
    co_await fresh.shutdown();
  });
}

TEST_CASE("ranks must agree on whether kernels are used") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    if (world.size() < 2) co_return;
    coordinator coord(world, nccl::backend(kernels_are(world.rank() == 0 ? kernel_use::off
                                                                         : kernel_use::automatic)));
    auto barrier = caught<cohort::mismatch_error>(coord.barrier("any"));
    const auto differs = co_await std::move(barrier);
    REQUIRE(differs);
    CHECK(has(differs->what(), "backend.kernels"));
    co_await coord.shutdown();
    co_await meet(world);
  });
}

DOUBLE_TEST_CASE(
    "a loop goes on while kernels are loaded on a busy device, and they are loaded once") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    device::stream busy;
    device::vector<float> some(5, busy);
    device::pinned_vector<float> host(5, busy);  // before the device is busy
    REQUIRE(cudaStreamSynchronize(busy.get()) == cudaSuccess);
    {  // what else may wait for a device is there below
      auto same = co_await world.dup();
      coordinator without(same, nccl::backend(kernels_are(kernel_use::off)));
      co_await needs_kernels(without);
      co_await without.shutdown();
    }
    CHECK(co_await soon([] { return fake_nccl::live_communicators() == 0; }));
    auto* const compiled = nvrtc_control<decltype(fake_nvrtc_compiled)>("fake_nvrtc_compiled");
    const int before = compiled();
    {  // so is the pinned memory of a backend: in the pool, and its stream has passed
      constexpr std::size_t size = std::size_t{1} << 18U;
      const device::pinned_vector<std::byte> packing(size, busy);
      const device::pinned_vector<std::byte> unpacking(size, busy);
      const device::pinned_vector<std::byte> of_graphs(size, busy);
    }
    REQUIRE(cudaStreamSynchronize(busy.get()) == cudaSuccess);
    fake_gpu::hold(busy.get());
    device::copy(busy, host, some);
    coordinator coord(world, nccl::backend(kernels_are(kernel_use::required)));
    CHECK(co_await soon(
        [] { return fake_gpu::calls("cuModuleLoadData") == 1 && fake_gpu::blocked_calls() == 1; }));
    std::vector<int> ranks{world.rank()};
    co_await coord.all_reduce("of the host", ranks, op::sum);  // this loop turns
    CHECK(ranks.front() == world.size() * (world.size() - 1) / 2);
    co_await meet(world);
    fake_gpu::release(busy.get());
    co_await needs_kernels(coord);
    CHECK(fake_gpu::calls("cuModuleLoadData") == 1);
    co_await coord.shutdown();
    co_await meet(world);
    auto again = co_await world.dup();
    coordinator second(again, nccl::backend(kernels_are(kernel_use::required)));
    co_await needs_kernels(second);
    CHECK(compiled() - before == 1);
    CHECK(fake_gpu::calls("cuModuleLoadData") == 1);
    co_await second.shutdown();
  });
}
