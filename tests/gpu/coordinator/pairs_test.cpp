// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

/// \file Elected messages between two ranks in device memory, on NCCL.

#include "support.hpp"

#include <map>
#include <random>

using namespace cohort_test;

TEST_CASE("a message in device memory between two ranks of a coordinator") {
  on_gpus([](cohort::communicator world) -> asio::awaitable<void> {
    cohort::coordinator coord(world, nccl::backend());
    const int last = world.size() - 1;
    device::stream on;
    if (last != 0 && world.rank() == 0) {
      auto values = co_await filled(on, 1000, 2.5F);
      co_await coord.send("x", values, last);
      CHECK(co_await now_in(values) == std::vector<float>(1000, 2.5F));
      device::vector<double> nothing(0, on);
      co_await coord.send("nothing", nothing, last);
      // What is passed as an rvalue is handed back.
      auto moved = co_await filled(on, 3, std::int64_t{7});
      const auto back = co_await coord.send("moved", std::move(moved), last);
      CHECK(back.size() == 3);
    } else if (last != 0 && world.rank() == last) {
      auto values = co_await filled(on, 1000, 0.0F);
      co_await coord.recv("x", values, 0);
      CHECK(co_await now_in(values) == std::vector<float>(1000, 2.5F));
      device::vector<double> nothing(0, on);
      co_await coord.recv("nothing", nothing, 0);
      auto room = co_await filled(on, 3, std::int64_t{0});
      const auto come = co_await coord.recv("moved", std::move(room), 0);
      CHECK(co_await now_in(come) == std::vector<std::int64_t>(3, 7));
    }
    co_await coord.shutdown();
  });
}

// The launches of a rank wait for one another, so any order but that of the log would deadlock: of
// the ring by itself, and of the ring and the reductions. The double would name the calls.
TEST_CASE("rings of messages between reductions submitted in another order on each rank") {
  on_gpus([](cohort::communicator world) -> asio::awaitable<void> {
    cohort::coordinator coord(world, nccl::backend());
    const int ranks = world.size();
    const int next = (world.rank() + 1) % ranks;
    const int previous = (world.rank() + ranks - 1) % ranks;
    device::stream on;
    std::mt19937 random(static_cast<std::uint32_t>(world.rank() + 3));
    constexpr std::size_t rounds = 6;
    std::vector<device::vector<float>> out;
    std::vector<device::vector<float>> in;
    std::vector<device::vector<double>> sums;
    for (std::size_t i = 0; i < rounds; ++i) {
      out.push_back(co_await filled(on, 100 + i,
                                    static_cast<float>(world.rank() + 10 * static_cast<int>(i))));
      in.push_back(co_await filled(on, 100 + i, -1.0F));
      sums.push_back(
          co_await filled(on, 50 + i, static_cast<double>(world.rank() + static_cast<int>(i))));
    }
    std::vector<std::size_t> order(3 * rounds);
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::shuffle(order.begin(), order.end(), random);
    std::size_t over = 0;
    std::size_t failed = 0;
    std::size_t wanted = 0;
    const auto ended = [&](std::exception_ptr why) {
      ++over;
      if (why) ++failed;
    };
    for (const std::size_t each : order) {
      const std::size_t i = each / 3;
      const std::string name = "of round " + std::to_string(i);
      if (each % 3 == 0) {
        coord.all_reduce(name, sums[i], op::sum, ended);
      } else if (ranks == 1) {
        continue;
      } else if (each % 3 == 1) {
        coord.send(name, out[i], next, ended);
      } else {
        coord.recv(name, in[i], previous, ended);
      }
      ++wanted;
    }
    CHECK(co_await soon([&] { return over == wanted; }));
    CHECK(failed == 0);
    for (std::size_t i = 0; i < rounds; ++i) {
      const auto sum = static_cast<double>(ranks * (ranks - 1) / 2) +
                       static_cast<double>(i) * static_cast<double>(ranks);
      CHECK(co_await now_in(sums[i]) == std::vector<double>(50 + i, sum));
      if (ranks == 1) continue;
      CHECK(co_await now_in(in[i]) ==
            std::vector<float>(100 + i, static_cast<float>(previous + 10 * static_cast<int>(i))));
    }
    co_await coord.shutdown();
  });
}

