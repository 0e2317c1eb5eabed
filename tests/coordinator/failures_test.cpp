// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// Who sees what when an operation fails: one test per row of the protocol's table.
#include <cohort/coordinator.hpp>
#include <cohort/core/log.hpp>
#include <cohort/p2p/recv.hpp>
#include <cohort/progress/deadline.hpp>
#include <cohort/progress/future.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/support.hpp"
#include "support/patience.hpp"

namespace {

using namespace std::chrono_literals;
using cohort::as_future;
using cohort::errc;
using cohort_test::caught;
using cohort_test::coordinated;
using cohort_test::has;
using cohort_test::meet;
using cohort_test::ranks_below;
using cohort_test::until_known;
using cohort_test::works;
namespace op = cohort::op;

using submission = std::function<asio::awaitable<void>(cohort::coordinator)>;

/// Two ways to submit one name that contradict each other.
struct contradiction {
  std::vector<std::string> fields;
  std::vector<std::string> values;  // of the first field: the others', the last rank's
  submission usual;
  submission other;
};

asio::awaitable<void> reduce_with(cohort::coordinator coord, cohort::call_options options,
                                  std::size_t count = 3) {
  std::vector<float> data(count, 1.0F);
  co_await coord.all_reduce("name", data, op::sum, options);
}
asio::awaitable<void> usual_sum(cohort::coordinator coord) {
  co_await reduce_with(std::move(coord), {});
}
submission with_options(double prescale, double postscale, int priority) {
  cohort::call_options options;
  options.prescale = prescale;
  options.postscale = postscale;
  options.priority = priority;
  return [options](cohort::coordinator coord) { return reduce_with(std::move(coord), options); };
}
submission with_compression(cohort::compression how) {
  cohort::call_options options;
  options.compression = how;
  return [options](cohort::coordinator coord) { return reduce_with(std::move(coord), options); };
}
submission bundled(std::string member) {
  return [member](cohort::coordinator coord) -> asio::awaitable<void> {
    std::vector<float> a(3);
    co_await coord.grouped_all_reduce(cohort::bundle("name").add(member, a), op::sum);
  };
}
submission broadcast_from(int root) {
  return [root](cohort::coordinator coord) -> asio::awaitable<void> {
    std::vector<float> data(3);
    co_await coord.broadcast("name", data, root);
  };
}

std::vector<contradiction> contradictions() {
  std::vector<contradiction> all;
  all.push_back({{"kind", "type", "element size", "shape", "reduction"},
                 {"all_reduce", "barrier"},
                 usual_sum,
                 [](cohort::coordinator coord) { return coord.barrier("name"); }});
  all.push_back({{"type", "element size"},
                 {"float32", "float64"},
                 usual_sum,
                 [](cohort::coordinator coord) -> asio::awaitable<void> {
                   std::vector<double> data(3);
                   co_await coord.all_reduce("name", data, op::sum);
                 }});
  all.push_back({{"type"},
                 {"float32", "int32"},
                 usual_sum,
                 [](cohort::coordinator coord) -> asio::awaitable<void> {
                   std::vector<int> data(3);
                   co_await coord.all_reduce("name", data, op::sum);
                 }});
  all.push_back({{"shape"}, {"3", "4"}, usual_sum, [](cohort::coordinator coord) {
                   return reduce_with(std::move(coord), {}, 4);
                 }});
  all.push_back({{"reduction"},
                 {"sum", "max"},
                 usual_sum,
                 [](cohort::coordinator coord) -> asio::awaitable<void> {
                   std::vector<float> data(3);
                   co_await coord.all_reduce("name", data, op::max);
                 }});
  all.push_back({{"prescale"}, {"1", "0.5"}, usual_sum, with_options(0.5, 1, 0)});
  all.push_back({{"postscale"}, {"1", "0.5"}, usual_sum, with_options(1, 0.5, 0)});
  all.push_back({{"priority"}, {"0", "7"}, usual_sum, with_options(1, 1, 7)});
  all.push_back(
      {{"shape", "prescale", "priority"}, {"3", "5"}, usual_sum, [](cohort::coordinator coord) {
         cohort::call_options options;
         options.prescale = 2;
         options.priority = 1;
         return reduce_with(std::move(coord), options, 5);
       }});
  all.push_back({{"type", "element size", "compression"},
                 {"float32", "bfloat16"},
                 usual_sum,
                 with_compression(cohort::compression::bf16)});
  all.push_back({{"type"},
                 {"float16", "bfloat16"},
                 with_compression(cohort::compression::f16),
                 with_compression(cohort::compression::bf16)});
  all.push_back({{"root"}, {"0", "1"}, broadcast_from(0), broadcast_from(1)});
  all.push_back(
      {{"group members"}, {"{1:a float32 x3}", "{1:b float32 x3}"}, bundled("a"), bundled("b")});
  return all;
}

}  // namespace

