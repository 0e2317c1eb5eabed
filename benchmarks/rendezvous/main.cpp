// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// What does a rendezvous cost? 8 B there and back under two keys over a raw ping-pong; a match on
// one rank over a map that one writes by hand; 64 MiB over raw messages. Competitors take turns
// within one process, in chunks; the order rotates. Ratios are taken chunk by chunk and their
// medians reported.

#include "competitors.hpp"
#include "support/core_distance.hpp"
#include "support/report.hpp"
#include "support/statistics.hpp"

#include <cohort/collectives/barrier.hpp>
#include <cohort/mpi/environment.hpp>
#include <cohort/progress/context.hpp>
#include <cohort/shm.hpp>

#include <CLI/CLI.hpp>

#include <functional>

namespace {

struct competitor {
  const char* name;
  std::function<asio::awaitable<double>(int)> chunk;
  double target;  ///< of the ratio to the first competitor; 0: only reported
};

asio::awaitable<double> ready(double value) { co_return value; }

asio::awaitable<void> race(cohort::communicator world, bench::core_distance& distance,
                           std::string title, std::vector<competitor> competitors, int rounds,
                           int chunks) {
  std::vector<std::vector<double>> times(competitors.size());
  std::vector<bool> far;
  for (int chunk = -2; chunk < chunks; ++chunk) {  // two to warm up
    co_await cohort::barrier(world);  // the probe blocks, and a last value may not have left yet
    const double round_trip = distance.round_trip();
    if (chunk >= 0) far.push_back(round_trip > 200);
    for (std::size_t turn = 0; turn < competitors.size(); ++turn) {
      const std::size_t who = (turn + far.size()) % competitors.size();
      co_await cohort::barrier(world);
      const double time = co_await competitors[who].chunk(rounds);
      if (chunk >= 0) times[who].push_back(time);
    }
  }
  if (world.rank() != 0) co_return;
  std::printf("%s: %s, median %.0f ns; %zu chunks, %zu with far cores\n", title.c_str(),
              competitors[0].name, bench::median(times[0]), far.size(),
              bench::only(times[0], far, true).size());
  for (std::size_t who = 1; who < competitors.size(); ++who) {
    const auto ratio = bench::ratios(times[who], times[0]);
    bench::print_row(std::string("  ") + competitors[who].name, bench::median(ratio), "x",
                     competitors[who].target);
    bench::print_spread(times[who], ratio, far);
  }
  std::printf("\n");
}

/// 8 B there and back, in a rendezvous that pushes or one that does not.
asio::awaitable<void> measure_trips(cohort::communicator world, bench::core_distance& distance,
                                    std::size_t push_limit, int chunks) {
  const int rank = world.rank();
  cohort::rendezvous exchange(world, cohort::rendezvous_options().push_limit(push_limit));
  auto step = exchange.step(1);
  co_await with_cohort::round_trip(step, rank, 1);  // after it both are open
  std::vector<double> small(1, 1.0);
  std::vector<competitor> trips;
  trips.push_back({"MPI_Send, MPI_Recv",
                   [&](int n) { return ready(raw_mpi::ping_pong(world.native(), small, n)); }, 0});
  trips.push_back({push_limit != 0 ? "two keys, pushed" : "two keys, pulled",
                   [&](int n) { return with_cohort::round_trip(step, rank, n); }, 4});
  trips.push_back({push_limit != 0 ? "a receive of what has arrived" : "a receive of what is there",
                   [&](int n) { return with_cohort::arrived(world, step, n); }, 0});
  co_await race(world, distance, "round trip of 8 B", std::move(trips), 500, chunks);
  co_await step.drained();
  co_await exchange.close();
}

asio::awaitable<void> measure(cohort::communicator world, bench::core_distance& distance,
                              int chunks, bool small_only) {
  const int rank = world.rank();
  co_await measure_trips(world, distance, 4096, chunks);
  co_await measure_trips(world, distance, 0, chunks);
  if (small_only) co_return;

  cohort::rendezvous exchange(world);
  auto step = exchange.step(1);
  co_await with_cohort::round_trip(step, rank, 1);

  std::vector<competitor> matches;
  matches.push_back(
      {"map, mutex, posted callback", [](int n) { return hand_written::match(n); }, 0});
  matches.push_back(
      {"recv with a callback, send", [&](int n) { return with_cohort::match(step, rank, n); }, 2});
  matches.push_back(
      {"send, co_await recv", [&](int n) { return with_cohort::await_match(step, rank, n); }, 0});
  co_await race(world, distance, "match on one rank", std::move(matches), 500, chunks);

  std::vector<double> large((64U << 20U) / sizeof(double), 1.0);
  std::vector<double> into(large.size());
  std::vector<double> moved(rank == 0 ? large.size() : 0, 1.0);
  const auto shared = std::make_shared<const std::vector<double>>(large);
  std::vector<competitor> bandwidth;
  bandwidth.push_back({"MPI_Send, MPI_Recv",
                       [&](int n) { return ready(raw_mpi::ping_pong(world.native(), large, n)); },
                       0});
  bandwidth.push_back(
      {"shared value, recv_into",
       [&](int n) { return with_cohort::round_trip_in_place(step, rank, shared, into, n); },
       1 / 0.9});
  bandwidth.push_back(
      {"vectors moved in, new ones out",
       [&](int n) { return with_cohort::round_trip_of_vectors(step, rank, moved, n); }, 0});
  co_await race(world, distance, "round trip of 64 MiB", std::move(bandwidth), 2,
                std::max(chunks / 10, 1));

  co_await exchange.close();
}

}  // namespace

int main(int argc, char** argv) {
  int chunks = 200;
  CLI::App app("What a rendezvous costs over raw MPI; start it with mpirun -np 2");
  app.add_option("--chunks", chunks, "chunks of each competitor; a tenth for 64 MiB");
  bool small_only = false;
  app.add_flag("--small-only", small_only, "only the round trips of 8 B");
  CLI11_PARSE(app, argc, argv);

  cohort::environment env(argc, argv);
  asio::io_context io;
  cohort::communicator world(io);
  if (world.size() != 2) {
    if (world.rank() == 0) std::fprintf(stderr, "start it with 2 ranks\n");
    return EXIT_FAILURE;
  }
  if (world.rank() == 0) bench::print_machine(world.size());
  bench::core_distance distance(cohort::mpi::comm_ref(world.native()));
  asio::co_spawn(io, measure(world, distance, chunks, small_only), cohort::rethrow);
  io.run();
}
