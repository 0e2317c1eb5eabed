// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

/// \file Process sets of a coordinator on devices: they have one log with it, and one order of
/// launches.

#include "support.hpp"

#include <algorithm>
#include <deque>
#include <optional>
#include <random>
#include <utility>

namespace {

using namespace cohort_test;
using cohort::as_future;
using cohort::coordinator;
using cohort::errc;
using cohort::process_set;

/// Runs `body(world, coord)`, and looks what is left.
template <class Body>
void with_sets(Body body) {
  on_gpus([&](cohort::communicator world) -> asio::awaitable<void> {
    const cohort::log::capture log;
    coordinator coord(world, nccl::backend());
    co_await coord.barrier();
    co_await body(world, coord);
    co_await coord.shutdown();
  });
}

/// All ranks but the last, all but the first, and all of them backwards.
cohort::ranks lower(int size) { return cohort::ranks::all(std::max(size - 1, 1)); }
cohort::ranks upper(int size) { return cohort::ranks::stride(size > 1 ? 1 : 0, size, 1); }
cohort::ranks backwards(int size) {
  std::vector<int> list(static_cast<std::size_t>(size));
  std::iota(list.rbegin(), list.rend(), 0);
  return cohort::ranks(list);
}

/// A set does both kinds of memory; nothing where this rank is not in it.
asio::awaitable<void> set_works(process_set set) {
  if (!set) co_return;
  const device::stream on;
  auto on_device = co_await filled(on, 3, 1.0F);
  co_await set.all_reduce("on the device", on_device, op::sum);
  CHECK(co_await now_in(on_device) == std::vector<float>(3, static_cast<float>(set.size())));
  int on_host = set.rank();
  co_await set.all_reduce("on the host", on_host, op::max);
  CHECK(on_host == set.size() - 1);
}

asio::awaitable<std::vector<int>> elements_of(const std::vector<int>& of) { co_return of; }
asio::awaitable<std::vector<int>> elements_of(const device::vector<int>& of) {
  auto all = now_in(of);
  co_return co_await std::move(all);
}

/// Every verb, in the ranks of the set. `make` makes a buffer with these elements.
template <class Make>
asio::awaitable<void> does_every_verb(process_set set, std::string name, Make make) {
  const int n = set.size();
  const int rank = set.rank();
  const int root = n - 1;
  const auto count = static_cast<std::size_t>(n);
  std::vector<int> order(count);
  std::iota(order.begin(), order.end(), 0);
  std::vector<int> rows;
  for (int from = 0; from < n; ++from) rows.insert(rows.end(), from + 1, from);

  auto some = co_await make(std::vector<int>(2, 10 * rank));
  co_await set.broadcast(name + "broadcast", some, root);
  CHECK(co_await elements_of(some) == std::vector<int>(2, 10 * root));
  co_await set.reduce(name + "reduce", some, op::sum, root);
  if (rank == root) CHECK(co_await elements_of(some) == std::vector<int>(2, 10 * root * n));
  auto many = co_await make(std::vector<int>(count, 10 * rank));
  co_await set.all_reduce(name + "average", many, op::average);
  CHECK(co_await elements_of(many) == std::vector<int>(count, 10 * (n - 1) / 2));
  const auto mine = co_await make(std::vector<int>(static_cast<std::size_t>(rank + 1), rank));
  const auto all = co_await set.all_gather(name + "rows", mine);
  CHECK(co_await elements_of(all) == rows);
  const auto own = co_await make(std::vector<int>(1, rank));
  const auto gathered = co_await set.gather(name + "gather", own, root);
  if (rank == root) CHECK(co_await elements_of(gathered) == order);
  auto part = co_await make(std::vector<int>(1));
  co_await set.scatter(name + "scatter", gathered, part, root);
  CHECK(co_await elements_of(part) == std::vector<int>(1, rank));
  const auto ones = co_await make(std::vector<int>(count + 1, 1));
  const auto share = co_await set.reduce_scatter(name + "share", ones, op::sum);
  CHECK(co_await elements_of(share) == std::vector<int>(rank == 0 ? 2 : 1, n));
}

/// Sets of all ranks, and of all but the first, and but the last.
std::vector<cohort::future<process_set>> ask_for_sets(const coordinator& coord, int n) {
  std::vector<cohort::future<process_set>> asked;
  for (const auto& members : {cohort::ranks::all(n), upper(n), lower(n)}) {
    asked.push_back(coord.add_process_set(members, as_future));
  }
  return asked;
}

/// Rank 0 of the set starts the group once more than the others, until these do so, too.
asio::awaitable<void> is_removed_when_equal(process_set set, cohort::persistent_group group) {
  co_await group.start();
  if (set.size() > 1) {
    std::optional<cohort::future<void>> extra;
    if (set.rank() == 0) extra = group.start(as_future);
    const auto problem = co_await caught<cohort::mismatch_error>(group.remove());
    REQUIRE(problem);
    CHECK(problem->field() == "starts");
    CHECK(co_await code_of(set.join()) == errc::not_accepting);
    if (set.rank() != 0) extra = group.start(as_future);
    co_await std::move(*extra);
  }
  co_await group.remove();
  CHECK(co_await code_of(group.start()) == errc::not_accepting);
}

}  // namespace

