// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

#include "competitors.hpp"
#include "support/statistics.hpp"

#include <cohort/collectives/all_reduce.hpp>

namespace with_cohort {

asio::awaitable<double> awaited(cohort::communicator comm, const numbers& in, numbers& out,
                                int rounds) {
  const auto start = bench::clock::now();
  for (int i = 0; i < rounds; ++i) co_await cohort::all_reduce(comm, in, out, cohort::op::sum);
  co_return bench::nanoseconds_since(start) / rounds;
}

}  // namespace with_cohort
