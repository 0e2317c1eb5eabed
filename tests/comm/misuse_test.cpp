// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// What a rank can see to be wrong: named before any MPI call, in the code, the log and
// last_failure.

#include <cohort/comm.hpp>
#include <cohort/core/log.hpp>
#include <cohort/p2p.hpp>
#include <cohort/progress.hpp>

#include <chrono>
#include <climits>
#include <cstdlib>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "support/catch.hpp"
#include "support/world.hpp"

namespace {

using namespace std::chrono_literals;
using cohort::any_source;
using cohort::any_tag;
using cohort::communicator;
using cohort::errc;
using cohort_test::code_of;
using cohort_test::on_world;
using cohort_test::run;
using task = asio::awaitable<void>;

template <class T>
task expect(communicator world, asio::awaitable<T> call, errc code, std::string verb,
            std::string value) {
  const cohort::log::capture logged;
  const std::error_code got = co_await code_of(std::move(call));
  INFO(verb << ": " << value);
  CHECK(got == code);
  const cohort::failure last = world.last_failure();
  CHECK(last.code == code);
  const std::string start = "rank " + std::to_string(world.rank()) + ": " + verb + " #";
  CHECK_THAT(last.text, Catch::Matchers::StartsWith(start));
  CHECK_THAT(last.text, Catch::Matchers::ContainsSubstring(value));
  CHECK_THAT(last.text, Catch::Matchers::ContainsSubstring(make_error_code(code).message()));
  CHECK(logged.contains(last.text));
}

/// The code that constructing a communicator on this thread fails with.
std::error_code code_of_making_one() {
  try {
    asio::io_context io;
    const communicator world(io, MPI_COMM_SELF);
  } catch (const std::system_error& problem) {
    return problem.code();
  }
  return {};
}

}  // namespace

TEST_CASE("a rank that is none is bad_rank, in every verb between ranks") {
  on_world([](communicator world) -> task {
    int value = 0;
    const int n = world.size();
    const std::string beyond = "=" + std::to_string(n);
    for (const int bad : {n, -99, INT_MAX}) {
      const std::string text = "=" + std::to_string(bad);
      co_await expect(world, cohort::send(world, value, bad, 1), errc::bad_rank, "send",
                      "destination" + text);
      co_await expect(world, cohort::recv(world, value, bad, 1), errc::bad_rank, "recv",
                      "source" + text);
      co_await expect(world, cohort::recv<std::vector<int>>(world, bad, 1), errc::bad_rank, "recv",
                      "source" + text);
      co_await expect(world, cohort::probe(world, bad, 1), errc::bad_rank, "probe",
                      "source" + text);
      co_await expect(world, cohort::matched_probe(world, bad, 1), errc::bad_rank, "matched_probe",
                      "source" + text);
      co_await expect(world, cohort::send_recv(world, value, bad, value, 0, 1), errc::bad_rank,
                      "send_recv", "destination" + text);
      co_await expect(world, cohort::send_recv(world, value, 0, value, bad, 1), errc::bad_rank,
                      "send_recv", "source" + text);
    }
    co_await expect(world, cohort::send(world, value, any_source, 1), errc::bad_rank, "send",
                    "destination=");
  });
}

TEST_CASE("a tag that MPI does not take is bad_tag, in every verb between ranks") {
  on_world([](communicator world) -> task {
    int value = 0;
    std::vector<int> bad_tags{-77};
    if (cohort::mpi::max_tag() != INT_MAX) bad_tags.push_back(cohort::mpi::max_tag() + 1);
    for (const int bad : bad_tags) {
      const std::string text = "tag=" + std::to_string(bad);
      co_await expect(world, cohort::send(world, value, 0, bad), errc::bad_tag, "send", text);
      co_await expect(world, cohort::send<cohort::send_mode::ready>(world, value, 0, bad),
                      errc::bad_tag, "send<ready>", text);
      co_await expect(world, cohort::recv(world, value, 0, bad), errc::bad_tag, "recv", text);
      co_await expect(world, cohort::recv<std::vector<int>>(world, 0, bad), errc::bad_tag, "recv",
                      text);
      co_await expect(world, cohort::probe(world, 0, bad), errc::bad_tag, "probe", text);
      co_await expect(world, cohort::matched_probe(world, 0, bad), errc::bad_tag, "matched_probe",
                      text);
      co_await expect(world, cohort::send_recv(world, value, 0, value, 0, bad), errc::bad_tag,
                      "send_recv", text);
    }
    co_await expect(world, cohort::send(world, value, 0, any_tag), errc::bad_tag, "send", "tag=");
    co_await expect(world, cohort::send_recv(world, value, 0, value, 0, any_tag), errc::bad_tag,
                    "send_recv", "tag=");
  });
}

TEST_CASE("misuse leaves the communicator usable") {
  on_world([](communicator world) -> task {
    const cohort::log::capture logged;
    int value = 4;
    static_cast<void>(co_await code_of(cohort::send(world, value, -5, 1)));
    int received = 0;
    co_await cohort::send_recv(world, value, cohort_test::right_of(world), received, any_source, 1);
    CHECK(received == 4);
    CHECK(world.last_failure().code == errc::bad_rank);
  });
}

// ---- what one rank refuses while the others are on their way into MPI ------------------------

