// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// The context is destroyed, or a handler throws, after each step of a program that has everything
// in flight. There is nothing to compare: the sanitizers say whether it was clean.

#include <cohort/collectives/all_reduce.hpp>
#include <cohort/comm/operation.hpp>
#include <cohort/p2p/recv.hpp>
#include <cohort/p2p/send.hpp>
#include <cohort/p2p/wait.hpp>
#include <cohort/progress/context.hpp>
#include <cohort/progress/deadline.hpp>
#include <cohort/progress/future.hpp>
#include <cohort/progress/when_all.hpp>

#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "support/catch.hpp"

namespace {

using cohort::communicator;
using namespace std::chrono_literals;

/// Sends itself messages, sums alone, and has a receive posted that nobody answers.
asio::awaitable<void> busy(communicator self) {
  double never = 0;
  std::vector<double> numbers(100, 1.0);
  auto unanswered = cohort::recv(self, never, 0, 1, cohort::as_future);
  for (int round = 0; round < 3; ++round) {
    std::vector<cohort::future<>> futures;
    std::array<double, 3> sums{1, 2, 3};
    for (double& sum : sums) {
      futures.push_back(cohort::all_reduce(self, sum, cohort::op::sum, cohort::as_future));
    }
    int got = 0;
    auto incoming = cohort::recv(self, got, 0, 2, cohort::as_future);
    co_await cohort::send(self, round, 0, 2);
    co_await std::move(incoming);
    if (got != round) throw std::logic_error("got another message");
    co_await cohort::when_all(std::move(futures));
    numbers = co_await cohort::all_reduce(self, std::move(numbers), cohort::op::average);
    auto sent = cohort::send(self, std::vector<int>(20, round), 0, 3, cohort::as_future);
    auto [list, status] = co_await cohort::recv<std::vector<int>>(self, 0, 3);
    if (list.size() != 20) throw std::logic_error("another size");
    co_await std::move(sent);
    MPI_Request request = MPI_REQUEST_NULL;
    {
      const cohort::mpi::lock calls;
      MPI_Irecv(&got, 1, MPI_INT, 0, 4, self.native(), &request);
    }
    auto waiting = cohort::wait(self, request, cohort::as_future);
    co_await cohort::send(self, round, 0, 4);
    co_await std::move(waiting);
    try {
      int nothing = 0;
      co_await cohort::with_deadline(cohort::recv(self, nothing, 0, 5), 100us);
      throw std::logic_error("a message from nowhere");
    } catch (const cohort::deadline_error&) {
    }
    co_await asio::post(asio::use_awaitable);
  }
}

/// Runs handlers until `steps` have run or none is left; says how many did.
int take_steps(asio::io_context& io, int steps) {
  int taken = 0;
  while (taken < steps && io.run_one_for(200ms) != 0) ++taken;
  return taken;
}

/// MPICH completes a send to oneself when it has been matched, not before.
bool is_mpich() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  MPI_Get_library_version(text, &length);
  return std::string(text, static_cast<std::size_t>(length)).find("MPICH") != std::string::npos;
}

TEST_CASE("the context may be destroyed after each step") {
  cohort::communicator_options checked;
  checked.checks =
      GENERATE(cohort::checks::local, cohort::checks::bounds, cohort::checks::cross_rank);
  // A receive that looks first is given up before it has matched: its send to oneself then stays.
  if (checked.checks != cohort::checks::local && is_mpich()) return;
  int steps = 0;
  for (bool more = true; more; ++steps) {
    CAPTURE(steps);
    asio::io_context io;
    // Long laps do much in a step, short ones little; both must be interruptible.
    cohort::engine_options options;
    if (steps % 2 == 0) options.long_lap = 1;
    cohort::use_engine(io, options);
    bool ended = false;
    asio::co_spawn(io, busy(communicator(io, MPI_COMM_SELF, checked)),
                   [&](std::exception_ptr failed) {
                     CHECK_FALSE(failed);
                     ended = true;
                   });
    take_steps(io, steps);
    more = !ended && steps < 200;
  }
  CHECK(steps > 5);
}

