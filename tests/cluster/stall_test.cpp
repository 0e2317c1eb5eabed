// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// Functions that are called on all, of which one throws before a collective in which others are.

#include <cohort/cluster/call_context.hpp>
#include <cohort/cluster/calls/call_verbs.hpp>
#include <cohort/cluster/calls/many_calls.hpp>
#include <cohort/collectives/all_reduce.hpp>
#include <cohort/collectives/barrier.hpp>
#include <cohort/collectives/reduce.hpp>
#include <cohort/core/asio.hpp>
#include <cohort/progress/deadline.hpp>
#include <cohort/progress/future.hpp>

#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "cluster/support.hpp"
#include "support/patience.hpp"

using namespace cohort_test;
using cohort::cluster::call_context;
using cohort::cluster::stall_action;
using ids = std::vector<int>;

namespace {

asio::awaitable<int> ranks_together(call_context& call) {
  int all = 1;
  co_await cohort::all_reduce(call.world(), all, cohort::op::sum);
  co_return all;
}
/// Rank 1 throws; the first `waiting` of the others wait for it in a collective.
asio::awaitable<void> one_throws(call_context& call, int waiting) {
  if (call.id() == 1) throw std::domain_error("not today");
  double part = 1;
  if (call.id() < waiting) co_await cohort::all_reduce(call.world(), part, cohort::op::sum);
}
/// The same, but the others are cancelled before, and go on all the same.
asio::awaitable<void> one_throws_others_catch(call_context& call) {
  if (call.id() == 1) throw std::domain_error("not today");
  asio::steady_timer timer(call.context(), std::chrono::minutes(5));
  try {
    co_await timer.async_wait(asio::use_awaitable);
  } catch (const std::system_error&) {
  }
  co_await asio::this_coro::reset_cancellation_state();
  co_await cohort::barrier(call.world());
}
/// The same, but rank 0 does not let its loop run until there is that file.
void one_throws_one_is_busy(call_context& call, const std::string& until) {
  if (call.id() == 1) throw std::domain_error("not today");
  while (call.id() == 0 && !std::filesystem::exists(until)) std::this_thread::sleep_for(5ms);
}
/// The same, and rank 0 goes into a collective then.
asio::awaitable<void> one_throws_one_is_busy_and_waits(call_context& call, std::string until) {
  one_throws_one_is_busy(call, until);
  if (call.id() == 0) co_await cohort::barrier(call.world());
}
/// Rank 1 has nothing to wait for.
asio::awaitable<void> some_wait(call_context& call) {
  if (call.id() == 1) {
    asio::steady_timer timer(call.context(), std::chrono::minutes(5));
    co_await timer.async_wait(asio::use_awaitable);
  }
  co_await cohort::barrier(call.world());
}

/// Rank 1 waits for that file and throws, and the last one waits for it; rank 0 is done at once.
asio::awaitable<void> one_throws_later(call_context& call, std::string file) {
  while (call.id() == 1) {
    if (std::filesystem::exists(file)) throw std::domain_error("not today");
    std::this_thread::sleep_for(1ms);
  }
  int all = 1;
  co_await cohort::reduce(call.world(), all, cohort::op::sum, call.size() - 1);
}
/// Here too, and rank 0 throws then.
asio::awaitable<void> first_throws_after_a_sign(call_context& call, std::string file) {
  int all = 1;
  co_await cohort::reduce(call.world(), all, cohort::op::sum, call.size() - 1);
  if (call.id() != 0) co_return;
  std::ofstream(file) << "has begun";
  throw std::domain_error("nor this");
}
/// Here too only the last one waits for others.
asio::awaitable<void> counted_by_last(call_context& call) {
  int all = 1;
  co_await cohort::reduce(call.world(), all, cohort::op::sum, call.size() - 1);
}
asio::awaitable<int> ranks_together_after_a_sign(call_context& call, std::string file) {
  if (call.id() == 0) std::ofstream(file) << "has begun";
  auto together = ranks_together(call);
  co_return co_await std::move(together);
}

/// Not at once: it passes however long that is, but finds little if it is over too soon.
asio::awaitable<int> ranks_together_later(call_context& call) {
  asio::steady_timer pause(call.context(), 300ms);
  co_await pause.async_wait(asio::use_awaitable);
  auto together = ranks_together(call);
  co_return co_await std::move(together);
}

/// Rank 1 begins to make a communicator, and throws.
void one_opens_and_throws(call_context& call) {
  if (call.id() != 1) return;
  call.world().dup(asio::detached);
  throw std::domain_error("not today");
}
asio::awaitable<int> opens_together(call_context& call) {
  const cohort::communicator mine = co_await call.world().dup();
  int all = 1;
  co_await cohort::all_reduce(mine, all, cohort::op::sum);
  co_return all;
}
/// Rank 0 is done with its part of a collective that no other one comes to.
asio::awaitable<void> all_but_one_throw(call_context& call) {
  if (call.id() != 0) throw std::domain_error("not today");
  int all = 1;
  co_await cohort::reduce(call.world(), all, cohort::op::sum, call.size() - 1);
}
/// Rank 0 waits for that file, and gets the parts of the others, which do not wait for it.
asio::awaitable<int> counted_by_slow(call_context& call, std::string file) {
  asio::steady_timer pause(call.context());
  while (call.id() == 0 && !std::filesystem::exists(file)) {
    pause.expires_after(5ms);
    co_await pause.async_wait(asio::use_awaitable);
  }
  int all = 1;
  co_await cohort::reduce(call.world(), all, cohort::op::sum, 0);
  co_return all;
}
/// Rank 1 throws when there is the file `may_throw`; the last one tells that it is done.
asio::awaitable<void> one_throws_without_slow(call_context& call, std::string may_throw,
                                              std::string done) {
  asio::steady_timer pause(call.context());
  while (call.id() == 1) {
    if (std::filesystem::exists(may_throw)) throw std::domain_error("not today");
    pause.expires_after(5ms);
    co_await pause.async_wait(asio::use_awaitable);
  }
  int all = 1;
  co_await cohort::reduce(call.world(), all, cohort::op::sum, 0);
  if (call.id() == 2) std::ofstream(done) << "now";
}
/// All wait for each other before one throws.
asio::awaitable<void> one_throws_after_all(call_context& call) {
  co_await cohort::barrier(call.world());
  if (call.id() == 1) throw std::domain_error("not today");
}
std::uintptr_t place_of_communicator(call_context& call) {
  return reinterpret_cast<std::uintptr_t>(call.world().state());
}

/// Until it is cancelled.
asio::awaitable<void> wait_with(call_context& call, std::vector<std::byte>) {
  asio::steady_timer timer(call.context(), std::chrono::minutes(5));
  co_await timer.async_wait(asio::use_awaitable);
}

call_options soon() { return call_options{}.grace(300ms); }
/// Where parts have returned whose answers may still be on their way, on a busy machine.
call_options after_answers() { return call_options{}.grace(patient(2s)); }

/// Whom an outcome says that it waited for.
template <class Outcome>
ids stalled_because_of(const Outcome& one) {
  try {
    one.value();
  } catch (const cohort::rank_error& failed) {
    CHECK(failed.code() == errc::stalled);
    return failed.ranks();
  }
  return {};
}

/// Ends the workers with much time, of which hardly any may be needed, and returns who is named.
asio::awaitable<ids> end(workers all) {
  const auto before = std::chrono::steady_clock::now();
  ids named;
  try {
    co_await all.shutdown(std::chrono::minutes(3));
  } catch (const cohort::rank_error& failed) {
    CHECK(failed.code() == errc::stalled);
    named = failed.ranks();
  }
  CHECK(std::chrono::steady_clock::now() - before < std::chrono::minutes(1));
  co_return named;
}

asio::awaitable<void> until_there(workers all, std::string file) {
  while (!std::filesystem::exists(file)) {
    asio::steady_timer pause(all.context(), 5ms);
    co_await pause.async_wait(asio::use_awaitable);
  }
}

asio::awaitable<void> until_ready(workers all, int rank) {
  while (all.state(rank) != worker_state::ready) {
    asio::steady_timer pause(all.context(), 5ms);
    co_await pause.async_wait(asio::use_awaitable);
  }
}

asio::awaitable<void> check_all_work(workers all, int together) {
  for (int i = 0; i < 3; ++i) {
    const auto each = co_await all.call_all<&ranks_together>();
    for (const auto& one : each) CHECK(one.value() == together);
  }
}

void check_gone(const workers& all) {
  for (const int rank : all.ids()) {
    CHECK(all.state(rank) == worker_state::gone);
    CHECK(ends(static_cast<int>(all.pid(rank))));
  }
}

/// The end names these workers, which are stuck, and leaves none.
asio::awaitable<void> check_ends(workers all, ids stuck) {
  auto ending = end(all);
  const ids named = co_await std::move(ending);
  CHECK(named == stuck);
  check_gone(all);
}

asio::awaitable<void> check_works_and_ends(workers all, int together, ids stuck) {
  auto working = check_all_work(all, together);
  co_await std::move(working);
  auto ending = check_ends(all, std::move(stuck));
  co_await std::move(ending);
}

}  // namespace

