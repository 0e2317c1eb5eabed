// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// Errors are made where MPI would make them, at the post, in one status of many, in a whole call of
// MPI_Testsome, by a message that is too long; each must reach the awaiter it belongs to, and no
// other.

#include <cohort/cohort.hpp>
#include <cohort/mpi/persistent.hpp>
#include <cohort/shm.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <deque>
#include <numeric>
#include <string>
#include <system_error>
#include <vector>

#include "faults/interposer.hpp"
#include "faults/verbs.hpp"
#include "support/catch.hpp"
#include "support/caught.hpp"
#include "support/run.hpp"
#include "support/world.hpp"

namespace {

using cohort::communicator;
using faults::outcome;

const int seven = 7;

/// What the awaiter of an MPI error is told.
std::error_code mpi_error(int code) { return cohort::mpi::make_error(code); }

struct fixture {
  fixture() { faults::reset(); }
  ~fixture() { faults::reset(); }
  void run() {
    io.restart();
    io.run();
  }
  cohort::log::capture log;
  asio::io_context io;
  communicator world{io, {.backend = cohort::backend_choice::mpi}};  // whose calls fail here
  communicator self{io, MPI_COMM_SELF};
};

/// `n` receives from this rank itself, the i-th with tag i, and their messages, all under way.
struct traffic {
  traffic(fixture& on, std::size_t n) : numbers(n), outcomes(n) {
    for (std::size_t i = 0; i < n; ++i) {
      cohort::recv(on.self, numbers[i], 0, static_cast<int>(i), outcomes[i].handler());
    }
    for (std::size_t i = 0; i < n; ++i) {
      const int value = 100 + static_cast<int>(i);
      MPI_Request request = MPI_REQUEST_NULL;
      sent.push_back(value);
      PMPI_Isend(&sent.back(), 1, MPI_INT, 0, static_cast<int>(i), on.self.native(), &request);
      PMPI_Request_free(&request);
    }
  }
  /// Everybody but `failed` has got its own message.
  void check_all_but(std::size_t failed) const {
    for (std::size_t i = 0; i < outcomes.size(); ++i) {
      CAPTURE(i);
      CHECK(outcomes[i].calls == 1);
      if (i == failed) continue;
      CHECK_FALSE(outcomes[i].error);
      CHECK(numbers[i] == 100 + static_cast<int>(i));
    }
  }
  std::vector<int> numbers;
  std::vector<outcome> outcomes;
  std::deque<int> sent;
};

/// An MPI_Testsome that reports all requests at once, in the order of `indices` reversed or not:
/// the one whose message has tag `bad` with `error`, the one with tag `unfinished` as pending.
faults::testsome_function all_at_once(int bad, int error, int unfinished, bool reversed) {
  return [=](int count, MPI_Request* requests, int* found, int* indices, MPI_Status* statuses) {
    *found = 0;
    std::vector<int> tags;
    for (int i = 0; i < count; ++i) {
      int done = 0;
      MPI_Status status;
      PMPI_Request_get_status(requests[i], &done, &status);
      if (done == 0) return MPI_SUCCESS;
      tags.push_back(status.MPI_TAG);
    }
    const bool first_time = count > 1;
    int result = MPI_SUCCESS;
    for (int i = 0; i < count; ++i) {
      const int slot = reversed ? count - 1 - i : i;
      const int tag = tags[static_cast<std::size_t>(slot)];
      MPI_Status& status = statuses[*found];
      indices[(*found)++] = slot;
      if (tag == unfinished && first_time) {
        status.MPI_ERROR = MPI_ERR_PENDING;
        result = MPI_ERR_IN_STATUS;
        continue;
      }
      int done = 0;
      PMPI_Test(&requests[slot], &done, &status);
      status.MPI_ERROR = tag == bad ? error : MPI_SUCCESS;
      if (tag == bad) result = MPI_ERR_IN_STATUS;
    }
    return result;
  };
}

/// The ranks as a ring, for the verbs that need neighbours.
communicator make_ring(asio::io_context& io, cohort::checks level) {
  int ranks = 0;
  PMPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const int periodic = 1;
  MPI_Comm ring = MPI_COMM_NULL;
  PMPI_Cart_create(MPI_COMM_WORLD, 1, &ranks, &periodic, 0, &ring);
  cohort::communicator_options options{.backend = cohort::backend_choice::mpi};
  options.checks = level;
  communicator result{io, ring, options};
  PMPI_Comm_free(&ring);
  return result;
}

TEST_CASE("a failure at the post reaches the awaiter, for every function that posts") {
  fixture on;
  // With cross_rank it is the comparison that fails where the verb itself is an all_reduce.
  const auto level = GENERATE(cohort::checks::local, cohort::checks::cross_rank);
  const communicator ring = make_ring(on.io, level);
  faults::prepare(ring);
  for (const faults::verb& each : faults::verbs()) {
    CAPTURE(each.posts, each.name);
    if (ring.size() < each.least_ranks) continue;
    // Checked receives look for the message first.
    if (level != cohort::checks::local && each.posts == std::string("MPI_Irecv")) continue;
    faults::reset();
    int number = 0;
    outcome bystander;
    cohort::recv(on.self, number, 0, 99, bystander.handler());

    faults::fail_next(each.posts, MPI_ERR_OTHER);
    outcome result;
    each.start(ring, result);
    CHECK(result.calls == 0);  // never inside the initiating call
    outcome sent;
    cohort::send(on.self, seven, 0, 99, sent.handler());
    on.run();
    CHECK(faults::failed_as_asked(each.posts));
    CHECK(result.calls == 1);
    CHECK(bystander.calls == 1);
    CHECK(result.error == mpi_error(MPI_ERR_OTHER));
    CHECK(ring.last_failure().code == mpi_error(MPI_ERR_OTHER));
    CHECK(ring.last_failure().text.find(each.name) != std::string::npos);
    CHECK_FALSE(bystander.error);
    CHECK_FALSE(sent.error);
    CHECK(number == 7);

    // The communicator is as good as before.
    outcome again;
    each.start(ring, again);
    on.run();
    CHECK(again.calls == 1);
    CHECK_FALSE(again.error);
    PMPI_Barrier(MPI_COMM_WORLD);
  }
}

TEST_CASE("every posting function that the library can call is in the list above") {
  for (const std::string& name : faults::posting_functions()) {
    CAPTURE(name);
    bool listed = false;
    for (const faults::verb& each : faults::verbs()) listed |= name == each.posts;
    CHECK(listed);
  }
}

TEST_CASE("a batch of which MPI does not take a message leaves nothing behind, and runs again") {
  struct fault {
    const char* function;
    long skip;
    std::size_t failed;
  };
  const auto [function, skip, failed] =
      GENERATE(fault{"MPI_Irecv", 1, 1}, fault{"MPI_Isend", 1, 3}, fault{"MPI_Start", 3, 3},
               fault{"MPI_Recv_init", 1, 1}, fault{"MPI_Send_init", 1, 3});
  const bool is_init = std::string(function).ends_with("_init");
  const bool persistent = is_init || function == std::string("MPI_Start");
  CAPTURE(function);
  fixture on;
  std::array<int, 3> in{};
  cohort::batch messages(on.self);
  for (int i = 0; i < 2; ++i) messages.recv(in[i], 0, i);
  messages.send(seven, 0, 1);
  messages.send(seven, 0, 0);
  messages.recv(in[2], cohort::no_rank, 0);
  if (persistent) messages.persistent();
  for (int round = 0; round < 2; ++round) {
    in = {};
    if (round == 0 || !is_init) {
      faults::fail_next(function, MPI_ERR_OTHER, skip);
      outcome result;
      messages.run(result.handler());
      CHECK(result.calls == 0);
      on.run();
      CHECK(faults::failed_as_asked(function));
      CHECK(result.calls == 1);
      CHECK(result.error == mpi_error(MPI_ERR_OTHER));
      CHECK(on.log.contains("message=" + std::to_string(failed)));
      CHECK(messages.error(failed) == mpi_error(MPI_ERR_OTHER));
      CHECK_FALSE(messages.is_in_flight());
      // What was sent all the same is received.
      int rest = 0;
      outcome received;
      if (failed == 3 && messages.error(1)) {
        cohort::recv(on.self, rest, 0, 1, received.handler());
        on.run();
        CHECK(rest == 7);
      }
    }
    outcome again;
    messages.run(again.handler());
    on.run();
    CHECK(again.calls == 1);
    CHECK_FALSE(again.error);
    CHECK(in == std::array<int, 3>{7, 7, 0});
  }
  messages.clear();
  if (persistent) CHECK(faults::calls("MPI_Request_free") == 4);
}

TEST_CASE("a persistent batch makes its requests once") {
  fixture on;
  int in = 0;
  {
    cohort::batch messages(on.self);
    messages.recv(in, 0, 1);
    messages.send(seven, 0, 1);
    messages.persistent();
    for (int round = 0; round < 10; ++round) {
      in = 0;
      messages.run(cohort::blocking);
      CHECK(in == 7);
    }
    CHECK(faults::calls("MPI_Request_free") == 0);
  }
  CHECK(faults::calls("MPI_Recv_init") == 1);
  CHECK(faults::calls("MPI_Send_init") == 1);
  CHECK(faults::calls("MPI_Start") == 20);
  CHECK(faults::calls("MPI_Isend") + faults::calls("MPI_Irecv") == 0);
  CHECK(faults::calls("MPI_Request_free") == 2);
}

TEST_CASE("a message that blocks and fails says so, and the next one comes") {
  fixture on;
  for (const std::string function : {"MPI_Isend", "MPI_Test"}) {
    CAPTURE(function);
    faults::fail_next(function, MPI_ERR_OTHER);
    std::error_code code;
    std::string text;
    try {
      cohort::send(on.self, seven, 0, 1, cohort::blocking);
    } catch (const std::system_error& problem) {
      code = problem.code();
      text = problem.what();
    }
    CHECK(code == mpi_error(MPI_ERR_OTHER));
    const std::string number = std::to_string(on.self.stats().operations);
    CHECK(text.find("rank 0: send #" + number) != std::string::npos);
    CHECK(text.find("destination=0, tag=1") != std::string::npos);
    CHECK(on.self.last_failure().code == code);
    CHECK(cohort::use_engine(on.io).pending() == 0);
    MPI_Request sent = MPI_REQUEST_NULL;  // where only MPI_Test has failed the message has left
    if (function == "MPI_Isend") PMPI_Isend(&seven, 1, MPI_INT, 0, 1, on.self.native(), &sent);
    int in = 0;
    CHECK(cohort::recv(on.self, in, 0, 1, cohort::blocking).count<int>() == 1);
    CHECK(in == 7);
    PMPI_Wait(&sent, MPI_STATUS_IGNORE);
  }
}

TEST_CASE("a promised message is MPI's blocking call if nothing else is pending") {
  fixture on;
  const communicator promised(on.io, MPI_COMM_SELF,
                              {.backend = cohort::backend_choice::mpi_blocking});
  int in = 0;
  int other = 0;
  const auto receive_one = [&] {
    MPI_Request request = MPI_REQUEST_NULL;
    PMPI_Isend(&seven, 1, MPI_INT, 0, 1, promised.native(), &request);
    in = 0;
    static_cast<void>(cohort::recv(promised, in, 0, 1, cohort::blocking));
    CHECK(in == 7);
    PMPI_Wait(&request, MPI_STATUS_IGNORE);
    return faults::calls("MPI_Recv");
  };
  CHECK(receive_one() == 1);
  outcome pending;
  cohort::recv(on.self, other, 0, 2, pending.handler());
  CHECK(receive_one() == 1);
  cohort::send(on.self, seven, 0, 2, cohort::blocking);
  on.run();
  CHECK(pending.calls == 1);
  CHECK(other == 7);
  CHECK(receive_one() == 2);
}

TEST_CASE("a collective of one rank that blocks is MPI's blocking call") {
  fixture on;
  int value = 7;
  cohort::all_reduce(on.self, value, cohort::op::sum, cohort::blocking);
  cohort::barrier(on.self, cohort::blocking);
  CHECK(value == 7);
  CHECK(faults::calls("MPI_Iallreduce") + faults::calls("MPI_Ibarrier") == 0);
  outcome awaited;
  cohort::all_reduce(on.self, value, cohort::op::sum, awaited.handler());
  on.run();
  CHECK(awaited.calls == 1);
  CHECK(faults::calls("MPI_Iallreduce") == 1);
}

TEST_CASE("a persistent collective makes its request once") {
  fixture on;
  const std::string made = "MPI" + std::string(MPI_VERSION >= 4 ? "" : "X") + "_Allreduce_init";
  if (!cohort::mpi::persistent::exists) return;
  int value = 0;
  {
    auto sum = cohort::all_reduce_init(on.world, value, cohort::op::sum);
    for (int round = 1; round < 10; ++round) {
      value = round;
      sum.run(cohort::blocking);
      CHECK(value == round * on.world.size());
    }
    CHECK(faults::calls("MPI_Request_free") == 0);
  }
  CHECK(faults::calls(made) == 1);
  CHECK(faults::calls("MPI_Start") == 9);
  CHECK(faults::calls("MPI_Iallreduce") == 0);
  CHECK(faults::calls("MPI_Request_free") == 1);
}

TEST_CASE("a persistent collective that MPI does not take leaves nothing behind, and runs again") {
  if (!cohort::mpi::persistent::exists) return;
  const std::string made = "MPI" + std::string(MPI_VERSION >= 4 ? "" : "X") + "_Allreduce_init";
  const bool starts = GENERATE(false, true);
  const std::string function = starts ? "MPI_Start" : made;
  CAPTURE(function);
  fixture on;
  int value = 1;
  {
    auto sum = cohort::all_reduce_init(on.self, value, cohort::op::sum);
    faults::fail_next(function, MPI_ERR_OTHER);
    outcome result;
    sum.run(result.handler());
    CHECK(result.calls == 0);
    on.run();
    CHECK(faults::failed_as_asked(function));
    CHECK(result.calls == 1);
    CHECK(result.error == mpi_error(MPI_ERR_OTHER));
    CHECK_FALSE(sum.is_in_flight());
    outcome again;
    sum.run(again.handler());
    on.run();
    CHECK(again.calls == 1);
    CHECK_FALSE(again.error);
  }
  CHECK(faults::calls("MPI_Request_free") == 1);
}

TEST_CASE("an error in one status of many reaches one awaiter only") {
  const bool reversed = GENERATE(false, true);
  const std::size_t n = GENERATE(2U, 3U, 40U);
  for (std::size_t bad : {std::size_t{0}, n / 2, n - 1}) {
    CAPTURE(n, bad, reversed);
    fixture on;
    traffic messages(on, n);
    faults::replace_testsome(all_at_once(static_cast<int>(bad), MPI_ERR_TRUNCATE, -1, reversed));
    on.run();
    messages.check_all_but(bad);
    CHECK(messages.outcomes[bad].error == mpi_error(MPI_ERR_TRUNCATE));
    CHECK(on.self.last_failure().code == mpi_error(MPI_ERR_TRUNCATE));
  }
}

TEST_CASE("a request that is reported as pending stays with MPI") {
  const bool reversed = GENERATE(false, true);
  fixture on;
  traffic messages(on, 9);
  faults::replace_testsome(all_at_once(2, MPI_ERR_OTHER, 5, reversed));
  on.run();
  messages.check_all_but(2);
  CHECK(messages.outcomes[2].error == mpi_error(MPI_ERR_OTHER));
}

TEST_CASE("when MPI_Testsome itself fails, each request is asked for itself") {
  fixture on;
  SECTION("and none has an error of its own") {
    traffic messages(on, 7);
    faults::fail_next("MPI_Testsome", MPI_ERR_INTERN);
    on.run();
    messages.check_all_but(7);
  }
  SECTION("and one has") {
    traffic messages(on, 7);
    faults::fail_next("MPI_Testsome", MPI_ERR_INTERN);
    faults::fail_next("MPI_Test", MPI_ERR_OTHER, 3);
    on.run();
    messages.check_all_but(3);
    CHECK(messages.outcomes[3].error == mpi_error(MPI_ERR_OTHER));
  }
  CHECK(faults::failed_as_asked("MPI_Testsome"));
}

TEST_CASE("an error of a look for a message reaches the receive that looks") {
  fixture on;
  outcome probing;
  cohort::recv<std::vector<int>>(on.self, 0, 5, probing.handler());
  int number = 0;
  outcome bystander;
  cohort::recv(on.self, number, 0, 99, bystander.handler());
  faults::fail_next("MPI_Improbe", MPI_ERR_OTHER, 1);
  outcome sent;
  cohort::send(on.self, seven, 0, 99, sent.handler());
  on.run();
  CHECK(probing.error == mpi_error(MPI_ERR_OTHER));
  CHECK_FALSE(bystander.error);
  CHECK(number == 7);
}

TEST_CASE("an error of the second stage of a receive reaches its awaiter") {
  fixture on;
  outcome receiving;
  cohort::recv<std::vector<int>>(on.self, 0, 5, receiving.handler());
  faults::fail_next("MPI_Imrecv", MPI_ERR_OTHER);
  // Nobody waits for this send: with MPICH it is complete only when it has been received.
  MPI_Request request = MPI_REQUEST_NULL;
  PMPI_Isend(&seven, 1, MPI_INT, 0, 5, on.self.native(), &request);
  on.run();
  CHECK(receiving.calls == 1);
  CHECK(receiving.error == mpi_error(MPI_ERR_OTHER));
  PMPI_Request_free(&request);
}

TEST_CASE("an error of either stage of a collective lets those behind it go on") {
  const auto level = GENERATE(cohort::checks::local, cohort::checks::cross_rank);
  fixture on;
  const communicator ring = make_ring(on.io, level);
  const std::vector<double> mine(2, 1.0);
  std::vector<double> all(mine.size() * static_cast<std::size_t>(ring.size()));
  int value = 1;
  outcome first;
  outcome second;
  const char* stage = nullptr;
  SECTION("the first is not posted") { stage = "MPI_Iallgather"; }
  SECTION("the second is not posted") { stage = "MPI_Iallgatherv"; }
  SECTION("the first fails under way") {}
  if (stage != nullptr) {
    faults::fail_next(stage, MPI_ERR_OTHER);
  } else if (level == cohort::checks::local) {
    faults::replace_testsome([failed = false](int count, MPI_Request* requests, int* found,
                                              int* indices, MPI_Status* statuses) mutable {
      const int rc = PMPI_Testsome(count, requests, found, indices, statuses);
      if (failed || *found <= 0) return rc;
      failed = true;
      for (int i = 0; i < *found; ++i) statuses[i].MPI_ERROR = i == 0 ? MPI_ERR_OTHER : MPI_SUCCESS;
      return MPI_ERR_IN_STATUS;
    });
  } else {
    return;  // there the comparison comes first
  }
  cohort::all_gather_v(ring, mine, all, cohort::exchanged_counts, first.handler());
  cohort::all_reduce(ring, value, cohort::op::sum, second.handler());
  on.run();
  CHECK(first.calls == 1);
  CHECK(first.error == mpi_error(MPI_ERR_OTHER));
  CHECK(second.calls == 1);
  CHECK_FALSE(second.error);
  CHECK(value == ring.size());
}

TEST_CASE("an error of an operation that nobody awaits any more is logged, and the end goes on") {
  fixture on;
  communicator last{on.io, MPI_COMM_SELF};
  asio::cancellation_signal enough;
  std::error_code told;
  const auto note = [&](std::error_code why, const std::vector<double>&) { told = why; };
  cohort::all_reduce(last, std::vector<double>(9, 1.0), cohort::op::sum,
                     asio::bind_cancellation_slot(enough.slot(), note));
  enough.emit(asio::cancellation_type::terminal);
  faults::replace_testsome(
      [](int count, MPI_Request* requests, int* found, int* indices, MPI_Status* statuses) {
        PMPI_Testsome(count, requests, found, indices, statuses);
        for (int i = 0; i < *found; ++i) statuses[i].MPI_ERROR = MPI_ERR_OTHER;
        return *found > 0 ? MPI_ERR_IN_STATUS : MPI_SUCCESS;
      });
  const long freed = faults::calls("MPI_Comm_free");
  last = communicator();
  CHECK(faults::calls("MPI_Comm_free") == freed);  // the operation still needs it
  on.run();
  CHECK(told == asio::error::operation_aborted);
  CHECK(on.log.contains("all_reduce"));
  CHECK(faults::calls("MPI_Comm_free") > freed);
}

TEST_CASE("an error of a comparison between ranks ends its operation, and no other") {
  fixture on;
  cohort::communicator_options options{.backend = cohort::backend_choice::mpi};
  options.checks = cohort::checks::cross_rank;
  const communicator checked{on.io, MPI_COMM_SELF, options};
  std::array<int, 4> numbers{1, 2, 3, 4};
  std::array<outcome, 4> outcomes;
  const bool one_by_one = GENERATE(true, false);
  int looks = 0;
  faults::replace_testsome(
      [&](int count, MPI_Request* requests, int* found, int* indices, MPI_Status* statuses) {
        const int rc = PMPI_Testsome(count, requests, found, indices, statuses);
        if (rc != MPI_SUCCESS || *found <= 0 || looks++ != 0) return rc;
        for (int i = 0; i < *found; ++i) {
          statuses[i].MPI_ERROR = indices[i] == 0 ? MPI_ERR_OTHER : MPI_SUCCESS;
        }
        return MPI_ERR_IN_STATUS;
      });
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    cohort::all_reduce(checked, numbers[i], cohort::op::sum, outcomes[i].handler());
    if (one_by_one) on.run();
  }
  on.run();
  for (const outcome& each : outcomes) CHECK(each.calls == 1);
  CHECK(outcomes[0].error == mpi_error(MPI_ERR_OTHER));
  CHECK(on.log.text().find("differs") == std::string::npos);
  for (std::size_t i = 1; i < outcomes.size(); ++i) CHECK_FALSE(outcomes[i].error);
}

