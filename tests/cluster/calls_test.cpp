// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#include <cohort/cluster/call_context.hpp>
#include <cohort/cluster/calls/call_verbs.hpp>
#include <cohort/cluster/calls/many_calls.hpp>
#include <cohort/collectives/all_reduce.hpp>
#include <cohort/collectives/barrier.hpp>
#include <cohort/core/asio.hpp>
#include <cohort/p2p/recv.hpp>
#include <cohort/p2p/send.hpp>
#include <cohort/progress/future.hpp>
#include <cohort/progress/when_all.hpp>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "cluster/support.hpp"
#include "support/patience.hpp"

using namespace cohort_test;
using cohort::cluster::call_context;

namespace {

double energy(double x, double y) { return x * y; }
void nothing() {}
int rank_of(call_context& call) { return call.rank(); }
std::string upper(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return out;
}
std::uint64_t sum_of(std::span<const std::uint32_t> values) {
  return std::accumulate(values.begin(), values.end(), std::uint64_t{0});
}
std::vector<std::byte> echo(std::vector<std::byte> bytes) { return bytes; }
std::unique_ptr<int> twice(std::unique_ptr<int> value) { return std::make_unique<int>(*value * 2); }
struct point {
  double x = 0;
  double y = 0;
  std::string name;
};
point moved(const point& from, double by) { return {from.x + by, from.y + by, from.name + "'"}; }
std::map<std::string, std::vector<int>> inverted(std::vector<std::string> names) {
  std::map<std::string, std::vector<int>> out;
  for (std::size_t i = 0; i < names.size(); ++i) out[names[i]].push_back(static_cast<int>(i));
  return out;
}

asio::awaitable<int> sum_over_ranks(call_context& call, int mine) {
  int all = mine * (call.rank() + 1);
  co_await cohort::all_reduce(call.world(), all, cohort::op::sum);
  co_return all;
}
asio::awaitable<int> from_neighbour(call_context& call) {
  const int size = call.size();
  int mine = call.rank();
  int other = -1;
  auto receiving =
      cohort::recv(call.world(), other, (mine + size - 1) % size, 5, cohort::as_future);
  co_await cohort::send(call.world(), mine, (mine + 1) % size, 5);
  co_await std::move(receiving);
  co_return other;
}
asio::awaitable<void> fails_before_barrier(call_context& call) {
  if (call.rank() == 1) throw std::domain_error("not today");
  co_await cohort::barrier(call.world());
}

struct odd_error : std::exception {
  [[nodiscard]] const char* what() const noexcept override { return "odd"; }
};
void throws(int how) {
  if (how == 0) throw std::out_of_range("no such shelf");
  if (how == 1)
    throw std::system_error(std::make_error_code(std::errc::no_space_on_device), "disk");
  if (how == 2) throw cohort::error(errc::stalled, "ours");
  if (how == 3) throw odd_error();
  throw how;  // NOLINT
}
void throws_own(call_context& call) { throw std::runtime_error(std::to_string(call.rank())); }

int counted = 0;
void count() { ++counted; }
int count_so_far() { return counted; }

asio::awaitable<void> waits(call_context& call) {
  asio::steady_timer timer(call.context(), std::chrono::minutes(5));
  try {
    co_await timer.async_wait(asio::use_awaitable);
  } catch (...) {
    ++counted;
    throw;
  }
}
asio::awaitable<void> waits_with(call_context& call, std::vector<std::byte>) {
  auto waiting = waits(call);
  co_await std::move(waiting);
}
int on_a_thread(call_context& call) {
  const auto limit = std::chrono::steady_clock::now() + cohort_test::patient(20s);
  while (!call.cancelled() && std::chrono::steady_clock::now() < limit) {
    std::this_thread::sleep_for(1ms);
  }
  std::this_thread::sleep_for(1s);  // its caller's clock may be looked at a little later
  return 1;
}
int square(call_context&, int x) { return x * x; }
int slow_square(call_context& call, int x) {
  if (call.rank() == 0) std::this_thread::sleep_for(20ms);
  return x * x * 10 + call.rank();
}

/// Until the worker has cancelled as many callees.
asio::awaitable<bool> until_cancelled(workers all, int rank, int times) {
  for (int i = 0; i < 500; ++i) {
    const int done = co_await all.call<&count_so_far>(rank);
    if (done == times) co_return true;
    asio::steady_timer pause(all.context(), 10ms);
    co_await pause.async_wait(asio::use_awaitable);
  }
  co_return false;
}

std::vector<std::byte> bytes_of(std::size_t size) {
  std::vector<std::byte> out(size);
  for (std::size_t i = 0; i < size; ++i) out[i] = static_cast<std::byte>(i * 31 + i / 251);
  return out;
}

}  // namespace

