// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// Jobs that mpirun has started, whose rank 0 becomes the manager. Every test runs with messages over
// MPI and over TCP.

#include <cohort/cluster/adopt_options.hpp>
#include <cohort/cluster/call_context.hpp>
#include <cohort/cluster/invitation.hpp>
#include <cohort/cluster/mpi_transport.hpp>
#include <cohort/cluster/peers.hpp>
#include <cohort/cluster/serve.hpp>
#include <cohort/cluster/workers.hpp>
#include <cohort/collectives/all_reduce.hpp>
#include <cohort/collectives/barrier.hpp>

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <functional>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "support.hpp"
#include "support/catch.hpp"
#include "support/world.hpp"

using namespace cohort_test;
using cohort::cluster::adopt_options;
using cohort::cluster::call_context;
using cohort::cluster::manager_id;
using cohort::cluster::peers;
using cohort::cluster::transport;

namespace {

const char* name_of(transport how) { return how == transport::mpi ? "mpi" : "tcp"; }

/// On rank 0 adopts, runs the body and shuts down; on the others serves. Twice: over MPI, over TCP.
void with_adopted(const adopt_options& options, const test_body& body) {
  for (const transport how : {transport::mpi, transport::tcp}) {
    INFO("messages over " << name_of(how));
    asio::io_context io;
    const cohort::communicator world(io);
    if (world.rank() != 0) {
      cohort::cluster::serve(world);
      continue;
    }
    run(io, [&]() -> asio::awaitable<void> {
      adopt_options mine = options;
      mine.transport(how);
      auto adopting = cohort::cluster::adopt(world, mine);
      const workers all = co_await std::move(adopting);
      auto working = body(all);
      co_await std::move(working);
      co_await all.shutdown();
      for (const int id : all.ids()) CHECK(all.state(id) == worker_state::gone);
    }());
  }
}

std::vector<int> place_of(call_context& call) {
  return {call.id(), call.rank(), call.size(), call.world().rank(), call.world().size()};
}
asio::awaitable<int> sum_of_ids(call_context& call) {
  int sum = call.id();
  co_await cohort::all_reduce(call.world(), sum, cohort::op::sum);
  co_return sum;
}
std::vector<std::byte> echo(std::vector<std::byte> bytes) { return bytes; }
void fails(call_context& call) { throw std::range_error("from " + std::to_string(call.id())); }
int square(int x) { return x * x; }
asio::awaitable<void> waits(call_context& call) {
  asio::steady_timer timer(call.context(), std::chrono::minutes(5));
  co_await timer.async_wait(asio::use_awaitable);
}
void prints(call_context& call) {
  std::printf("out of %d\n", call.id());
  std::fprintf(stderr, "err of %d\n", call.id());
  std::fflush(stdout);
}

// ---- calls between workers

/// Goes on from worker to worker until all have been asked, and comes back.
asio::awaitable<std::vector<int>> tour(call_context& call, int last) {
  std::vector<int> seen{call.id()};
  if (call.id() < last) {
    const std::vector<int> rest = co_await call.peers().call<&tour>(call.id() + 1, last);
    seen.insert(seen.end(), rest.begin(), rest.end());
  }
  co_return seen;
}
std::atomic<int> notes{0};
void note() { ++notes; }
void send_notes(call_context& call, int count, int ids) {
  for (int i = 0; i < count; ++i) call.peers().notify<&note>(1 + i % ids);
}
/// Each note makes the receiver send another one, until `hops` have been made.
void relay(call_context& call, int hops, int ids) {
  ++notes;
  if (hops > 0) call.peers().notify<&relay>(1 + (call.id() + hops) % ids, hops - 1, ids);
}
void send_relays(call_context& call, int count, int hops, int ids) {
  for (int i = 0; i < count; ++i) call.peers().notify<&relay>(1 + i % ids, hops, ids);
}
asio::awaitable<std::string> asks_the_manager(call_context& call, int value) {
  try {
    const int squared = co_await call.peers().call<&square>(manager_id, value);
    co_return std::to_string(squared);
  } catch (const cohort::error& failed) {
    co_return failed.what();
  }
}
asio::awaitable<std::vector<std::byte>> fetch(call_context& call, int from,
                                              std::vector<std::byte> bytes) {
  std::vector<std::byte> back = co_await call.peers().call<&echo>(from, bytes);
  co_return back;
}
asio::awaitable<std::string> hears_from(call_context& call, int from) {
  try {
    co_await call.peers().call<&fails>(from);
  } catch (const std::range_error& failed) {
    co_return failed.what();
  }
  co_return "nothing";
}
asio::awaitable<bool> gives_up(call_context& call, int on) {
  try {
    co_await call.peers().with(call_options{}.deadline(20ms)).call<&waits>(on);
  } catch (const cohort::deadline_error&) {
    co_return true;
  }
  co_return false;
}

}  // namespace

