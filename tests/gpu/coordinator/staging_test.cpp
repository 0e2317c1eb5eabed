// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

/// \file Device memory in verbs of MPI: staged, handed over, or refused.

#include "faults/interposer.hpp"
#include "support.hpp"
#include "support/adasum.hpp"

#include <cohort/collectives.hpp>
#include <cohort/mpi/topology.hpp>
#include <cohort/p2p.hpp>
#include <cohort/progress/deadline.hpp>
#include <cohort/progress/future.hpp>
#include <cohort/staging.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <numeric>

using namespace cohort_test;

namespace {

/// Different on each rank and at each place.
std::vector<std::int32_t> ramp(int rank, std::size_t size) {
  std::vector<std::int32_t> made(size);
  std::iota(made.begin(), made.end(), 100 * (rank + 1));
  return made;
}

std::vector<int> counts_of(int ranks) {
  std::vector<int> made(static_cast<std::size_t>(ranks));
  std::iota(made.begin(), made.end(), 1);
  return made;
}

}  // namespace

TEST_CASE("MPI's reductions take device memory as they take that of the host") {
  on_gpus([](cohort::communicator world) -> asio::awaitable<void> {
    const device::stream on;
    const auto n = static_cast<std::size_t>(world.size());
    const int root = world.size() - 1;
    const auto mine = ramp(world.rank(), 4 * n);

    auto host = mine;
    auto values = co_await on_device(on, mine);
    co_await cohort::all_reduce(world, host, op::sum);
    co_await cohort::all_reduce(world, values, op::sum);
    CHECK(co_await now_in(values) == host);

    std::vector<std::int32_t> host_out(4 * n, -1);
    auto out = co_await on_device(on, host_out);
    const auto in = co_await on_device(on, mine);
    co_await cohort::all_reduce(world, mine, host_out, op::max);
    co_await cohort::all_reduce(world, in, out, op::max);
    CHECK(co_await now_in(out) == host_out);
    CHECK(co_await now_in(in) == mine);

    // Where a rank gets nothing, its buffer stays as it is.
    std::fill(host_out.begin(), host_out.end(), -1);
    out = co_await on_device(on, host_out);
    co_await cohort::reduce(world, mine, host_out, op::sum, root);
    co_await cohort::reduce(world, in, out, op::sum, root);
    CHECK(co_await now_in(out) == host_out);
    host = mine;
    values = co_await on_device(on, mine);
    co_await cohort::reduce(world, host, op::sum, root);
    co_await cohort::reduce(world, values, op::sum, root);
    CHECK(co_await now_in(values) == (world.rank() == root ? host : mine));

    host = mine;
    values = co_await on_device(on, mine);
    co_await cohort::scan(world, host, op::sum);
    co_await cohort::scan(world, values, op::sum);
    CHECK(co_await now_in(values) == host);
    std::fill(host_out.begin(), host_out.end(), -1);
    out = co_await on_device(on, host_out);
    co_await cohort::exclusive_scan(world, mine, host_out, op::sum);
    co_await cohort::exclusive_scan(world, in, out, op::sum);
    CHECK(co_await now_in(out) == host_out);

    std::vector<std::int32_t> host_part(4, -1);
    auto part = co_await on_device(on, host_part);
    co_await cohort::reduce_scatter(world, mine, host_part, op::sum);
    co_await cohort::reduce_scatter(world, in, part, op::sum);
    CHECK(co_await now_in(part) == host_part);
    const auto counts = counts_of(world.size());
    const auto whole = ramp(world.rank(), n * (n + 1) / 2);
    const auto own = static_cast<std::size_t>(world.rank()) + 1;
    std::vector<std::int32_t> host_own(own);
    auto whole_in = co_await on_device(on, whole);
    auto own_out = co_await on_device(on, host_own);
    co_await cohort::reduce_scatter_v(world, whole, host_own, counts, op::sum);
    co_await cohort::reduce_scatter_v(world, whole_in, own_out, counts, op::sum);
    CHECK(co_await now_in(own_out) == host_own);
    host = whole;
    co_await cohort::reduce_scatter_v(world, host, counts, op::sum);
    co_await cohort::reduce_scatter_v(world, whole_in, counts, op::sum);
    host.resize(own);
    auto begin = co_await now_in(whole_in);
    begin.resize(own);
    CHECK(begin == host);

    auto mean = co_await filled(on, 9, static_cast<float>(world.rank()));
    co_await cohort::all_reduce(world, mean, op::average);
    CHECK(co_await now_in(mean) == std::vector<float>(9, static_cast<float>(world.size() - 1) / 2));
    const std::vector<float> host_gradient = gradient_of<float>(world.rank(), 300);
    const auto gradient = co_await on_device(on, host_gradient);
    auto adasum = co_await on_device(on, std::vector<float>(300, -1.0F));
    co_await cohort::all_reduce(world, gradient, adasum, op::adasum);
    CHECK(co_await now_in(adasum) == adasum_of_gradients<float>(world.size(), 300));
    auto in_place = co_await on_device(on, host_gradient);
    co_await cohort::all_reduce(world, in_place, op::adasum);
    CHECK(co_await now_in(in_place) == adasum_of_gradients<float>(world.size(), 300));
    auto own_sum = co_await filled(on, 9, 1);
    co_await cohort::all_reduce(
        world, own_sum, cohort::user_op{[](int a, int b) { return a + b; }, cohort::commutative});
    CHECK(co_await now_in(own_sum) == std::vector<int>(9, world.size()));
    device::vector<int> nothing(0, on);
    co_await cohort::all_reduce(world, nothing, op::sum);
  });
}

