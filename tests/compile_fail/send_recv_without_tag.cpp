// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
// expect: this call does not fit
#include <cohort/p2p/send_recv.hpp>
#include <vector>

asio::awaitable<void> wrong(cohort::communicator world) {
  std::vector<double> out(2), in(2);
  co_await cohort::send_recv(world, out, 1, in, 1);
}
