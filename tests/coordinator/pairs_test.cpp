// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// Messages between two ranks that are elected like any operation, in memory of the host. Part of
// the executable coordinator.order.
#include <cohort/coordinator.hpp>
#include <cohort/coordinator/timeline.hpp>
#include <cohort/progress/future.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "coordinator/support.hpp"
#include "coordinator/text_files.hpp"
#include "support/patience.hpp"

namespace {

namespace pairs {

using namespace std::chrono_literals;
using cohort::as_future;
using cohort::errc;
using cohort_test::caught;
using cohort_test::code_of;
using cohort_test::coordinated;
using cohort_test::has;
using cohort_test::meet;
using cohort_test::works;
namespace op = cohort::op;

struct point {
  float x = 0;
  float y = 0;
  float z = 0;
  friend bool operator==(const point&, const point&) = default;
};

/// What rank `from` sends to rank `to` as the n-th of a name.
std::vector<int> content(int from, int to, int name, int n) {
  std::vector<int> all(static_cast<std::size_t>(1 + (from * 31 + to * 7 + name * 3) % 2000));
  std::iota(all.begin(), all.end(), from * 1000000 + to * 100000 + name * 10000 + n * 100);
  return all;
}

/// One end of a message, for a test that gives the ends to two ranks.
using end = std::function<asio::awaitable<void>(cohort::coordinator)>;

/// Submits both ends, waits for both, and says that they fail with E on both; returns this one's.
template <class E>
asio::awaitable<std::optional<E>> fails_on_both(cohort::coordinator coord, end source, end target) {
  if (coord.rank() == 0) co_return co_await caught<E>(source(coord));
  if (coord.rank() == coord.size() - 1) co_return co_await caught<E>(target(coord));
  co_return std::nullopt;
}

}  // namespace pairs

}  // namespace

TEST_CASE("a message goes from one rank to another and the others take no part",
          "[coordinator][pairs]") {
  using namespace pairs;
  coordinated([](cohort::communicator, cohort::coordinator coord) -> asio::awaitable<void> {
    const int last = coord.size() - 1;
    if (last == 0) co_return;
    for (int round = 0; round < 3; ++round) {
      if (coord.rank() == 0) {
        const std::vector<double> constant(5, round + .5);
        co_await coord.send("doubles", constant, last);
        const point one{1, 2, static_cast<float>(round)};
        co_await coord.send("of the user", one, last);
        std::vector<float> nothing;
        co_await coord.send("nothing", nothing, last);
        auto back = co_await coord.send("moved in", std::vector<int>(7, round), last);
        CHECK(back == std::vector<int>(7, round));
      } else if (coord.rank() == last) {
        std::vector<double> doubles(5);
        co_await coord.recv("doubles", doubles, 0);
        CHECK(doubles == std::vector<double>(5, round + .5));
        point one;
        co_await coord.recv("of the user", one, 0);
        CHECK(one == point{1, 2, static_cast<float>(round)});
        std::vector<float> nothing;
        co_await coord.recv("nothing", nothing, 0);
        const auto come = co_await coord.recv("moved in", std::vector<int>(7), 0);
        CHECK(come == std::vector<int>(7, round));
      }
    }
    const bool takes_part = coord.rank() == 0 || coord.rank() == last;
    CHECK(coord.stats().completed == (takes_part ? 13U : 1U));  // with the barrier before
    co_await works(coord, "sum");
  });
}

TEST_CASE("rings in which every rank sends and receives at once", "[coordinator][pairs]") {
  using namespace pairs;
  const auto elements = GENERATE(std::size_t{3}, std::size_t{300000});
  coordinated([=](cohort::communicator, cohort::coordinator coord) -> asio::awaitable<void> {
    const int ranks = coord.size();
    if (ranks == 1) co_return;
    const int next = (coord.rank() + 1) % ranks;
    const int previous = (coord.rank() + ranks - 1) % ranks;
    for (int round = 0; round < 5; ++round) {
      std::vector<double> out(elements, coord.rank() + 10 * round);
      std::vector<double> in(elements);
      if ((coord.rank() + round) % 2 == 0) {
        auto sent = coord.send("ring", out, next, as_future);
        co_await coord.recv("ring", in, previous);
        co_await std::move(sent);
      } else {
        auto received = coord.recv("ring", in, previous, as_future);
        co_await coord.send("ring", out, next);
        co_await std::move(received);
      }
      CHECK(in == std::vector<double>(elements, previous + 10 * round));
    }
  });
}