TEST_CASE("functions are called with values of many kinds", "[cluster]") {
  with_workers(quiet(2), [](workers all) -> asio::awaitable<void> {
    const double e = co_await all.call<&energy>(1, 3, 0.5);
    CHECK(e == 1.5);
    co_await all.call<&nothing>(0);
    const int rank = co_await all.call<&rank_of>(1);
    CHECK(rank == 1);
    const std::string text = co_await all.call<&upper>(0, "quiet");
    CHECK(text == "QUIET");
    std::vector<std::uint32_t> numbers(100'000, 3'000'000'000U);
    const std::uint64_t sum = co_await all.call<&sum_of>(1, numbers);
    CHECK(sum == 100'000ULL * 3'000'000'000ULL);
    auto sending = all.call<&twice>(0, std::make_unique<int>(21));
    const std::unique_ptr<int> doubled = co_await std::move(sending);
    REQUIRE(doubled);
    CHECK(*doubled == 42);
    const point start{1, 2, "p"};
    const point end = co_await all.call<&moved>(1, start, 1);
    CHECK(end.x == 2);
    CHECK(end.y == 3);
    CHECK(end.name == "p'");
    std::vector<std::string> names{"a", "b", "a"};
    const auto places = co_await all.call<&inverted>(1, names);
    CHECK(places.at("a") == std::vector<int>{0, 2});
  });
}

TEST_CASE("arguments are encoded when the call is written, not when it is awaited", "[cluster]") {
  with_workers(quiet(1), [](workers all) -> asio::awaitable<void> {
    std::string text = "first";
    auto later = all.call<&upper>(0, text);
    text = "second";
    const std::string got = co_await std::move(later);
    CHECK(got == "FIRST");
  });
}

TEST_CASE("messages of every size arrive as they were sent", "[cluster]") {
  with_workers(quiet(1), [](workers all) -> asio::awaitable<void> {
    for (const std::size_t size :
         {std::size_t{0}, std::size_t{1}, std::size_t{4096}, (std::size_t{1} << 20U) - 24,
          std::size_t{1} << 20U, (std::size_t{1} << 20U) + 1, std::size_t{5'000'001},
          std::size_t{64} << 20U}) {
      const auto sent = bytes_of(size);
      const auto got = co_await all.call<&echo>(0, sent);
      CHECK((got == sent));
    }
  });
}

TEST_CASE("large arguments may be given away, and results as well", "[cluster]") {
  with_workers(quiet(1), [](workers all) -> asio::awaitable<void> {
    const auto first = bytes_of(std::size_t{3} << 20U);
    auto bytes = first;
    for (int i = 0; i < 3; ++i) {
      auto back = all.call<&echo>(0, std::move(bytes), cohort::as_future);
      CHECK(bytes.empty());  // NOLINT(bugprone-use-after-move): that it is
      bytes = co_await std::move(back);
      CHECK((bytes == first));
    }
    const auto each = co_await all.call_all<&echo>(std::move(bytes));
    REQUIRE(each.size() == 1);
    CHECK((each[0].value() == first));
  });
}

TEST_CASE("small calls pass large ones", "[cluster]") {
  with_workers(quiet(1), [](workers all) -> asio::awaitable<void> {
    const auto large = bytes_of(std::size_t{48} << 20U);
    bool large_done = false;
    std::vector<cohort::future<void>> both;
    both.push_back(asio::co_spawn(
        all.context(),
        [](workers to, const std::vector<std::byte>& bytes, bool& done) -> asio::awaitable<void> {
          const auto back = co_await to.call<&echo>(0, bytes);
          CHECK((back == bytes));
          done = true;
        }(all, large, large_done),
        cohort::as_future));
    bool passed = false;
    for (int i = 0; i < 20; ++i) {
      co_await all.call<&nothing>(0);
      passed = passed || !large_done;
    }
    CHECK(passed);
    co_await cohort::when_all(std::move(both));
  });
}

