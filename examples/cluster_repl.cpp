// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// A manager outside MPI: it launches workers, and spreads a parameter sweep over them that balances
// itself, for its items cost very different times. Start it without mpiexec:
//
//   cluster_repl --ranks 4
//   cluster_repl --ranks 4 --interactive        reads commands: sweep, workers, call RANK, quit
//
// Ctrl-C cancels what is in flight, prints what is done, and ends the workers; twice kills them.

#include <unistd.h>
#include <CLI/CLI.hpp>
#include <atomic>
#include <cohort/cluster.hpp>
#include <cohort/progress/future.hpp>
#include <iostream>
#include <sstream>
#include "support/pendulum.hpp"

#include <asio/posix/stream_descriptor.hpp>  // Asio behind cohort
#include <asio/read_until.hpp>
#include <asio/signal_set.hpp>

namespace cluster = cohort::cluster;
using support::pendulum;

// What the workers run.

std::atomic<int> done = 0;
int items_done() { return done; }

/// For a thread of its own, so that the worker goes on answering.
double settles(cluster::call_context& call, const pendulum& one, double step) {
  const double time = support::settling_time(one, step, [&] { return call.cancelled(); });
  ++done;
  return time;
}

class manager {
 public:
  explicit manager(asio::io_context& io) : io_(io), signals_(io, SIGINT) { await_signal(); }

  asio::awaitable<void> run(cluster::launch_options options, bool interactive, double step) {
    all_ = co_await cluster::launch(io_, std::move(options));
    // A cancelled sweep is not an error: it has the outcomes of what was done.
    co_await asio::this_coro::throw_if_cancelled(false);
    if (!interactive) co_await sweep(step);
    if (interactive) co_await obey(step);
    co_await asio::this_coro::reset_cancellation_state(asio::disable_cancellation());
    co_await all_.shutdown();
    signals_.cancel();
  }
  [[nodiscard]] auto stopped() { return stop_.slot(); }

 private:
  void await_signal() {
    signals_.async_wait([this](std::error_code failed, int) {
      if (failed) return;
      if (std::exchange(interrupted_, true)) {
        all_.terminate();
      } else {
        stop_.emit(asio::cancellation_type::terminal);
      }
      await_signal();
    });
  }

  asio::awaitable<void> sweep(double step) {
    const std::vector<double> dampings{0.32, 0.16, 0.08, 0.04, 0.02, 0.01}, angles{0.1, 1, 2, 3};
    std::vector<pendulum> items;
    for (const double damping : dampings) {
      for (const double angle : angles) items.push_back({damping, angle});
    }
    auto shown = co_spawn(io_, keep_showing_progress(), cohort::as_future);
    const auto options = cluster::call_options{}.on_thread(true).per_worker(1);
    const auto results = co_await all_.with(options).map<&settles>(items, step);
    shown.cancel();
    if (!interrupted_) co_await show_progress(true);
    std::printf("seconds until a pendulum has settled\ndamping");
    for (const double angle : angles) std::printf("  from %3.1f", angle);
    int count = 0;
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i % angles.size() == 0) std::printf("\n%7.2f", items[i].damping);
      count += results[i] ? 1 : 0;
      if (results[i]) std::printf(" %9.2f", results[i].value());
      if (!results[i]) std::printf(" %9s", "-");
    }
    std::printf("\n%d of %zu done\n", count, items.size());
    std::fflush(stdout);
  }

  /// A line per worker; on a terminal in place of those before. On stderr, so that results can go
  /// to a file.
  asio::awaitable<void> show_progress(bool again) {
    std::ostringstream text;
    if (again && isatty(STDERR_FILENO) != 0) text << "\x1b[" << all_.size() << "A";
    for (const int rank : all_.ids()) {
      const int items = co_await all_.call<&items_done>(rank);
      text << "worker " << rank << " on " << all_.host(rank) << ": " << items << " items\n";
    }
    std::cerr << text.str() << std::flush;
  }
  asio::awaitable<void> keep_showing_progress() {
    asio::steady_timer pause(io_);
    co_await show_progress(false);
    while (isatty(STDERR_FILENO) != 0) {
      co_await show_progress(true);
      pause.expires_after(std::chrono::milliseconds(200));
      co_await pause.async_wait(asio::use_awaitable);
    }
  }

  asio::awaitable<void> obey(double step) {
    asio::posix::stream_descriptor input(io_, ::dup(STDIN_FILENO));
    for (std::string text; !interrupted_;) {
      const auto [failed, size] = co_await asio::async_read_until(
          input, asio::dynamic_buffer(text), '\n', cohort::as_tuple(asio::use_awaitable));
      if (failed) co_return;
      std::istringstream words(text.substr(0, size));
      text.erase(0, size);
      std::string word;
      int rank = 0;
      words >> word >> rank;
      if (word == "quit") co_return;
      if (word == "sweep") {
        co_await sweep(step);
      } else if (word == "workers") {
        std::cout << all_ << std::endl;
      } else if (word == "call" && rank >= 0 && rank < all_.size()) {
        std::cout << co_await all_.call<&items_done>(rank) << " items" << std::endl;
      } else {
        std::cout << "sweep, workers, call RANK, or quit" << std::endl;
      }
    }
  }

  asio::io_context& io_;
  asio::signal_set signals_;
  asio::cancellation_signal stop_;
  cluster::workers all_;
  bool interrupted_ = false;
};

// Not by cluster::run, for what the manager runs is cancelled by a slot of its own.
int main(int argc, char** argv) try {
  if (cluster::serve(argc, argv)) return EXIT_SUCCESS;  // this process is a worker
  int ranks = cluster::usable_cpus();
  double step = 0.0001;
  bool interactive = false;
  CLI::App app{"Spreads a parameter sweep over workers that it launches itself."};
  app.add_option("--ranks", ranks, "workers")->capture_default_str();
  app.add_option("--step", step, "of the integration, in seconds")->capture_default_str();
  app.add_flag("--interactive", interactive, "read commands from a terminal or a pipe");
  CLI11_PARSE(app, argc, argv);
  asio::io_context io;
  manager self(io);
  std::exception_ptr failed;
  co_spawn(io, self.run(cluster::launch_options{}.ranks(ranks), interactive, step),
           asio::bind_cancellation_slot(self.stopped(), [&](std::exception_ptr why) {
             failed = why;
             if (failed) io.stop();
           }));
  io.run();
  if (failed) std::rethrow_exception(failed);
} catch (const std::exception& failed) {
  std::cerr << "cluster_repl: " << failed.what() << std::endl;
  return EXIT_FAILURE;
}
