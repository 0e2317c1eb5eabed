// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// Calls that return when their operation is over, beside everything else that goes on.

#include <cohort/collectives.hpp>
#include <cohort/comm.hpp>
#include <cohort/p2p.hpp>
#include <cohort/progress/deadline.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "collectives/light.hpp"
#include "collectives/support.hpp"
#include "support/catch.hpp"
#include "support/world.hpp"

namespace blocking_test {

asio::awaitable<int> size_by_sum(cohort::communicator world);  // light.cpp

using namespace std::chrono_literals;
using cohort::as_future;
using cohort::backend_choice;
using cohort::blocking;
using cohort::communicator;
using cohort_test::left_of;
using cohort_test::right_of;
namespace op = cohort::op;

/// What a call fails with.
template <class Call>
std::pair<std::error_code, std::string> failure_of(Call call) {
  try {
    call();
  } catch (const std::system_error& why) {
    return {why.code(), why.what()};
  }
  return {};
}

/// Calls `then` in the loop, later.
template <class Then>
void later(asio::io_context& io, std::chrono::microseconds time, Then then) {
  auto timer = std::make_shared<asio::steady_timer>(io, time);
  timer->async_wait([timer, then](std::error_code) { then(); });
}

}  // namespace blocking_test

TEST_CASE("collectives block on every backend", "[blocking]") {
  using namespace blocking_test;
  asio::io_context io;
  for (const auto choice :
       {backend_choice::environment, backend_choice::mpi, backend_choice::mpi_blocking}) {
    const communicator world(io, {.backend = choice});
    for (int i = 0; i < 5; ++i) {
      each_kind(world, [](bool good) { CHECK(good); });
    }
    const auto statistics = world.stats();
    each_message(world, [](bool good) { CHECK(good); });
    CHECK(cohort::sync_wait(io, size_by_sum(world)) == world.size());
    if (choice != backend_choice::mpi_blocking) continue;
    CHECK(statistics.backend == "blocking");
    CHECK(statistics.by_backend.operations == 5U * 13U);
    CHECK(statistics.operations >= statistics.by_backend.operations);
  }
}

TEST_CASE("where MPI's blocking calls do the collectives, some ranks may await", "[blocking]") {
  using namespace blocking_test;
  asio::io_context io;
  const communicator world(io, {.backend = backend_choice::mpi_blocking});
  for (int i = 0; i < 20; ++i) {
    int sum = 1;
    if ((i + world.rank()) % 2 == 0) {
      cohort::all_reduce(world, sum, op::sum, blocking);
    } else {
      cohort::sync_wait(world, cohort::all_reduce(world, sum, op::sum));
    }
    CHECK(sum == world.size());
  }
}

TEST_CASE("messages block, and say how they end", "[blocking]") {
  using namespace blocking_test;
  asio::io_context io;
  const auto choice = GENERATE(backend_choice::environment, backend_choice::mpi_blocking);
  const communicator world(io, {.backend = choice});
  const int to = right_of(world);
  const int from = left_of(world);
  std::vector<int> out(1000, world.rank());
  std::vector<int> in(2000, -1);
  for (int i = 0; i < 20; ++i) {
    auto sent = cohort::send(world, out, to, i, as_future);
    const cohort::status st = cohort::recv(world, in, cohort::any_source, i, blocking);
    CHECK(st.source() == from);
    CHECK(st.tag() == i);
    CHECK(st.count<int>() == 1000);
    CHECK(in[999] == from);
    cohort::sync_wait(world, std::move(sent));
  }
  // Around the ring, one after the other: nothing is in flight.
  for (int i = 0; i < 20 && world.size() > 1; ++i) {
    if (world.rank() == 0) cohort::send(world, out, to, i, blocking);
    CHECK(cohort::recv(world, in, from, i, blocking).count<int>() == 1000);
    if (world.rank() != 0) cohort::send(world, out, to, i, blocking);
  }
  CHECK(cohort::send_recv(world, out, to, in, from, 5, blocking).source() == from);
  CHECK(cohort::recv(world, in, cohort::no_rank, 0, blocking).count<int>() == 0);
}

TEST_CASE("a blocking call fails with the words of the awaited one", "[blocking]") {
  using namespace blocking_test;
  asio::io_context io;
  const communicator world(io, {.checks = cohort::checks::bounds});
  int value = 1;
  const auto blocked = failure_of([&] { cohort::broadcast(world, value, world.size(), blocking); });
  const auto awaited =
      failure_of([&] { cohort::sync_wait(world, cohort::broadcast(world, value, world.size())); });
  CHECK(blocked.first == cohort::errc::bad_root);
  CHECK(awaited.first == cohort::errc::bad_root);
  const auto facts = [](const std::string& all) { return all.substr(all.find("root")); };
  CHECK(facts(blocked.second) == facts(awaited.second));
  CHECK(world.last_failure().code == cohort::errc::bad_root);

  CHECK(failure_of([&] { cohort::send(world, value, -7, 0, blocking); }).first ==
        cohort::errc::bad_rank);
  CHECK(failure_of([&] { cohort::barrier(communicator(), blocking); }).first ==
        cohort::errc::invalid_communicator);
  std::vector<int> out(10, 1);
  auto sent = cohort::send(world, out, world.rank(), 3, as_future);
  CHECK(failure_of([&] {
          static_cast<void>(cohort::recv(world, value, world.rank(), 3, blocking));
        }).first == cohort::errc::message_too_long);
  cohort::sync_wait(world, std::move(sent));
}

