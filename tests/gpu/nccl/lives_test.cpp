// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

/// \file What communicators promise while they come and go: bounds, borrowed handles, threads, and
/// ends without memory.

#include "gpu/nccl/support.hpp"
#include "support/caught.hpp"
#include "support/patience.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <new>
#include <thread>

namespace {

using namespace cohort_test;
using cohort::communicator;
using cohort::errc;

thread_local bool no_memory = false;
constexpr std::size_t nowhere = SIZE_MAX / 2;
thread_local std::size_t refused_from = nowhere;  // the next block of about so many bytes

asio::awaitable<nccl::communicator> make_one(communicator world) {
  auto made = nccl::make_communicator(world);
  co_return co_await std::move(made);
}

device::stream source_stream(const nccl::communicator& on) {
  return on.state()->source.domain_of(on.device());
}

}  // namespace

// A sanitizer brings its own operator new; nothing runs out of memory then.
#if !defined(COHORT_TEST_SANITIZED)

// g++ takes the pair of malloc and free for a mismatch where it inlines only one of them.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
#endif

void* operator new(std::size_t size) {
  const bool refused = no_memory || (size >= refused_from && size < refused_from + 64);
  if (refused) refused_from = nowhere;
  void* const memory = refused ? nullptr : std::malloc(size);
  if (memory != nullptr) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

TEST_CASE("a rank that has no memory for its part of a communicator is named on all") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    const int last = world.size() - 1;
    if (world.rank() == last) refused_from = sizeof(nccl::communicator_state);
    auto failed = co_await caught<cohort::rank_error>(nccl::make_communicator(world));
    REQUIRE(failed);
    CHECK(failed->ranks() == std::vector<int>{last});
    CHECK(std::string(failed->what()).find("no memory") != std::string::npos);
    auto gpus = co_await nccl::make_communicator(world);
    CHECK(gpus.size() == world.size());
  });
}

#endif

TEST_CASE("the last handle of a communicator goes although there is no memory") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    auto gpus = co_await nccl::make_communicator(world);
    auto more = co_await nccl::make_communicator(world);
    const device::stream s;
    auto v = co_await filled<int>(s, 10, 1);
    co_await nccl::all_reduce(gpus, s, v, op::sum);
    co_await nccl::all_reduce(more, s, v, op::sum);
    const auto first = gpus.state();
    const auto second = more.state();
    no_memory = true;
    gpus = {};
    more = {};
    no_memory = false;
    CHECK(co_await soon([&] { return first->stands == nccl::phase::gone; }));
    CHECK(co_await soon([&] { return second->stands == nccl::phase::gone; }));
  });
}

DOUBLE_TEST_CASE("a verb over a span of a lost device ends with the device's error") {
  on_gpus(
      [](communicator world) -> asio::awaitable<void> {
        const cohort::log::capture log;
        auto gpus = co_await nccl::make_communicator(world);
        const device::stream s;
        auto v = co_await filled<float>(s, 4, 1);
        const device::span<float> view(v);
        fake_gpu::break_device(0, cudaErrorIllegalAddress);
        auto waiting = device::done(s, cohort::as_tuple(cohort::default_token()));
        const auto [lost] = co_await std::move(waiting);
        CHECK(lost);
        outcome end;
        CHECK_NOTHROW(nccl::all_reduce(gpus, s, view, op::sum, end.handler()));
        CHECK(co_await soon([&] { return end.over; }));
        CHECK(end.code == device::make_error(cudaErrorIllegalAddress));
        auto ring = nccl::group(gpus, s);
        CHECK_NOTHROW(ring.send(view, 0));
        auto code = co_await code_of(ring.run());
        CHECK(code == device::make_error(cudaErrorIllegalAddress));
      },
      true);
}