TEST_CASE("a rank that fails before a collective stops neither later calls nor the shutdown",
          "[cluster][stall]") {
  with_mortal_workers(quiet(3), [](workers all) -> asio::awaitable<void> {
    const auto each = co_await all.with(after_answers()).call_all<&one_throws>(1);
    CHECK(stalled_because_of(each[0]) == ids{1});
    CHECK_THROWS_AS(each[1].value(), std::domain_error);
    CHECK(each[2].has_value());
    auto working = check_all_work(all, 3);
    co_await std::move(working);
    // Once more, on the communicator that they have got.
    const auto again = co_await all.with(after_answers()).call_all<&one_throws>(3);
    CHECK(stalled_because_of(again[2]) == ids{1});
    for (const int rank : all.ids()) CHECK(all.state(rank) == worker_state::ready);
    auto still = check_all_work(all, 3);
    co_await std::move(still);
    auto ending = check_ends(all, {0, 2});
    co_await std::move(ending);
  });
}

TEST_CASE("a shutdown names the worker that is stuck in a collective, and no other",
          "[cluster][stall]") {
  with_mortal_workers(quiet(3), [](workers all) -> asio::awaitable<void> {
    const auto each = co_await all.with(soon()).call_all<&one_throws>(1);
    CHECK(stalled_because_of(each[0]) == ids{1});
    auto ending = check_ends(all, {0});
    co_await std::move(ending);
  });
}