TEST_CASE("what ranks do not agree on is named on all of them", "[coordinator][failures]") {
  // A name that is new, and one that the cache knows.
  const bool cached = GENERATE(false, true);
  coordinated([cached](cohort::communicator, cohort::coordinator coord) -> asio::awaitable<void> {
    const int last = coord.size() - 1;
    if (last == 0) co_return;
    for (const contradiction& one : contradictions()) {
      const bool differs = coord.rank() == last;
      if (cached) co_await one.usual(coord);
      const submission& mine = differs ? one.other : one.usual;
      const auto problem = co_await caught<cohort::mismatch_error>(mine(coord));
      REQUIRE(problem);
      CHECK(problem->code() == errc::cross_rank_mismatch);
      CHECK(problem->fields() == one.fields);
      REQUIRE(problem->sides().size() == 2);
      const bool swapped = problem->sides()[0].values[0] != one.values[0];
      const auto& usual = problem->sides()[swapped ? 1 : 0];
      const auto& other = problem->sides()[swapped ? 0 : 1];
      CHECK(usual.values[0] == one.values[0]);
      CHECK(other.values[0] == one.values[1]);
      CHECK(other.ranks == std::vector<int>{last});
      CHECK_FALSE(usual.ranks.empty());
      for (const int rank : usual.ranks) CHECK(rank < last);
      CHECK(has(usual.site, "failures_test.cpp:"));
      CHECK(has(other.site, "failures_test.cpp:"));
      CHECK(usual.values.size() == one.fields.size());
      // The next use of the name works.
      co_await one.usual(coord);
    }
  });
}

TEST_CASE("a mismatch as text", "[coordinator][failures]") {
  coordinated([](cohort::communicator world, cohort::coordinator coord) -> asio::awaitable<void> {
    if (coord.size() != 2) co_return;
    std::vector<float> three(3);
    std::vector<double> four(4);
    cohort::call_options options;
    options.prescale = 0.25;
    // A site is known of who has not submitted by id.
    const std::string at_zero = "failures_test.cpp:" + std::to_string(__LINE__ + 5);
    const std::string at_one = "failures_test.cpp:" + std::to_string(__LINE__ + 7);
    std::optional<cohort::mismatch_error> problem;
    if (coord.rank() == 0) {
      problem =
          co_await caught<cohort::mismatch_error>(coord.all_reduce("layer/w", three, op::sum));
    } else {
      problem = co_await caught<cohort::mismatch_error>(
          coord.all_reduce("layer/w", four, op::sum, options));
    }
    REQUIRE(problem);
    std::string text = problem->what();
    INFO(text);
    for (const std::string& site : {at_zero, at_one}) {
      const std::size_t end = text.find(site);
      REQUIRE(end != std::string::npos);
      const std::size_t begin = text.rfind('(', end);
      text.erase(begin + 1, end - begin - 1);  // the directory
    }
    const std::string one = "rank " + std::to_string(coord.rank()) + ": all_reduce 'layer/w': ";
    const std::string zero_first = "type differs: float32 on rank 0 (" + at_zero +
                                   "), float64 on rank 1 (" + at_one +
                                   "); element size differs: 4 on rank 0, 8 on rank 1; shape "
                                   "differs: 3 on rank 0, 4 on rank 1; prescale differs: 1 on rank "
                                   "0, 0.25 on rank 1";
    const std::string one_first = "type differs: float64 on rank 1 (" + at_one +
                                  "), float32 on rank 0 (" + at_zero +
                                  "); element size differs: 8 on rank 1, 4 on rank 0; shape "
                                  "differs: 4 on rank 1, 3 on rank 0; prescale differs: 0.25 on "
                                  "rank 1, 1 on rank 0";
    CHECK((text.starts_with(one + zero_first) || text.starts_with(one + one_first)));
    co_await meet(world);
  });
}

TEST_CASE("a mismatch is known before the last rank has submitted", "[coordinator][failures]") {
  coordinated([](cohort::communicator world, cohort::coordinator coord) -> asio::awaitable<void> {
    const int last = coord.size() - 1;
    if (last < 2) co_return;
    for (int round = 0; round < 3; ++round) {
      const std::string name = "early " + std::to_string(round);
      std::vector<float> data(coord.rank() == 0 ? 5 : 4);
      if (coord.rank() == last) co_await meet(world);
      const auto problem =
          co_await caught<cohort::mismatch_error>(coord.all_reduce(name, data, op::sum));
      if (coord.rank() != last) co_await meet(world);
      REQUIRE(problem);
      CHECK(problem->fields() == std::vector<std::string>{"shape"});
      REQUIRE(problem->sides().size() == 2);
      for (const auto& side : problem->sides()) {
        CHECK_FALSE(side.ranks.empty());
        for (const int rank : side.ranks) CHECK(rank < last);
      }
      co_await works(coord, name);
    }
  });
}