DOUBLE_TEST_CASE("a borrowed communicator is aborted only where its option says so") {
  const bool aborts = GENERATE(false, true);
  on_gpus(
      [aborts](communicator world) -> asio::awaitable<void> {
        if (world.size() < 2) co_return;
        const cohort::log::capture log;
        ncclUniqueId id{};
        if (world.rank() == 0) REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
        co_await cohort::broadcast(world, id, 0);
        ncclComm_t theirs = nullptr;
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        config.blocking = 0;
        ncclCommInitRankConfig(&theirs, world.size(), id, world.rank(), &config);
        CHECK(co_await soon([&] {
          ncclResult_t state = ncclSuccess;
          return ncclCommGetAsyncError(theirs, &state) == ncclSuccess && state == ncclSuccess;
        }));
        nccl::communicator_options options;
        options.abort_borrowed = aborts;
        auto gpus = co_await nccl::borrow_communicator(world, theirs, options);
        const device::stream s;
        auto v = co_await filled<int>(s, 10, 1);
        co_await meet(world);
        fake_nccl::hang_next(theirs);
        outcome end;
        nccl::all_reduce(gpus, s, v, op::sum, end.handler());
        CHECK(co_await soon([&] { return fake_nccl::pending_kernels(theirs) != 0; }));
        co_await meet(world);
        if (world.rank() == 0) fake_nccl::set_async_error(theirs, ncclSystemError);
        CHECK(co_await soon([&] { return end.over; }));
        CHECK(end.code);
        CHECK(fake_nccl::calls("ncclCommAbort") == (aborts ? 1U : 0U));
        CHECK(fake_nccl::live_communicators() == (aborts ? 0U : 1U));
        if (!aborts) CHECK(ncclCommAbort(theirs) == ncclSuccess);
      },
      true);
}

TEST_CASE("a borrowed communicator leaves no receive behind, whoever drops it last") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    if (world.size() < 2) co_return;
    auto making = own_communicator(world);
    const ncclComm_t theirs = co_await std::move(making);
    auto& requests =
        asio::use_service<cohort::comm::request_source>(world.get_executor().context());
    const std::size_t before = requests.idle();
    for (int last = 0; last < world.size(); ++last) {
      auto gpus = co_await nccl::borrow_communicator(world, theirs);
      CHECK(co_await soon([&] { return requests.idle() == before + 1; }));
      const std::weak_ptr<nccl::communicator_state> state = gpus.state();
      if (world.rank() == last) co_await meet(world);
      gpus = {};
      if (world.rank() != last) {
        const auto has_left = [&] {
          const auto still = state.lock();
          return !still || still->stands == nccl::phase::gone;
        };
        CHECK(co_await soon(has_left));
        co_await meet(world);
      }
      CHECK(co_await soon([&] { return requests.idle() == before; }));
    }
    CHECK(ncclCommDestroy(theirs) == ncclSuccess);
  });
}

TEST_CASE("what is made of one communicator of MPI is made in the order of the calls") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    auto making = nccl::make_communicator(world, {}, cohort::as_future);
    if (world.rank() == 0) {  // the engine looks there in between
      asio::steady_timer pause(world.get_executor(), std::chrono::milliseconds(20));
      co_await pause.async_wait(asio::use_awaitable);
    }
    auto copying = world.dup(cohort::as_future);
    const nccl::communicator gpus = co_await std::move(making);
    CHECK(gpus.size() == world.size());
    const communicator copy = co_await std::move(copying);
    int sum = 1;
    co_await cohort::all_reduce(copy, sum, op::sum);
    CHECK(sum == world.size());
  });
}

TEST_CASE("the stream on which operations run has the highest priority") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    auto gpus = co_await nccl::make_communicator(world);
    int lowest = 0;
    int highest = 0;
    REQUIRE(cudaDeviceGetStreamPriorityRange(&lowest, &highest) == cudaSuccess);
    REQUIRE(highest < lowest);
    int priority = lowest;
    const auto domain = gpus.state()->source.domain_of(gpus.device());
    CHECK(cudaStreamGetPriority(domain.get(), &priority) == cudaSuccess);
    CHECK(priority == highest);
    const device::stream plain;
    CHECK(cudaStreamGetPriority(plain.get(), &priority) == cudaSuccess);
    CHECK(priority != highest);
  });
}

