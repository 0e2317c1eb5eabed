// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// How a coordinator begins and ends: shutdown with operations pending, made and destroyed again,
// dropped in every place, under exceptions; every completion token; what it says of itself.
#include <cohort/collectives/barrier.hpp>
#include <cohort/coordinator.hpp>
#include <cohort/core/log.hpp>
#include <cohort/core/process.hpp>
#include <cohort/progress/context.hpp>
#include <cohort/progress/future.hpp>
#include <cohort/progress/when_all.hpp>

#include <asio/strand.hpp>

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "coordinator/support.hpp"
#include "support/patience.hpp"

namespace {

using namespace std::chrono_literals;
using cohort::as_future;
using cohort::errc;
using cohort_test::caught;
using cohort_test::coordinated;
using cohort_test::has;
using cohort_test::meet;
using cohort_test::pause;
using cohort_test::works;
namespace op = cohort::op;

/// `body(world, coord, lines)` on several ranks, where what waits for 100 ms is told in the log.
template <class Body>
void with_stall_warning(Body body) {
  cohort::coordinator_options options;
  options.stall_warning = 100ms;
  const cohort::log::capture lines;
  coordinated(
      [&](cohort::communicator world, cohort::coordinator coord) -> asio::awaitable<void> {
        if (coord.size() > 1) co_await body(std::move(world), std::move(coord), lines);
      },
      options);
}

/// Until `told()` is true, for as long as something else may have taken.
template <class Told>
asio::awaitable<void> until_told(Told told) {
  const auto until = std::chrono::steady_clock::now() + cohort_test::patient(20s);
  while (!told() && std::chrono::steady_clock::now() < until) co_await pause(10ms);
}

}  // namespace

TEST_CASE("shutdown with operations pending on every subset of ranks", "[coordinator][lifecycle]") {
  cohort_test::on_world([](cohort::communicator world) -> asio::awaitable<void> {
    for (unsigned subset = 0; subset < (1U << static_cast<unsigned>(world.size())); ++subset) {
      for (const bool at_once : {true, false}) {
        cohort::coordinator coord(world);
        if (!at_once) co_await works(coord, "all");
        const bool all = subset + 1 == 1U << static_cast<unsigned>(world.size());
        const bool submits = ((subset >> static_cast<unsigned>(world.rank())) & 1U) != 0;
        int value = 1;
        std::vector<int> large(300000, 1);
        std::vector<cohort::future<void>> pending;
        if (submits) {
          pending.push_back(coord.all_reduce("value", value, op::sum, as_future));
          pending.push_back(coord.all_reduce("large", large, op::sum, as_future));
          pending.push_back(coord.barrier(as_future));
        }
        auto closed = coord.shutdown(as_future);
        int failed = 0;
        for (auto& each : pending) {
          try {
            co_await std::move(each);
          } catch (const cohort::peer_lost_error& problem) {
            ++failed;
            CHECK_FALSE(problem.ranks().empty());
          }
        }
        co_await std::move(closed);
        INFO("subset " << subset);
        if (all) {
          CHECK(failed == 0);
          CHECK(value == world.size());
          CHECK(large == std::vector<int>(300000, world.size()));
        } else if (submits) {
          CHECK(failed == 3);
        }
      }
    }
  });
}

TEST_CASE("made and destroyed again and again", "[coordinator][lifecycle]") {
  cohort_test::on_world([](cohort::communicator world) -> asio::awaitable<void> {
    for (int i = 0; i < 150; ++i) {
      cohort::coordinator coord(world);
      if (i % 2 == 0) co_await works(coord, "w");
      co_await coord.shutdown();
    }
  });
}

TEST_CASE("coordinators of contexts that come and go", "[coordinator][lifecycle]") {
  // More than an MPI library has communicators of one kind left, should they leak.
  for (int i = 0; i < 60; ++i) {
    cohort_test::on_world([](cohort::communicator world) -> asio::awaitable<void> {
      cohort::coordinator coord(world);
      co_await works(coord, "w");
    });
  }
}

