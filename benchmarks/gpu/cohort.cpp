// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

#include "competitors.hpp"
#include "support/statistics.hpp"

#include <cohort/collectives/all_reduce.hpp>
#include <cohort/progress/future.hpp>

#include <sys/resource.h>

#include <cmath>
#include <condition_variable>
#include <mutex>
#include <optional>

namespace bench {

/// Shared with the host function, which may come to it last.
struct held_stream::gate {
  std::mutex mutex;
  std::condition_variable opened;
  bool open = false;
  int holders = 2;

  static void leave(gate* one) {
    std::unique_lock hold(one->mutex);
    if (--one->holders != 0) return;
    hold.unlock();
    delete one;
  }
  static void wait(void* argument) {
    auto* const one = static_cast<gate*>(argument);
    {
      std::unique_lock hold(one->mutex);
      one->opened.wait(hold, [one] { return one->open; });
    }
    leave(one);
  }
};

held_stream::held_stream(cohort::device::stream on) : gate_(new gate) {
  const cudaError_t code = cudaLaunchHostFunc(on.get(), &gate::wait, gate_);
  if (code != cudaSuccess) delete std::exchange(gate_, nullptr);
  cohort::device::check(code, "cudaLaunchHostFunc", on.device());
}

void held_stream::let_go() {
  gate* const mine = std::exchange(gate_, nullptr);
  if (mine == nullptr) return;
  {
    const std::lock_guard hold(mine->mutex);
    mine->open = true;
    mine->opened.notify_all();
  }
  gate::leave(mine);
}

}  // namespace bench

namespace with_cohort {
namespace {

double seconds_of(int who) {
  rusage used{};
  getrusage(who, &used);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

}  // namespace

asio::awaitable<double> all_reduce(cohort::nccl::communicator gpus, cohort::device::stream on,
                                   const cohort::device::vector<float>& in,
                                   cohort::device::vector<float>& out) {
  const auto start = bench::clock::now();
  co_await cohort::nccl::all_reduce(gpus, on, in, out, cohort::op::sum);
  co_return bench::nanoseconds_since(start);
}

asio::awaitable<double> over_mpi(cohort::communicator world) {
  double value = 1;
  const auto start = bench::clock::now();
  co_await cohort::all_reduce(world, value, cohort::op::sum);
  co_return bench::nanoseconds_since(start);
}

asio::awaitable<load> idle(cohort::nccl::communicator gpus, pending what, double seconds) {
  const cohort::device::stream on(gpus.device());
  cohort::device::vector<float> in(1, on);
  cohort::device::vector<float> out(1, on);
  std::optional<bench::held_stream> held;
  if (what != pending::nothing) held.emplace(on);
  std::optional<cohort::future<void>> waits;
  auto& loop = static_cast<asio::io_context&>((co_await asio::this_coro::executor).context());
  if (what == pending::event) waits = cohort::device::done(loop, on, cohort::as_future);
  if (what == pending::collective) {
    waits = cohort::nccl::all_reduce(gpus, on, in, out, cohort::op::sum, cohort::as_future);
  }

  const double loop_before = seconds_of(RUSAGE_THREAD);
  const double process_before = seconds_of(RUSAGE_SELF);
  const auto start = bench::clock::now();
  asio::steady_timer timer(loop, std::chrono::nanoseconds(std::llround(seconds * 1e9)));
  co_await timer.async_wait(asio::use_awaitable);
  const double passed = bench::nanoseconds_since(start) / 1e9;
  const load result{100 * (seconds_of(RUSAGE_THREAD) - loop_before) / passed,
                    100 * (seconds_of(RUSAGE_SELF) - process_before) / passed};
  if (held) held->let_go();
  if (waits) co_await std::move(*waits);
  co_return result;
}

}  // namespace with_cohort
