// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// A file that makes communicators and does not include <cohort/shm.hpp>. Compiled alone.

#include <cohort/comm.hpp>

namespace automatic_test {

cohort::communicator made_elsewhere(asio::io_context& io) {
  return cohort::communicator(io, {.backend = cohort::backend_choice::automatic});
}

}  // namespace automatic_test
