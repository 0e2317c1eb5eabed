// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

#include "competitors.hpp"

#include <cohort/coordinator/bundle.hpp>
#include <cohort/coordinator/coordinator.hpp>
#include <cohort/nccl/backend.hpp>

#include <array>
#include <chrono>
#include <map>
#include <memory>

namespace with_cohort {
namespace {

/// A backend that is also asked for its times here.
struct timed_backend {
  std::shared_ptr<cohort::comm::device_backend> one = cohort::nccl::backend().make_device_backend();
  [[nodiscard]] std::shared_ptr<cohort::comm::device_backend> make_device_backend() const {
    return one;
  }
};

}  // namespace

asio::awaitable<fused_times> fused(cohort::communicator world, std::vector<std::size_t> sizes,
                                   int chunks) {
  const timed_backend backend;
  cohort::coordinator coord(world, backend);
  const cohort::device::stream on;
  std::vector<cohort::device::vector<float>> tensors;
  cohort::bundle all("fused");
  for (const std::size_t bytes : sizes) {
    const auto& one = tensors.emplace_back(bytes / sizeof(float), on);
    cohort::device::check(cudaMemsetAsync(tensors.back().data(), 0, one.bytes(), on.get()),
                          "cudaMemsetAsync", on.device());
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) all.add(std::to_string(i), tensors[i]);
  for (int i = 0; i < 2; ++i) co_await coord.grouped_all_reduce(all, cohort::op::sum);  // buffers

  using cohort::comm::device_stage;
  std::map<std::uint64_t, std::array<double, 3>> found;  // log count -> nanoseconds of each step
  fused_times result;
  const auto note = [&](const cohort::comm::device_span& one) {
    found[one.sequence][static_cast<std::size_t>(one.what)] +=
        static_cast<double>(std::chrono::nanoseconds(one.end - one.begin).count());
    if (one.what == device_stage::pack) result.packed = one.bytes;
  };
  backend.one->record_times(true);
  for (int i = 0; i < chunks; ++i) {
    co_await coord.grouped_all_reduce(all, cohort::op::sum);
    backend.one->take_times(note);
  }
  // What was over before the clocks were compared for the first time.
  asio::steady_timer timer(co_await asio::this_coro::executor, std::chrono::milliseconds(20));
  co_await timer.async_wait(asio::use_awaitable);
  backend.one->take_times(note);
  backend.one->record_times(false);
  for (const auto& [log_count, steps] : found) {
    result.pack.push_back(steps[0]);
    result.reduce.push_back(steps[1]);
    result.unpack.push_back(steps[2]);
  }
  co_await coord.shutdown();
  co_return result;
}

}  // namespace with_cohort
