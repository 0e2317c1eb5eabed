// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// What only the double can be made to do: failures of the device, and the proof that the double
// itself fails where hardware does.
#include "gpu/device/support.hpp"
#include "support/run.hpp"

#include <cohort/core/log.hpp>
#include <cohort/progress/future.hpp>

#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <thread>

using namespace cohort_test;
using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;
using cohort::errc;

namespace {

std::error_code cuda(cudaError_t code) { return device::make_error(code); }

/// One wait, and how it ended.
struct waiter {
  waiter(asio::io_context& io, const device::stream& on) {
    device::done(io, on, [this](std::error_code error) { ended = error; });
  }
  std::optional<std::error_code> ended;
};

/// Whether the kernel may read `bytes` there on behalf of this process: it reports what would be a
/// segmentation fault.
bool host_may_read(const void* address, std::size_t bytes) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const auto written = write(ends[1], address, bytes);
  close(ends[0]);
  close(ends[1]);
  return written >= 0;
}

}  // namespace

// ---- the library, when the device fails --------------------------------------------------------

TEST_CASE("no device is one error, whatever CUDA calls it") {
  const machine here(0);
  const auto check = [](const char* reason) {
    CHECK(device::count() == 0);
    CHECK(code_thrown_by([] { device::stream(); }) == errc::no_device);
    CHECK(code_thrown_by([] { device::vector<int>(1); }) == errc::no_device);
    CHECK_THROWS_WITH(device::default_device(), ContainsSubstring(reason));
    int on_the_stack = 0;
    CHECK(device::locate(&on_the_stack).space == cohort::memory_space::host);
  };
  SECTION("none") { check("cudaErrorNoDevice"); }
  SECTION("a driver that is too old") {
    fake_gpu::restart(1);
    fake_gpu::fail_count(cudaErrorInsufficientDriver);
    check("cudaErrorInsufficientDriver");
  }
  SECTION("a stub library") {
    fake_gpu::fail_count(cudaErrorStubLibrary);
    CHECK(device::count() == 0);
    CHECK(code_thrown_by([] { device::stream(); }) == errc::no_device);
  }
  SECTION("the control: another failure is not taken for it") {
    fake_gpu::fail_count(cudaErrorUnknown);
    CHECK(code_thrown_by([] { static_cast<void>(device::count()); }) == cuda(cudaErrorUnknown));
  }
}

TEST_CASE("a sticky error ends everybody who waits for that device, and nobody else") {
  const machine here(2);
  asio::io_context io;
  asio::io_context other_io;
  const device::stream broken(0);
  const device::stream beside(0);
  const device::stream elsewhere(1);
  fake_gpu::hold(beside.get());
  std::optional<gate> closed(elsewhere);
  {
    device::vector<int> values(10, broken);
    const device::pinned_vector<int> host(10, broken);
    const waiter first(io, broken);
    const waiter held(io, beside);
    const waiter of_other_context(other_io, beside);
    const waiter healthy(io, elsewhere);
    CHECK(fake_gpu::crash(broken.get(), cudaErrorLaunchFailure) == cudaSuccess);
    const waiter behind(io, broken);
    io.run_for(20ms);
    while (!behind.ended) io.run_one_for(1ms);
    other_io.run();
    CHECK(behind.ended == cuda(cudaErrorLaunchFailure));
    CHECK(held.ended == cuda(cudaErrorLaunchFailure));
    CHECK(of_other_context.ended == cuda(cudaErrorLaunchFailure));
    CHECK_FALSE(healthy.ended);
    closed.reset();
    io.run();
    CHECK(healthy.ended == std::error_code());

    // Every later call says so at once, without asking CUDA.
    CHECK(code_thrown_by([] { device::stream(0); }) == cuda(cudaErrorLaunchFailure));
    CHECK(code_thrown_by([&] { static_cast<void>(beside.record()); }) ==
          cuda(cudaErrorLaunchFailure));
    CHECK(code_thrown_by([&] { device::copy(broken, host, values); }) ==
          cuda(cudaErrorLaunchFailure));
    const waiter late(io, beside);
    io.restart();
    io.run();
    CHECK(late.ended == cuda(cudaErrorLaunchFailure));
  }
  CHECK(fake_gpu::calls("cudaFreeAsync") == 0);  // nothing is freed on a lost device
  CHECK(fake_gpu::calls("cudaFreeHost") == 0);
  device::vector<int>(1, elsewhere);  // the other device works
}

