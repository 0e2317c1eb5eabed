// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// Process sets of a coordinator with a backend for devices: one log for all of them.
#include <cohort/coordinator.hpp>
#include <cohort/progress/future.hpp>

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/support.hpp"
#include "gpu/coordinator/device_support.hpp"

namespace {

using cohort::as_future;
using cohort::errc;
using cohort_test::caught;
using cohort_test::code_of;
using cohort_test::device_script;
using cohort_test::fake_backend;
using cohort_test::fake_vector;
using cohort_test::has;
using cohort_test::on_world;

/// Runs `body(world, coord, script)`; at the end nothing is left of any set.
template <class Body>
void with_device_sets(Body body) {
  on_world([&](cohort::communicator world) -> asio::awaitable<void> {
    const fake_backend backend;
    cohort::coordinator coord(world, backend);
    co_await coord.barrier();
    co_await body(world, coord, *backend.script);
    co_await coord.shutdown();
    CHECK(backend.script->closes == 1);
    CHECK(backend.script->marks_alive == 0);
  });
}

/// All ranks but the last, and all but the first.
cohort::ranks lower(int size) { return cohort::ranks::all(std::max(size - 1, 1)); }
cohort::ranks upper(int size) {
  std::vector<int> list;
  for (int rank = size > 1 ? 1 : 0; rank < size; ++rank) list.push_back(rank);
  return cohort::ranks(list);
}
cohort::ranks backwards(int size) {
  std::vector<int> list(static_cast<std::size_t>(size));
  std::iota(list.rbegin(), list.rend(), 0);
  return cohort::ranks(list);
}

/// A set does both kinds of memory; nothing where this rank is not in it.
asio::awaitable<void> set_works(cohort::process_set set) {
  if (!set) co_return;
  fake_vector<float> on_device(std::vector<float>(3, 1));
  co_await set.all_reduce("on the device", on_device, cohort::op::sum);
  CHECK(on_device.values() == std::vector<float>(3, static_cast<float>(set.size())));
  int on_host = set.rank();
  co_await set.all_reduce("on the host", on_host, cohort::op::max);
  CHECK(on_host == set.size() - 1);
}

}  // namespace

TEST_CASE("operations of sets that overlap are launched in one order",
          "[coordinator][device][sets]") {
  with_device_sets([](auto world, auto coord, device_script& script) -> asio::awaitable<void> {
    const auto first = co_await coord.add_process_set(lower(world.size()));
    const auto second = co_await coord.add_process_set(upper(world.size()));
    std::mt19937 random(static_cast<unsigned>(world.rank()) + 7);
    for (int round = 0; round < 20; ++round) {
      std::vector<cohort::process_set> sets{coord, first, second, second, first};
      std::erase_if(sets, [](const auto& set) { return !set; });
      std::shuffle(sets.begin(), sets.end(), random);
      std::vector<fake_vector<int>> data;
      std::vector<int> on_host(sets.size(), 1);
      std::vector<cohort::future<void>> done;
      for (std::size_t i = 0; i < sets.size(); ++i) data.emplace_back(std::vector<int>(5, 1));
      for (std::size_t i = 0; i < sets.size(); ++i) {
        done.push_back(sets[i].all_reduce("d", data[i], cohort::op::sum, as_future));
        done.push_back(sets[i].all_reduce("h", on_host[i], cohort::op::sum, as_future));
      }
      for (auto& each : done) co_await std::move(each);
      for (std::size_t i = 0; i < sets.size(); ++i) {
        CHECK(data[i].values() == std::vector<int>(5, sets[i].size()));
        CHECK(on_host[i] == sets[i].size());
      }
    }
    // Places in the log, which is the same everywhere; and no pack holds operations of two sets.
    CHECK(std::is_sorted(script.sequences.begin(), script.sequences.end()));
    const std::map<std::uint32_t, int> calls = [&] {
      std::map<std::uint32_t, int> result;
      for (const std::uint32_t set : script.started_sets) ++result[set];
      return result;
    }();
    CHECK(calls.size() == 1U + (first ? 1U : 0U) + (second ? 1U : 0U));
  });
}

