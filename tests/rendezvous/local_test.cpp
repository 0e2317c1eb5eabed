// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// Within one rank: the cases of TensorFlow's own tests as coroutines, every kind of value, every
// completion token, threads.
#include <cohort/core/log.hpp>
#include <cohort/progress/deadline.hpp>
#include <cohort/progress/future.hpp>
#include <cohort/progress/sync_wait.hpp>
#include <cohort/progress/when_all.hpp>
#include <cohort/rendezvous.hpp>

#include <asio/experimental/awaitable_operators.hpp>
#include <asio/strand.hpp>
#include <asio/thread_pool.hpp>

#include <atomic>
#include <chrono>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "rendezvous/exchange_support.hpp"

namespace {

using namespace asio::experimental::awaitable_operators;
using namespace rendezvous_test;

struct particle {
  double position = 0;
  int charge = 0;
};

}  // namespace

TEST_CASE("send then receive, receive then send", "[rendezvous][local]") {
  with_rendezvous([](cohort::communicator world, cohort::rendezvous exchange) -> task {
    auto step = exchange.step(7);
    const auto key = own(world, "foo");
    step.send(key, std::string("hello"));
    auto [value, dead] = co_await step.recv<std::string>(key);
    CHECK(value == "hello");
    CHECK_FALSE(dead);

    auto later = step.recv<std::string>(key, as_future);
    CHECK_FALSE(later.is_ready());
    step.send(key, "world");
    CHECK_FALSE(later.is_ready());  // nothing of the receiver runs inside send
    const auto got = co_await std::move(later);
    CHECK(got.value == "world");
  });
}

TEST_CASE("two coroutines play ping-pong", "[rendezvous][local]") {
  with_rendezvous([](cohort::communicator world, cohort::rendezvous exchange) -> task {
    auto step = exchange.step(1);
    auto other = [](cohort::communicator here, cohort::rendezvous_step in) -> task {
      for (int i = 0; i < 1000; ++i) {
        const auto got = co_await in.recv<int>(own(here, "ping"));
        in.send(own(here, "pong"), *got.value + 1);
      }
    };
    auto playing =
        asio::co_spawn(co_await asio::this_coro::executor, other(world, step), as_future);
    for (int i = 0; i < 1000; ++i) {
      step.send(own(world, "ping"), i);
      const auto got = co_await step.recv<int>(own(world, "pong"));
      if (got.value != i + 1) FAIL(i);
    }
    co_await std::move(playing);
  });
}

TEST_CASE("a hundred values of one key are received in order", "[rendezvous][local]") {
  with_rendezvous([](cohort::communicator world, cohort::rendezvous exchange) -> task {
    auto step = exchange.step(1);
    const auto key = own(world, "many");
    auto sending = [](cohort::rendezvous_step in, rendezvous_key to) -> task {
      for (int i = 0; i < 100; ++i) {
        in.send(to, i);
        if (i % 7 == 0) co_await asio::post(asio::use_awaitable);
      }
    };
    auto sent = asio::co_spawn(co_await asio::this_coro::executor, sending(step, key), as_future);
    for (int i = 0; i < 100; ++i) {
      const auto got = co_await step.recv<int>(key);
      CHECK(got.value == i);
    }
    co_await std::move(sent);
  });
}

TEST_CASE("cancelling a receive before and after it has its value", "[rendezvous][local]") {
  with_rendezvous([](cohort::communicator world, cohort::rendezvous exchange) -> task {
    auto step = exchange.step(1);
    const auto key = own(world, "c");
    auto first = step.recv<int>(key, as_future);
    first.cancel();
    const auto before = co_await cohort_test::code_of<cohort::received<int>>(std::move(first));
    CHECK(before == asio::error::operation_aborted);

    step.send(key, 1);  // nobody waits any more
    auto second = step.recv<int>(key, as_future);
    second.cancel();  // it has its value already
    const auto got = co_await std::move(second);
    CHECK(got.value == 1);

    auto third = step.recv<int>(key, as_future);
    step.send(key, 2);
    const auto last = co_await std::move(third);
    CHECK(last.value == 2);
    CHECK(step.waiting().empty());
  });
}

