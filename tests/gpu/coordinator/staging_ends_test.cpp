// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

/// \file Staged operations where no handler is run: futures that are dropped, contexts that end.

#include "early_ends.hpp"
#include "support.hpp"
#include "support/patience.hpp"

#include <cohort/collectives.hpp>
#include <cohort/p2p.hpp>
#include <cohort/progress/future.hpp>
#include <cohort/staging.hpp>

#include <cstddef>
#include <deque>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace cohort_test;
using cohort::communicator;

/// A stream that is held back, and let go in a while where nothing else would do it.
class late_stream {
 public:
  explicit late_stream(const device::stream& on) : held_(on) {}
  ~late_stream() {
    if (thread_.joinable()) thread_.join();
  }
  late_stream(const late_stream&) = delete;
  void let_go_soon() {
    thread_ = std::thread([this] {
      std::this_thread::sleep_for(50ms);
      held_.let_go();
    });
  }

 private:
  held_stream held_;
  std::thread thread_;
};

/// Where a collective is when its context ends.
enum class staged_at { copy_in, mpi, copy_out };

/// What is on the stream by now is over.
bool is_idle_soon(const device::stream& on) {
  const device::event mark = on.record();
  const auto end = std::chrono::steady_clock::now() + cohort_test::patient(20s);
  while (!mark.is_ready()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}

/// Alive as long as a coroutine's frame.
struct frame_mark {
  explicit frame_mark(int& count) : of(count) { ++of; }
  ~frame_mark() { --of; }
  frame_mark(const frame_mark&) = delete;
  int& of;
};

asio::awaitable<void> sums_staged(communicator world, device::span<int> values, int& frames) {
  const frame_mark mark(frames);
  auto work = cohort::all_reduce(world, values, op::sum);
  co_await std::move(work);
}

asio::awaitable<communicator> twin_of(communicator world) {
  auto made = world.dup();
  co_return co_await std::move(made);
}

asio::awaitable<void> sums_on_host(communicator world, int& frames) {
  const frame_mark mark(frames);
  std::vector<int> values(10, 1);
  auto work = cohort::all_reduce(world, values, op::sum);
  co_await std::move(work);
}

}  // namespace

TEST_CASE("a dropped future over device memory waits in place for a collective, on its loop too") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    const clocked bound;
    const device::stream on;
    auto values = co_await filled(on, 10, 1);
    const device::span<int> view(values);
    co_await meet(world);
    {
      auto dropped = cohort::all_reduce(world, view, op::sum, cohort::as_future);
    }
    std::vector<int> host(3, 1);
    co_await cohort::all_reduce(world, host, op::sum);
    CHECK(host == std::vector<int>(3, world.size()));
    // Unlike a handler, which would have to be run.
    {
      auto dropped = cohort::broadcast(world, view, 0, cohort::as_future);
    }
    {
      auto dropped = cohort::barrier(world, cohort::as_future);
    }
    co_await meet(world);
  });
}

TEST_CASE("a dropped future over device memory gives up a receive that nobody answers") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    const clocked bound;
    const device::stream on;
    auto room = co_await filled(on, 10, 1);
    const device::span<int> view(room);
    {
      auto dropped = cohort::recv(world, view, left_of(world), 5, cohort::as_future);
    }
    {
      auto posted = cohort::recv(world, view, left_of(world), 5, cohort::as_future);
      co_await pause(5ms);
    }
    {
      auto owning = cohort::recv(world, room, left_of(world), 5, cohort::as_future);
    }
    CHECK(co_await now_in(room) == std::vector<int>(10, 1));
    co_await meet(world);
  });
}

