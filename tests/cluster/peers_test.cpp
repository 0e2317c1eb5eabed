// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// Calls between launched workers, and from them to the manager; jobs that are started by hand, and
// adopted ones that end otherwise than ctest lets a test end.

#include <cohort/cluster/launch/child_process.hpp>
#include <cohort/cluster/launch/launch_command.hpp>
#include <cohort/cluster/launch/launching.hpp>
#include <cohort/cluster/launch_options.hpp>
#include <cohort/cluster/serve.hpp>
#include <cohort/collectives/all_reduce.hpp>
#include <cohort/mpi/environment.hpp>
#include <cohort/progress/context.hpp>
#include <cohort/progress/deadline.hpp>

#include <signal.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "cluster/peer_calls.hpp"
#include "cluster/printed.hpp"
#include "cluster/support.hpp"
#include "support/patience.hpp"

using namespace cohort_test;

namespace {

namespace cluster = cohort::cluster;

/// Runs this program under the launcher of the tests, with a variable that says what it is to do.
asio::awaitable<cluster::exit_status> run_job(asio::io_context& io, int ranks, std::string variable,
                                              std::string value, std::string* printed = nullptr) {
  launch_options how;
  how.ranks(ranks).environment(std::move(variable), std::move(value));
  if (printed != nullptr) how.on_loss(cluster::loss_policy::proceed);  // for the launcher
  auto preparing = cluster::prepare_launch(how);
  const cluster::launch_command command = co_await std::move(preparing);
  cluster::child_process job(io.get_executor(), command, cluster::child_options());
  auto waiting = cohort::with_deadline(job.wait(), cohort_test::patient(60s));
  const cluster::exit_status status = co_await std::move(waiting);
  if (printed != nullptr) *printed = job.output();
  co_return status;
}

asio::awaitable<int> sum_of_ids(call_context& call) {
  int sum = call.id();
  co_await cohort::all_reduce(call.world(), sum, cohort::op::sum);
  co_return sum;
}
int sum_alone() { return 0; }
void dies() { ::raise(SIGKILL); }

asio::awaitable<void> lead(cohort::communicator world, std::string what) {
  cluster::adopt_options options;
  options.transport(cohort_test::has(what, "tcp") ? cluster::transport::tcp
                                                  : cluster::transport::mpi);
  printed output;
  const bool last_lines = cohort_test::has(what, "last lines");
  if (last_lines) options.on_loss(cluster::loss_policy::proceed).sink(output.sink());
  auto adopting = cluster::adopt(world, options);
  const workers all = co_await std::move(adopting);
  if (last_lines) {
    auto failing = caught<cohort::peer_lost_error>(all.call<&says_and_dies>(1));
    const auto lost = co_await std::move(failing);
    const auto arrived = [&] {
      return output.of(1).starts_with("last line\n") &&
             output.of(1, cluster::output_stream::err).ends_with("last error\n");
    };
    while (!arrived()) {
      asio::steady_timer pause(all.context(), 1ms);
      co_await pause.async_wait(asio::use_awaitable);
    }
    std::printf("all has arrived of what %s\n", lost ? "was lost" : "lives");
    std::fflush(stdout);
    all.terminate();  // and the job
  }
  if (cohort_test::has(what, "the manager")) {
    all.notify<&waits_long>(2);
    co_await all.call<&sum_alone>(1);
    dies();
  }
  if (cohort_test::has(what, "one dies")) {
    all.notify<&dies>(1);
    co_await all.call<&waits_long>(2);  // the job ends in the middle of it
  }
  int expected = 0;
  for (const int id : all.ids()) expected += id;
  auto each = co_await all.call_all<&sum_of_ids>();
  for (auto& one : each) {
    if (one.value() != expected) throw std::runtime_error("another sum");
  }
  co_await all.shutdown();
}

asio::awaitable<std::string> answer_of(asio::awaitable<std::string> call) {
  try {
    co_return co_await std::move(call);
  } catch (const cohort::peer_lost_error&) {
  }
  co_return "is lost itself";
}

asio::awaitable<int> slow_square(call_context& call, int x) {
  asio::steady_timer timer(call.context(), 5ms);
  co_await timer.async_wait(asio::use_awaitable);
  co_return x* x;
}

}  // namespace

/// What a rank of run_job does: adopt or serve.
int run_adopted(int& argc, char**& argv, const std::string& what) {
  const cohort::environment mpi(argc, argv);
  asio::io_context io;
  const cohort::communicator world(io);
  if (world.rank() != 0) {
    try {
      cluster::serve(world);
    } catch (const cohort::error& failed) {
      if (!cohort_test::has(what, "the manager")) throw;
      std::printf("rank %d leaves: %s\n", world.rank(), failed.what());
      std::fflush(stdout);
      std::_Exit(1);  // before the launcher ends it because of the other
    }
    return 0;
  }
  run(io, lead(world, what));
  return 0;
}

TEST_CASE("launched workers call each other, and the manager where it serves", "[cluster]") {
  for (const int ranks : {1, 2, 4}) {
    INFO(ranks);
    with_workers(quiet(ranks).serve_calls(true), [](workers all) -> asio::awaitable<void> {
      auto checking = check_calls_between(all);
      co_await std::move(checking);
    });
  }
}

