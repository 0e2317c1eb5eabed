// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#include <cohort/cluster/call_context.hpp>
#include <cohort/cluster/sinks.hpp>
#include <cohort/core/asio.hpp>
#include <cohort/core/log.hpp>
#include <cohort/progress/future.hpp>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <iostream>
#include <iterator>
#include <map>
#include <mutex>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "cluster/printed.hpp"
#include "cluster/support.hpp"

using namespace cohort_test;
using cohort::cluster::call_context;

namespace {

int counted_up = 0;
void count_up() { ++counted_up; }
void print_count_at_end() {
  std::atexit([] { std::printf("counted %d\n", counted_up); });
}
int pid_of() { return ::getpid(); }
asio::awaitable<void> sleeps(call_context& call) {
  asio::steady_timer timer(call.context(), std::chrono::minutes(5));
  co_await timer.async_wait(asio::use_awaitable);
}
void computes() { std::this_thread::sleep_for(std::chrono::minutes(5)); }
void dies() { ::raise(SIGKILL); }

/// A process and those that it descends from, up to a child of this one.
std::vector<int> line_of(int pid) {
  std::vector<int> all;
  while (pid > 1 && pid != ::getpid()) {
    all.push_back(pid);
    const std::string stat = contents("/proc/" + std::to_string(pid) + "/stat");
    const auto state = stat.rfind(") ");
    if (state == std::string::npos) break;
    pid = std::atoi(stat.c_str() + state + 4);
  }
  return all;
}

void take(const std::string&) {}
std::string give() {
  std::this_thread::sleep_for(20ms);
  return std::string(std::size_t{5} << 20U, 'y');
}
/// Starts a process that keeps this one's standard error, and returns its number.
int leaves_behind() {
  std::FILE* const shell = ::popen("setsid sleep 60 >&2 & echo $!", "r");  // NOLINT
  int pid = -1;
  if (std::fscanf(shell, "%d", &pid) != 1) pid = -1;
  ::pclose(shell);
  return pid;
}

void says_numbers(int from, int to) {
  for (int i = from; i < to; ++i) std::printf("number %d\n", i);
}
void says_much(std::size_t size) {
  const std::string line = std::string(1023, 'm') + "\n";
  for (std::size_t done = 0; done < size; done += line.size()) {
    std::fwrite(line.data(), 1, line.size(), stdout);
  }
}
/// How many whole lines are there of those that says_numbers writes.
std::size_t numbers_in(std::string_view text) {
  std::size_t found = 0;
  for (std::size_t at = 0; (at = text.find("number ", at)) != text.npos; ++at) ++found;
  return found;
}
}  // namespace

TEST_CASE("a worker that is killed ends its calls with its name", "[cluster][faults]") {
  with_mortal_workers(quiet(2).grace(500ms), [](workers all) -> asio::awaitable<void> {
    auto pending = all.call<&sleeps>(1, cohort::as_future);
    auto other = all.call<&sleeps>(0, cohort::as_future);
    REQUIRE(::kill(static_cast<pid_t>(all.pid(1)), SIGKILL) == 0);
    auto failing = caught<cohort::peer_lost_error>(std::move(pending));
    const auto lost = co_await std::move(failing);
    REQUIRE(lost);
    CHECK(lost->ranks() == std::vector<int>{1});
    CHECK(has(lost->what(), "sleeps"));
    CHECK(has(lost->what(), "rank 1"));
    CHECK(all.state(1) == worker_state::lost);
    CHECK_FALSE(all.cause(1).empty());
    // By default the job ends with it, and later calls fail at once.
    auto failing_too = caught<cohort::peer_lost_error>(std::move(other));
    co_await std::move(failing_too);
    auto later = caught<cohort::peer_lost_error>(all.call<&pid_of>(1));
    co_await std::move(later);
    CHECK(all.state(0) == worker_state::lost);
  });
}

