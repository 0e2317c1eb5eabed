// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// Between ranks: pushed, pulled and large values, errors as answers, cleanup, close, deferred
// initialisation.
#include <cohort/core/log.hpp>
#include <cohort/progress/context.hpp>
#include <cohort/progress/deadline.hpp>
#include <cohort/progress/future.hpp>
#include <cohort/progress/when_all.hpp>
#include <cohort/rendezvous.hpp>

#include <asio/experimental/awaitable_operators.hpp>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/exchange_support.hpp"
#include "support/caught.hpp"

namespace {

using namespace rendezvous_test;
using cohort_test::right_of;
using options = cohort::rendezvous_options;

}  // namespace

TEST_CASE("values go round a ring, small and large, pushed and pulled", "[rendezvous][remote]") {
  for (const std::size_t push : {std::size_t{4096}, std::size_t{0}}) {
    with_rendezvous(
        [push](cohort::communicator world, cohort::rendezvous exchange) -> task {
          auto step = exchange.step(1);
          for (const int size : {0, 1, 100, 2000, 5000, 300000}) {
            const auto length = static_cast<std::size_t>(size);
            const std::uint64_t it = length;
            step.send(to_right(world, "v", it), std::vector<int>(length, world.rank()));
            co_await meet(world);  // it is not asked for before
            const auto got = co_await step.recv<std::vector<int>>(from_left(world, "v", it));
            CHECK(got.value == std::vector<int>(length, left_of(world)));
          }
          step.send(to_right(world, "text"),
                    std::vector<std::string>{"a", std::string(20000, 'b')});
          const auto texts = co_await step.recv<std::vector<std::string>>(from_left(world, "text"));
          CHECK(texts.value->at(1).size() == 20000);
          step.send_dead(to_right(world, "dead"));
          co_await meet(world);
          const auto dead = co_await step.recv<int>(from_left(world, "dead"));
          CHECK(dead.dead);
          CHECK_FALSE(dead.value);
          step.send(to_right(world, "both"), std::vector<double>(5000, 1.5), true);
          const auto both = co_await step.recv<std::vector<double>>(from_left(world, "both"));
          CHECK(both.dead);
          CHECK(both.value->size() == 5000);
          co_await step.drained();
          if (push != 0) check_ways(world, exchange, 4, 1, 4);
          if (push == 0) check_ways(world, exchange, 2, 3, 4);  // what is empty needs no limit
        },
        options().push_limit(push));
  }
}

TEST_CASE("a receive may come long before its value", "[rendezvous][remote]") {
  with_rendezvous([](cohort::communicator world, cohort::rendezvous exchange) -> task {
    auto step = exchange.step(1);
    auto small = step.recv<int>(from_left(world, "small"), as_future);
    auto large = step.recv<std::vector<int>>(from_left(world, "large"), as_future);
    // Behind the requests; with that of the right one its requests are here.
    step.send(key_of(world.rank(), left_of(world), "asked"), 1);
    co_await step.recv<int>(key_of(right_of(world), world.rank(), "asked"));
    const auto before = exchange.stats();
    co_await meet(world);
    co_await pause(3ms);
    CHECK_FALSE(small.is_ready());
    co_await meet(world);
    step.send(to_right(world, "large"), std::vector<int>(100000, 4));
    step.send(to_right(world, "small"), 5);
    const auto got_small = co_await std::move(small);
    const auto got_large = co_await std::move(large);
    CHECK(got_small.value == 5);
    CHECK(got_large.value == std::vector<int>(100000, 4));
    co_await step.drained();
    const auto after = exchange.stats();
    const unsigned each = world.size() > 1 ? 1 : 0;
    CHECK(after.pushed == before.pushed);
    CHECK(after.pulled - before.pulled == each);
    CHECK(after.granted - before.granted == each);
  });
}

TEST_CASE("values of one key arrive in order, whichever way they travel", "[rendezvous][remote]") {
  with_rendezvous(
      [](cohort::communicator world, cohort::rendezvous exchange) -> task {
        auto step = exchange.step(1);
        constexpr int count = 300;
        for (int i = 0; i < count; ++i) {
          const std::size_t size = i % 7 == 0 ? 5000 : i % 3 == 0 ? 40 : 2;
          step.send(to_right(world, "order"), std::vector<int>(size, i));
        }
        for (int i = 0; i < count; ++i) {
          const auto got = co_await step.recv<std::vector<int>>(from_left(world, "order"));
          if (got.value->front() != i) FAIL(i << " is " << got.value->front());
        }
        co_await step.drained();
        // 13 times 8 bytes and the overhead of a value are within the credit.
        check_ways(world, exchange, 13, 244, 43);
      },
      options().push_limit(64).credit(1000));
}

