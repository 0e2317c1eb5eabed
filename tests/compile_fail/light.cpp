// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#include <cohort/collectives/all_reduce.hpp>
#include <cohort/collectives/barrier.hpp>
#include <cohort/collectives/broadcast.hpp>

// expect: for co_await, and for any other token, include <cohort/comm.hpp>
void all_reduce_without_asio(const cohort::communicator& world, double& value) {
  cohort::all_reduce(world, value, cohort::op::sum);
}

// expect: for co_await, and for any other token, include <cohort/comm.hpp>
void barrier_without_asio(const cohort::communicator& world) { cohort::barrier(world); }

// expect: for co_await, and for any other token, include <cohort/comm.hpp>
void broadcast_without_asio(const cohort::communicator& world, double& value) {
  cohort::broadcast(world, value, 0);
}
