// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// What does a remote call cost? Manager and worker are two processes on one machine; the round trip
// of an empty call over an echo by two coroutines of plain Asio whose server runs in the same
// worker, with messages of the same size; vectors there and back over the same echo. Competitors
// take turns, in chunks; the order rotates. Ratios are taken chunk by chunk and their medians
// reported. With --adopted, under mpirun with two ranks: the call over MPI, over a blocking
// ping-pong of 8 B. Then the launch over the bare launcher with a program that starts MPI and ends.

#include "competitors.hpp"
#include "support/report.hpp"
#include "support/statistics.hpp"

#include <cohort/cluster/launch/launching.hpp>
#include <cohort/cluster/serve.hpp>
#include <cohort/progress/context.hpp>

#include <CLI/CLI.hpp>

#include <sys/wait.h>

#include <functional>
#include <iostream>
#include <numeric>

namespace {

using cohort::cluster::launch_options;
using cohort::cluster::workers;
using times = std::vector<double>;

struct competitor {
  const char* name;
  std::function<asio::awaitable<times>(int)> chunk;
  double target;  ///< of the ratio to the first competitor; 0: only reported
};

/// "12.3 us", "4.5 ms"
std::string text_of(double nanoseconds) {
  char text[32];
  const bool small = nanoseconds < 1e6;
  std::snprintf(text, sizeof text, "%.1f %s", nanoseconds / (small ? 1e3 : 1e6),
                small ? "us" : "ms");
  return text;
}

asio::awaitable<void> race(std::string title, std::vector<competitor> competitors, int rounds,
                           int chunks) {
  std::vector<times> all(competitors.size());
  std::vector<times> means(competitors.size());
  for (int chunk = -2; chunk < chunks; ++chunk) {  // two to warm up
    for (std::size_t turn = 0; turn < competitors.size(); ++turn) {
      const std::size_t who = (turn + static_cast<std::size_t>(chunk + 2)) % competitors.size();
      const times each = co_await competitors[who].chunk(rounds);
      if (chunk < 0) continue;
      all[who].insert(all[who].end(), each.begin(), each.end());
      means[who].push_back(std::accumulate(each.begin(), each.end(), 0.0) / rounds);
    }
  }
  std::printf("%s: %s, median %s, p90 %s; %d chunks of %d\n", title.c_str(), competitors[0].name,
              text_of(bench::median(all[0])).c_str(),
              text_of(bench::percentile(all[0], 0.9)).c_str(), chunks, rounds);
  for (std::size_t who = 1; who < competitors.size(); ++who) {
    const auto ratio = bench::ratios(means[who], means[0]);
    bench::print_row(std::string("  ") + competitors[who].name, bench::median(ratio), "x",
                     competitors[who].target);
    std::printf("      median %s, p90 %s, half of the ratios %.2f to %.2f\n",
                text_of(bench::median(all[who])).c_str(),
                text_of(bench::percentile(all[who], 0.9)).c_str(), bench::percentile(ratio, 0.25),
                bench::percentile(ratio, 0.75));
  }
  std::printf("\n");
}

asio::awaitable<void> measure_idle(workers all, int seconds) {
  const times shares = co_await with_cohort::idle(all, std::chrono::seconds(seconds));
  for (std::size_t i = 0; i < shares.size(); ++i) {
    const std::string whom = i == 0 ? "manager" : "worker " + std::to_string(all.ids()[i - 1]);
    bench::print_row("  idle, " + whom, shares[i] * 100, "% of a core", 1.0);
  }
  std::printf("\n");
}

asio::awaitable<void> measure_calls(asio::io_context& io, int chunks, int seconds,
                                    const std::vector<std::size_t>& large) {
  const workers all = co_await cohort::cluster::launch(io, launch_options{}.ranks(1));
  {
    auto socket = co_await with_cohort::connect_raw(all, with_cohort::empty_call);
    std::vector<std::byte> message(with_cohort::empty_call);
    std::vector<competitor> empty;
    empty.push_back(
        {"plain Asio", [&](int n) { return raw_asio::round_trips(socket, message, n); }, 0});
    empty.push_back({"co_await workers.call<&nothing>(0)",
                     [&](int n) { return with_cohort::calls(all, n); }, 1.3});
    empty.push_back({"the same, the callee is a coroutine",
                     [&](int n) { return with_cohort::coroutine_calls(all, n); }, 0});
    co_await race("empty call there and back", std::move(empty), 200, chunks);
  }
  for (const std::size_t mebibytes : large) {
    auto socket = co_await with_cohort::connect_raw(all, mebibytes << 20U);
    std::vector<std::byte> message(mebibytes << 20U);
    std::vector<std::byte> moved = message;
    std::vector<competitor> bandwidth;
    bandwidth.push_back({"plain Asio, into buffers that are there",
                         [&](int n) { return raw_asio::round_trips(socket, message, n); }, 0});
    bandwidth.push_back({"a vector as argument and as result",
                         [&](int n) { return with_cohort::echoes(all, message, n); }, 1.5});
    bandwidth.push_back({"the same, the argument is moved",
                         [&](int n) { return with_cohort::moved_echoes(all, moved, n); }, 0});
    co_await race(std::to_string(mebibytes) + " MiB there and back", std::move(bandwidth),
                  mebibytes < 8 ? 5 : 1, std::max(chunks / (mebibytes < 8 ? 4 : 16), 1));
  }
  if (seconds > 0) co_await measure_idle(all, seconds);
  co_await all.shutdown();
}

/// In a job of two ranks that mpirun has started.
asio::awaitable<void> measure_adopted(cohort::communicator world, int chunks, int seconds,
                                      bool tcp) {
  for (const auto how : {cohort::cluster::transport::mpi, cohort::cluster::transport::tcp}) {
    if (!tcp && how == cohort::cluster::transport::tcp) continue;
    const bool over_mpi = how == cohort::cluster::transport::mpi;
    auto adopting = cohort::cluster::adopt(world, cohort::cluster::adopt_options().transport(how));
    const workers all = co_await std::move(adopting);
    std::vector<competitor> empty;
    empty.push_back(
        {"raw MPI, 8 B, blocking", [&](int n) { return with_cohort::raw_ping_pong(all, n); }, 0});
    empty.push_back({"co_await workers.call<&nothing>(1)",
                     [&](int n) { return with_cohort::calls(all, n); }, over_mpi ? 6.0 : 0});
    empty.push_back({"the same, the callee is a coroutine",
                     [&](int n) { return with_cohort::coroutine_calls(all, n); }, 0});
    co_await race(over_mpi ? "empty call over MPI" : "empty call over TCP, in an adopted job",
                  std::move(empty), 200, chunks);
    if (seconds > 0) co_await measure_idle(all, seconds);
    co_await all.shutdown();
  }
}

// ---- launch ------------------------------------------------------------------------------------

/// Runs it as a shell would, and waits for its end.
double run_bare(const cohort::cluster::launch_command& command) {
  std::vector<char*> words;
  for (const std::string& word : command.argv) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  const auto start = bench::clock::now();
  const pid_t child = ::fork();
  if (child == 0) {
    ::execvp(words[0], words.data());
    std::_Exit(127);
  }
  int status = 0;
  if (child < 0 || ::waitpid(child, &status, 0) != child || status != 0) {
    throw std::runtime_error("the bare launcher has failed");
  }
  return bench::nanoseconds_since(start);
}

/// Until all ranks are ready, and until they and the launcher have left.
std::pair<double, double> run_launch(int ranks) {
  asio::io_context io;
  double ready = 0;
  const auto start = bench::clock::now();
  auto work = [&]() -> asio::awaitable<void> {
    const workers all = co_await cohort::cluster::launch(io, launch_options{}.ranks(ranks));
    ready = bench::nanoseconds_since(start);
    co_await all.shutdown();
  };
  asio::co_spawn(io, work(), [](std::exception_ptr failed) {
    if (failed) std::rethrow_exception(failed);
  });
  io.run();
  return {ready, bench::nanoseconds_since(start)};
}

void measure_launch(int ranks, int runs) {
  asio::io_context io;
  cohort::cluster::launch_command command;
  asio::co_spawn(
      io, cohort::cluster::prepare_launch(launch_options{}.ranks(ranks).arguments({"--bare"})),
      [&](std::exception_ptr failed, cohort::cluster::launch_command made) {
        if (failed) std::rethrow_exception(failed);
        command = std::move(made);
      });
  io.run();
  times bare;
  times ready;
  times whole;
  for (int i = -1; i < runs; ++i) {
    const double first = i % 2 == 0 ? run_bare(command) : 0;
    const auto launched = run_launch(ranks);
    const double time = i % 2 == 0 ? first : run_bare(command);
    if (i < 0) continue;
    bare.push_back(time);
    ready.push_back(launched.first);
    whole.push_back(launched.second);
  }
  std::printf("%d ranks: the bare launcher, MPI_Init, MPI_Finalize: median %s; %d runs\n", ranks,
              text_of(bench::median(bare)).c_str(), runs);
  bench::print_row("  launch, until all are ready", bench::median(bench::ratios(ready, bare)), "x");
  bench::print_row("  launch, shutdown, end of the launcher",
                   bench::median(bench::ratios(whole, bare)), "x");
  std::printf("      median %s and %s\n\n", text_of(bench::median(ready)).c_str(),
              text_of(bench::median(whole)).c_str());
}

/// Until a launch is told that its launcher has ended at once.
void measure_failure(int runs) {
  ::unsetenv("COHORT_MPIEXEC");  // it would replace the command
  times all;
  for (int i = 0; i < runs; ++i) {
    asio::io_context io;
    bool told = false;
    const auto start = bench::clock::now();
    asio::co_spawn(io, cohort::cluster::launch(io, launch_options{}.ranks(2).command({"false"})),
                   [&](std::exception_ptr failed, workers) {
                     told = failed != nullptr;
                     all.push_back(bench::nanoseconds_since(start));
                   });
    io.run();
    if (!told) throw std::runtime_error("a launcher that fails was not reported");
  }
  std::printf("a launcher that fails (false): the error after %s, p90 %s; %d runs\n",
              text_of(bench::median(all)).c_str(), text_of(bench::percentile(all, 0.9)).c_str(),
              runs);
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc > 1 && std::string_view(argv[1]) == "--bare") {
    MPI_Init(&argc, &argv);
    MPI_Finalize();
    return EXIT_SUCCESS;
  }
  if (cohort::cluster::serve(argc, argv)) return EXIT_SUCCESS;
  int chunks = 200;
  int launches = 10;
  std::vector<std::size_t> large{1, 64};
  CLI::App app("What a remote call costs over plain Asio; starts its worker itself");
  app.add_option("--chunks", chunks, "chunks of empty calls; fewer for large ones");
  app.add_option("--launches", launches, "launches of each kind; 0: none");
  app.add_option("--large", large, "sizes of large messages in MiB")->expected(0, -1);
  int seconds = 5;
  app.add_option("--idle", seconds, "seconds in which nothing happens; 0: none");
  bool adopted = false;
  app.add_flag("--adopted", adopted, "this is one of two ranks under mpirun: calls over MPI");
  bool only_mpi = false;
  app.add_flag("--only-mpi", only_mpi, "with --adopted: not over TCP as well");
  CLI11_PARSE(app, argc, argv);
  if (adopted) {
    const cohort::environment mpi(argc, argv);
    asio::io_context io;
    const cohort::communicator world(io);
    if (world.size() != 2) throw std::runtime_error("--adopted needs two ranks");
    if (world.rank() != 0) {
      cohort::cluster::serve(world);
      if (!only_mpi) cohort::cluster::serve(world);
      return EXIT_SUCCESS;
    }
    bench::print_machine(2);
    asio::co_spawn(io, measure_adopted(world, chunks, seconds, !only_mpi), cohort::rethrow);
    io.run();
    return EXIT_SUCCESS;
  }

  bench::print_machine(1);
  asio::io_context io;
  asio::co_spawn(io, measure_calls(io, chunks, seconds, large), [](std::exception_ptr failed) {
    if (failed) std::rethrow_exception(failed);
  });
  io.run();
  if (launches == 0) return EXIT_SUCCESS;
  measure_launch(2, launches);
  measure_launch(4, launches);
  measure_failure(launches);
} catch (const std::exception& failed) {
  std::cerr << failed.what() << std::endl;
  return EXIT_FAILURE;
}
