// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// What does a coordinator cost that has nothing to do, and how soon does it wake up? All ranks have
// a live coordinator and wait for a timer; then the last rank submits now and then, while rank 0
// sleeps.

#include "idle/cpu_time.hpp"
#include "interposed.hpp"
#include "support/report.hpp"

#include <cohort/coordinator.hpp>
#include <cohort/mpi/environment.hpp>
#include <cohort/progress/context.hpp>

#include <CLI/CLI.hpp>

namespace {

using std::chrono::milliseconds;

asio::awaitable<void> sleep_for(std::chrono::nanoseconds duration) {
  asio::steady_timer timer(co_await asio::this_coro::executor, duration);
  co_await timer.async_wait(asio::use_awaitable);
}

/// Nothing is submitted anywhere. Rank 0 prints the largest figures of any rank.
asio::awaitable<void> idle(cohort::coordinator coord, asio::io_context& io, int seconds) {
  co_await coord.barrier();
  co_await sleep_for(milliseconds(500));  // what the barrier has left behind is over
  const auto before = cohort::engine_stats(io);
  const auto messages = interposed::messages();
  const auto collectives = interposed::collectives();
  if (messages == 0 || collectives == 0) throw std::logic_error("MPI's functions are not seen");
  const cpu_time cpu;
  co_await sleep_for(std::chrono::seconds(seconds));
  const double percent = cpu.percent();
  const auto after = cohort::engine_stats(io);
  std::vector<double> figures;
  figures.push_back(percent);
  figures.push_back(static_cast<double>(interposed::messages() - messages));
  figures.push_back(static_cast<double>(interposed::collectives() - collectives));
  figures.push_back(static_cast<double>(after.laps - before.laps));
  figures.push_back(static_cast<double>(after.parked - before.parked));
  co_await coord.all_reduce("figures", figures, cohort::op::max);
  if (coord.rank() != 0) co_return;
  std::printf("nothing submitted for %d s; the worst rank\n", seconds);
  bench::print_row("  share of a core", figures[0], "%", 0.3);
  std::printf("%-58s %9.0f        target 0: %s\n", "  messages sent", figures[1],
              figures[1] == 0 ? "met" : "MISSED");
  bench::print_row("  collective operations started", figures[2], "");
  bench::print_row("  laps", figures[3], "");
  bench::print_row("  times parked", figures[4], "");
}

/// The last rank submits after `quiet`. Until 50 ms later rank 0 has not submitted anything: how
/// long does it take until it has seen the message?
asio::awaitable<void> wake_up(cohort::coordinator coord, milliseconds quiet, int rounds) {
  std::vector<double> times;
  int unseen = 0;
  for (int i = 0; i < rounds; ++i) {
    co_await coord.barrier();
    // A little more each time, so that messages meet every phase of a sleeper's period.
    const auto pause = quiet + std::chrono::microseconds(370) * i;
    const bool submits = coord.rank() == coord.size() - 1;
    co_await sleep_for(submits ? pause : pause - milliseconds(50));
    interposed::watch();
    if (!submits) co_await sleep_for(milliseconds(100));
    const double seen = interposed::seen();
    double submitted = submits ? now() : 0;
    co_await coord.all_reduce("submitted", submitted, cohort::op::max);
    if (seen == 0) {
      ++unseen;
    } else {
      times.push_back((seen - submitted) / 1000);
    }
  }
  if (coord.rank() != 0) co_return;
  std::printf(
      "\nwoken up after %lld ms of quiet: from submission on the last rank to the look that "
      "finds its message on rank 0\n",
      static_cast<long long>(quiet.count()));
  bench::print_row("  p50 of " + std::to_string(times.size()), bench::median(times), "us", 200);
  bench::print_row("  p99", bench::percentile(times, 0.99), "us");
  bench::print_row("  not seen before rank 0 submitted, too", unseen, "");
}

/// All ranks but the last have submitted and wait.
asio::awaitable<void> last_one(cohort::coordinator coord, milliseconds quiet, int rounds) {
  std::vector<double> times;
  for (int i = 0; i < rounds; ++i) {
    co_await coord.barrier();
    double submitted = 0;
    if (coord.rank() == coord.size() - 1) {
      co_await sleep_for(quiet + std::chrono::microseconds(370) * i);
      submitted = now();
    }
    co_await coord.all_reduce("late", submitted, cohort::op::max);
    times.push_back((now() - submitted) / 1000);
  }
  if (coord.rank() != 0) co_return;
  std::printf(
      "\nthe last rank submits %lld ms after the others: from there to completion on rank "
      "0\n",
      static_cast<long long>(quiet.count()));
  bench::print_row("  p50 of " + std::to_string(times.size()), bench::median(times), "us");
  bench::print_row("  p99", bench::percentile(times, 0.99), "us");
}

asio::awaitable<void> measure(cohort::communicator world, asio::io_context& io, int seconds,
                              int rounds) {
  const cohort::coordinator coord(world);
  co_await idle(coord, io, seconds);
  co_await wake_up(coord, milliseconds(200), rounds);
  co_await last_one(coord, milliseconds(200), rounds);
  co_await coord.shutdown();
}

}  // namespace

int main(int argc, char** argv) {
  int seconds = 10;
  int rounds = 50;
  CLI::App app("What an idle coordinator costs; start it with mpirun -np 2, or more");
  app.add_option("--seconds", seconds, "length of the wait");
  app.add_option("--rounds", rounds, "times to wake up");
  CLI11_PARSE(app, argc, argv);

  cohort::environment env(argc, argv);
  asio::io_context io;
  cohort::communicator world(io);
  if (world.rank() == 0) bench::print_machine(world.size());
  asio::co_spawn(io, measure(world, io, seconds, rounds), cohort::rethrow);
  io.run();
}
