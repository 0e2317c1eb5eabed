// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// Who sees what when an operation on device memory fails, with a backend that the test has in its
// hands.
#include <cohort/coordinator.hpp>
#include <cohort/coordinator/timeline.hpp>
#include <cohort/core/log.hpp>
#include <cohort/progress/deadline.hpp>
#include <cohort/progress/future.hpp>

#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "coordinator/support.hpp"
#include "coordinator/text_files.hpp"
#include "gpu/coordinator/device_support.hpp"

namespace {

using namespace std::chrono_literals;
using cohort::as_future;
using cohort::errc;
using cohort_test::caught;
using cohort_test::device_script;
using cohort_test::fake_backend;
using cohort_test::fake_stream;
using cohort_test::fake_vector;
using cohort_test::has;
using cohort_test::meet;
using cohort_test::on_world;
namespace op = cohort::op;

std::vector<float> ones(std::size_t count) { return std::vector<float>(count, 1); }

/// A coordinator can be made and used after all this.
asio::awaitable<void> works_anew(cohort::communicator world) {
  const fake_backend backend;
  cohort::coordinator coord(world, backend);
  fake_vector<float> data(ones(3));
  co_await coord.all_reduce("anew", data, op::sum);
  CHECK(data.values() == std::vector<float>(3, static_cast<float>(world.size())));
  co_await coord.shutdown();
}

}  // namespace

TEST_CASE("a coordinator without a backend takes no device memory", "[coordinator][device]") {
  cohort_test::coordinated([](auto world, auto coord) -> asio::awaitable<void> {
    fake_vector<float> data(ones(3));
    const auto problem = co_await caught<cohort::error>(coord.all_reduce("w", data, op::sum));
    REQUIRE(problem);
    CHECK(problem->code() == errc::not_supported);
    CHECK(has(problem->what(), "rank " + std::to_string(world.rank()) +
                                   ": all_reduce 'w' of float32 in device memory: "));
    CHECK(has(problem->what(), "no backend for devices"));
    co_await cohort_test::works(coord, "after");
  });
}

TEST_CASE("what a device cannot do is refused at submission", "[coordinator][device]") {
  on_world([](cohort::communicator world) -> asio::awaitable<void> {
    const fake_backend backend;
    cohort::coordinator coord(world, backend);
    fake_vector<int> bits(std::vector<int>(2, 1));
    const auto bitwise = co_await caught<cohort::error>(coord.all_reduce("b", bits, op::bit_and));
    REQUIRE(bitwise);
    CHECK(bitwise->code() == errc::not_supported);
    CHECK(
        has(bitwise->what(), "all_reduce 'b' of int32 in device memory: devices have no bit_and"));
    fake_vector<float> data(ones(3));
    cohort::call_options options;
    options.compression = cohort::compression::f16;
    const auto refused =
        co_await caught<cohort::error>(coord.all_reduce("c", data, op::sum, options));
    REQUIRE(refused);
    CHECK(refused->code() == errc::not_supported);
    backend.script->refusal = "too warm";
    const auto warm = co_await caught<cohort::error>(coord.broadcast("d", data, 0));
    REQUIRE(warm);
    CHECK(warm->code() == errc::not_supported);
    CHECK(has(warm->what(), "broadcast 'd' of float32 in device memory: too warm"));
    CHECK(backend.script->marks == 0);
    backend.script->refusal.clear();
    co_await coord.broadcast("e", data, 0);

    std::vector<float> host(3);
    cohort::call_options device_only;
    device_only.ends = cohort::until::enqueued;
    const auto ends =
        co_await caught<cohort::error>(coord.all_reduce("f", host, op::sum, device_only));
    REQUIRE(ends);
    CHECK(ends->code() == errc::invalid_argument);
    const fake_stream stream;
    cohort::call_options streamed;
    streamed.on = stream;
    const auto on = co_await caught<cohort::error>(coord.all_reduce("g", host, op::sum, streamed));
    REQUIRE(on);
    CHECK(on->code() == errc::invalid_argument);
    co_await coord.shutdown();
  });
}

TEST_CASE("ranks that bring memory of the host and of a device do not match",
          "[coordinator][device]") {
  on_world([](cohort::communicator world) -> asio::awaitable<void> {
    if (world.size() < 2) co_return;
    const fake_backend backend;
    cohort::coordinator coord(world, backend);
    fake_vector<float> data(ones(3));
    std::vector<float> host(3);
    auto one = world.rank() == 0 ? coord.all_reduce("w", host, op::sum, as_future)
                                 : coord.all_reduce("w", data, op::sum, as_future);
    const auto problem = co_await caught<cohort::mismatch_error>(std::move(one));
    REQUIRE(problem);
    CHECK(problem->fields() == std::vector<std::string>{"memory"});
    REQUIRE(problem->sides().size() == 2);
    CHECK(problem->sides()[0].values != problem->sides()[1].values);
    CHECK(has(problem->what(), "device"));
    CHECK(backend.script->started.empty());
    co_await coord.shutdown();
    CHECK(backend.script->marks_alive == 0);
  });
}

