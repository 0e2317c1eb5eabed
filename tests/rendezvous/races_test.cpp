// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// Abort, cleanup, close, initialisation, receives, cancellations and sends at the same time, each
// on a thread of its own, again and again on a new rendezvous. COHORT_TEST_RACES=100000 makes it as
// many rounds; under the thread sanitizer that takes minutes.
#include <cohort/core/log.hpp>
#include <cohort/progress/future.hpp>
#include <cohort/rendezvous.hpp>

#include <array>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

#include "rendezvous/exchange_support.hpp"

namespace {

using namespace rendezvous_test;

/// Threads that each do their part of a round once the round has begun.
class racers {
 public:
  template <class... Parts>
  explicit racers(long rounds, Parts... parts) {
    (threads_.emplace_back([this, rounds, parts] {
      for (long round = 1; round <= rounds; ++round) {
        for (long now = round_.load(); now < round; now = round_.load()) round_.wait(now);
        parts(round);
        arrived_.fetch_add(1);
      }
    }),
     ...);
  }
  ~racers() {
    for (std::thread& one : threads_) one.join();
  }
  void start(long round) {
    arrived_ = 0;
    round_ = round;
    round_.notify_all();
  }
  [[nodiscard]] bool done() const { return arrived_ == static_cast<int>(threads_.size()); }

 private:
  std::atomic<long> round_{0};
  std::atomic<int> arrived_{0};
  std::vector<std::thread> threads_;
};

/// How the operations of all rounds have ended. Written by the loop.
class tally {
 public:
  void add(const std::exception_ptr& why) {
    try {
      if (why) std::rethrow_exception(why);
      ++values;
    } catch (const std::system_error& problem) {
      const std::error_code code = problem.code();
      if (code == asio::error::operation_aborted) {
        ++cancelled;
      } else if (code == errc::stalled || code == errc::step_cleaned || code == errc::closed ||
                 code == errc::not_initialised) {
        ++refused;
      } else {
        ++wrong;
      }
    } catch (...) {
      ++wrong;
    }
  }
  // From any thread, and from the loop.
  void started() { started_.fetch_add(1); }
  void ended(const std::exception_ptr& why) {
    add(why);
    ended_.fetch_add(1);
  }
  [[nodiscard]] bool all_ended() const { return ended_.load() == started_.load(); }

  long values = 0;
  long cancelled = 0;
  long refused = 0;
  long wrong = 0;

 private:
  std::atomic<long> started_{0}, ended_{0};
};

asio::awaitable<std::exception_ptr> how(cohort::future<cohort::received<int>> one) {
  try {
    static_cast<void>(co_await std::move(one));
  } catch (...) {
    co_return std::current_exception();
  }
  co_return nullptr;
}

template <class Call>
void unless_over(Call call) {
  try {
    call();
  } catch (const std::system_error&) {
  }
}

}  // namespace

TEST_CASE("abort, receives, cancellations and close race, and all end once",
          "[rendezvous][races][threads]") {
  const char* const text = std::getenv("COHORT_TEST_RACES");
  const long rounds = text == nullptr ? 500 : std::atol(text);
  asio::io_context io;
  const cohort::communicator world(io);
  if (world.size() != 1) return;  // each rank alone: the same again
  const auto body = [&]() -> task {
    constexpr int batch = 4;
    const auto key = own(world, "race");
    cohort::log::set_threshold(cohort::log::level::error);  // every round leaves values
    tally all;
    long closes = 0;
    std::atomic<bool> closed{false};
    // The handle is made and dropped by the loop, between rounds.
    cohort::rendezvous exchange;
    cohort::rendezvous_step step;
    std::vector<cohort::future<cohort::received<int>>> gone;  // of the thread that cancels
    const auto receive = [&] {
      all.started();
      step.recv<int>(key, [&](const std::exception_ptr& why, const cohort::received<int>&) {
        all.ended(why);
      });
    };
    {
      racers others(
          rounds,
          [&](long round) {
            if (round % 3 == 0) exchange.cleanup(1);
            if (round % 3 != 0) step.abort(make_error_code(errc::stalled));
          },
          [&](long) {
            exchange.close(
                [&](const std::exception_ptr& why, const std::vector<cohort::leaked_value>&) {
                  if (!why) ++closes;
                  closed = true;
                });
          },
          [&](long) {
            for (int i = 0; i < batch; ++i) {
              receive();
              gone.push_back(step.recv<int>(key, as_future));
              gone.back().cancel();
              unless_over([&] { step.send(key, i); });
            }
          });
      for (long round = 1; round <= rounds; ++round) {
        const bool late = round % 4 >= 2;  // initialised in the round, or never
        exchange = late ? cohort::rendezvous(io, cohort::rendezvous_options().deferred())
                        : cohort::rendezvous(world);
        step = exchange.step(1);
        closed = false;
        others.start(round);
        for (int i = 0; i < batch; ++i) {
          receive();
          auto mine = step.recv<int>(key, as_future);
          if (i == 0 && round % 4 == 2) unless_over([&] { exchange.initialize(world); });
          mine.cancel();
          all.add(co_await how(std::move(mine)));
          unless_over([&] { step.send(key, i); });
        }
        all.started();
        step.drained([&](const std::exception_ptr& why) { all.ended(why); });
        while (!others.done() || !closed || !all.all_ended()) {
          co_await asio::post(asio::use_awaitable);
        }
        for (auto& one : gone) all.add(co_await how(std::move(one)));
        gone.clear();
        step = cohort::rendezvous_step();
        exchange = cohort::rendezvous();
      }
    }
    cohort::log::set_threshold(cohort::log::level::warning);
    INFO(all.values << " values, " << all.cancelled << " cancelled, " << all.refused << " refused");
    CHECK(closes == rounds);
    CHECK(all.wrong == 0);
    CHECK(all.cancelled > 0);
    CHECK(all.refused > 0);
  };
  cohort_test::run(io, body());
}
