// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
// expect: no min of complex
#include <cohort/collectives/scan.hpp>
#include <complex>

asio::awaitable<void> wrong(cohort::communicator world) {
  std::complex<double> z;
  co_await cohort::exclusive_scan(world, z, cohort::op::min);
}
