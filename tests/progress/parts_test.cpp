// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// The small parts of the engine: back-off with time made by hand, the pool, the ready queue.

#include <cohort/progress.hpp>
#include <cohort/progress/backoff.hpp>
#include <cohort/progress/operation.hpp>
#include <cohort/progress/polled_source.hpp>
#include <cohort/testing/manual_clock.hpp>

#include <chrono>
#include <cstdlib>
#include <set>
#include <thread>
#include <vector>

#include "support/catch.hpp"

namespace {

using namespace std::chrono_literals;
using cohort::engine_options;
using cohort::progress::backoff;
using cohort::progress::operation;
using cohort::progress::pool;
using cohort::progress::ready_queue;
using cohort::testing::manual_clock;

struct numbered final : operation {
  explicit numbered(int n, std::vector<int>& log) : operation(&run), number(n), order(log) {}
  static void run(operation* base, action what) {
    auto* self = static_cast<numbered*>(base);
    self->order.push_back(what == action::deliver ? self->number : -self->number);
  }
  int number;
  std::vector<int>& order;
};

class environment_variable {
 public:
  environment_variable(const char* name, const char* value) : name_(name) {
    ::setenv(name, value, 1);
  }
  ~environment_variable() { ::unsetenv(name_); }

 private:
  const char* name_;
};

}  // namespace

TEST_CASE("the back-off spins for its time, and longer the more bytes are pending") {
  const engine_options options;
  manual_clock clock;
  backoff wait;
  wait.reset(clock.now(), options);
  CHECK(wait.spins(clock.now(), 0, false, options));
  clock.advance(49us);
  CHECK(wait.spins(clock.now(), 0, false, options));
  clock.advance(2us);
  CHECK_FALSE(wait.spins(clock.now(), 0, false, options));
  CHECK(wait.spins(clock.now(), 1'000'000, false, options));  // 1 ns per byte: 1 ms more
  clock.advance(1ms);
  CHECK_FALSE(wait.spins(clock.now(), 1'000'000, false, options));
  wait.reset(clock.now(), options);
  CHECK(wait.spins(clock.now(), 0, false, options));
}

TEST_CASE("where ranks outnumber cores the spin is short, whatever is pending") {
  const engine_options options;
  manual_clock clock;
  backoff wait;
  wait.reset(clock.now(), options);
  clock.advance(4us);
  CHECK(wait.spins(clock.now(), 1'000'000, true, options));
  clock.advance(2us);
  CHECK_FALSE(wait.spins(clock.now(), 1'000'000, true, options));
}

TEST_CASE("naps double, then grow with the quiet time") {
  const engine_options options;
  manual_clock clock;
  backoff wait;
  wait.reset(clock.now(), options);
  clock.advance(50us);
  std::vector<std::chrono::nanoseconds> naps;
  for (int i = 0; i < 7; ++i) {
    naps.push_back(wait.nap(clock.now(), options));
    clock.advance(naps.back());
  }
  CHECK(naps == std::vector<std::chrono::nanoseconds>{10us, 20us, 40us, 80us, 160us, 250us, 250us});
  clock.advance(100ms);
  CHECK(wait.nap(clock.now(), options) == 1ms);
  clock.advance(900ms);
  CHECK(wait.nap(clock.now(), options) == 4ms);
  wait.reset(clock.now(), options);
  CHECK(wait.nap(clock.now(), options) == 10us);
}

TEST_CASE("the longest nap bounds every nap") {
  const engine_options options{.longest_nap = 30us};
  manual_clock clock;
  backoff wait;
  wait.reset(clock.now(), options);
  CHECK(wait.nap(clock.now(), options) == 10us);
  CHECK(wait.nap(clock.now(), options) == 20us);
  CHECK(wait.nap(clock.now(), options) == 30us);
  clock.advance(200ms);
  CHECK(wait.nap(clock.now(), options) == 30us);
}

TEST_CASE("a lap makes fewer looks when they take long, and more when nobody else is there") {
  const engine_options options;
  cohort::progress::lap_pace pace(options);
  CHECK(pace.long_round() == 128);
  pace.looks_took(5us, options);
  CHECK(pace.long_round() == 64);
  pace.looks_took(3us, options);
  CHECK(pace.long_round() == 64);
  pace.looks_took(1us, options);
  CHECK(pace.long_round() == 128);
  pace.looks_took(1us, options);
  CHECK(pace.long_round() == 128);
  for (int i = 0; i < 64; ++i) pace.nobody_ran();
  CHECK(pace.long_round() == 8 * 128);
  CHECK_FALSE(pace.is_short());
  pace.others_ran(options);
  CHECK(pace.long_round() == 128);
  int laps = 0;
  int with_clock = 0;
  for (; pace.is_short(); ++laps) with_clock += pace.end_short() ? 1 : 0;
  CHECK(laps == 64);
  CHECK(with_clock == 8);
}