DOUBLE_TEST_CASE("what comes behind a communicator that leaves waits for it") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    if (world.size() < 2) co_return;
    auto one = co_await nccl::make_communicator(world);
    auto other = co_await nccl::make_communicator(world);
    const device::stream s;
    auto v = co_await filled<int>(s, 10, 1);
    co_await meet(world);
    const bool leaves_late = world.rank() == world.size() - 1;
    if (leaves_late) co_await meet(world);
    one = {};
    outcome end;
    nccl::all_reduce(other, s, v, op::sum, end.handler());
    if (!leaves_late) {
      co_await pause(50ms);
      CHECK_DOUBLE(fake_nccl::calls("ncclCommFinalize") == 1);
      CHECK_DOUBLE(fake_nccl::calls("ncclAllReduce") == 0);
      co_await meet(world);
    }
    CHECK(co_await soon([&] { return end.over; }));
    CHECK_FALSE(end.code);
  });
}

// Each finalises what the other has not let go yet.
DOUBLE_TEST_CASE("communicators that are dropped in crossed orders end") {
  const auto begun = std::chrono::steady_clock::now();
  const cohort::log::capture log;
  on_gpus([](communicator world) -> asio::awaitable<void> {
    nccl::communicator_options options;
    options.leave_bound = cohort_test::patient(15s);
    auto one = co_await nccl::make_communicator(world, options);
    auto other = co_await nccl::make_communicator(world, options);
    const auto first = one.state();
    const auto second = other.state();
    if (world.rank() % 2 == 0) {
      one = {};
      other = {};
    } else {
      other = {};
      one = {};
    }
    CHECK(co_await soon([&] { return first->stands == nccl::phase::gone; }));
    CHECK(co_await soon([&] { return second->stands == nccl::phase::gone; }));
  });
  CHECK(std::chrono::steady_clock::now() - begun < cohort_test::patient(14s));
  CHECK_FALSE(log.contains("leaked"));
}

DOUBLE_TEST_CASE("an init whose peer does not come ends after its bound, on all ranks") {
  on_gpus(
      [](communicator world) -> asio::awaitable<void> {
        if (world.size() < 2) co_return;
        const cohort::log::capture log;
        nccl::communicator_options options;
        options.init_bound = 300ms;
        const bool is_missing = world.rank() == world.size() - 1;
        if (is_missing) fake_nccl::stall_next("ncclCommInitRankConfig");
        const auto begun = std::chrono::steady_clock::now();
        std::string text;
        try {
          auto making = nccl::make_communicator(world, options);
          static_cast<void>(co_await std::move(making));
        } catch (const std::system_error& failed) {
          text = failed.what();
        }
        INFO(text);
        CHECK(text.find("init failed") != std::string::npos);
        CHECK(std::chrono::steady_clock::now() - begun < cohort_test::patient(15s));
        co_await nccl_works(world);
      },
      true);
}

TEST_CASE("managed memory goes through verbs as device memory does") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    auto gpus = co_await nccl::make_communicator(world);
    const device::stream s;
    void* memory = nullptr;
    REQUIRE(cudaMallocManaged(&memory, 10 * sizeof(int), cudaMemAttachGlobal) == cudaSuccess);
    {
      const device::span<int> view(static_cast<int*>(memory), 10);
      CHECK(view.device() == gpus.device());
      auto v = co_await filled<int>(s, 10, world.rank() + 1);
      REQUIRE(cudaMemcpyAsync(memory, v.data(), v.bytes(), cudaMemcpyDeviceToDevice, s.get()) ==
              cudaSuccess);
      co_await nccl::all_reduce(gpus, s, view, op::sum);
      REQUIRE(cudaMemcpyAsync(v.data(), memory, v.bytes(), cudaMemcpyDeviceToDevice, s.get()) ==
              cudaSuccess);
      auto got = co_await read(s, v);
      CHECK(got == std::vector<int>(10, world.size() * (world.size() + 1) / 2));
    }
    CHECK(cudaFree(memory) == cudaSuccess);
  });
}

