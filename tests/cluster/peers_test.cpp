// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// Calls between launched workers, and from them to the manager.

#include <signal.h>

#include <chrono>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "cluster/peer_calls.hpp"
#include "cluster/support.hpp"

using namespace cohort_test;

namespace {

asio::awaitable<int> slow_square(call_context& call, int x) {
  asio::steady_timer timer(call.context(), 5ms);
  co_await timer.async_wait(asio::use_awaitable);
  co_return x* x;
}

}  // namespace

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
  asio::io_context io;
  run(io, [&]() -> asio::awaitable<void> {
    auto launching =
        cohort::cluster::launch(io, quiet(3).on_loss(cohort::cluster::loss_policy::proceed));
    const workers all = co_await std::move(launching);
    auto before = all.call<&depends_on>(0, 2, cohort::as_future);
    const std::string up = co_await all.call<&hears_from>(1, 2);  // it is well until then
    CHECK(has(up, "from 2"));
    ::kill(static_cast<int>(all.pid(2)), SIGKILL);
    const std::string told = co_await std::move(before);
    CHECK(told == "lost 2");
    const std::string after = co_await all.call<&depends_on>(1, 2);
    CHECK(after == "lost 2");
    co_await all.shutdown();
    CHECK(all.state(0) == worker_state::gone);
    CHECK(all.state(1) == worker_state::gone);
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
