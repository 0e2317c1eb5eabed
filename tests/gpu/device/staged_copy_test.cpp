// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// `co_await device::staged_copy(...)`: pageable memory through pinned pieces.
#include "gpu/device/support.hpp"
#include "support/run.hpp"

#include <cohort/progress/deadline.hpp>

#include <asio/bind_cancellation_slot.hpp>

#include <exception>
#include <memory>
#include <optional>
#include <span>

using namespace cohort_test;
using cohort::errc;

namespace {

constexpr device::staged_copy_options small_pieces{.piece = 1002};  // cuts an int in two

/// One staged copy, how it ended, and a way to cancel it.
struct staged {
  template <class From, class To>
  staged(asio::io_context& io, const device::stream& on, From&& from, To&& to,
         device::staged_copy_options options = small_pieces) {
    asio::co_spawn(io, device::staged_copy(on, from, to, options),
                   asio::bind_cancellation_slot(cancel.slot(), [this](std::exception_ptr failed) {
                     ended = code_thrown_by([&] {
                       if (failed) std::rethrow_exception(failed);
                     });
                   }));
  }
  asio::cancellation_signal cancel;
  std::optional<std::error_code> ended;
};

std::vector<int> ints(std::size_t size, int first) {
  std::vector<int> made(size);
  std::iota(made.begin(), made.end(), first);
  return made;
}

asio::awaitable<void> there_and_back(const device::stream& on, std::size_t size,
                                     device::staged_copy_options options) {
  const std::vector<int> out = ints(size, 7);
  std::vector<int> in(size);
  device::vector<int> values(size, on);
  co_await device::staged_copy(on, out, values, options);
  co_await device::staged_copy(on, values, std::span<int>(in), options);
  CHECK(in == out);
}

}  // namespace

TEST_CASE("a vector of the host goes to the device and back, in pieces") {
  const machine here;
  if (here.lacks()) return;
  asio::io_context io;
  const device::stream on(0);
  for (const std::size_t size : {0, 1, 250, 251, 501, 502, 10000}) {
    run(io, there_and_back(on, size, small_pieces));
  }
  run(io, there_and_back(on, 10000, {}));
  run(io, there_and_back(on, 10000, {.piece = SIZE_MAX}));
}

TEST_CASE("a staged copy ends when the data is there, and the loop turns meanwhile") {
  const machine here;
  if (here.lacks()) return;
  asio::io_context io;
  const device::stream producer(0);
  const device::stream on(0);
  device::vector<int> values(1000, producer);
  auto first = counted<int>(1000, on, 1);
  std::vector<int> in(1000);
  const auto later = ints(1000, 50);
  run(io, there_and_back(on, 1000, small_pieces));  // the pool is warm
  {
    gate closed(producer);
    device::copy(producer, first, values);
    staged back(io, on, values, in);
    io.run_for(std::chrono::milliseconds(2));
    CHECK_FALSE(back.ended);
    CHECK(in == std::vector<int>(1000));
    closed.open();
    io.restart();
    io.run();
    CHECK(back.ended == std::error_code());
    CHECK(in == ints(1000, 1));
  }
  {
    gate closed(producer);
    staged there(io, on, later, values);
    io.restart();
    io.run_for(std::chrono::milliseconds(2));
    CHECK_FALSE(there.ended);
    closed.open();
    io.restart();
    io.run();
    CHECK(there.ended == std::error_code());
  }
  device::copy(producer, values, first);  // in a stream that nobody has ordered by hand
  finish(producer);
  CHECK(first[999] == 1049);
}

TEST_CASE("a staged copy that is given up leaves the rest as it was") {
  const machine here;
  if (here.lacks()) return;
  asio::io_context io;
  const device::stream on(0);
  device::vector<int> values(1000, on);
  const auto out = ints(1000, 1);
  run(io, device::staged_copy(on, out, values, small_pieces));
  finish(on);  // its buffers are out of use, so nobody makes more on a thread
  std::vector<int> in(1000);
  SECTION("by a cancellation") {
    gate closed(on);
    staged back(io, on, values, in);
    io.restart();
    io.run_for(std::chrono::milliseconds(2));
    back.cancel.emit(asio::cancellation_type::terminal);
    io.restart();
    io.run();  // without the device
    CHECK(back.ended == asio::error::operation_aborted);
    closed.open();
  }
  SECTION("by a deadline") {
    gate closed(on);
    const auto give_up = [&]() -> asio::awaitable<void> {
      auto work = device::staged_copy(on, values, in, small_pieces);
      co_await cohort::with_deadline(std::move(work), std::chrono::milliseconds(1));
    };
    CHECK(code_thrown_by([&] { run(io, give_up()); }) == errc::deadline_exceeded);
    closed.open();
  }
  finish(on);
  CHECK(in == std::vector<int>(1000));  // what came later was for pinned memory
  run(io, device::staged_copy(on, values, in, small_pieces));
  CHECK(in == out);
}