TEST_CASE("the default stream of a device that is not the current one orders operations there") {
  on_gpus(
      [](communicator world) -> asio::awaitable<void> {
        nccl::communicator_options options;
        options.device = 1;
        auto gpus = co_await nccl::make_communicator(world, options);
        REQUIRE(cudaSetDevice(0) == cudaSuccess);
        const auto legacy = device::stream::borrow(nullptr, 1);
        device::vector<int> v(10, legacy);
        {
          const device::stream s(1);
          auto ones = co_await filled<int>(s, 10, 1);
          device::copy(legacy, ones, v);
        }
        co_await nccl::all_reduce(gpus, legacy, v, op::sum, nccl::until::enqueued);
        auto got = co_await read(legacy, v);
        CHECK(got == std::vector<int>(10, world.size()));
        CHECK(device::current() == 0);
      },
      false, 2);
}

TEST_CASE("several threads run the context of communicators that come, fail and go") {
  const gpus_of_ranks machine;
  const cohort::log::capture log;
  {
    asio::io_context io;
    const communicator world(io);
    int rounds = 0;
    const auto body = [&]() -> asio::awaitable<void> {
      for (int round = 0; round < 4; ++round) {
        auto gpus = co_await nccl::make_communicator(world);
        const device::stream s;
        auto v = co_await filled<int>(s, 10, 1);
        co_await nccl::all_reduce(gpus, s, v, op::sum);
        co_await meet(world);  // the operation has ended everywhere
        if (round % 2 == 0 && world.rank() == 0) co_await gpus.abort();
        gpus = {};
        co_await meet(world);
        ++rounds;
      }
    };
    asio::co_spawn(io, body, [](std::exception_ptr why) {
      if (why) std::rethrow_exception(why);
    });
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i) threads.emplace_back([&] { io.run(); });
    for (std::thread& each : threads) each.join();
    CHECK(rounds == 4);
  }
  INFO(log.text());
  CHECK_DOUBLE(fake_nccl::live_communicators() == 0);
  CHECK_DOUBLE(fake_nccl::faults().empty());
}

DOUBLE_TEST_CASE("an event that cannot be asked for ends the operation on all ranks") {
  on_gpus(
      [](communicator world) -> asio::awaitable<void> {
        if (world.size() < 2) co_return;
        const cohort::log::capture log;
        auto gpus = co_await nccl::make_communicator(world);
        const device::stream s;
        auto v = co_await filled<int>(s, 10, 1);
        auto more = co_await filled<int>(s, 10, 1);
        co_await meet(world);
        const bool is_it = world.rank() == 0;
        if (is_it) fake_gpu::fail_next("cudaEventQuery", cudaErrorUnknown);
        outcome end;
        outcome next;
        nccl::all_reduce(gpus, s, v, op::sum, end.handler());
        CHECK(co_await soon([&] { return end.over; }));
        nccl::all_reduce(gpus, s, more, op::sum, next.handler());
        CHECK(co_await soon([&] { return next.over; }));
        if (is_it) CHECK(end.code == device::make_error(cudaErrorUnknown));
        CHECK(next.code);  // the peers have heard of it
        CHECK(device::state_of(0).lost() == cudaSuccess);
      },
      true);
}