DOUBLE_TEST_CASE("a receive is given up while its memory is still asked for") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    const clocked bound;
    const device::stream on;
    const device::stream busy;
    const std::size_t size = std::size_t{3} << 20U;  // that no other test has left in the pool
    auto room = co_await filled(on, 10, 1);
    device::vector<int> large(size, on);
    CHECK(is_idle_soon(on));
    static_cast<void>(device::pinned_pool::of_process().trim());
    fake_gpu::hold(busy.get());
    static_cast<void>(busy.record());
    {
      const device::span<int> view(large);
      auto dropped = cohort::recv(world, view, left_of(world), 5, cohort::as_future);
      while (fake_gpu::blocked_calls() == 0) std::this_thread::yield();
    }
    CHECK(fake_gpu::blocked_calls() == 1);
    fake_gpu::release(busy.get());
    // The block goes into the pool when it comes.
    while (device::pinned_pool::of_process().size() == 0) std::this_thread::yield();
    co_await meet(world);
  });
}

TEST_CASE("an exchange that is given up ends when its copy is over, and is reported till then") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    const clocked bound;
    const device::stream on;
    auto values = co_await filled(on, 10, 1);
    auto room = co_await filled(on, 10, -1);
    {  // so that the copy is queued by the call
      device::pinned_vector<int> for_the_pool(10, on);
      device::pinned_vector<int> for_the_result(10, on);
    }
    co_await meet(world);
    CHECK(is_idle_soon(on));
    outcome end;
    asio::cancellation_signal stop;
    held_stream held(on);
    cohort::send_recv(
        world, values, right_of(world), room, left_of(world), 7,
        asio::bind_cancellation_slot(stop.slot(), [&](std::error_code why, cohort::status) {
          end.code = why;
          end.over = true;
        }));
    co_await pause(5ms);
    stop.emit(asio::cancellation_type::total);
    co_await pause(10ms);
    CHECK(!end.over);
    std::string text;
    world.state()->engine.describe(text);
    CHECK(has(text, "send_recv"));
    CHECK(has(text, "coming from the device"));
    held.let_go();
    CHECK(co_await soon([&] { return end.over; }));
    CHECK(end.code == asio::error::operation_aborted);
    co_await meet(world);
    CHECK(co_await now_in(room) == std::vector<int>(10, -1));
  });
}

TEST_CASE("a context may end with a staged collective at any step, and the others go on") {
  const whose which = GENERATE(whose::all, whose::first, whose::last);
  const staged_at step = GENERATE(staged_at::copy_in, staged_at::mpi, staged_at::copy_out);
  const auto level = GENERATE(cohort::checks::local, cohort::checks::cross_rank);
  INFO("step: " << static_cast<int>(step));
  const gpus_of_ranks machine;
  {
    const clocked bound;
    const device::stream on;
    std::optional<device::vector<int>> values;
    std::vector<int> host(10, 10);
    std::optional<late_stream> late;
    int ranks = 0;
    outcome first;
    outcome behind;
    {
      asio::io_context io;
      cohort::communicator_options options;
      options.checks = level;
      const communicator world(io, options);
      ranks = world.size();
      values.emplace(run(io, filled(on, 10, 1)));
      run(io, meet(world));
      const bool leaves = ends_early(which, world);
      if (step == staged_at::mpi && world.rank() == 1) std::this_thread::sleep_for(50ms);
      if (step == staged_at::copy_in) late.emplace(on);
      cohort::all_reduce(world, device::span<int>(*values), op::sum, first.handler());
      cohort::all_reduce(world, host, op::sum, behind.handler());
      if (step == staged_at::copy_in) look_for(io, 5);
      if (step == staged_at::mpi) look_for(io, 50);
      if (step == staged_at::copy_out) {
        CHECK(is_idle_soon(on));
        late.emplace(on);
      }
      if (late) late->let_go_soon();
      if (!leaves) {
        CHECK(run_until(io, [&] { return first.over && behind.over; }));
        CHECK(!first.code);
        CHECK(!behind.code);
      }
    }
    // Whose context has gone has done its part, and no handler of its was called.
    late.reset();
    asio::io_context io;
    CHECK(run(io, now_in(*values)) == std::vector<int>(10, ranks));
    CHECK(host == std::vector<int>(10, 10 * ranks));
  }
}