TEST_CASE("process sets may be asked for at once while the coordinator is being opened") {
  on_gpus([](cohort::communicator world) -> asio::awaitable<void> {
    for (int round = 0; round < 3; ++round) {
      coordinator coord(world, nccl::backend());
      auto asked = ask_for_sets(coord, world.size());
      std::vector<process_set> sets;
      for (auto& each : asked) sets.push_back(co_await std::move(each));
      for (const auto& set : sets) co_await set_works(set);
      co_await coord.shutdown();
    }
  });
}

// That they end well, also with a call in progress on the device, is told by the double's faults.
TEST_CASE("process sets may be used and dropped while others are opened and used") {
  with_sets([](auto world, auto coord) -> asio::awaitable<void> {
    for (int round = 0; round < 4; ++round) {
      auto asked = ask_for_sets(coord, world.size());
      for (auto& each : asked) {
        const auto set = co_await std::move(each);
        co_await set_works(set);
      }
    }
  });
}

TEST_CASE("process sets are made and used while an operation of all waits for one rank") {
  with_sets([](auto world, auto coord) -> asio::awaitable<void> {
    const device::stream on;
    auto held = co_await filled(on, 2, 1.0F);
    ending end;
    const auto submit = [&] { coord.all_reduce("held", held, op::sum, end.handler()); };
    if (world.rank() != 0) submit();
    // Asked for at once, in another order on each rank.
    std::vector<process_set> sets;
    std::vector<cohort::future<process_set>> asked;
    for (int i = 0; i < 2; ++i) {
      const bool turned = (i + world.rank()) % 2 == 0;
      asked.push_back(
          coord.add_process_set(turned ? upper(world.size()) : backwards(world.size()), as_future));
    }
    for (auto& each : asked) sets.push_back(co_await std::move(each));
    if (world.rank() % 2 != 0) std::swap(sets[0], sets[1]);
    for (const process_set& each : sets) co_await set_works(each);
    CHECK_FALSE(end.over);
    co_await coord.barrier();
    if (world.rank() == 0) submit();
    CHECK(co_await soon([&] { return end.over; }));
    CHECK(co_await now_in(held) == std::vector<float>(2, static_cast<float>(world.size())));
  });
}

// The negative control, a stream for each communicator, is in tests/gpu/nccl/order_test.cpp.
TEST_CASE("process sets that overlap are launched in one order, whatever is ready first") {
  on_gpus([](cohort::communicator world) -> asio::awaitable<void> {
    if (world.size() < 2) co_return;
    coordinator coord(world, nccl::backend());
    const int rank = world.rank();
    auto pair = co_await coord.add_process_set(cohort::ranks::stride(0, 2, 1));
    const device::stream for_all;
    const device::stream for_pair;
    const device::stream late;
    auto x = co_await filled(for_all, 10, 1.0F);
    auto y = co_await filled(for_pair, 10, 1.0F);
    const bool in_pair = rank < 2;
    float of_all = 1;
    float of_pair = 1;
    for (int round = 0; round < 5; ++round) {
      held_stream held(late);
      if (rank == 0) for_all.wait(late.record());
      if (rank == 1) for_pair.wait(late.record());
      std::deque<ending> ends;
      const auto reduce_x = [&] {
        coord.all_reduce("x", x, op::sum, ends.emplace_back().handler());
      };
      if (rank == 0) reduce_x();  // and the others first y, if they have it
      if (in_pair) pair.all_reduce("y", y, op::sum, ends.emplace_back().handler());
      if (rank != 0) reduce_x();
      co_await pause(10ms);
      held.let_go();
      CHECK(co_await soon([&] { return all_over(ends); }));
      of_all *= static_cast<float>(world.size());
      of_pair *= 2;
      CHECK(co_await now_in(x) == std::vector<float>(10, of_all));
      if (in_pair) CHECK(co_await now_in(y) == std::vector<float>(10, of_pair));
    }
    CHECK_DOUBLE(fake_nccl::cycles().empty());
    co_await meet(world);
  });
}