TEST_CASE("a buffer on another device is this rank's mistake", "[coordinator][device]") {
  on_world([](cohort::communicator world) -> asio::awaitable<void> {
    const int last = world.size() - 1;
    const fake_backend backend;
    cohort::coordinator coord(world, backend);
    fake_vector<float> data(ones(3), world.rank() == last ? 1 : 0);
    if (world.rank() == last) {
      const auto problem = co_await caught<cohort::error>(coord.all_reduce("w", data, op::sum));
      REQUIRE(problem);
      CHECK(problem->code() == errc::wrong_device);
    } else {
      const auto problem =
          co_await caught<cohort::withdrawn_error>(coord.all_reduce("w", data, op::sum));
      REQUIRE(problem);
      CHECK(problem->ranks() == std::vector<int>{last});
    }
    fake_vector<float> good(ones(3));
    co_await coord.all_reduce("w", good, op::sum);
    CHECK(backend.script->started.size() == 1);
    co_await coord.shutdown();
  });
}

TEST_CASE("ranks with different backends for devices do not open", "[coordinator][device]") {
  const cohort::log::capture lines;
  const std::string what = GENERATE(as<std::string>{}, "backend", "name", "fact", "facts");
  on_world([&](cohort::communicator world) -> asio::awaitable<void> {
    if (world.size() < 2) co_return;
    const fake_backend backend;
    cohort::coordinator coord;
    const bool differs = world.rank() == world.size() - 1;
    if (differs && what == "name") backend.script->called = "mock";
    if (differs && what == "fact") backend.script->facts.front().second = 8;
    if (differs && what == "facts") backend.script->facts.emplace_back("more", 1);
    if (differs && what == "backend") {
      coord = cohort::coordinator(world);
    } else {
      coord = cohort::coordinator(world, backend);
    }
    const auto problem = co_await caught<cohort::mismatch_error>(coord.barrier());
    REQUIRE(problem);
    REQUIRE(problem->sides().size() == 2);
    const auto& last = problem->sides().back();
    CHECK(last.ranks == std::vector<int>{world.size() - 1});
    CHECK(problem->sides().front().values != last.values);
    if (what == "fact") {
      CHECK(problem->fields() == std::vector<std::string>{"version"});
      CHECK(last.values == std::vector<std::string>{"8"});
    } else if (what == "facts") {
      CHECK(problem->fields() == std::vector<std::string>{"facts of the backend"});
    } else {
      CHECK(problem->field() == "backend");
      CHECK(last.values.front() == (what == "name" ? "mock" : "none"));
      CHECK(problem->sides().front().values.front() == "fake");
    }
    co_await works_anew(world);
  });
}

TEST_CASE("a device that cannot be opened ends everything on all ranks", "[coordinator][device]") {
  const cohort::log::capture lines;
  // Ranks hear of it one after the other: each must still end with the device's own reason.
  const bool staggered = GENERATE(false, true);
  on_world([&](cohort::communicator world) -> asio::awaitable<void> {
    const fake_backend backend;
    backend.script->holds_open = true;
    backend.script->open_fails =
        std::make_exception_ptr(cohort::rank_error(errc::no_device, {0}, "rank 0 has no device"));
    cohort::coordinator coord(world, backend);
    co_await coord.barrier();
    fake_vector<float> data(ones(3));
    std::vector<float> host(3);
    auto started = coord.all_reduce("started", data, op::sum, as_future);
    co_await coord.barrier();  // so that it is elected
    CHECK(backend.script->started.size() == 1);
    auto waits = world.rank() == 0 && world.size() > 1
                     ? coord.all_reduce("waits", host, op::sum, as_future)
                     : coord.all_reduce("waits, too", data, op::sum, as_future);
    if (staggered) {
      for (int turn = 0; turn < world.rank(); ++turn) co_await meet(world);
    } else {
      co_await meet(world);
    }
    backend.script->let_open();
    if (staggered) {
      for (int turn = world.rank(); turn < world.size(); ++turn) co_await meet(world);
    }
    const auto no_device = [](const auto& problem) {
      REQUIRE(problem);
      CHECK(problem->code() == errc::no_device);
      CHECK(problem->ranks() == std::vector<int>{0});
    };
    no_device(co_await caught<cohort::rank_error>(std::move(started)));
    no_device(co_await caught<cohort::rank_error>(std::move(waits)));
    no_device(co_await caught<cohort::rank_error>(coord.barrier()));
    CHECK(backend.script->told == errc::no_device);
    CHECK(coord.pending().empty());
    co_await coord.shutdown();
    CHECK(backend.script->closes == 1);
    co_await works_anew(world);
  });
}

