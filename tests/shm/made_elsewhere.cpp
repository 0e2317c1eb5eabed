// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// A file that constructs communicators before it includes <cohort/shm.hpp>, and after. Compiled
// alone.

#include <cohort/comm.hpp>

namespace automatic_test {

cohort::communicator made_elsewhere(asio::io_context& io, cohort::backend_choice choice) {
  return cohort::communicator(io, {.backend = choice});
}

}  // namespace automatic_test

#include <cohort/shm.hpp>

namespace automatic_test {

cohort::communicator made_afterwards(asio::io_context& io, cohort::backend_choice choice) {
  return cohort::communicator(io, {.backend = choice});
}

}  // namespace automatic_test
