// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
// expect: NCCL has no such reduction
#include <cohort/nccl/collectives.hpp>

asio::awaitable<void> wrong(cohort::nccl::communicator gpus, const cohort::device::stream& on) {
  cohort::device::vector<short> values(10, on);
  co_await cohort::nccl::all_reduce(gpus, on, values, cohort::op::sum);
}