TEST_CASE("messages of all pairs in another random order on each rank between reductions",
          "[coordinator][pairs]") {
  using namespace pairs;
  coordinated([](cohort::communicator, cohort::coordinator coord) -> asio::awaitable<void> {
    const int ranks = coord.size();
    const int me = coord.rank();
    std::mt19937 random(static_cast<std::uint32_t>(7 + me));
    constexpr int names = 3;
    constexpr int rounds = 4;
    // Which end of which message, `n` of them, or of which sum (peer -1).
    using what = std::tuple<bool, int, int>;
    std::vector<what> all;
    for (int n = 0; n < rounds; ++n) {
      for (int name = 0; name < names; ++name) {
        for (int peer = 0; peer < ranks; ++peer) {
          if (peer == me) continue;
          all.emplace_back(true, peer, name);
          all.emplace_back(false, peer, name);
        }
        all.emplace_back(true, -1, name);
      }
    }
    std::shuffle(all.begin(), all.end(), random);
    std::map<what, int> count;
    std::vector<std::vector<int>> buffers;
    std::vector<std::vector<int>> expected;
    std::vector<cohort::future<void>> pending;
    buffers.reserve(all.size());
    for (const what& one : all) {
      const auto [sends, peer, name] = one;
      const int n = count[one]++;
      const std::string text(1, static_cast<char>('a' + name));
      if (peer < 0) {
        buffers.emplace_back(3, n + me);
        expected.emplace_back(3, n * ranks + ranks * (ranks - 1) / 2);
        pending.push_back(coord.all_reduce(text, buffers.back(), op::sum, as_future));
      } else if (sends) {
        buffers.push_back(content(me, peer, name, n));
        expected.push_back(buffers.back());
        pending.push_back(coord.send(text, buffers.back(), peer, as_future));
      } else {
        expected.push_back(content(peer, me, name, n));
        buffers.emplace_back(expected.back().size());
        pending.push_back(coord.recv(text, buffers.back(), peer, as_future));
      }
    }
    for (auto& each : pending) co_await std::move(each);
    CHECK(buffers == expected);
    co_await works(coord, "a");
  });
}

TEST_CASE("two ends of a message that differ", "[coordinator][pairs]") {
  using namespace pairs;
  coordinated([](cohort::communicator, cohort::coordinator coord) -> asio::awaitable<void> {
    const int last = coord.size() - 1;
    if (last == 0) co_return;
    const end sends = [last](cohort::coordinator on) -> asio::awaitable<void> {
      std::vector<float> data(4);
      co_await on.send("x", data, last);
    };
    struct difference {
      std::string field;
      std::string value;
      end receives;
    };
    const std::vector<difference> all{
        {"shape", "5",
         [](cohort::coordinator on) -> asio::awaitable<void> {
           std::vector<float> data(5);
           co_await on.recv("x", data, 0);
         }},
        {"type", "int32",
         [](cohort::coordinator on) -> asio::awaitable<void> {
           std::vector<std::int32_t> data(4);
           co_await on.recv("x", data, 0);
         }},
        {"priority", "3",
         [](cohort::coordinator on) -> asio::awaitable<void> {
           std::vector<float> data(4);
           cohort::call_options options;
           options.priority = 3;
           co_await on.recv("x", data, 0, options);
         }},
    };
    for (const difference& each : all) {
      INFO(each.field);
      const auto problem =
          co_await fails_on_both<cohort::mismatch_error>(coord, sends, each.receives);
      const bool takes_part = coord.rank() == 0 || coord.rank() == last;
      REQUIRE(problem.has_value() == takes_part);
      if (!takes_part) continue;
      CHECK(problem->field() == each.field);
      const std::string verb = coord.rank() == 0 ? "send" : "recv";
      CHECK(has(problem->what(),
                "rank " + std::to_string(coord.rank()) + ": " + verb + " 'x': " + each.field));
      CHECK(has(problem->what(), each.value + " on rank " + std::to_string(last)));
      CHECK(has(problem->what(), "on rank 0 ("));
      CHECK(has(problem->what(), "pairs_test.cpp:"));
      CHECK_FALSE(has(problem->what(), "\x01"));
    }
    std::vector<float> data(4, static_cast<float>(coord.rank()));
    if (coord.rank() == 0) co_await coord.send("x", data, last);
    if (coord.rank() == last) co_await coord.recv("x", data, 0);
    if (coord.rank() == last) CHECK(data == std::vector<float>(4, 0));
  });
}