TEST_CASE("MPI's moves take device memory as they take that of the host") {
  on_gpus([](cohort::communicator world) -> asio::awaitable<void> {
    const device::stream on;
    const auto n = static_cast<std::size_t>(world.size());
    const int root = world.size() - 1;
    const auto counts = counts_of(world.size());
    const std::size_t sum = n * (n + 1) / 2;
    const auto own = static_cast<std::size_t>(world.rank()) + 1;
    // Blocks with gaps, which stay as they are.
    const auto places = cohort::block_list{counts, [&] {
                                             std::vector<int> at;
                                             for (int r = 0; r < world.size(); ++r) {
                                               at.push_back(r * (world.size() + 2));
                                             }
                                             return at;
                                           }()};
    const std::size_t room = n * (n + 2);
    // Calls a verb with a host and with a device buffer of the same contents, and compares.
    const auto same = [&](std::vector<std::int32_t> in, std::vector<std::int32_t> out,
                          auto verb) -> asio::awaitable<void> {
      auto device_in = co_await on_device(on, in);
      auto device_out = co_await on_device(on, out);
      co_await verb(in, out);
      co_await verb(device_in, device_out);
      CHECK(co_await now_in(device_in) == in);
      CHECK(co_await now_in(device_out) == out);
    };
    const std::vector<std::int32_t> none(room, -1);
    const auto blank = [](std::size_t size) { return std::vector<std::int32_t>(size, -1); };
    const auto mine = [&](std::size_t size) { return ramp(world.rank(), size); };

    co_await same(mine(7), blank(1),
                  [&](auto& a, auto&) { return cohort::broadcast(world, a, root); });
    co_await same(mine(3), blank(3 * n),
                  [&](auto& a, auto& b) { return cohort::all_gather(world, a, b); });
    co_await same(mine(own), none,
                  [&](auto& a, auto& b) { return cohort::all_gather_v(world, a, b, places); });
    co_await same(mine(3 * n), mine(sum),
                  [&](auto& a, auto&) { return cohort::all_gather(world, a); });
    co_await same(mine(sum), blank(1), [&](auto& a, auto&) {
      return cohort::all_gather_v(world, cohort::in_place, a, counts);
    });
    co_await same(mine(3), blank(3 * n),
                  [&](auto& a, auto& b) { return cohort::gather(world, a, b, root); });
    co_await same(mine(world.rank() == root ? 3 * n : 3), blank(1),
                  [&](auto& a, auto&) { return cohort::gather(world, a, root); });
    co_await same(mine(own), none,
                  [&](auto& a, auto& b) { return cohort::gather_v(world, a, b, places, root); });
    co_await same(mine(3 * n), blank(3),
                  [&](auto& a, auto& b) { return cohort::scatter(world, a, b, root); });
    co_await same(mine(world.rank() == root ? 3 * n : 3), blank(1),
                  [&](auto& a, auto&) { return cohort::scatter(world, a, root); });
    co_await same(mine(room), blank(own),
                  [&](auto& a, auto& b) { return cohort::scatter_v(world, a, b, places, root); });
    co_await same(mine(3 * n), blank(3 * n),
                  [&](auto& a, auto& b) { return cohort::all_to_all(world, a, b); });
    co_await same(mine(3 * n), blank(1),
                  [&](auto& a, auto&) { return cohort::all_to_all(world, a); });
    const std::vector<int> from_each(n, world.rank() + 1);
    const cohort::block_list gaps{from_each, [&] {
                                    std::vector<int> at;
                                    for (int r = 0; r < world.size(); ++r) {
                                      at.push_back(r * (world.size() + 2));
                                    }
                                    return at;
                                  }()};
    co_await same(mine(sum), none, [&](auto& a, auto& b) {
      return cohort::all_to_all_v(world, a, counts, b, gaps);
    });
    // Without counts, into more room than is needed.
    co_await same(mine(own), none, [&](auto& a, auto& b) {
      return cohort::all_gather_v(world, a, b, cohort::exchanged_counts);
    });
    co_await same(mine(own), none, [&](auto& a, auto& b) {
      return cohort::gather_v(world, a, b, cohort::exchanged_counts, root);
    });
    co_await same(mine(sum), none, [&](auto& a, auto& b) {
      return cohort::all_to_all_v(world, a, counts, b, cohort::exchanged_counts);
    });
    const auto line = co_await world.create(cohort::mpi::cartesian::balanced(world.size(), 1));
    co_await same(mine(2), blank(4),
                  [&](auto& a, auto& b) { return cohort::neighbor_all_gather(line, a, b); });
    co_await same(mine(4), blank(4),
                  [&](auto& a, auto& b) { return cohort::neighbor_all_to_all(line, a, b); });

    // A result that the verb makes is on the host.
    const auto given = co_await on_device(on, mine(own));
    const auto all = co_await cohort::all_gather_v(world, given, counts);
    const auto wanted = co_await cohort::all_gather_v(world, mine(own), counts);
    CHECK(all == std::get<0>(wanted));
    const auto [told, of_each] = co_await cohort::all_gather_v(world, given);
    CHECK(told == all);
    CHECK(of_each == std::vector<std::size_t>(counts.begin(), counts.end()));
    // A device buffer without room, on one rank.
    auto tight = co_await filled(on, world.rank() == root ? sum - 1 : sum, std::int32_t{-1});
    auto [ec, come] = co_await cohort::all_gather_v(world, given, tight, cohort::exchanged_counts,
                                                    cohort::as_tuple);
    CHECK(ec == (world.rank() == root ? make_error_code(cohort::errc::size_mismatch)
                                      : std::error_code()));
    const auto now = co_await now_in(tight);
    CHECK(now == (world.rank() == root ? blank(sum - 1) : all));
  });
}

