// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

/// \file Ends out of the ordinary: aborts that do not come back, devices that somebody else resets,
/// and handles, memory, streams and contexts that go in any order.

#include "gpu/nccl/support.hpp"
#include "support/caught.hpp"
#include "support/run.hpp"

#include <algorithm>
#include <array>
#include <optional>

namespace {

using namespace cohort_test;
using cohort::communicator;
using cohort::errc;

inline std::uint64_t frees() {
  return fake_gpu::calls("cudaFreeAsync") + fake_gpu::calls("cudaStreamDestroy") +
         fake_gpu::calls("cudaEventDestroy") + fake_gpu::calls("cudaFreeHost");
}

std::size_t allocations() {
#if defined(COHORT_FAKE_GPU)
  return fake_gpu::live_allocations(0);
#else
  return 0;  // CUDA does not tell
#endif
}

}  // namespace

DOUBLE_TEST_CASE("an abort that does not come back ends awaiters after its bound, and all frees") {
  on_gpus(
      [](communicator world) -> asio::awaitable<void> {
        if (world.size() < 2) co_return;  // one rank launches nothing in place
        const cohort::log::capture log;
        const bool is_it = world.rank() == 0;
        nccl::communicator_options options;
        if (is_it) options.abort_bound = 100ms;  // it only counts where the abort hangs
        auto gpus = co_await nccl::make_communicator(world, options);
        auto other = co_await nccl::make_communicator(world, options);
        std::optional<device::stream> s(std::in_place);
        std::optional<device::vector<int>> v(co_await filled<int>(*s, 10, 1));
        std::optional<device::vector<int>> w(co_await filled<int>(*s, 10, 1));
        co_await nccl::barrier(gpus, *s);
        co_await nccl::barrier(other, *s);
        const auto before = frees();
        device::vector<int>(10, *s) = device::vector<int>();
        CHECK(frees() == before + 1);  // the control

        // The kernels do not begin, so that an abort, which waits for them, does not end.
        const cudaStream_t domain = gpus.state()->domain->get();
        if (is_it) fake_gpu::hold(domain);
        co_await meet(world);
        outcome first;
        outcome second;
        nccl::all_reduce(gpus, *s, *v, op::sum, first.handler());
        nccl::all_reduce(other, *s, *w, op::sum, second.handler());
        CHECK(co_await soon([&] {
          const auto kernels = fake_nccl::pending_kernels(gpus.native());
          return kernels != 0 && fake_nccl::pending_kernels(other.native()) != 0;
        }));
        co_await meet(world);
        if (is_it) {
          auto code = co_await code_of(gpus.abort());
          CHECK(code == errc::stalled);
          CHECK(co_await soon([] { return fake_nccl::blocked_calls() == 1; }));
          CHECK(first.code == errc::aborted);
          CHECK(second.code == errc::stalled);
          CHECK(gpus.stands() == nccl::phase::leaked);
          CHECK(other.stands() == nccl::phase::leaked);
          CHECK(log.contains("has not aborted in time"));
          CHECK(log.contains("leaked"));
        }
        CHECK(co_await soon([&] { return first.over && second.over; }));
        if (!is_it) CHECK(first.code == nccl::make_error(ncclRemoteError));
        if (!is_it) CHECK(second.code == nccl::make_error(ncclRemoteError));

        // Frees may block for ever now.
        if (is_it) {
          const auto now = frees();
          v.reset();
          w.reset();
          s.reset();
          device::pinned_pool::of_process().trim();
          CHECK(frees() == now);
        }
        auto failed = co_await caught<cohort::rank_error>(nccl::make_communicator(world));
        REQUIRE(failed);
        CHECK(failed->code() == errc::stalled);
        CHECK(failed->ranks() == std::vector<int>{0});
        if (is_it) fake_gpu::release(domain);  // the double's threads must end
        CHECK(co_await soon([] { return fake_nccl::blocked_calls() == 0; }));
        co_await meet(world);
      },
      true);
}

DOUBLE_TEST_CASE("a foreign reset of the device ends what is pending, and afterwards all is new") {
  on_gpus(
      [](communicator world) -> asio::awaitable<void> {
        if (world.size() < 2) co_return;  // one rank launches nothing in place
        const cohort::log::capture log;
        const bool is_it = world.rank() == 0;
        auto gpus = co_await nccl::make_communicator(world);
        std::optional<device::stream> s(std::in_place);
        std::optional<device::vector<int>> v(co_await filled<int>(*s, 10, 1));
        co_await nccl::all_reduce(gpus, *s, *v, op::sum);
        fake_nccl::hang_next(gpus.native());
        co_await meet(world);
        outcome end;
        nccl::all_reduce(gpus, *s, *v, op::sum, end.handler());
        CHECK(co_await soon([&] { return fake_nccl::pending_kernels(gpus.native()) != 0; }));
        co_await meet(world);
        if (is_it) REQUIRE(cudaDeviceReset() == cudaSuccess);
        CHECK(co_await soon([&] { return end.over; }));
        if (is_it) {
          CHECK(end.code == device::make_error(cudaErrorContextIsDestroyed));
          CHECK(gpus.stands() == nccl::phase::gone);
          CHECK(fake_nccl::calls("ncclCommAbort") == 0);
          const auto now = frees();
          v.reset();
          s.reset();
          CHECK(frees() == now);
        } else {
          CHECK(end.code == nccl::make_error(ncclRemoteError));
        }
        auto code = co_await code_of(nccl::barrier(gpus, device::stream()));
        CHECK(code == end.code);
        co_await meet(world);
        co_await nccl_works(world);
      },
      true);
}

