// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// Process sets and persistent groups. Part of the executable coordinator.verbs.
#include <cohort/collectives/all_reduce.hpp>
#include <cohort/collectives/barrier.hpp>
#include <cohort/progress/future.hpp>
#include <cohort/progress/when_all.hpp>

#include <algorithm>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/support.hpp"
#include "support/patience.hpp"

namespace {

using cohort_test::caught;
using cohort_test::coordinated;

cohort::ranks every_second(int size) { return cohort::ranks::stride(0, size, 2); }

}  // namespace

TEST_CASE("a process set of some ranks", "[coordinator][sets]") {
  coordinated([](cohort::communicator world, cohort::coordinator coord) -> asio::awaitable<void> {
    const auto evens = co_await coord.add_process_set(every_second(coord.size()));
    if (world.rank() % 2 != 0) {
      CHECK_FALSE(evens);
      co_return;
    }
    CHECK(evens.size() == (world.size() + 1) / 2);
    CHECK(evens.rank() == world.rank() / 2);
    CHECK(evens.local_rank() == evens.rank());
    CHECK(evens.local_size() == evens.size());
    CHECK(evens.is_homogeneous());
    CHECK(evens.contains(0));
    CHECK_FALSE(evens.contains(1));
    int value = 1;
    co_await evens.all_reduce("value", value, cohort::op::sum);
    CHECK(value == evens.size());
    const std::vector<int> mine(static_cast<std::size_t>(evens.rank()), evens.rank());
    const auto rows = co_await evens.all_gather("rows", mine);
    CHECK(rows.size() == static_cast<std::size_t>(evens.size() * (evens.size() - 1) / 2));
    co_await evens.shutdown();
  });
}

TEST_CASE("the list decides who is which rank of a set", "[coordinator][sets]") {
  coordinated([](cohort::communicator world, cohort::coordinator coord) -> asio::awaitable<void> {
    std::vector<int> backwards(static_cast<std::size_t>(world.size()));
    std::iota(backwards.rbegin(), backwards.rend(), 0);
    const auto set = co_await coord.add_process_set(cohort::ranks(backwards));
    CHECK(set.rank() == world.size() - 1 - world.rank());
    CHECK(set.members() == cohort::ranks(backwards));
    int value = world.rank();
    co_await set.broadcast("root", value, 0);
    CHECK(value == world.size() - 1);
  });
}

TEST_CASE("a process set of the ranks of a communicator", "[coordinator][sets]") {
  coordinated([](cohort::communicator world, cohort::coordinator coord) -> asio::awaitable<void> {
    const int n = world.size();
    // One call for each color; the order is that of the communicator.
    cohort::communicator half = co_await world.split(world.rank() % 2, -world.rank());
    const int size = half.size();
    const int rank = half.rank();
    const auto set = co_await coord.add_process_set(half);
    half = cohort::communicator();  // it is not needed any more
    CHECK(set.size() == size);
    CHECK(set.rank() == rank);
    CHECK(set.members()[static_cast<std::size_t>(rank)] == world.rank());
    CHECK(set.local_size() == size);
    CHECK(set.local_rank() == rank);
    CHECK(set.is_homogeneous());
    int value = world.rank();
    co_await set.all_reduce("sum", value, cohort::op::sum);
    int expected = 0;
    for (int each = world.rank() % 2; each < n; each += 2) expected += each;
    CHECK(value == expected);
    co_await set.shutdown();

    // All but rank 0, which has an empty communicator.
    const cohort::communicator some = co_await world.split(world.rank() == 0 ? -1 : 0);
    const auto rest = co_await coord.add_process_set(some);
    CHECK(static_cast<bool>(rest) == (world.rank() != 0));
    if (rest) {
      CHECK(rest.rank() == world.rank() - 1);
      co_await rest.barrier();
      co_await rest.shutdown();
    }

    // One that MPI has made, which has no ancestor in common with the coordinator's.
    co_await cohort::barrier(world);  // nobody needs a decision while MPI blocks
    MPI_Comm turned = MPI_COMM_NULL;
    {
      const cohort::mpi::lock calls;
      MPI_Comm_split(MPI_COMM_WORLD, 0, -world.rank(), &turned);
    }
    auto& io = static_cast<asio::io_context&>(world.get_executor().context());
    const cohort::communicator own(io, turned);
    {
      const cohort::mpi::lock calls;
      MPI_Comm_free(&turned);
    }
    const auto backwards = co_await coord.add_process_set(own);
    CHECK(backwards.rank() == n - 1 - world.rank());
    co_await backwards.barrier();
    co_await backwards.shutdown();
  });
}