TEST_CASE("each rank has its data on the host or on a device, as it likes") {
  on_gpus([](cohort::communicator world) -> asio::awaitable<void> {
    const device::stream on;
    const bool here = world.rank() % 2 == 0;
    for (int round = 0; round < 5; ++round) {
      const int root = round % world.size();
      std::vector<int> host(5, world.rank() == root ? 7 : 0);
      auto values = co_await filled(on, 5, world.rank() == root ? 7 : 0);
      if (here) co_await cohort::broadcast(world, values, root);
      if (!here) co_await cohort::broadcast(world, host, root);
      if (here) host = co_await now_in(values);
      CHECK(host == std::vector<int>(5, 7));
    }
    std::vector<int> all(static_cast<std::size_t>(world.size()));
    auto mine = co_await filled(on, 1, world.rank());
    co_await cohort::gather(world, mine, all, 0);
    std::vector<int> wanted(all.size());
    std::iota(wanted.begin(), wanted.end(), 0);
    if (world.rank() == 0) CHECK(all == wanted);
  });
}

TEST_CASE("messages go from device memory to device memory or to the host") {
  on_gpus([](cohort::communicator world) -> asio::awaitable<void> {
    const device::stream on;
    const int right = right_of(world);
    const int left = left_of(world);
    auto mine = co_await filled(on, 6, world.rank());
    auto got = co_await filled(on, 8, -1);
    // A shorter message leaves the rest.
    const std::vector<int> wanted{left, left, left, left, left, left, -1, -1};
    auto st = co_await cohort::send_recv(world, mine, right, got, left, 7);
    CHECK(st.count<int>() == 6);
    CHECK(st.source() == left);
    CHECK(co_await now_in(got) == wanted);

    got = co_await filled(on, 8, -1);
    auto sending =
        cohort::send<cohort::send_mode::synchronous>(world, mine, right, 8, cohort::as_future);
    st = co_await cohort::recv(world, got, left, 8);
    co_await std::move(sending);
    CHECK(co_await now_in(got) == wanted);

    std::vector<int> host(8, -1);
    auto to_host = cohort::send(world, mine, right, 9, cohort::as_future);
    co_await cohort::recv(world, host, left, 9);
    co_await std::move(to_host);
    CHECK(host == wanted);

    got = co_await filled(on, 8, -1);
    auto from_host = cohort::send(world, host, right, 10, cohort::as_future);
    auto message = co_await cohort::matched_probe(world, left, 10);
    co_await cohort::recv(world, std::move(message), got);
    co_await std::move(from_host);
    const int before = left_of(world) == 0 ? world.size() - 1 : left_of(world) - 1;
    const std::vector<int> from_left{before, before, before, before, before, before, -1, -1};
    CHECK(co_await now_in(got) == from_left);

    got = co_await filled(on, 8, -1);
    co_await cohort::recv(world, got, cohort::no_rank, 3);
    CHECK(co_await now_in(got) == std::vector<int>(8, -1));
  });
}