TEST_CASE("a call that waits for too long ends with its deadline", "[blocking]") {
  using namespace blocking_test;
  asio::io_context io;
  const communicator world(io);
  int value = 0;
  const auto receive = [&](auto limit) {
    cohort::sync_wait(world,
                      cohort::with_deadline(cohort::recv(world, value, world.rank(), 4), limit));
  };
  CHECK(failure_of([&] { receive(2ms); }).first == cohort::errc::deadline_exceeded);
  CHECK(failure_of([&] { receive(2ms); }).first == std::errc::timed_out);
  int out = 5;
  auto sent =
      cohort::send(world, out, world.rank(), 4, as_future);  // no receive is left to take it
  receive(60s);
  CHECK(value == 5);
  cohort::sync_wait(world, std::move(sent));
}

TEST_CASE("what else is in flight goes on while a call blocks", "[blocking]") {
  using namespace blocking_test;
  asio::io_context io;
  const communicator world(io);
  std::vector<double> x(1000, 1.0);
  auto sum = cohort::all_reduce(world, x, op::sum, as_future);
  int handlers = 0;
  int in = -1;
  int out = world.rank();
  cohort::recv(world, in, left_of(world), 1,
               [&](std::error_code error, cohort::status) { handlers += error ? 0 : 1; });
  cohort::send(world, out, right_of(world), 1,
               [&](std::error_code error) { handlers += error ? 0 : 1; });
  // From a timer, which the loop has to run meanwhile.
  int late = -1;
  later(io, 2ms, [&] { cohort::send(world, out, world.rank(), 2, asio::detached); });
  static_cast<void>(cohort::recv(world, late, world.rank(), 2, blocking));
  CHECK(late == world.rank());
  cohort::sync_wait(world, std::move(sum));
  while (handlers < 2) cohort::sync_wait(io, cohort_test::pause(100us));
  cohort::barrier(world, blocking);
  CHECK(in == left_of(world));
  CHECK(x[999] == world.size());
}

TEST_CASE("a call that is not over soon goes on as any other operation", "[blocking]") {
  using namespace blocking_test;
  asio::io_context io;
  for (const auto choice :
       {backend_choice::environment, backend_choice::mpi, backend_choice::mpi_blocking}) {
    const communicator world(io, {.backend = choice});
    const bool shares = choice == backend_choice::environment && world.size() > 1;
    // Shared memory is taken into use with the same collective on all ranks.
    for (int i = 0; shares && i < 10'000 && world.stats().backend.empty(); ++i) {
      cohort::barrier(world, blocking);
    }
    const cohort::communicator_statistics before = world.stats();
    CHECK((before.backend == "shm") == shares);
    int sum = 0;
    // The others call only when a handler on rank 0 has run, which waits in its own call for them.
    int go = 0;
    int expected = 2;
    if (choice == backend_choice::mpi_blocking) {  // rank 0 would be in MPI
      expected = 1;
    } else if (world.rank() == 0) {
      expected = world.size();
      asio::post(io, [&] {
        for (int rank = 1; rank < world.size(); ++rank) {
          cohort::send(world, go, rank, 1, asio::detached);
        }
      });
    } else {
      static_cast<void>(cohort::recv(world, go, 0, 1, blocking));
    }
    sum = 1;
    cohort::all_reduce(world, sum, op::sum, blocking);
    CHECK(sum == world.size());
    const cohort::communicator_statistics after = world.stats();
    CHECK(static_cast<int>(after.operations - before.operations) == expected);
    if (shares) CHECK(after.by_backend.operations == before.by_backend.operations + 1);

    const communicator alone(io, MPI_COMM_SELF, {.backend = backend_choice::mpi});
    const int out = world.rank();
    int in = -1;
    asio::post(io, [&] { cohort::send(alone, out, 0, 2, asio::detached); });
    CHECK(cohort::recv(alone, in, 0, 2, blocking).count<int>() == 1);
    CHECK(in == out);
    CHECK(alone.stats().operations == 2);
    cohort::barrier(world, blocking);
  }
}