TEST_CASE("many large calls at once, and small ones between them", "[cluster]") {
  with_workers(quiet(1), [](workers all) -> asio::awaitable<void> {
    const auto large = bytes_of((std::size_t{2} << 20U) + 1);
    std::vector<cohort::future<std::vector<std::byte>>> pending;
    for (std::size_t i = 0; i < 2 * cohort::cluster::interleaved_limit; ++i) {
      pending.push_back(all.call<&echo>(0, large, cohort::as_future));
    }
    for (int i = 0; i < 100; ++i) co_await all.call<&nothing>(0);
    for (auto& each : pending) {
      const auto back = co_await std::move(each);
      CHECK((back == large));
    }
  });
}

TEST_CASE("what a function throws reaches who awaits", "[cluster]") {
  with_workers(quiet(2), [](workers all) -> asio::awaitable<void> {
    auto first = caught<std::out_of_range>(all.call<&throws>(1, 0));
    const auto range = co_await std::move(first);
    REQUIRE(range);
    CHECK(has(range->what(), "no such shelf"));
    CHECK(has(range->what(), "rank 1"));
    auto second = caught<std::system_error>(all.call<&throws>(0, 1));
    const auto disk = co_await std::move(second);
    REQUIRE(disk);
    CHECK(disk->code() == std::errc::no_space_on_device);
    auto third = caught<cohort::error>(all.call<&throws>(0, 2));
    const auto ours = co_await std::move(third);
    REQUIRE(ours);
    CHECK(ours->code() == errc::stalled);
    for (const int how : {3, 4}) {
      auto fourth = caught<cohort::cluster::remote_error>(all.call<&throws>(1, how));
      const auto other = co_await std::move(fourth);
      REQUIRE(other);
      CHECK(other->rank() == 1);
    }
    // The worker is as it was.
    const int rank = co_await all.call<&rank_of>(1);
    CHECK(rank == 1);
  });
}

TEST_CASE("collectives and messages work in functions that are called on all", "[cluster]") {
  with_workers(quiet(4), [](workers all) -> asio::awaitable<void> {
    const auto sums = co_await all.call_all<&sum_over_ranks>(2);
    REQUIRE(sums.size() == 4);
    for (const auto& each : sums) CHECK(each.value() == 20);
    const auto neighbours = co_await all.call_all<&from_neighbour>();
    for (int rank = 0; rank < 4; ++rank) {
      CHECK(neighbours[static_cast<std::size_t>(rank)].value() == (rank + 3) % 4);
    }
  });
}

TEST_CASE("calls on all that overlap are begun in one order", "[cluster]") {
  with_workers(quiet(2), [](workers all) -> asio::awaitable<void> {
    using outcomes = std::vector<cohort::outcome<int>>;
    std::vector<cohort::future<outcomes>> pending;
    for (int i = 0; i < 50; ++i) {
      pending.push_back(all.call_all<&sum_over_ranks>(i, cohort::as_future));
    }
    for (int i = 0; i < 50; ++i) {
      const outcomes each = co_await std::move(pending[static_cast<std::size_t>(i)]);
      CHECK(each[0].value() == 3 * i);
      CHECK(each[1].value() == 3 * i);
    }
  });
}

TEST_CASE("all errors of a call on all are there", "[cluster]") {
  with_workers(quiet(3), [](workers all) -> asio::awaitable<void> {
    auto each = co_await all.call_all<&throws_own>();
    for (const auto& one : each) CHECK(one.error() != nullptr);
    try {
      cohort::cluster::values(std::move(each));
      FAIL_CHECK("must throw");
    } catch (const cohort::cluster::multi_error& failed) {
      CHECK(failed.errors().size() == 3);
      CHECK(has(failed.what(), "rank 2"));
    }
  });
}

TEST_CASE("a rank that fails before a collective does not leave the caller waiting", "[cluster]") {
  asio::io_context io;
  auto work = [&]() -> asio::awaitable<void> {
    auto launching = cohort::cluster::launch(io, quiet(2));
    const workers all = co_await std::move(launching);
    const auto options =
        call_options{}.grace(300ms).on_stall(cohort::cluster::stall_action::terminate);
    const auto each = co_await all.with(options).call_all<&fails_before_barrier>();
    CHECK_THROWS_AS(each[1].value(), std::domain_error);
    try {
      each[0].value();
      FAIL_CHECK("cannot have ended");
    } catch (const cohort::rank_error& stalled) {
      CHECK(stalled.code() == errc::stalled);
      CHECK(stalled.ranks() == std::vector<int>{1});
    }
  };
  run(io, work());
}