TEST_CASE("a shutdown within the grace names the worker that is stuck, and no other",
          "[cluster][stall]") {
  with_mortal_workers(quiet(3), [](workers all) -> asio::awaitable<void> {
    auto pending = all.with(call_options{}.grace(std::chrono::minutes(5)))
                       .call_all<&one_throws>(1, cohort::as_future);
    auto ending = caught<cohort::rank_error>(all.shutdown(patient(6s)));
    const auto failed = co_await std::move(ending);
    REQUIRE(failed);
    CHECK(failed->ranks() == ids{0});
    const auto each = co_await std::move(pending);
    CHECK_THROWS_AS(each[1].value(), std::domain_error);
    CHECK(each[2].has_value());
  });
}

TEST_CASE("a callee that catches its cancellation and waits on does not stop later calls",
          "[cluster][stall]") {
  with_mortal_workers(quiet(2), [](workers all) -> asio::awaitable<void> {
    const auto each = co_await all.with(soon()).call_all<&one_throws_others_catch>();
    CHECK(stalled_because_of(each[0]) == ids{1});
    auto rest = check_works_and_ends(all, 2, {0});
    co_await std::move(rest);
  });
}

TEST_CASE("calls on all that were made before one stalls are run after it", "[cluster][stall]") {
  with_mortal_workers(quiet(2), [](workers all) -> asio::awaitable<void> {
    auto first = all.with(soon()).call_all<&one_throws>(1, cohort::as_future);
    std::vector<cohort::future<std::vector<cohort::outcome<int>>>> later;
    for (int i = 0; i < 3; ++i) later.push_back(all.call_all<&ranks_together>(cohort::as_future));
    const auto each = co_await std::move(first);
    CHECK(stalled_because_of(each[0]) == ids{1});
    for (auto& one : later) {
      const auto outcomes = co_await std::move(one);
      CHECK(outcomes[0].value() == 2);
      CHECK(outcomes[1].value() == 2);
    }
    auto ending = check_ends(all, {0});
    co_await std::move(ending);
  });
}