DOUBLE_TEST_CASE("what a buffer's stream has queued comes first, and it sees the result") {
  on_gpus([](cohort::communicator world) -> asio::awaitable<void> {
    const device::stream on;
    device::vector<int> values(50, on);
    device::pinned_vector<int> before(50, on);
    device::pinned_vector<int> after(50, on);
    {
      device::pinned_vector<std::byte> for_the_pool(50 * sizeof(int), on);
    }
    co_await meet(world);
    fake_gpu::hold(on.get());
    write(on, before, values, world.rank() + 1);
    outcome end;
    cohort::all_reduce(world, values, op::sum, end.handler());
    co_await pause(20ms);  // the loop goes on
    CHECK(!end.over);
    fake_gpu::release(on.get());
    CHECK(co_await soon([&] { return end.over; }));
    CHECK(!end.code);
    device::copy(on, values, after);
    auto copied = device::done(on);
    co_await std::move(copied);
    CHECK(after[49] == world.size() * (world.size() + 1) / 2);
  });
}

DOUBLE_TEST_CASE("collectives that are started behind a staged one are posted behind it") {
  for (const auto level : {cohort::checks::local, cohort::checks::cross_rank}) {
    const gpus_of_ranks machine;
    on_world(
        [](cohort::communicator world) -> asio::awaitable<void> {
          const int n = world.size();
          const device::stream on;
          const device::stream other;
          auto first = co_await filled(on, 10, 1);
          auto third = co_await filled(other, 10, 100);
          std::vector<int> second(10, 10);
          co_await meet(world);
          // The device of the last rank is late.
          const bool late = world.rank() == n - 1;
          if (late) fake_gpu::hold(on.get());
          std::deque<outcome> ends(4);
          cohort::all_reduce(world, first, op::sum, ends[0].handler());
          cohort::all_reduce(world, second, op::sum, ends[1].handler());
          cohort::all_reduce(world, third, op::sum, ends[2].handler());
          cohort::barrier(world, ends[3].handler());
          co_await pause(30ms);
          if (late) {
            for (const outcome& one : ends) CHECK(!one.over);
            fake_gpu::release(on.get());
          }
          for (const outcome& one : ends) {
            CHECK(co_await soon([&] { return one.over; }));
            CHECK(!one.code);
          }
          CHECK(co_await now_in(first) == std::vector<int>(10, n));
          CHECK(second == std::vector<int>(10, 10 * n));
          CHECK(co_await now_in(third) == std::vector<int>(10, 100 * n));
          // And the queue is over.
          co_await cohort::all_reduce(world, second, op::sum);
          CHECK(second == std::vector<int>(10, 10 * n * n));
        },
        {.checks = level});
  }
}