TEST_CASE("two keys of one hash are two keys between ranks as well", "[rendezvous][remote]") {
  for (const std::size_t push : {std::size_t{4096}, std::size_t{0}}) {
    with_rendezvous(
        [push](cohort::communicator world, cohort::rendezvous exchange) -> task {
          auto step = exchange.step(1);
          for (const bool local : {true, false}) {
            const auto key = [&](bool out, std::uint64_t frame, std::uint64_t iteration) {
              rendezvous_key one = local ? own(world, "x")
                                   : out ? to_right(world, "x")
                                         : from_left(world, "x");
              one.frame = frame;
              one.iteration = iteration;
              return one;
            };
            constexpr std::uint64_t factor = 0xbf58476d1ce4e5b9U;  // of the frame, in key_hash
            REQUIRE(cohort::key_hash()(key(true, 1, 0)) ==
                    cohort::key_hash()(key(true, 0, factor)));
            auto early = step.recv<std::string>(key(false, 1, 0), as_future);
            step.send(key(true, 0, factor), std::string("second"));
            step.send(key(true, 1, 0), std::string("first"));
            const auto first = co_await std::move(early);
            CHECK(first.value == "first");
            const auto second = co_await step.recv<std::string>(key(false, 0, factor));
            CHECK(second.value == "second");
          }
          co_await step.drained();
          // The other one may have been asked for before it was sent.
          if (world.size() > 1) CHECK((exchange.stats().pushed != 0) == (push != 0));
        },
        options().push_limit(push));
  }
}

TEST_CASE("duplicates are reported on both sides under single use", "[rendezvous][remote]") {
  with_rendezvous(
      [](cohort::communicator world, cohort::rendezvous exchange) -> task {
        auto step = exchange.step(1);
        auto waits = step.recv<int>(from_left(world, "once"), as_future);
        const auto waiter = co_await cohort_test::code_of(step.recv<int>(from_left(world, "once")));
        CHECK(waiter == errc::duplicate_key);
        step.send(to_right(world, "once"), 1);
        CHECK(code_of_call([&] { step.send(to_right(world, "once"), 2); }) == errc::duplicate_key);
        const auto got = co_await std::move(waits);
        CHECK(got.value == 1);
        const auto late = co_await cohort_test::code_of(step.recv<int>(from_left(world, "once")));
        CHECK(late == errc::duplicate_key);
      },
      options().single_use());
}

TEST_CASE("ten thousand receives of one key wait at once", "[rendezvous][remote]") {
  with_rendezvous([](cohort::communicator world, cohort::rendezvous exchange) -> task {
    auto step = exchange.step(1);
    constexpr int count = 10000;
    int next = 0;
    auto done = step.recv<int>(from_left(world, "last"), as_future);
    for (int i = 0; i < count; ++i) {
      step.recv<int>(from_left(world, "many"),
                     [&](std::exception_ptr error, cohort::received<int> got) {
                       if (error || got.value != next) FAIL(next);
                       ++next;
                     });
    }
    for (int i = 0; i < count; ++i) step.send(to_right(world, "many"), i);
    step.send(to_right(world, "last"), 1);
    co_await std::move(done);
    while (next != count) co_await pause(1ms);
    co_await step.drained();
  });
}

TEST_CASE("large values go straight into the caller's memory, in chunks", "[rendezvous][remote]") {
  with_rendezvous(
      [](cohort::communicator world, cohort::rendezvous exchange) -> task {
        auto step = exchange.step(1);
        std::vector<int> mine(50001);
        for (std::size_t i = 0; i < mine.size(); ++i) mine[i] = static_cast<int>(i) + world.rank();
        const auto shared = std::make_shared<const std::vector<int>>(mine);
        step.send(to_right(world, "x"), shared);
        std::vector<int> into(60000, -1);
        const auto got = co_await step.recv_into(from_left(world, "x"), std::span<int>(into));
        REQUIRE(got.value);
        CHECK(got.value->data() == into.data());
        REQUIRE(got.value->size() == mine.size());
        for (std::size_t i = 0; i < mine.size(); ++i) {
          if (into[i] != static_cast<int>(i) + left_of(world)) FAIL(i);
        }
        CHECK(into[50001] == -1);
        co_await step.drained();
        check_ways(world, exchange, 0, 0, 1);
        CHECK(exchange.stats().chunks == (world.size() > 1 ? 201 : 0));
      },
      options().chunk(1000));
}

TEST_CASE("every rank sends to every rank, few transfers at a time", "[rendezvous][remote]") {
  with_rendezvous(
      [](cohort::communicator world, cohort::rendezvous exchange) -> task {
        for (cohort::step_id number = 0; number < 5; ++number) {
          auto step = exchange.step(number);
          std::vector<cohort::future<cohort::received<std::vector<int>>>> all;
          for (int other = 0; other < world.size(); ++other) {
            for (unsigned i = 0; i < 4; ++i) {
              all.push_back(
                  step.recv<std::vector<int>>(key_of(other, world.rank(), "all", i), as_future));
              step.send(key_of(world.rank(), other, "all", i),
                        std::vector<int>(4000 + 10 * i, world.rank()));
            }
          }
          for (std::size_t i = 0; i < all.size(); ++i) {
            const auto got = co_await std::move(all[i]);
            CHECK(got.value == std::vector<int>(4000 + 10 * (i % 4), static_cast<int>(i / 4)));
          }
          co_await step.drained();
          exchange.cleanup(number);
        }
        CHECK(exchange.stats().granted == 20U * static_cast<unsigned>(world.size() - 1));
      },
      options().transfers(2));
}