TEST_CASE("a call to a worker that is lost ends with its name, on the other workers", "[cluster]") {
  const bool by_signal = GENERATE(true, false);
  const bool live = others_live || !by_signal;
  asio::io_context io;
  run(io, [&]() -> asio::awaitable<void> {
    auto launching =
        cohort::cluster::launch(io, quiet(3).on_loss(cohort::cluster::loss_policy::proceed));
    const workers all = co_await std::move(launching);
    auto before = all.call<&depends_on>(0, 2, cohort::as_future);
    const std::string up = co_await all.call<&hears_from>(1, 2);  // it is well until then
    CHECK(has(up, "from 2"));
    if (by_signal) {
      ::kill(static_cast<int>(all.pid(2)), SIGKILL);
    } else {
      all.terminate(2);
    }
    auto first = answer_of(std::move(before));
    const std::string told = co_await std::move(first);
    CHECK((told == "lost 2" || (!live && told == "is lost itself")));
    auto second = answer_of(all.call<&depends_on>(1, 2));
    const std::string after = co_await std::move(second);
    CHECK((after == "lost 2" || (!live && after == "is lost itself")));
    co_await all.shutdown();
    for (const int id : {0, 1}) {
      INFO(id << ": " << all.cause(id));
      const auto state = all.state(id);
      CHECK((state == worker_state::gone || (!live && state == worker_state::lost)));
    }
    CHECK(all.state(2) == worker_state::lost);
  }());
}

TEST_CASE("an interrupt ends a map as a whole", "[cluster]") {
  with_workers(quiet(2).interrupt(true), [](workers all) -> asio::awaitable<void> {
    std::vector<int> items(1000);
    std::iota(items.begin(), items.end(), 0);
    auto mapping = all.map<&slow_square>(items, cohort::as_future);
    asio::steady_timer timer(all.context(), 50ms);
    co_await timer.async_wait(asio::use_awaitable);
    ::raise(SIGINT);
    auto outcomes = co_await std::move(mapping);
    std::size_t cancelled = 0;
    for (auto& each : outcomes) cancelled += each.has_value() ? 0U : 1U;
    CHECK(outcomes.size() == 1000);
    CHECK(cancelled > 900);
    const int four = co_await all.call<&square>(0, 2);
    CHECK(four == 4);
  });
}

TEST_CASE("ranks that somebody else starts join by addresses and token", "[cluster]") {
  asio::io_context io;
  std::optional<cluster::exit_status> status;
  auto start = [&](std::string addresses, std::string token) -> asio::awaitable<void> {
    auto running = run_job(io, 2, "COHORT_TEST_BY_HAND", addresses + " " + token);
    status = co_await std::move(running);
  };
  auto by_hand = [&](const std::string& addresses, const std::string& token) {
    asio::co_spawn(io, start(addresses, token), cohort::rethrow);
  };
  run(io, [&]() -> asio::awaitable<void> {
    auto launching = cluster::launch(io, quiet(2).by_hand(by_hand));
    const workers all = co_await std::move(launching);
    for (const int id : all.ids()) {
      const int nine = co_await all.call<&square>(id, 3);
      CHECK(nine == 9);
    }
    co_await all.shutdown();
    for (const int id : all.ids()) CHECK(all.state(id) == worker_state::gone);
  }());
  REQUIRE(status);
  CHECK(status->success());
}

TEST_CASE("five ranks are a manager and four workers", "[cluster][adopt]") {
  for (const char* const how : {"mpi", "tcp"}) {
    INFO(how);
    asio::io_context io;
    const auto status = run(io, run_job(io, 5, "COHORT_TEST_ADOPT", how));
    INFO(status.text());
    CHECK(status.success());
  }
}

TEST_CASE("an adopted job ends when one of its workers dies", "[cluster][adopt]") {
  for (const char* const how : {"mpi, one dies", "tcp, one dies"}) {
    INFO(how);
    asio::io_context io;
    const auto status = run(io, run_job(io, 3, "COHORT_TEST_ADOPT", how));
    INFO(status.text());
    CHECK_FALSE(status.success());
  }
}

TEST_CASE("adopted workers leave when the manager dies", "[cluster][adopt]") {
  if (!others_live) return;  // the launcher ends them
  for (const char* const how : {"mpi, the manager", "tcp, the manager"}) {
    INFO(how);
    asio::io_context io;
    std::string text;
    run(io, run_job(io, 3, "COHORT_TEST_ADOPT", how, &text));
    INFO(text);
    CHECK(has(text, "rank 1 leaves: the manager is gone"));
    CHECK(has(text, "rank 2 leaves: the manager is gone"));
  }
}

TEST_CASE("the last lines of an adopted worker that is killed are not lost", "[cluster][adopt]") {
  if (!others_live) return;  // the manager is one of them
  for (const char* const how : {"mpi, last lines", "tcp, last lines"}) {
    INFO(how);
    asio::io_context io;
    std::string text;
    run(io, run_job(io, 3, "COHORT_TEST_ADOPT", how, &text));
    INFO(text);
    CHECK(has(text, "all has arrived of what was lost"));
  }
}

TEST_CASE("what are no addresses or no token is refused where it is given", "[cluster]") {
  const std::string token(32, 'a');
  CHECK_THROWS_WITH(cohort::cluster::serve("nowhere", token),
                    Catch::Matchers::ContainsSubstring("nowhere"));
  CHECK_THROWS_WITH(cohort::cluster::serve("127.0.0.1:1", "short"),
                    Catch::Matchers::ContainsSubstring("token"));
}

TEST_CASE("the manager is no rank of a launch", "[cluster]") {
  with_workers(quiet(1), [](workers all) -> asio::awaitable<void> {
    errc code{};
    try {
      const auto each = co_await all.with(call_options{}.include_manager(true)).call_all<&note>();
    } catch (const cohort::error& failed) {
      code = static_cast<errc>(failed.code().value());
    }
    CHECK(code == errc::not_supported);
  });
}