TEST_CASE("a worker that dies inside a function", "[cluster][faults]") {
  with_mortal_workers(quiet(1).grace(500ms), [](workers all) -> asio::awaitable<void> {
    auto failing = caught<cohort::peer_lost_error>(all.call<&dies>(0));
    const auto lost = co_await std::move(failing);
    CHECK(lost);
    for (;;) {
      const auto event = co_await all.next_event();
      if (event.what == cluster::worker_event::kind::registered) continue;
      CHECK(event.what == cluster::worker_event::kind::lost);
      CHECK(event.rank == 0);
      break;
    }
  });
}

TEST_CASE("a stopped worker does not hold a call with a deadline", "[cluster][faults]") {
  with_mortal_workers(quiet(1).grace(300ms), [](workers all) -> asio::awaitable<void> {
    const auto pid = static_cast<pid_t>(all.pid(0));
    REQUIRE(::kill(pid, SIGSTOP) == 0);
    auto failing =
        caught<cohort::deadline_error>(all.with(call_options{}.deadline(200ms)).call<&pid_of>(0));
    const auto late = co_await std::move(failing);
    CHECK(late);
    // A shutdown names it and ends it by force.
    auto ending = caught<cohort::rank_error>(all.shutdown(300ms));
    const auto laggard = co_await std::move(ending);
    REQUIRE(laggard);
    CHECK(laggard->code() == errc::stalled);
    CHECK(laggard->ranks() == std::vector<int>{0});
    ::kill(pid, SIGCONT);
  });
}