TEST_CASE("a set of a coordinator for devices has ranks of its own in every verb",
          "[coordinator][device][sets]") {
  with_device_sets([](auto world, auto coord, device_script&) -> asio::awaitable<void> {
    const int n = world.size();
    const auto set = co_await coord.add_process_set(backwards(n));
    const int rank = set.rank();
    CHECK(rank == n - 1 - world.rank());
    CHECK(set.size() == n);
    CHECK(set.local_rank() == rank);
    CHECK(set.members() == backwards(n));
    const auto root = n - 1;
    for (const bool on_device : {false, true}) {
      std::vector<int> host(2, 10 * rank);
      fake_vector<int> device(host);
      const auto values = [&] { return on_device ? device.values() : host; };
      const std::string on = on_device ? "d" : "h";
      const auto verb = [&](auto call) { return on_device ? call(device) : call(host); };
      co_await verb([&](auto& data) { return set.broadcast(on + "b", data, root); });
      CHECK(values() == std::vector<int>(2, 10 * root));
      co_await verb([&](auto& data) { return set.reduce(on + "r", data, cohort::op::sum, root); });
      if (rank == root) CHECK(values() == std::vector<int>(2, 10 * root * n));
      host.assign(static_cast<std::size_t>(n), 10 * rank);
      device = fake_vector<int>(host);
      co_await verb(
          [&](auto& data) { return set.all_reduce(on + "a", data, cohort::op::average); });
      CHECK(values() == std::vector<int>(static_cast<std::size_t>(n), 10 * (n - 1) / 2));
    }
    const std::vector<int> mine(static_cast<std::size_t>(rank + 1), rank);
    const std::vector<int> rows = co_await set.all_gather("rows", mine);
    std::vector<int> expected;
    for (int from = 0; from < n; ++from) expected.insert(expected.end(), from + 1, from);
    CHECK(rows == expected);
    const fake_vector<int> mine_there(mine);
    const auto rows_there = co_await set.all_gather("rows there", mine_there);
    CHECK(rows_there.values() == expected);
    const std::vector<int> own(1, rank);
    const std::vector<int> all = co_await set.gather("gather", own, root);
    if (rank == root) {
      std::vector<int> order(static_cast<std::size_t>(n));
      std::iota(order.begin(), order.end(), 0);
      CHECK(all == order);
    }
    std::vector<int> part(1);
    co_await set.scatter("scatter", all, part, root);
    CHECK(part == std::vector<int>{rank});
    const std::vector<long> counts(static_cast<std::size_t>(n + 1), 1);
    const auto share = co_await set.reduce_scatter("share", counts, cohort::op::sum);
    CHECK(share == std::vector<long>(rank == 0 ? 2 : 1, n));
    const std::string text = co_await set.broadcast_object("object", std::to_string(rank), root);
    CHECK(text == std::to_string(root));
    co_await set.barrier();
  });
}