TEST_CASE("two coordinators at once", "[coordinator][lifecycle]") {
  cohort_test::on_world([](cohort::communicator world) -> asio::awaitable<void> {
    cohort::coordinator one(world);
    cohort::coordinator two(world);
    for (int round = 0; round < 20; ++round) {
      int a = 1;
      int b = 2;
      // In another order on each rank: they have nothing to do with each other.
      std::vector<cohort::future<void>> all;
      if (world.rank() % 2 == 0) {
        all.push_back(one.all_reduce("same", a, op::sum, as_future));
        all.push_back(two.all_reduce("same", b, op::sum, as_future));
      } else {
        all.push_back(two.all_reduce("same", b, op::sum, as_future));
        all.push_back(one.all_reduce("same", a, op::sum, as_future));
      }
      co_await cohort::when_all(std::move(all));
      CHECK(a == world.size());
      CHECK(b == 2 * world.size());
    }
    co_await one.shutdown();
    co_await works(two, "alone");
    co_await two.shutdown();
  });
}

TEST_CASE("the last handle is dropped inside the loop", "[coordinator][lifecycle]") {
  cohort_test::on_world([](cohort::communicator world) -> asio::awaitable<void> {
    for (int i = 0; i < 5; ++i) {
      int value = 1;
      std::optional<cohort::future<void>> kept;
      {
        cohort::coordinator coord(world);
        const cohort::coordinator copy = coord;
        kept = copy.all_reduce("kept", value, op::sum, as_future);
      }
      co_await std::move(*kept);
      CHECK(value == world.size());
    }
    co_await cohort::barrier(world);
  });
}

TEST_CASE("the last handle is dropped after the loop", "[coordinator][lifecycle]") {
  asio::io_context io;
  cohort::communicator world(io);
  std::optional<cohort::coordinator> coord(world);
  const bool used = GENERATE(true, false);
  if (used) {
    cohort_test::run(io, works(*coord, "w"));
  } else {
    io.run();
  }
  const auto began = std::chrono::steady_clock::now();
  coord.reset();
  CHECK(std::chrono::steady_clock::now() - began < cohort_test::patient(5s));
}

TEST_CASE("a context is destroyed with operations pending", "[coordinator][lifecycle]") {
  const bool runs = GENERATE(false, true);
  const auto began = std::chrono::steady_clock::now();
  {
    asio::io_context io;
    cohort::communicator world(io);
    const cohort::coordinator coord(world);
    int completed = 0;
    asio::co_spawn(
        io,
        [&]() -> asio::awaitable<void> {
          std::vector<int> data(10, 1);
          co_await coord.all_reduce("first", data, op::sum);
          ++completed;
          // Not all ranks submit it.
          auto never =
              coord.all_reduce("never " + std::to_string(coord.rank()), data, op::sum, as_future);
          co_await std::move(never);
          ++completed;
        },
        asio::detached);
    // Never run, or stopped when it waits.
    if (runs) {
      while (completed == 0) io.run_one();
      io.run_for(20ms);
    }
  }
  CHECK(std::chrono::steady_clock::now() - began < cohort_test::patient(10s));
}

TEST_CASE("an exception passes through operations that are pending", "[coordinator][lifecycle]") {
  const bool open = GENERATE(false, true);
  const auto began = std::chrono::steady_clock::now();
  cohort_test::on_world([&](cohort::communicator world) -> asio::awaitable<void> {
    cohort::coordinator coord(world);
    if (open) co_await works(coord, "w");
    const auto fails = [&]() -> asio::awaitable<void> {
      std::vector<int> data(100, 1);
      int other = 1;
      auto one = coord.all_reduce("one", data, op::sum, as_future);
      auto two = coord.all_reduce("two " + std::to_string(coord.rank()), other, op::sum, as_future);
      if (one.valid()) throw std::runtime_error("thrown");
      co_return;
    };
    const auto problem = co_await caught<std::runtime_error>(fails());
    CHECK(problem);
    // What has been given up here is withdrawn everywhere, and the rest goes on.
    co_await works(coord, "after");
    co_await coord.shutdown();
  });
  CHECK(std::chrono::steady_clock::now() - began < cohort_test::patient(10s));
}

TEST_CASE("futures are dropped before and after election", "[coordinator][lifecycle]") {
  coordinated([](cohort::communicator, cohort::coordinator coord) -> asio::awaitable<void> {
    for (int i = 0; i < 40; ++i) {
      std::vector<int> data(i % 5 == 0 ? 200000U : 10U, 1);
      {
        auto one = coord.all_reduce("dropped", data, op::sum, as_future);
        if (i % 3 == 0) co_await asio::post(coord.get_executor(), asio::use_awaitable);
      }
      // Every rank has dropped it; whatever came of it, the name goes on.
      co_await works(coord, "between");
    }
    // An owned buffer too.
    {
      auto one = coord.all_reduce("owned", std::vector<int>(5, 1), op::sum, as_future);
    }
    co_await works(coord, "owned");
  });
}