TEST_CASE("process sets that overlap reduce in another order on each rank, on devices and hosts") {
  with_sets([](auto world, auto coord) -> asio::awaitable<void> {
    const auto first = co_await coord.add_process_set(lower(world.size()));
    const auto second = co_await coord.add_process_set(upper(world.size()));
    std::mt19937 random(static_cast<unsigned>(world.rank()) + 7);
    const device::stream on;
    for (int round = 0; round < 10; ++round) {
      std::vector<process_set> sets{coord, first, second, second, first};
      std::erase_if(sets, [](const auto& set) { return !set; });
      std::shuffle(sets.begin(), sets.end(), random);
      std::vector<device::vector<int>> data;
      std::vector<int> on_host(sets.size(), 1);
      std::deque<ending> ends;
      for (std::size_t i = 0; i < sets.size(); ++i) data.push_back(co_await filled(on, 5, 1));
      for (std::size_t i = 0; i < sets.size(); ++i) {
        sets[i].all_reduce("d", data[i], op::sum, ends.emplace_back().handler());
        sets[i].all_reduce("h", on_host[i], op::sum, ends.emplace_back().handler());
      }
      CHECK(co_await soon([&] { return all_over(ends); }));
      for (const ending& one : ends) CHECK(one.text().empty());
      for (std::size_t i = 0; i < sets.size(); ++i) {
        CHECK(co_await now_in(data[i]) == std::vector<int>(5, sets[i].size()));
        CHECK(on_host[i] == sets[i].size());
      }
    }
    CHECK_DOUBLE(fake_nccl::cycles().empty());
  });
}

TEST_CASE("a process set of a coordinator on devices has ranks of its own in every verb") {
  with_sets([](auto world, auto coord) -> asio::awaitable<void> {
    const int n = world.size();
    const auto set = co_await coord.add_process_set(backwards(n));
    CHECK(set.rank() == n - 1 - world.rank());
    CHECK(set.size() == n);
    CHECK(set.local_rank() == set.rank());
    CHECK(set.members() == backwards(n));
    const device::stream on;
    co_await does_every_verb(
        set, "host ",
        [](std::vector<int> with) -> asio::awaitable<std::vector<int>> { co_return with; });
    co_await does_every_verb(set, "device ",
                             [&](std::vector<int> with) { return on_device(on, with); });
    const std::string text =
        co_await set.broadcast_object("object", std::to_string(set.rank()), n - 1);
    CHECK(text == std::to_string(n - 1));
    co_await set.barrier();
  });
}