TEST_CASE("an error that is not sticky ends one wait only") {
  const machine here;
  asio::io_context io;
  const device::stream on(0);
  const waiter first(io, on);
  const waiter second(io, on);
  fake_gpu::fail_next("cudaEventQuery", cudaErrorUnknown);
  io.run();
  CHECK(first.ended == cuda(cudaErrorUnknown));
  CHECK(second.ended == std::error_code());
  CHECK(device::state_of(0).lost() == cudaSuccess);
}

TEST_CASE("an event that cannot be recorded is reported through the loop") {
  const machine here;
  asio::io_context io;
  const device::stream on(0);
  fake_gpu::fail_next("cudaEventRecord", cudaErrorUnknown);
  const waiter failed(io, on);
  CHECK_FALSE(failed.ended);
  io.run();
  CHECK(failed.ended == cuda(cudaErrorUnknown));
}

TEST_CASE("memory that is not there is reported with CUDA's code") {
  const machine here;
  const device::stream on(0);
  fake_gpu::fail_next("cudaMallocAsync", cudaErrorMemoryAllocation);
  CHECK(code_thrown_by([&] { device::vector<int>(10, on); }) == std::errc::not_enough_memory);
  fake_gpu::fail_next("cudaHostAlloc", cudaErrorMemoryAllocation);
  CHECK(code_thrown_by([&] { device::pinned_vector<int>(10, on); }) ==
        std::errc::not_enough_memory);
  CHECK(cudaPeekAtLastError() == cudaSuccess);
  const device::vector<int> values(10, on);
  CHECK(fake_gpu::live_allocations(0) == 1);
}

TEST_CASE("what a foreign reset has destroyed is gone, and the device works again") {
  const machine here;
  asio::io_context io;
  std::optional<device::stream> old(device::stream(0));
  std::optional<device::vector<int>> values(std::in_place, 10, *old);
  std::optional<device::pinned_vector<int>> host(std::in_place, 10, *old);
  std::optional<gate> closed;
  SECTION("with somebody waiting") {
    fake_gpu::hold(old->get());
    const waiter waiting(io, *old);
    REQUIRE(cudaDeviceReset() == cudaSuccess);
    io.run();
    CHECK(waiting.ended == cuda(cudaErrorInvalidResourceHandle));
  }
  SECTION("with two of which one is asked for first") {
    const device::stream second(0);
    fake_gpu::hold(old->get());
    fake_gpu::hold(second.get());
    const waiter one(io, *old);
    const waiter two(io, second);
    const waiter three(io, second);
    REQUIRE(cudaDeviceReset() == cudaSuccess);
    io.run();
    for (const auto* each : {&one, &two, &three}) {
      REQUIRE(each->ended);
      CHECK(each->ended->category() == device::cuda_category());
    }
  }
  const auto destroyed = fake_gpu::calls("cudaStreamDestroy");
  CHECK(code_thrown_by([&] { static_cast<void>(old->record()); }) ==
        cuda(cudaErrorContextIsDestroyed));
  values.reset();
  host.reset();
  old.reset();
  CHECK(fake_gpu::calls("cudaFreeAsync") == 0);
  CHECK(fake_gpu::calls("cudaStreamDestroy") == destroyed);
  const device::stream now(0);
  const waiter works(io, now);
  io.restart();
  io.run();
  CHECK(works.ended == std::error_code());
}

TEST_CASE("an event of the pool that a reset has destroyed is replaced") {
  const machine here;
  asio::io_context io;
  {
    const auto pooled = device::stream(0).record();
  }
  REQUIRE(cudaDeviceReset() == cudaSuccess);
  const device::stream now(0);
  const auto before = fake_gpu::calls("cudaEventCreateWithFlags");
  const waiter first(io, device::stream::borrow(now.get()));
  io.run();
  CHECK(first.ended == std::error_code());
  CHECK(fake_gpu::calls("cudaEventCreateWithFlags") > before);
}

TEST_CASE("a borrowed stream that is not one does not condemn the others") {
  const machine here(2);
  asio::io_context io;
  const device::stream good(0);
  gate closed(good);
  const waiter waiting(io, good);
  device::stream bad = good;
  {
    const device::stream elsewhere(1);
    fake_gpu::fail_next("cudaStreamGetDevice", cudaErrorNotSupported);  // a driver before 12.8
    bad = device::stream::borrow(elsewhere.get(), 0);
    CHECK(code_thrown_by([&] { static_cast<void>(bad.record()); }) ==
          cuda(cudaErrorInvalidResourceHandle));
  }
  CHECK(device::state_of(0).generation() == good.record().generation());
  closed.open();
  io.run();
  CHECK(waiting.ended == std::error_code());
}

