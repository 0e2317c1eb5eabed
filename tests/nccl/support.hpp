// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What the tests of the layer nccl share: one device per rank.

#include <cohort/collectives/all_gather.hpp>
#include <cohort/collectives/barrier.hpp>
#include <cohort/collectives/broadcast.hpp>
#include <cohort/core/log.hpp>
#include <cohort/gpu.hpp>
#include <cohort/progress/future.hpp>

#if defined(COHORT_FAKE_NCCL)
#include "support/fake_gpu/control.hpp"
#include "support/fake_gpu/nccl_control.hpp"
#endif

#include "support/catch.hpp"
#include "support/world.hpp"

#include <chrono>
#include <numeric>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

namespace cohort_test {

namespace device = cohort::device;
namespace nccl = cohort::nccl;
namespace op = cohort::op;
using namespace std::chrono_literals;

inline int world_rank() {
  int rank = 0;
  const cohort::mpi::lock calls;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

/// Each rank has `devices` of its own.
class gpus_of_ranks {
 public:
  explicit gpus_of_ranks(int devices = 1) {
#if defined(COHORT_FAKE_NCCL)
    fake_gpu::restart(devices);
    for (int one = 0; one < devices; ++one) {
      fake_gpu::set_bus_id(one, 100 + world_rank() * devices + one);
    }
    fake_nccl::seed(static_cast<std::uint64_t>(world_rank()) + 1);
#else
    static_cast<void>(devices);
#endif
    device::forget_devices();
  }
  ~gpus_of_ranks() {
#if defined(COHORT_FAKE_NCCL)
    fake_gpu::restart(0);
#endif
  }
  gpus_of_ranks(const gpus_of_ranks&) = delete;
  gpus_of_ranks& operator=(const gpus_of_ranks&) = delete;
};

/// Runs `body(world)` on a machine of its own, and looks whether the library has kept NCCL's rules
/// and given back what it took.
template <class Body>
void on_gpus(Body&& body, bool leaks = false) {
  const gpus_of_ranks machine;
  on_world(std::forward<Body>(body));
#if defined(COHORT_FAKE_NCCL)
  const auto faults = fake_nccl::faults();
  for (const std::string& fault : faults) UNSCOPED_INFO(fault);
  CHECK(faults.empty());
  if (!leaks) CHECK(fake_nccl::live_communicators() == 0);
#else
  static_cast<void>(leaks);
#endif
}

/// Waits until something is so, while the loop goes on; false after a time that no machine needs.
template <class Predicate>
asio::awaitable<bool> soon(Predicate holds) {
  const auto end = std::chrono::steady_clock::now() + 20s;
  while (!holds()) {
    if (std::chrono::steady_clock::now() > end) co_return false;
    co_await pause(1ms);
  }
  co_return true;
}

/// Whether an operation has ended, and how. Must outlive it.
struct outcome {
  std::error_code code;
  bool over = false;

  auto handler() {
    return [this](std::error_code error) {
      code = error;
      over = true;
    };
  }
};

template <class T>
asio::awaitable<std::vector<T>> read(device::stream from, const device::vector<T>& values) {
  device::pinned_vector<T> host(values.size(), from);
  device::copy(from, values, host);
  auto done = device::done(from);
  co_await std::move(done);
  co_return std::vector<T>(host.begin(), host.end());
}

/// Queues the writing of `values`; `pinned` must stay until it is over.
template <class T>
void write(const device::stream& on, device::pinned_vector<T>& pinned, device::vector<T>& to,
           T value) {
  std::fill(pinned.begin(), pinned.end(), value);
  device::copy(on, pinned, to);
}

/// A vector with the same value everywhere.
template <class T>
asio::awaitable<device::vector<T>> filled(device::stream on, std::size_t size, T value) {
  device::vector<T> made(size, on);
  device::pinned_vector<T> host(size, on);
  write(on, host, made, value);
  auto done = device::done(on);
  co_await std::move(done);
  co_return made;
}

/// Keeps this rank from lapping until rank 0 lets it go. MPI goes on.
inline void hold_the_loop() {
  const cohort::mpi::lock calls;
  MPI_Request request = MPI_REQUEST_NULL;
  char sign = 0;
  MPI_Irecv(&sign, 1, MPI_CHAR, 0, 77, MPI_COMM_WORLD, &request);
  const auto end = std::chrono::steady_clock::now() + 20s;
  int there = 0;
  while (there == 0 && std::chrono::steady_clock::now() < end) {
    MPI_Test(&request, &there, MPI_STATUS_IGNORE);
    std::this_thread::yield();
  }
  CHECK(there != 0);
}
/// Lets that rank lap again.
inline void let_loop_go(int rank) {
  const cohort::mpi::lock calls;
  const char sign = 1;
  MPI_Send(&sign, 1, MPI_CHAR, rank, 77, MPI_COMM_WORLD);
}

}  // namespace cohort_test