TEST_CASE("a staged verb takes every token, and owns what is moved in") {
  on_gpus([](cohort::communicator world) -> asio::awaitable<void> {
    const int n = world.size();
    const device::stream on;
    auto values = co_await filled(on, 10, 1);
    auto back = co_await cohort::all_reduce(world, std::move(values), op::sum);
    CHECK(co_await now_in(back) == std::vector<int>(10, n));
    auto [code, again] =
        co_await cohort::all_reduce(world, std::move(back), op::sum, cohort::as_tuple);
    CHECK(!code);
    CHECK(co_await now_in(again) == std::vector<int>(10, n * n));
    auto future = cohort::all_reduce(world, again, op::max, cohort::as_future);
    co_await std::move(future);
    auto later = cohort::all_reduce(world, again, op::max, cohort::deferred);
    outcome end;
    std::move(later)(end.handler());
    CHECK(co_await soon([&] { return end.over; }));
    CHECK(!end.code);
    // Detached, and a vector that goes while it is under way: its memory stays.
    cohort::all_reduce(world, co_await filled(on, 10, 1), op::sum, asio::detached);
    outcome gone;
    {
      auto short_lived = co_await filled(on, 1000, 1);
      cohort::all_reduce(world, short_lived, op::sum, gone.handler());
    }
    CHECK(co_await soon([&] { return gone.over; }));
    CHECK(!gone.code);
    {
      auto dropped = cohort::all_reduce(world, again, op::max, cohort::as_future);
    }
    co_await cohort::barrier(world);
  });
}

DOUBLE_TEST_CASE(
    "a staged verb that is given up leaves device memory alone, and the others go on") {
  on_gpus([](cohort::communicator world) -> asio::awaitable<void> {
    const int n = world.size();
    const device::stream on;
    const bool leaves = world.rank() == n - 1;
    auto values = co_await filled(on, 10, 1);
    co_await meet(world);
    if (leaves) fake_gpu::hold(on.get());
    std::error_code code;
    try {
      auto work = cohort::all_reduce(world, values, op::sum);
      co_await cohort::with_deadline(std::move(work), leaves ? 30ms : 20s);
    } catch (const std::system_error& failed) {
      code = failed.code();
    }
    if (leaves) fake_gpu::release(on.get());
    CHECK((code == cohort::errc::deadline_exceeded) == leaves);
    co_await cohort::barrier(world);
    CHECK(co_await now_in(values) == std::vector<int>(10, leaves ? 1 : n));

    // A receive is given up before it is posted and after.
    auto room = co_await filled(on, 10, 1);
    outcome end;
    asio::cancellation_signal stop;
    cohort::recv(
        world, room, left_of(world), 5,
        asio::bind_cancellation_slot(stop.slot(), [&](std::error_code why, cohort::status) {
          end.code = why;
          end.over = true;
        }));
    if (world.rank() % 2 == 0) co_await pause(20ms);
    stop.emit(asio::cancellation_type::total);
    CHECK(co_await soon([&] { return end.over; }));
    CHECK(end.code == asio::error::operation_aborted);
    co_await meet(world);
  });
}