TEST_CASE("a fault on one device ends what is in flight on all ranks", "[coordinator][device]") {
  const cohort::log::capture lines;
  const std::string what = GENERATE(as<std::string>{}, "alone", "behind sizes", "host");
  on_world([&](cohort::communicator world) -> asio::awaitable<void> {
    const int last = world.size() - 1;
    const fake_backend backend;
    device_script& script = *backend.script;
    cohort::coordinator coord(world, backend);
    fake_vector<float> data(ones(3));
    co_await coord.all_reduce("before", data, op::sum);
    script.holds_data = true;
    if (world.rank() == last) script.fail_at = 1;
    auto first = coord.all_reduce("first", data, op::sum, as_future);
    auto second = coord.broadcast("second", data, 0, as_future);
    auto sized = coord.all_gather("sized", data, as_future);
    if (what != "behind sizes") {
      co_await coord.barrier();  // all of them have been elected
      co_await meet(world);      // and the barrier is over on all ranks
    }
    if (what == "alone") {
      CHECK(script.started.size() == 4);
    }
    script.holds_data = false;
    script.let_run();
    const auto failed = [&](const auto& problem) {
      REQUIRE(problem);
      CHECK(problem->ranks() == std::vector<int>{last});
    };
    failed(co_await caught<cohort::data_error>(std::move(first)));
    failed(co_await caught<cohort::data_error>(std::move(second)));
    failed(co_await caught<cohort::data_error>(std::move(sized)));
    std::vector<float> host(3);
    if (what == "host") {
      failed(co_await caught<cohort::data_error>(coord.all_reduce("later", host, op::sum)));
    } else {
      failed(co_await caught<cohort::data_error>(coord.all_reduce("later", data, op::sum)));
    }
    CHECK(script.fails == 1);
    CHECK(coord.pending().empty());
    co_await coord.shutdown();
    CHECK(script.closes == 1);
    CHECK(script.forgotten == 0);
    co_await works_anew(world);
  });
}

TEST_CASE("what does not end on a device after a fault is forgotten", "[coordinator][device]") {
  const cohort::log::capture lines;
  asio::io_context io;
  cohort::use_engine(io, {.drain = 300ms});
  const auto body = [](cohort::communicator world) -> asio::awaitable<void> {
    const int last = world.size() - 1;
    const fake_backend backend;
    device_script& script = *backend.script;
    cohort::coordinator coord(world, backend);
    script.holds_data = true;
    script.ignores_fail = true;
    script.fail_at = world.rank() == last ? 0 : -1;
    fake_vector<float> data(ones(3));
    auto first = coord.all_reduce("first", data, op::sum, as_future);
    auto second = coord.broadcast("second", data, 0, as_future);
    co_await coord.barrier();
    co_await meet(world);  // it is over on all ranks
    script.holds_data = false;
    script.let_run();
    const auto one = co_await caught<cohort::data_error>(std::move(first));
    CHECK(one);
    const auto other = co_await caught<cohort::data_error>(std::move(second));
    CHECK(other);
    CHECK(script.fails == 1);
    CHECK(script.forgotten == (world.rank() == last ? 1 : 2));
    co_await coord.shutdown();
    CHECK(script.closes == 1);
  };
  cohort::communicator world(io);
  cohort_test::run(io, body(world));
}