TEST_CASE("messages of a process set of a coordinator on devices count its ranks") {
  with_sets([](auto world, auto coord) -> asio::awaitable<void> {
    const int n = world.size();
    const auto set = co_await coord.add_process_set(backwards(n));
    int mine = 100 + set.rank();
    if (n > 1) {
      // A ring in the set beside one of the same name among all.
      int before = -1;
      int mine_of_all = world.rank();
      int before_of_all = -1;
      std::deque<ending> ends;
      const auto ring = [&](const process_set& in, int& out, int& come) {
        const int me = in.rank();
        in.recv("ring", come, (me + n - 1) % n, ends.emplace_back().handler());
        in.send("ring", out, (me + 1) % n, ends.emplace_back().handler());
      };
      ring(set, mine, before);
      ring(coord, mine_of_all, before_of_all);
      CHECK(co_await soon([&] { return all_over(ends); }));
      CHECK(before == 100 + (set.rank() + n - 1) % n);
      CHECK(before_of_all == (world.rank() + n - 1) % n);
    }
    // No other end hears of these.
    const auto far = co_await caught<cohort::error>(set.send("far", mine, n));
    REQUIRE(far);
    CHECK(far->code() == errc::bad_rank);
    CHECK(has(far->what(), "rank " + std::to_string(set.rank()) + ": send 'far': to_rank="));
    CHECK(co_await code_of(set.recv("far", mine, -1)) == errc::bad_rank);
    CHECK(co_await code_of(set.recv("own", mine, set.rank())) == errc::invalid_argument);
    // Ends that differ, and one that waits, in the ranks of the set.
    if (n > 1 && set.rank() < 2) {
      const bool sends = set.rank() == 0;
      std::vector<int> some(sends ? 4 : 5);
      auto end =
          sends ? set.send("differ", some, 1, as_future) : set.recv("differ", some, 0, as_future);
      const auto differ = co_await caught<cohort::mismatch_error>(std::move(end));
      REQUIRE(differ);
      CHECK(differ->field() == "shape");
      CHECK(has(differ->what(), "4 on rank 0"));
      CHECK(has(differ->what(), "5 on rank 1"));
      int value = 7;
      if (sends) {
        int come = 0;
        auto go = set.recv("go", come, 1, as_future);
        const auto waits = set.pending();
        REQUIRE(waits.size() == 1);
        CHECK(waits.front().verb == "recv");
        CHECK(waits.front().name == "go");
        co_await std::move(go);
        CHECK(come == 7);
      } else {
        co_await set.send("go", value, 0);
      }
    }
    co_await coord.barrier();
    // Who has joined in the set sends nothing there.
    if (n > 1 && set.rank() != 0) {
      const auto joined = co_await caught<cohort::joined_error>(set.recv("late", mine, 0));
      REQUIRE(joined);
      CHECK(joined->ranks() == std::vector<int>{0});
    }
    if (n > 1) static_cast<void>(co_await set.join());
  });
}

TEST_CASE("removing a process set on devices ends what is pending in it and leaves the others") {
  with_sets([](auto world, auto coord) -> asio::awaitable<void> {
    const int n = world.size();
    if (n < 2) co_return;
    const auto set = co_await coord.add_process_set(backwards(n));
    const auto other = co_await coord.add_process_set(cohort::ranks::all(n));
    const device::stream on;
    if (world.rank() != 0) {
      auto values = co_await filled(on, 3, 1);
      const auto problem =
          co_await caught<cohort::peer_lost_error>(set.all_reduce("pending", values, op::sum));
      REQUIRE(problem);
      CHECK(problem->ranks() == std::vector<int>{n - 1});  // rank 0 in the set's numbers
    }
    co_await set.remove();
    int value = 1;
    CHECK(co_await code_of(set.all_reduce("late", value, op::sum)) == errc::not_accepting);
    CHECK(co_await soon_on_double([] { return fake_nccl::live_communicators() == 2; }));
    co_await set_works(other);
    co_await other.shutdown();
    co_await set_works(coord);
  });
}

TEST_CASE("a rank that has joined in one process set works on in the others") {
  with_sets([](auto world, auto coord) -> asio::awaitable<void> {
    const int n = world.size();
    const auto set = co_await coord.add_process_set(backwards(n));
    const device::stream on;
    if (set.rank() == 0 && n > 1) {
      auto joined = set.join(as_future);
      int value = 1;
      CHECK(co_await code_of(set.all_reduce("x", value, op::sum)) == errc::not_accepting);
      co_await set_works(coord);
      const int newest = co_await std::move(joined);
      CHECK(newest == n - 1);
    } else {
      auto mean = co_await filled(on, 4, static_cast<float>(set.rank()));
      co_await set.all_reduce("mean", mean, op::average);
      const float expected = n == 1 ? 0.F : static_cast<float>(n) / 2;
      CHECK(co_await now_in(mean) == std::vector<float>(4, expected));
      std::vector<int> sum(3, 1);
      co_await set.all_reduce("sum", sum, op::sum);
      CHECK(sum == std::vector<int>(3, std::max(n - 1, 1)));
      std::vector<int> cast(2, set.rank());
      co_await set.broadcast("cast", cast, n - 1);
      CHECK(cast == std::vector<int>(2, n - 1));
      if (n > 1) {
        const auto lost =
            co_await caught<cohort::joined_error>(set.broadcast("from who has joined", cast, 0));
        REQUIRE(lost);
        CHECK(lost->ranks() == std::vector<int>{0});
      }
      co_await set_works(coord);
      const int newest = co_await set.join();
      CHECK(newest == n - 1);
    }
    co_await set_works(set);
  });
}