TEST_CASE("frames that await staged verbs, or collectives behind them, go with the context") {
  const gpus_of_ranks machine;
  int frames = 0;
  {
    const clocked bound;
    const device::stream on;
    std::optional<device::vector<int>> values;
    std::optional<late_stream> late;
    asio::io_context io;
    const communicator world(io);
    values.emplace(run(io, filled(on, 10, 1)));
    late.emplace(on);
    asio::co_spawn(io, sums_staged(world, device::span<int>(*values), frames), asio::detached);
    CHECK(run_until(io, [&] { return frames == 1; }));
    asio::co_spawn(io, sums_on_host(world, frames), asio::detached);
    CHECK(run_until(io, [&] { return frames == 2; }));
    look_for(io, 3);
    late->let_go_soon();
  }
  CHECK(frames == 0);
}

TEST_CASE("what a context that ends was about to send from a device arrives") {
  const gpus_of_ranks machine;
  {
    const clocked bound;
    const device::stream on;
    std::optional<device::vector<int>> values;
    std::optional<device::vector<int>> room;
    std::optional<late_stream> late;
    asio::io_context io;
    const communicator world(io);
    values.emplace(run(io, filled(on, 10, world.rank() + 1)));
    room.emplace(run(io, filled(on, 10, -1)));
    run(io, meet(world));
    const bool leaves = world.rank() == 0 && world.size() > 1;
    std::vector<int> host(10);
    outcome end;
    const auto over = [&](std::error_code why, const cohort::status&) {
      end.code = why;
      end.over = true;
    };
    if (leaves) {
      late.emplace(on);
      // Nobody sends it anything: that half is given up.
      cohort::send_recv(world, device::span<int>(*values), right_of(world),
                        device::span<int>(*room), left_of(world), 7, over);
      cohort::send(world, *values, right_of(world), 9, asio::detached);
      look_for(io, 3);
      late->let_go_soon();
    } else if (world.rank() == 1) {
      cohort::recv(world, host, 0, 7, over);
      CHECK(run_until(io, [&] { return end.over; }));
      CHECK(host == std::vector<int>(10, 1));
      end.over = false;
      cohort::recv(world, device::span<int>(*room), 0, 9, over);
      CHECK(run_until(io, [&] { return end.over; }));
      CHECK(run(io, now_in(*room)) == std::vector<int>(10, 1));
    }
  }
}

TEST_CASE("staged verbs may be started, waited for and dropped beside the threads of the loop") {
  if (cohort::mpi::level() < cohort::thread_level::serialized) return;
  const gpus_of_ranks machine;
  {
    const clocked bound;
    constexpr int users = 2;
    const device::stream on;
    asio::io_context io;
    const communicator world(io);
    std::deque<device::vector<int>> values;
    std::deque<communicator> comms;
    for (int user = 0; user < users; ++user) {
      values.push_back(run(io, filled(on, 10, 1)));
      comms.push_back(run(io, twin_of(world)));
    }
    auto work = std::make_optional(asio::make_work_guard(io));
    std::vector<std::thread> threads;
    for (int loop = 0; loop < 2; ++loop) threads.emplace_back([&] { io.run(); });
    for (int user = 0; user < users; ++user) {
      threads.emplace_back([&, at = static_cast<std::size_t>(user)] {
        const device::span<int> view(values[at]);
        for (int round = 0; round < 10; ++round) {
          auto sum = cohort::all_reduce(comms[at], view, op::max, cohort::as_future);
          if (round % 2 == 0) sum.get();
          const auto never = cohort::recv(comms[at], view, left_of(world), 5, cohort::as_future);
        }
      });
    }
    for (int user = 0; user < users; ++user) {
      threads.back().join();
      threads.pop_back();
    }
    work.reset();
    for (std::thread& one : threads) one.join();
    for (const auto& each : values) {
      CHECK(run(io, now_in(each)) == std::vector<int>(10, 1));
    }
  }
}
