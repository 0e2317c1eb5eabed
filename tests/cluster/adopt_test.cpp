// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// Jobs that mpirun has started, whose rank 0 becomes the manager. Every test runs with messages
// over MPI and over TCP.

#include <cohort/cluster/call_context.hpp>
#include <cohort/cluster/calls/call_verbs.hpp>
#include <cohort/cluster/event.hpp>
#include <cohort/cluster/launch_options.hpp>
#include <cohort/cluster/link/mpi_transport.hpp>
#include <cohort/cluster/membership/invitation.hpp>
#include <cohort/cluster/serve.hpp>
#include <cohort/cluster/workers.hpp>
#include <cohort/collectives/all_reduce.hpp>
#include <cohort/collectives/barrier.hpp>
#include <cohort/coordinator.hpp>
#include <cohort/core/log.hpp>
#include <cohort/progress/future.hpp>
#include <cohort/progress/sync_wait.hpp>

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cluster/peer_calls.hpp"
#include "cluster/printed.hpp"
#include "cluster/support.hpp"
#include "support/catch.hpp"
#include "support/patience.hpp"
#include "support/world.hpp"

using namespace cohort_test;
using cohort::cluster::adopt_options;
using cohort::cluster::call_context;
using cohort::cluster::transport;

namespace {

const char* name_of(transport how) { return how == transport::mpi ? "mpi" : "tcp"; }

/// That calls travel this way: a lap of the engine finds only what travels over MPI. They are long,
/// for what is short may be found by the look before the engine sleeps, which is not counted.
asio::awaitable<void> check_way(workers all, transport how) {
  const auto before = cohort::engine_stats(all.context()).completions;
  for (const int id : all.ids()) {
    const std::vector<std::byte> bytes(1'000'000);
    const std::vector<std::byte> back = co_await all.call<&echo_bytes>(id, bytes);
    CHECK(back == bytes);
  }
  const auto found = cohort::engine_stats(all.context()).completions - before;
  CHECK((found != 0) == (how == transport::mpi && all.size() != 0));
}

/// On rank 0 adopts, runs the body and shuts down; on the others serves. Then runs `after` on all.
/// Twice: over MPI, over TCP.
void with_adopted(const adopt_options& options, const test_body& body,
                  const std::function<asio::awaitable<void>(cohort::communicator)>& after = {}) {
  for (const transport how : {transport::mpi, transport::tcp}) {
    INFO("messages over " << name_of(how));
    asio::io_context io;
    const cohort::communicator world(io);
    if (world.rank() != 0) {
      cohort::cluster::serve(world);
    } else {
      run(io, [&]() -> asio::awaitable<void> {
        adopt_options mine = options;
        mine.transport(how);
        auto adopting = cohort::cluster::adopt(world, mine);
        const workers all = co_await std::move(adopting);
        co_await check_way(all, how);
        auto working = body(all);
        co_await std::move(working);
        co_await all.shutdown();
        for (const int id : all.ids()) CHECK(all.state(id) == worker_state::gone);
      }());
    }
    if (after) run(io, after(world));
  }
}

/// Serves, and says whether the manager has gone on without this worker.
bool is_let_go(const cohort::communicator& world) {
  try {
    cohort::cluster::serve(world);
  } catch (const cohort::error& failed) {
    return failed.code() == errc::peer_lost;
  }
  return false;
}

std::vector<int> place_of(call_context& call) {
  return {call.id(), call.rank(), call.size(), call.world().rank(), call.world().size()};
}
/// Worker 1 throws, and the others wait for it in a collective. All keep its communicator.
std::optional<cohort::communicator> kept;
asio::awaitable<void> one_throws(call_context& call) {
  kept = call.world();
  if (call.id() == 1) throw std::domain_error("not today");
  co_await cohort::barrier(call.world());
}
/// Lets that collective end after all, so that MPI can.
asio::awaitable<void> make_up(cohort::communicator world) {
  if (world.rank() == 1) co_await cohort::barrier(*kept);
  kept.reset();
  co_await cohort::barrier(world);
}
asio::awaitable<int> sum_of_ids(call_context& call) {
  int sum = call.id();
  co_await cohort::all_reduce(call.world(), sum, cohort::op::sum);
  co_return sum;
}
void swallow(std::vector<std::byte>) {}
std::vector<std::byte> produce(std::size_t size) { return std::vector<std::byte>(size); }
/// What a program makes of the job's communicator, sooner or later than the job is adopted.
struct others {
  explicit others(asio::io_context& io) : changed(io) {}
  bool may_begin = false;
  cohort::cluster::event changed;
};
others* beside = nullptr;
void let_others_begin() {
  beside->may_begin = true;
  beside->changed.notify();
}
asio::awaitable<void> make_others(cohort::communicator world, others& when) {
  while (!when.may_begin) co_await when.changed.wait();
  auto copying = world.dup(cohort::as_future);
  cohort::coordinator coord(world);
  const cohort::communicator copy = co_await std::move(copying);
  int ranks = 1;
  co_await cohort::all_reduce(copy, ranks, cohort::op::sum);
  CHECK(ranks == world.size());
  std::vector<int> again{1};
  co_await coord.all_reduce("ranks", again, cohort::op::sum);
  CHECK(again.front() == world.size());
  co_await coord.shutdown();
}
void sleeps() { std::this_thread::sleep_for(cohort_test::patient(5s)); }

}  // namespace