TEST_CASE("the end of the runtime is no fault in destructors, and ends waits") {
  const machine here;
  asio::io_context io;
  {
    const device::stream on(0);
    const device::vector<int> values(10, on);
    const device::pinned_vector<int> host(10, on);
    const device::event mark = on.record();
    fake_gpu::hold(on.get());
    const waiter waiting(io, on);
    fake_gpu::unload(true);
    io.run();
    CHECK(waiting.ended == cuda(cudaErrorCudartUnloading));
  }
  fake_gpu::unload(false);
}

TEST_CASE("what belongs to another device is refused by name") {
  const machine here(3);
  const device::stream zero(0);
  const device::stream one(1);
  const device::stream two(2);
  device::vector<int> there(10, one);
  device::vector<int> at_home(10, zero);
  auto host = counted<int>(10, zero, 0);
  CHECK(code_thrown_by([&] { device::copy(zero, host, there); }) == errc::wrong_device);
  CHECK(code_thrown_by([&] { device::copy(zero, there, host); }) == errc::wrong_device);
  CHECK(code_thrown_by([&] { device::copy(two, there, at_home); }) == errc::wrong_device);
  CHECK(code_thrown_by([&] { device::fill(zero, there, 7); }) == errc::wrong_device);
  CHECK(code_thrown_by([&] { device::fill_bytes(zero, there, std::byte(7)); }) ==
        errc::wrong_device);
  CHECK(fake_gpu::calls("cudaMemsetAsync") == 0);
  const device::span<int> unknown(there.data(), 10);  // nobody says which stream works on it
  CHECK(code_thrown_by([&] { device::copy(zero, host, unknown); }) == errc::wrong_device);
  CHECK(code_thrown_by([&] { static_cast<void>(device::stream::borrow(one.get(), 0)); }) ==
        errc::wrong_device);
  CHECK(device::stream::borrow(one.get()).device() == 1);
  CHECK(fake_gpu::calls("cudaMemcpyAsync") == 0);
  CHECK(fake_gpu::calls("cudaMemcpyPeerAsync") == 0);
  one.wait(zero);  // across devices events work
  finish(one);
}

TEST_CASE("a copy to a device that is lost is refused, and the other one goes on") {
  const machine here(2);
  const device::stream zero(0);
  const device::stream one(1);
  device::vector<int> from(10, zero);
  device::vector<int> to(10, one);
  fake_gpu::break_device(1, cudaErrorLaunchFailure);
  CHECK(code_thrown_by([&] { static_cast<void>(one.record()); }) == cuda(cudaErrorLaunchFailure));
  CHECK(code_thrown_by([&] { device::copy(zero, from, to); }) == cuda(cudaErrorLaunchFailure));
  CHECK(fake_gpu::calls("cudaMemcpyPeerAsync") == 0);
  auto host = counted<int>(10, zero, 0);
  device::copy(zero, host, from);
  finish(zero);
}