TEST_CASE("a communicator with a rank that is not in the coordinator makes no set",
          "[coordinator][sets]") {
  coordinated([](cohort::communicator world, cohort::coordinator) -> asio::awaitable<void> {
    if (world.size() == 1) co_return;
    const bool in = world.rank() + 1 < world.size();
    const cohort::communicator most = co_await world.split(in ? 0 : -1);
    if (!in) co_return;
    cohort::coordinator coord(most);
    const auto refused =
        co_await caught<cohort::error>(coord.add_process_set(world));  // on all ranks
    REQUIRE(refused);
    CHECK(refused->code() == cohort::errc::bad_rank);
    const std::string text = refused->what();
    INFO(text);
    CHECK(text.find("add_process_set: rank " + std::to_string(world.size() - 1) +
                    " of the communicator is no rank of the coordinator") != std::string::npos);
    const auto all = co_await coord.add_process_set(most);
    CHECK(all.size() == most.size());
    co_await all.shutdown();
    co_await coord.shutdown();
  });
}

TEST_CASE("an intercommunicator makes no set, and does not know nodes", "[coordinator][sets]") {
  coordinated([](cohort::communicator world, cohort::coordinator coord) -> asio::awaitable<void> {
    if (world.size() == 1) co_return;
    co_await cohort::barrier(world);  // nobody needs a decision while MPI blocks
    auto& io = static_cast<asio::io_context&>(world.get_executor().context());
    MPI_Comm side = MPI_COMM_NULL;
    MPI_Comm both = MPI_COMM_NULL;
    const int color = world.rank() % 2;
    {
      const cohort::mpi::lock calls;
      MPI_Comm_split(world.native(), color, 0, &side);
      MPI_Intercomm_create(side, 0, world.native(), 1 - color, 11, &both);
    }
    {
      const cohort::communicator bridge(io, both);
      CHECK(bridge.local_size() == -1);
      CHECK(bridge.local_rank() == -1);
      CHECK_FALSE(bridge.is_homogeneous());
      const auto refused = co_await caught<cohort::error>(coord.add_process_set(bridge));
      REQUIRE(refused);
      CHECK(refused->code() == cohort::errc::invalid_communicator);
    }
    const cohort::mpi::lock calls;
    MPI_Comm_free(&both);
    MPI_Comm_free(&side);
  });
}

TEST_CASE("sets proceed on their own, beside the coordinator's operations", "[coordinator][sets]") {
  coordinated([](cohort::communicator world, cohort::coordinator coord) -> asio::awaitable<void> {
    // An operation that rank 0 submits last keeps no set waiting.
    int held = 1;
    std::optional<cohort::future<void>> waiting;
    if (world.rank() != 0) {
      waiting = coord.all_reduce("held", held, cohort::op::sum, cohort::as_future);
    }
    const auto all = co_await coord.add_process_set(cohort::ranks::all(world.size()));
    const auto evens = co_await coord.add_process_set(every_second(world.size()));
    for (int round = 0; round < 20; ++round) {
      int a = 1;
      int b = 1;
      // The same name in both, submitted in different orders.
      if ((world.rank() / 2 + round) % 2 == 0) {
        auto first = all.all_reduce("x", a, cohort::op::sum, cohort::as_future);
        if (evens) co_await evens.all_reduce("x", b, cohort::op::sum);
        co_await std::move(first);
      } else if (evens) {
        auto first = evens.all_reduce("x", b, cohort::op::sum, cohort::as_future);
        co_await all.all_reduce("x", a, cohort::op::sum);
        co_await std::move(first);
      } else {
        co_await all.all_reduce("x", a, cohort::op::sum);
      }
      CHECK(a == world.size());
      if (evens) CHECK(b == evens.size());
    }
    if (world.rank() == 0) {
      waiting = coord.all_reduce("held", held, cohort::op::sum, cohort::as_future);
    }
    co_await std::move(*waiting);
    CHECK(held == world.size());
  });
}