TEST_CASE("an operation that waits for its turn lets go when it is cancelled") {
  fixture on;
  const communicator checked{on.io, MPI_COMM_SELF, {.checks = cohort::checks::cross_rank}};
  bool hold = true;  // the comparison of the first operation
  faults::replace_testsome(
      [&](int count, MPI_Request* requests, int* found, int* indices, MPI_Status* statuses) {
        *found = 0;
        for (int i = hold ? 1 : 0; i < count; ++i) {
          int done = 0;
          PMPI_Test(&requests[i], &done, &statuses[*found]);
          if (done != 0) indices[(*found)++] = i;
        }
        return MPI_SUCCESS;
      });
  outcome first;
  outcome second;
  asio::cancellation_signal stop;
  cohort::all_reduce(checked, std::vector{1, 2}, cohort::op::sum, first.handler());
  cohort::all_reduce(checked, std::vector{3, 4}, cohort::op::sum,
                     asio::bind_cancellation_slot(stop.slot(), second.handler()));
  on.io.run_for(std::chrono::milliseconds(20));
  CHECK(faults::calls("MPI_Iallreduce") == 2);  // the comparisons
  stop.emit(asio::cancellation_type::terminal);
  while (second.calls == 0) on.io.run_one();
  on.io.run_for(std::chrono::milliseconds(20));
  CHECK(first.calls == 0);
  CHECK(second.calls == 1);
  CHECK(second.error == asio::error::operation_aborted);
  hold = false;
  on.run();
  CHECK(first.calls == 1);
  CHECK_FALSE(first.error);
  CHECK(second.calls == 1);
  CHECK(faults::calls("MPI_Iallreduce") == 4);  // it went on alone: other ranks may count on it
}