TEST_CASE("two of four waiting receives are cancelled", "[rendezvous][local]") {
  with_rendezvous([](cohort::communicator world, cohort::rendezvous exchange) -> task {
    auto step = exchange.step(1);
    const auto key = own(world, "four");
    auto a = step.recv<int>(key, as_future);
    auto b = step.recv<int>(key, as_future);
    auto c = step.recv<int>(key, as_future);
    auto d = step.recv<int>(key, as_future);
    b.cancel();
    c.cancel();
    step.send(key, 1);
    step.send(key, 2);
    const auto got_a = co_await std::move(a);
    const auto got_d = co_await std::move(d);
    CHECK(got_a.value == 1);
    CHECK(got_d.value == 2);
    const auto code_b = co_await cohort_test::code_of<cohort::received<int>>(std::move(b));
    const auto code_c = co_await cohort_test::code_of<cohort::received<int>>(std::move(c));
    CHECK(code_b == asio::error::operation_aborted);
    CHECK(code_c == asio::error::operation_aborted);
  });
}

TEST_CASE("a dropped future does not take a value", "[rendezvous][local]") {
  with_rendezvous([](cohort::communicator world, cohort::rendezvous exchange) -> task {
    auto step = exchange.step(1);
    const auto key = own(world, "dropped");
    {
      auto unused = step.recv<int>(key, as_future);
    }
    step.send(key, 5);
    const auto got = co_await step.recv<int>(key);
    CHECK(got.value == 5);
  });
}

TEST_CASE("a receive or a timer, whichever is first", "[rendezvous][local]") {
  with_rendezvous([](cohort::communicator world, cohort::rendezvous exchange) -> task {
    auto step = exchange.step(1);
    const auto key = own(world, "timed");
    asio::steady_timer timer(co_await asio::this_coro::executor, 1ms);
    auto none = co_await (step.recv<int>(key) || timer.async_wait(asio::use_awaitable));
    CHECK(none.index() == 1);
    step.send(key, 6);
    timer.expires_after(1h);
    auto some = co_await (step.recv<int>(key) || timer.async_wait(asio::use_awaitable));
    CHECK(some.index() == 0);
    CHECK(std::get<0>(some).value == 6);

    const auto late = co_await cohort_test::code_of(
        cohort::with_deadline(step.recv<int>(own(world, "never")), 1ms));
    CHECK(late == errc::deadline_exceeded);
  });
}

TEST_CASE("a hundred keys after random pauses", "[rendezvous][local]") {
  with_rendezvous([](cohort::communicator world, cohort::rendezvous exchange) -> task {
    auto step = exchange.step(1);
    const auto executor = co_await asio::this_coro::executor;
    auto send_one = [](cohort::communicator here, cohort::rendezvous_step in, int n) -> task {
      asio::steady_timer timer(co_await asio::this_coro::executor,
                               std::chrono::microseconds(n * 7919 % 3000));
      co_await timer.async_wait(asio::use_awaitable);
      const std::string name = "key" + std::to_string(n);
      in.send(own(here, name), n);
    };
    auto receive_one = [](cohort::communicator here, cohort::rendezvous_step in, int n) -> task {
      asio::steady_timer timer(co_await asio::this_coro::executor,
                               std::chrono::microseconds(n * 104729 % 3000));
      co_await timer.async_wait(asio::use_awaitable);
      const std::string name = "key" + std::to_string(n);
      const auto got = co_await in.recv<int>(own(here, name));
      CHECK(got.value == n);
    };
    std::vector<cohort::future<void>> all;
    for (int n = 0; n < 100; ++n) {
      all.push_back(asio::co_spawn(executor, send_one(world, step, n), as_future));
      all.push_back(asio::co_spawn(executor, receive_one(world, step, n), as_future));
    }
    co_await cohort::when_all(std::move(all));
  });
}

TEST_CASE("abort ends what waits and what comes", "[rendezvous][local]") {
  with_rendezvous([](cohort::communicator world, cohort::rendezvous exchange) -> task {
    auto step = exchange.step(1);
    auto waits = step.recv<int>(own(world, "a"), as_future);
    step.abort(make_error_code(errc::stalled));
    const auto first = co_await cohort_test::code_of<cohort::received<int>>(std::move(waits));
    CHECK(first == errc::stalled);
    const auto second = co_await cohort_test::code_of(step.recv<int>(own(world, "b")));
    CHECK(second == errc::stalled);
    CHECK(code_of_call([&] { step.send(own(world, "c"), 1); }) == errc::stalled);
    CHECK(code_of_call([&] { step.send_dead(own(world, "c")); }) == errc::stalled);
    const auto third = co_await cohort_test::code_of(step.drained());
    CHECK(third == errc::stalled);
    auto other = exchange.step(2);  // not touched by it
    other.send(own(world, "a"), 1);
    const auto got = co_await other.recv<int>(own(world, "a"));
    CHECK(got.value == 1);

    auto sleeping = exchange.step(3);
    auto later = sleeping.recv<int>(own(world, "s"), as_future);
    co_await pause(2ms);
    sleeping.abort(std::make_exception_ptr(std::runtime_error("my own")));
    std::string text;
    try {
      co_await std::move(later);
    } catch (const std::runtime_error& problem) {
      text = problem.what();
    }
    CHECK(text == "my own");
  });
}