TEST_CASE("a staged copy refuses what cannot be copied") {
  const machine here;
  if (here.lacks()) return;
  asio::io_context io;
  const device::stream on(0);
  device::vector<int> values(10, on);
  std::vector<int> host(10);
  std::vector<int> nine(9);
  const auto code = [&](const auto& from, auto& to, device::staged_copy_options options = {}) {
    return code_thrown_by([&] { run(io, device::staged_copy(on, from, to, options)); });
  };
  CHECK(code(nine, values) == errc::size_mismatch);
  CHECK(code(values, nine) == errc::size_mismatch);
  CHECK(code(host, values, {.piece = 0}) == errc::invalid_argument);
  CHECK(code(host, host) == errc::invalid_argument);
  cudaGraph_t graph = nullptr;
  REQUIRE(cudaStreamBeginCapture(on.get(), cudaStreamCaptureModeRelaxed) == cudaSuccess);
  CHECK(code(host, values) == errc::not_supported);
  REQUIRE(cudaStreamEndCapture(on.get(), &graph) == cudaSuccess);
  CHECK(cudaGraphDestroy(graph) == cudaSuccess);
  CHECK_FALSE(code(host, values));
}

TEST_CASE("a staged copy of pinned memory needs no buffers between") {
  const machine here;
  if (here.lacks()) return;
  asio::io_context io;
  const device::stream on(0);
  auto out = counted<int>(1000, on, 1);
  device::pinned_vector<int> in(1000, on);
  device::vector<int> values(1000, on);
  device::vector<int> others(1000, on);
  const auto before = device::pinned_pool::of_process().size();
  run(io, device::staged_copy(on, out, values, small_pieces));
  run(io, device::staged_copy(on, values, others, small_pieces));
  run(io, device::staged_copy(on, others, in, small_pieces));
  CHECK(in[999] == 1000);
  CHECK(device::pinned_pool::of_process().size() == before);
}

namespace {

/// The pool is empty and the device is busy, so that pinned memory has to be waited for.
struct busy_device {
  busy_device() { fake_gpu::hold(busy.get()), static_cast<void>(busy.record()); }
  static void wait_for_thread() {
    while (fake_gpu::blocked_calls() == 0) std::this_thread::yield();
  }
  /// Until the thread has its block, or the failure.
  void go_on(std::size_t blocks) {
    fake_gpu::release(busy.get());
    while (fake_gpu::blocked_calls() != 0) std::this_thread::yield();
    while (device::pinned_pool::of_process().size() < blocks) std::this_thread::yield();
  }
  machine here;
  device::stream busy{0};
};

}  // namespace

DOUBLE_TEST_CASE("a loop goes on while CUDA waits with pinned memory for a staged copy") {
  busy_device device_of_this;
  asio::io_context io;
  const device::stream on(0);
  device::vector<int> values(1000, on);
  const auto out = ints(1000, 1);
  std::vector<int> in(1000);
  SECTION("and the copy comes later") {
    staged there(io, on, out, values);
    io.run_for(std::chrono::milliseconds(2));
    busy_device::wait_for_thread();
    CHECK_FALSE(there.ended);
    fake_gpu::release(device_of_this.busy.get());
    io.restart();
    io.run();
    CHECK(there.ended == std::error_code());
    run(io, device::staged_copy(on, values, in, small_pieces));
    CHECK(in == out);
  }
  SECTION("and the copy can be given up, for which the block is kept") {
    staged there(io, on, out, values);
    io.run_for(std::chrono::milliseconds(2));
    busy_device::wait_for_thread();
    there.cancel.emit(asio::cancellation_type::terminal);
    io.restart();
    io.run();
    CHECK(there.ended == asio::error::operation_aborted);
    CHECK(fake_gpu::blocked_calls() == 1);
    device_of_this.go_on(1);
  }
  SECTION("and the loop may go") {
    auto short_lived = std::make_unique<asio::io_context>();
    const staged there(*short_lived, on, out, values);
    short_lived->run_for(std::chrono::milliseconds(2));
    busy_device::wait_for_thread();
    short_lived.reset();
    CHECK_FALSE(there.ended);
    device_of_this.go_on(1);
  }
}