DOUBLE_TEST_CASE("errors of staged verbs have names") {
  on_gpus([](cohort::communicator world) -> asio::awaitable<void> {
    const cohort::log::capture log;
    const device::stream on;
    auto values = co_await filled(on, 10, 1);
    auto longer = co_await filled(on, 11, 1);
    CHECK(co_await code_of(cohort::broadcast(world, values, world.size())) ==
          cohort::errc::bad_root);
    CHECK(co_await code_of(cohort::all_reduce(world, values, longer, op::sum)) ==
          cohort::errc::size_mismatch);
    CHECK(has(world.last_failure().text, "in=memory of device 0"));

    // Neither MPI nor the device has anything of what cannot be posted.
    faults::reset();
    faults::fail_next("MPI_Iallreduce", MPI_ERR_NO_MEM);
    const auto code = co_await code_of(cohort::all_reduce(world, values, op::sum));
    CHECK(faults::failed_as_asked("MPI_Iallreduce"));
    CHECK(code == cohort::mpi::make_error(MPI_ERR_NO_MEM));
    faults::reset();
    CHECK(co_await now_in(values) == std::vector<int>(10, 1));

    // A size that no other test has left in the pool.
    auto large = co_await filled(on, std::size_t{5} << 20U, 1);
    auto idle = device::done(on);
    co_await std::move(idle);
    CHECK(device::pinned_pool::of_process().trim() != 0);
    fake_gpu::fail_next("cudaHostAlloc", cudaErrorMemoryAllocation, 1);
    const auto starved = co_await code_of(cohort::all_reduce(world, large, op::sum));
    CHECK(starved == device::make_error(cudaErrorMemoryAllocation));
    fake_gpu::fail_next("cudaHostAlloc", cudaSuccess, 0);
    co_await cohort::all_reduce(world, values, op::sum);
    CHECK(co_await now_in(values) == std::vector<int>(10, world.size()));

    auto refusing = world.options();
    refusing.device_memory = cohort::device_memory::refused;
    cohort::communicator strict = co_await world.dup();
    strict.state()->options = refusing;
    CHECK(co_await code_of(cohort::all_reduce(strict, values, op::sum)) ==
          cohort::errc::not_supported);
    const std::string text = strict.last_failure().text;
    CHECK(has(text, "all_reduce"));
    CHECK(has(text, "buffer=memory of device 0"));
    std::vector<int> host(3, 1);
    co_await cohort::all_reduce(strict, host, op::sum);
    CHECK(host == std::vector<int>(3, world.size()));
  });
}

DOUBLE_TEST_CASE("a staged verb puts nothing into a capture that it refuses") {
  on_gpus([](cohort::communicator world) -> asio::awaitable<void> {
    const cohort::log::capture log;
    const device::stream on;
    auto values = co_await filled(on, 10, 1);
    const auto copies = fake_gpu::calls("cudaMemcpyAsync");
    cudaGraph_t graph = nullptr;
    outcome end;
    REQUIRE(cudaStreamBeginCapture(on.get(), cudaStreamCaptureModeGlobal) == cudaSuccess);
    cohort::all_reduce(world, values, op::sum, end.handler());
    CHECK(fake_gpu::calls("cudaMemcpyAsync") == copies);
    REQUIRE(cudaStreamEndCapture(on.get(), &graph) == cudaSuccess);
    CHECK(cudaGraphDestroy(graph) == cudaSuccess);
    CHECK(co_await soon([&] { return end.over; }));
    CHECK(end.code == cohort::errc::not_supported);
    co_await cohort::all_reduce(world, values, op::sum);
    CHECK(co_await now_in(values) == std::vector<int>(10, world.size()));
  });
}