TEST_CASE("the other ranks of a job become workers, by their ranks") {
  with_adopted({}, [](workers all) -> asio::awaitable<void> {
    const std::vector<int> ids = all.ids();
    REQUIRE(static_cast<int>(ids.size()) == all.size());
    for (int i = 0; i < all.size(); ++i) {
      const int id = ids[static_cast<std::size_t>(i)];
      CHECK(id == i + 1);
      CHECK(all.state(id) == worker_state::ready);
      CHECK(all.pid(id) > 0);
      CHECK_FALSE(all.host(id).empty());
      const std::vector<int> place = co_await all.call<&place_of>(id);
      CHECK(place == std::vector<int>{id, i, all.size(), i, all.size()});
    }
    auto wrong = all.call<&square>(all.size() + 1, 2);
    auto failing = caught<cohort::error>(std::move(wrong));
    const auto failed = co_await std::move(failing);
    REQUIRE(failed);
    CHECK(failed->code() == errc::bad_rank);
  });
}

TEST_CASE("functions called on all adopted workers use collectives, with the manager if asked") {
  with_adopted({}, [](workers all) -> asio::awaitable<void> {
    const int sum = all.size() * (all.size() + 1) / 2;
    for (int round = 0; round < 3; ++round) {
      auto each = co_await all.call_all<&sum_of_ids>();
      REQUIRE(static_cast<int>(each.size()) == all.size());
      for (auto& one : each) CHECK(one.value() == sum);
      if (all.size() == 0) continue;
      auto with_manager = all.with(call_options{}.include_manager(true));
      auto every = co_await with_manager.call_all<&sum_of_ids>();
      REQUIRE(static_cast<int>(every.size()) == all.size() + 1);
      for (auto& one : every) CHECK(one.value() == sum);
      auto places = co_await with_manager.call_all<&place_of>();
      for (int rank = 0; rank <= all.size(); ++rank) {
        const std::vector<int> expected{rank, rank, all.size() + 1, rank, all.size() + 1};
        CHECK(places[static_cast<std::size_t>(rank)].value() == expected);
      }
    }
  });
}

TEST_CASE("adopted workers take what launched ones take") {
  with_adopted({}, [](workers all) -> asio::awaitable<void> {
    for (const int id : all.ids()) {
      for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{65'536 - 40},
                                     std::size_t{65'537}, std::size_t{5'000'001}}) {
        std::vector<std::byte> bytes(size);
        for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 251);
        const std::vector<std::byte> back = co_await all.call<&echo>(id, bytes);
        CHECK(back == bytes);
      }
      auto wrong = caught<std::range_error>(all.call<&fails>(id));
      const auto failed = co_await std::move(wrong);
      REQUIRE(failed);
      CHECK(has(failed->what(), "from " + std::to_string(id)));
      auto late = caught<cohort::deadline_error>(
          all.with(call_options{}.deadline(20ms)).call<&waits>(id));
      const auto gave_up = co_await std::move(late);
      CHECK(gave_up.has_value());
    }
    if (all.size() == 0) co_return;
    std::vector<int> items(300);
    for (int i = 0; i < 300; ++i) items[static_cast<std::size_t>(i)] = i;
    auto squares = co_await all.map<&square>(items);
    for (int i = 0; i < 300; ++i) {
      CHECK(squares[static_cast<std::size_t>(i)].value() == i * i);
    }
  });
}