TEST_CASE("a value of another type is an error and stays, also from afar", "[rendezvous][remote]") {
  for (const std::size_t push : {std::size_t{4096}, std::size_t{0}}) {
    with_rendezvous(
        [push](cohort::communicator world, cohort::rendezvous exchange) -> task {
          auto step = exchange.step(1);
          step.send(to_right(world, "small"), 2.5);
          step.send(to_right(world, "large"), std::vector<double>(5000, 1));
          co_await meet(world);  // they are not asked for before
          for (const char* name : {"small", "large"}) {
            const auto code = co_await cohort_test::code_of(step.recv<int>(from_left(world, name)));
            CHECK(code == errc::type_mismatch);
          }
          std::vector<double> room(10);
          const auto code = co_await cohort_test::code_of(
              step.recv_into(from_left(world, "large"), std::span<double>(room)));
          CHECK(code == errc::message_too_long);
          const auto small = co_await step.recv<double>(from_left(world, "small"));
          CHECK(small.value == 2.5);
          const auto large = co_await step.recv<std::vector<double>>(from_left(world, "large"));
          CHECK(large.value->size() == 5000);
          co_await step.drained();
          check_ways(world, exchange, push != 0 ? 1 : 0, push != 0 ? 0 : 1, 1);
        },
        options().push_limit(push));
  }
}

TEST_CASE("a cancelled receive leaves its value to the next one", "[rendezvous][remote]") {
  with_rendezvous([](cohort::communicator world, cohort::rendezvous exchange) -> task {
    auto step = exchange.step(1);
    for (unsigned i = 0; i < 20; ++i) {
      const auto key = from_left(world, "c", i);
      auto gone = step.recv<std::vector<int>>(key, as_future);
      if (i % 2 == 0) co_await meet(world);
      gone.cancel();
      const auto code =
          co_await cohort_test::code_of<cohort::received<std::vector<int>>>(std::move(gone));
      CHECK(code == asio::error::operation_aborted);
      co_await meet(world);
      const std::size_t size = i % 3 == 0 ? 10000 : 10;
      step.send(to_right(world, "c", i), std::vector<int>(size, static_cast<int>(i)));
      const auto got = co_await step.recv<std::vector<int>>(key);
      CHECK(got.value == std::vector<int>(size, static_cast<int>(i)));
    }
  });
}

TEST_CASE("an abort reaches the ranks that ask, and only them", "[rendezvous][remote]") {
  with_rendezvous([](cohort::communicator world, cohort::rendezvous exchange) -> task {
    if (world.size() < 2) co_return;
    auto step = exchange.step(1);
    if (world.rank() == 0) {
      co_await meet(world);
      step.abort(std::make_exception_ptr(cohort::error(errc::stalled, "the disk is full")));
      co_await meet(world);
      co_return;
    }
    auto waits = step.recv<int>(key_of(0, world.rank(), "x"), as_future);
    co_await meet(world);
    std::optional<cohort::step_aborted_error> caught;
    try {
      co_await std::move(waits);
    } catch (const cohort::step_aborted_error& problem) {
      caught = problem;
    }
    REQUIRE(caught);
    CHECK(caught->code() == errc::aborted);
    CHECK(caught->cause() == errc::stalled);
    CHECK(caught->ranks() == std::vector<int>{0});
    CHECK_THAT(caught->what(), Catch::Matchers::ContainsSubstring("the disk is full"));
    const auto late = co_await cohort_test::code_of(step.recv<int>(key_of(0, world.rank(), "y")));
    CHECK(late == errc::aborted);
    step.send(own(world, "mine"), 3);  // this rank's step goes on
    const auto mine = co_await step.recv<int>(own(world, "mine"));
    CHECK(mine.value == 3);
    co_await meet(world);
  });
}

TEST_CASE("a rank that drains before it cleans up loses nothing", "[rendezvous][remote]") {
  for (const std::size_t push : {std::size_t{4096}, std::size_t{0}}) {
    with_rendezvous(
        [push](cohort::communicator world, cohort::rendezvous exchange) -> task {
          for (cohort::step_id number = 0; number < 20; ++number) {
            auto step = exchange.step(number);
            step.send(to_right(world, "small"), static_cast<int>(number));
            step.send(to_right(world, "large"), std::vector<int>(5000, 1));
            auto drained = step.drained(as_future);
            co_await meet(world);
            CHECK_FALSE(drained.is_ready());
            co_await meet(world);
            if (world.rank() == 0) co_await pause(500us);  // the slower one
            const auto small = co_await step.recv<int>(from_left(world, "small"));
            CHECK(small.value == static_cast<int>(number));
            const auto large = co_await step.recv<std::vector<int>>(from_left(world, "large"));
            CHECK(large.value->size() == 5000);
            co_await std::move(drained);
            exchange.cleanup(number);
          }
          CHECK(exchange.steps().empty());
          check_ways(world, exchange, push != 0 ? 20 : 0, push != 0 ? 0 : 20, 20);
        },
        options().push_limit(push));
  }
}