TEST_CASE("a message to oneself or to no rank is refused here alone", "[coordinator][pairs]") {
  using namespace pairs;
  coordinated([](cohort::communicator, cohort::coordinator coord) -> asio::awaitable<void> {
    const int me = coord.rank();
    const std::string here = "rank " + std::to_string(me) + ": ";
    int value = 1;
    const auto own = co_await caught<cohort::error>(coord.send("x", value, me));
    REQUIRE(own);
    CHECK(own->code() == errc::invalid_argument);
    CHECK(has(own->what(), here + "send 'x': to_rank=" + std::to_string(me) + " is this rank"));
    const auto below = co_await caught<cohort::error>(coord.recv("x", value, -1));
    REQUIRE(below);
    CHECK(below->code() == errc::bad_rank);
    CHECK(has(below->what(), here + "recv 'x': from_rank=-1, ranks="));
    CHECK(co_await code_of(coord.send("x", value, coord.size())) == errc::bad_rank);
    CHECK(coord.pending().empty());
    co_await works(coord, "x");
  });
}

TEST_CASE("a message takes no scale factors and no compression", "[coordinator][pairs]") {
  using namespace pairs;
  coordinated([](cohort::communicator, cohort::coordinator coord) -> asio::awaitable<void> {
    const int last = coord.size() - 1;
    if (last == 0) co_return;
    std::vector<float> data(4);
    for (const bool scales : {true, false}) {
      if (coord.rank() == 0) {
        cohort::call_options options;
        if (scales) options.postscale = 2;
        if (!scales) options.compression = cohort::compression::f16;
        const auto problem = co_await caught<cohort::error>(coord.send("x", data, last, options));
        REQUIRE(problem);
        CHECK(problem->code() == errc::invalid_argument);
        CHECK(has(problem->what(), "rank 0: send 'x': "));
        CHECK(has(problem->what(), scales ? "scale factors" : "compression"));
      } else if (coord.rank() == last) {
        const auto problem = co_await caught<cohort::withdrawn_error>(coord.recv("x", data, 0));
        REQUIRE(problem);
        CHECK(problem->reason() == "invalid arguments");
        CHECK(problem->ranks() == std::vector<int>{0});
      }
    }
  });
}

TEST_CASE("a message that is cancelled fails at its other end", "[coordinator][pairs]") {
  using namespace pairs;
  coordinated([](cohort::communicator world, cohort::coordinator coord) -> asio::awaitable<void> {
    const int last = coord.size() - 1;
    if (last == 0) co_return;
    int value = 1;
    if (coord.rank() == 0) {
      auto pending = coord.send("x", value, last, as_future);
      co_await meet(world);
      pending.cancel();
      const auto problem = co_await caught<std::system_error>(std::move(pending));
      REQUIRE(problem);
      CHECK(problem->code() == asio::error::operation_aborted);
      co_await meet(world);
    } else {
      co_await meet(world);
      co_await meet(world);
      if (coord.rank() == last) {
        const auto problem = co_await caught<cohort::withdrawn_error>(coord.recv("x", value, 0));
        REQUIRE(problem);
        CHECK(problem->reason() == "cancelled");
        CHECK(problem->ranks() == std::vector<int>{0});
      }
    }
    // What follows under that name is not concerned.
    value = coord.rank();
    if (coord.rank() == 0) co_await coord.send("x", value, last);
    if (coord.rank() == last) co_await coord.recv("x", value, 0);
    if (coord.rank() == last) CHECK(value == 0);
  });
}

TEST_CASE("a deadline over a message tells that the other rank is missing",
          "[coordinator][pairs]") {
  using namespace pairs;
  coordinated([](cohort::communicator world, cohort::coordinator coord) -> asio::awaitable<void> {
    const int last = coord.size() - 1;
    if (last == 0) co_return;
    int value = 1;
    if (coord.rank() == last) {
      cohort::call_options options;
      options.deadline = 50ms;
      const auto problem =
          co_await caught<cohort::deadline_error>(coord.recv("late", value, 0, options));
      REQUIRE(problem);
      CHECK(problem->stall().ready == std::vector<int>{last});
      CHECK(problem->stall().missing == std::vector<int>{0});
      CHECK(has(problem->what(), "recv 'late': withdrawn by rank " + std::to_string(last)));
    }
    co_await meet(world);
    if (coord.rank() == 0) {
      const auto problem =
          co_await caught<cohort::withdrawn_error>(coord.send("late", value, last));
      REQUIRE(problem);
      CHECK(problem->reason() == "deadline");
      CHECK(problem->ranks() == std::vector<int>{last});
    }
    co_await works(coord, "late");
  });
}

