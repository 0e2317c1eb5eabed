// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
// expect: NCCL has no such reduction
#include <cohort/nccl/point_to_point.hpp>

asio::awaitable<void> wrong(cohort::nccl::communicator gpus, const cohort::device::stream& on,
                            std::vector<std::size_t> counts) {
  cohort::device::vector<int> all(10, on);
  cohort::device::vector<int> mine(5, on);
  co_await cohort::nccl::reduce_scatter_v(gpus, on, all, mine, counts, cohort::op::bit_or);
}