DOUBLE_TEST_CASE("a staged copy ends with what CUDA says") {
  const machine here;
  asio::io_context io;
  const device::stream on(0);
  device::vector<int> values(1000, on);
  std::vector<int> host(1000);
  SECTION("of pinned memory") {
    fake_gpu::fail_next("cudaHostAlloc", cudaErrorMemoryAllocation);
    CHECK(code_thrown_by([&] { run(io, device::staged_copy(on, host, values, small_pieces)); }) ==
          std::errc::not_enough_memory);
  }
  SECTION("of a piece") {
    const auto before = fake_gpu::calls("cudaMemcpyAsync");
    fake_gpu::fail_next("cudaMemcpyAsync", cudaErrorUnknown);
    CHECK(code_thrown_by([&] { run(io, device::staged_copy(on, values, host, small_pieces)); }) ==
          device::make_error(cudaErrorUnknown));
    CHECK(fake_gpu::calls("cudaMemcpyAsync") == before + 1);
  }
  SECTION("of the device") {
    fake_gpu::hold(on.get());
    staged back(io, on, values, host);
    while (fake_gpu::calls("cudaMemcpyAsync") == 0) io.run_one_for(std::chrono::milliseconds(1));
    fake_gpu::break_device(0, cudaErrorLaunchFailure);
    io.restart();
    io.run();
    CHECK(back.ended == device::make_error(cudaErrorLaunchFailure));
    CHECK(host == std::vector<int>(1000));
  }
  SECTION("of another device") {
    const machine two(2);
    const device::stream zero(0);
    const device::stream one(1);
    device::vector<int> there(1000, one);
    CHECK(code_thrown_by([&] { run(io, device::staged_copy(zero, host, there)); }) ==
          errc::wrong_device);
  }
}

TEST_CASE("a staged copy puts nothing into a capture that it refuses") {
  const machine here;
  asio::io_context io;
  const device::stream on(0);
  device::vector<int> values(1000, on);
  std::vector<int> host(1000);
  cudaGraph_t graph = nullptr;
  REQUIRE(cudaStreamBeginCapture(on.get(), cudaStreamCaptureModeGlobal) == cudaSuccess);
  CHECK(code_thrown_by([&] { run(io, device::staged_copy(on, host, values)); }) ==
        errc::not_supported);
  CHECK_DOUBLE(fake_gpu::calls("cudaMemcpyAsync") == 0);
  REQUIRE(cudaStreamEndCapture(on.get(), &graph) == cudaSuccess);
  CHECK(cudaGraphDestroy(graph) == cudaSuccess);
}

DOUBLE_TEST_CASE("a staged copy never has CUDA block its thread, and uses its buffers again") {
  const machine here;
  asio::io_context io;
  const device::stream on(0);
  device::vector<int> values(10000, on);
  std::vector<int> host(10000);
  for (int i = 0; i < 3; ++i) {
    run(io, device::staged_copy(on, host, values, small_pieces));
    finish(on);  // its buffers are out of use when their stream has come so far
    run(io, device::staged_copy(on, values, host, small_pieces));
    finish(on);
  }
  CHECK(fake_gpu::calls("cudaHostAlloc") == 2);
  CHECK(fake_gpu::calls("cudaFreeHost") == 0);
  CHECK(fake_gpu::calls("cudaMemcpyAsync") == 6 * 40);
  const staged again(io, on, host, values);
  io.restart();
  io.run_one();  // no thread has to be waited for
  CHECK(fake_gpu::calls("cudaMemcpyAsync") == 6 * 40 + 1);
  io.run();
  CHECK(again.ended == std::error_code());
}