TEST_CASE("cleanup ends the step for ever", "[rendezvous][local]") {
  with_rendezvous([](cohort::communicator world, cohort::rendezvous exchange) -> task {
    auto step = exchange.step(7);
    auto waits = step.recv<int>(own(world, "x"), as_future);
    exchange.cleanup(7);
    const auto first = co_await cohort_test::code_of<cohort::received<int>>(std::move(waits));
    CHECK(first == errc::step_cleaned);
    const auto second = co_await cohort_test::code_of(step.recv<int>(own(world, "x")));
    CHECK(second == errc::step_cleaned);
    CHECK(code_of_call([&] { step.send(own(world, "x"), 1); }) == errc::step_cleaned);
    CHECK(code_of_call([&] { exchange.step(7); }) == errc::step_cleaned);
    auto eight = exchange.step(8);
    auto nine = exchange.step(9);
    CHECK(exchange.steps().size() == 2);
    exchange.cleanup_all();
    CHECK(exchange.steps().empty());
    CHECK(code_of_call([&] { nine.send(own(world, "x"), 1); }) == errc::step_cleaned);
    // The last lease does not end a step.
    exchange.step(10).send(own(world, "kept"), 3);
    const auto got = co_await exchange.step(10).recv<int>(own(world, "kept"));
    CHECK(got.value == 3);
  });
}

TEST_CASE("duplicates are reported under single use", "[rendezvous][local]") {
  with_rendezvous(
      [](cohort::communicator world, cohort::rendezvous exchange) -> task {
        auto step = exchange.step(1);
        const auto key = own(world, "once");
        auto waits = step.recv<int>(key, as_future);
        const auto waiter = co_await cohort_test::code_of(step.recv<int>(key));
        CHECK(waiter == errc::duplicate_key);
        step.send(key, 1);
        const auto got = co_await std::move(waits);
        CHECK(got.value == 1);
        const auto serial = co_await cohort_test::code_of(step.recv<int>(key));
        CHECK(serial == errc::duplicate_key);
        CHECK(code_of_call([&] { step.send(key, 2); }) == errc::duplicate_key);
      },
      cohort::rendezvous_options().single_use());
}

TEST_CASE("values of every kind, and dead ones", "[rendezvous][local]") {
  with_rendezvous([](cohort::communicator world, cohort::rendezvous exchange) -> task {
    auto step = exchange.step(1);
    const auto key = own(world, "v");
    step.send(key, particle{1.5, -1});
    const auto one = co_await step.recv<particle>(key);
    CHECK(one.value->charge == -1);
    const std::vector<std::vector<std::string>> nested{{"a"}, {"b", "c"}};
    step.send(key, nested);
    const auto two = co_await step.recv<std::vector<std::vector<std::string>>>(key);
    CHECK(two.value == nested);
    std::vector<float> moved(1000, 1.F);
    const float* where = moved.data();
    step.send(key, std::move(moved));
    const auto three = co_await step.recv<std::vector<float>>(key);
    CHECK(three.value->data() == where);  // not copied
    step.send_dead(key);
    const auto four = co_await step.recv<int>(key);
    CHECK(four.dead);
    CHECK_FALSE(four.value);
    step.send(key, 3, true);
    const auto five = co_await step.recv<int>(key);
    CHECK(five.dead);
    CHECK(five.value == 3);

    const std::vector<int> numbers{1, 2, 3};
    step.send(key, std::span<const int>(numbers));
    int room[5] = {};
    const auto into = co_await step.recv_into(key, std::span<int>(room));
    CHECK(into.value->size() == 3);
    CHECK(room[2] == 3);
    CHECK(room[3] == 0);
    step.send(key, numbers);
    const auto too_long =
        co_await cohort_test::code_of(step.recv_into(key, std::span<int>(room, 2)));
    CHECK(too_long == errc::message_too_long);
    const auto wrong = co_await cohort_test::code_of(step.recv<double>(key));
    CHECK(wrong == errc::type_mismatch);
    const auto stays = co_await step.recv<std::vector<int>>(key);
    CHECK(stays.value == numbers);
  });
}

