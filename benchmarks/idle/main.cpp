// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// What does waiting cost, and how soon does the loop go on when the wait is over? Rank 0 waits in
// several ways, rank 1 sleeps and sends the time now and then.

#include "competitors.hpp"
#include "support/report.hpp"
#include "support/statistics.hpp"

#include <cohort/mpi/environment.hpp>
#include <cohort/shm.hpp>

#include <CLI/CLI.hpp>

namespace {

using std::chrono::milliseconds;

void print(const char* title, const wait_report& report, double cpu_target, double wake_up_target,
           bool engine = true) {
  std::printf("%s\n", title);
  bench::print_row("  share of a core", report.cpu_percent, "%", cpu_target);
  if (engine) {
    bench::print_row("  laps", report.laps, "");
    bench::print_row("  times parked", report.parked, "");
  }
  if (!report.wake_ups.empty()) {
    const auto microseconds = [&](double share) {
      return bench::percentile(report.wake_ups, share) / 1000;
    };
    bench::print_row("  wake-up p50 of " + std::to_string(report.wake_ups.size()),
                     microseconds(0.5), "us", wake_up_target);
    bench::print_row("  wake-up p99", microseconds(0.99), "us");
  }
  std::printf("\n");
}

}  // namespace

int main(int argc, char** argv) {
  int seconds = 10;
  std::string only;
  CLI::App app("What waiting costs; start it with mpirun -np 2");
  app.add_option("--seconds", seconds, "length of the long waits");
  app.add_option("--only", only, "one of timer, parked, long, short, scope, raw");
  CLI11_PARSE(app, argc, argv);

  cohort::environment env(argc, argv);
  asio::io_context io;
  cohort::communicator world(io);
  const bool waiter = world.rank() == 0;
  if (waiter) bench::print_machine(world.size());
  if (world.size() != 2) {
    if (waiter) std::printf("this benchmark needs two ranks\n");
    return 1;
  }
  const auto wanted = [&](const char* row) {
    raw_mpi::rest(world.native());
    return only.empty() || only == row;
  };
  const schedule once{std::chrono::seconds(seconds), 1};
  const schedule quiet_second{milliseconds(1200), 11};
  const schedule fifth{milliseconds(200), 50};

  if (wanted("timer") && waiter) {
    print("nothing pending beside a timer", with_cohort::wait_for_timer(io, once.quiet), 0.1, 0);
  }
  if (wanted("parked")) {
    if (waiter) {
      const auto report = with_cohort::wait_for_control(world, io, once);
      print("a control receive: the engine is parked", report, 0.1, 0);
    } else {
      with_cohort::send_control(world, io, once);
    }
  }
  if (wanted("parked")) {
    if (waiter) {
      const auto report = with_cohort::wait_for_control(world, io, fifth);
      print("control messages after 200 ms in the park", report, 0.1, 0);
    } else {
      with_cohort::send_control(world, io, fifth);
    }
  }
  const auto messages = [&](const char* row, const char* title, schedule plan, double cpu_target,
                            double wake_up_target) {
    if (!wanted(row)) return;
    if (waiter) {
      const auto report = with_cohort::wait_for_messages(world, io, plan);
      print(title, report, cpu_target, wake_up_target);
    } else {
      raw_mpi::send(world.native(), plan);
    }
  };
  messages("long", "a receive pending for long", once, 3, 0);
  messages("long", "a message after 1.2 s of quiet", quiet_second, 0, 5000);
  messages("short", "a message after 200 ms of quiet", fifth, 0, 1300);
  const auto values = [&](const char* title, schedule plan, double wake_up_target) {
    if (!wanted("scope")) return;
    if (waiter) {
      print(title, with_cohort::wait_in_scope(world, io, plan), 0.1, wake_up_target);
    } else {
      with_cohort::put_in_scope(world, io, plan);
    }
  };
  values("an await in a scope of a task graph", once, 0);
  values("an await in a scope, a value after 200 ms", fifth, 200);
  if (wanted("scope")) {
    if (waiter) {
      const auto report = with_cohort::wait_for_nobody(world, io, fifth);
      print("the error for a task that nobody spawns, after 200 ms", report, 0, 1'000'000);
    } else {
      with_cohort::spawn_nothing(world, io, fifth);
    }
  }
  if (wanted("raw")) {
    if (waiter) {
      const auto report = raw_mpi::wait(world.native(), fifth);
      print("MPI_Recv, a message after 200 ms of quiet", report, 0, 0, false);
    } else {
      raw_mpi::send(world.native(), fifth);
    }
  }
}