TEST_CASE("calls on all that one rank has begun before an earlier one stalls are given up with it",
          "[cluster][stall]") {
  const int passed = GENERATE(0, 1);  // between the two, by rank 0
  const folder files;
  const std::string file = files.path("has-begun");
  with_mortal_workers(quiet(3), [&](workers all) -> asio::awaitable<void> {
    using nothing = std::vector<cohort::outcome<void>>;
    const workers patient = all.with(after_answers());
    auto first = patient.call_all<&one_throws_later>(file, cohort::as_future);
    std::vector<cohort::future<nothing>> between;
    for (int i = 0; i < passed; ++i) {
      between.push_back(patient.call_all<&counted_by_last>(cohort::as_future));
    }
    auto begun = patient.call_all<&ranks_together_after_a_sign>(file, cohort::as_future);
    auto later = patient.call_all<&ranks_together>(cohort::as_future);
    const auto each = co_await std::move(first);
    CHECK(each[0].has_value());
    CHECK_THROWS_AS(each[1].value(), std::domain_error);
    CHECK(stalled_because_of(each[2]) == ids{1});
    for (auto& one : between) {
      const auto outcomes = co_await std::move(one);
      CHECK(outcomes[0].has_value());
      CHECK(stalled_because_of(outcomes[1]) == ids{1});
      CHECK(stalled_because_of(outcomes[2]) == ids{1});
    }
    for (const auto& one : co_await std::move(begun)) CHECK(stalled_because_of(one) == ids{1});
    for (const auto& one : co_await std::move(later)) CHECK(one.value() == 3);
    auto rest = check_works_and_ends(all, 3, {0, 2});
    co_await std::move(rest);
  });
}

TEST_CASE("what a rank that fails has begun to open is not taken for what the next call opens",
          "[cluster][stall]") {
  with_mortal_workers(quiet(3), [](workers all) -> asio::awaitable<void> {
    const auto each = co_await all.with(after_answers()).call_all<&one_opens_and_throws>();
    CHECK(each[0].has_value());
    CHECK_THROWS_AS(each[1].value(), std::domain_error);
    const auto limit = call_options{}.deadline(patient(20s));
    for (int i = 0; i < 2; ++i) {
      const auto opened = co_await all.with(limit).call_all<&opens_together>();
      for (const auto& one : opened) CHECK(one.value() == 3);
    }
    auto ending = check_ends(all, {1});
    co_await std::move(ending);
  });
}

TEST_CASE(
    "a part of a collective that the others have not come to is not taken for one of the next",
    "[cluster][stall]") {
  with_workers(quiet(3), [](workers all) -> asio::awaitable<void> {
    const auto each = co_await all.with(after_answers()).call_all<&all_but_one_throw>();
    CHECK(each[0].has_value());
    CHECK_THROWS_AS(each[1].value(), std::domain_error);
    CHECK_THROWS_AS(each[2].value(), std::domain_error);
    const auto limit = call_options{}.deadline(patient(20s));
    for (int i = 0; i < 2; ++i) {
      const auto together = co_await all.with(limit).call_all<&ranks_together>();
      for (const auto& one : together) CHECK(one.value() == 3);
    }
  });
}