TEST_CASE("drained ends when a destination aborts, cleans up or closes", "[rendezvous][remote]") {
  for (const int how : {0, 1, 2}) {
    for (const bool early : {false, true}) {  // before the values are sent
      cohort_test::on_world([&](cohort::communicator world) -> task {
        if (world.size() < 2) co_return;
        cohort::rendezvous exchange(world, options().push_limit(16));
        auto step = exchange.step(1);
        std::optional<cohort::future<std::vector<cohort::leaked_value>>> closing;
        const cohort::log::capture log;  // of the close
        const auto end = [&] {
          if (how == 0) step.abort(make_error_code(errc::stalled));
          if (how == 1) exchange.cleanup(1);
          if (how == 2) closing = exchange.close(as_future);
        };
        const int last = world.size() - 1;
        if (world.rank() == last && early) end();
        co_await meet(world);
        if (world.rank() == 0) {
          step.send(key_of(0, last, "held"), std::vector<int>(100, 1));
          step.send(key_of(0, last, "large"), std::vector<int>(10000, 1));
          step.send(key_of(0, last, "pushed"), 1);
          auto drained = step.drained(as_future);
          co_await meet(world);
          co_await std::move(drained);
          check_ways(world, exchange, 1, 0, 0);
        } else {
          co_await meet(world);
          if (world.rank() == last && !early) end();
        }
        if (!closing) closing = exchange.close(as_future);
        const auto leaks = co_await *std::move(closing);
        if (world.rank() == 0) CHECK(leaks.size() == (how == 2 ? 2 : 0));
      });
    }
  }
}

TEST_CASE("a value's destructor may call the rendezvous", "[rendezvous][remote]") {
  asio::io_context io;
  cohort::communicator world(io);
  const auto body = [&]() -> task {
    cohort::rendezvous exchange(world);
    cohort::rendezvous later(io, options().deferred());
    int destroyed = 0;
    const auto value = [&](cohort::rendezvous& where, std::size_t size) {
      return std::shared_ptr<const std::vector<int>>(
          new std::vector<int>(size, 1), [&](const std::vector<int>* one) {
            delete one;
            ++destroyed;
            static_cast<void>(where.steps());  // takes the lock
            try {
              where.step(99).send(own(world, "from a destructor"), 1);
            } catch (const std::system_error&) {  // closed
            }
          });
    };
    auto step = exchange.step(1);
    const auto wait_for = [&](int count) -> task {
      while (destroyed != count) co_await pause(100us);
    };
    step.send(to_right(world, "pushed"), value(exchange, 3));
    step.send(to_right(world, "held"), value(exchange, 1500));
    step.send(to_right(world, "large"), value(exchange, 20000));
    co_await meet(world);  // none is asked for before
    for (const char* name : {"pushed", "held", "large"}) {
      co_await step.recv<std::vector<int>>(from_left(world, name));
    }
    co_await wait_for(3);
    check_ways(world, exchange, 1, 1, 1);
    co_await meet(world);
    step.send(own(world, "local"), value(exchange, 3));
    step.send(to_right(world, "aborted"), value(exchange, 20000));
    auto refused = exchange.step(2);
    refused.abort(make_error_code(errc::stalled));
    CHECK(code_of_call([&] { refused.send(to_right(world, "x"), value(exchange, 3)); }) ==
          errc::stalled);
    co_await wait_for(4);
    step.abort(make_error_code(errc::stalled));
    co_await wait_for(6);
    exchange.step(3).send(to_right(world, "cleaned"), value(exchange, 20000));
    exchange.cleanup(3);
    co_await wait_for(7);
    later.step(1).send(to_right(world, "never"), value(later, 3));
    co_await later.close();
    co_await wait_for(8);
    const cohort::log::capture log;
    co_await exchange.close();
  };
  cohort_test::run(io, body());
}

TEST_CASE("a late request for a step that was cleaned up is refused", "[rendezvous][remote]") {
  with_rendezvous([](cohort::communicator world, cohort::rendezvous exchange) -> task {
    if (world.size() < 2) co_return;
    auto step = exchange.step(4);
    if (world.rank() == 0) exchange.cleanup(4);
    co_await meet(world);
    if (world.rank() != 0) {
      const auto code = co_await cohort_test::code_of(step.recv<int>(key_of(0, world.rank(), "x")));
      CHECK(code == errc::step_cleaned);
    }
    co_await meet(world);
    // It was not made again by that.
    if (world.rank() == 0) CHECK(exchange.steps().empty());
  });
}

