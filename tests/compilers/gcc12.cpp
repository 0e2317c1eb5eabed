// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// The coroutine defects of g++ 12 that the library avoids. Each case below is a call as the
// documentation writes it, with the shape that would be broken if the library were made otherwise;
// .ci/run compiles and runs this file with g++ 12 under ASan, which sees a double free. What g++ 12
// does wrong, inside a full expression that contains a co_await:
//
//  1. A temporary of a class that has a destructor, and no constructor written by hand, is
//  destroyed
//     twice: an aggregate, or a class with defaulted constructors only. So every class of the
//     library that may be a temporary argument is trivially destructible or has such a constructor:
//     tokens, `op::` tags, `user_op`, `as_tuple`, options, bodies of verbs.
//  2. A lambda that captures something with a destructor is such a class: none as an argument of an
//     awaited call. Give it a name first.
//  3. The backing array of a braced list is rejected or lost: `{0, 2, 4}`. List arguments are
//     classes with a variadic constructor: `cohort::ranks{0, 2, 4}`.
//  4. A co_await inside the braces of an initialiser frees its operands twice. Write a statement.
//  5. The operands of a conditional operator that are temporaries of a class are both destroyed.
//     Write an if, or choose between objects that have names.
//  6. `(co_await x).member` of a name whose type depends on a template is not understood. Give the
//     result a name.
//  7. In the condition of a loop `a && co_await b` awaits b even where a is false. Write an if.
//  8. Parameters of a coroutine that are references to temporaries of the caller's expression die
//     with that expression, by the language's own rule and with every compiler: coroutines take
//     what they keep by value.

#include <cohort/cohort.hpp>

#include <array>
#include <chrono>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "support/catch.hpp"