TEST_CASE("a batch of copies is one call where CUDA can, and one for each copy elsewhere") {
  const machine here;
  const device::stream on(0);
  const device::vector<int> from(30, on);
  device::vector<int> to(30, on);
  const std::vector<device::batch_part> batch = {{to.data(), from.data(), 40},
                                                 {to.data() + 10, nullptr, 0},
                                                 {to.data() + 20, from.data() + 20, 40}};
  const auto calls = [](const device::stream& where, const std::vector<device::batch_part>& what) {
    const auto batches = fake_gpu::calls("cudaMemcpyBatchAsync");
    const auto copies = fake_gpu::calls("cudaMemcpyAsync");
    device::copy_batch(where, what);
    CHECK(cudaPeekAtLastError() == cudaSuccess);
    return std::pair(fake_gpu::calls("cudaMemcpyBatchAsync") - batches,
                     fake_gpu::calls("cudaMemcpyAsync") - copies);
  };
  using counts = std::pair<std::uint64_t, std::uint64_t>;
  SECTION("one call") {
    CHECK(calls(on, batch) == counts(1, 0));
    CHECK(calls(on, {}) == counts(0, 0));
    CHECK(calls(on, {{to.data(), nullptr, 0}}) == counts(0, 0));
  }
  SECTION("not in the default stream") {
    CHECK(calls(device::stream::borrow(nullptr), batch) == counts(0, 2));
    CHECK(calls(device::stream::borrow(cudaStreamPerThread), batch) == counts(1, 0));
  }
  SECTION("not in a capture, which goes on") {
    cudaGraph_t graph = nullptr;
    REQUIRE(cudaStreamBeginCapture(on.get(), cudaStreamCaptureModeGlobal) == cudaSuccess);
    CHECK(calls(on, batch) == counts(0, 2));
    CHECK(cudaStreamEndCapture(on.get(), &graph) == cudaSuccess);
    CHECK(calls(on, batch) == counts(1, 0));
  }
  SECTION("a driver that is too old is asked once") {
    const auto code = GENERATE(cudaErrorNotSupported, cudaErrorCallRequiresNewerDriver);
    fake_gpu::fail_next("cudaMemcpyBatchAsync", code, 2);
    CHECK(calls(on, batch) == counts(1, 2));
    CHECK(calls(on, batch) == counts(0, 2));
  }
  SECTION("other refusals are errors, and it is asked again") {
    fake_gpu::fail_next("cudaMemcpyBatchAsync", cudaErrorUnknown);
    CHECK(code_thrown_by([&] { device::copy_batch(on, batch); }) == cuda(cudaErrorUnknown));
    CHECK(calls(on, batch) == counts(1, 0));
    fake_gpu::fail_next("cudaMemcpyBatchAsync", cudaErrorNotSupported);
    fake_gpu::fail_next("cudaMemcpyAsync", cudaErrorUnknown);
    CHECK(code_thrown_by([&] { device::copy_batch(on, batch); }) == cuda(cudaErrorUnknown));
  }
  SECTION("a lost device is not asked") {
    fake_gpu::break_device(0, cudaErrorLaunchFailure);
    CHECK(code_thrown_by([&] { static_cast<void>(on.record()); }) == cuda(cudaErrorLaunchFailure));
    CHECK(code_thrown_by([&] { device::copy_batch(on, batch); }) == cuda(cudaErrorLaunchFailure));
    CHECK(fake_gpu::calls("cudaMemcpyBatchAsync") == 0);
  }
}

TEST_CASE("a look asks once for the head of each stream") {
  const machine here;
  asio::io_context io;
  auto& source = asio::use_service<device::completion_source>(io);
  const device::stream first(0);
  const device::stream second(0);
  fake_gpu::hold(first.get());
  fake_gpu::hold(second.get());
  waiter a(io, first), b(io, first), c(io, second);
  cohort::progress::ready_queue ready;
  const auto look = [&] {
    const auto before = fake_gpu::calls("cudaEventQuery");
    source.begin_lap(ready);
    source.test(ready);
    source.end_lap();
    return fake_gpu::calls("cudaEventQuery") - before;
  };
  CHECK(source.is_dear());  // see progress/engine_test.cpp
  CHECK(source.pending() == 3);
  CHECK(look() == 2);
  CHECK(look() == 2);
  CHECK(source.longest_nap() <= cohort::engine_options().nap);
  fake_gpu::release(first.get());
  finish(first);
  CHECK(look() == 3);  // both of the first, and the head of the second
  CHECK(look() == 1);
  fake_gpu::release(second.get());
  finish(second);
  CHECK(look() == 1);
  CHECK(look() == 0);
  CHECK(source.pending() == 0);
  while (!ready.empty()) ready.pop()->deliver();
  CHECK(b.ended == std::error_code());
}

TEST_CASE("events are used again") {
  const machine here;
  asio::io_context io;
  const device::stream on(0);
  for (int i = 0; i < 20; ++i) {
    const waiter one(io, on);
    io.restart();
    io.run();
    CHECK(one.ended == std::error_code());
  }
  CHECK(fake_gpu::calls("cudaEventCreateWithFlags") == 1);
  CHECK(fake_gpu::live_events(0) == 1);
}

TEST_CASE("streams and memory are given back") {
  const machine here;
  {
    const device::stream on(0);
    const device::stream copy = on;
    const device::vector<int> values(10, on);
    const device::pinned_vector<int> host(10, on);
    CHECK(fake_gpu::live_streams(0) == 1);
    CHECK(fake_gpu::live_allocations(0) == 2);
  }
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  CHECK(fake_gpu::live_streams(0) == 0);
  CHECK(fake_gpu::live_allocations(0) == 1);  // the pool's
  CHECK(device::pinned_pool::of_process().trim() == 1);
  CHECK(fake_gpu::live_allocations(0) == 0);
}

