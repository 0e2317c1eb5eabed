// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

/// \file Registered memory: when it comes, and when it goes.

#include "gpu/nccl/support.hpp"

namespace {

using namespace cohort_test;
using cohort::communicator;
using cohort::errc;

}  // namespace

TEST_CASE("an arena is registered on its communicators and gives spans to operations") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    auto gpus = co_await nccl::make_communicator(world);
    auto other = co_await nccl::make_communicator(world);
    const device::stream s;
    std::vector<nccl::communicator> on;
    on.push_back(gpus);
    on.push_back(other);
    {
      auto memory = co_await nccl::make_arena(on, 4096);
      CHECK(memory.bytes() == 4096);
      CHECK(memory.device() == gpus.device());
      CHECK_DOUBLE(fake_nccl::calls("ncclMemAlloc") == 1);
      CHECK_DOUBLE(fake_nccl::calls("ncclCommRegister") == 2);
      const device::span<int> part = memory.span<int>(1024, 100);
      auto ones = co_await filled<int>(s, 100, world.rank() + 1);
      device::copy(s, ones, part);
      co_await nccl::all_reduce(gpus, s, part, op::sum);
      device::copy(s, part, ones);
      auto got = co_await read(s, ones);
      CHECK(got == std::vector<int>(100, world.size() * (world.size() + 1) / 2));
      CHECK_THROWS_AS(memory.span<int>(4096, 1), cohort::error);
      CHECK_THROWS_AS(memory.span<int>(2, 1), cohort::error);
      CHECK_THROWS_AS(memory.span<int>(0, 1025), cohort::error);
      CHECK_THROWS_AS(nccl::arena().span<int>(0, 0), cohort::error);
      CHECK(memory.span<int>(4096, 0).empty());
    }
    CHECK(co_await soon_on_double([] { return fake_nccl::calls("ncclMemFree") == 1; }));
    CHECK_DOUBLE(fake_nccl::calls("ncclCommDeregister") == 2);
    co_await nccl::barrier(gpus, s);
  });
}

TEST_CASE("an arena goes when the operations in flight have ended, and does not stop the loop") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    auto gpus = co_await nccl::make_communicator(world);
    const device::stream s;
    const std::vector<nccl::communicator> on(1, gpus);
    auto memory = co_await nccl::make_arena(on, 400);
    device::stream late;
    held_stream held(late);
    s.wait(late.record());
    outcome end;
    nccl::all_reduce(gpus, s, memory.span<int>(0, 100), op::sum, end.handler());
    memory = nccl::arena();
    outcome behind;
    nccl::barrier(gpus, s, behind.handler());
    co_await pause(20ms);
    co_await meet(world);  // the loop goes on
    CHECK_DOUBLE(fake_nccl::calls("ncclMemFree") == 0);
    CHECK_DOUBLE(fake_nccl::calls("ncclCommDeregister") == 0);
    CHECK(!end.over);
    co_await meet(world);
    held.let_go();
    CHECK(co_await soon([&] { return end.over && behind.over; }));
    CHECK(!end.code);
    CHECK(!behind.code);
    CHECK_DOUBLE(fake_nccl::calls("ncclMemFree") == 1);  // before what came behind it
    CHECK_DOUBLE(fake_nccl::calls("ncclCommDeregister") == 1);
    co_await meet(world);
  });
}

DOUBLE_TEST_CASE("an arena may go after its communicator, and nothing is freed after a leak") {
  const bool leaks = GENERATE(false, true);
  on_gpus(
      [leaks](communicator world) -> asio::awaitable<void> {
        const cohort::log::capture log;
        auto gpus = co_await nccl::make_communicator(world);
        std::vector<nccl::communicator> on(1, gpus);
        auto memory = co_await nccl::make_arena(on, 400);
        on.clear();
        co_await gpus.finalize();
        if (leaks) device::state_of(0).stop_frees();
        const auto before = fake_gpu::live_allocations(0);
        memory = nccl::arena();
        auto& source = asio::use_service<nccl::issue_source>(world.get_executor().context());
        CHECK(co_await soon([&] { return source.pending() == 0; }));
        CHECK(fake_nccl::calls("ncclMemFree") == (leaks ? 0 : 1));
        CHECK(fake_gpu::live_allocations(0) == before - (leaks ? 0 : 1));
        CHECK(fake_nccl::calls("ncclCommDeregister") == 0);
      },
      leaks);
}

TEST_CASE("a context may end with an arena, or with one that has just gone") {
  const bool has_gone = GENERATE(false, true);
  in_ended_context([&](communicator world, asio::io_context& io) -> asio::awaitable<void> {
    auto gpus = co_await nccl::make_communicator(world);
    const std::vector<nccl::communicator> on(1, gpus);
    auto memory = co_await nccl::make_arena(on, 400);
    co_await meet(world);
    if (has_gone) memory = nccl::arena();
    io.stop();
    co_await pause(1h);
  });
}

DOUBLE_TEST_CASE("what makes no arena is said") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    const cohort::log::capture log;
    std::vector<nccl::communicator> on;
    auto code = co_await code_of(nccl::make_arena(on, 400));
    CHECK(code == errc::invalid_communicator);
    auto gpus = co_await nccl::make_communicator(world);
    on.push_back(gpus);
    code = co_await code_of(nccl::make_arena(on, 0));
    CHECK(code == errc::invalid_argument);
    fake_nccl::set_version(21801);
    code = co_await code_of(nccl::make_arena(on, 400));
    CHECK(code == errc::not_supported);
    CHECK(fake_nccl::calls("ncclMemAlloc") == 0);
    fake_nccl::set_version(NCCL_VERSION_CODE);
    fake_nccl::fail_next("ncclMemAlloc", ncclSystemError);
    code = co_await code_of(nccl::make_arena(on, 400));
    CHECK(code == nccl::make_error(ncclSystemError));
    const auto before = fake_gpu::live_allocations(0);
    fake_nccl::fail_next("ncclCommRegister", ncclInternalError);
    code = co_await code_of(nccl::make_arena(on, 400));
    CHECK(code == nccl::make_error(ncclInternalError));
    CHECK(co_await soon([&] { return fake_gpu::live_allocations(0) == before; }));
    const device::stream s;
    co_await nccl::barrier(gpus, s);  // the queue goes on
    co_await gpus.finalize();
    code = co_await code_of(nccl::make_arena(on, 400));
    CHECK(code == errc::closed);
  });
}
