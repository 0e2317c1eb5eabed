// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

/// \file A buffer in device memory through the coordinator, on the root.

#include <cohort/comm/run.hpp>
#include <cohort/coordinator.hpp>
#include <cohort/device/stream.hpp>
#include <cohort/device/vector.hpp>
#include <cohort/nccl/backend.hpp>

#include "program.hpp"
#include "support/fake_gpu/control.hpp"

asio::awaitable<void> device(cohort::communicator world) {
  fake_gpu::restart(1);  // a machine with one device, which is another one on each rank
  fake_gpu::set_bus_id(0, 100 + world.rank());
  cohort::coordinator coord(world, cohort::nccl::backend());
  cohort::device::stream compute;
  cohort::device::vector<float> gradient(1000, compute);
  co_await coord.all_reduce("gradient", gradient, cohort::op::average);
  for (int i = 0; i <= walk::repetitions; ++i) {
    co_await walk::rank_0_first(world, i);
    co_await coord.all_reduce("gradient", gradient, cohort::op::average);
    walk::end();
  }
  walk::write(world.rank());
}

int main(int argc, char** argv) { return cohort::run(argc, argv, device); }