TEST_CASE("an error reaches awaiters of every kind") {
  fixture on;
  double number = 1;
  SECTION("a coroutine, as an exception") {
    std::error_code seen;
    auto body = [&]() -> asio::awaitable<void> {
      faults::fail_next("MPI_Iallreduce", MPI_ERR_OTHER);
      try {
        co_await cohort::all_reduce(on.world, number, cohort::op::sum);
      } catch (const std::system_error& error) {
        seen = error.code();
      }
    };
    asio::co_spawn(on.io, body(), cohort::rethrow);
    on.run();
    CHECK(seen == mpi_error(MPI_ERR_OTHER));
  }
  SECTION("a coroutine, as a value") {
    std::error_code seen;
    auto body = [&]() -> asio::awaitable<void> {
      faults::fail_next("MPI_Iallreduce", MPI_ERR_OTHER);
      auto [error] =
          co_await cohort::all_reduce(on.world, number, cohort::op::sum, cohort::as_tuple);
      seen = error;
    };
    asio::co_spawn(on.io, body(), cohort::rethrow);
    on.run();
    CHECK(seen == mpi_error(MPI_ERR_OTHER));
  }
  SECTION("a future") {
    faults::fail_next("MPI_Iallreduce", MPI_ERR_OTHER);
    auto future = cohort::all_reduce(on.world, number, cohort::op::sum, cohort::as_future);
    on.run();
    CHECK(future.is_ready());
    CHECK_THROWS_AS(future.get(), std::system_error);
  }
  SECTION("one of several futures") {
    std::vector<std::size_t> failed;
    std::array<double, 4> numbers{};
    auto body = [&]() -> asio::awaitable<void> {
      std::vector<cohort::future<>> futures;
      faults::fail_next("MPI_Iallreduce", MPI_ERR_OTHER, 2);
      for (double& each : numbers) {
        each = 1;
        futures.push_back(cohort::all_reduce(on.world, each, cohort::op::sum, cohort::as_future));
      }
      for (std::size_t i = 0; i < futures.size(); ++i) {
        try {
          co_await std::move(futures[i]);
        } catch (const std::system_error&) {
          failed.push_back(i);
        }
      }
    };
    asio::co_spawn(on.io, body(), cohort::rethrow);
    on.run();
    CHECK(failed == std::vector<std::size_t>{2});
    for (const std::size_t i : {0U, 1U, 3U}) CHECK(numbers[i] == on.world.size());
  }
}