TEST_CASE("workers call each other, and the manager where it serves") {
  with_adopted(adopt_options().serve_calls(true), [](workers all) -> asio::awaitable<void> {
    const int last = all.size();
    if (last == 0) co_return;
    const std::vector<int> seen = co_await all.call<&tour>(1, last);
    CHECK(seen == all.ids());
    for (const int id : all.ids()) {
      const std::string answer = co_await all.call<&asks_the_manager>(id, 12);
      CHECK(answer == "144");
      const int other = 1 + id % last;  // itself, if it is alone
      std::vector<std::byte> bytes(300'000, static_cast<std::byte>(id));
      const std::vector<std::byte> back = co_await all.call<&fetch>(id, other, bytes);
      CHECK(back == bytes);
      const std::string text = co_await all.call<&hears_from>(id, other);
      CHECK(text == "from " + std::to_string(other));
      const bool gave_up = co_await all.call<&gives_up>(id, other);
      CHECK(gave_up);
    }
  });
}

TEST_CASE("a manager that does not serve refuses the calls of its workers") {
  with_adopted({}, [](workers all) -> asio::awaitable<void> {
    for (const int id : all.ids()) {
      const std::string answer = co_await all.call<&asks_the_manager>(id, 12);
      CHECK(has(answer, "serve_calls"));
    }
  });
}

TEST_CASE("what workers have sent each other when they are shut down is not lost") {
  constexpr int count = 2500;
  constexpr int hops = 20;
  notes = 0;
  int ranks = 0;
  with_adopted({}, [&](workers all) -> asio::awaitable<void> {
    ranks = all.size();
    for (const int id : all.ids()) all.notify<&send_notes>(id, count, all.size());
    for (const int id : all.ids()) all.notify<&send_relays>(id, 20, hops, all.size());
    co_return;
  });
  asio::io_context io;
  const cohort::communicator world(io);
  int all_notes = notes;
  run(io, [](cohort::communicator on, int& sum) -> asio::awaitable<void> {
    co_await cohort::all_reduce(on, sum, cohort::op::sum);
  }(world, all_notes));
  CHECK(all_notes == 2 * (world.size() - 1) * (count + 20 * (hops + 1)));
}

TEST_CASE("what adopted workers print comes by rank and stream") {
  std::mutex guard;
  std::set<std::string> lines;
  adopt_options options;
  options.sink([&](const cohort::cluster::output_line& line) {
    const std::lock_guard hold(guard);
    lines.insert(std::to_string(line.rank) + " " + std::string(line.text));
  });
  const int out = ::dup(STDOUT_FILENO);
  const int err = ::dup(STDERR_FILENO);
  with_adopted(options, [](workers all) -> asio::awaitable<void> {
    auto each = co_await all.call_all<&prints>();
    for (auto& one : each) CHECK_FALSE(one.error());
  });
  std::fflush(stdout);
  ::dup2(out, STDOUT_FILENO);
  ::dup2(err, STDERR_FILENO);
  ::close(out);
  ::close(err);
  asio::io_context io;
  const cohort::communicator world(io);
  if (world.rank() != 0) return;
  for (int id = 1; id < world.size(); ++id) {
    const std::string number = std::to_string(id);
    CHECK(lines.count(number + " out of " + number) == 1);
    CHECK(lines.count(number + " err of " + number) == 1);
  }
}

TEST_CASE("ranks that do not serve are named, and the job can be adopted later") {
  for (const transport how : {transport::mpi, transport::tcp}) {
    INFO("messages over " << name_of(how));
    asio::io_context io;
    const cohort::communicator world(io);
    const int last = world.size() - 1;
    if (last == 0) return;
    if (world.rank() == 0) {
      run(io, [&]() -> asio::awaitable<void> {
        auto late = caught<cohort::error>(cohort::cluster::adopt(
            world, adopt_options().transport(how).timeout(300ms)));
        const auto failed = co_await std::move(late);
        REQUIRE(failed);
        CHECK(failed->code() == errc::deadline_exceeded);
        CHECK(has(failed->what(), "serve: " + std::to_string(last)));
        co_await meet(world);
        auto adopting = cohort::cluster::adopt(world, adopt_options().transport(how));
        const workers all = co_await std::move(adopting);
        const int four = co_await all.call<&square>(last, 2);
        CHECK(four == 4);
        co_await all.shutdown();
      }());
      continue;
    }
    std::string text;
    if (world.rank() == last) run(io, meet(world));
    try {
      cohort::cluster::serve(world);
    } catch (const cohort::error& failed) {
      CHECK(failed.code() == errc::refused);
      text = failed.what();
    }
    CHECK(has(text, "withdrawn"));
    if (world.rank() != last) run(io, meet(world));
    cohort::cluster::serve(world);
  }
}

TEST_CASE("workers that are dropped without a shutdown go on behind serve") {
  for (const transport how : {transport::mpi, transport::tcp}) {
    INFO("messages over " << name_of(how));
    asio::io_context io;
    const cohort::communicator world(io);
    if (world.rank() == 0) {
      run(io, [&]() -> asio::awaitable<void> {
        auto adopting = cohort::cluster::adopt(world, adopt_options().transport(how));
        const workers all = co_await std::move(adopting);
        for (const int id : all.ids()) all.notify<&waits>(id);
      }());
      continue;
    }
    bool thrown = false;
    try {
      cohort::cluster::serve(world);
    } catch (const cohort::error& failed) {
      thrown = true;
      CHECK(failed.code() == errc::peer_lost);
      CHECK(has(failed.what(), "without shutdown"));
    }
    CHECK(thrown);
  }
}

TEST_CASE("adopt and serve each say which rank they are for") {
  asio::io_context io;
  const cohort::communicator world(io);
  if (world.rank() == 0) {
    CHECK_THROWS_AS(cohort::cluster::serve(world), cohort::error);
  } else {
    run(io, [&]() -> asio::awaitable<void> {
      auto wrong = caught<cohort::error>(cohort::cluster::adopt(world));
      const auto failed = co_await std::move(wrong);
      REQUIRE(failed);
      CHECK(failed->code() == errc::invalid_argument);
    }());
  }
}