TEST_CASE("where a context ends while a communicator is made or split, all others get the same") {
  const bool splits = GENERATE(false, true);
  for (const int looks : {0, 1, 3, 7, 20, 60, 200}) {
    INFO("looks: " << looks);
    const gpus_of_ranks machine;
    const bool goes = world_rank() == 0;
    int what = 0;  // made: 1, an error: 2
    {
      const cohort::log::capture log;
      asio::io_context io;
      const communicator world(io);
      nccl::communicator kept;
      bool over = false;
      const auto hears = [&](std::exception_ptr why, nccl::communicator made) {
        what = why ? 2 : 1;
        kept = std::move(made);
        over = true;
      };
      nccl::communicator parent;
      if (splits) {
        parent = run(io, make_one(world));
        parent.split(0, 0, hears);
      } else {
        nccl::make_communicator(world, {}, hears);
      }
      auto& engine = cohort::use_engine(io);
      for (int i = 0; i < looks + world.rank(); ++i) engine.look();
      const auto end = std::chrono::steady_clock::now() + cohort_test::patient(20s);
      while (!goes && !over && std::chrono::steady_clock::now() < end) {
        io.run_one_for(1ms);
        if (io.stopped()) io.restart();
      }
    }
    const std::array<int, 2> mine{goes ? 0 : what, goes ? -3 : -what};  // the greatest, the least
    std::array<int, 2> most{};
    {
      const cohort::mpi::lock calls;
      MPI_Allreduce(mine.data(), most.data(), 2, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    }
    if (!goes) {
      CHECK(what != 0);
      CHECK(most[0] == what);
      CHECK(-most[1] == what);
    }
  }
}

TEST_CASE("an abort ends one communicator and leaves the others") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    const cohort::log::capture log;
    auto one = co_await nccl::make_communicator(world);
    auto other = co_await nccl::make_communicator(world);
    const device::stream s;
    auto v = co_await filled<int>(s, 10, 1);
    co_await nccl::all_reduce(one, s, v, op::max);
    co_await meet(world);
    co_await one.abort();
    co_await meet(world);
    co_await nccl::all_reduce(other, s, v, op::sum);
    auto got = co_await read(s, v);
    CHECK(got == std::vector<int>(10, world.size()));
    auto code = co_await code_of(nccl::barrier(one, s));
    CHECK(code);
  });
}

DOUBLE_TEST_CASE(
    "a look asks once for the head of a device's stream, and naps are short meanwhile") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    if (world.size() < 2) co_return;  // one rank launches nothing in place
    auto gpus = co_await nccl::make_communicator(world);
    auto& source = gpus.state()->source;
    CHECK(source.longest_nap() == std::chrono::nanoseconds::max());
    const device::stream s;
    auto v = co_await filled<int>(s, 10, 1);
    co_await nccl::all_reduce(gpus, s, v, op::max);
    std::array<outcome, 3> ends;
    {
      held_stream held(source_stream(gpus));
      for (outcome& each : ends) nccl::all_reduce(gpus, s, v, op::max, each.handler());
      CHECK(co_await soon([&] { return fake_nccl::launches().size() == 4; }));
      cohort::progress::ready_queue ready;
      const auto before = fake_gpu::calls("cudaEventQuery");
      source.begin_lap(ready);
      source.test(ready);
      source.end_lap();
      CHECK(source.is_dear());
      CHECK(fake_gpu::calls("cudaEventQuery") - before == 1);
      CHECK(ready.empty());
      CHECK(source.longest_nap() == cohort::engine_options().nap);
    }
    CHECK(co_await soon([&] {
      return std::all_of(ends.begin(), ends.end(), [](const outcome& each) { return each.over; });
    }));
  });
}

TEST_CASE("the time that is spent spinning grows with what is in flight") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    auto gpus = co_await nccl::make_communicator(world);
    const auto& source = gpus.state()->source;
    CHECK(source.bytes() == 0);
    const device::stream s;
    auto v = co_await filled<int>(s, 1 << 20, 1);
    held_stream held(source_stream(gpus));
    outcome end;
    nccl::all_reduce(gpus, s, v, op::sum, end.handler());
    CHECK(co_await soon([&] { return end.over || source.bytes() > v.bytes() / 100; }));
    if (world.size() > 1) CHECK_FALSE(end.over);
    held.let_go();
    CHECK(co_await soon([&] { return end.over; }));
    CHECK(co_await soon([&] { return source.bytes() == 0; }));
  });
}

TEST_CASE("while a coordinator holds a device, others make no arena there") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    auto gpus = co_await nccl::make_communicator(world);
    auto& source = gpus.state()->source;
    const int holder = 0;
    REQUIRE(source.hold(gpus.device(), &holder));
    const std::vector<nccl::communicator> on(1, gpus);
    auto making = caught<std::system_error>(nccl::make_arena(on, 1024));
    const auto why = co_await std::move(making);
    REQUIRE(why);
    CHECK(why->code() == errc::device_ordered);
    source.let_go(gpus.device(), &holder);
    auto memory = co_await nccl::make_arena(on, 1024);
    CHECK(memory.bytes() == 1024);
  });
}