TEST_CASE("a message that is too long is an error of its receive alone") {
  fixture on;
  if (on.world.size() < 2) return;
  const auto level = GENERATE(cohort::checks::local, cohort::checks::bounds);
  // With checks::local only what MPI sends eagerly: Open MPI 4.1 writes past the buffer otherwise.
  const std::size_t length = level == cohort::checks::local ? 64 : GENERATE(64U, 100'000U);
  cohort::communicator_options options{.backend = cohort::backend_choice::mpi};
  options.checks = level;
  const communicator pair{on.io, MPI_COMM_WORLD, options};
  std::vector<int> numbers(length);
  std::iota(numbers.begin(), numbers.end(), 0);
  std::vector<int> small(length / 2, -1);
  std::vector<int> large(length, -1);
  outcome refused;
  outcome taken;
  if (pair.rank() == 0) {
    cohort::send(pair, numbers, 1, 1, refused.handler());
    cohort::send(pair, numbers, 1, 2, taken.handler());
  } else if (pair.rank() == 1) {
    cohort::recv(pair, small, 0, 1, refused.handler());
    cohort::recv(pair, large, 0, 2, taken.handler());
  }
  on.run();
  CHECK_FALSE(taken.error);
  if (pair.rank() != 1) {
    CHECK_FALSE(refused.error);
  } else {
    CHECK(large == numbers);
    if (level == cohort::checks::bounds) {
      CHECK(refused.error == cohort::errc::message_too_long);
      CHECK(small == std::vector<int>(length / 2, -1));
      CHECK(pair.last_failure().text.find("message.bytes=") != std::string::npos);
    } else {
      int error_class = 0;
      PMPI_Error_class(refused.error.value(), &error_class);
      CHECK(refused.error.category() == cohort::mpi::mpi_category());
      CHECK(error_class == MPI_ERR_TRUNCATE);
    }
    CHECK(pair.last_failure().text.find("recv") != std::string::npos);
  }
}

}  // namespace