TEST_CASE("a topology that one rank cannot take part in fails on all, which hear why") {
  on_world([](communicator world) -> task {
    const int n = world.size();
    const bool is_wrong = world.rank() == n - 1;
    const std::string who = "rank " + std::to_string(n - 1) + ": ";
    const std::vector<int> nobody;
    const std::vector<int> myself{world.rank()};
    const std::vector<int> beyond{n + 6};
    const cohort::mpi::dist_graph graph(myself, is_wrong ? beyond : myself);
    co_await expect(world, world.create(graph), errc::bad_rank, "create",
                    who + "dist_graph: rank=" + std::to_string(n + 6));
    cohort::mpi::dist_graph weighted(myself, myself);
    weighted.weights(std::vector<int>{1}, std::vector<int>{is_wrong ? -3 : 1});
    co_await expect(world, world.create(weighted), errc::invalid_argument, "create",
                    who + "dist_graph: weight=-3");
    const auto grid = cohort::mpi::cartesian::of(is_wrong ? n + 1 : n);
    co_await expect(world, world.create(grid), errc::invalid_argument, "create",
                    who + "cartesian: a grid of " + std::to_string(n + 1));
    const auto huge = cohort::mpi::cartesian::of(is_wrong ? 65536 : n, is_wrong ? 65536 : 1);
    co_await expect(world, world.create(huge), errc::invalid_argument, "create",
                    who + "cartesian: a grid of ");
    // The turn has been given back, and the communicator is as good as before.
    const communicator lonely = co_await world.create(cohort::mpi::dist_graph(nobody, nobody));
    CHECK(lonely.size() == n);
  });
}

TEST_CASE("a context in which one rank cannot make a communicator has none on all ranks") {
  int rank = -1;
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const bool is_wrong = rank == size - 1;
  if (is_wrong) setenv("COHORT_STALL_WARNING", "soon", 1);
  asio::io_context io;
  try {
    const communicator world(io);
    FAIL("no engine can be had on a rank");
  } catch (const std::system_error& problem) {
    CHECK(problem.code() == errc::invalid_argument);
    const std::string who = "rank " + std::to_string(size - 1) + ": ";
    CHECK_THAT(problem.what(), Catch::Matchers::StartsWith(who));
    CHECK_THAT(problem.what(), Catch::Matchers::ContainsSubstring("COHORT_STALL_WARNING"));
  }
  if (is_wrong) unsetenv("COHORT_STALL_WARNING");
  const communicator world(io);
  CHECK(world.size() == size);
}

// ---- run below SERIALIZED (see CMakeLists.txt) -----------------------------------------------

TEST_CASE("below SERIALIZED only the main thread makes communicators", "[.below_serialized]") {
  CHECK(code_of_making_one() == std::error_code());
  std::error_code code;
  std::thread([&] { code = code_of_making_one(); }).join();
  CHECK(code == errc::wrong_thread);
  std::error_code on_progress_thread;
  {
    cohort::progress_thread thread;
    asio::post(thread.context(), [&] { on_progress_thread = code_of_making_one(); });
  }
  CHECK(on_progress_thread == errc::wrong_thread);
}

TEST_CASE("below SERIALIZED an operation started on another thread ends without an MPI call",
          "[.below_serialized]") {
  const cohort::log::capture logged;
  asio::io_context io;
  const communicator world(io);
  int value = 0;
  std::optional<std::error_code> code;
  std::thread([&] {
    cohort::recv(world, value, any_source, 1, [&](std::error_code e, cohort::status) { code = e; });
  }).join();
  CHECK_FALSE(code);
  io.run();
  CHECK(code == errc::wrong_thread);
  CHECK(world.last_failure().code == errc::wrong_thread);
  CHECK(logged.contains("recv #"));
}

TEST_CASE("below SERIALIZED a lap on another thread ends what is pending", "[.below_serialized]") {
  const cohort::log::capture logged;
  asio::io_context io;
  const communicator world(io);
  static int buffers[2];  // MPI keeps the receive
  std::vector<std::error_code> codes;
  const auto note = [&](std::error_code e, auto&&...) { codes.push_back(e); };
  cohort::recv(world, buffers[0], any_source, 1, note);
  cohort::probe(world, any_source, 2, note);
  std::thread([&] { io.run(); }).join();
  REQUIRE(codes.size() == 2);
  CHECK(codes[0] == errc::wrong_thread);
  CHECK(codes[1] == errc::wrong_thread);
}

// ---- run alone, because it finalizes MPI -----------------------------------------------------

TEST_CASE("after MPI_Finalize every verb says finalized, and handles may go", "[.finalizes]") {
  asio::io_context io;
  std::optional<communicator> world(std::in_place, io);
  int value = 0;
  std::optional<std::error_code> pending;
  cohort::recv(*world, value, any_source, 1,
               [&](std::error_code e, cohort::status) { pending = e; });
  MPI_Finalize();
  const cohort::log::capture logged;
  const auto work = [&]() -> task {
    co_await expect(*world, cohort::send(*world, value, 0, 1), errc::finalized, "send", "tag=1");
    co_await expect(*world, cohort::recv(*world, value, 0, 1), errc::finalized, "recv", "tag=1");
    co_await expect(*world, cohort::probe(*world, 0, 1), errc::finalized, "probe", "tag=1");
    MPI_Request none = MPI_REQUEST_NULL;
    co_await expect(*world, cohort::wait(*world, none), errc::finalized, "wait", "");
    co_await expect(*world, world->dup(), errc::finalized, "dup", "");
  };
  run(io, work());
  CHECK(pending == asio::error::operation_aborted);  // the engine left before
  cohort::poll(*world);
  CHECK(code_of_making_one() == errc::finalized);
  world.reset();
}
