// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

/// \file Why all operations of a device run on one stream: two communicators that overlap, and
/// inputs that become ready in another order on each rank.

#include "gpu/nccl/support.hpp"

#include <cohort/collectives/broadcast.hpp>

namespace {

using namespace cohort_test;
using cohort::communicator;

constexpr int not_in_it = -1;
int color_of_b(int rank) { return rank < 2 ? 0 : not_in_it; }

/// NCCL without the library.
asio::awaitable<ncclComm_t> raw_communicator(communicator over, const char* name) {
  ncclUniqueId id{};
  if (over.rank() == 0) REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  co_await cohort::broadcast(over, id, 0);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  set_name(config, name);
  ncclComm_t made = nullptr;
  REQUIRE(ncclCommInitRankConfig(&made, over.size(), id, over.rank(), &config) == ncclSuccess);
  co_return made;
}

ncclResult_t raw_sum(ncclComm_t comm, const device::stream& on, device::vector<int>& values) {
  return ncclAllReduce(values.data(), values.data(), values.size(), ncclInt32, ncclSum, comm,
                       on.get());
}

}  // namespace

// a is over all ranks, b over the first two. Everybody starts a's operation and then b's; on rank 0
// a's input is late, on rank 1 b's.

TEST_CASE("inputs that become ready in crossed order do not deadlock two communicators") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    if (world.size() < 2) co_return;
    const int rank = world.rank();
    auto a = co_await nccl::make_communicator(world);
    auto b = co_await a.split(color_of_b(rank));
    const device::stream for_a;
    const device::stream for_b;
    const device::stream late;
    auto x = co_await filled<int>(for_a, 10, 1);
    auto y = co_await filled<int>(for_b, 10, 1);
    co_await nccl::barrier(a, for_a);
    if (b) co_await nccl::barrier(b, for_b);

    held_stream held(late);
    if (rank == 0) for_a.wait(late.record());
    if (rank == 1) for_b.wait(late.record());
    int ended = 0;
    const auto count = [&](std::error_code error) {
      CHECK(!error);
      ++ended;
    };
    nccl::all_reduce(a, for_a, x, op::sum, count);
    if (b) nccl::all_reduce(b, for_b, y, op::sum, count);
    // Here a has the device and waits for rank 0.
    if (rank == 1) CHECK(co_await soon_on_double([] { return fake_gpu::occupied(0); }));
    CHECK(ended == 0);
    co_await meet(world);
    held.let_go();
    CHECK(co_await soon([&] { return ended == (b ? 2 : 1); }));
    CHECK_DOUBLE(fake_nccl::cycles().empty());
    auto sums = co_await read(for_a, x);
    CHECK(sums[9] == world.size());
    if (!b) co_return;
    auto pair = co_await read(for_b, y);
    CHECK(pair[9] == 2);
  });
}

DOUBLE_TEST_CASE("the control: the same with NCCL alone and a stream per communicator deadlocks") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    if (world.size() < 2) co_return;
    const int rank = world.rank();
    auto first_two = co_await world.split(color_of_b(rank), rank);
    ncclComm_t a = co_await raw_communicator(world, "a");
    ncclComm_t b = nullptr;
    if (first_two) b = co_await raw_communicator(first_two, "b");
    const device::stream for_a;
    const device::stream for_b;
    const device::stream late;
    auto x = co_await filled<int>(for_a, 10, 1);
    auto y = co_await filled<int>(for_b, 10, 1);
    REQUIRE(raw_sum(a, for_a, x) == ncclSuccess);
    co_await device::done(for_a);
    if (b != nullptr) REQUIRE(raw_sum(b, for_b, y) == ncclSuccess);
    co_await device::done(for_b);
    co_await meet(world);

    fake_gpu::hold(late.get());
    if (rank == 0) for_a.wait(late.record());
    if (rank == 1) for_b.wait(late.record());
    CHECK(raw_sum(a, for_a, x) == ncclSuccess);
    if (b != nullptr) CHECK(raw_sum(b, for_b, y) == ncclSuccess);
    // On rank 0 b has the device, on rank 1 a has it; from then on neither can end.
    CHECK(co_await soon([] { return fake_gpu::occupied(0); }));
    fake_gpu::release(late.get());
    if (b != nullptr) {
      CHECK(co_await soon([] { return !fake_nccl::cycles().empty(); }));
      CHECK(fake_nccl::cycles().front().find("a waits for b") != std::string::npos);
      CHECK(cudaStreamQuery(for_a.get()) == cudaErrorNotReady);
      CHECK(cudaStreamQuery(for_b.get()) == cudaErrorNotReady);
      static_cast<void>(cudaGetLastError());
    }
    co_await meet(world);
    CHECK(ncclGroupStart() == ncclSuccess);
    CHECK(ncclCommAbort(a) == ncclSuccess);
    if (b != nullptr) CHECK(ncclCommAbort(b) == ncclSuccess);
    CHECK(ncclGroupEnd() == ncclSuccess);
  });
}