TEST_CASE("a slow rank runs calls on all that were made before one that has failed elsewhere",
          "[cluster][stall]") {
  const folder files;
  const std::string file = files.path("goes-on");
  with_workers(quiet(3), [&](workers all) -> asio::awaitable<void> {
    std::vector<cohort::future<std::vector<cohort::outcome<int>>>> before;
    for (int i = 0; i < 2; ++i) {
      before.push_back(all.call_all<&counted_by_slow>(file, cohort::as_future));
    }
    const std::string may_throw = files.path("may-throw");
    const std::string done = files.path("done");
    auto failing =
        all.with(soon()).call_all<&one_throws_without_slow>(may_throw, done, cohort::as_future);
    auto seen = until_there(all, done);
    co_await std::move(seen);
    // Its answers come in order, so that to the call on all is there after those to two more.
    for (int i = 0; i < 2; ++i) {
      co_await all.call<&place_of_communicator>(2);
    }
    std::ofstream(may_throw) << "now";
    const auto each = co_await std::move(failing);
    CHECK_THROWS_AS(each[1].value(), std::domain_error);
    CHECK(each[2].has_value());
    std::ofstream(file) << "now";
    for (auto& one : before) {
      auto bounded = cohort::with_deadline(std::move(one), patient(20s));
      const auto outcomes = co_await std::move(bounded);
      CHECK(outcomes[0].value() == 3);
    }
    const auto limit = call_options{}.deadline(patient(20s));
    const auto together = co_await all.with(limit).call_all<&ranks_together>();
    for (const auto& one : together) CHECK(one.value() == 3);
  });
}

TEST_CASE("of two calls on all that fail on different ranks the second does not stop a third",
          "[cluster][stall]") {
  const folder files;
  const std::string file = files.path("has-begun");
  with_mortal_workers(quiet(3), [&](workers all) -> asio::awaitable<void> {
    const workers patient = all.with(soon());
    auto first = patient.call_all<&one_throws_later>(file, cohort::as_future);
    auto second = patient.call_all<&first_throws_after_a_sign>(file, cohort::as_future);
    auto third = all.call_all<&ranks_together_later>(cohort::as_future);
    const auto each = co_await std::move(first);
    CHECK_THROWS_AS(each[1].value(), std::domain_error);
    CHECK(stalled_because_of(each[2]) == ids{1});
    const auto failed = co_await std::move(second);
    CHECK_THROWS_AS(failed[0].value(), std::domain_error);
    for (const auto& one : co_await std::move(third)) CHECK(one.value() == 3);
    auto ending = check_ends(all, {2});
    co_await std::move(ending);
  });
}

TEST_CASE("a call on all that fails and leaves nothing over keeps its communicator",
          "[cluster][stall]") {
  with_workers(quiet(2), [](workers all) -> asio::awaitable<void> {
    const auto before = co_await all.call_all<&place_of_communicator>();
    const auto each = co_await all.call_all<&one_throws_after_all>();
    CHECK_THROWS_AS(each[1].value(), std::domain_error);
    const auto after = co_await all.call_all<&place_of_communicator>();
    for (std::size_t i = 0; i < 2; ++i) CHECK(after[i].value() == before[i].value());
  });
}

TEST_CASE("a deadline that leaves a rank in a collective does not stop later calls",
          "[cluster][stall]") {
  with_mortal_workers(quiet(2), [](workers all) -> asio::awaitable<void> {
    const auto each = co_await all.with(after_answers().deadline(200ms)).call_all<&some_wait>();
    for (const auto& one : each) CHECK_THROWS_AS(one.value(), cohort::deadline_error);
    auto rest = check_works_and_ends(all, 2, {0});
    co_await std::move(rest);
  });
}

TEST_CASE("the parts of a call on all have one deadline, also if it takes long to make them",
          "[cluster][stall]") {
  with_mortal_workers(quiet(2), [](workers all) -> asio::awaitable<void> {
    const std::vector<std::byte> large(32 << 20);
    const auto each = co_await all.with(call_options{}.deadline(200ms)).call_all<&wait_with>(large);
    // The part that is late first has the other one cancelled.
    for (const auto& one : each) CHECK_THROWS_AS(one.value(), cohort::deadline_error);
    co_await all.shutdown();
  });
}