TEST_CASE("messages of a set of a coordinator for devices count its ranks",
          "[coordinator][device][sets]") {
  with_device_sets([](auto world, auto coord, device_script&) -> asio::awaitable<void> {
    const int n = world.size();
    const auto set = co_await coord.add_process_set(backwards(n));
    // A ring in the set beside one of the same name among all, while another set is made: all of
    // them list their ranks in their names.
    const auto ring = [n](const cohort::process_set& in, int& out, int& come) {
      const int me = in.rank();
      std::vector<cohort::future<void>> both;
      both.push_back(in.recv("ring", come, (me + n - 1) % n, as_future));
      both.push_back(in.send("ring", out, (me + 1) % n, as_future));
      return both;
    };
    int mine = 100 + set.rank();
    int before = -1;
    int mine_of_all = world.rank();
    int before_of_all = -1;
    if (n > 1) {
      auto first = ring(set, mine, before);
      auto adding = coord.add_process_set(cohort::ranks::all(2), as_future);
      auto second = ring(coord, mine_of_all, before_of_all);
      for (auto& each : second) co_await std::move(each);
      for (auto& each : first) co_await std::move(each);
      CHECK(before == 100 + (set.rank() + n - 1) % n);
      CHECK(before_of_all == (world.rank() + n - 1) % n);
      const auto pair = co_await std::move(adding);
      CHECK(static_cast<bool>(pair) == (world.rank() < 2));
      co_await set_works(pair);
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
      std::vector<int> some(set.rank() == 0 ? 4 : 5);
      const auto other = 1 - set.rank();
      auto end = set.rank() == 0 ? set.send("differ", some, other, as_future)
                                 : set.recv("differ", some, other, as_future);
      const auto differ = co_await caught<cohort::mismatch_error>(std::move(end));
      REQUIRE(differ);
      CHECK(differ->field() == "shape");
      CHECK(has(differ->what(), "4 on rank 0"));
      CHECK(has(differ->what(), "5 on rank 1"));
      int value = 7;
      if (set.rank() == 0) {
        int none = 0;
        auto go = set.recv("go", none, 1, as_future);
        const auto waits = set.pending();
        REQUIRE(waits.size() == 1);
        CHECK(waits.front().verb == "recv");
        CHECK(waits.front().name == "go");
        co_await std::move(go);
        CHECK(none == 7);
      } else {
        co_await set.send("go", value, 0);
      }
    }
    co_await coord.barrier();
    // Who has joined in the set sends nothing there.
    if (n > 1 && set.rank() == 0) {
      co_await set.join();
    } else if (n > 1) {
      const auto joined = co_await caught<cohort::joined_error>(set.recv("late", mine, 0));
      REQUIRE(joined);
      CHECK(joined->ranks() == std::vector<int>{0});
      co_await set.join();
    }
  });
}

TEST_CASE("sets are made while operations of others wait", "[coordinator][device][sets]") {
  with_device_sets([](auto world, auto coord, device_script& script) -> asio::awaitable<void> {
    fake_vector<float> held(std::vector<float>(2, 1));
    std::vector<cohort::future<void>> waiting;
    const auto submit = [&] {
      waiting.push_back(coord.all_reduce("held", held, cohort::op::sum, as_future));
    };
    if (world.rank() != 0) submit();
    // The last two are asked for at once, in another order on each rank.
    const auto early = co_await coord.add_process_set(lower(world.size()));
    co_await set_works(early);
    std::vector<cohort::process_set> sets;
    std::vector<cohort::future<cohort::process_set>> asked;
    for (int i = 0; i < 2; ++i) {
      const bool turned = (i + world.rank()) % 2 == 0;
      const cohort::ranks members = turned ? upper(world.size()) : backwards(world.size());
      asked.push_back(coord.add_process_set(members, as_future));
    }
    for (auto& each : asked) sets.push_back(co_await std::move(each));
    if (world.rank() % 2 != 0) std::swap(sets[0], sets[1]);
    for (const cohort::process_set& each : sets) co_await set_works(each);
    co_await set_works(early);
    co_await coord.barrier();
    CHECK(std::count(script.started_sets.begin(), script.started_sets.end(), 0U) == 0);
    co_await coord.barrier();
    if (world.rank() == 0) submit();
    co_await std::move(waiting.front());
    CHECK(held.values() == std::vector<float>(2, static_cast<float>(world.size())));
  });
}

TEST_CASE("removing a set ends what is pending in it and leaves the others",
          "[coordinator][device][sets]") {
  with_device_sets([](auto world, auto coord, device_script& script) -> asio::awaitable<void> {
    const int n = world.size();
    if (n < 2) co_return;
    const auto set = co_await coord.add_process_set(backwards(n));
    const auto other = co_await coord.add_process_set(cohort::ranks::all(n));
    if (world.rank() == 0) {
      co_await set.remove();
    } else {
      fake_vector<int> data(std::vector<int>(3, 1));
      const auto problem = co_await caught<cohort::peer_lost_error>(
          set.all_reduce("pending", data, cohort::op::sum));
      REQUIRE(problem);
      CHECK(problem->ranks() == std::vector<int>{n - 1});  // rank 0 in the set's numbers
      co_await set.remove();
    }
    int value = 1;
    CHECK(co_await code_of(set.all_reduce("late", value, cohort::op::sum)) == errc::not_accepting);
    CHECK(script.closed_sets == std::vector<std::uint32_t>{1});
    co_await set_works(other);
    co_await set_works(coord);
  });
}