TEST_CASE("named operations take every token", "[coordinator][lifecycle]") {
  coordinated([](cohort::communicator, cohort::coordinator coord) -> asio::awaitable<void> {
    const auto executor = co_await asio::this_coro::executor;
    const int n = coord.size();
    int value = 1;
    co_await coord.all_reduce("default", value, op::sum);
    CHECK(value == n);
    value = 1;
    co_await coord.all_reduce("use_awaitable", value, op::sum, asio::use_awaitable);
    CHECK(value == n);

    value = 1;
    bool called = false;
    coord.all_reduce("callback", value, op::sum, [&](std::exception_ptr failed) {
      CHECK_FALSE(failed);
      called = true;
    });
    CHECK_FALSE(called);
    while (!called) co_await asio::post(executor, asio::use_awaitable);
    CHECK(value == n);

    value = 1;
    auto [failed] = co_await coord.all_reduce("as_tuple", value, op::sum, cohort::as_tuple);
    CHECK_FALSE(failed);
    CHECK(value == n);

    value = 1;
    auto later = coord.all_reduce("deferred", value, op::sum, cohort::deferred);
    co_await pause(1ms);
    CHECK(coord.pending().empty());
    co_await std::move(later)(asio::use_awaitable);
    CHECK(value == n);

    value = 1;
    coord.all_reduce("detached", value, op::sum, asio::detached);
    co_await coord.barrier("after detached");
    while (!coord.pending().empty()) co_await asio::post(executor, asio::use_awaitable);
    CHECK(value == n);

    auto strand = asio::make_strand(executor);
    value = 1;
    called = false;
    coord.all_reduce("strand", value, op::sum, asio::bind_executor(strand, [&](std::exception_ptr) {
                       CHECK(strand.running_in_this_thread());
                       called = true;
                     }));
    while (!called) co_await asio::post(executor, asio::use_awaitable);

    auto future = coord.all_gather("as_future", std::vector<int>(1, coord.rank()), as_future);
    const std::vector<int> all = co_await std::move(future);
    CHECK(all.size() == static_cast<std::size_t>(n));

    // A verb of a handle that is nobody's.
    const cohort::coordinator none;
    CHECK_FALSE(none);
    const auto problem = co_await caught<std::system_error>(none.barrier());
    REQUIRE(problem);
    CHECK(problem->code() == errc::invalid_communicator);
  });
}

TEST_CASE("threads submit to a loop that runs elsewhere", "[coordinator][lifecycle]") {
  if (cohort::mpi::level() < cohort::thread_level::serialized) return;
  cohort::progress_thread loop;
  {
    cohort::communicator world(loop.context());
    cohort::coordinator coord(world);
    const int n = coord.size();
    std::vector<std::thread> threads;
    std::atomic<int> wrong{0};
    for (int t = 0; t < 3; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < 50; ++i) {
          std::vector<int> data(8, i);
          const std::string name = "thread " + std::to_string(t);
          if (i % 2 == 0) {
            coord.all_reduce(name, data, op::sum, asio::use_future).get();
          } else {
            coord.all_reduce(name, data, op::sum, as_future).get();
          }
          if (data != std::vector<int>(8, n * i)) ++wrong;
          if (i % 10 == 0) static_cast<void>(coord.pending());
          if (i % 10 == 5) static_cast<void>(coord.stats());
        }
      });
    }
    for (auto& each : threads) each.join();
    CHECK(wrong == 0);
    // One rank cancels, from here.
    std::vector<int> data(8, 1);
    auto given_up = coord.all_reduce("given up", data, op::sum, as_future);
    if (coord.rank() == 0) given_up.cancel();
    try {
      given_up.get();
    } catch (const std::system_error& problem) {
      CHECK(
          (problem.code() == asio::error::operation_aborted || problem.code() == errc::withdrawn));
    }
    int value = 1;
    coord.all_reduce("last", value, op::sum, asio::use_future).get();
    CHECK(value == n);
    coord.shutdown(asio::use_future).get();
  }
}