TEST_CASE("comparisons between ranks hold for device memory too") {
  const gpus_of_ranks machine;
  on_world(
      [](cohort::communicator world) -> asio::awaitable<void> {
        if (world.size() < 2) co_return;
        const cohort::log::capture log;
        const device::stream on;
        auto values = co_await filled(on, world.rank() == 0 ? 10 : 11, 1);
        CHECK(co_await code_of(cohort::all_reduce(world, values, op::sum)) ==
              cohort::errc::cross_rank_mismatch);
        std::vector<int> host(3, 1);
        co_await cohort::all_reduce(world, host, op::sum);
        CHECK(host == std::vector<int>(3, world.size()));
        auto same = co_await filled(on, 10, 1);
        co_await cohort::all_reduce(world, same, op::sum);
        CHECK(co_await now_in(same) == std::vector<int>(10, world.size()));
      },
      {.checks = cohort::checks::cross_rank});
}

TEST_CASE("device memory that is passed as the host's is named where ranks compare") {
  const gpus_of_ranks machine;
  on_world(
      [](cohort::communicator world) -> asio::awaitable<void> {
        const cohort::log::capture log;
        const device::stream on;
        const auto n = static_cast<std::size_t>(world.size());
        auto values = co_await filled(on, 10 * n, 1);
        const std::span<int> wrong(values.data(), values.size());
        std::vector<int> host(10, 1);
        CHECK(co_await code_of(cohort::all_reduce(world, wrong, op::sum)) ==
              cohort::errc::not_supported);
        CHECK(has(world.last_failure().text, "buffer=device memory"));
        CHECK(co_await code_of(cohort::all_gather(world, host, wrong)) ==
              cohort::errc::not_supported);
        CHECK(has(world.last_failure().text, "out=device memory"));
        if (world.size() > 1) {
          const std::span<int> mine = world.rank() == 1 ? wrong.first(10) : std::span<int>(host);
          CHECK(co_await code_of(cohort::broadcast(world, mine, 0)) ==
                (world.rank() == 1 ? cohort::errc::not_supported
                                   : cohort::errc::cross_rank_mismatch));
          CHECK(has(world.last_failure().text,
                    world.rank() == 1 ? "buffer=device memory" : "a rank gives device memory"));
        }
        co_await cohort::all_reduce(world, host, op::sum);
        CHECK(host == std::vector<int>(10, world.size()));
      },
      {.checks = cohort::checks::cross_rank});
}

DOUBLE_TEST_CASE("ranks that compare hear of a staged verb that another one cannot begin") {
  const gpus_of_ranks machine;
  on_world(
      [](cohort::communicator world) -> asio::awaitable<void> {
        if (world.size() < 2) co_return;
        const cohort::log::capture log;
        const bool cannot = world.rank() == world.size() - 1;
        const device::stream on;
        auto values = co_await filled(on, 10, 1);
        std::vector<int> host(3, 1);
        const auto others_hear = [&](const outcome& end, std::error_code own) {
          CHECK(end.code == (cannot ? own : cohort::errc::cross_rank_mismatch));
          if (!cannot) CHECK(has(world.last_failure().text, "a rank cannot take part"));
        };

        // Its stream is being captured.
        cudaGraph_t graph = nullptr;
        outcome captured;
        if (cannot) cudaStreamBeginCapture(on.get(), cudaStreamCaptureModeGlobal);
        cohort::all_reduce(world, values, op::sum, captured.handler());
        if (cannot) {
          cudaStreamEndCapture(on.get(), &graph);
          cudaGraphDestroy(graph);
        }
        CHECK(co_await soon([&] { return captured.over; }));
        others_hear(captured, cohort::errc::not_supported);
        co_await cohort::all_reduce(world, host, op::sum);
        CHECK(host == std::vector<int>(3, world.size()));
        co_await cohort::all_reduce(world, values, op::sum);
        CHECK(co_await now_in(values) == std::vector<int>(10, world.size()));

        // Its device is lost.
        if (cannot) {
          fake_gpu::break_device(0, cudaErrorIllegalAddress);
          CHECK(co_await code_of(device::done(on)) == device::make_error(cudaErrorIllegalAddress));
        }
        co_await meet(world);
        outcome lost;
        cohort::all_reduce(world, values, op::sum, lost.handler());
        CHECK(co_await soon([&] { return lost.over; }));
        others_hear(lost, device::make_error(cudaErrorIllegalAddress));
        host.assign(3, 1);
        co_await cohort::all_reduce(world, host, op::sum);
        CHECK(host == std::vector<int>(3, world.size()));
      },
      {.checks = cohort::checks::cross_rank});
}