TEST_CASE("a sum that MPI refuses in shared memory ends where it was refused; the next one works") {
  fixture on;
  const auto work = [&on]() -> asio::awaitable<void> {
    const auto by = co_await cohort::shm::make_backend(on.world);
    REQUIRE(by.active());
    communicator shared = co_await on.world.dup();
    shared.set_backend(by);
    const bool refused = on.world.rank() == 0;
    if (refused) faults::fail_next("MPI_Reduce_local", MPI_ERR_OP);
    // One's own reduction, which the plain loops do not know.
    const auto own = cohort::user_op{[](int x, int y) { return x + y; }, cohort::commutative};
    std::vector<int> values(3, 1);
    std::error_code problem;
    try {
      co_await cohort::all_reduce(shared, values, own);
    } catch (const std::system_error& caught) {
      problem = caught.code();
    }
    // One rank alone has nothing to add.
    CHECK(problem == (refused && shared.size() > 1 ? mpi_error(MPI_ERR_OP) : std::error_code()));
    faults::reset();
    values.assign(3, 1);
    co_await cohort::all_reduce(shared, values, own);
    CHECK(values[2] == shared.size());
  };
  asio::co_spawn(on.io, work(), cohort::rethrow);
  on.run();
}

TEST_CASE("a rank that a message cannot be sent to is missed until it has closed") {
  fixture on;
  if (on.world.size() == 1) return;
  const int before = cohort::process::missing.load();
  cohort::rendezvous exchange(on.world);
  const auto body = [&]() -> asio::awaitable<void> {
    auto step = exchange.step(1);
    cohort::rendezvous_key key;
    key.destination = 1;
    key.name = "x";
    if (on.world.rank() == 1) {
      co_await step.recv<int>(key);
    } else if (on.world.rank() == 0) {
      step.send(key, 1);
      co_await step.drained();
      key.name = "y";
      faults::fail_next("MPI_Isend", MPI_ERR_OTHER);
      step.send(key, 1);
      const auto code = co_await cohort_test::code_of(step.drained());
      CHECK(code == cohort::errc::peer_lost);
      CHECK(faults::failed_as_asked("MPI_Isend"));
      CHECK(on.log.contains("rank 1 is lost"));
      CHECK(cohort::process::missing.load() == before + 1);
    }
    co_await exchange.close();
    CHECK(cohort::process::missing.load() == before);
  };
  cohort_test::run(on.io, body());
}