TEST_CASE("a communicator is renewed beside the receive of the transport, however often") {
  asio::io_context io;
  const cohort::communicator control(io);
  std::vector<std::int32_t> all;
  for (int rank = 0; rank < control.size(); ++rank) all.push_back(rank);
  char piece = 0;
  MPI_Request receive = MPI_REQUEST_NULL;
  MPI_Irecv(&piece, 1, MPI_BYTE, MPI_ANY_SOURCE, 0, control.native(), &receive);
  for (const int round : {1, 999, 1000, 1001, 2000, std::numeric_limits<int>::max()}) {
    const auto made = cohort::cluster::renew(cohort::communicator(), control, all, round);
    CHECK(made.size() == control.size());
  }
  int has_come = 0;
  MPI_Test(&receive, &has_come, MPI_STATUS_IGNORE);
  CHECK(has_come == 0);
  MPI_Cancel(&receive);
  MPI_Wait(&receive, MPI_STATUS_IGNORE);
}

TEST_CASE("the presets of adopted jobs say what carries the messages") {
  for (const adopt_options& preset :
       {cohort::cluster::mpi_transport_all(), cohort::cluster::tcp_transport_all()}) {
    asio::io_context io;
    const cohort::communicator world(io);
    if (world.rank() != 0) {
      cohort::cluster::serve(world);
      continue;
    }
    run(io, [&]() -> asio::awaitable<void> {
      auto adopting = cohort::cluster::adopt(world, preset);
      const workers all = co_await std::move(adopting);
      co_await check_way(all, preset.for_ranks(1).transport());
      co_await all.shutdown();
    }());
  }
  CHECK(cohort::cluster::mpi_transport_all().for_ranks(1).transport() == transport::mpi);
  CHECK(cohort::cluster::tcp_transport_all().for_ranks(1).transport() == transport::tcp);
}

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

TEST_CASE("a function that fails on the manager too stops no later call") {
  with_adopted({}, [](workers all) -> asio::awaitable<void> {
    const workers everyone = all.with(call_options{}.include_manager(true));
    const auto failed = co_await everyone.call_all<&fails>();
    for (const auto& one : failed) CHECK_FALSE(one.has_value());
    auto each = co_await everyone.call_all<&sum_of_ids>();
    for (auto& one : each) CHECK(one.value() == all.size() * (all.size() + 1) / 2);
  });
}

