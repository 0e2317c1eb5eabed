// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// Process-wide things: the log and the registry of what is in flight.

#include <cohort/core/log.hpp>
#include <cohort/core/process.hpp>
#include <cohort/core/short_lock.hpp>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "support/catch.hpp"

namespace logging = cohort::log;
namespace process = cohort::process;
using namespace std::chrono_literals;

namespace {

class fake_engine final : public process::hooks {
 public:
  explicit fake_engine(std::string name) : name_(std::move(name)) { process::add_hooks(this); }
  ~fake_engine() { process::remove_hooks(this); }
  fake_engine(const fake_engine&) = delete;
  fake_engine& operator=(const fake_engine&) = delete;

  void describe(std::string& text) override { text += name_ + "\n"; }
  bool drain(std::chrono::nanoseconds bound) override {
    bound_ = bound;
    if (takes_ > 0ns) std::this_thread::sleep_for(takes_);
    if (removes_ != nullptr) process::remove_hooks(removes_);
    drained_ = true;
    return drains_;
  }
  void leave() noexcept override { left_ = true; }

  std::string name_;
  std::chrono::nanoseconds bound_{-1};
  std::chrono::nanoseconds takes_{0};
  process::hooks* removes_ = nullptr;
  bool drains_ = true;
  bool drained_ = false;
  bool left_ = false;
};

/// The rank in the log is what this test says, and afterwards what it was.
class as_rank {
 public:
  explicit as_rank(int rank) : before_(process::rank.exchange(rank)) {}
  ~as_rank() { process::rank.store(before_); }
  as_rank(const as_rank&) = delete;
  as_rank& operator=(const as_rank&) = delete;

 private:
  int before_;
};

}  // namespace

TEST_CASE("a logged line begins with the rank") {
  logging::capture lines;
  {
    const as_rank three(3);
    logging::write(logging::level::error, "something");
  }
  const as_rank unknown(-1);
  logging::write(logging::level::warning, "else");
  CHECK(lines.text() == "[cohort rank 3] something\n[cohort] else\n");
}

TEST_CASE("messages below the threshold are dropped") {
  logging::capture lines;
  logging::write(logging::level::info, "quiet");
  CHECK(lines.text().empty());
  logging::set_threshold(logging::level::debug);
  logging::write(logging::level::debug, "loud");
  logging::set_threshold(logging::level::warning);
  CHECK(lines.contains("loud"));
  CHECK_FALSE(logging::enabled(logging::level::info));
}

TEST_CASE("captures nest and restore the sink before them") {
  logging::capture outer;
  {
    logging::capture inner;
    logging::write(logging::level::error, "in");
    CHECK(inner.contains("in"));
  }
  logging::write(logging::level::error, "out");
  CHECK_FALSE(outer.contains("] in"));
  CHECK(outer.contains("] out"));
}

TEST_CASE("lines written by several threads stay whole") {
  logging::capture lines;
  {
    std::vector<std::jthread> writers;
    for (int i = 0; i < 4; ++i) {
      writers.emplace_back([] {
        for (int n = 0; n < 50; ++n) logging::write(logging::level::error, "xxxxxxxxxx");
      });
    }
  }
  const std::string text = lines.text();
  std::size_t count = 0;
  for (std::size_t at = 0; (at = text.find("] xxxxxxxxxx\n", at)) != std::string::npos; ++at) {
    ++count;
  }
  CHECK(count == 200);
}

TEST_CASE("engines describe what is in flight, newest first") {
  const fake_engine first("first");
  const fake_engine second("second");
  CHECK(process::describe_in_flight() == "second\nfirst\n");
}

TEST_CASE("an engine that is gone is not asked") {
  {
    const fake_engine gone("gone");
  }
  CHECK(process::describe_in_flight().empty());
}

TEST_CASE("all engines are drained within one bound") {
  fake_engine first("first");
  fake_engine second("second");
  second.takes_ = 20ms;
  CHECK(process::drain_all(1s));
  CHECK(second.bound_ <= 1s);
  CHECK(first.bound_ <= 980ms);
  CHECK(first.bound_ > 0ns);
  first.drains_ = false;
  CHECK_FALSE(process::drain_all(1s));
}

TEST_CASE("a bound that is used up leaves the others no time, not a negative one") {
  fake_engine first("first");
  fake_engine second("second");
  second.takes_ = 5ms;
  process::drain_all(1ms);
  CHECK(first.bound_ == 0ns);
}

TEST_CASE("an engine may remove another one while draining") {
  fake_engine first("first");
  fake_engine second("second");
  second.removes_ = &first;
  process::drain_all(1s);
  CHECK(second.drained_);
  CHECK_FALSE(first.drained_);
}

TEST_CASE("leaving tells every engine") {
  const fake_engine first("first");
  const fake_engine second("second");
  process::leave_all();
  CHECK(first.left_);
  CHECK(second.left_);
}

TEST_CASE("a short lock lets one in at a time, also when threads outnumber cores") {
  constexpr int threads = 8;
  constexpr int rounds = 20'000;
  cohort::short_lock lock;
  int inside = 0;
  int most = 0;
  long entered = 0;
  {
    std::vector<std::jthread> all;
    for (int i = 0; i < threads; ++i) {
      all.emplace_back([&] {
        for (int round = 0; round < rounds; ++round) {
          const std::unique_lock hold(lock);
          most = std::max(most, ++inside);
          ++entered;
          --inside;
        }
      });
    }
  }
  CHECK(most == 1);
  CHECK(entered == long{threads} * rounds);
  CHECK(lock.try_lock());
  CHECK_FALSE(lock.try_lock());
  lock.unlock();
}
