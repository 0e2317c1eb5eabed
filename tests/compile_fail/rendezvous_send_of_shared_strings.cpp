// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
// expect: this type cannot be sent
#include <cohort/rendezvous.hpp>
#include <memory>
#include <string>
#include <vector>

asio::awaitable<void> wrong(cohort::rendezvous_step step, cohort::rendezvous_key key) {
  step.send(key, std::make_shared<const std::vector<std::string>>(2));
  co_return;
}