TEST_CASE("a stream ends with dead, and throws on abort", "[rendezvous][local]") {
  with_rendezvous([](cohort::communicator world, cohort::rendezvous exchange) -> task {
    auto step = exchange.step(1);
    const auto key = own(world, "stream");
    for (int i = 0; i < 5; ++i) step.send(key, i);
    step.send_dead(key);
    int count = 0;
    while (auto value = co_await step.next<int>(key)) CHECK(*value == count++);
    CHECK(count == 5);
    auto waits = step.next<int>(key, as_future);
    step.abort(make_error_code(errc::stalled));
    const auto code = co_await cohort_test::code_of<std::optional<int>>(std::move(waits));
    CHECK(code == errc::stalled);
  });
}

TEST_CASE("keys of other ranks and of earlier processes are refused", "[rendezvous][local]") {
  with_rendezvous([](cohort::communicator world, cohort::rendezvous exchange) -> task {
    auto step = exchange.step(1);
    const int me = world.rank();
    const auto code = [&](const rendezvous_key& key) {
      return code_of_call([&] { step.send(key, 1); });
    };
    CHECK(code(key_of(me + 1, me, "x")) == errc::not_local);
    CHECK(code(key_of(me, world.size(), "x")) == errc::not_local);
    CHECK(code(key_of(me, -1, "x")) == errc::not_local);
    CHECK(code(key_of(me, me, "")) == errc::invalid_argument);
    auto key = own(world, "x");
    key.source_incarnation = exchange.incarnation(me) + 2;
    CHECK(code(key) == errc::stale_incarnation);
    const auto stale = co_await cohort_test::code_of(step.recv<int>(key));
    CHECK(stale == errc::stale_incarnation);
    key.source_incarnation = exchange.incarnation(me);
    CHECK_FALSE(code(key));
    const auto got = co_await step.recv<int>(own(world, "x"));
    CHECK(got.value == 1);
    const auto elsewhere = co_await cohort_test::code_of(step.recv<int>(key_of(me, me + 1, "x")));
    CHECK(elsewhere == errc::not_local);
    const auto nobody =
        co_await cohort_test::code_of(step.recv<int>(key_of(world.size(), me, "x")));
    CHECK(nobody == errc::bad_rank);
    const auto nameless = co_await cohort_test::code_of(step.recv<int>(own(world, "")));
    CHECK(nameless == errc::invalid_argument);
    CHECK(step.is_local(own(world, "x")));
    CHECK_FALSE(step.is_local(key_of(me, me + 1, "x")));
    const auto empty = co_await cohort_test::code_of(cohort::rendezvous_step().recv<int>(key));
    CHECK(empty == errc::invalid_argument);
  });
}

TEST_CASE("a receive takes every completion token", "[rendezvous][local]") {
  with_rendezvous([](cohort::communicator world, cohort::rendezvous exchange) -> task {
    auto step = exchange.step(1);
    const auto key = own(world, "token");
    for (int i = 0; i < 6; ++i) step.send(key, i);
    auto [error, value] = co_await step.recv<int>(key, cohort::as_tuple);
    CHECK_FALSE(error);
    CHECK(value.value == 0);
    auto operation = step.recv<int>(key, cohort::deferred);
    const auto one = co_await std::move(operation)(asio::use_awaitable);
    CHECK(one.value == 1);
    int called = -1;
    step.recv<int>(key,
                   [&](std::exception_ptr, cohort::received<int> got) { called = *got.value; });
    CHECK(called == -1);  // never inside the initiating call
    step.recv<int>(key, asio::detached);
    auto future = step.recv<int>(key, as_future);
    const auto four = co_await std::move(future);
    CHECK(four.value == 4);
    CHECK(called == 2);
    auto strand = asio::make_strand(co_await asio::this_coro::executor);
    bool on_strand = false;
    auto last = step.recv<int>(own(world, "other"), as_future);
    step.recv<int>(key, asio::bind_executor(strand, [&](std::exception_ptr, cohort::received<int>) {
                     on_strand = strand.running_in_this_thread();
                     step.send(own(world, "other"), 1);
                   }));
    co_await std::move(last);
    CHECK(on_strand);
    // A name that is gone when a lazy receive starts.
    auto lazy = [&] {
      const std::string name = "a name that is too long for a small string";
      step.send(own(world, name), 8);
      return step.recv<int>(own(world, name));
    }();
    const auto late = co_await std::move(lazy);
    CHECK(late.value == 8);
  });
}