TEST_CASE("a deadline tells who was ready and who was missing", "[coordinator][failures]") {
  const bool of_root = GENERATE(true, false);
  const bool by_adapter = GENERATE(false, true);
  const bool known = GENERATE(false, true);
  coordinated([=](cohort::communicator world, cohort::coordinator coord) -> asio::awaitable<void> {
    const int last = coord.size() - 1;
    if (last == 0) co_return;
    if (known) co_await works(coord, "late");
    co_await meet(world);
    // The one with the deadline submits when the others have.
    const int limited = of_root ? 0 : last - 1;
    std::vector<int> data(3, 1);
    const auto check = [&](const cohort::stall_facts& facts) {
      CHECK(facts.missing == std::vector<int>{last});
      CHECK(facts.ready == ranks_below(last));
      CHECK(facts.silent.empty());
      CHECK(facts.unknown.empty());
    };
    if (coord.rank() == limited) {
      co_await coord.barrier("told");
      cohort::call_options options;
      if (!by_adapter) options.deadline = 100ms;
      auto pending = coord.all_reduce("late", data, op::sum, options, as_future);
      const auto wait = [&]() -> asio::awaitable<void> {
        if (by_adapter) {
          co_await cohort::with_deadline(std::move(pending), 100ms);
        } else {
          co_await std::move(pending);
        }
      };
      const auto problem = co_await caught<cohort::deadline_error>(wait());
      REQUIRE(problem);
      check(problem->stall());
      CHECK(has(problem->what(), "missing: rank " + std::to_string(last)));
      co_await meet(world);
    } else {
      std::optional<cohort::future<void>> pending;
      if (coord.rank() != last) pending = coord.all_reduce("late", data, op::sum, as_future);
      co_await coord.barrier("told");
      if (coord.rank() == last) {
        co_await meet(world);
        pending = coord.all_reduce("late", data, op::sum, as_future);
      }
      const auto began = std::chrono::steady_clock::now();
      const auto problem = co_await caught<cohort::withdrawn_error>(*std::move(pending));
      REQUIRE(problem);
      CHECK(problem->reason() == "deadline");
      CHECK(problem->ranks() == std::vector<int>{limited});
      check(problem->stall());
      CHECK(has(problem->what(), "all_reduce 'late': withdrawn by rank "));
      CHECK(has(problem->what(), "missing: rank " + std::to_string(last)));
      if (coord.rank() == last) {
        CHECK(std::chrono::steady_clock::now() - began < cohort_test::patient(10s));
      } else {
        co_await meet(world);
      }
    }
    co_await works(coord, "late");
  });
}

