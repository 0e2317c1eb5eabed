// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// Ranks that do not answer: what the others learn, and that nobody hangs. Part of the executable
// coordinator.verbs.
#include <cohort/collectives.hpp>
#include <cohort/core/log.hpp>
#include <cohort/p2p.hpp>
#include <cohort/progress/deadline.hpp>

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <fstream>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/support.hpp"
#include "support/patience.hpp"

namespace {

using namespace std::chrono_literals;
using cohort_test::caught;

cohort::coordinator_options impatient() {
  cohort::coordinator_options options;
  options.query_timeout = 100ms;
  options.decision_timeout = 400ms;
  return options;
}

constexpr int tag = 79;

/// Stops this process as a batch system or a debugger does. Somebody else is to continue it; a
/// child sees to that when nobody has after 20 s, so a test that fails does not hang.
void stop_process() {
  const pid_t self = getpid();
  const pid_t guard = fork();
  REQUIRE(guard >= 0);
  if (guard == 0) {  // only what may be called between fork and exec
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    sleep(20);
    kill(self, SIGCONT);
    _exit(0);
  }
  raise(SIGSTOP);
  kill(guard, SIGKILL);
  waitpid(guard, nullptr, 0);
}

bool is_stopped(long pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(file, text);
  const std::size_t name_ends = text.rfind(')');
  return name_ends != std::string::npos && text.substr(name_ends).starts_with(") T");
}

/// What the ranks of a chain see of one that is stopped.
asio::awaitable<void> see_one_stopped(cohort::communicator world, int stopped) {
  const int rank = world.rank();
  const int size = world.size();
  const int last = size - 1;
  const bool leaf = stopped == last && stopped != 0;
  // Nobody but the stopped rank is to be too late for these.
  cohort::coordinator_options chain;
  chain.query_timeout = leaf ? 2s : 900ms;
  chain.decision_timeout = leaf ? 10s : cohort_test::patient(2s);  // half of it for answers
  chain.radix = 1;
  cohort::coordinator coord(world, chain);
  const auto pids = co_await coord.all_gather_object("pids", static_cast<long>(getpid()));
  std::vector<int> data(3, 1);
  // The waker continues the stopped rank when all others have their error.
  const int waker = stopped == 0 ? 1 : 0;
  const std::vector<int> others = cohort_test::ranks_below(size, stopped);
  // It stops when nobody needs it for what was before, and the others go on when it has.
  if (rank == stopped) {
    for (const int other : others) {
      int from = 0;
      co_await cohort::recv(world, from, other, 1);
    }
    co_await cohort_test::pause(20ms);
    stop_process();
  } else {
    co_await cohort::send(world, rank, stopped, 1);
    while (!is_stopped(pids[static_cast<std::size_t>(stopped)])) co_await cohort_test::pause(5ms);
  }
  if (rank == stopped) {
    co_await cohort_test::pause(300ms);  // it takes in what the others have sent
    std::vector<int> blamed;
    try {
      co_await coord.all_reduce("x", data, cohort::op::sum);
      FAIL_CHECK("completed without ranks that have given up");
    } catch (const cohort::withdrawn_error& told) {
      blamed = told.ranks();
    } catch (const cohort::peer_lost_error& told) {
      CHECK(stopped == 0);  // who decides may hear first that they have left
      blamed = told.ranks();
    }
    REQUIRE(!blamed.empty());
    if (stopped == 0) {
      CHECK(blamed.front() > 0);
    } else {
      CHECK(blamed == std::vector<int>{0});
    }
  } else if (rank == 0 || rank > stopped) {
    auto x = coord.all_reduce("x", data, cohort::op::sum, cohort::as_future);
    if (leaf) co_await cohort_test::until_known(coord, last);
    const auto problem =
        co_await caught<cohort::deadline_error>(cohort::with_deadline(std::move(x), 50ms));
    REQUIRE(problem);
    const cohort::stall_facts& stall = problem->stall();
    if (rank == 0) {  // it decides, and asks first [protocol W3]
      CHECK(stall.ready == cohort_test::ranks_below(stopped));
      if (leaf) {  // a leaf is not asked
        CHECK(stall.missing == std::vector<int>{last});
        CHECK(stall.silent.empty());
        CHECK(stall.unknown.empty());
      } else {
        CHECK(stall.silent == std::vector<int>{stopped});
        std::vector<int> beyond;
        for (int i = stopped + 1; i < size; ++i) beyond.push_back(i);
        CHECK(stall.unknown == beyond);
      }
    } else {  // no decision can come [protocol W4]
      const std::chrono::milliseconds waited = cohort_test::patient(2s);
      CHECK(cohort_test::has(problem->what(),
                             "no decision within " + std::to_string(waited.count()) + " ms"));
      const std::string parent = "rank " + std::to_string(rank - 1) + ", this rank's parent, ";
      if (rank == stopped + 1) {
        CHECK(cohort_test::has(problem->what(), parent + "does not answer"));
        CHECK(stall.silent == std::vector<int>{stopped});
      } else {
        CHECK(cohort_test::has(problem->what(), parent + "answers, so it is a rank beyond it"));
        CHECK(stall.silent.empty());
      }
    }
  } else {  // between the root and the stopped rank
    const auto problem =
        co_await caught<cohort::withdrawn_error>(coord.all_reduce("x", data, cohort::op::sum));
    REQUIRE(problem);
    CHECK(problem->ranks() == std::vector<int>{0});
    CHECK(problem->stall().ready == cohort_test::ranks_below(stopped));
  }
  if (rank == waker) {
    for (std::size_t i = 1; i < others.size(); ++i) {
      int from = 0;
      co_await cohort::recv(world, from, others[i], 2);
    }
    CHECK(kill(static_cast<pid_t>(pids[static_cast<std::size_t>(stopped)]), SIGCONT) == 0);
  } else if (rank != stopped) {
    co_await cohort::send(world, rank, waker, 2);
  }
  // Only ranks below the stopped one had to leave.
  if (leaf) {
    co_await cohort_test::works(coord, "after");
  } else if (rank > stopped) {
    const auto after = co_await cohort_test::code_of(coord.all_reduce("y", data, cohort::op::sum));
    CHECK(after == cohort::errc::not_accepting);
  } else {
    const auto after =
        co_await caught<cohort::peer_lost_error>(coord.all_reduce("y", data, cohort::op::sum));
    REQUIRE(after);
    for (const int one : after->ranks()) CHECK(one > stopped);
  }
  co_await coord.shutdown();
  cohort::coordinator next(world);
  co_await cohort_test::works(next, "anew");
  co_await next.shutdown();
}

}  // namespace