TEST_CASE("the context may be destroyed with ranks in the middle of a collective") {
  for (int steps = 0; steps < 12; ++steps) {
    std::vector<double> mine(1000, steps);  // before the context, which still waits for MPI
    asio::io_context io;
    const auto body = [](communicator world) -> asio::awaitable<void> {
      std::vector<double> numbers(10'000, 1.0);
      for (;;) co_await cohort::all_reduce(world, numbers, cohort::op::average);
    };
    const communicator world{io};
    // The same number of operations is started everywhere: the destroyed context waits for them.
    for (int i = 0; i < steps; ++i) {
      cohort::all_reduce(world, mine, cohort::op::max, asio::detached);
    }
    if (world.size() == 1) asio::co_spawn(io, body(world), asio::detached);
    take_steps(io, world.rank() == 0 ? steps : 1);
  }
}

TEST_CASE("a handler that throws leaves the others to be called") {
  constexpr int n = 40;
  for (int bad = 0; bad < n; bad += 7) {
    asio::io_context io;
    const communicator self{io, MPI_COMM_SELF};
    std::vector<int> numbers(n);
    std::vector<int> calls(n);
    for (int i = 0; i < n; ++i) {
      cohort::recv(self, numbers[static_cast<std::size_t>(i)], 0, i,
                   [&, i](std::error_code failed, cohort::status) {
                     CHECK_FALSE(failed);
                     ++calls[static_cast<std::size_t>(i)];
                     if (i % 7 == bad % 7 || i == bad) throw i;
                   });
    }
    for (int i = 0; i < n; ++i) {
      cohort::send(self, std::vector<int>{i}, 0, i, [](std::error_code, std::vector<int>) {});
    }
    int thrown = 0;
    for (bool done = false; !done;) {
      try {
        io.run();
        done = true;
      } catch (int) {
        ++thrown;
      }
    }
    CHECK(thrown == static_cast<int>(n + 6) / 7);
    CHECK(calls == std::vector<int>(n, 1));
  }
}

// A long lap lets one other handler run inside it, which may do anything.
TEST_CASE("a handler inside a long lap may throw, stop the loop, look, and start operations") {
  asio::io_context io;
  const communicator self{io, MPI_COMM_SELF};
  int never = 0;
  bool cancelled = false;
  asio::cancellation_signal end;
  cohort::recv(self, never, 0, 1,
               asio::bind_cancellation_slot(end.slot(), [&](std::error_code why, cohort::status) {
                 cancelled = why == asio::error::operation_aborted;
               }));
  int seen = 0;
  asio::steady_timer later(io);
  for (int round = 0; round < 200; ++round) {
    later.expires_after(20us);
    later.async_wait([&, round](std::error_code) {
      ++seen;
      cohort::poll(self);
      double one = 1;
      cohort::all_reduce(self, one, cohort::op::sum, cohort::as_future).cancel();
      cohort::poll(self);
      if (round % 3 == 0) throw std::runtime_error("from inside");
      if (round % 3 == 1) io.stop();
    });
    try {
      io.restart();
      if (round % 3 == 2) {
        io.run_one_for(10ms);
      } else {
        io.run_for(5s);
        CHECK(round % 3 == 1);
      }
    } catch (const std::runtime_error&) {
      CHECK(round % 3 == 0);
    }
  }
  CHECK(seen > 130);
  end.emit(asio::cancellation_type::terminal);
  io.restart();
  io.run();
  CHECK(cancelled);
}

TEST_CASE("the signal of a pending operation may die before the context") {
  double number = 0;
  asio::io_context io;
  const communicator self{io, MPI_COMM_SELF};
  std::optional<asio::cancellation_signal> ends(std::in_place);
  cohort::recv(self, number, 0, 1,
               asio::bind_cancellation_slot(ends->slot(), [](std::error_code, cohort::status) {}));
  asio::co_spawn(io, busy(self), asio::bind_cancellation_slot(ends->slot(), asio::detached));
  io.poll();
  ends.reset();
}

/// Starts an operation when it is destroyed, as a clumsy destructor would.
struct parting_shot {
  explicit parting_shot(communicator over) : comm(std::move(over)) {}
  parting_shot(parting_shot&&) noexcept = default;
  ~parting_shot() {
    if (!comm) return;
    static double number = 0;
    cohort::all_reduce(comm, number, cohort::op::sum, asio::detached);
    cohort::recv(comm, number, 0, 9, asio::detached);
  }
  communicator comm;
};

TEST_CASE("an operation that starts while the context is destroyed is destroyed with it") {
  const cohort::log::capture quiet;
  asio::io_context io;
  const auto body = [](communicator self) -> asio::awaitable<void> {
    const parting_shot last(self);
    double never = 0;
    co_await cohort::recv(self, never, 0, 1);
  };
  const auto idle = [](communicator self) -> asio::awaitable<void> {
    const parting_shot last(self);
    asio::steady_timer timer(co_await asio::this_coro::executor, 1h);
    co_await timer.async_wait(asio::use_awaitable);
  };
  asio::co_spawn(io, body(communicator(io, MPI_COMM_SELF)), asio::detached);
  asio::co_spawn(io, idle(communicator(io, MPI_COMM_SELF)), asio::detached);
  io.poll();
}

TEST_CASE("so is one that starts when the engine has left, and that holds the last handle") {
  struct owner {
    communicator comm;
    std::unique_ptr<parting_shot> last;
    ~owner() {
      if (comm) comm.dup([kept = std::move(last)](std::error_code, const communicator&) {});
    }
  };
  const cohort::log::capture quiet;
  asio::io_context io;
  auto held = std::make_unique<owner>();
  held->comm = communicator(io, MPI_COMM_SELF);
  held->last = std::make_unique<parting_shot>(held->comm);
  asio::post(io, [held = std::move(held)] {});  // dies with the loop itself
}

TEST_CASE("a handler of another context is destroyed with whichever context goes first") {
  const bool engine_first = GENERATE(true, false);
  const bool fails = GENERATE(true, false);
  const bool complete = GENERATE(true, false);
  const cohort::log::capture quiet;
  std::optional<asio::io_context> engine_side(std::in_place);
  std::optional<asio::io_context> other_side(std::in_place);
  double number = 1;
  {
    const communicator self{*engine_side, MPI_COMM_SELF};
    auto token =
        asio::bind_executor(other_side->get_executor(), [kept = std::vector<int>(1000)](auto&&...) {
          FAIL("called although its context never ran");
        });
    if (fails) {
      cohort::send(self, number, 77, 0, token);  // no such rank
    } else {
      cohort::all_reduce(self, number, cohort::op::sum, token);
    }
  }
  if (complete) engine_side->run();
  // An operation that is pending holds work of its handler's context, which must live for so long.
  if (engine_first || !complete) engine_side.reset();
  other_side.reset();
  engine_side.reset();
}

TEST_CASE("an operation over a buffer of its own lets go of its handler") {
  asio::io_context io;
  communicator world{io};
  asio::cancellation_signal enough;
  std::error_code result;
  int calls = 0;
  cohort::send<cohort::send_mode::synchronous>(
      world, std::vector<int>(3, 7), world.rank(), 1,
      asio::bind_cancellation_slot(enough.slot(), [&](std::error_code why, std::vector<int> back) {
        ++calls;
        result = why;
        CHECK(back.empty());
      }));
  enough.emit(asio::cancellation_type::partial);  // it is terminal or nothing
  io.poll();
  CHECK(calls == 0);
  enough.emit(asio::cancellation_type::terminal);
  enough.emit(asio::cancellation_type::terminal);
  CHECK(calls == 0);  // never inside the emission
  std::array<int, 3> received{};
  io.poll();
  CHECK(calls == 1);
  CHECK(result == asio::error::operation_aborted);
  cohort::recv(world, received, world.rank(), 1, asio::detached);
  world = communicator();  // the operation keeps what MPI needs
  io.run();
  CHECK(received == std::array<int, 3>{7, 7, 7});
  CHECK(calls == 1);
}

TEST_CASE("an operation over a borrowed buffer ignores cancellation") {
  asio::io_context io;
  const communicator world{io};
  asio::cancellation_signal signal;
  double number = 1;
  std::error_code result = asio::error::operation_aborted;
  cohort::all_reduce(
      world, number, cohort::op::sum,
      asio::bind_cancellation_slot(signal.slot(), [&](std::error_code why) { result = why; }));
  signal.emit(asio::cancellation_type::terminal);
  io.run();
  CHECK_FALSE(result);
  CHECK(number == world.size());
  signal.emit(asio::cancellation_type::terminal);  // long over
}

TEST_CASE("cancelling a receive races with its message, and one of them wins") {
  const bool unknown_size = GENERATE(false, true);
  for (int n = 0; n < 100; ++n) {
    asio::io_context io;
    const communicator self{io, MPI_COMM_SELF};
    asio::cancellation_signal signal;
    int number = 0;
    int calls = 0;
    std::error_code result;
    const auto note = [&](std::error_code why, auto&&...) {
      ++calls;
      result = why;
    };
    auto token = asio::bind_cancellation_slot(signal.slot(), note);
    if (unknown_size) {
      cohort::recv<std::vector<int>>(self, 0, 1, token);
    } else {
      cohort::recv(self, number, 0, 1, token);
    }
    const int sent = 5;
    MPI_Request request = MPI_REQUEST_NULL;
    if (n % 2 == 0) MPI_Isend(&sent, 1, MPI_INT, 0, 1, self.native(), &request);
    for (int look = 0; look < n % 5; ++look) cohort::poll(self);
    signal.emit(asio::cancellation_type::total);
    signal.emit(asio::cancellation_type::terminal);
    io.run();
    CHECK(calls == 1);
    if (n % 2 == 1) CHECK(result == asio::error::operation_aborted);
    if (result) {
      CHECK(result == asio::error::operation_aborted);
      if (n % 2 == 0) MPI_Recv(&number, 1, MPI_INT, 0, 1, self.native(), MPI_STATUS_IGNORE);
    }
    if (n % 2 == 0) MPI_Wait(&request, MPI_STATUS_IGNORE);
  }
}

}  // namespace
