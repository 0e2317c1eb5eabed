// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
// expect: this type cannot be received
#include <cohort/rendezvous.hpp>
#include <vector>

asio::awaitable<void> wrong(cohort::rendezvous_step step, cohort::rendezvous_key key) {
  std::vector<int> data(2);
  co_await step.recv<std::span<int>>(key);
}