TEST_CASE("lists that differ are a mismatch", "[coordinator][sets]") {
  coordinated([](cohort::communicator world, cohort::coordinator coord) -> asio::awaitable<void> {
    if (world.size() < 2) co_return;
    std::vector<int> list(static_cast<std::size_t>(world.size()));
    if (world.rank() == 0) {
      std::iota(list.rbegin(), list.rend(), 0);
    } else {
      std::iota(list.begin(), list.end(), 0);
    }
    const auto problem =
        co_await caught<cohort::mismatch_error>(coord.add_process_set(cohort::ranks(list)));
    REQUIRE(problem);
    CHECK(problem->field() == "group members");
    const auto beyond =
        co_await cohort_test::code_of(coord.add_process_set(cohort::ranks::all(world.size() + 1)));
    CHECK(beyond == cohort::errc::bad_rank);
  });
}

TEST_CASE("removing a set ends what is pending in it", "[coordinator][sets]") {
  coordinated([](cohort::communicator world, cohort::coordinator coord) -> asio::awaitable<void> {
    if (world.size() < 2) co_return;
    const auto set = co_await coord.add_process_set(cohort::ranks::all(world.size()));
    if (world.rank() == 0) {
      co_await set.remove();
    } else {
      int value = 1;
      const auto problem = co_await caught<cohort::peer_lost_error>(
          set.all_reduce("pending", value, cohort::op::sum));
      REQUIRE(problem);
      CHECK(problem->ranks() == std::vector<int>{0});
      co_await set.remove();
    }
    int value = 1;
    const auto late = co_await cohort_test::code_of(set.all_reduce("late", value, cohort::op::sum));
    CHECK(late == cohort::errc::not_accepting);
  });
}

TEST_CASE("sets are made and removed many times", "[coordinator][sets]") {
  coordinated([](cohort::communicator world, cohort::coordinator coord) -> asio::awaitable<void> {
    for (int round = 0; round < 100; ++round) {
      auto set = co_await coord.add_process_set(every_second(world.size()));
      if (!set) continue;
      int value = round;
      co_await set.all_reduce("value", value, cohort::op::max);
      if (round % 2 == 0) co_await set.shutdown();  // else the last handle goes
    }
  });
}

TEST_CASE("several sets are asked for at once, in another order on each rank",
          "[coordinator][sets]") {
  coordinated([](cohort::communicator world, cohort::coordinator coord) -> asio::awaitable<void> {
    std::vector<cohort::future<cohort::process_set>> asked;
    for (int i = 0; i < 4; ++i) {
      // The first ranks, of another number each; the same members twice where ranks are few.
      const int which = (i + world.rank()) % 4;
      const int members = std::min(which + 1, world.size());
      asked.push_back(coord.add_process_set(cohort::ranks::all(members), cohort::as_future));
    }
    for (auto& each : asked) {
      const auto set = co_await std::move(each);
      if (!set) continue;
      int value = 1;
      co_await set.all_reduce("value", value, cohort::op::sum);
      CHECK(value == set.size());
    }
  });
}