TEST_CASE(
    "a call on all that is cancelled while a rank is in a collective does not stop later ones",
    "[cluster][stall]") {
  with_mortal_workers(quiet(2), [](workers all) -> asio::awaitable<void> {
    auto calling = all.with(after_answers()).call_all<&some_wait>();
    auto bounded = cohort::with_deadline(std::move(calling), 200ms);
    const auto each = co_await std::move(bounded);
    for (const auto& one : each) CHECK_THROWS_AS(one.value(), std::system_error);
    auto rest = check_works_and_ends(all, 2, {0});
    co_await std::move(rest);
  });
}

TEST_CASE("a worker that does not let its loop run is left out until it does", "[cluster][stall]") {
  const folder files;
  const std::string file = files.path("goes-on");
  with_mortal_workers(quiet(3), [&](workers all) -> asio::awaitable<void> {
    const auto each = co_await all.with(soon()).call_all<&one_throws_one_is_busy>(file);
    CHECK(stalled_because_of(each[0]) == ids{1});
    const auto without = co_await all.with(soon()).call_all<&ranks_together>();
    CHECK(stalled_because_of(without[0]) == ids{0});
    CHECK(without[1].value() == 2);
    CHECK(without[2].value() == 2);
    CHECK(all.state(0) == worker_state::stuck);
    auto refused = code_of(all.call<&ranks_together>(0));
    const std::error_code code = co_await std::move(refused);
    CHECK(code == errc::stalled);
    std::ofstream(file) << "now";
    auto answering = until_ready(all, 0);
    co_await std::move(answering);
    CHECK(all.cause(0).empty());
    auto rest = check_works_and_ends(all, 3, {});
    co_await std::move(rest);
  });
}

TEST_CASE("a worker that was left out and is in a collective since is named at the end",
          "[cluster][stall]") {
  const folder files;
  const std::string file = files.path("goes-on");
  with_mortal_workers(quiet(3), [&](workers all) -> asio::awaitable<void> {
    const auto each = co_await all.with(soon()).call_all<&one_throws_one_is_busy_and_waits>(file);
    CHECK(stalled_because_of(each[0]) == ids{1});
    const auto without = co_await all.call_all<&ranks_together>();
    CHECK(without[1].value() == 2);
    CHECK(all.state(0) == worker_state::stuck);
    std::ofstream(file) << "now";
    auto answering = until_ready(all, 0);
    co_await std::move(answering);
    auto rest = check_works_and_ends(all, 3, {0});
    co_await std::move(rest);
  });
}

TEST_CASE("a shutdown does not wait for a worker that is known to be stuck", "[cluster][stall]") {
  with_mortal_workers(quiet(2).grace(300ms), [](workers all) -> asio::awaitable<void> {
    const std::string never = "/nonexistent/file";
    const auto each = co_await all.with(soon()).call_all<&one_throws_one_is_busy>(never);
    CHECK(stalled_because_of(each[0]) == ids{1});
    auto ending = end(all);
    const ids named = co_await std::move(ending);
    CHECK(named == ids{0});
    CHECK(ends(static_cast<int>(all.pid(0))));
    CHECK(ends(static_cast<int>(all.pid(1))));
  });
}

TEST_CASE("a call on all that stalls ends the job where that is asked for", "[cluster][stall]") {
  with_mortal_workers(quiet(2).grace(300ms), [](workers all) -> asio::awaitable<void> {
    const auto each =
        co_await all.with(soon().on_stall(stall_action::terminate)).call_all<&one_throws>(1);
    CHECK(stalled_because_of(each[0]) == ids{1});
    CHECK(ends(static_cast<int>(all.pid(0))));
    CHECK(ends(static_cast<int>(all.pid(1))));
  });
}