TEST_CASE("a range is shared among the workers, and its results are in its order", "[cluster]") {
  with_workers(quiet(2), [](workers all) -> asio::awaitable<void> {
    std::vector<int> range(60);
    std::iota(range.begin(), range.end(), 0);
    const auto squares = co_await all.map<&square>(range);
    REQUIRE(squares.size() == 60);
    for (int i = 0; i < 60; ++i) CHECK(squares[static_cast<std::size_t>(i)].value() == i * i);
    // The faster one gets more.
    const auto slow = co_await all.map<&slow_square>(range);
    std::vector<int> done(2);
    for (int i = 0; i < 60; ++i) {
      const int value = slow[static_cast<std::size_t>(i)].value();
      CHECK(value / 10 == i * i);
      ++done[static_cast<std::size_t>(value % 10)];
    }
    CHECK(done[1] > done[0]);
    const auto none = co_await all.map<&square>(std::vector<int>());
    CHECK(none.empty());
  });
}

TEST_CASE("a call that nobody waits for is made, and its error has a place to go", "[cluster]") {
  with_workers(quiet(2), [](workers all) -> asio::awaitable<void> {
    std::vector<std::pair<int, std::string>> errors;
    all.on_notify_error([&](int rank, std::exception_ptr failed) {
      try {
        std::rethrow_exception(failed);
      } catch (const std::exception& problem) {
        errors.emplace_back(rank, problem.what());
      }
    });
    for (int i = 0; i < 10; ++i) all.notify<&count>(1);
    all.notify<&throws>(1, 0);
    const int done = co_await all.call<&count_so_far>(1);
    CHECK(done == 10);
    asio::steady_timer pause(all.context(), 20ms);
    co_await pause.async_wait(asio::use_awaitable);
    REQUIRE(errors.size() == 1);
    CHECK(errors[0].first == 1);
    CHECK(has(errors[0].second, "no such shelf"));
  });
}

TEST_CASE("a deadline ends the call and its callee", "[cluster]") {
  with_workers(quiet(2), [](workers all) -> asio::awaitable<void> {
    auto failing =
        caught<cohort::deadline_error>(all.with(call_options{}.deadline(100ms)).call<&waits>(1));
    const auto late = co_await std::move(failing);
    REQUIRE(late);
    CHECK(has(late->what(), "rank 1"));
    CHECK(has(late->what(), "waits"));
    const bool cancelled = co_await until_cancelled(all, 1, 1);
    CHECK(cancelled);
  });
}

TEST_CASE("a call that is cancelled ends at once, and its callee too", "[cluster]") {
  with_workers(quiet(1), [](workers all) -> asio::awaitable<void> {
    asio::cancellation_signal signal;
    std::error_code ended;
    asio::co_spawn(
        all.context(), code_of(all.call<&waits>(0)),
        asio::bind_cancellation_slot(
            signal.slot(), [&](std::exception_ptr, std::error_code code) { ended = code; }));
    asio::steady_timer pause(all.context(), 50ms);
    co_await pause.async_wait(asio::use_awaitable);
    signal.emit(asio::cancellation_type::terminal);
    const bool cancelled = co_await until_cancelled(all, 0, 1);
    CHECK(ended == asio::error::operation_aborted);
    CHECK(cancelled);
  });
}

TEST_CASE("a cancellation does not arrive before the large call that it is for", "[cluster]") {
  with_workers(quiet(1), [](workers all) -> asio::awaitable<void> {
    const auto large = bytes_of(std::size_t{8} << 20U);
    const auto hurried = all.with(call_options{}.deadline(0ms));
    auto failing = caught<cohort::deadline_error>(hurried.call<&waits_with>(0, large));
    const auto late = co_await std::move(failing);
    CHECK(late);
    const bool cancelled = co_await until_cancelled(all, 0, 1);
    CHECK(cancelled);
  });
}

TEST_CASE("a function on a thread leaves its worker free, and can learn that it is to end",
          "[cluster]") {
  with_workers(quiet(1), [](workers all) -> asio::awaitable<void> {
    const auto threaded = all.with(call_options{}.on_thread(true).deadline(3s));
    auto pending = threaded.call<&on_a_thread>(0, cohort::as_future);
    const int rank = co_await all.call<&rank_of>(0);
    CHECK(rank == 0);
    CHECK_FALSE(pending.is_ready());
    auto failing = caught<cohort::deadline_error>(std::move(pending));
    const auto late = co_await std::move(failing);
    CHECK(late);
  });
}