// Managed memory is the only memory of a device here that MPI can touch.
DOUBLE_TEST_CASE("an MPI that is CUDA-aware gets the pointer, behind the buffer's stream") {
  const gpus_of_ranks machine;
  on_world(
      [](cohort::communicator world) -> asio::awaitable<void> {
        const cohort::log::capture log;
        const device::stream on;
        int* memory = nullptr;
        device::check(cudaMallocManaged(reinterpret_cast<void**>(&memory), 20 * sizeof(int), 1),
                      "cudaMallocManaged", 0);
        std::fill_n(memory, 20, world.rank() + 1);
        const device::span<int> values(memory, 20, on);
        const auto copies = fake_gpu::calls("cudaMemcpyAsync");
        const auto pinned = fake_gpu::calls("cudaHostAlloc");
        co_await meet(world);
        fake_gpu::hold(on.get());
        static_cast<void>(fake_gpu::launch(
            on.get(), [](void* at) { static_cast<int*>(fake_gpu::access(at, 4))[0] = 50; },
            memory));
        outcome end;
        cohort::all_reduce(world, values, op::sum, end.handler());
        co_await pause(10ms);
        CHECK(!end.over);
        fake_gpu::release(on.get());
        CHECK(co_await soon([&] { return end.over; }));
        CHECK(!end.code);
        CHECK(memory[0] == 50 * world.size());
        CHECK(memory[19] == world.size() * (world.size() + 1) / 2);
        CHECK(fake_gpu::calls("cudaMemcpyAsync") == copies);
        CHECK(fake_gpu::calls("cudaHostAlloc") == pinned);

        // Never beside NCCL: neither while it has the device,
        {
          nccl::communicator gpus = co_await nccl::make_communicator(world);
          CHECK(co_await code_of(cohort::all_reduce(world, values, op::sum)) ==
                cohort::errc::device_ordered);
          CHECK(has(world.last_failure().text, "buffer=memory of device 0"));
          CHECK(has(world.last_failure().text, "which NCCL works on"));
          co_await gpus.finalize();
        }
        CHECK(co_await soon([] { return !device::state_of(0).has_launcher(); }));
        co_await meet(world);
        // nor is it made while MPI has.
        if (world.size() > 1) {
          outcome held;
          auto comm = co_await world.dup();
          if (world.rank() == 0) fake_gpu::hold(on.get());
          if (world.rank() == 0) {
            static_cast<void>(fake_gpu::launch(on.get(), [](void*) {}, nullptr));
          }
          cohort::all_reduce(comm, values, op::sum, held.handler());
          auto failed = co_await caught<cohort::rank_error>(nccl::make_communicator(world));
          REQUIRE(failed);
          CHECK(failed->code() == cohort::errc::device_ordered);
          CHECK(has(failed->what(), "MPI works on memory of device 0"));
          co_await meet(world);
          if (world.rank() == 0) fake_gpu::release(on.get());
          CHECK(co_await soon([&] { return held.over; }));
          CHECK(!held.code);
        }
        // What host code has to touch is staged.
        auto mean = co_await filled(on, 9, static_cast<float>(world.rank()));
        co_await cohort::all_reduce(world, mean, op::average);
        CHECK(co_await now_in(mean) ==
              std::vector<float>(9, static_cast<float>(world.size() - 1) / 2));
        device::check(cudaFree(memory), "cudaFree", 0);
      },
      {.device_memory = cohort::device_memory::cuda_aware});
}