TEST_CASE("a request makes a step that this rank has not asked for", "[rendezvous][remote]") {
  with_rendezvous([](cohort::communicator world, cohort::rendezvous exchange) -> task {
    auto waits = world.rank() == 0 ? exchange.step(11).recv<int>(from_left(world, "x"), as_future)
                                   : exchange.step(12).recv<int>(own(world, "y"), as_future);
    co_await meet(world);
    if (world.rank() == world.size() - 1) {
      if (world.size() > 1) {
        while (exchange.steps().size() != 2) co_await pause(1ms);
      }
      exchange.step(11).send(to_right(world, "x"), 1);
    }
    if (world.rank() != 0) exchange.step(12).send(own(world, "y"), 1);
    const auto got = co_await std::move(waits);
    CHECK(got.value == 1);
  });
}

TEST_CASE("close ends receives, serves what is wanted and names what is left",
          "[rendezvous][remote]") {
  cohort_test::on_world([](cohort::communicator world) -> task {
    cohort::rendezvous exchange(world, options().push_limit(0));
    auto step = exchange.step(1);
    auto never = step.recv<int>(from_left(world, "never"), as_future);
    step.send(to_right(world, "served"), std::vector<int>(5000, 1));
    step.send(to_right(world, "leaked"), 7);
    co_await meet(world);
    if (world.rank() == 0 && world.size() > 1) {
      // The others have closed, or are about to; their values are still to be had.
      co_await pause(2ms);
      const auto got = co_await step.recv<std::vector<int>>(from_left(world, "served"));
      CHECK(got.value->size() == 5000);
      const auto code = co_await cohort_test::code_of<cohort::received<int>>(std::move(never));
      CHECK(code == errc::closed);
      const auto late = co_await cohort_test::code_of(step.recv<int>(from_left(world, "nothing")));
      CHECK(late == errc::closed);
      const auto end = co_await step.next<int>(from_left(world, "nothing"));
      CHECK_FALSE(end);
    }
    auto closing = exchange.close(as_future);
    if (never.valid() && !(world.rank() == 0 && world.size() > 1)) {
      const auto code = co_await cohort_test::code_of<cohort::received<int>>(std::move(never));
      CHECK(code == errc::closed);
    }
    CHECK(code_of_call([&] { step.send(to_right(world, "x"), 1); }) == errc::closed);
    CHECK(code_of_call([&] { exchange.step(2); }) == errc::closed);
    const cohort::log::capture log;
    const auto leaks = co_await std::move(closing);
    CHECK(log.contains(";leaked;"));
    const bool served = world.size() > 1 && right_of(world) == 0;
    CHECK(leaks.size() == (served ? 1 : 2));
    for (const auto& one : leaks) {
      CHECK(one.step == 1);
      CHECK(one.values == 1);
    }
    const auto again = co_await exchange.close();  // it has closed
    CHECK(again.size() == leaks.size());
  });
}

TEST_CASE("a rank that abandons a rendezvous tells the others why", "[rendezvous][remote]") {
  using cohort_test::caught;
  cohort_test::on_world([](cohort::communicator world) -> task {
    cohort::rendezvous exchange(world, options().push_limit(0));
    auto step = exchange.step(1);
    const int last = world.size() - 1;
    if (world.rank() == last) {
      for (int to = 0; to < last; ++to) step.send(key_of(last, to, "sent before"), to);
      auto own_receive = step.recv<int>(own(world, "own"), as_future);
      co_await meet(world);
      exchange.abandon("cannot open weights.bin");
      exchange.abandon("said too late");
      const auto code =
          co_await cohort_test::code_of<cohort::received<int>>(std::move(own_receive));
      CHECK(code == errc::closed);
      CHECK(code_of_call([&] { exchange.step(2); }) == errc::closed);
    } else {
      const std::string text = "': needs rank " + std::to_string(last) +
                               ", which has left: cannot open weights.bin (remote_test.cpp:";
      auto waiting = step.recv<int>(key_of(last, world.rank(), "waiting"), as_future);
      auto stream = step.next<int>(key_of(last, world.rank(), "stream"), as_future);
      step.send(key_of(world.rank(), last, "unwanted"), 1);
      co_await meet(world);
      const auto is_told = [&](auto error) {
        REQUIRE(error);
        CHECK(error->ranks() == std::vector<int>{last});
        CHECK_THAT(error->what(), Catch::Matchers::ContainsSubstring(text));
      };
      using lost = cohort::peer_lost_error;
      is_told(co_await caught<lost, cohort::received<int>>(std::move(waiting)));
      is_told(co_await caught<lost, std::optional<int>>(std::move(stream)));
      auto second = exchange.step(2);
      is_told(co_await caught<lost>(second.recv<int>(key_of(last, world.rank(), "later"))));
      co_await step.drained();
      const auto served = co_await step.recv<int>(key_of(last, world.rank(), "sent before"));
      CHECK(served.value == world.rank());
      // The others go on with each other.
      step.send(key_of(world.rank(), (world.rank() + 1) % last, "on"), 3);
      const auto on =
          co_await step.recv<int>(key_of((world.rank() + last - 1) % last, world.rank(), "on"));
      CHECK(on.value == 3);
    }
    const auto left = co_await exchange.close();
    CHECK(left.size() == (world.rank() == last ? 0 : 1));
  });
}