TEST_CASE("the report of what is in flight names device and stream") {
  const machine here;
  asio::io_context io;
  const device::stream on(0);
  fake_gpu::hold(on.get());
  const waiter waiting(io, on);
  std::string text;
  cohort::use_engine(io).describe(text);
  CHECK_THAT(text, ContainsSubstring("device 0, stream 0x"));
  CHECK_THAT(text, ContainsSubstring("done, just started"));
  fake_gpu::release(on.get());
  io.run();
}

TEST_CASE("a wait that takes long is named once, with its age") {
  const machine here;
  setenv("COHORT_STALL_WARNING", "1ms", 1);
  asio::io_context io;
  const device::stream on(0);
  fake_gpu::hold(on.get());
  const cohort::log::capture log;
  const waiter waiting(io, on);
  while (!log.contains("pending for")) io.run_one_for(10ms);
  unsetenv("COHORT_STALL_WARNING");
  CHECK(log.contains("stalled:"));
  CHECK(log.contains("device 0, stream 0x"));
  const auto once = log.text();
  io.run_for(120ms);  // at least one more tick
  CHECK(log.text() == once);
  fake_gpu::release(on.get());
  io.run();
  CHECK(waiting.ended == std::error_code());
}

// ---- the double: each thing that it claims to catch, caught ------------------------------------

TEST_CASE("the double: the host cannot touch device memory, work on the device can") {
  const machine here;
  const device::stream on(0);
  device::vector<char> values(100, on);
  const device::pinned_vector<char> pinned(100, on);
  CHECK(host_may_read(pinned.data(), 1));  // the control of the control
  CHECK_FALSE(host_may_read(values.data(), 1));
  CHECK_FALSE(host_may_read(values.data() + 99, 1));
  CHECK(fake_gpu::access(values.data(), 1) == nullptr);  // on no stream's thread
  fake_gpu::launch(
      on.get(), [](void* at) { std::memset(fake_gpu::access(at, 100), 7, 100); }, values.data());
  device::pinned_vector<char> back(100, on);
  device::copy(on, values, back);
  finish(on);
  CHECK(back[99] == 7);
}

TEST_CASE("the double: without a driver the last error stays, and no count is written") {
  const machine here(1);
  fake_gpu::fail_count(cudaErrorInsufficientDriver);
  int count = -5;
  CHECK(cudaGetDeviceCount(&count) == cudaErrorInsufficientDriver);
  CHECK(count == -5);
  CHECK(cudaGetLastError() == cudaErrorInsufficientDriver);
  CHECK(cudaGetLastError() == cudaErrorInsufficientDriver);  // so says libcudart 13.0
  fake_gpu::fail_count(cudaSuccess);
  static_cast<void>(cudaGetLastError());
  CHECK(cudaGetLastError() == cudaSuccess);
}

TEST_CASE("the double: streams go on while nobody looks") {
  const machine here;
  const device::stream on(0);
  std::atomic<int> reached{0};
  fake_gpu::launch(
      on.get(),
      [](void* at) {
        static_cast<std::atomic<int>*>(at)->store(1);
        static_cast<std::atomic<int>*>(at)->notify_all();
      },
      &reached);
  reached.wait(0);
  CHECK(reached == 1);
}

TEST_CASE("the double: calls that wait for the device on hardware wait here") {
  const machine here;
  const device::stream on(0);
  std::vector<char> pageable(100);
  void* device_memory = nullptr;
  void* host_memory = nullptr;
  REQUIRE(cudaMalloc(&device_memory, 100) == cudaSuccess);
  REQUIRE(cudaHostAlloc(&host_memory, 100, 0) == cudaSuccess);
  fake_gpu::hold(on.get());
  CHECK(cudaMemcpyAsync(device_memory, host_memory, 100, cudaMemcpyDefault, on.get()) ==
        cudaSuccess);
  const auto blocks = [&](auto call) {
    cudaError_t result = cudaErrorUnknown;
    std::thread caller([&] { result = call(); });
    while (fake_gpu::blocked_calls() == 0) std::this_thread::yield();
    fake_gpu::release(on.get());
    caller.join();
    CHECK(result == cudaSuccess);
    fake_gpu::hold(on.get());
    CHECK(cudaMemsetAsync(device_memory, 0, 100, on.get()) == cudaSuccess);
  };
  void* more = nullptr;
  blocks([&] { return cudaMalloc(&more, 100); });
  blocks([&] { return cudaFree(more); });
  blocks([&] { return cudaHostAlloc(&more, 100, 0); });
  blocks([&] { return cudaFreeHost(more); });
  blocks([&] {
    return cudaMemcpyAsync(pageable.data(), device_memory, 100, cudaMemcpyDefault, on.get());
  });
  blocks([&] { return cudaDeviceSynchronize(); });
  CHECK(cudaMallocAsync(&more, 100, on.get()) == cudaSuccess);  // these do not
  CHECK(cudaFreeAsync(more, on.get()) == cudaSuccess);
  fake_gpu::release(on.get());
  finish(on);
}