TEST_CASE("persistent groups start in any order without a message", "[coordinator][groups]") {
  coordinated([](cohort::communicator world, cohort::coordinator coord) -> asio::awaitable<void> {
    std::vector<float> a(10);
    std::vector<int> b(20);
    std::vector<double> large(300000);
    const auto few = co_await coord.make_persistent(cohort::bundle("few").add("a", a).add("b", b),
                                                    cohort::op::sum);
    const auto many = co_await coord.make_persistent(cohort::bundle("many").add("large", large),
                                                     cohort::op::average);
    co_await coord.barrier();
    const auto before = coord.stats().messages_sent;
    for (int round = 0; round < 30; ++round) {
      a.assign(10, 1.0F);
      b.assign(20, world.rank());
      large.assign(large.size(), world.rank() + round);
      const bool turned = (world.rank() + round) % 2 != 0;
      auto first = (turned ? many : few).start(cohort::as_future);
      co_await (turned ? few : many).start();
      co_await std::move(first);
      const int n = world.size();
      CHECK(a == std::vector<float>(10, static_cast<float>(n)));
      CHECK(b == std::vector<int>(20, n * (n - 1) / 2));
      CHECK(large == std::vector<double>(large.size(), (n - 1) / 2.0 + round));
    }
    // Sixty starts, and a few messages: the end of the barrier, and ranks that leave already.
    CHECK(coord.stats().messages_sent - before <= 2 * static_cast<unsigned>(world.size()));
  });
}

TEST_CASE("starts of a group pile up", "[coordinator][groups]") {
  coordinated([](cohort::communicator world, cohort::coordinator coord) -> asio::awaitable<void> {
    std::vector<long> data(3, 1);
    const auto group =
        co_await coord.make_persistent(cohort::bundle("g").add("data", data), cohort::op::max);
    std::vector<cohort::future<void>> all;
    for (int i = 0; i < 10; ++i) all.push_back(group.start(cohort::as_future));
    co_await cohort::when_all(std::move(all));
    CHECK(data == std::vector<long>(3, 1));
    static_cast<void>(world);
  });
}