TEST_CASE("a progress thread ends with a coordinator that nobody has shut down",
          "[coordinator][lifecycle]") {
  if (cohort::mpi::level() < cohort::thread_level::serialized) return;
  const auto began = std::chrono::steady_clock::now();
  {
    cohort::progress_thread loop;
    cohort::communicator world(loop.context());
    cohort::coordinator coord(world);
    int value = 1;
    coord.all_reduce("once", value, op::sum, asio::use_future).get();
    CHECK(value == coord.size());
  }
  CHECK(std::chrono::steady_clock::now() - began < cohort_test::patient(10s));
}

TEST_CASE("pending tells who is ready and who is missing", "[coordinator][lifecycle]") {
  coordinated([](cohort::communicator world, cohort::coordinator coord) -> asio::awaitable<void> {
    const int last = coord.size() - 1;
    CHECK(coord.pending().empty());
    if (last == 0) co_return;
    std::vector<float> data(6);
    if (coord.rank() == last) {
      co_await meet(world);
      co_await coord.all_reduce("asked", data, op::sum);
    } else {
      auto waits = coord.all_reduce("asked", data, op::sum, as_future);
      auto pending = coord.pending();
      REQUIRE(pending.size() == 1);
      CHECK(pending[0].name == "asked");
      CHECK(pending[0].verb == "all_reduce");
      CHECK_FALSE(pending[0].started);
      CHECK_FALSE(pending[0].asked);
      // All others have to have submitted it, which the report tells.
      const auto until = std::chrono::steady_clock::now() + cohort_test::patient(5s);
      do {
        coord.ask_pending();
        co_await pause(5ms);
        pending = coord.pending();
        REQUIRE(pending.size() == 1);
      } while ((!pending[0].asked || pending[0].ready != cohort_test::ranks_below(last)) &&
               std::chrono::steady_clock::now() < until);
      CHECK(pending[0].asked);
      CHECK(pending[0].ready == cohort_test::ranks_below(last));
      CHECK(pending[0].missing == std::vector<int>{last});
      CHECK(pending[0].unknown.empty());
      CHECK(pending[0].shape == "6");
      CHECK(has(pending[0].site, "lifecycle_test.cpp:"));
      CHECK(pending[0].age > 0ns);
      co_await meet(world);
      co_await std::move(waits);
    }
    CHECK(coord.pending().empty());
  });
}

TEST_CASE("a stall is told in the log", "[coordinator][lifecycle]") {
  with_stall_warning([](cohort::communicator world, cohort::coordinator coord,
                        const cohort::log::capture& lines) -> asio::awaitable<void> {
    const int last = coord.size() - 1;
    std::vector<float> data(6);
    if (coord.rank() == last) {
      co_await meet(world);
      co_await coord.all_reduce("stalled", data, op::sum);
      CHECK_FALSE(lines.contains("'stalled'"));
      co_return;
    }
    auto waits = coord.all_reduce("stalled", data, op::sum, as_future);
    // What the first line tells may be older than what the others have submitted.
    const std::string missing = "; missing: " + std::to_string(last);
    co_await until_told([&] { return lines.contains("'stalled'") && lines.contains(missing); });
    INFO(lines.text());
    CHECK(lines.contains("rank " + std::to_string(coord.rank()) + ": coordinator stalled:"));
    CHECK(lines.contains("all_reduce 'stalled' 6 ("));
    CHECK(lines.contains("lifecycle_test.cpp:"));
    CHECK(lines.contains(missing));
    co_await meet(world);
    co_await std::move(waits);
  });
}

TEST_CASE("a join that stalls is told in the log", "[coordinator][lifecycle]") {
  with_stall_warning([](cohort::communicator world, cohort::coordinator coord,
                        const cohort::log::capture& lines) -> asio::awaitable<void> {
    const int last = coord.size() - 1;
    if (coord.rank() == last) {
      co_await meet(world);
      co_await coord.join();
    } else {
      auto joined = coord.join(as_future);
      const std::string who = last == 1 ? "0" : "0-" + std::to_string(last - 1);
      const std::string told = " ms; ready: " + who + "; missing: " + std::to_string(last);
      co_await until_told([&] { return lines.contains("\n  join, ") && lines.contains(told); });
      INFO(lines.text());
      CHECK(lines.contains("rank " + std::to_string(coord.rank()) + ": coordinator stalled:"));
      CHECK(lines.contains("\n  join, "));
      CHECK(lines.contains(told));
      const auto pending = coord.pending();
      REQUIRE(pending.size() == 1);
      CHECK(pending[0].asked);
      CHECK(pending[0].ready == cohort_test::ranks_below(last));
      CHECK(pending[0].missing == std::vector<int>{last});
      co_await meet(world);
      co_await std::move(joined);
    }
    auto again = coord.join(as_future);
    CHECK((coord.pending().empty() || !coord.pending()[0].asked));
    co_await std::move(again);
  });
}