TEST_CASE("a rank whose rendezvous breaks down tells the others why") {
  fixture on;
  if (on.world.size() == 1) return;
  const int before = cohort::process::missing.load();
  const int last = on.world.size() - 1;
  cohort::rendezvous exchange(
      on.world, cohort::rendezvous_options().leave_deadline(std::chrono::milliseconds(100)));
  const auto body = [&]() -> asio::awaitable<void> {
    const bool breaks = on.world.rank() == last;
    auto step = exchange.step(1);
    cohort::rendezvous_key key;
    key.source = last;
    key.destination = breaks ? 0 : on.world.rank();
    key.name = "first";
    if (breaks) {
      for (int other = 0; other < last; ++other) {
        key.destination = other;
        step.send(key, 1);
      }
      co_await step.drained();
      // The receive of messages is posted again after the next one, which asks for a value.
      faults::fail_next("MPI_Irecv", MPI_ERR_NO_MEM);
    } else {
      co_await step.recv<int>(key);
    }
    co_await cohort_test::meet(on.world);
    key.name = "never";
    if (breaks) {
      key.source = 0;
      key.destination = last;
      const auto code = co_await cohort_test::code_of(step.recv<int>(key));
      CHECK(code == mpi_error(MPI_ERR_NO_MEM));
      CHECK(faults::failed_as_asked("MPI_Irecv"));
    } else {
      const auto problem =
          co_await cohort_test::caught<cohort::peer_lost_error>(step.recv<int>(key));
      REQUIRE(problem);
      CHECK(problem->ranks() == std::vector<int>{last});
      CHECK_THAT(problem->what(),
                 Catch::Matchers::ContainsSubstring(
                     "rank " + std::to_string(last) +
                     " is lost: rendezvous: a receive: " + mpi_error(MPI_ERR_NO_MEM).message()));
      key.source = on.world.rank();
      key.destination = last;
      CHECK_THROWS_AS(step.send(key, 1), cohort::peer_lost_error);
    }
    const auto closed = co_await cohort_test::code_of(exchange.close());
    CHECK(closed == (breaks ? mpi_error(MPI_ERR_NO_MEM) : make_error_code(cohort::errc::stalled)));
    co_await cohort_test::meet(on.world);
  };
  cohort_test::run(on.io, body());
  cohort::process::missing.store(before);  // they are all here
}

