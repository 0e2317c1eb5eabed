// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
// expect: returns asio::awaitable<void> or asio::awaitable<int>
#include <cohort/comm/run.hpp>

asio::awaitable<double> wrong(cohort::communicator) { co_return 1.0; }

int main(int argc, char** argv) { return cohort::run(argc, argv, wrong); }