TEST_CASE("what is pending has a line in a report, and one warning when it takes long") {
  const environment_variable limit("COHORT_STALL_WARNING", "50ms");
  const cohort::progress::stall_watch watch;
  manual_clock clock;
  cohort::progress::pending_age age;
  const auto lines = [&](bool is_warning) {
    using cohort::progress::pending_lines;
    pending_lines all = is_warning ? pending_lines(clock.now(), watch) : pending_lines(clock.now());
    if (all.names(age)) all.add("recv #1", age);
    return all.text();
  };
  CHECK(lines(false) == "  recv #1, just started\n");
  CHECK(lines(true).empty());  // its age begins
  clock.advance(60ms);
  CHECK(lines(false) == "  recv #1, pending for 60 ms\n");
  CHECK(lines(true) == "\n  recv #1, pending for 60 ms");
  CHECK(lines(true).empty());
}

TEST_CASE("the environment sets the spin and the longest nap, and nonsense sets nothing") {
  {
    const environment_variable spin("COHORT_SPIN_US", "7");
    const environment_variable nap("COHORT_LONGEST_WAIT_US", "0");
    CHECK(engine_options::from_environment().spin == 7us);
    CHECK(engine_options::from_environment().longest_nap == 1us);
  }
  for (const char* nonsense : {"", "fast", "-3", "5us", "99999999999999999999"}) {
    const environment_variable spin("COHORT_SPIN_US", nonsense);
    CHECK(engine_options::from_environment().spin == engine_options().spin);
  }
}

TEST_CASE("an emission is a deadline's on its own thread, until the outermost one ends") {
  using cohort::progress::emitting_deadline;
  CHECK_FALSE(emitting_deadline());
  {
    const cohort::progress::deadline_emission outer;
    {
      const cohort::progress::deadline_emission inner;
    }
    CHECK(emitting_deadline());
    bool elsewhere = true;
    std::thread([&] { elsewhere = emitting_deadline(); }).join();
    CHECK_FALSE(elsewhere);
  }
  CHECK_FALSE(emitting_deadline());
}

TEST_CASE("the pool gives a block back to the next who wants one of its class") {
  void* first = pool::allocate(100);
  pool::deallocate(first, 100);
  void* second = pool::allocate(128);  // the class of 65 to 128 bytes
  CHECK(second == first);
  void* other = pool::allocate(129);
  CHECK(other != second);
  pool::deallocate(other, 129);
  pool::deallocate(second, 128);
}

TEST_CASE("the pool keeps many blocks of a class, and gives different ones while they are used") {
  std::set<void*> blocks;
  for (int i = 0; i < 3000; ++i) blocks.insert(pool::allocate(64));
  CHECK(blocks.size() == 3000);
  for (void* block : blocks) pool::deallocate(block, 64);
  int reused = 0;
  std::vector<void*> again;
  for (int i = 0; i < 1000; ++i) {
    again.push_back(pool::allocate(64));
    reused += blocks.contains(again.back()) ? 1 : 0;
  }
  CHECK(reused == 1000);
  for (void* block : again) pool::deallocate(block, 64);
}

TEST_CASE("the pool passes large blocks on") {
  void* block = pool::allocate(1 << 20);
  CHECK(block != nullptr);
  pool::deallocate(block, 1 << 20);
  pool::deallocate(pool::allocate(0), 0);
}

TEST_CASE("the ready queue is first in, first out, and can be appended") {
  std::vector<int> order;
  numbered one(1, order);
  numbered two(2, order);
  numbered three(3, order);
  ready_queue queue;
  ready_queue more;
  CHECK(queue.empty());
  queue.append(more);
  CHECK(queue.empty());
  queue.push(&one);
  more.push(&two);
  more.push(&three);
  queue.append(more);
  CHECK(more.empty());
  queue.pop()->deliver();
  queue.pop()->destroy();
  queue.push(&one);
  queue.pop()->deliver();
  queue.pop()->deliver();
  CHECK(queue.empty());
  CHECK(order == std::vector<int>{1, -2, 3, 1});
}

TEST_CASE("who asked is told when an operation's buffers are free") {
  std::vector<int> order;
  numbered op(1, order);
  op.settle();  // nobody asked
  std::atomic<bool> settled = false;
  op.report_settled_to(&settled);
  op.settle();
  CHECK(settled);
}
