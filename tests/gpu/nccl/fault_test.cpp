// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

/// \file Who must hear of a fault, and that nobody waits for a rank that has given up.

#include "gpu/nccl/support.hpp"
#include "support/caught.hpp"

#include <cohort/progress/deadline.hpp>

namespace {

using namespace cohort_test;
using cohort::communicator;
using cohort::errc;

}  // namespace

DOUBLE_TEST_CASE(
    "a fault ends the operations of ranks that share no communicator with its origin") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    if (world.size() < 3) co_return;
    const cohort::log::capture log;
    const int rank = world.rank();
    auto left = co_await world.split(rank < 2 ? 0 : -1, rank);
    auto right = co_await world.split(rank == 1 || rank == 2 ? 0 : -1, rank);
    nccl::communicator x;
    nccl::communicator y;
    if (left) x = co_await nccl::make_communicator(left);
    if (right) y = co_await nccl::make_communicator(right);
    const device::stream s;
    auto v = co_await filled<int>(s, 10, 1);
    if (rank < 2) fake_nccl::hang_next(x.native());
    co_await meet(world);
    outcome end;
    end.over = rank > 2;
    if (rank < 2) nccl::all_reduce(x, s, v, op::sum, end.handler());
    if (rank == 2) nccl::all_reduce(y, s, v, op::sum, end.handler());  // rank 1 will never call
    co_await pause(5ms);
    if (rank == 0) fake_nccl::set_async_error(x.native(), ncclSystemError);
    CHECK(co_await soon([&] { return end.over; }));
    if (rank == 0) CHECK(end.code == nccl::make_error(ncclSystemError));
    if (rank == 1 || rank == 2) CHECK(end.code == nccl::make_error(ncclRemoteError));
    co_await meet(world);
  });
}

DOUBLE_TEST_CASE("peers hear of a device that was lost while nothing was pending there") {
  const bool by_next = GENERATE(true, false);  // by an operation, or by whoever laps
  on_gpus(
      [by_next](communicator world) -> asio::awaitable<void> {
        if (world.size() < 2) co_return;
        const cohort::log::capture log;
        auto gpus = co_await nccl::make_communicator(world);
        const device::stream s;
        auto v = co_await filled<int>(s, 10, 1);
        co_await nccl::all_reduce(gpus, s, v, op::sum);
        co_await meet(world);
        if (world.rank() == 0) {
          fake_gpu::break_device(0, cudaErrorIllegalAddress);
          auto waiting = device::done(s);
          auto code = co_await code_of(std::move(waiting));
          CHECK(code == device::make_error(cudaErrorIllegalAddress));
          if (by_next) code = co_await code_of(nccl::all_reduce(gpus, s, v, op::sum));
          CHECK(code == device::make_error(cudaErrorIllegalAddress));
        } else {
          auto code = co_await code_of(nccl::all_reduce(gpus, s, v, op::sum));
          CHECK(code == nccl::make_error(ncclRemoteError));
        }
        co_await meet(world);
      },
      true);
}

DOUBLE_TEST_CASE("operations of a communicator that is leaked end, and so does the context") {
  on_gpus(
      [](communicator world) -> asio::awaitable<void> {
        if (world.size() < 2) co_return;
        const cohort::log::capture log;
        nccl::communicator_options options;
        options.leave_bound = 200ms;
        auto gpus = co_await nccl::make_communicator(world, options);
        const device::stream s;
        auto v = co_await filled<int>(s, 10, 1);
        outcome end;
        end.over = world.rank() != 0;
        if (world.rank() == 0) {
          nccl::all_reduce(gpus, s, v, op::sum, end.handler());
          gpus = nccl::communicator();  // the peers have not called, and never will
        }
        CHECK(co_await soon([&] { return end.over; }));
        if (world.rank() == 0) CHECK(end.code == errc::stalled);
        co_await meet(world);
        if (world.rank() != 0) co_await gpus.abort();
      },
      true);
}

TEST_CASE("a split whose parent has ended on one rank ends on all") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    if (world.size() < 2) co_return;
    const cohort::log::capture log;
    auto gpus = co_await nccl::make_communicator(world);
    co_await meet(world);
    if (world.rank() == 0) co_await gpus.abort();
    auto splitting = gpus.split(0);
    auto failed = co_await caught<cohort::rank_error>(std::move(splitting));
    REQUIRE(failed);
    CHECK(failed->ranks().front() == 0);
    co_await meet(world);
  });
}

TEST_CASE("a deadline over the making of a communicator leaves no peer alone") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    const cohort::log::capture log;
    if (world.rank() != 0) co_await pause(100ms);
    if (world.rank() == 0) {
      auto making = nccl::make_communicator(world);
      auto bounded = cohort::with_deadline(std::move(making), 5ms);
      static_cast<void>(co_await code_of(std::move(bounded)));
    } else {
      auto gpus = co_await nccl::make_communicator(world);
      CHECK(gpus.size() == world.size());
    }
    co_await meet(world);
  });
}

TEST_CASE("what is never awaited does not hold the device") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    auto gpus = co_await nccl::make_communicator(world);
    const device::stream s;
    auto v = co_await filled<int>(s, 10, 1);
    {
      auto never = nccl::make_communicator(world);
      auto nor_this = gpus.split(0);
      co_await nccl::all_reduce(gpus, s, v, op::sum);
    }
    auto first = nccl::make_communicator(world);
    auto second = nccl::make_communicator(world);
    auto b = co_await std::move(second);  // in the other order, on all ranks
    auto a = co_await std::move(first);
    co_await nccl::barrier(a, s);
    co_await nccl::barrier(b, s);
  });
}

TEST_CASE("verbs on no communicator are refused") {
  on_gpus([](communicator) -> asio::awaitable<void> {
    const nccl::communicator none;
    auto code = co_await code_of(none.split(0));
    CHECK(code == errc::invalid_communicator);
    code = co_await code_of(none.finalize());
    CHECK(code == errc::invalid_communicator);
    code = co_await code_of(none.abort());
    CHECK(code == errc::invalid_communicator);
  });
}

TEST_CASE("the default stream of a thread is refused by name") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    const cohort::log::capture log;
    auto gpus = co_await nccl::make_communicator(world);
    const device::stream s;
    auto v = co_await filled<int>(s, 10, 1);
    const auto mine = device::stream::borrow(cudaStreamPerThread, gpus.device());
    auto code = co_await code_of(nccl::all_reduce(gpus, mine, v, op::sum));
    CHECK(code == errc::invalid_argument);
    CHECK(log.contains("cudaStreamPerThread"));
    co_await meet(world);
  });
}