TEST_CASE("a shutdown lets accepted calls finish and loses none", "[cluster][faults]") {
  printed output;
  {
    asio::io_context io;
    auto work = [&]() -> asio::awaitable<void> {
      auto launching = cluster::launch(io, launch_options{}.ranks(2).sink(output.sink()));
      const workers all = co_await std::move(launching);
      for (const int rank : all.ids()) co_await all.call<&print_count_at_end>(rank);
      auto pending = all.call<&pid_of>(1, cohort::as_future);
      for (int i = 0; i < 10'000; ++i) all.notify<&count_up>(i % 2);
      auto ending = all.shutdown();
      co_await std::move(ending);
      const int pid = co_await std::move(pending);
      CHECK(pid == all.pid(1));
      auto refused = code_of(all.call<&pid_of>(0));
      const std::error_code code = co_await std::move(refused);
      CHECK(code == errc::closed);
    };
    run(io, work());
  }
  CHECK(output.of(0) == "counted 5000\n");
  CHECK(output.of(1) == "counted 5000\n");
}

TEST_CASE("a shutdown waits for large messages that nobody awaits", "[cluster][faults]") {
  with_workers(quiet(1), [](workers all) -> asio::awaitable<void> {
    const std::string large(std::size_t{5} << 20U, 'x');
    for (int i = 0; i < 4; ++i) all.notify<&take>(0, large);
    // One whose answer is large, and comes when nobody waits for it.
    auto failing =
        caught<cohort::deadline_error>(all.with(call_options{}.deadline(0ms)).call<&give>(0));
    co_await std::move(failing);
  });
}

TEST_CASE("a process that a rank has left behind does not hold the manager", "[cluster][faults]") {
  int left = 0;
  with_mortal_workers(quiet(1), [&](workers all) -> asio::awaitable<void> {
    left = co_await all.call<&leaves_behind>(0);
    co_await all.shutdown(6s);
    CHECK(all.state(0) == worker_state::gone);
  });
  REQUIRE(left > 0);
  CHECK(runs(left));  // it would have ended by itself, had the loop waited for it
  ::kill(left, SIGKILL);
}

TEST_CASE("what ranks print arrives by rank and stream", "[cluster][faults]") {
  printed output;
  std::string line(std::size_t{1} << 20U, 'm');
  std::string binary = "a\0b\x1b[1m";
  binary += '\xff';
  {
    asio::io_context io;
    auto work = [&]() -> asio::awaitable<void> {
      auto launching = cluster::launch(io, launch_options{}
                                               .ranks(2)
                                               .sink(output.sink())
                                               .longest_line(std::size_t{2} << 20U)
                                               .output_bound(std::size_t{8} << 20U));
      const workers all = co_await std::move(launching);
      co_await all.call<&says>(0, "one\ntwo\nthr", false);
      co_await all.call<&says>(0, "ee\n", false);
      co_await all.call<&says>(1, "error of one\n", true);
      co_await all.call<&says>(1, line + "\n", false);
      co_await all.call<&says>(1, binary + "\n", false);
      co_await all.call<&says>(0, "without an end", false);
      co_await all.shutdown();
    };
    run(io, work());
  }
  CHECK(output.of(0) == "one\ntwo\nthree\nwithout an end");
  // MPI may have had something to say before.
  CHECK(output.of(1, cluster::output_stream::err).ends_with("error of one\n"));
  CHECK((output.of(1) == line + "\n" + binary + "\n"));
}

TEST_CASE("both streams of each rank keep their order", "[cluster][faults]") {
  printed output;
  with_workers(launch_options{}.ranks(2).sink(output.sink()),
               [](workers all) -> asio::awaitable<void> {
                 for (int i = 0; i < 200; ++i) {
                   const std::string number = std::to_string(i);
                   co_await all.call<&says>(i % 2, "out " + number + "\n", false);
                   co_await all.call<&says>(i % 2, "err " + number + "\n", true);
                 }
               });
  for (const int rank : {0, 1}) {
    std::string out;
    std::string err;
    for (int i = rank; i < 200; i += 2) {
      out += "out " + std::to_string(i) + "\n";
      err += "err " + std::to_string(i) + "\n";
    }
    CHECK(output.of(rank) == out);
    // MPI may have had something to say before.
    CHECK(output.of(rank, cluster::output_stream::err).ends_with(err));
  }
}

TEST_CASE("a sink that stands still holds neither calls nor ranks, and costs counted lines",
          "[cluster][faults]") {
  gate slow;
  printed output;
  std::uint64_t dropped = 0;
  const auto count = [&](const cluster::output_line& line) {
    if (line.stream == cluster::output_stream::out) dropped += line.dropped;
  };
  constexpr int many = 20'000;
  {
    auto options = launch_options{}.ranks(1).output_bound(64 * 1024);
    options.sink(slow.sink()).sink(output.sink()).sink(count);
    with_workers(options, [&](workers all) -> asio::awaitable<void> {
      // Far more than there is room for; each call is answered while the sink stands.
      for (int i = 0; i < many; i += 100) co_await all.call<&says_numbers>(0, i, i + 100);
      slow.open();
    });
  }
  const std::string all = output.of(0);
  CHECK(dropped > 0);
  const auto lines = static_cast<std::uint64_t>(std::count(all.begin(), all.end(), '\n'));
  const auto notices = lines - numbers_in(all);
  CHECK(notices > 0);
  CHECK(numbers_in(all) + dropped == many);
  CHECK(all.ends_with("number " + std::to_string(many - 1) + "\n"));
}

TEST_CASE("with block a rank waits for the sinks, and no line is lost", "[cluster][faults]") {
  gate slow;
  printed output;
  constexpr std::size_t size = std::size_t{40} << 20U;  // more than the kernel keeps of it
  {
    auto options = launch_options{}.ranks(1).output_bound(64 * 1024);
    options.overflow(cluster::overflow_policy::block).sink(slow.sink()).sink(output.sink());
    with_workers(options, [&](workers all) -> asio::awaitable<void> {
      auto saying = all.call<&says_much>(0, size, cohort::as_future);
      asio::steady_timer pause(all.context(), 500ms);
      co_await pause.async_wait(asio::use_awaitable);
      CHECK_FALSE(saying.is_ready());
      slow.open();
      co_await std::move(saying);
    });
  }
  CHECK(output.of(0).size() == size);
}

TEST_CASE("a sink that throws is told once, and the others get what ranks print",
          "[cluster][faults]") {
  const cohort::log::capture messages;
  printed output;
  {
    auto options = launch_options{}.ranks(2);
    options.sink([](const cluster::output_line&) { throw std::runtime_error("disk full"); });
    options.sink(output.sink());
    with_workers(options, [&](workers all) -> asio::awaitable<void> {
      for (const int rank : all.ids()) co_await all.call<&says_numbers>(rank, 0, 50);
    });
  }
  for (const int rank : {0, 1}) CHECK(numbers_in(output.of(rank)) == 50);
  const std::string told = messages.text();
  CHECK(has(told, "disk full"));
  CHECK(told.find("disk full") == told.rfind("disk full"));
}

TEST_CASE("the last lines of a rank that is killed are not lost", "[cluster][faults]") {
  printed output;
  with_mortal_workers(launch_options{}.ranks(1).sink(output.sink()).grace(300ms),
                      [](workers all) -> asio::awaitable<void> {
                        auto failing = caught<cohort::peer_lost_error>(all.call<&says_and_dies>(0));
                        co_await std::move(failing);
                      });
  // glibc keeps the start of a line; an MPI may have made stdout unbuffered, as MPICH does.
  const std::string all = output.of(0);
  CHECK((all == "last line\n" || all == "last line\nunfinished"));
  CHECK(output.of(0, cluster::output_stream::err).ends_with("last error\n"));
}

TEST_CASE("when the manager is killed all its jobs end, also what computes", "[cluster][faults]") {
  int facts[2];
  REQUIRE(::pipe(facts) == 0);
  const pid_t manager = ::fork();
  REQUIRE(manager >= 0);
  if (manager == 0) {
    asio::io_context io;
    auto work = [&]() -> asio::awaitable<void> {
      auto launching = cluster::launch(io, quiet(2));
      const workers one = co_await std::move(launching);
      auto launching_too = cluster::launch(io, quiet(1));
      const workers other = co_await std::move(launching_too);
      one.notify<&computes>(0);
      one.notify<&sleeps>(1);
      other.notify<&computes>(0);
      std::string all;
      for (const auto pid : {one.pid(0), one.pid(1), other.pid(0)}) {
        for (const int each : line_of(static_cast<int>(pid))) all += std::to_string(each) + " ";
      }
      static_cast<void>(!::write(facts[1], all.data(), all.size()));
      asio::steady_timer forever(io, std::chrono::minutes(5));
      co_await forever.async_wait(asio::use_awaitable);
    };
    asio::co_spawn(io, work(), asio::detached);
    io.run();
    ::_exit(0);
  }
  ::close(facts[1]);
  std::string told(1000, ' ');
  const auto got = ::read(facts[0], told.data(), told.size());
  ::close(facts[0]);
  ::kill(manager, SIGKILL);
  ::waitpid(manager, nullptr, 0);
  REQUIRE(got > 0);
  std::istringstream text(told);
  const std::set<int> all{std::istream_iterator<int>(text), {}};
  CHECK(all.size() >= 5);  // three workers and two launchers
  for (const int pid : all) {
    CAPTURE(pid);
    CHECK(ends(pid));
  }
}

TEST_CASE("an interrupt cancels the calls in flight", "[cluster][faults]") {
  with_mortal_workers(quiet(1).interrupt(true), [](workers all) -> asio::awaitable<void> {
    auto pending = all.call<&sleeps>(0, cohort::as_future);
    ::raise(SIGINT);
    auto ended = code_of(asio::awaitable<void>(std::move(pending)));
    const std::error_code code = co_await std::move(ended);
    CHECK(code == asio::error::operation_aborted);
    const int pid = co_await all.call<&pid_of>(0);
    CHECK(pid == all.pid(0));
    co_await all.shutdown();
  });
}

TEST_CASE("messages of launched workers do not travel over MPI, and that is said",
          "[cluster][faults]") {
  asio::io_context io;
  auto work = [&]() -> asio::awaitable<void> {
    auto refused = code_of(cluster::launch(io, quiet(1).transport(cluster::transport::mpi)));
    const std::error_code code = co_await std::move(refused);
    CHECK(code == errc::not_supported);
  };
  run(io, work());
}

TEST_CASE("workers whose last handle is dropped are ended", "[cluster][faults]") {
  const cohort::log::capture lines;
  asio::io_context io;
  int pid = 0;
  auto work = [&]() -> asio::awaitable<void> {
    auto launching = cluster::launch(io, quiet(1).grace(300ms));
    const workers all = co_await std::move(launching);
    pid = static_cast<int>(all.pid(0));
  };
  run(io, work());
  CHECK(ends(pid));
  CHECK(lines.contains("without shutdown"));
}
