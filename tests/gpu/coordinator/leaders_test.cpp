// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

/// \file A failure of MPI between nodes. lifecycle_test.cpp comes next in its program: what is
/// still on its way must not reach the communicators that are made there.

#include "support.hpp"

#include "faults/interposer.hpp"

using namespace cohort_test;
using cohort::communicator;
using cohort::coordinator;

DOUBLE_TEST_CASE("a leader that fails between nodes ends every operation of every rank") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    if (world.size() < 3) co_return;  // two nodes, and one of them with two ranks
    const cohort::log::capture log;
    auto coord = co_await opened(world, over_nodes(world, 2));
    device::stream on;
    std::deque<device::vector<float>> values;
    for (std::size_t i = 0; i < 4; ++i) values.push_back(co_await filled(on, 50 + i, 1.0F));
    co_await meet(world);
    faults::reset();
    if (world.rank() == 2) faults::fail_next("MPI_Iallreduce", MPI_ERR_NO_MEM);
    std::deque<ending> ends;
    for (std::size_t i = 0; i < values.size(); ++i) {
      coord.all_reduce(std::to_string(i), values[i], op::sum, ends.emplace_back().handler());
    }
    CHECK(co_await soon([&] { return all_over(ends); }));
    for (const ending& one : ends) {
      INFO(one.text());
      CHECK(one.is_data_error());
    }
    if (world.rank() == 2) CHECK(faults::failed_as_asked("MPI_Iallreduce"));
    faults::reset();
    co_await coord.shutdown();
    CHECK(co_await soon([] { return fake_nccl::live_communicators() == 0; }));
  });
}