TEST_CASE("a rank on which a round of closing fails says so") {
  fixture on;
  if (on.world.size() == 1) return;
  const int before = cohort::process::missing.load();
  cohort::rendezvous exchange(
      on.world, cohort::rendezvous_options().leave_deadline(std::chrono::milliseconds(100)));
  const auto body = [&]() -> asio::awaitable<void> {
    const bool breaks = on.world.rank() == on.world.size() - 1;
    auto step = exchange.step(1);
    cohort::rendezvous_key key;
    key.source = on.world.rank();
    key.destination = cohort_test::right_of(on.world);
    key.name = "x";
    step.send(key, 1);
    key.destination = key.source;
    key.source = cohort_test::left_of(on.world);
    co_await step.recv<int>(key);  // it is open
    co_await cohort_test::meet(on.world);
    if (!breaks) {
      CHECK(co_await cohort_test::code_of(exchange.close()) == cohort::errc::stalled);
    } else {
      faults::fail_next("MPI_Ibarrier", MPI_ERR_NO_MEM);
      const auto problem = co_await cohort_test::caught<std::system_error>(exchange.close());
      REQUIRE(problem);
      CHECK(problem->code() == mpi_error(MPI_ERR_NO_MEM));
      CHECK(std::string(problem->what()).starts_with("rendezvous: closing: "));
      CHECK(faults::failed_as_asked("MPI_Ibarrier"));
    }
    co_await cohort_test::meet(on.world);
  };
  cohort_test::run(on.io, body());
  cohort::process::missing.store(before);  // they are all here
}