TEST_CASE("the double: memory that was freed breaks the device") {
  const machine here;
  const device::stream on(0);
  const device::stream other(0);
  device::pinned_vector<int> host(10, on);
  int* data = nullptr;
  fake_gpu::hold(other.get());
  {
    const device::vector<int> values(10, on);
    data = const_cast<int*>(values.data());
    // A stream that nobody has ordered with that of the vector.
    REQUIRE(cudaMemcpyAsync(host.data(), data, 40, cudaMemcpyDefault, other.get()) == cudaSuccess);
  }
  finish(on);
  fake_gpu::release(other.get());
  CHECK(cudaStreamSynchronize(other.get()) == cudaErrorIllegalAddress);
  CHECK(cudaStreamQuery(on.get()) == cudaErrorIllegalAddress);  // and it is sticky
  static_cast<void>(cudaGetLastError());
  CHECK(cudaStreamQuery(on.get()) == cudaErrorIllegalAddress);
  static_cast<void>(cudaGetLastError());
}

TEST_CASE("the double: what belongs to another device is refused, or breaks the one that uses it") {
  const machine here(2);
  const device::stream zero(0);
  const device::stream one(1);
  device::vector<int> there(10, one);
  const device::event mark(0);
  CHECK(cudaEventRecord(mark.get(), one.get()) == cudaErrorInvalidResourceHandle);
  CHECK(cudaFreeAsync(there.data(), zero.get()) == cudaErrorInvalidValue);
  fake_gpu::launch(
      zero.get(), [](void* at) { static_cast<void>(fake_gpu::access(at, 4)); }, there.data());
  CHECK(cudaStreamSynchronize(zero.get()) == cudaErrorIllegalAddress);
  CHECK(cudaStreamSynchronize(one.get()) == cudaSuccess);
  static_cast<void>(cudaGetLastError());
}

TEST_CASE("the parts of a GPU have a bus id in common and a UUID each") {
  const machine here(2);
  fake_gpu::set_bus_id(1, 0x17);  // that of device 0
  CHECK(device::uuid(0) == device::uuid(1));
  fake_gpu::set_uuid(0, 5);
  fake_gpu::set_uuid(1, 6);
  CHECK_FALSE(device::uuid(0) == device::uuid(1));
  CHECK(code_thrown_by([] { static_cast<void>(device::uuid(2)); }) == cuda(cudaErrorInvalidDevice));
  fake_gpu::fail_next("cudaGetDeviceProperties", cudaErrorNoDevice);
  CHECK(code_thrown_by([] { static_cast<void>(device::uuid(0)); }) == errc::no_device);
}

TEST_CASE("the double: a copy between devices breaks the one that is told the wrong numbers") {
  const machine here(2);
  const device::stream zero(0);
  const device::stream one(1);
  const device::vector<int> from(10, zero);
  device::vector<int> to(10, one);
  CHECK(cudaMemcpyPeerAsync(to.data(), 1, from.data(), 0, 40, zero.get()) == cudaSuccess);
  CHECK(cudaStreamSynchronize(zero.get()) == cudaSuccess);
  CHECK(cudaMemcpyPeerAsync(to.data(), 2, from.data(), 0, 40, zero.get()) ==
        cudaErrorInvalidDevice);
  int on_the_stack[10];
  CHECK(cudaMemcpyPeerAsync(to.data(), 1, on_the_stack, 0, 40, zero.get()) ==
        cudaErrorInvalidValue);
  CHECK(cudaMemcpyPeerAsync(to.data(), 0, from.data(), 1, 40, zero.get()) == cudaSuccess);
  CHECK(cudaStreamSynchronize(zero.get()) == cudaErrorIllegalAddress);
  static_cast<void>(cudaGetLastError());
}