TEST_CASE("a root that computes: the others end at their decision timeout",
          "[coordinator][silent]") {
  // Whether the root takes in what has arrived before it submits: then it knows of the withdrawal.
  // Otherwise it may elect the operation first, and the data of those that gave up are still there.
  // Compressed, the copies are those of the caller's type.
  const auto both = GENERATE(std::pair(true, cohort::compression::none),
                             std::pair(false, cohort::compression::none),
                             std::pair(false, cohort::compression::bf16));
  cohort_test::on_world([looks_first = both.first,
                         how = both.second](cohort::communicator world) -> asio::awaitable<void> {
    if (world.size() < 2) co_return;
    cohort::coordinator coord(world, impatient());
    co_await cohort_test::works(coord, "before");
    std::vector<double> data(3, 1);
    cohort::call_options options;
    options.compression = how;
    if (world.rank() == 0) {
      std::uint64_t sent = 0;  // by all others; a long computation in one handler
      for (int rank = 1; rank < world.size(); ++rank) {
        std::uint64_t of_rank = 0;
        MPI_Recv(&of_rank, 1, MPI_UINT64_T, rank, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        sent += of_rank;
      }
      if (looks_first) {
        const auto limit = std::chrono::steady_clock::now() + cohort_test::patient(20s);
        while (coord.stats().messages_received < sent) {
          REQUIRE(std::chrono::steady_clock::now() < limit);
          co_await cohort_test::pause(5ms);
        }
        const auto told = co_await caught<cohort::withdrawn_error>(
            coord.all_reduce("x", data, cohort::op::sum, options));
        REQUIRE(told);
      } else {
        const auto code =
            co_await cohort_test::code_of(coord.all_reduce("x", data, cohort::op::sum, options));
        if (!code) CHECK(data == std::vector<double>(3, world.size()));
      }
    } else {
      options.deadline = 50ms;
      const auto problem = co_await caught<cohort::deadline_error>(
          coord.all_reduce("x", data, cohort::op::sum, options));
      REQUIRE(problem);
      CHECK(cohort_test::has(problem->what(), "no decision within 400 ms"));
      CHECK(cohort_test::has(problem->what(), "rank 0, this rank's parent, does not answer"));
      CHECK(problem->stall().silent == std::vector<int>{0});
      const std::uint64_t sent = coord.stats().messages_sent;
      MPI_Send(&sent, 1, MPI_UINT64_T, 0, tag, MPI_COMM_WORLD);
      const auto after =
          co_await cohort_test::code_of(coord.all_reduce("y", data, cohort::op::sum));
      CHECK(after == cohort::errc::not_accepting);
    }
    co_await coord.shutdown();
  });
}

namespace {

/// Until this is true.
template <class Condition>
asio::awaitable<void> until(Condition condition) {
  const auto limit = std::chrono::steady_clock::now() + cohort_test::patient(20s);
  while (!condition()) {
    REQUIRE(std::chrono::steady_clock::now() < limit);
    co_await cohort_test::pause(1ms);
  }
}

/// Blocks the thread until that rank says so: a long computation in one handler.
void compute_until_told(int by) {
  MPI_Recv(nullptr, 0, MPI_BYTE, by, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}
void tell(int rank) { MPI_Send(nullptr, 0, MPI_BYTE, rank, tag, MPI_COMM_WORLD); }

/// What the operation "earlier" of all ranks waits for on rank 2, so that ranks 0 and 1 agree on a
/// set and none can be confirmed before rank 2 is told by rank 1.
struct held_back {
  std::uint64_t sent;
  cohort::future<void> earlier;
};

/// `data` is of "earlier".
held_back hold_back(const cohort::coordinator& coord, std::vector<double>& data) {
  const std::uint64_t sent = coord.stats().messages_sent;
  if (coord.rank() == 0) compute_until_told(2);
  return {sent, coord.all_reduce("earlier", data, cohort::op::sum, cohort::as_future)};
}

/// Rank 2's part.
asio::awaitable<void> let_agree(const cohort::coordinator& coord, std::uint64_t sent) {
  co_await cohort_test::until_sent(coord, sent);
  tell(0);
  compute_until_told(1);
}

/// Rank 1's: asks for the set, and returns when that is agreed on.
asio::awaitable<cohort::future<cohort::process_set>> ask_between(cohort::coordinator coord) {
  co_await until([&] {
    const auto pending = coord.pending();
    return pending.size() == 1 && pending[0].started;
  });
  const std::uint64_t received = coord.stats().messages_received;
  auto set = coord.add_process_set(cohort::ranks(0, 1), cohort::as_future);
  co_await until([&] { return coord.stats().messages_received > received; });
  co_return set;
}

/// Rank 1 gives up what the others do not submit.
asio::awaitable<void> gives_up(cohort::coordinator coord) {
  std::vector<double> data(3, 1);
  const auto other = co_await caught<cohort::deadline_error>(
      cohort::with_deadline(coord.all_reduce("nobody else", data, cohort::op::sum), 1ms));
  REQUIRE(other);
}

/// Rank 1 gives up while it waits for a set.
asio::awaitable<void> gives_up(cohort::coordinator coord,
                               cohort::future<cohort::process_set> waiting) {
  co_await gives_up(coord);
  const auto problem = co_await caught<cohort::deadline_error>(std::move(waiting));
  REQUIRE(problem);
  CHECK(cohort_test::has(problem->what(), "no decision within 400 ms"));
  CHECK(problem->stall().silent == std::vector<int>{0});
}

/// `body(world, coord)` on at least `least` ranks, with an impatient coordinator that has worked.
template <class Body>
void on_ranks(int least, Body body) {
  cohort_test::on_world([&](cohort::communicator world) -> asio::awaitable<void> {
    if (world.size() < least) co_return;
    cohort::coordinator coord(world, impatient());
    co_await cohort_test::works(coord, "before");
    co_await body(world, coord);
  });
}

}  // namespace

// A rank asks for a process set in two steps, and may give up before each is decided, or between.
TEST_CASE("a rank that gives up a process set before it is agreed on", "[coordinator][silent]") {
  on_ranks(2, [](cohort::communicator world, cohort::coordinator coord) -> asio::awaitable<void> {
    if (world.rank() == 0) {
      compute_until_told(1);
      // It may be agreed on with what rank 1 has sent first; but not confirmed by a rank that left.
      auto set = coord.add_process_set(cohort::ranks(0, 1), cohort::as_future);
      bool ended = false;
      try {
        co_await std::move(set);
      } catch (const cohort::withdrawn_error& told) {
        ended = told.ranks() == std::vector<int>{1};
      } catch (const cohort::peer_lost_error& told) {
        ended = told.ranks() == std::vector<int>{1};
      }
      CHECK(ended);
    } else if (world.rank() == 1) {
      co_await gives_up(coord, coord.add_process_set(cohort::ranks(0, 1), cohort::as_future));
      tell(0);
    }
    co_await cohort::barrier(world);  // nobody leaves before
    co_await coord.shutdown();
  });
}

TEST_CASE("a rank that gives up a process set between its steps", "[coordinator][silent]") {
  on_ranks(3, [](cohort::communicator world, cohort::coordinator coord) -> asio::awaitable<void> {
    const int rank = world.rank();
    // Rank 2 takes no part in it before it is told, so no set is confirmed anywhere.
    std::vector<double> data(3, 1);
    held_back held = hold_back(coord, data);
    if (rank == 2) {
      co_await let_agree(coord, held.sent);
    } else if (rank == 0) {
      auto set = coord.add_process_set(cohort::ranks(0, 1), cohort::as_future);
      int agreed = 0;
      while (agreed == 0) {
        co_await cohort_test::pause(1ms);
        MPI_Iprobe(1, tag, MPI_COMM_WORLD, &agreed, MPI_STATUS_IGNORE);
      }
      compute_until_told(1);
      tell(1);
      compute_until_told(1);
      const auto lost = co_await caught<cohort::peer_lost_error>(std::move(set));
      REQUIRE(lost);
      CHECK(lost->ranks() == std::vector<int>{1});
    } else if (rank == 1) {
      auto set = co_await ask_between(coord);
      tell(0);
      compute_until_told(0);  // which computes as well then
      co_await gives_up(coord, std::move(set));
      tell(0);
      tell(2);
    }
    co_await std::move(held.earlier);
    CHECK(data == std::vector<double>(3, world.size()));
    co_await coord.shutdown();
  });
}

TEST_CASE("a process set that is withdrawn between its steps", "[coordinator][silent]") {
  on_ranks(3, [](cohort::communicator world, cohort::coordinator coord) -> asio::awaitable<void> {
    const int rank = world.rank();
    std::vector<double> data(3, 1);
    held_back held = hold_back(coord, data);
    if (rank == 2) {
      co_await let_agree(coord, held.sent);
    } else if (rank == 0) {
      auto set = coord.add_process_set(cohort::ranks(0, 1), cohort::as_future);
      const auto told = co_await caught<cohort::withdrawn_error>(std::move(set));
      REQUIRE(told);
      CHECK(told->ranks() == std::vector<int>{1});
    } else if (rank == 1) {
      auto set = co_await ask_between(coord);
      set.cancel();
      // Twice the time in which a decision would have to come: it waits for none.
      co_await cohort_test::pause(800ms);
      tell(2);
      const auto ended = co_await caught<std::system_error>(std::move(set));
      REQUIRE(ended);
      CHECK(ended->code() == asio::error::operation_aborted);
    }
    co_await std::move(held.earlier);
    co_await cohort_test::works(coord, "after");  // so no rank has left
    co_await coord.shutdown();
  });
}

TEST_CASE("a rank that gives up a persistent group which is made all the same",
          "[coordinator][silent]") {
  on_ranks(2, [](cohort::communicator world, cohort::coordinator coord) -> asio::awaitable<void> {
    std::vector<float> data(10, 1);
    auto making = coord.make_persistent(cohort::bundle("group").add("data", data), cohort::op::sum,
                                        {}, cohort::as_future);
    if (world.rank() == 0) {
      compute_until_told(1);
      // Its start may come before rank 0 hears that rank 1 has left: then it is made up for there.
      std::error_code refused;
      try {
        const auto group = co_await std::move(making);
        refused = co_await cohort_test::code_of(group.start());
      } catch (const cohort::withdrawn_error& told) {
        refused = told.code();
      }
      CHECK(refused);
    } else if (world.rank() == 1) {
      co_await gives_up(coord);
      const auto problem = co_await caught<cohort::deadline_error>(std::move(making));
      REQUIRE(problem);
      tell(0);
    } else {
      static_cast<void>(co_await cohort_test::code_of(std::move(making)));
    }
    co_await cohort::barrier(world);
    co_await coord.shutdown();
  });
}

TEST_CASE("a rank that gives up ends its join as well", "[coordinator][silent]") {
  on_ranks(2, [](cohort::communicator world, cohort::coordinator coord) -> asio::awaitable<void> {
    if (world.rank() == 0) {
      compute_until_told(1);
    } else if (world.rank() == 1) {
      std::vector<double> data(3, 1);
      auto other = coord.all_reduce("nobody else", data, cohort::op::sum, cohort::as_future);
      auto join = coord.join(cohort::as_future);
      const auto late =
          co_await caught<cohort::deadline_error>(cohort::with_deadline(std::move(other), 1ms));
      REQUIRE(late);
      const auto problem = co_await caught<cohort::deadline_error>(std::move(join));
      REQUIRE(problem);
      CHECK(cohort_test::has(problem->what(), "rank 1: join: no decision within 400 ms"));
      tell(0);
    }
    co_await cohort::barrier(world);  // nobody leaves before
    co_await coord.shutdown();
  });
}

// Its context ends while that is made, or goes on.
TEST_CASE("a rank that gives up a process set which is made all the same",
          "[coordinator][silent]") {
  const bool ends = GENERATE(false, true);
  const auto body = [ends](cohort::communicator world) -> asio::awaitable<void> {
    const int rank = world.rank();
    if (world.size() < 2) co_return;
    cohort::coordinator other(world);
    co_await cohort_test::works(other, "before");
    cohort::coordinator coord(world, impatient());
    co_await cohort_test::works(coord, "before");
    const cohort::coordinator_statistics before = coord.stats();
    const auto confirmed = [&] { return coord.stats().submitted == before.submitted + 2; };
    if (rank == 0) {
      compute_until_told(1);
      auto waiting = coord.add_process_set(cohort::ranks(0, 1), cohort::as_future);
      const auto others = static_cast<std::uint64_t>(world.size() - 1);
      co_await until([&] {
        return confirmed() && coord.stats().messages_sent >= before.messages_sent + others;
      });
      tell(1);
      compute_until_told(1);
      const cohort::process_set set = co_await std::move(waiting);
      std::vector<double> data(3, 1);
      const auto lost =
          co_await caught<cohort::peer_lost_error>(set.all_reduce("x", data, cohort::op::sum));
      REQUIRE(lost);
      CHECK(lost->ranks() == std::vector<int>{1});
      for (int later = 2; later < world.size(); ++later) tell(later);
    } else if (rank == 1) {
      auto waiting = coord.add_process_set(cohort::ranks(0, 1), cohort::as_future);
      co_await cohort_test::until_sent(coord, before.messages_sent);
      tell(0);
      compute_until_told(0);  // it is to confirm when rank 0 computes
      co_await until(confirmed);
      co_await gives_up(coord, std::move(waiting));
      tell(0);
      if (ends) {
        const auto here = co_await asio::this_coro::executor;
        static_cast<asio::io_context&>(asio::query(here, asio::execution::context)).stop();
        co_await cohort_test::pause(1h);
      }
    } else {
      compute_until_told(0);  // nobody leaves before
    }
    co_await coord.shutdown();
    co_await other.shutdown();
  };
  try {
    cohort_test::on_world(body);
  } catch (const std::logic_error&) {  // rank 1 has stopped its loop
    CHECK(ends);
  }
}

TEST_CASE("a leaf that computes is named as silent or missing", "[coordinator][silent]") {
  on_ranks(2, [](cohort::communicator world, cohort::coordinator coord) -> asio::awaitable<void> {
    const int late = world.size() - 1;
    std::vector<int> data(3, 1);
    if (world.rank() == late) {
      MPI_Recv(nullptr, 0, MPI_BYTE, 0, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      static_cast<void>(
          co_await caught<cohort::withdrawn_error>(coord.all_reduce("x", data, cohort::op::sum)));
    } else if (world.rank() == 0) {
      auto x = coord.all_reduce("x", data, cohort::op::sum, cohort::as_future);
      co_await cohort_test::until_known(coord, late);
      const auto problem =
          co_await caught<cohort::deadline_error>(cohort::with_deadline(std::move(x), 1ms));
      MPI_Send(nullptr, 0, MPI_BYTE, late, tag, MPI_COMM_WORLD);
      REQUIRE(problem);
      CHECK(problem->stall().missing == std::vector<int>{late});
      CHECK(problem->stall().ready == cohort_test::ranks_below(late));
    } else {
      const auto problem =
          co_await caught<cohort::withdrawn_error>(coord.all_reduce("x", data, cohort::op::sum));
      REQUIRE(problem);
      CHECK(problem->ranks() == std::vector<int>{0});
      CHECK(problem->stall().missing == std::vector<int>{late});
    }
    co_await cohort_test::works(coord, "after");
    co_await coord.shutdown();
  });
}

// A leaf, where there are more than two ranks also a node with a parent and a child, and the root.
TEST_CASE("a rank that is stopped before it submits", "[coordinator][silent]") {
  const std::string which = GENERATE(as<std::string>{}, "leaf", "inner node", "root");
  cohort_test::on_world([&](cohort::communicator world) -> asio::awaitable<void> {
    const int last = world.size() - 1;
    if (last < (which == "inner node" ? 2 : 1)) co_return;
    co_await see_one_stopped(world, which == "leaf" ? last : which == "root" ? 0 : 1);
  });
}

TEST_CASE("a rank that makes its coordinator late", "[coordinator][silent]") {
  cohort_test::on_world([](cohort::communicator world) -> asio::awaitable<void> {
    const int late = world.size() - 1;
    if (late == 0) co_return;
    const int rank = world.rank();
    cohort::coordinator_options options;
    options.stall_warning = 100ms;
    if (rank == late) {  // a long computation in one handler
      for (int other = 0; other < late; ++other) {
        MPI_Recv(nullptr, 0, MPI_BYTE, other, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      }
    }
    cohort::coordinator coord(world, options);
    std::vector<int> data(3, 1);
    if (rank == late) {
      for (const char* const name : {"outside", "inside", "cancelled"}) {
        const auto told =
            co_await caught<cohort::withdrawn_error>(coord.all_reduce(name, data, cohort::op::sum));
        REQUIRE(told);
        REQUIRE(told->ranks().size() == 1);
        CHECK(told->ranks().front() < late);
      }
      co_await coord.all_reduce("waits", data, cohort::op::sum);
    } else {
      const cohort::log::capture lines;
      const auto check = [&](const std::optional<cohort::deadline_error>& problem) {
        REQUIRE(problem);
        CHECK(cohort_test::has(problem->what(), "the coordinator is not open on all ranks"));
        CHECK(problem->stall().ready == std::vector<int>{rank});
        CHECK(problem->stall().unknown == cohort_test::ranks_below(world.size(), rank));
        CHECK(problem->stall().missing.empty());
      };
      const auto outside = co_await caught<cohort::deadline_error>(
          cohort::with_deadline(coord.all_reduce("outside", data, cohort::op::sum), 50ms));
      check(outside);
      cohort::call_options own;
      own.deadline = 50ms;
      const auto inside = co_await caught<cohort::deadline_error>(
          coord.all_reduce("inside", data, cohort::op::sum, own));
      check(inside);
      auto cancelled = coord.all_reduce("cancelled", data, cohort::op::sum, cohort::as_future);
      cancelled.cancel();
      const auto ended = co_await caught<std::system_error>(std::move(cancelled));
      REQUIRE(ended);
      CHECK(ended->code() == asio::error::operation_aborted);
      const auto wrong = co_await cohort_test::code_of(
          cohort::with_deadline(coord.broadcast("wrong", data, world.size()), 50ms));
      CHECK(wrong == cohort::errc::bad_root);
      auto waits = coord.all_reduce("waits", data, cohort::op::sum, cohort::as_future);
      const auto limit = std::chrono::steady_clock::now() + cohort_test::patient(20s);
      const std::string who = "rank " + std::to_string(rank);
      while (!lines.contains(who + ": all_reduce 'waits', pending for ") &&
             std::chrono::steady_clock::now() < limit) {
        co_await cohort_test::pause(10ms);
      }
      INFO(lines.text());
      CHECK(lines.contains(who + ": coordinator stalled:"));
      CHECK(lines.contains(who + ": all_reduce 'waits', pending for "));
      CHECK(lines.contains(" ms, the coordinator is not open on all ranks"));
      MPI_Send(nullptr, 0, MPI_BYTE, late, tag, MPI_COMM_WORLD);
      co_await std::move(waits);
    }
    CHECK(data == std::vector<int>(3, world.size()));
    co_await cohort_test::works(coord, "after");
    co_await coord.shutdown();
  });
}