namespace {

/// Of this process, in KiB: what it uses now ("VmRSS:"), or the most that it has ("VmHWM:").
long memory(std::string_view which) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(which)) return std::stol(line.substr(which.size()));
  }
  return -1;
}
long resident() { return memory("VmRSS:"); }
long peak() { return memory("VmHWM:"); }
long resident_there() { return resident(); }
long peak_there() { return peak(); }

}  // namespace

// COHORT_TEST_CALLS=1000000 makes it as many.
TEST_CASE("a great many small calls take no memory", "[cluster]") {
  const char* const text = std::getenv("COHORT_TEST_CALLS");
  const int calls = text == nullptr ? 100'000 : std::atoi(text);
  with_workers(quiet(1), [calls, text](workers all) -> asio::awaitable<void> {
    const auto make = [](workers to, int count) -> asio::awaitable<void> {
      for (int done = 0; done < count; done += 500) {  // so many at once
        std::vector<cohort::future<int>> pending;
        for (int i = 0; i < 500; ++i) {
          pending.push_back(to.call<&square>(0, i, cohort::as_future));
        }
        for (int i = 0; i < 500; ++i) {
          const int value = co_await std::move(pending[static_cast<std::size_t>(i)]);
          if (value != i * i) FAIL_CHECK("wrong at " << done + i);
        }
      }
    };
    auto warming = make(all, 10'000);
    co_await std::move(warming);
    const long here = resident();
    const long there = co_await all.call<&resident_there>(0);
    auto working = make(all, calls);
    co_await std::move(working);
    const long there_after = co_await all.call<&resident_there>(0);
    const long here_after = resident();
    INFO("manager " << here << " to " << here_after << " KiB, worker " << there << " to "
                    << there_after << " KiB");
    CHECK(here > 0);
    CHECK(there > 0);
#if !defined(COHORT_TEST_SANITIZED)  // the sanitizers keep what is freed
    CHECK(here_after - here < 4096);
    CHECK(there_after - there < 4096);
#endif
    if (text != nullptr) {
      WARN("manager " << here << " to " << here_after << " KiB, worker " << there << " to "
                      << there_after << " KiB");
    }
  });
}

// COHORT_TEST_MIB=256 makes it as large.
TEST_CASE("a large argument and a large result take three copies, and less than two in the worker",
          "[cluster]") {
  const char* const text = std::getenv("COHORT_TEST_MIB");
  const long mib = text == nullptr ? 80 : std::atol(text);
  with_workers(quiet(1), [mib, text](workers all) -> asio::awaitable<void> {
    const long here = peak();
    const long there = co_await all.call<&peak_there>(0);
    {
      const auto sent = bytes_of(static_cast<std::size_t>(mib) << 20U);
      const auto got = co_await all.call<&echo>(0, sent);
      CHECK((got == sent));
    }
    const long there_after = co_await all.call<&peak_there>(0);
    const long here_after = peak();
    INFO("at most: manager " << here << " to " << here_after << " KiB, worker " << there << " to "
                             << there_after << " KiB");
    CHECK(there > 0);
#if !defined(COHORT_TEST_SANITIZED)
    CHECK(here_after - here < 4 * mib * 1024);
    CHECK(there_after - there < 2 * mib * 1024);
#endif
    if (text != nullptr) {
      WARN("at most: manager " << here << " to " << here_after << " KiB, worker " << there << " to "
                               << there_after << " KiB");
    }
  });
}

TEST_CASE("many small calls", "[cluster]") {
  with_workers(quiet(1), [](workers all) -> asio::awaitable<void> {
    for (int i = 0; i < 2000; ++i) {
      const int value = co_await all.call<&square>(0, i);
      if (value != i * i) FAIL_CHECK("wrong at " << i);
    }
    std::vector<cohort::future<int>> pending;
    for (int i = 0; i < 10'000; ++i)
      pending.push_back(all.call<&square>(0, i % 1000, cohort::as_future));
    for (int i = 0; i < 10'000; ++i) {
      const int value = co_await std::move(pending[static_cast<std::size_t>(i)]);
      if (value != (i % 1000) * (i % 1000)) FAIL_CHECK("wrong at " << i);
    }
  });
}