TEST_CASE("sets of a coordinator for devices are made and removed many times",
          "[coordinator][device][sets]") {
  with_device_sets([](auto world, auto coord, device_script& script) -> asio::awaitable<void> {
    constexpr int rounds = 60;
    for (int round = 0; round < rounds; ++round) {
      const cohort::ranks members = round % 2 == 0 ? lower(world.size()) : upper(world.size());
      auto set = co_await coord.add_process_set(members);
      if (!set) continue;
      int value = round;
      co_await set.all_reduce("value", value, cohort::op::max);
      if (round % 3 == 0) co_await set.shutdown();  // else the last handle goes
    }
    co_await coord.barrier();          // later in the log than all ends but the last ones
    auto closed = script.closed_sets;  // in the order in which the last members have left
    CHECK(closed.size() >= (world.size() == 1 ? rounds : rounds / 2) - 2);
    std::sort(closed.begin(), closed.end());
    CHECK(std::unique(closed.begin(), closed.end()) == closed.end());
  });
}

TEST_CASE("a rank that has joined in one set works on in the others",
          "[coordinator][device][sets]") {
  with_device_sets([](auto world, auto coord, device_script& script) -> asio::awaitable<void> {
    const int n = world.size();
    const auto set = co_await coord.add_process_set(backwards(n));
    if (set.rank() == 0 && n > 1) {
      auto joined = set.join(as_future);
      int value = 1;
      CHECK(co_await code_of(set.all_reduce("x", value, cohort::op::sum)) == errc::not_accepting);
      co_await set_works(coord);
      const int newest = co_await std::move(joined);
      CHECK(newest == n - 1);
    } else {
      fake_vector<float> mean(std::vector<float>(4, static_cast<float>(set.rank())));
      co_await set.all_reduce("mean", mean, cohort::op::average);
      const float expected = n == 1 ? 0.F : static_cast<float>(n) / 2;
      CHECK(mean.values() == std::vector<float>(4, expected));
      std::vector<int> sum(3, 1);
      co_await set.all_reduce("sum", sum, cohort::op::sum);
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
    CHECK(std::count(script.all_bring.begin(), script.all_bring.end(), false) == (n > 1 ? 1 : 0));
  });
}

TEST_CASE("errors and reports of a set have its ranks", "[coordinator][device][sets]") {
  with_device_sets([](auto world, auto coord, device_script&) -> asio::awaitable<void> {
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
      auto waits = set.all_reduce("w", data, cohort::op::sum, as_future);
      CHECK(set.pending().size() == 1);
      CHECK(set.pending().front().name == "w");
      CHECK(coord.pending().empty());
      while (set.pending().front().missing.empty()) {
        set.ask_pending();
        co_await asio::post(world.get_executor(), asio::use_awaitable);
      }
      const auto missing = set.pending().front().missing;
      CHECK(std::find(missing.begin(), missing.end(), 0) != missing.end());
      co_await coord.barrier();
      co_await std::move(waits);
    } else {
      co_await coord.barrier();
      co_await set.all_reduce("w", data, cohort::op::sum);
    }
  });
}

TEST_CASE("a failure of one set's operation ends all sets", "[coordinator][device][sets]") {
  on_world([](cohort::communicator world) -> asio::awaitable<void> {
    const fake_backend backend;
    cohort::coordinator coord(world, backend);
    const auto set = co_await coord.add_process_set(lower(world.size()));
    const auto other = co_await coord.add_process_set(upper(world.size()));
    co_await cohort_test::meet(world);  // who still makes a set would hear of the failure there
    if (world.rank() == 0) backend.script->fail_at = 0;
    std::vector<cohort::future<void>> waiting;
    int value = 1;
    fake_vector<float> data(std::vector<float>(2, 1));
    if (other && world.rank() != world.size() - 1) {  // the last does not submit it
      waiting.push_back(other.all_reduce("w", value, cohort::op::sum, as_future));
    }
    if (set) waiting.push_back(set.all_reduce("d", data, cohort::op::sum, as_future));
    for (auto& each : waiting) {
      std::error_code code;
      try {
        co_await std::move(each);
      } catch (const std::system_error& failed) {
        code = failed.code();
      }
      CHECK(code == errc::data_operation_failed);
    }
    // The last rank does not leave before the others have failed.
    if (world.rank() == world.size() - 1) {
      CHECK(co_await code_of(coord.barrier()) == errc::data_operation_failed);
    }
    int late = 1;
    if (set) {
      CHECK(co_await code_of(set.all_reduce("late", late, cohort::op::sum)) ==
            errc::data_operation_failed);
    }
    co_await coord.shutdown();
  });
}