TEST_CASE("the double: asking for an event spoils a capture that forbids it") {
  const machine here;
  const device::stream on(0);
  const device::stream captured(0);
  const device::event mark = on.record();
  finish(on);
  cudaGraph_t graph = nullptr;
  REQUIRE(cudaStreamBeginCapture(captured.get(), cudaStreamCaptureModeGlobal) == cudaSuccess);
  CHECK(mark.is_ready());  // the library asks in a way that spoils nothing
  CHECK(cudaStreamEndCapture(captured.get(), &graph) == cudaSuccess);
  REQUIRE(cudaStreamBeginCapture(captured.get(), cudaStreamCaptureModeGlobal) == cudaSuccess);
  CHECK(cudaEventQuery(mark.get()) == cudaErrorStreamCaptureUnsupported);
  CHECK(cudaStreamEndCapture(captured.get(), &graph) == cudaErrorStreamCaptureInvalidated);
  const device::event inside(0);
  REQUIRE(cudaStreamBeginCapture(captured.get(), cudaStreamCaptureModeRelaxed) == cudaSuccess);
  REQUIRE(cudaEventRecord(inside.get(), captured.get()) == cudaSuccess);
  CHECK(inside.query() == cudaErrorCapturedEvent);
  CHECK(cudaStreamEndCapture(captured.get(), &graph) == cudaErrorStreamCaptureInvalidated);
  static_cast<void>(cudaGetLastError());
}

TEST_CASE("the double: batches are refused where hardware refuses them, and have no order inside") {
  const machine here;
  const device::stream on(0);
  device::pinned_vector<int> chain(3, on);
  chain[0] = 1;
  chain[1] = 2;
  chain[2] = 3;
  void* to[] = {chain.data() + 1, chain.data() + 2};
  const void* from[] = {chain.data(), chain.data() + 1};
  std::size_t bytes[] = {sizeof(int), sizeof(int)};
  cudaMemcpyAttributes how{};
  how.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
  std::size_t first = 0;
  const auto batch = [&](cudaStream_t where, std::size_t attributes = 1) {
    const auto code = cudaMemcpyBatchAsync(to, from, bytes, 2, &how, &first, attributes, where);
    static_cast<void>(cudaGetLastError());
    return code;
  };
  CHECK(batch(nullptr) == cudaErrorInvalidValue);
  CHECK(batch(cudaStreamLegacy) == cudaErrorInvalidValue);
  CHECK(batch(on.get(), 0) == cudaErrorInvalidValue);
  first = 1;
  CHECK(batch(on.get()) == cudaErrorInvalidValue);
  first = 0;
  how.srcAccessOrder = cudaMemcpySrcAccessOrderInvalid;
  CHECK(batch(on.get()) == cudaErrorInvalidValue);
  how.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
  bytes[1] = 0;
  CHECK(batch(on.get()) == cudaErrorInvalidValue);
  bytes[1] = sizeof(int);
  cudaGraph_t graph = nullptr;
  REQUIRE(cudaStreamBeginCapture(on.get(), cudaStreamCaptureModeRelaxed) == cudaSuccess);
  CHECK(batch(on.get()) == cudaErrorStreamCaptureUnsupported);
  CHECK(cudaStreamEndCapture(on.get(), &graph) == cudaErrorStreamCaptureInvalidated);
  finish(on);
  CHECK(chain[2] == 3);  // none of these did anything
  CHECK(batch(on.get()) == cudaSuccess);
  finish(on);
  CHECK(chain[1] == 1);
  CHECK(chain[2] == 2);  // with the first copy before the second it would be 1
  static_cast<void>(cudaGetLastError());
}

TEST_CASE("the double: a stream that hangs hangs until it is released, and delays delay") {
  const machine here;
  const device::stream on(0);
  fake_gpu::hold(on.get());
  const device::event mark = on.record();
  CHECK(mark.query() == cudaErrorNotReady);
  CHECK(cudaStreamQuery(on.get()) == cudaErrorNotReady);
  CHECK(cudaGetLastError() == cudaErrorNotReady);  // as with hardware, so the library clears it
  fake_gpu::release(on.get());
  finish(on);
  CHECK(mark.query() == cudaSuccess);
  fake_gpu::delay(0, 2000);
  const auto start = std::chrono::steady_clock::now();
  static_cast<void>(on.record());
  finish(on);
  CHECK(std::chrono::steady_clock::now() - start >= 2ms);  // a lower bound holds on any machine
}

