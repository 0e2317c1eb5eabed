// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
// expect: the first argument is no buffer: pass a contiguous range or scalar lvalue
#include <cohort/p2p/send.hpp>

asio::awaitable<void> wrong(cohort::communicator world) { co_await cohort::send(world, 1.0, 1, 7); }