TEST_CASE("a rank that computes is missing or silent", "[coordinator][failures]") {
  cohort::coordinator_options options;
  options.radix = 1;
  options.query_timeout = 1s;
  coordinated(
      [](cohort::communicator world, cohort::coordinator coord) -> asio::awaitable<void> {
        const int last = coord.size() - 1;
        if (last < 1) co_return;
        // The busy rank is a leaf, then (with three ranks and more) the one below the root.
        for (const int busy : {last, 1}) {
          co_await works(coord, "busy");
          co_await meet(world);
          int value = 1;
          if (coord.rank() == busy) {
            MPI_Recv(nullptr, 0, MPI_BYTE, 0, 78, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            const auto problem =
                co_await caught<cohort::withdrawn_error>(coord.all_reduce("busy", value, op::sum));
            REQUIRE(problem);
            CHECK(problem->reason() == "deadline");
          } else {
            cohort::stall_facts facts;
            auto pending = coord.all_reduce("busy", value, op::sum, as_future);
            if (busy == last && coord.rank() == 0) co_await until_known(coord, last);
            try {
              if (busy != last || coord.rank() == 0) {
                co_await cohort::with_deadline(std::move(pending), 150ms);
              } else {
                co_await std::move(pending);
              }
              FAIL_CHECK("completed, but must fail");
            } catch (const cohort::deadline_error& problem) {
              facts = problem.stall();
            } catch (const cohort::withdrawn_error& problem) {
              facts = problem.stall();
            }
            if (coord.rank() == 0) MPI_Send(nullptr, 0, MPI_BYTE, busy, 78, MPI_COMM_WORLD);
            if (busy == last) {
              // Its parent knows that it has said nothing; a leaf is not asked.
              CHECK(facts.missing == std::vector<int>{last});
            } else if (coord.rank() == 0) {
              CHECK(facts.silent == std::vector<int>{busy});
              std::vector<int> beyond;
              // What the busy rank has passed on before is known.
              for (int rank = busy + 1; rank <= last; ++rank) {
                if (std::find(facts.ready.begin(), facts.ready.end(), rank) == facts.ready.end()) {
                  beyond.push_back(rank);
                }
              }
              CHECK(facts.unknown == beyond);
            }
          }
          co_await meet(world);
          co_await works(coord, "busy");
        }
      },
      options);
}

TEST_CASE("a cancelled operation is withdrawn everywhere", "[coordinator][failures]") {
  coordinated([](cohort::communicator world, cohort::coordinator coord) -> asio::awaitable<void> {
    const int last = coord.size() - 1;
    if (last == 0) co_return;
    for (int canceller = 0; canceller < last; ++canceller) {
      std::vector<int> data(3, 1);
      if (coord.rank() == last) co_await meet(world);
      auto pending = coord.all_reduce("cancelled", data, op::sum, as_future);
      if (coord.rank() == canceller) pending.cancel();
      if (coord.rank() == canceller) {
        const auto problem = co_await caught<std::system_error>(std::move(pending));
        REQUIRE(problem);
        CHECK(problem->code() == asio::error::operation_aborted);
      } else {
        const auto problem = co_await caught<cohort::withdrawn_error>(std::move(pending));
        REQUIRE(problem);
        CHECK(problem->reason() == "cancelled");
        CHECK(problem->ranks() == std::vector<int>{canceller});
        CHECK(has(problem->what(), "rank " + std::to_string(coord.rank()) +
                                       ": all_reduce 'cancelled': withdrawn by rank " +
                                       std::to_string(canceller) + " (cancelled)"));
      }
      if (coord.rank() != last) co_await meet(world);
      co_await works(coord, "cancelled");
    }
  });
}

TEST_CASE("arguments that are wrong on one rank", "[coordinator][failures]") {
  coordinated([](cohort::communicator, cohort::coordinator coord) -> asio::awaitable<void> {
    const int last = coord.size() - 1;
    const bool wrong = coord.rank() == last;
    const auto ranks = static_cast<std::size_t>(coord.size());
    const auto check = [&](asio::awaitable<void> work, errc code,
                           std::string part) -> asio::awaitable<void> {
      if (wrong) {
        const auto problem = co_await caught<std::system_error>(std::move(work));
        REQUIRE(problem);
        INFO(problem->what());
        CHECK(problem->code() == code);
        CHECK(has(problem->what(), part));
      } else {
        const auto problem = co_await caught<cohort::withdrawn_error>(std::move(work));
        REQUIRE(problem);
        CHECK(problem->reason() == "invalid arguments");
        CHECK(problem->ranks() == std::vector<int>{last});
      }
    };
    std::vector<int> data(ranks, 1);
    std::vector<int> splits(ranks, 1);
    if (wrong) splits[0] = 7;
    const auto exchange = [&]() -> asio::awaitable<void> {
      co_await coord.all_to_all("splits", data, splits);
    };
    co_await check(exchange(), errc::invalid_argument, "sum=" + std::to_string(coord.size() + 6));
    if (wrong) splits[0] = 1;
    co_await coord.all_to_all("splits", data, splits);
    if (wrong) splits.push_back(0);
    co_await check(exchange(), errc::invalid_argument,
                   "splits=" + std::to_string(coord.size() + 1) + " of");

    co_await check(coord.broadcast("root", data, wrong ? coord.size() + 5 : 0), errc::bad_root,
                   "root=" + std::to_string(coord.size() + 5));
    co_await coord.broadcast("root", data, 0);
    co_await check(coord.reduce("root", data, op::sum, wrong ? -1 : 0), errc::bad_root, "root=-1");

    std::vector<int> out(wrong ? 3 + ranks : ranks);
    co_await check(coord.all_reduce("out", data, out, op::sum), errc::size_mismatch,
                   "out=" + std::to_string(coord.size() + 3));

    cohort::call_options compressed;
    if (wrong) compressed.compression = cohort::compression::f16;
    co_await check(coord.all_reduce("whole", data, op::sum, compressed), errc::invalid_argument,
                   "all_reduce 'whole': compression needs elements of float or double, not int32");

    const auto gather_wrong = [&]() -> asio::awaitable<void> {
      std::vector<int> part(2);
      std::vector<int> all(2 * ranks + (wrong ? 1 : 0));
      co_await coord.scatter("scatter", all, part, last);
    };
    co_await check(gather_wrong(), errc::size_mismatch, "elements of");

    // A reserved name takes no number anywhere.
    if (wrong) {
      const auto problem =
          co_await caught<std::system_error>(coord.all_reduce("\x01"
                                                              "x",
                                                              data, op::sum));
      REQUIRE(problem);
      CHECK(problem->code() == errc::invalid_argument);
    }
    co_await works(coord, "root");
  });
}

TEST_CASE("names of all lengths", "[coordinator][failures]") {
  coordinated([](cohort::communicator, cohort::coordinator coord) -> asio::awaitable<void> {
    for (const std::size_t length : {1U, 255U, 4000U, 10000U, 65535U}) {
      co_await works(coord, std::string(length, 'n'));
      co_await works(coord, std::string(length, 'n'));
    }
    std::vector<int> data(3);
    const auto problem = co_await caught<std::system_error>(
        coord.all_reduce(std::string(65536, 'n'), data, op::sum));
    REQUIRE(problem);
    CHECK(problem->code() == errc::invalid_argument);
    co_await works(coord, "after");
  });
}

TEST_CASE("a name in use is an error in strict mode", "[coordinator][failures]") {
  cohort::coordinator_options options;
  options.strict = true;
  coordinated(
      [](cohort::communicator world, cohort::coordinator coord) -> asio::awaitable<void> {
        const int last = coord.size() - 1;
        for (int round = 0; round < 3; ++round) {
          int first = 1;
          int second = 1;
          auto one = coord.all_reduce("strict", first, op::sum, as_future);
          if (coord.rank() == last && last != 0) {
            // Here it has ended before it is used again; elsewhere it has not.
            co_await std::move(one);
            const auto problem = co_await caught<cohort::withdrawn_error>(
                coord.all_reduce("strict", second, op::sum));
            REQUIRE(problem);
            CHECK(problem->reason() == "the name is in use");
          } else {
            const auto problem =
                co_await caught<std::system_error>(coord.all_reduce("strict", second, op::sum));
            REQUIRE(problem);
            // Another rank's duplicate may have been decided before.
            CHECK((problem->code() == errc::duplicate_name || problem->code() == errc::withdrawn));
            CHECK(has(problem->what(), "the name is in use"));
            co_await std::move(one);
          }
          CHECK(first == coord.size());
          co_await meet(world);
          co_await works(coord, "strict");
          // Without a name there is nothing to be in use.
          auto a = coord.all_reduce(first, op::sum, as_future);
          auto b = coord.all_reduce(second, op::sum, as_future);
          co_await std::move(a);
          co_await std::move(b);
        }
        // Wrong arguments do not hide that the name is in use.
        if (last == 0) co_return;
        if (coord.rank() == last) co_await meet(world);
        int value = 1;
        auto one = coord.all_reduce("both", value, op::sum, as_future);
        if (coord.rank() == last) co_await std::move(one);
        std::vector<int> in(2);
        std::vector<int> out(3);
        auto problem =
            co_await caught<std::system_error>(coord.all_reduce("both", in, out, op::sum));
        REQUIRE(problem);
        CHECK(problem->code() == errc::size_mismatch);
        problem = co_await caught<std::system_error>(coord.all_reduce("both", in, op::sum));
        REQUIRE(problem);
        CHECK((problem->code() == errc::withdrawn ||
               (problem->code() == errc::duplicate_name && coord.rank() != last)));
        if (coord.rank() != last) {
          co_await meet(world);
          co_await std::move(one);
        }
      },
      options);
}

TEST_CASE("a rank that has joined or left submits nothing", "[coordinator][failures]") {
  cohort_test::on_world([](cohort::communicator world) -> asio::awaitable<void> {
    cohort::coordinator coord(world);
    const int last = coord.size() - 1;
    int value = 1;
    const auto refused = [&](asio::awaitable<void> work) -> asio::awaitable<void> {
      const auto problem = co_await caught<std::system_error>(std::move(work));
      REQUIRE(problem);
      CHECK(problem->code() == errc::not_accepting);
      CHECK(has(problem->what(), "rank " + std::to_string(coord.rank()) + ": 'refused'"));
    };
    for (int round = 0; round < 2; ++round) {
      co_await works(coord, "before");
      if (last != 0) {
        if (coord.rank() == 0) {
          auto joined = coord.join(as_future);
          co_await refused(coord.all_reduce("refused", value, op::sum));
          const auto twice = co_await caught<std::system_error>(
              [&]() -> asio::awaitable<void> { co_await coord.join(); }());
          REQUIRE(twice);
          CHECK(twice->code() == errc::not_accepting);
          co_await meet(world);
          const int newest = co_await std::move(joined);
          CHECK(newest == last);
        } else {
          co_await meet(world);
          // Rank 0 brings nothing; an average divides by the others.
          std::vector<float> data(3, static_cast<float>(coord.rank()));
          co_await coord.all_reduce("others", data, op::average);
          const float mean = static_cast<float>(last * (last + 1) / 2) / static_cast<float>(last);
          CHECK(data == std::vector<float>(3, mean));
          const int newest = co_await coord.join();
          CHECK(newest == last);
        }
      }
      co_await works(coord, "again");
    }
    co_await coord.shutdown();
    co_await refused(coord.all_reduce("refused", value, op::sum));
    const auto late = co_await caught<std::system_error>(
        [&]() -> asio::awaitable<void> { co_await coord.join(); }());
    REQUIRE(late);
    CHECK(late->code() == errc::not_accepting);
    co_await coord.shutdown();  // done already
    CHECK(coord.pending().empty());
  });
}

TEST_CASE("the rank with the newest state is the result of join", "[coordinator][failures]") {
  coordinated([](cohort::communicator world, cohort::coordinator coord) -> asio::awaitable<void> {
    const int last = coord.size() - 1;
    // Ranks from the last to the first run out of data; rank 0 goes on longest.
    for (int rank = last; rank >= 0; --rank) {
      if (coord.rank() <= rank) {
        int value = 1;
        co_await coord.all_reduce("data", value, op::sum);
        CHECK(value == rank + 1);
      }
      if (coord.rank() == rank) {
        const int newest = co_await coord.join();
        CHECK(newest == 0);
      }
    }
    co_await meet(world);
  });
}

TEST_CASE("what needs a rank that has joined fails", "[coordinator][failures]") {
  coordinated([](cohort::communicator world, cohort::coordinator coord) -> asio::awaitable<void> {
    const int last = coord.size() - 1;
    if (last == 0) co_return;
    if (coord.rank() == last) {
      auto joined = coord.join(as_future);
      co_await meet(world);
      co_await std::move(joined);
    } else {
      co_await meet(world);
      const auto check = [&](asio::awaitable<void> work) -> asio::awaitable<void> {
        const auto problem = co_await caught<cohort::joined_error>(std::move(work));
        REQUIRE(problem);
        CHECK(problem->ranks() == std::vector<int>{last});
        CHECK(has(problem->what(), "needs data of rank " + std::to_string(last) + ", joined"));
      };
      const auto ranks = static_cast<std::size_t>(coord.size());
      std::vector<int> data(ranks, 1);
      co_await check(coord.broadcast("root", data, last));
      co_await check(coord.reduce("root", data, op::sum, last));
      co_await check(
          [&]() -> asio::awaitable<void> { co_await coord.gather("root", data, last); }());
      co_await check([&]() -> asio::awaitable<void> {
        co_await coord.all_to_all("exchange", data, std::vector<int>(ranks, 1));
      }());
      const cohort::user_op greatest{[](int a, int b) { return a > b ? a : b; },
                                     cohort::commutative};
      co_await check(coord.all_reduce("own", data, greatest));
      // Any other root will do.
      co_await coord.broadcast("root", data, 0);
      co_await coord.join();
    }
    co_await works(coord, "root");
    co_await works(coord, "exchange");
  });
}

TEST_CASE("a rank that abandons a coordinator tells the others why", "[coordinator][failures]") {
  cohort_test::on_world([](cohort::communicator world) -> asio::awaitable<void> {
    cohort::coordinator coord(world);
    const int last = coord.size() - 1;
    if (last == 0) {
      coord.abandon("alone");
      co_return;
    }
    int value = 1;
    co_await works(coord, "before");
    if (coord.rank() == last) {
      auto pending = coord.all_reduce("pending", value, op::sum, as_future);
      co_await meet(world);
      coord.abandon("cannot open weights.bin");
      coord.abandon("said too late");
      const auto own = co_await caught<cohort::peer_lost_error>(std::move(pending));
      REQUIRE(own);
      const auto after = co_await caught<cohort::error>(coord.all_reduce("later", value, op::sum));
      REQUIRE(after);
      CHECK(after->code() == cohort::errc::not_accepting);
    } else {
      auto waiting = coord.all_reduce("waiting", value, op::sum, as_future);
      co_await meet(world);
      const auto problem = co_await caught<cohort::peer_lost_error>(std::move(waiting));
      REQUIRE(problem);
      CHECK(problem->ranks() == std::vector<int>{last});
      const std::string text = "needs rank " + std::to_string(last) +
                               ", which has left: cannot open weights.bin (failures_test.cpp:";
      CHECK(has(problem->what(), text));
      const auto later =
          co_await caught<cohort::peer_lost_error>(coord.all_reduce("later", value, op::sum));
      REQUIRE(later);
      CHECK(has(later->what(), text));
    }
    co_await coord.shutdown();
  });
}

TEST_CASE("what needs a rank that has left fails", "[coordinator][failures]") {
  cohort_test::on_world([](cohort::communicator world) -> asio::awaitable<void> {
    cohort::coordinator coord(world);
    const int last = coord.size() - 1;
    int value = 1;
    if (last == 0) co_return;
    co_await works(coord, "before");
    const auto check = [&](asio::awaitable<void> work) -> asio::awaitable<void> {
      const auto problem = co_await caught<cohort::peer_lost_error>(std::move(work));
      REQUIRE(problem);
      CHECK(problem->ranks() == std::vector<int>{last});
      CHECK(has(problem->what(), "needs a rank that has left: rank " + std::to_string(last)));
    };
    int promised = 1;
    if (coord.rank() == last) {
      co_await meet(world);
      // What it has submitted is completed, though the others submit it later.
      auto kept = coord.all_reduce("promised", promised, op::sum, as_future);
      co_await coord.shutdown();
      CHECK(kept.is_ready());
      co_await std::move(kept);
    } else {
      auto waiting = coord.all_reduce("waiting", value, op::sum, as_future);
      co_await meet(world);
      co_await check(std::move(waiting));
      co_await check(coord.all_reduce("later", value, op::sum));
      const auto joining = [&]() -> asio::awaitable<void> { co_await coord.join(); };
      co_await check(joining());
      co_await cohort_test::pause(50ms);
      co_await coord.all_reduce("promised", promised, op::sum);
      co_await check(coord.all_reduce("promised", value, op::sum));
      co_await coord.shutdown();
    }
    CHECK(promised == coord.size());
  });
}

TEST_CASE("a join ends when a rank leaves", "[coordinator][failures]") {
  cohort_test::on_world([](cohort::communicator world) -> asio::awaitable<void> {
    cohort::coordinator coord(world);
    const int last = coord.size() - 1;
    if (last == 0) co_return;
    co_await coord.barrier();
    if (coord.rank() == last) {
      co_await meet(world);
    } else {
      auto joined = coord.join(as_future);
      co_await meet(world);
      const auto problem = co_await caught<cohort::peer_lost_error>(std::move(joined));
      REQUIRE(problem);
      CHECK(problem->ranks() == std::vector<int>{last});
      // It stays joined.
      int value = 1;
      const auto code = co_await cohort_test::code_of(coord.all_reduce("refused", value, op::sum));
      CHECK(code == errc::not_accepting);
    }
    co_await coord.shutdown();
  });
}

TEST_CASE("options that differ between ranks fail every operation", "[coordinator][failures]") {
  const int field = GENERATE(0, 1, 2);
  cohort_test::on_world([field](cohort::communicator world) -> asio::awaitable<void> {
    cohort::coordinator_options options;
    const int last = world.size() - 1;
    std::vector<std::string> fields;
    if (world.rank() == last) {
      if (field != 1) options.fusion_threshold = 1234;
      if (field == 1) options.frozen_plan = {{"a", "b"}};
      if (field == 2) options.query_timeout = 1s;
    }
    if (field != 1) fields.emplace_back("fusion_threshold");
    if (field == 2) fields.emplace_back("query_timeout");
    if (field == 1) fields.emplace_back("frozen_plan");
    cohort::coordinator coord(world, options);
    if (last != 0) {
      const cohort::log::capture quiet;
      int value = 1;
      const auto check = [&](asio::awaitable<void> work) -> asio::awaitable<void> {
        const auto problem = co_await caught<cohort::mismatch_error>(std::move(work));
        REQUIRE(problem);
        CHECK(problem->fields() == fields);
        CHECK(has(problem->what(), "coordinator options differ between ranks: " + fields[0]));
        REQUIRE(problem->sides().size() == 2);
        CHECK(problem->sides()[0].ranks == ranks_below(last));
        CHECK(problem->sides()[1].ranks == std::vector<int>{last});
        for (const auto& side : problem->sides()) CHECK(side.values.size() == fields.size());
        if (field != 1) CHECK(problem->sides()[1].values.at(0) == "1234");
      };
      auto early = coord.all_reduce("early", value, op::sum, as_future);
      co_await check(std::move(early));
      co_await check(coord.all_reduce("later", value, op::sum));
      co_await check(coord.barrier());
      const auto joining = [&]() -> asio::awaitable<void> { co_await coord.join(); };
      co_await check(joining());
      CHECK(coord.pending().empty());
    }
    co_await coord.shutdown();
  });
}

TEST_CASE("options that one rank refuses are told to all", "[coordinator][failures]") {
  const std::string which = GENERATE(as<std::string>{}, "out of range", "variable", "plan", "two");
  cohort_test::on_world([which](cohort::communicator world) -> asio::awaitable<void> {
    const cohort::log::capture quiet;
    const int last = world.size() - 1;
    std::vector<int> refusing{last};
    if (which == "plan") refusing = {0};  // the rank that reads it
    if (which == "two" && last != 0) refusing = {0, last};
    const bool refuses = std::count(refusing.begin(), refusing.end(), world.rank()) != 0;
    cohort::coordinator_options options;
    options.slots = 1;  // not the default, which is not to be told of
    std::string cause = "radix=77 is outside 1 … 31";
    if (which == "plan") {
      cause = "frozen plan: 'a' is in it twice";
      options.frozen_plan = {{"a", "b"}, {"a"}};
    } else if (which == "variable") {
      cause = "COHORT_PIECE=many is not a number in the range of piece";
      if (refuses) ::setenv("COHORT_PIECE", "many", 1);
    } else if (refuses) {
      options.radix = 77;
    }
    cohort::coordinator coord;
    std::string refusal;
    try {
      coord = cohort::coordinator(world, options);
    } catch (const cohort::error& problem) {
      CHECK(problem.code() == errc::invalid_argument);
      refusal = problem.what();
    }
    ::unsetenv("COHORT_PIECE");
    CHECK(has(refusal, cause) == refuses);
    CHECK(static_cast<bool>(coord) != refuses);
    if (coord) {
      const auto problem = co_await caught<cohort::mismatch_error>(coord.barrier());
      REQUIRE(problem);
      CHECK(problem->field() == "options");
      CHECK(problem->ranks() == refusing);
      INFO(problem->what());
      const std::string who = "rank " + std::to_string(refusing[0]) + " refused its options: ";
      const std::string both = "ranks 0, " + std::to_string(last) + " refused their options: ";
      CHECK(has(problem->what(), which == "two" ? both : who));
      CHECK(has(problem->what(), cause));
      CHECK_FALSE(has(problem->what(), "differ"));
      co_await coord.shutdown();
    }
    // It was made by all of them, like the next one.
    cohort::coordinator next(world);
    co_await works(next, "next");
    co_await next.shutdown();
  });
}

TEST_CASE("bad options are named at construction", "[coordinator][failures]") {
  cohort_test::on_world([](cohort::communicator world) -> asio::awaitable<void> {
    const auto refused = [&](const cohort::coordinator_options& options, const std::string& part) {
      try {
        const cohort::coordinator coord(world, options);
        FAIL_CHECK("no error for " << part);
      } catch (const cohort::error& problem) {
        INFO(problem.what());
        CHECK(problem.code() == errc::invalid_argument);
        CHECK(has(problem.what(), part));
      }
    };
    for (const auto& row : cohort::coordination::option_table()) {
      cohort::coordinator_options options;
      if (row.least > 0) {
        row.set(options, row.least - 1);
        refused(options, std::string(row.name) + "=" + std::to_string(row.least - 1));
      }
      if (!row.is_flag()) {
        options = {};
        row.set(options, row.most + 1);
        refused(options, std::string(row.name) + "=" + std::to_string(row.most + 1));
      }
    }
    cohort::coordinator_options options;
    options.cache_keep = options.cache_capacity;
    refused(options, "cache_keep=4096 is not below cache_capacity=4096");
    options = {};
    options.query_timeout = 5s;
    refused(options, "twice query_timeout is not below decision_timeout");
    const auto null = [] { const cohort::coordinator coord(cohort::communicator{}); };
    CHECK_THROWS_AS(null(), cohort::error);
    co_return;
  });
}

TEST_CASE("the environment replaces options", "[coordinator][failures]") {
  struct variable {
    variable(std::string name_, const std::string& value) : name(std::move(name_)) {
      ::setenv(name.c_str(), value.c_str(), 1);
    }
    ~variable() { ::unsetenv(name.c_str()); }
    variable(const variable&) = delete;
    std::string name;
  };
  for (const auto& row : cohort::coordination::option_table()) {
    INFO(row.variable);
    const std::string name(row.variable);
    {
      const variable set(name, "1");
      const std::uint64_t one = row.is_time() ? 1'000'000'000 : 1;
      if (row.least <= one) CHECK(row.get(cohort::with_environment({})) == one);
    }
    {
      const variable set(name, "");
      CHECK(row.get(cohort::with_environment({})) == row.get({}));
    }
    // The last is out of range, and would be in range in 32 bits.
    for (const std::string bad :
         {"1x", "-1", "one", " 1", "18446744073709551617", "4294967297000001"}) {
      const variable set(name, bad);
      INFO(bad);
      try {
        static_cast<void>(cohort::with_environment({}));
        FAIL_CHECK("no error");
      } catch (const cohort::error& problem) {
        CHECK(problem.code() == errc::invalid_argument);
        CHECK(has(problem.what(), name + "=" + bad));
      }
    }
  }
  const variable radix("COHORT_RADIX", "2");
  const variable warning("COHORT_STALL_WARNING", "2500ms");  // which the engine reads too
  coordinated([](cohort::communicator, cohort::coordinator coord) -> asio::awaitable<void> {
    CHECK(coord.options().radix == 2);
    CHECK(coord.options().stall_warning == 2500ms);
    co_await works(coord, "w");
  });
}

TEST_CASE("a warning of stalls names what somebody waits for, and not messages of the coordinator",
          "[coordinator][failures]") {
  ::setenv("COHORT_STALL_WARNING", "50ms", 1);
  const cohort::log::capture lines;
  coordinated([&](cohort::communicator world, cohort::coordinator coord) -> asio::awaitable<void> {
    ::unsetenv("COHORT_STALL_WARNING");
    const int last = coord.size() - 1;
    std::vector<float> data(6);
    auto never = cohort::recv(world, data, cohort::any_source, 13, cohort::as_future);
    std::optional<cohort::future<void>> waits;
    std::vector<float> other(6);
    if (coord.rank() != last) waits = coord.all_reduce("late", other, op::sum, as_future);
    // Whatever has been pending for as long as this receive is named with it.
    while (!lines.contains(": recv #")) co_await cohort_test::pause(1ms);
    co_await meet(world);
    if (!waits) waits = coord.all_reduce("late", other, op::sum, as_future);
    co_await std::move(*waits);
    never.cancel();
    const auto code = co_await cohort_test::code_of(std::move(never));
    CHECK(code == asio::error::operation_aborted);
    INFO(lines.text());
    CHECK_FALSE(lines.contains("control_"));
  });
}