TEST_CASE("what follows an enqueued recv on the stream sees what has come") {
  on_gpus([](cohort::communicator world) -> asio::awaitable<void> {
    cohort::coordinator coord(world, nccl::backend());
    const int last = world.size() - 1;
    device::stream compute;
    if (last != 0 && world.rank() == 0) {
      // Written by the stream just before, and overwritten just after: neither is waited for here.
      device::vector<float> values(5000, compute);
      device::pinned_vector<float> before(5000, compute);
      write(compute, before, values, 3.0F);
      co_await coord.send("x", values, last, {.on = compute, .ends = cohort::until::enqueued});
      device::pinned_vector<float> after(5000, compute);
      write(compute, after, values, -1.0F);
      CHECK(co_await now_in(values) == std::vector<float>(5000, -1.0F));
    } else if (last != 0 && world.rank() == last) {
      auto values = co_await filled(compute, 5000, 0.0F);
      co_await coord.recv("x", values, 0, {.on = compute, .ends = cohort::until::enqueued});
      CHECK(co_await now_in(values) == std::vector<float>(5000, 3.0F));
    }
    co_await coord.shutdown();
  });
}

TEST_CASE("a message between memory of the host and of a device is a mismatch") {
  on_gpus([](cohort::communicator world) -> asio::awaitable<void> {
    cohort::coordinator coord(world, nccl::backend());
    const int last = world.size() - 1;
    device::stream on;
    if (last != 0 && world.rank() == 0) {
      auto values = co_await filled(on, 4, 1.0F);
      const auto problem = co_await caught<cohort::mismatch_error>(coord.send("x", values, last));
      REQUIRE(problem);
      CHECK(problem->field() == "memory");
    } else if (last != 0 && world.rank() == last) {
      std::vector<float> values(4);
      const auto problem = co_await caught<cohort::mismatch_error>(coord.recv("x", values, 0));
      REQUIRE(problem);
      CHECK(problem->field() == "memory");
    }
    co_await coord.shutdown();
  });
}

// All in reverse, so no rank of the set is that of the coordinator but one in the middle.
TEST_CASE("messages in device memory of a process set count its ranks") {
  on_gpus([](cohort::communicator world) -> asio::awaitable<void> {
    if (world.size() < 2) co_return;
    cohort::coordinator coord(world, nccl::backend());
    std::vector<int> backwards(static_cast<std::size_t>(world.size()));
    std::iota(backwards.rbegin(), backwards.rend(), 0);
    auto set = co_await coord.add_process_set(cohort::ranks(backwards));
    const int ranks = set.size();
    const int next = (set.rank() + 1) % ranks;
    const int previous = (set.rank() + ranks - 1) % ranks;
    device::stream on;
    auto out = co_await filled(on, 40, static_cast<float>(set.rank()));
    auto in = co_await filled(on, 40, -1.0F);
    auto sum = co_await filled(on, 3, 1.0F);
    std::size_t over = 0;
    std::size_t failed = 0;
    const auto ended = [&](std::exception_ptr why) {
      ++over;
      if (why) ++failed;
    };
    // Rank 0 receives first; the sum is the coordinator's, on other communicators.
    if (set.rank() == 0) set.recv("ring", in, previous, ended);
    coord.all_reduce("sum", sum, op::sum, ended);
    set.send("ring", out, next, ended);
    if (set.rank() != 0) set.recv("ring", in, previous, ended);
    CHECK(co_await soon([&] { return over == 3; }));
    CHECK(failed == 0);
    CHECK(co_await now_in(in) == std::vector<float>(40, static_cast<float>(previous)));
    CHECK(co_await now_in(sum) == std::vector<float>(3, static_cast<float>(ranks)));
    co_await coord.shutdown();
  });
}