TEST_CASE("a coroutine that is cancelled before it receives takes no value",
          "[rendezvous][local]") {
  with_rendezvous([](cohort::communicator world, cohort::rendezvous exchange) -> task {
    auto step = exchange.step(1);
    asio::cancellation_signal cancel;
    bool reached = false;
    auto body = [&]() -> task {
      co_await pause(1ms);
      cancel.emit(asio::cancellation_type::terminal);
      reached = true;
      co_await step.recv<int>(own(world, "x"));
    };
    std::exception_ptr ended;
    asio::co_spawn(
        co_await asio::this_coro::executor, body(),
        asio::bind_cancellation_slot(cancel.slot(), [&](std::exception_ptr why) { ended = why; }));
    while (!ended) co_await pause(1ms);
    CHECK(reached);
    step.send(own(world, "x"), 1);
    const auto got = co_await step.recv<int>(own(world, "x"));
    CHECK(got.value == 1);
  });
}

TEST_CASE("a cleanup ends ten thousand receives", "[rendezvous][local][threads]") {
  with_rendezvous([](cohort::communicator world, cohort::rendezvous exchange) -> task {
    constexpr int count = 10000;
    int ended = 0;
    int wrong = 0;
    for (cohort::step_id number = 0; number < 3; ++number) {
      auto step = exchange.step(number);
      std::thread cleaner([&] { exchange.cleanup(number); });
      for (int i = 0; i < count; ++i) {
        const std::string name = "key" + std::to_string(i % 100);
        step.recv<int>(own(world, name), [&](std::exception_ptr why, cohort::received<int>) {
          ++ended;
          try {
            std::rethrow_exception(why);
          } catch (const std::system_error& problem) {
            wrong += problem.code() == errc::step_cleaned ? 0 : 1;
          }
        });
      }
      cleaner.join();
    }
    while (ended != 3 * count) co_await pause(1ms);
    CHECK(wrong == 0);
  });
}

TEST_CASE("threads send and receive, and blocking receives are futures",
          "[rendezvous][local][threads]") {
  with_rendezvous([](cohort::communicator world, cohort::rendezvous exchange) -> task {
    auto step = exchange.step(1);
    constexpr int count = 2000;
    std::atomic<int> sum{0};
    std::thread sender([&] {
      for (int i = 0; i < count; ++i) step.send(own(world, "to loop"), i);
    });
    std::thread receiver([&] {
      for (int i = 0; i < count; ++i) {
        sum += *step.recv<int>(own(world, "to thread"), asio::use_future).get().value;
      }
    });
    int own_sum = 0;
    for (int i = 0; i < count; ++i) {
      const auto got = co_await step.recv<int>(own(world, "to loop"));
      own_sum += *got.value;
      step.send(own(world, "to thread"), i);
    }
    sender.join();
    while (sum != count * (count - 1) / 2) co_await pause(1ms);
    receiver.join();
    CHECK(own_sum == count * (count - 1) / 2);
  });
}

TEST_CASE("receives race with sends, cancellations and aborts of other threads",
          "[rendezvous][local][threads]") {
  with_rendezvous([](cohort::communicator world, cohort::rendezvous exchange) -> task {
    int ended = 0;
    for (cohort::step_id round = 0; round < 100; ++round) {
      auto step = exchange.step(round);
      std::thread sender([&] {
        try {
          for (int i = 0; i < 100; ++i) step.send(own(world, "race"), i);
        } catch (const std::system_error&) {
        }
      });
      std::thread ender([&] {
        if (round % 3 == 0) step.abort(make_error_code(errc::stalled));
        if (round % 3 == 1) exchange.cleanup(round);
      });
      for (int i = 0; i < 100; ++i) {
        auto one = step.recv<int>(own(world, "race"), as_future);
        if (i % 4 == 0) one.cancel();
        const auto code = co_await cohort_test::code_of<cohort::received<int>>(std::move(one));
        const bool allowed = !code || code == errc::stalled || code == errc::step_cleaned ||
                             code == asio::error::operation_aborted;
        if (!allowed) FAIL(code.message());
        ++ended;
      }
      sender.join();
      ender.join();
      exchange.cleanup(round);
    }
    CHECK(ended == 10000);
  });
}

TEST_CASE("plain code blocks until a value comes", "[rendezvous][local]") {
  asio::io_context io;
  const cohort::communicator world(io);
  cohort::rendezvous exchange(world);
  auto step = exchange.step(3);
  step.send(own(world, "now"), 5);
  CHECK(step.recv<int>(own(world, "now"), cohort::blocking).value == 5);
  asio::steady_timer timer(io, std::chrono::microseconds(100));
  timer.async_wait([&](std::error_code) { step.send(own(world, "late"), std::string("hello")); });
  CHECK(step.recv<std::string>(own(world, "late"), cohort::blocking).value == "hello");
  cohort::sync_wait(io, exchange.close());
}