TEST_CASE("a dropped rendezvous closes as well, inside the loop and after it",
          "[rendezvous][remote]") {
  cohort_test::on_world([](cohort::communicator world) -> task {
    {
      cohort::rendezvous exchange(world);
      auto step = exchange.step(1);
      step.send(to_right(world, "x"), 1);
      const auto got = co_await step.recv<int>(from_left(world, "x"));
      CHECK(got.value == 1);
    }
    co_await meet(world);
  });
  // Constructors of communicators block, so both come before what a loop makes.
  asio::io_context io;
  cohort::communicator world(io);
  auto other = std::make_unique<asio::io_context>();
  cohort::communicator second(*other);
  {
    cohort::rendezvous exchange(world);
    auto body = [&]() -> task {
      auto step = exchange.step(1);
      step.send(to_right(world, "x"), 1);
      const auto got = co_await step.recv<int>(from_left(world, "x"));
      CHECK(got.value == 1);
    };
    asio::co_spawn(io, body(), cohort::rethrow);
    io.run();
  }
  {
    // A rank whose opening is done would stop, and wait where the others do not.
    const auto work = asio::make_work_guard(io);
    cohort::rendezvous unused(world);  // the context closes it
    io.restart();
    io.poll();
  }
  // Handlers that never ran are destroyed with the context.
  cohort::rendezvous abandoned(second);
  auto step = abandoned.step(1);
  step.recv<int>(from_left(second, "never"), asio::detached);
  other->poll();
  step = cohort::rendezvous_step();
  abandoned = cohort::rendezvous();
  second = cohort::communicator();
  other.reset();
}

TEST_CASE("everything waits until the initialisation", "[rendezvous][deferred]") {
  asio::io_context io;
  cohort::communicator world(io);
  cohort::rendezvous exchange(io, options().deferred());
  auto body = [&]() -> task {
    auto step = exchange.step(1);
    auto remote = step.recv<int>(from_left(world, "x"), as_future);
    auto local = step.recv<std::string>(own(world, "y"), as_future);
    auto strange = step.recv<int>(key_of(0, world.size() + 3, "z"), as_future);
    const std::vector<std::string> words{"must", "be", "encoded"};
    step.send(to_right(world, "x"), world.rank());
    step.send(to_right(world, "words"), words);
    step.send(own(world, "y"), std::string("kept"));
    auto drained = step.drained(as_future);
    auto cancelled = step.recv<int>(from_left(world, "c"), as_future);
    cancelled.cancel();
    auto wrong = exchange.step(2);
    wrong.send(key_of(world.rank() + 1, world.rank(), "not mine"), 1);
    CHECK(code_of_call([&] { static_cast<void>(exchange.incarnation(0)); }) ==
          errc::not_initialised);
    co_await pause(2ms);
    CHECK_FALSE(remote.is_ready());
    CHECK_FALSE(local.is_ready());
    CHECK_FALSE(drained.is_ready());
    exchange.initialize(world);
    const auto got_remote = co_await std::move(remote);
    const auto got_local = co_await std::move(local);
    CHECK(got_remote.value == left_of(world));
    const auto got_words = co_await step.recv<std::vector<std::string>>(from_left(world, "words"));
    CHECK(got_words.value == words);
    CHECK(got_local.value == "kept");
    co_await std::move(drained);
    const auto code = co_await cohort_test::code_of<cohort::received<int>>(std::move(strange));
    CHECK(code == errc::not_local);
    const auto gone = co_await cohort_test::code_of<cohort::received<int>>(std::move(cancelled));
    CHECK(gone == asio::error::operation_aborted);
    CHECK(code_of_call([&] { wrong.send(own(world, "x"), 1); }) == errc::not_local);
    exchange.initialize(world);  // again: nothing
    const auto same = co_await world.dup();
    exchange.initialize(same);  // of the same ranks: nothing
    if (world.size() > 1) {
      const auto half = co_await world.split(world.rank() % 2);
      CHECK(code_of_call([&] { exchange.initialize(half); }) == errc::invalid_communicator);
    }
    for (int rank = 0; rank < world.size(); ++rank) CHECK(exchange.incarnation(rank) != 0);
    CHECK(code_of_call([&] { static_cast<void>(exchange.incarnation(world.size())); }) ==
          errc::bad_rank);
    auto key = from_left(world, "i");
    key.source_incarnation = exchange.incarnation(left_of(world)) ^ 2U;
    const auto stale = co_await cohort_test::code_of(step.recv<int>(key));
    CHECK(stale == errc::stale_incarnation);
    co_await exchange.close();
  };
  cohort_test::run(io, body());
}

TEST_CASE("a rendezvous that is closed before its initialisation says so",
          "[rendezvous][deferred]") {
  asio::io_context io;
  cohort::rendezvous exchange(io, options().deferred());
  const cohort::log::capture log;
  auto body = [&]() -> task {
    auto step = exchange.step(1);
    auto waits = step.recv<int>(key_of(0, 0, "x"), as_future);
    step.send(key_of(0, 0, "kept"), 1);
    const auto leaks = co_await exchange.close();
    CHECK(log.contains("never initialised"));
    CHECK(log.contains("0;0000000000000000;0;x;0:0"));
    REQUIRE(leaks.size() == 1);
    CHECK(leaks[0].key.view().name == "kept");
    const auto code = co_await cohort_test::code_of<cohort::received<int>>(std::move(waits));
    CHECK(code == errc::not_initialised);
    CHECK(code_of_call([&] { step.send(key_of(0, 0, "y"), 1); }) == errc::not_initialised);
  };
  cohort_test::run(io, body());
}