TEST_CASE("an operation has the same number on all ranks, though they were invited") {
  const auto nothing = [](const workers&) -> asio::awaitable<void> { co_return; };
  with_adopted({}, nothing, [](cohort::communicator world) -> asio::awaitable<void> {
    const auto here = static_cast<long>(world.stats().operations);
    long lowest = here;
    long highest = here;
    co_await cohort::all_reduce(world, lowest, cohort::op::min);
    co_await cohort::all_reduce(world, highest, cohort::op::max);
    CHECK(lowest == here);
    CHECK(highest == here);
  });
}

TEST_CASE("a job is adopted beside whatever else its program makes of its communicator") {
  enum class early { rank_0, the_others, odd_ones };
  for (const transport how : {transport::mpi, transport::tcp}) {
    for (const early who : {early::rank_0, early::the_others, early::odd_ones}) {
      INFO("messages over " << name_of(how) << ", early: " << static_cast<int>(who));
      asio::io_context io;
      const cohort::communicator world(io);
      others mine(io);
      beside = &mine;
      mine.may_begin = who == early::rank_0       ? world.rank() == 0
                       : who == early::the_others ? world.rank() != 0
                                                  : world.rank() % 2 == 1;
      auto making = asio::co_spawn(io, make_others(world, mine), cohort::as_future);
      const auto finish = [&]() -> asio::awaitable<void> { co_await std::move(making); };
      if (world.rank() != 0) {
        cohort::cluster::serve(world);
        run(io, finish());
      } else {
        run(io, [&]() -> asio::awaitable<void> {
          auto adopting = cohort::cluster::adopt(world, adopt_options().transport(how));
          const workers all = co_await std::move(adopting);
          for (const int id : all.ids()) co_await all.call<&let_others_begin>(id);
          let_others_begin();
          auto finishing = finish();
          co_await std::move(finishing);
          co_await all.shutdown();
        }());
      }
      CHECK(world.stats().operations == 1);  // the program's dup
    }
  }
}