TEST_CASE("calls that end at once give the loop a turn now and then", "[blocking]") {
  using namespace blocking_test;
  asio::io_context io;
  for (const auto choice :
       {backend_choice::environment, backend_choice::mpi, backend_choice::mpi_blocking}) {
    const communicator alone(io, MPI_COMM_SELF, {.backend = choice});
    bool has_run = false;
    const auto soon = [&] { later(io, 1ms, [&] { has_run = true; }); };
    int value = 1;
    int received = 0;
    soon();
    while (!has_run) cohort::all_reduce(alone, value, op::sum, blocking);
    has_run = false;
    soon();
    while (!has_run) {  // the second of two waits has nothing to wait for
      auto sent = cohort::send(alone, value, 0, 1, as_future);
      static_cast<void>(cohort::recv(alone, received, 0, 1, blocking));
      cohort::sync_wait(io, std::move(sent));
    }
    CHECK(received == 1);
  }
}

TEST_CASE("what ends beside a call is delivered with the next ones", "[blocking]") {
  using namespace blocking_test;
  asio::io_context io;
  const communicator alone(io, MPI_COMM_SELF, {.backend = backend_choice::mpi});
  int beside = 0;
  int waited_for = 0;
  const int out = 1;
  bool is_delivered = false;
  cohort::recv(alone, beside, 0, 2,
               [&](std::error_code, const cohort::status&) { is_delivered = true; });
  later(io, 5ms, [&] {  // both are found in one look
    const cohort::mpi::lock calls;
    std::array<MPI_Request, 2> sends{MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    MPI_Isend(&out, 1, MPI_INT, 0, 2, alone.native(), &sends[0]);
    MPI_Isend(&out, 1, MPI_INT, 0, 3, alone.native(), &sends[1]);
    MPI_Waitall(2, sends.data(), MPI_STATUSES_IGNORE);
  });
  static_cast<void>(cohort::recv(alone, waited_for, 0, 3, blocking));
  CHECK(waited_for == 1);
  for (int calls = 0; calls < 3 && !is_delivered; ++calls) cohort::barrier(alone, blocking);
  CHECK(is_delivered);
}

TEST_CASE("what a handler throws comes out once the call is over", "[blocking]") {
  using namespace blocking_test;
  asio::io_context io;
  const communicator world(io);
  int in = -1;
  int out = 5;
  asio::post(io, [] { throw std::logic_error("of another"); });
  later(io, 2ms, [&] { cohort::send(world, out, world.rank(), 2, asio::detached); });
  CHECK_THROWS_AS(cohort::recv(world, in, world.rank(), 2, blocking), std::logic_error);
  CHECK(in == 5);
  cohort::barrier(world, blocking);
}

TEST_CASE("a call that blocks goes on in a loop that is stopped", "[blocking]") {
  using namespace blocking_test;
  asio::io_context io;
  const communicator world(io);
  int in = -1;
  int out = 5;
  later(io, 1ms, [&] { io.stop(); });
  later(io, 3ms, [&] { cohort::send(world, out, world.rank(), 2, asio::detached); });
  static_cast<void>(cohort::recv(world, in, world.rank(), 2, blocking));
  CHECK(in == 5);
  CHECK(io.stopped());  // as it was asked to
  cohort::barrier(world, blocking);
}

TEST_CASE("two threads block at a time", "[blocking]") {
  using namespace blocking_test;
  if (cohort::mpi::level() < cohort::thread_level::serialized) return;
  asio::io_context io;
  const communicator one(io);
  const communicator two(io);
  const auto sums = [](const communicator& on, int& good) {
    for (int i = 0; i < 100; ++i) {
      int sum = 1;
      cohort::all_reduce(on, sum, op::sum, blocking);
      good += sum == on.size() ? 1 : 0;
    }
  };
  int first = 0;
  int second = 0;
  std::thread other([&] { sums(two, second); });
  sums(one, first);
  other.join();
  CHECK(first == 100);
  CHECK(second == 100);
}

TEST_CASE("a call beside a thread that runs the loop again is refused", "[blocking]") {
  using namespace blocking_test;
  if (cohort::mpi::level() < cohort::thread_level::serialized) return;
  asio::io_context io;
  const communicator alone(io, MPI_COMM_SELF, {.backend = backend_choice::mpi});
  cohort::barrier(alone, asio::detached);
  std::thread([&] { io.run(); }).join();  // the last lap was that thread's
  for (int i = 0; i < 3; ++i) cohort::barrier(alone, blocking);
  io.restart();
  auto work = asio::make_work_guard(io);
  std::atomic<bool> runs{false};
  asio::post(io, [&] { runs = true; });
  std::thread other([&] { io.run(); });
  while (!runs) std::this_thread::yield();
  const auto refused = failure_of([&] { cohort::barrier(alone, blocking); });
  work.reset();
  other.join();
  CHECK(refused.first == cohort::errc::wrong_thread);
  cohort::barrier(alone, blocking);
}

TEST_CASE("where the loop has a thread, a call sleeps until that has done it", "[blocking]") {
  using namespace blocking_test;
  if (cohort::mpi::level() < cohort::thread_level::serialized) return;
  cohort::progress_thread thread;
  const communicator world(thread.context());
  for (int i = 0; i < 20; ++i) {
    int sum = 1;
    cohort::all_reduce(world, sum, op::sum, blocking);
    CHECK(sum == world.size());
  }
}