TEST_CASE("errors and reports of a process set on devices have its ranks") {
  with_sets([](auto world, auto coord) -> asio::awaitable<void> {
    const int n = world.size();
    if (n < 2) co_return;
    const auto set = co_await coord.add_process_set(backwards(n));
    const auto before = set.stats();
    std::vector<int> data(3);
    const int root = set.rank() == 0 ? 0 : n - 1;
    const auto problem = co_await caught<cohort::mismatch_error>(set.broadcast("root", data, root));
    REQUIRE(problem);
    CHECK(problem->field() == "root");
    for (const auto& side : problem->sides()) {
      for (const int rank : side.ranks) {
        CHECK(side.values.front() == std::to_string(rank == 0 ? 0 : n - 1));
      }
    }
    CHECK(has(problem->what(), "rank " + std::to_string(set.rank()) + ": broadcast 'root'"));
    CHECK(set.stats().failed == before.failed + 1);
    CHECK(set.stats().submitted == before.submitted + 1);
    if (set.rank() != 0) {
      auto waits = set.all_reduce("w", data, op::sum, as_future);
      CHECK(set.pending().size() == 1);
      CHECK(set.pending().front().name == "w");
      CHECK(coord.pending().empty());
      CHECK(co_await soon([&] {
        set.ask_pending();
        const auto missing = set.pending().front().missing;
        return std::find(missing.begin(), missing.end(), 0) != missing.end();
      }));
      co_await coord.barrier();
      co_await std::move(waits);
    } else {
      co_await coord.barrier();
      co_await set.all_reduce("w", data, op::sum);
    }
  });
}

DOUBLE_TEST_CASE("a failure of one process set's operation ends all sets") {
  with_sets([](auto world, auto coord) -> asio::awaitable<void> {
    const auto set = co_await coord.add_process_set(lower(world.size()));
    const auto other = co_await coord.add_process_set(upper(world.size()));
    const device::stream on;
    auto values = co_await filled(on, 2, 1.0F);
    co_await meet(world);  // who still makes a set would hear of the failure there
    const bool is_last = world.rank() == world.size() - 1;
    if (world.rank() == 0) fake_nccl::fail_next("ncclAllReduce", ncclSystemError);
    std::deque<ending> ends;
    int value = 1;
    if (other && !is_last) {  // the last does not submit it
      other.all_reduce("w", value, op::sum, ends.emplace_back().handler());
    }
    if (set) set.all_reduce("d", values, op::sum, ends.emplace_back().handler());
    CHECK(co_await soon([&] { return all_over(ends); }));
    for (const ending& one : ends) CHECK(one.is_data_error());
    // The last rank does not leave before the others have failed.
    if (is_last) CHECK(co_await code_of(coord.barrier()) == errc::data_operation_failed);
    if (set) {
      CHECK(co_await code_of(set.all_reduce("late", value, op::sum)) ==
            errc::data_operation_failed);
    }
  });
}

DOUBLE_TEST_CASE("a process set that NCCL cannot open is not made on any rank") {
  with_sets([](auto world, auto coord) -> asio::awaitable<void> {
    co_await set_works(coord);
    if (world.rank() == world.size() - 1) {
      fake_nccl::fail_next("ncclCommInitRankConfig", ncclSystemError);
    }
    const auto code = co_await code_of(coord.add_process_set(cohort::ranks::all(world.size())));
    CHECK(code == nccl::make_error(ncclSystemError));
    const auto set = co_await coord.add_process_set(backwards(world.size()));
    co_await set_works(set);
    co_await set_works(coord);
  });
}