TEST_CASE("steps pass their time to live unless somebody needs them", "[rendezvous][remote]") {
  with_rendezvous(
      [](cohort::communicator world, cohort::rendezvous exchange) -> task {
        const cohort::log::capture log;
        exchange.step(1).send(own(world, "left"), 1);
        auto held = exchange.step(2);
        auto waits = exchange.step(3).recv<int>(own(world, "x"), as_future);
        co_await pause(20ms);
        exchange.sweep();  // unless a tick of the engine has done it
        CHECK(log.contains(";left;"));
        CHECK(code_of_call([&] { exchange.step(1); }) == errc::step_cleaned);
        CHECK_FALSE(code_of_call([&] { exchange.step(2); }));
        exchange.step(3).send(own(world, "x"), 4);
        const auto got = co_await std::move(waits);
        CHECK(got.value == 4);
      },
      options().step_ttl(2ms));
}

TEST_CASE("messages that are longer than one fragment arrive whole", "[rendezvous][remote]") {
  with_rendezvous(
      [](cohort::communicator world, cohort::rendezvous exchange) -> task {
        auto step = exchange.step(1);
        const std::string name(60000, 'n');
        for (int i = 0; i < 20; ++i) {
          step.send(to_right(world, name), std::string(static_cast<std::size_t>(i) * 2000, 'v'));
        }
        for (int i = 0; i < 20; ++i) {
          const auto got = co_await step.recv<std::string>(from_left(world, name));
          if (got.value != std::string(static_cast<std::size_t>(i) * 2000, 'v')) FAIL(i);
        }
        CHECK(exchange.stats().granted == 0);
        CHECK(code_of_call([&] { step.send(to_right(world, std::string(65536, 'n')), 1); }) ==
              errc::invalid_argument);
      },
      options().push_limit(100000).inline_limit(100000));
}

TEST_CASE("receives from all ranks race with aborts and cleanups",
          "[rendezvous][remote][threads]") {
  with_rendezvous([](cohort::communicator world, cohort::rendezvous exchange) -> task {
    int ended = 0;
    for (cohort::step_id round = 0; round < 60; ++round) {
      auto step = exchange.step(round);
      std::vector<cohort::future<cohort::received<int>>> all;
      for (int i = 0; i < 20; ++i) {
        const int other = i % world.size();
        try {
          step.send(key_of(world.rank(), other, "race"), i);
        } catch (const std::system_error&) {
        }
        all.push_back(step.recv<int>(key_of(other, world.rank(), "race"), as_future));
        if (i % 5 == 0) all.back().cancel();
        if (i == 10 && (round + world.rank()) % 3 == 0) {
          step.abort(make_error_code(errc::stalled));
        }
        if (i == 15 && (round + world.rank()) % 4 == 0) exchange.cleanup(round);
      }
      if (round % 2 == 0) co_await pause(100us);
      exchange.cleanup(round);
      for (auto& one : all) {
        const auto code = co_await cohort_test::code_of<cohort::received<int>>(std::move(one));
        const bool allowed = !code || code == errc::stalled || code == errc::aborted ||
                             code == errc::step_cleaned || code == asio::error::operation_aborted;
        if (!allowed) FAIL(code.message());
        ++ended;
      }
    }
    CHECK(ended == 60 * 20);
  });
}

TEST_CASE("more than 2^31 bytes", "[.][large]") {  // 4.6 GiB on each of two ranks
  with_rendezvous([](cohort::communicator world, cohort::rendezvous exchange) -> task {
    auto step = exchange.step(1);
    constexpr std::size_t count = (2300ULL << 20U);
    if (world.rank() == 0) {
      std::vector<char> value(count, 'a');
      value.back() = 'z';
      step.send(key_of(0, world.size() - 1, "large"), std::move(value));
    }
    if (world.rank() == world.size() - 1) {
      std::vector<char> into(count);
      const auto got =
          co_await step.recv_into(key_of(0, world.rank(), "large"), std::span<char>(into));
      CHECK(got.value->size() == count);
      CHECK(into[count / 2] == 'a');
      CHECK(into.back() == 'z');
    }
    co_await step.drained();
  });
}

TEST_CASE("options out of range are refused", "[rendezvous][remote]") {
  asio::io_context io;
  CHECK(code_of_call([&] { cohort::rendezvous(io, options().chunk(0).deferred()); }) ==
        errc::invalid_argument);
  for (const int transfers : {0, 32768}) {
    CHECK(code_of_call([&] {
            cohort::rendezvous(io, options().transfers(transfers).deferred());
          }) == errc::invalid_argument);
  }
  CHECK(code_of_call([] { cohort::rendezvous nothing{cohort::communicator()}; }) ==
        errc::invalid_communicator);
}