// A group has its own order, and its own share of what may be under way.
TEST_CASE("a start that others make only later holds nothing else up", "[coordinator][groups]") {
  const bool set = GENERATE(true, false);
  cohort::coordinator_options options;
  options.slots = 1;
  const auto body = [&](cohort::communicator world,
                        cohort::coordinator coord) -> asio::awaitable<void> {
    std::vector<float> data(400'000, 1);  // more than may be under way at once
    std::vector<float> other(400'000, 1);
    const auto group =
        co_await coord.make_persistent(cohort::bundle("g").add("data", data), cohort::op::sum);
    std::optional<cohort::future<void>> started;
    if (world.rank() == 0) started = group.start(cohort::as_future);
    if (set) {
      const auto members = cohort_test::ranks_below(world.size());
      const auto all = co_await coord.add_process_set(cohort::ranks(members));
      co_await all.remove();
    } else {
      co_await coord.all_reduce("other", other, cohort::op::sum);
    }
    if (world.rank() != 0) started = group.start(cohort::as_future);
    co_await std::move(*started);
    CHECK(data.back() == static_cast<float>(world.size()));
  };
  coordinated(body, options);
}

TEST_CASE("groups end: removal, unequal starts, joins", "[coordinator][groups]") {
  coordinated([](cohort::communicator world, cohort::coordinator coord) -> asio::awaitable<void> {
    std::vector<int> data(3, 1);
    const auto group =
        co_await coord.make_persistent(cohort::bundle("g").add("data", data), cohort::op::sum);
    CHECK(co_await cohort_test::code_of(coord.join()) == cohort::errc::not_accepting);
    co_await group.start();
    if (world.size() > 1) {
      std::optional<cohort::future<void>> extra;
      if (world.rank() == 0) extra = group.start(cohort::as_future);
      const auto problem = co_await caught<cohort::mismatch_error>(group.remove());
      REQUIRE(problem);
      CHECK(problem->field() == "starts");
      if (world.rank() != 0) extra = group.start(cohort::as_future);
      co_await std::move(*extra);
    }
    co_await group.remove();
    CHECK(co_await cohort_test::code_of(group.start()) == cohort::errc::not_accepting);
    CHECK(co_await coord.join() >= 0);
  });
}

TEST_CASE("process sets that overlap have persistent groups of their own",
          "[coordinator][groups]") {
  coordinated([](cohort::communicator world, cohort::coordinator coord) -> asio::awaitable<void> {
    const auto all = co_await coord.add_process_set(cohort::ranks::all(world.size()));
    const auto evens = co_await coord.add_process_set(every_second(world.size()));
    std::vector<int> a(3);
    std::vector<int> b(3);
    const auto of_all =
        co_await all.make_persistent(cohort::bundle("g").add("x", a), cohort::op::sum);
    cohort::persistent_group of_evens;
    if (evens) {
      of_evens = co_await evens.make_persistent(cohort::bundle("g").add("x", b), cohort::op::sum);
    }
    for (int round = 0; round < 20; ++round) {  // in another order on some ranks
      a.assign(3, 1);
      b.assign(3, 1);
      const bool turned = (world.rank() / 2 + round) % 2 != 0;
      std::optional<cohort::future<void>> first;
      if (evens && turned) first = of_evens.start(cohort::as_future);
      co_await of_all.start();
      if (evens && !turned) first = of_evens.start(cohort::as_future);
      if (first) co_await std::move(*first);
      CHECK(a == std::vector<int>(3, all.size()));
      if (evens) CHECK(b == std::vector<int>(3, evens.size()));
    }
    CHECK(co_await cohort_test::code_of(all.join()) == cohort::errc::not_accepting);
    if (evens) {
      CHECK(co_await cohort_test::code_of(evens.join()) == cohort::errc::not_accepting);
      co_await of_evens.remove();
      CHECK(co_await evens.join() >= 0);
    }
    co_await all.remove();  // with its group
    CHECK(co_await cohort_test::code_of(of_all.start()) == cohort::errc::not_accepting);
    CHECK(co_await coord.join() >= 0);
  });
}

TEST_CASE("starts that a leaver lacks end with peer_lost", "[coordinator][groups]") {
  const auto elements = GENERATE(std::size_t{3}, std::size_t{1500000});  // in pieces, one at a time
  cohort_test::on_world([elements](cohort::communicator world) -> asio::awaitable<void> {
    cohort::coordinator coord(world);
    std::vector<int> data(elements, 1);
    const auto group =
        co_await coord.make_persistent(cohort::bundle("g").add("data", data), cohort::op::sum);
    co_await group.start();
    if (world.rank() != 0 || world.size() == 1) {
      co_await coord.shutdown();
      co_return;
    }
    std::vector<cohort::future<void>> starts;
    for (int i = 0; i < 3; ++i) starts.push_back(group.start(cohort::as_future));
    for (cohort::future<void>& each : starts) {
      // Where this rank knows already that somebody has left, the start is refused [protocol H3].
      std::error_code code;
      try {
        co_await std::move(each);
      } catch (const std::system_error& failed) {
        code = failed.code();
      }
      const bool ended = code == cohort::errc::peer_lost || code == cohort::errc::not_accepting;
      CHECK(ended);
    }
    co_await coord.shutdown();
  });
}

TEST_CASE("direct collectives beside a coordinator that is being opened", "[coordinator][sets]") {
  for (int round = 0; round < 20; ++round) {
    cohort_test::on_world([](cohort::communicator world) -> asio::awaitable<void> {
      cohort::coordinator coord(world);
      for (int i = 0; i < 3; ++i) {
        int value = 1;
        co_await cohort::all_reduce(world, value, cohort::op::sum);
        CHECK(value == world.size());
        co_await cohort::barrier(world);
      }
      co_await cohort_test::works(coord, "named");
      co_await coord.shutdown();
    });
  }
}

TEST_CASE("a context goes away while a coordinator is being opened", "[coordinator][sets]") {
  for (int steps = 0; steps < 12; ++steps) {
    const auto began = std::chrono::steady_clock::now();
    // Whether the operation still runs depends on the stage, so its data outlives the context.
    std::vector<int> data(3, 1);
    {
      asio::io_context io;
      cohort::communicator world(io);
      cohort::coordinator coord(world);
      coord.all_reduce("at the end", data, cohort::op::sum, asio::detached);
      for (int i = 0; i < (steps + world.rank()) % 12; ++i) io.poll_one();  // each at another stage
    }
    CHECK(std::chrono::steady_clock::now() - began <
          cohort_test::patient(std::chrono::seconds(10)));
  }
}