TEST_CASE("the double: only events with timing that were reached tell a time") {
  const machine here(1);
  cudaStream_t s = nullptr;
  REQUIRE(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking) == cudaSuccess);
  cudaEvent_t first = nullptr;
  cudaEvent_t last = nullptr;
  cudaEvent_t untimed = nullptr;
  REQUIRE(cudaEventCreateWithFlags(&first, cudaEventDefault) == cudaSuccess);
  REQUIRE(cudaEventCreateWithFlags(&last, cudaEventDefault) == cudaSuccess);
  REQUIRE(cudaEventCreateWithFlags(&untimed, cudaEventDisableTiming) == cudaSuccess);
  float time = -1;  // in milliseconds
  CHECK(cudaEventElapsedTime(&time, first, last) == cudaErrorInvalidResourceHandle);
  fake_gpu::delay(0, 2000);  // each piece of work takes that long at least
  REQUIRE(cudaEventRecord(first, s) == cudaSuccess);
  fake_gpu::hold(s);
  REQUIRE(cudaEventRecord(last, s) == cudaSuccess);
  REQUIRE(cudaEventRecord(untimed, s) == cudaSuccess);
  CHECK(cudaEventElapsedTime(&time, first, last) == cudaErrorNotReady);
  fake_gpu::release(s);
  REQUIRE(cudaStreamSynchronize(s) == cudaSuccess);
  CHECK(cudaEventElapsedTime(&time, first, last) == cudaSuccess);
  CHECK(time >= 2);
  CHECK(cudaEventElapsedTime(&time, first, untimed) == cudaErrorInvalidResourceHandle);
}

TEST_CASE("the double: a reset invalidates handles, and work behind a fault never runs") {
  const machine here;
  cudaStream_t stream = nullptr;
  cudaEvent_t event = nullptr;
  REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
  REQUIRE(cudaEventCreateWithFlags(&event, cudaEventDisableTiming) == cudaSuccess);
  std::atomic<bool> ran{false};
  CHECK(fake_gpu::crash(stream, cudaErrorLaunchFailure) == cudaSuccess);
  fake_gpu::launch(
      stream, [](void* at) { static_cast<std::atomic<bool>*>(at)->store(true); }, &ran);
  CHECK(cudaStreamSynchronize(stream) == cudaErrorLaunchFailure);
  CHECK_FALSE(ran);
  CHECK(cudaEventQuery(event) == cudaErrorLaunchFailure);
  CHECK(cudaMallocAsync(reinterpret_cast<void**>(&event), 1, stream) == cudaErrorLaunchFailure);
  REQUIRE(cudaDeviceReset() == cudaSuccess);
  CHECK(cudaEventQuery(event) == cudaErrorInvalidResourceHandle);
  CHECK(cudaStreamQuery(stream) == cudaErrorInvalidResourceHandle);
  CHECK(cudaStreamDestroy(stream) == cudaErrorInvalidResourceHandle);
  static_cast<void>(cudaGetLastError());
}

TEST_CASE("a vector on a default stream of another device is freed there") {
  const machine here(2);
  REQUIRE(cudaSetDevice(0) == cudaSuccess);
  const auto legacy = device::stream::borrow(nullptr, 1);
  {
    const device::vector<int> made(10, legacy);
    CHECK(fake_gpu::live_allocations(1) == 1);
  }
  {
    const device::scoped_device there(1);
    CHECK(cudaStreamSynchronize(cudaStreamLegacy) == cudaSuccess);
  }
  CHECK(fake_gpu::live_allocations(1) == 0);
  CHECK(device::current() == 0);
}

TEST_CASE("a sticky error that a question without a device answers is seen") {
  for (const char* const call : {"cudaPointerGetAttributes", "cudaGetDeviceCount"}) {
    INFO(call);
    const machine here;
    const device::stream on;
    const device::vector<int> values(4, on);
    fake_gpu::fail_next(call, cudaErrorIllegalAddress);
    const bool locates = std::strcmp(call, "cudaPointerGetAttributes") == 0;
    CHECK(code_thrown_by([&] {
            if (locates) {
              static_cast<void>(device::locate(values.data()));
            } else {
              static_cast<void>(device::count());
            }
          }) == cuda(cudaErrorIllegalAddress));
    CHECK(device::state_of(0).lost() == cudaErrorIllegalAddress);
  }
}