TEST_CASE("options that one rank refuses, or that differ, are told to all",
          "[rendezvous][remote]") {
  const bool differs = GENERATE(false, true);
  cohort_test::on_world([differs](cohort::communicator world) -> task {
    const int last = world.size() - 1;
    const bool wrong = world.rank() == last && (!differs || last != 0);
    std::optional<cohort::rendezvous> exchange;
    const std::error_code refused = code_of_call([&] {
      options own;
      if (wrong) differs ? own.chunk(1000) : own.transfers(0);
      exchange.emplace(world, own);
    });
    CHECK(refused ==
          (wrong && !differs ? make_error_code(errc::invalid_argument) : std::error_code()));
    if (exchange && last != 0) {
      const auto problem = co_await cohort_test::caught<cohort::mismatch_error>(
          exchange->step(1).recv<int>(from_left(world, "x")));
      REQUIRE(problem);
      CHECK(problem->field() == (differs ? "chunk" : "options"));
      CHECK(problem->ranks() == std::vector<int>{last});
      const std::string who = "rank " + std::to_string(last);
      CHECK_THAT(problem->what(),
                 Catch::Matchers::ContainsSubstring(
                     differs ? "options differ between ranks: chunk: 1000 on " + who +
                                   ", 1073741824 on rank"
                             : who + " refused its options: chunk is at least 1, transfers are"));
      const auto closed = co_await cohort_test::code_of(exchange->close());
      CHECK(closed == errc::cross_rank_mismatch);
    }
    // It was made by all of them, like the next one.
    cohort::rendezvous next(world);
    auto step = next.step(1);
    step.send(to_right(world, "x"), world.rank());
    const auto got = co_await step.recv<int>(from_left(world, "x"));
    CHECK(got.value == left_of(world));
    co_await next.close();
  });
}

TEST_CASE("two rendezvous at once do not meet", "[rendezvous][remote]") {
  with_rendezvous([](cohort::communicator world, cohort::rendezvous first) -> task {
    const auto own_comm = co_await world.dup();
    cohort::rendezvous second(own_comm);
    auto a = first.step(1);
    auto b = second.step(1);
    a.send(to_right(world, "x"), 1);
    b.send(to_right(world, "x"), 2);
    const auto from_b = co_await b.recv<int>(from_left(world, "x"));
    const auto from_a = co_await a.recv<int>(from_left(world, "x"));
    CHECK(from_a.value == 1);
    CHECK(from_b.value == 2);
    co_await second.close();
  });
}

TEST_CASE("close ends at its deadline", "[rendezvous][remote]") {
  cohort_test::on_world([](cohort::communicator world) -> task {
    const cohort::log::capture log;
    const int before = cohort::process::missing.load();
    cohort::rendezvous exchange(world, options().leave_deadline(100ms));
    const int last = world.size() - 1;
    if (world.rank() != last) {
      for (int i = 0; i < 2; ++i) {
        CHECK(co_await cohort_test::code_of(exchange.close()) == errc::stalled);
      }
      CHECK(log.contains("the other ranks have not closed in time"));
      CHECK(cohort::process::missing.load() == before + 1);
    }
    co_await meet(world);
    // Where the loop still runs, the end comes all the same.
    for (;;) {
      const std::error_code late = co_await cohort_test::code_of(exchange.close());
      if (!late) break;
      CHECK(late == errc::stalled);
      co_await pause(1ms);
    }
    CHECK(cohort::process::missing.load() == before);
    co_await meet(world);
  });
}

TEST_CASE("a rank that has waited in vain does not wait again", "[rendezvous][remote]") {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (size == 1) return;
  const cohort::log::capture log;
  const int before = cohort::process::missing.load();
  {
    asio::io_context io;
    cohort::communicator world(io);
    std::optional<cohort::rendezvous> exchange;
    exchange.emplace(world, options().leave_deadline(100ms));
    const auto body = [&]() -> task {
      auto step = exchange->step(1);
      step.send(to_right(world, "x"), 1);
      co_await step.recv<int>(from_left(world, "x"));
      co_await step.drained();
      co_await meet(world);
      if (world.rank() == 0) co_return;
      CHECK(co_await cohort_test::code_of(exchange->close()) == errc::stalled);
    };
    asio::co_spawn(io, body(), cohort::rethrow);
    io.run();
    if (world.rank() == 0) {
      MPI_Barrier(MPI_COMM_WORLD);  // all others have ended
    } else {
      const auto looks = cohort::engine_stats(io).tests;
      exchange.reset();
      CHECK(cohort::engine_stats(io).tests == looks);
    }
  }
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank != 0) MPI_Barrier(MPI_COMM_WORLD);
  // Nothing is left that would end the job.
  CHECK(cohort::process::leftovers().empty());
  CHECK(cohort::process::missing.load() == before + 1);
  cohort::process::missing.store(before);  // they are all here
}