TEST_CASE("a message to a rank that has joined or left", "[coordinator][pairs]") {
  using namespace pairs;
  coordinated([](cohort::communicator world, cohort::coordinator coord) -> asio::awaitable<void> {
    const int last = coord.size() - 1;
    if (last == 0) co_return;
    int value = 1;
    std::optional<cohort::future<int>> joined;
    if (coord.rank() == last) joined = coord.join(as_future);
    co_await meet(world);
    if (coord.rank() == 0) {
      auto pending = coord.send("x", value, last);
      const auto problem = co_await caught<cohort::joined_error>(std::move(pending));
      REQUIRE(problem);
      CHECK(problem->ranks() == std::vector<int>{last});
      CHECK(has(problem->what(), "rank 0: send 'x': needs data of rank "));
    }
    if (!joined) joined = coord.join(as_future);
    co_await std::move(*joined);

    if (coord.rank() == last) {
      auto leaving = coord.shutdown(as_future);
      co_await meet(world);
      co_await std::move(leaving);
      co_return;
    }
    co_await meet(world);
    if (coord.rank() == 0) {
      const auto problem = co_await caught<cohort::peer_lost_error>(coord.recv("x", value, last));
      REQUIRE(problem);
      CHECK(problem->ranks() == std::vector<int>{last});
    }
  });
}

TEST_CASE("a message that waits is listed with the name and the verb of its caller",
          "[coordinator][pairs]") {
  using namespace pairs;
  coordinated([](cohort::communicator world, cohort::coordinator coord) -> asio::awaitable<void> {
    const int last = coord.size() - 1;
    if (last == 0) co_return;
    int value = coord.rank();
    if (coord.rank() == last) {
      auto waits = coord.recv("asked", value, 0, as_future);
      const auto until = std::chrono::steady_clock::now() + cohort_test::patient(20s);
      auto pending = coord.pending();
      do {
        coord.ask_pending();
        co_await cohort_test::pause(5ms);
        pending = coord.pending();
        REQUIRE(pending.size() == 1);
      } while (!pending[0].asked && std::chrono::steady_clock::now() < until);
      CHECK(pending[0].asked);
      CHECK(pending[0].name == "asked");
      CHECK(pending[0].verb == "recv");
      CHECK(pending[0].ready == std::vector<int>{last});
      CHECK(pending[0].missing == std::vector<int>{0});
      co_await meet(world);
      co_await std::move(waits);
      CHECK(value == 0);
    } else {
      co_await meet(world);
      if (coord.rank() == 0) co_await coord.send("asked", value, last);
    }
  });
}

TEST_CASE("the timeline shows a message as its callers named it", "[coordinator][pairs]") {
  using namespace pairs;
  cohort_test::on_world([](cohort::communicator world) -> asio::awaitable<void> {
    const cohort_test::scratch_file base("pairs");
    const std::string path =
        cohort::coordination::timeline_path(base.path(), world.rank(), world.size());
    cohort::coordinator_options options;
    options.timeline = base.path();
    cohort::coordinator coord(world, options);
    co_await coord.barrier("open");
    const int last = coord.size() - 1;
    int value = 1;
    if (last != 0 && coord.rank() == 0) co_await coord.send("x of all", value, last);
    if (last != 0 && coord.rank() == last) co_await coord.recv("x of all", value, 0);
    co_await coord.shutdown();
    const std::string text = cohort_test::content(path);
    const bool takes_part = last != 0 && (coord.rank() == 0 || coord.rank() == last);
    CHECK(has(text, "\"x of all\"") == takes_part);
    CHECK(has(text, "\"send\"") == (takes_part && coord.rank() == 0));
    CHECK(has(text, "\"recv\"") == (takes_part && coord.rank() != 0));
    CHECK(std::remove(path.c_str()) == 0);
  });
}

TEST_CASE("messages of a process set count its ranks", "[coordinator][pairs]") {
  using namespace pairs;
  coordinated([](cohort::communicator, cohort::coordinator coord) -> asio::awaitable<void> {
    const int ranks = coord.size();
    if (ranks == 1) co_return;
    std::vector<int> backwards(static_cast<std::size_t>(ranks));
    std::iota(backwards.rbegin(), backwards.rend(), 0);
    const auto set = co_await coord.add_process_set(cohort::ranks(backwards));
    int value = coord.rank();
    if (set.rank() == 0) co_await set.send("x", value, ranks - 1);
    if (set.rank() == ranks - 1) {
      co_await set.recv("x", value, 0);
      CHECK(coord.rank() == 0);
      CHECK(value == ranks - 1);
    }
    co_await set.shutdown();
  });
}