DOUBLE_TEST_CASE("a coordinator on devices waits at its end for a set that is being opened") {
  with_sets([](auto world, auto coord) -> asio::awaitable<void> {
    if (world.size() < 2) co_return;  // one rank launches nothing in place
    co_await set_works(coord);
    const device::stream on;
    auto values = co_await filled(on, 2, 1.0F);
    auto& source = asio::use_service<nccl::issue_source>(world.get_executor().context());
    held_stream busy(source.domain_of(0));  // NCCL makes nothing meanwhile
    co_await coord.all_reduce("enqueued", values, op::sum,
                              {.on = on, .ends = cohort::until::enqueued});
    auto made = coord.add_process_set(cohort::ranks::all(world.size()), as_future);
    CHECK(co_await soon([] { return fake_nccl::calls("ncclCommInitRankConfig") == 2; }));
    auto ended = coord.shutdown(as_future);
    co_await pause(20ms);
    CHECK_FALSE(made.is_ready());
    CHECK_FALSE(ended.is_ready());
    busy.let_go();
    const process_set set = co_await std::move(made);
    CHECK(set);
    co_await std::move(ended);
  });
}

TEST_CASE("process sets of a coordinator on devices have persistent groups, which are elected") {
  with_sets([](auto world, auto coord) -> asio::awaitable<void> {
    const auto set = co_await coord.add_process_set(lower(world.size()));
    if (set) {
      std::vector<float> host(3, 1);
      const device::stream on;
      auto device = co_await filled(on, 3, 2.0F);
      const auto on_host =
          co_await set.make_persistent(cohort::bundle("host").add("h", host), op::sum);
      const auto on_device =
          co_await set.make_persistent(cohort::bundle("device").add("d", device), op::sum);
      const auto captured = co_await on_device.capture();
      const auto size = static_cast<float>(set.size());
      co_await on_device.start();
      co_await on_host.start();
      co_await on_host.start();
      co_await on_device.replay(captured);
      CHECK(host == std::vector<float>(3, size * size));
      CHECK(co_await now_in(device) == std::vector<float>(3, 2 * size * size));
      co_await on_host.remove();
      co_await on_device.remove();
    }
    co_await set_works(set);
    co_await set_works(coord);
  });
}