TEST_CASE("a set that the backend cannot open is not made", "[coordinator][device][sets]") {
  with_device_sets([](auto world, auto coord, device_script& script) -> asio::awaitable<void> {
    const int n = world.size();
    // Nowhere.
    script.open_fails = std::make_exception_ptr(cohort::error(errc::wrong_device, "not this one"));
    CHECK(co_await code_of(coord.add_process_set(cohort::ranks::all(n))) == errc::wrong_device);
    // On one rank.
    if (world.rank() != 0) script.open_fails = nullptr;
    std::error_code code;
    cohort::process_set my_half;
    try {
      my_half = co_await coord.add_process_set(cohort::ranks::all(n));
    } catch (const std::system_error& failed) {
      code = failed.code();
    }
    if (world.rank() == 0) {
      CHECK(code == errc::wrong_device);
    } else {
      REQUIRE(my_half);
      int value = 1;
      const auto lost =
          co_await caught<cohort::peer_lost_error>(my_half.all_reduce("x", value, cohort::op::sum));
      REQUIRE(lost);
      CHECK(lost->ranks() == std::vector<int>{0});
    }
    script.open_fails = nullptr;
    const auto set = co_await coord.add_process_set(backwards(n));
    co_await set_works(set);
    co_await set_works(coord);
  });
}

TEST_CASE("a coordinator for devices waits at its end for a set that is being opened",
          "[coordinator][device][sets]") {
  with_device_sets([](auto world, auto coord, device_script& script) -> asio::awaitable<void> {
    script.holds_open = true;
    script.let_open = nullptr;
    auto made = coord.add_process_set(cohort::ranks::all(world.size()), as_future);
    while (!script.let_open) co_await asio::post(world.get_executor(), asio::use_awaitable);
    auto ended = coord.shutdown(as_future);
    for (int i = 0; i < 100; ++i) {
      co_await asio::post(world.get_executor(), asio::use_awaitable);
    }
    CHECK_FALSE(ended.is_ready());
    CHECK(script.closes == 0);
    script.let_open();
    const cohort::process_set set = co_await std::move(made);
    CHECK(set);
    co_await std::move(ended);
  });
}

TEST_CASE("a context goes away while a set is being opened", "[coordinator][device][sets]") {
  const fake_backend backend;
  asio::io_context io;
  cohort::communicator world(io);
  cohort::coordinator coord(world, backend);
  bool ended = false;
  bool opening = false;
  asio::co_spawn(
      io,
      [&]() -> asio::awaitable<void> {
        co_await coord.barrier();
        backend.script->holds_open = true;
        backend.script->let_open = nullptr;
        coord.add_process_set(cohort::ranks::all(world.size()),
                              [&](std::exception_ptr, cohort::process_set) { ended = true; });
        while (!backend.script->let_open) {
          co_await asio::post(world.get_executor(), asio::use_awaitable);
        }
        opening = true;
      },
      asio::detached);
  while (!opening) io.run_one();
  CHECK_FALSE(ended);
}

TEST_CASE("sets of a coordinator for devices have no persistent groups",
          "[coordinator][device][sets]") {
  with_device_sets([](auto world, auto coord, device_script&) -> asio::awaitable<void> {
    const auto set = co_await coord.add_process_set(lower(world.size()));
    std::vector<float> a(3);
    if (set) {
      CHECK(co_await code_of(set.make_persistent(cohort::bundle("g").add("a", a),
                                                 cohort::op::sum)) == errc::not_supported);
    }
    co_await set_works(set);
    co_await set_works(coord);
  });
}