TEST_CASE("adopted workers take what launched ones take") {
  with_adopted({}, [](workers all) -> asio::awaitable<void> {
    for (const int id : all.ids()) {
      for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{65'536 - 40},
                                     std::size_t{65'537}, std::size_t{5'000'001}}) {
        std::vector<std::byte> bytes(size);
        for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 251);
        const std::vector<std::byte> back = co_await all.call<&echo_bytes>(id, bytes);
        CHECK(back == bytes);
      }
      auto wrong = caught<std::range_error>(all.call<&fails>(id));
      const auto failed = co_await std::move(wrong);
      REQUIRE(failed);
      CHECK(has(failed->what(), "from " + std::to_string(id)));
      auto late = caught<cohort::deadline_error>(
          all.with(call_options{}.deadline(20ms)).call<&waits_long>(id));
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
    auto checking = check_calls_between(all);
    co_await std::move(checking);
    for (const int id : all.ids()) {  // it is a rank here
      const std::string answer = co_await all.call<&asks_the_manager>(id, 0, 12);
      CHECK(answer == "144");
    }
  });
}

TEST_CASE("a manager that does not serve refuses the calls of its workers") {
  with_adopted({}, [](workers all) -> asio::awaitable<void> {
    for (const int id : all.ids()) {
      for (const int manager : {manager_id, 0}) {
        const std::string answer = co_await all.call<&asks_the_manager>(id, manager, 12);
        CHECK(has(answer, "serve_calls"));
      }
    }
  });
}

TEST_CASE("what workers have sent each other when they are shut down is not lost") {
  constexpr int count = 2500;
  constexpr int hops = 20;
  notes = 0;
  with_adopted({}, [&](workers all) -> asio::awaitable<void> {
    for (const int id : all.ids()) all.notify<&send_notes>(id, count, all.ids());
    for (const int id : all.ids()) all.notify<&send_relays>(id, 20, hops, all.ids());
    co_return;
  });
  asio::io_context io;
  const cohort::communicator world(io);
  int all_notes = notes;
  run(io, [](cohort::communicator on, int& sum) -> asio::awaitable<void> {
    co_await cohort::all_reduce(on, sum, cohort::op::sum);
  }(world, all_notes));
  // Twice: over MPI and over TCP.
  CHECK(all_notes == 2 * (world.size() - 1) * (count + 20 * (hops + 1)));
}

TEST_CASE("what adopted workers print arrives by rank and stream, and the end of it") {
  const cohort::log::capture messages;
  const std::string line(std::size_t{1} << 20U, 'm');
  std::string binary = "a\0b\x1b[1m";
  binary += '\xff';
  printed output;
  gate slow;
  bool opened = false;
  adopt_options options;
  options.longest_line(std::size_t{2} << 20U).output_bound(std::size_t{16} << 20U);
  options.sink(slow.sink());
  options.sink([](const cohort::cluster::output_line&) { throw std::runtime_error("disk full"); });
  options.sink(output.sink());
  with_adopted(options, [&](workers all) -> asio::awaitable<void> {
    for (const int id : all.ids()) {
      co_await all.call<&says>(id, "one\ntwo\nthr", false);
      co_await all.call<&says>(id, "error of one\n", true);
      co_await all.call<&says>(id, "ee\n", false);
      co_await all.call<&says>(id, line + "\n", false);
      co_await all.call<&says>(id, binary + "\n", false);
      co_await all.call<&says>(id, "without an end", false);
    }
    if (!std::exchange(opened, true)) slow.open();  // it has held nobody
  });
  asio::io_context io;
  const cohort::communicator world(io);
  if (world.rank() != 0) return;
  const std::string once = "one\ntwo\nthree\n" + line + "\n" + binary + "\nwithout an end";
  for (int id = 1; id < world.size(); ++id) {  // over MPI, and over TCP
    CHECK((output.of(id) == once + once));
    CHECK(output.of(id, cohort::cluster::output_stream::err) == "error of one\nerror of one\n");
  }
  if (world.size() == 1) return;
  const std::string told = messages.text();
  CHECK(has(told, "disk full"));
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
        auto late = caught<cohort::error>(
            cohort::cluster::adopt(world, adopt_options().transport(how).timeout(2s)));
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
        for (const int id : all.ids()) {
          all.notify<&waits_long>(id);
          // Much is under way in both directions when it is dropped.
          all.notify<&swallow>(id, std::vector<std::byte>(5'000'000));
          for (int i = 0; i < 3; ++i) all.call<&produce>(id, 3'000'000, [](auto&&...) {});
        }
        asio::steady_timer timer(io, 5ms);
        co_await timer.async_wait(asio::use_awaitable);
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

TEST_CASE("a shutdown names the adopted worker that is late, and lets the others go") {
  for (const transport how : {transport::mpi, transport::tcp}) {
    INFO("messages over " << name_of(how));
    asio::io_context io;
    const cohort::communicator world(io);
    if (world.size() < 3) return;
    if (world.rank() == 0) {
      run(io, [&]() -> asio::awaitable<void> {
        auto adopting = cohort::cluster::adopt(world, adopt_options().transport(how));
        const workers all = co_await std::move(adopting);
        all.notify<&sleeps>(1);
        auto ending = caught<cohort::rank_error>(all.shutdown(patient(2s)));
        const auto late = co_await std::move(ending);
        REQUIRE(late);
        CHECK(late->code() == errc::stalled);
        CHECK(late->ranks() == std::vector<int>{1});
        CHECK(all.state(2) == worker_state::gone);
      }());
      continue;
    }
    CHECK(is_let_go(world) == (world.rank() == 1));
  }
}

TEST_CASE(
    "an adopted worker that fails before a collective stops neither later calls nor the end") {
  for (const transport how : {transport::mpi, transport::tcp}) {
    for (const bool with_manager : {false, true}) {
      INFO("messages over " << name_of(how) << (with_manager ? ", with the manager" : ""));
      asio::io_context io;
      const cohort::communicator world(io);
      if (world.size() < (with_manager ? 2 : 3)) continue;
      if (world.rank() != 0) {
        cohort::cluster::serve(world);
        run(io, make_up(world));
        continue;
      }
      run(io, [&]() -> asio::awaitable<void> {
        auto adopting = cohort::cluster::adopt(world, adopt_options().transport(how));
        const workers all = co_await std::move(adopting);
        const auto options = call_options{}.grace(300ms).include_manager(with_manager);
        const auto each = co_await all.with(options).call_all<&one_throws>();
        for (const auto& one : each) CHECK_FALSE(one);
        for (int i = 0; i < 2; ++i) {
          const auto sums = co_await all.with(options).call_all<&sum_of_ids>();
          for (const auto& one : sums) CHECK(one.value() == world.size() * (world.size() - 1) / 2);
        }
        ids stuck;
        for (int id = 2; id < world.size(); ++id) stuck.push_back(id);
        ids named;
        try {
          co_await all.shutdown(std::chrono::minutes(1));
        } catch (const cohort::rank_error& failed) {
          named = failed.ranks();
        }
        CHECK(named == stuck);
        for (const int id : all.ids()) CHECK(all.state(id) == worker_state::gone);
        auto ending = make_up(world);
        co_await std::move(ending);
      }());
    }
  }
}

TEST_CASE("an adopted worker that is stopped is lost when its heartbeat stays away") {
  for (const transport how : {transport::mpi, transport::tcp}) {
    INFO("messages over " << name_of(how));
    asio::io_context io;
    const cohort::communicator world(io);
    if (world.size() < 3) return;
    if (world.rank() == 0) {
      run(io, [&]() -> asio::awaitable<void> {
        auto options = adopt_options().transport(how).heartbeat(300ms);
        options.on_loss(cohort::cluster::loss_policy::proceed);
        auto adopting = cohort::cluster::adopt(world, options);
        const workers all = co_await std::move(adopting);
        const auto pid = static_cast<pid_t>(all.pid(1));
        auto pending = all.call<&waits_long>(1, cohort::as_future);
        REQUIRE(::kill(pid, SIGSTOP) == 0);
        auto failing = caught<cohort::peer_lost_error>(std::move(pending));
        const auto lost = co_await std::move(failing);
        ::kill(pid, SIGCONT);
        REQUIRE(lost);
        CHECK(has(lost->what(), "6 heartbeats"));
        const int four = co_await all.call<&square>(2, 2);
        CHECK(four == 4);
        co_await all.shutdown();
        CHECK(all.state(1) == worker_state::lost);
        CHECK(all.state(2) == worker_state::gone);
      }());
      continue;
    }
    CHECK(is_let_go(world) == (world.rank() == 1));
  }
}

TEST_CASE("adopt and serve each say which rank they are for") {
  asio::io_context io;
  const cohort::communicator world(io);
  if (world.rank() == 0) {
    CHECK_THROWS_AS(cohort::cluster::serve(world), cohort::error);
  } else {
    run(io, [&]() -> asio::awaitable<void> {
      CHECK_THROWS_AS(cohort::cluster::serve(world), cohort::error);  // inside the loop
      auto wrong = caught<cohort::error>(cohort::cluster::adopt(world));
      const auto failed = co_await std::move(wrong);
      REQUIRE(failed);
      CHECK(failed->code() == errc::invalid_argument);
    }());
  }
}

TEST_CASE("a manager of plain code blocks in its calls") {
  for (const adopt_options& preset :
       {cohort::cluster::mpi_transport_all(), cohort::cluster::tcp_transport_all()}) {
    asio::io_context io;
    const cohort::communicator world(io);
    if (world.rank() != 0) {
      cohort::cluster::serve(world);
      continue;
    }
    const workers all = cohort::sync_wait(io, cohort::cluster::adopt(world, preset));
    for (const int id : all.ids()) {
      CHECK(all.call<&square>(id, 7, cohort::blocking) == 49);
    }
    CHECK_THROWS_AS(all.call<&square>(all.size() + 1, 2, cohort::blocking), cohort::error);
    cohort::sync_wait(io, all.shutdown());
  }
}
