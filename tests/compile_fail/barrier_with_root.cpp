// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
// expect: a barrier takes a communicator and a completion token
#include <cohort/collectives/barrier.hpp>

asio::awaitable<void> wrong(cohort::communicator world) { co_await cohort::barrier(world, 0); }