TEST_CASE("a stall is told beside an older operation that is under way",
          "[coordinator][lifecycle]") {
  with_stall_warning([](cohort::communicator, cohort::coordinator coord,
                        const cohort::log::capture& lines) -> asio::awaitable<void> {
    const int last = coord.size() - 1;
    std::vector<float> older(6), younger(6);
    constexpr int tag = 78;
    if (coord.rank() == last) {
      const auto before = coord.stats().messages_sent;
      auto waits = coord.all_reduce("older", older, op::sum, as_future);
      co_await cohort_test::until_sent(coord, before);
      // The others elect it now, and this rank computes.
      for (int rank = 0; rank < last; ++rank) {
        MPI_Send(nullptr, 0, MPI_BYTE, rank, tag, MPI_COMM_WORLD);
      }
      for (int rank = 0; rank < last; ++rank) {
        MPI_Recv(nullptr, 0, MPI_BYTE, rank, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      }
      co_await std::move(waits);
      co_await coord.all_reduce("younger", younger, op::sum);
      co_return;
    }
    MPI_Recv(nullptr, 0, MPI_BYTE, last, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    auto first = coord.all_reduce("older", older, op::sum, as_future);
    auto waits = coord.all_reduce("younger", younger, op::sum, as_future);
    co_await until_told([&] { return lines.contains("all_reduce 'younger'"); });
    INFO(lines.text());
    CHECK(lines.contains("all_reduce 'younger'"));
    const auto pending = coord.pending();
    REQUIRE(pending.size() == 2);
    CHECK(pending[0].started);
    CHECK_FALSE(pending[1].started);
    MPI_Send(nullptr, 0, MPI_BYTE, last, tag, MPI_COMM_WORLD);
    co_await std::move(first);
    co_await std::move(waits);
  });
}

TEST_CASE("shutdown ends at its deadline", "[coordinator][lifecycle]") {
  cohort_test::on_world([](cohort::communicator world) -> asio::awaitable<void> {
    cohort::coordinator_options options;
    options.leave_deadline = 200ms;
    cohort::coordinator coord(world, options);
    const int last = coord.size() - 1;
    co_await works(coord, "w");
    if (last == 0) co_return co_await coord.shutdown();
    if (coord.rank() == last) {
      co_await meet(world);
    } else {
      const cohort::log::capture lines;
      for (int i = 0; i < 2; ++i) {
        const auto problem = co_await caught<std::system_error>(coord.shutdown());
        REQUIRE(problem);
        CHECK(problem->code() == errc::stalled);
      }
      CHECK(lines.contains("the other ranks have not left in time"));
      co_await meet(world);
    }
    // Where the loop still runs, the end comes all the same.
    // This rank's own deadline may pass before the others have said so.
    if (coord.rank() == last) {
      for (;;) {
        const std::error_code late = co_await cohort_test::code_of(coord.shutdown());
        if (!late) break;
        CHECK(late == errc::stalled);
        co_await pause(5ms);
      }
    }
    co_await cohort::barrier(world);
  });
}

TEST_CASE("a rank that does not leave costs its deadline, not each coordinator the engine's bound",
          "[coordinator][lifecycle]") {
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (size < 2) return;
  const bool held = GENERATE(true, false);  // by the program, or by what dies with the context
  const int count = held ? 2 : 30;
  const int last = size - 1;
  constexpr int tag = 77;
  cohort::coordinator_options options;
  options.leave_deadline = held ? 200ms : 1s;
  const int missing = cohort::process::missing.load();
  const cohort::log::capture lines;
  auto began = std::chrono::steady_clock::now();
  {
    asio::io_context io;
    cohort::use_engine(io, {.drain = 120s});
    const cohort::communicator world(io);
    std::vector<cohort::coordinator> all;
    for (int i = 0; i < count; ++i) all.emplace_back(world, options);
    bool opened = false;
    const auto open = [&](std::vector<cohort::coordinator> own) -> asio::awaitable<void> {
      for (const cohort::coordinator& each : own) co_await each.barrier();
      if (held) own.clear();
      opened = true;
      co_await pause(1h);
    };
    asio::co_spawn(io, open(all), asio::detached);
    if (!held) all.clear();
    while (!opened) io.run_one();
    io.stop();
    if (rank == last) {  // the others have gone
      for (int other = 0; other < last; ++other) {
        MPI_Recv(nullptr, 0, MPI_BYTE, other, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      }
    }
    began = std::chrono::steady_clock::now();
  }
  CHECK(std::chrono::steady_clock::now() - began < cohort_test::patient(15s));
  if (rank != last) MPI_Send(nullptr, 0, MPI_BYTE, last, tag, MPI_COMM_WORLD);
  MPI_Barrier(MPI_COMM_WORLD);
  INFO(lines.text());
  CHECK(lines.contains("coordinator: the other ranks have not left in time"));
  CHECK_FALSE(lines.contains("no connection to rank"));
  CHECK_FALSE(lines.contains("has closed"));
  CHECK(cohort::process::missing.load() == missing + count);
  cohort::process::missing.store(missing);  // they are all here
}

TEST_CASE("statistics count what has been done", "[coordinator][lifecycle]") {
  coordinated([](cohort::communicator, cohort::coordinator coord) -> asio::awaitable<void> {
    const auto before = coord.stats();
    std::vector<std::vector<float>> data(20, std::vector<float>(4));
    for (int round = 0; round < 5; ++round) {
      std::vector<cohort::future<void>> all;
      for (std::size_t i = 0; i < data.size(); ++i) {
        all.push_back(coord.all_reduce("t" + std::to_string(i), data[i], op::sum, as_future));
      }
      co_await cohort::when_all(std::move(all));
    }
    const auto after = coord.stats();
    CHECK(after.submitted - before.submitted == 100);
    CHECK(after.completed - before.completed == 100);
    CHECK(after.failed == before.failed);
    CHECK(after.packed > 0);
    CHECK(after.packed >= 2 * after.packs);
    if (coord.size() > 1) {
      CHECK(after.messages_sent > before.messages_sent);
      CHECK(after.bytes_sent > after.messages_sent);
      CHECK(after.messages_received > before.messages_received);
    } else {
      CHECK(after.messages_sent == 0);
    }
  });
}

TEST_CASE("of a long burst the beginning is told while the rest is named",
          "[coordinator][lifecycle]") {
  cohort_test::on_world([](cohort::communicator world) -> asio::awaitable<void> {
    cohort::coordinator_options options;
    options.fusion_buffer = 4096;
    cohort::coordinator coord(world, options);
    co_await works(coord, "open");
    std::vector<std::vector<float>> data(16, std::vector<float>(256, 1));
    std::vector<cohort::future<void>> all;
    const auto before = coord.stats().messages_sent;
    std::uint64_t told = 0;
    for (std::size_t i = 0; i < data.size(); ++i) {
      all.push_back(coord.all_reduce("t" + std::to_string(i), data[i], op::sum, as_future));
      // No handler has run meanwhile. The root tells nothing unless the others have been as far.
      const auto sent = coord.stats().messages_sent - before;
      if (i < 3) CHECK(sent == 0);
      if (i % 4 != 3) CHECK(sent == told);  // between two full buffers nothing leaves
      told = sent;
      if (i == 3 && coord.rank() != 0) CHECK(sent == 1);
    }
    co_await cohort::when_all(std::move(all));
    for (const auto& each : data) CHECK(each.back() == static_cast<float>(coord.size()));
    co_await coord.shutdown();
  });
}

TEST_CASE("engines of several threads leave objects to MPI at the same time",
          "[coordinator][lifecycle]") {
  cohort::progress::kept_objects kept;
  const auto one = std::make_shared<int>(1);
  std::atomic<bool> go{false};
  std::vector<std::thread> engines;
  for (int i = 0; i < 4; ++i) {
    engines.emplace_back([&] {
      while (!go.load()) std::this_thread::yield();
      for (int k = 0; k < 50'000; ++k) kept.add(one);
    });
  }
  go.store(true);
  for (std::thread& each : engines) each.join();
  CHECK(kept.size() == 200'000);
  CHECK(one.use_count() == 200'001);
}