TEST_CASE("starts of groups of process sets that overlap run in one order on all ranks") {
  with_sets([](auto world, auto coord) -> asio::awaitable<void> {
    const auto first = co_await coord.add_process_set(lower(world.size()));
    const auto second = co_await coord.add_process_set(upper(world.size()));
    std::vector<process_set> sets{coord, first, second};
    std::erase_if(sets, [](const auto& set) { return !set; });
    const device::stream on;
    std::deque<device::vector<float>> on_device;
    std::deque<std::vector<float>> on_host;
    std::vector<cohort::persistent_group> groups;
    for (const process_set& set : sets) {  // of the same names
      on_device.push_back(co_await filled(on, 4, 1.0F));
      on_host.emplace_back(4, 1.0F);
      cohort::bundle of_device("device");
      of_device.add("d", on_device.back());
      groups.push_back(co_await set.make_persistent(std::move(of_device), op::sum));
      cohort::bundle of_host("host");
      of_host.add("h", on_host.back());
      groups.push_back(co_await set.make_persistent(std::move(of_host), op::sum));
    }
    std::mt19937 random(static_cast<unsigned>(world.rank()) + 3);
    std::vector<std::size_t> order(groups.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::vector<float> expected(sets.size(), 1.0F);
    for (int round = 0; round < 5; ++round) {
      std::shuffle(order.begin(), order.end(), random);
      std::deque<ending> ends;
      for (const std::size_t i : order) groups[i].start(ends.emplace_back().handler());
      CHECK(co_await soon([&] { return all_over(ends); }));
      for (const ending& one : ends) CHECK(one.text().empty());
      for (std::size_t i = 0; i < sets.size(); ++i) {
        expected[i] *= static_cast<float>(sets[i].size());
        CHECK(co_await now_in(on_device[i]) == std::vector<float>(4, expected[i]));
        CHECK(on_host[i] == std::vector<float>(4, expected[i]));
      }
    }
    for (const auto& group : groups) co_await group.remove();
    CHECK_DOUBLE(fake_nccl::cycles().empty());
  });
}

TEST_CASE("a group of a process set on devices is removed once all have started it equally often") {
  with_sets([](auto world, auto coord) -> asio::awaitable<void> {
    const device::stream on;
    auto values = co_await filled(on, 2, 1.0F);
    std::vector<int> host(2, 1);
    // Of all ranks, and of some.
    std::vector<process_set> sets;
    sets.push_back(co_await coord.add_process_set(backwards(world.size())));
    sets.push_back(co_await coord.add_process_set(lower(world.size())));
    for (const process_set& set : sets) {
      if (!set) continue;
      cohort::bundle of_device("device");
      of_device.add("d", values);
      const auto on_device = co_await set.make_persistent(std::move(of_device), op::max);
      cohort::bundle of_host("host");
      of_host.add("h", host);
      const auto on_host = co_await set.make_persistent(std::move(of_host), op::max);
      co_await is_removed_when_equal(set, on_device);
      CHECK(co_await code_of(set.join()) == errc::not_accepting);  // there is the other
      co_await is_removed_when_equal(set, on_host);
      CHECK(co_await set.join() == set.size() - 1);
    }
    co_await set_works(coord);
  });
}

TEST_CASE("no rank joins in a process set on devices that has a persistent group") {
  with_sets([](auto world, auto coord) -> asio::awaitable<void> {
    const int n = world.size();
    const auto set = co_await coord.add_process_set(backwards(n));
    const device::stream on;
    auto values = co_await filled(on, 3, static_cast<float>(world.rank()));
    cohort::bundle members("g");
    members.add("v", values);
    auto making = set.make_persistent(std::move(members), op::average, {}, as_future);
    CHECK(co_await code_of(set.join()) == errc::not_accepting);  // it is asked for
    const auto group = co_await std::move(making);
    const auto captured = co_await group.capture();
    CHECK(co_await code_of(set.join()) == errc::not_accepting);
    // Among all ranks there is none: who has joined there works on in the set.
    std::optional<cohort::future<int>> joined;
    if (n > 1 && world.rank() == 0) joined = coord.join(as_future);
    co_await group.replay(captured);
    co_await group.start();
    const float mean = static_cast<float>(n - 1) / 2;
    CHECK(co_await now_in(values) == std::vector<float>(3, mean));
    if (!joined) {
      int one = 1;
      co_await coord.all_reduce("without rank 0", one, op::sum);
      CHECK(one == std::max(n - 1, 1));
      joined = coord.join(as_future);
    }
    const int newest = co_await std::move(*joined);
    CHECK(newest == n - 1);
    co_await group.remove();
    CHECK(co_await set.join() == n - 1);
    co_await set_works(set);
  });
}

TEST_CASE("a process set on devices that ends takes its persistent groups along") {
  with_sets([](auto world, auto coord) -> asio::awaitable<void> {
    const int n = world.size();
    const device::stream on;
    for (int round = 0; round < 4; ++round) {
      const cohort::ranks members = round % 2 == 0 ? backwards(n) : lower(n);
      const auto set = co_await coord.add_process_set(members);
      if (!set) continue;
      auto values = co_await filled(on, 3, 1.0F);
      std::vector<float> host(3, 1);
      cohort::bundle of_device("device");
      of_device.add("d", values);
      const auto on_device = co_await set.make_persistent(std::move(of_device), op::sum);
      cohort::bundle of_host("host");
      of_host.add("h", host);
      const auto on_host = co_await set.make_persistent(std::move(of_host), op::sum);
      const auto captured = co_await on_device.capture();
      co_await on_device.replay(captured);
      co_await on_host.start();
      co_await set.remove();
      CHECK(co_await code_of(on_device.start()) == errc::not_accepting);
      CHECK(co_await code_of(on_device.replay(captured)) == errc::not_accepting);
      CHECK(co_await code_of(on_host.start()) == errc::not_accepting);
      CHECK(co_await code_of(on_host.remove()) == errc::not_accepting);
      const auto expected = static_cast<float>(set.size());
      CHECK(co_await now_in(values) == std::vector<float>(3, expected));
      CHECK(host == std::vector<float>(3, expected));
    }
    co_await set_works(coord);
    const int newest = co_await coord.join();  // no group is left that would forbid it
    CHECK(newest == n - 1);
  });
}