namespace {

/// The last rank submits last, with a deadline, and the device does not end it. `just_before`: the
/// decision is on its way when the deadline passes, and the rank asks for a withdrawal in vain.
asio::awaitable<void> see_deadline_told(cohort::communicator world, bool by_options,
                                        bool just_before) {
  const fake_backend backend;
  device_script& script = *backend.script;
  script.holds_data = true;
  script.fails_on_deadline = true;
  cohort::coordinator coord(world, backend);
  co_await coord.barrier();
  fake_vector<float> data(ones(3));
  const auto limit = just_before ? 30ms : 100ms;
  const bool limits = world.rank() == world.size() - 1;
  cohort::call_options options;
  if (by_options && limits) options.deadline = limit;
  if (limits) co_await meet(world);
  const auto before = coord.stats().messages_sent;
  auto one = coord.all_reduce("w", data, op::sum, options, as_future);
  if (!limits) co_await meet(world);
  const auto bound_it = [&] {
    if (by_options || !limits) return;
    auto bounded = cohort::with_deadline(std::move(one), limit);
    one = asio::co_spawn(world.get_executor(), std::move(bounded), as_future);
  };
  if (just_before) {
    bound_it();
    if (world.rank() == 0) std::this_thread::sleep_for(100ms);  // it decides in the time in which
    if (limits) {                                               // this rank looks at nothing
      co_await cohort_test::until_sent(coord, before);
      std::this_thread::sleep_for(400ms);
    }
  } else {
    while (script.started.empty() && !one.is_ready()) co_await cohort_test::pause(1ms);
    if (limits) CHECK(script.started.size() == 1);
    bound_it();
  }
  const auto problem = co_await caught<cohort::data_error>(std::move(one));
  REQUIRE(problem);
  CHECK(script.deadlines == (limits ? 1 : 0));
  CHECK((limits || script.fails == 1));
  co_await coord.shutdown();
  co_await works_anew(world);
}

}  // namespace

TEST_CASE("a deadline over what a device has is told to its backend", "[coordinator][device]") {
  const cohort::log::capture lines;
  const bool by_options = GENERATE(true, false);
  on_world([=](cohort::communicator world) -> asio::awaitable<void> {
    auto seeing = see_deadline_told(world, by_options, false);
    co_await std::move(seeing);
  });
}

TEST_CASE("a deadline that passes just before the election is told to the backend",
          "[coordinator][device]") {
  const cohort::log::capture lines;
  const bool by_options = GENERATE(true, false);
  on_world([=](cohort::communicator world) -> asio::awaitable<void> {
    if (world.size() < 2) co_return;
    auto seeing = see_deadline_told(world, by_options, true);
    co_await std::move(seeing);
  });
}

TEST_CASE("the data of who gives up are kept by the backend", "[coordinator][device]") {
  const cohort::log::capture lines;
  const int alive = cohort_test::locked_memory::alive;
  on_world([](cohort::communicator world) -> asio::awaitable<void> {
    if (world.size() < 2) co_return;
    cohort::coordinator_options options;
    options.query_timeout = 100ms;
    options.decision_timeout = 400ms;
    const fake_backend backend;
    cohort::coordinator coord(world, backend, options);
    co_await coord.barrier();
    auto data = std::make_unique<fake_vector<float>>(ones(3));
    fake_vector<float> a(ones(2));
    constexpr int tag = 78;
    if (world.rank() == 0) {
      for (int other = 1; other < world.size(); ++other) {  // a long computation in one handler
        MPI_Recv(nullptr, 0, MPI_BYTE, other, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      }
      const auto code = co_await cohort_test::code_of(coord.all_reduce("w", *data, op::sum));
      if (!code) {
        CHECK(data->values() == std::vector<float>(3, static_cast<float>(world.size())));
      }
    } else {
      cohort::call_options limited;
      limited.deadline = 50ms;
      auto other = coord.grouped_all_reduce(cohort::bundle("b").add("a", a), op::sum, as_future);
      const auto problem =
          co_await caught<cohort::deadline_error>(coord.all_reduce("w", *data, op::sum, limited));
      const int kept = backend.script->kept;
      const auto too = co_await caught<cohort::deadline_error>(std::move(other));
      MPI_Send(nullptr, 0, MPI_BYTE, 0, tag, MPI_COMM_WORLD);
      REQUIRE(problem);
      CHECK(has(problem->what(), "no decision within 400 ms"));
      CHECK(kept == 2);
      CHECK(too);
      data.reset();
    }
    co_await coord.shutdown();
    CHECK(backend.script->marks_alive == 0);
  });
  CHECK(cohort_test::locked_memory::alive == alive);
}

TEST_CASE("the timeline names the backend of a device", "[coordinator][device]") {
  on_world([](cohort::communicator world) -> asio::awaitable<void> {
    const cohort_test::scratch_file base("device");
    const std::string path =
        cohort::coordination::timeline_path(base.path(), world.rank(), world.size());
    cohort::coordinator_options options;
    options.timeline = base.path();
    const fake_backend backend;
    cohort::coordinator coord(world, backend, options);
    fake_vector<float> data(ones(3));
    std::vector<float> host(3);
    co_await coord.all_reduce("w", data, op::sum);
    co_await coord.all_reduce("h", host, op::sum);
    co_await coord.shutdown();
    const std::string text = cohort::coordination::detail::read_text(path);
    CHECK(has(text, R"("backend":"fake")"));
    CHECK(has(text, R"("backend":"mpi")"));
    CHECK(std::remove(path.c_str()) == 0);
  });
}