namespace {

using cohort::communicator;
using namespace std::chrono_literals;

template <class T>
constexpr bool safe_as_temporary = std::is_trivially_destructible_v<T> || !std::is_aggregate_v<T>;

// Defect 1, as far as a trait can tell: none of these is an aggregate with a destructor.
static_assert(safe_as_temporary<cohort::as_future_t>);
static_assert(safe_as_temporary<cohort::as_tuple_token>);
static_assert(safe_as_temporary<cohort::rethrow_t>);
static_assert(safe_as_temporary<cohort::ranks>);
static_assert(safe_as_temporary<cohort::communicator>);
static_assert(safe_as_temporary<cohort::communicator_options>);
static_assert(safe_as_temporary<cohort::engine_options>);
static_assert(safe_as_temporary<cohort::future<int>>);
static_assert(safe_as_temporary<cohort::mpi::cartesian>);
static_assert(safe_as_temporary<cohort::mpi::dist_graph>);
static_assert(safe_as_temporary<cohort::status>);
static_assert(safe_as_temporary<cohort::op::sum_t>);

/// Runs one coroutine on a communicator of all ranks and lets its exception out.
template <class Body>
void run(Body body) {
  asio::io_context io;
  asio::co_spawn(io, body(communicator(io)), cohort::rethrow);
  io.run();
}

std::vector<double> made(double value) { return std::vector<double>(1000, value); }

TEST_CASE("borrowed buffers, in place and out of place, with every form of error") {
  run([](communicator world) -> asio::awaitable<void> {
    std::vector<double> grad = made(1);
    std::vector<double> peak = made(0);
    double loss = 1;
    co_await cohort::all_reduce(world, grad, cohort::op::sum);
    co_await cohort::all_reduce(world, grad, peak, cohort::op::max);
    co_await cohort::all_reduce(world, loss, cohort::op::average);
    co_await cohort::broadcast(world, grad, 0);
    auto [ec] = co_await cohort::barrier(world, cohort::as_tuple);
    auto [failed] = co_await cohort::all_reduce(world, loss, cohort::op::sum, cohort::as_tuple);
    std::error_code why;
    co_await cohort::barrier(world, asio::redirect_error(asio::use_awaitable, why));
    CHECK((!ec && !failed && !why));
    CHECK(grad[999] == world.size());
    CHECK(peak[999] == world.size());
  });
}

TEST_CASE("temporaries that are moved in and handed back") {
  run([](communicator world) -> asio::awaitable<void> {
    auto kept = co_await cohort::all_reduce(world, made(2), cohort::op::sum);
    kept = co_await cohort::all_reduce(world, std::move(kept), cohort::op::min);
    auto [in, out] = co_await cohort::all_reduce(world, made(1), made(0), cohort::op::sum);
    CHECK(kept.size() == 1000);
    CHECK(in[5] == 1.0);
    CHECK(out[5] == world.size());
    auto [ec, again] =
        co_await cohort::all_reduce(world, made(1), cohort::op::average, cohort::as_tuple);
    CHECK(!ec);
    CHECK(again == made(1));
    std::string text(100, 'x');
    text = co_await cohort::broadcast(world, std::move(text), 0);
    CHECK(text == std::string(100, 'x'));
  });
}

TEST_CASE("user reductions") {
  run([](communicator world) -> asio::awaitable<void> {
    std::vector<double> v = made(0);
    co_await cohort::all_reduce(
        world, v,
        cohort::user_op{[](double a, double b) { return a + b - a * b; }, cohort::commutative});
    CHECK(v[0] == 0.0);
  });
}

TEST_CASE("messages of known and of unknown size") {
  run([](communicator world) -> asio::awaitable<void> {
    const int self = world.rank();
    auto sent = cohort::send(world, made(3), self, 7, cohort::as_future);
    auto [data, status] = co_await cohort::recv<std::vector<double>>(world, self, 7);
    const auto back = co_await std::move(sent);
    CHECK(data == back);
    CHECK(status.count<double>() == 1000);

    std::array<int, 2> out{1, 2};
    std::array<int, 2> in{};
    co_await cohort::send_recv(world, out, self, in, self, 8);
    CHECK(in == out);

    auto arriving = cohort::send(world, std::string("hello"), self, 9, cohort::as_future);
    auto message = co_await cohort::matched_probe(world, cohort::any_source, 9);
    std::string text(message.bytes(), ' ');
    co_await cohort::recv(world, std::move(message), text);
    co_await std::move(arriving);
    CHECK(text == "hello");
  });
}

TEST_CASE("futures, all of them, and deadlines") {
  run([](communicator world) -> asio::awaitable<void> {
    std::vector<double> grad = made(1);
    auto f = cohort::all_reduce(world, grad, cohort::op::sum, cohort::as_future);
    co_await std::move(f);
    co_await cohort::all_reduce(world, grad, cohort::op::average, cohort::as_future);

    std::array<double, 3> numbers{1, 1, 1};
    std::vector<cohort::future<>> futures;
    for (double& each : numbers) {
      futures.push_back(cohort::all_reduce(world, each, cohort::op::sum, cohort::as_future));
    }
    co_await cohort::when_all(std::move(futures));
    std::vector<asio::awaitable<void>> lazy;
    for (double& each : numbers) lazy.push_back(cohort::all_reduce(world, each, cohort::op::max));
    co_await cohort::when_all(std::move(lazy));
    const auto [both, text] = co_await cohort::when_all(
        cohort::all_reduce(world, made(1), cohort::op::sum, cohort::as_future),
        cohort::barrier(world, cohort::as_future),
        cohort::broadcast(world, std::string("text"), 0, cohort::as_future));
    CHECK(both[7] == world.size());
    CHECK(text == "text");
    std::vector<cohort::future<>> mixed;
    mixed.push_back(cohort::all_reduce(world, made(1), cohort::op::sum, cohort::as_future));
    mixed.push_back(cohort::barrier(world, cohort::as_future));
    for (std::size_t left = mixed.size(); left != 0; --left) {
      const std::size_t first = co_await cohort::when_any(mixed);
      co_await std::move(mixed[first]);
    }
    CHECK(numbers[2] == world.size());

    co_await cohort::with_deadline(cohort::all_reduce(world, grad, cohort::op::max), 30s);
    const auto kept =
        co_await cohort::with_deadline(cohort::all_reduce(world, made(1), cohort::op::sum), 30s);
    CHECK(kept[3] == world.size());
    bool late = false;
    try {
      co_await cohort::with_deadline(cohort::recv(world, grad, world.rank(), 99), 2ms);
    } catch (const cohort::deadline_error&) {
      late = true;
    }
    CHECK(late);
  });
}

TEST_CASE("communicators as results and as arguments") {
  run([](communicator world) -> asio::awaitable<void> {
    auto sub = co_await world.dup();
    auto node = co_await world.split_node();
    auto half = co_await world.split(world.rank() % 2);
    auto ring = co_await world.create(cohort::mpi::cartesian::balanced(world.size(), 1, true));
    std::array<int, 2> around{-1, -1};
    const int own = world.rank();
    co_await cohort::neighbor_all_gather(ring, own, around);
    CHECK(around[0] >= 0);
    double one = 1;
    co_await cohort::all_reduce(communicator(sub), one, cohort::op::sum);
    CHECK(one == world.size());
    CHECK(node.size() >= half.size() / 2);
  });
}

TEST_CASE("lists and counts") {
  run([](communicator world) -> asio::awaitable<void> {
    const std::vector<int> mine(2, world.rank());
    std::vector<int> all(2 * static_cast<std::size_t>(world.size()));
    co_await cohort::all_gather(world, mine, all);
    const std::vector<int> counts(static_cast<std::size_t>(world.size()), 2);
    const auto gathered = co_await cohort::all_gather_v(world, mine, counts);
    CHECK(gathered == all);
    std::vector<int> root(all.size());
    co_await cohort::gather(world, mine, root, 0);
    std::vector<int> part(2);
    co_await cohort::scatter(world, root, part, 0);
    co_await cohort::scan(world, mine, part, cohort::op::sum);
  });
}

TEST_CASE("results chosen by an if, and results used in the middle of an expression") {
  run([](communicator world) -> asio::awaitable<void> {
    std::vector<double> a = made(1);
    std::vector<double> b = made(2);
    const bool first = world.size() > 0;
    co_await cohort::all_reduce(world, first ? a : b, cohort::op::max);  // both have names
    const auto kept = co_await cohort::all_reduce(world, made(1), cohort::op::sum);
    const double sum = kept[0] + kept[1];
    CHECK(sum == 2 * world.size());
    for (int i = 0; i < 3; ++i) {
      if (co_await cohort::all_reduce(world, made(i), cohort::op::max) != made(i)) FAIL("differs");
    }
  });
}

}  // namespace
