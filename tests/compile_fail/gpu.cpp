// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#include <cohort/device/completion.hpp>
#include <cohort/nccl/collectives.hpp>
#include <cohort/nccl/point_to_point.hpp>
#include <cohort/progress/future.hpp>

// expect: no loop is known that could poll
void device_done_without_loop(const cohort::device::stream& on) {
  auto future = cohort::device::done(on, cohort::as_future);
}

// expect: NCCL has no such reduction
asio::awaitable<void> nccl_all_reduce_of_short(cohort::nccl::communicator gpus,
                                               const cohort::device::stream& on) {
  cohort::device::vector<short> values(10, on);
  co_await cohort::nccl::all_reduce(gpus, on, values, cohort::op::sum);
}

// expect: NCCL has no such reduction
asio::awaitable<void> nccl_reduce_scatter_v_of_bits(cohort::nccl::communicator gpus,
                                                    const cohort::device::stream& on,
                                                    std::vector<std::size_t> counts) {
  cohort::device::vector<int> all(10, on);
  cohort::device::vector<int> mine(5, on);
  co_await cohort::nccl::reduce_scatter_v(gpus, on, all, mine, counts, cohort::op::bit_or);
}
