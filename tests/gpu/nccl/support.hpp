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

#include "support/catch.hpp"
#include "support/double.hpp"
#include "support/fake_gpu/nccl_control.hpp"
#include "support/patience.hpp"
#include "support/world.hpp"

#include <atomic>
#include <chrono>
#include <memory>
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

/// For reports, where this NCCL has names (2.27).
template <class Config>
void set_name(Config& config, const char* name) {
  if constexpr (requires { config.commName; }) config.commName = name;
}

/// Each rank has `devices` of its own; real ones, those of its place on the node. Where cohort must
/// know which (more than one), there must be no other rank.
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
    int ranks = 0;
    const cohort::mpi::lock calls;
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    lacks_ = devices > 1 && (ranks > 1 || device::count() < devices);
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

  /// Whether the test case cannot be run on what is here. A case that has checked nothing is
  /// reported as skipped.
  [[nodiscard]] bool lacks() const noexcept { return lacks_; }

 private:
  bool lacks_ = false;
};

/// Holds a stream back until it is let go: the double's stops, on a device a function of the host
/// waits. One at a time for each device, because CUDA may call all of them on one thread.
class held_stream {
 public:
  explicit held_stream(device::stream which) : on_(std::move(which)) {
#if defined(COHORT_FAKE_GPU)
    fake_gpu::hold(on_.get());
#else
    const device::scoped_device here(on_.device());
    auto mine = std::make_unique<std::shared_ptr<std::atomic<bool>>>(open_);
    REQUIRE(cudaLaunchHostFunc(on_.get(), &wait, mine.get()) == cudaSuccess);
    static_cast<void>(mine.release());
#endif
  }
  ~held_stream() { let_go(); }
  held_stream(const held_stream&) = delete;
  held_stream& operator=(const held_stream&) = delete;

  void let_go() {
    if (open_->exchange(true)) return;
#if defined(COHORT_FAKE_GPU)
    fake_gpu::release(on_.get());
#else
    open_->notify_all();
#endif
  }

 private:
  [[maybe_unused]] static void wait(void* given) {
    const std::unique_ptr<std::shared_ptr<std::atomic<bool>>> mine(
        static_cast<std::shared_ptr<std::atomic<bool>>*>(given));
    (*mine)->wait(false);
  }
  device::stream on_;
  std::shared_ptr<std::atomic<bool>> open_ = std::make_shared<std::atomic<bool>>(false);
};

/// Runs `body(world)` on a machine of its own, and looks whether the library has kept NCCL's rules
/// and given back what it took.
template <class Body>
void on_gpus(Body&& body, bool leaks = false, int devices = 1) {
  const gpus_of_ranks machine(devices);
  if (machine.lacks()) return;
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

/// A communicator of NCCL that the test owns.
inline asio::awaitable<ncclComm_t> own_communicator(cohort::communicator over) {
  ncclUniqueId id{};
  if (over.rank() == 0) REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  co_await cohort::broadcast(over, id, 0);
  ncclComm_t made = nullptr;
  REQUIRE(ncclCommInitRank(&made, over.size(), id, over.rank()) == ncclSuccess);
  co_return made;
}

/// Waits until something is so, while the loop goes on; false after a time that no machine needs.
template <class Predicate>
asio::awaitable<bool> soon(Predicate holds) {
  const auto end = std::chrono::steady_clock::now() + cohort_test::patient(20s);
  while (!holds()) {
    if (std::chrono::steady_clock::now() > end) co_return false;
    co_await pause(1ms);
  }
  co_return true;
}

/// As soon() for what only the doubles tell; true with the real libraries.
template <class Predicate>
asio::awaitable<bool> soon_on_double([[maybe_unused]] Predicate holds) {
#if defined(COHORT_FAKE_NCCL)
  auto is_so = soon(std::move(holds));
  co_return co_await std::move(is_so);
#else
  co_return true;
#endif
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

/// What device memory holds when all that its stream has queued is over.
template <class T>
asio::awaitable<std::vector<T>> now_in(const device::vector<T>& values) {
  auto all = read(values.producer(), values);
  co_return co_await std::move(all);
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

/// A new communicator of NCCL works.
inline asio::awaitable<void> nccl_works(cohort::communicator world) {
  auto gpus = co_await nccl::make_communicator(world);
  const device::stream on;
  auto values = co_await filled<int>(on, 10, 1);
  co_await nccl::all_reduce(gpus, on, values, op::sum);
  CHECK(co_await now_in(values) == std::vector<int>(10, world.size()));
}

/// Runs `body(world, io)` until that stops the loop, which ends the context with all that `body`
/// holds, and looks whether something of NCCL is left.
template <class Body>
void in_ended_context(Body body) {
  const gpus_of_ranks machine;
  {
    const cohort::log::capture log;
    asio::io_context io;
    const cohort::communicator world(io);
    asio::co_spawn(io, body(world, io), asio::detached);
    io.run();
  }
  CHECK_DOUBLE(fake_nccl::live_communicators() == 0);
  CHECK_DOUBLE(fake_nccl::faults().empty());
}

/// Whether the source has seen so many launches go through whose operations have not ended.
inline bool on_the_device(const nccl::communicator& of, int operations = 1) {
  std::string text;
  of.state()->source.describe(text);
  int found = 0;
  for (std::size_t at = 0; (at = text.find(", on the device,", at)) != text.npos; ++at) ++found;
  return found >= operations;
}

/// Keeps this rank from lapping until that rank lets it go. MPI goes on.
inline void wait_for_sign(int from) {
  const cohort::mpi::lock calls;
  MPI_Request request = MPI_REQUEST_NULL;
  char sign = 0;
  MPI_Irecv(&sign, 1, MPI_CHAR, from, 77, MPI_COMM_WORLD, &request);
  const auto end = std::chrono::steady_clock::now() + cohort_test::patient(20s);
  int there = 0;
  while (there == 0 && std::chrono::steady_clock::now() < end) {
    MPI_Test(&request, &there, MPI_STATUS_IGNORE);
    std::this_thread::yield();
  }
  CHECK(there != 0);
}
/// The same, until rank 0 does, after all others have been told.
inline void hold_the_loop() {
  const cohort::mpi::lock calls;
  int rank = 0;
  int ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const char sign = 0;
  for (int other = 0; other < ranks; ++other) {
    if (other != rank) MPI_Send(&sign, 1, MPI_CHAR, other, 78, MPI_COMM_WORLD);
  }
  wait_for_sign(0);
}
/// Until that rank has called hold_the_loop(). All others are to wait for it.
inline asio::awaitable<void> loop_is_held(int rank) {
  const auto is_held = [rank] {
    const cohort::mpi::lock calls;
    int there = 0;
    MPI_Iprobe(rank, 78, MPI_COMM_WORLD, &there, MPI_STATUS_IGNORE);
    char sign = 0;
    if (there != 0) MPI_Recv(&sign, 1, MPI_CHAR, rank, 78, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return there != 0;
  };
  auto waiting = soon(is_held);
  const bool held = co_await std::move(waiting);
  CHECK(held);
}
/// Lets that rank lap again.
inline void let_loop_go(int rank) {
  const cohort::mpi::lock calls;
  const char sign = 1;
  MPI_Send(&sign, 1, MPI_CHAR, rank, 77, MPI_COMM_WORLD);
}

}  // namespace cohort_test