DOUBLE_TEST_CASE(
    "a foreign reset that nobody has seen is found by the next operation, or at the end") {
  const bool uses_it = GENERATE(false, true);
  on_gpus(
      [uses_it](communicator world) -> asio::awaitable<void> {
        const cohort::log::capture log;
        const bool is_it = world.rank() == world.size() - 1;
        auto gpus = co_await nccl::make_communicator(world);
        {
          const device::stream s;
          auto v = co_await filled<int>(s, 10, 1);
          co_await nccl::all_reduce(gpus, s, v, op::sum);
        }
        co_await meet(world);
        const auto state = gpus.state();
        if (is_it) REQUIRE(cudaDeviceReset() == cudaSuccess);
        if (uses_it) {
          auto code = co_await code_of(nccl::barrier(gpus, device::stream()));
          CHECK(code == (is_it ? device::make_error(cudaErrorContextIsDestroyed)
                               : nccl::make_error(ncclRemoteError)));
        }
        gpus = nccl::communicator();
        CHECK(co_await soon([&] { return state->stands == nccl::phase::gone; }));
        if (is_it) {
          CHECK(log.contains("device 0 has gone"));
          CHECK(fake_nccl::calls("ncclCommFinalize") == 0);
          CHECK(fake_nccl::calls("ncclCommAbort") == 0);
        }
        co_await meet(world);
      },
      true);
}

TEST_CASE("handles, streams, memory and the context go in any order") {
  // 0: the communicator, 1: the stream, 2: the vector, 3: the context, not before the communicator.
  std::array<int, 4> order = {0, 1, 2, 3};
  int orders = 0;
  do {
    if (std::find(order.begin(), order.end(), 3) < std::find(order.begin(), order.end(), 0)) {
      continue;
    }
    const bool in_flight = ++orders % 2 == 0;
    CAPTURE(order, in_flight);
    const gpus_of_ranks machine;
    const cohort::log::capture log;
    std::optional<nccl::communicator> gpus;
    std::optional<device::stream> s;
    std::optional<device::vector<int>> v;
    std::optional<asio::io_context> io(std::in_place);
    {
      const communicator world(*io);
      const auto make = [&]() -> asio::awaitable<void> {
        gpus.emplace(co_await nccl::make_communicator(world));
        s.emplace();
        v.emplace(co_await filled<int>(*s, 10, 1));
        co_await nccl::all_reduce(*gpus, *s, *v, op::sum);
      };
      run(*io, make());
    }
    if (in_flight) nccl::all_reduce(*gpus, *s, *v, op::sum, asio::detached);
    for (const int which : order) {
      if (which == 0) gpus.reset();
      if (which == 1) s.reset();
      if (which == 2) v.reset();
      if (which == 3) io.reset();
    }
    CHECK_DOUBLE(fake_nccl::live_communicators() == 0);
    CHECK_DOUBLE(fake_nccl::faults().empty());
    CHECK_DOUBLE(fake_nccl::calls("ncclCommAbort") == 0);
    CHECK(log.text().empty());
  } while (std::next_permutation(order.begin(), order.end()));
  CHECK(orders == 12);
}

TEST_CASE("a detached operation keeps its memory and its stream, which may go at once") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    const cohort::log::capture log;
    auto gpus = co_await nccl::make_communicator(world);
    const device::stream late;
    device::pinned_vector<int> spare(10, late);  // making one may wait for the device
    for (const bool owned : {false, true}) {
      held_stream held(late);
      const auto before = allocations();
      {
        const device::stream own;
        device::vector<int> v(10, own);
        device::vector<int> w(10, own);
        own.wait(late.record());
        write(own, spare, v, 1);
        if (owned) {
          nccl::all_reduce(gpus, own, std::move(v), op::sum, nccl::until::enqueued, asio::detached);
          nccl::all_reduce(gpus, own, std::move(w), op::max, asio::detached);
        } else {
          nccl::all_reduce(gpus, own, v, op::sum, nccl::until::enqueued, asio::detached);
          nccl::all_reduce(gpus, own, v, w, op::max, asio::detached);
        }
      }
      co_await pause(2ms);
      held.let_go();
      const device::stream after;
      co_await nccl::barrier(gpus, after);
      CHECK(co_await soon([&] { return allocations() == before; }));
      co_await meet(world);
    }
    CHECK(cudaGetLastError() == cudaSuccess);
    CHECK(log.text().empty());
    CHECK(gpus.stands() == nccl::phase::ready);
  });
}
