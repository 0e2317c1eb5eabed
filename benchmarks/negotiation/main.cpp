// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// What does a name cost? An all_reduce of 8 B that every rank submits by name, one after the other,
// over raw MPI. Competitors take turns within one process, in chunks; the order rotates. Ratios are
// taken chunk by chunk and their medians reported.

#include "competitors.hpp"
#include "support/core_distance.hpp"
#include "support/report.hpp"
#include "support/statistics.hpp"

#include <cohort/mpi/environment.hpp>
#include <cohort/progress/context.hpp>

#include <CLI/CLI.hpp>

#include <functional>

namespace {

struct competitor {
  const char* name;
  std::function<asio::awaitable<double>(double&, int)> chunk;
  double target;         ///< of the ratio to `base`; 0: only reported
  std::size_t base = 0;  ///< another competitor
};

asio::awaitable<double> ready(double value) { co_return value; }

/// `unit` is of ratios to the first competitor.
void report(const std::vector<competitor>& competitors,
            const std::vector<std::vector<double>>& times, const std::vector<bool>& far,
            const char* unit) {
  std::printf("all_reduce 8 B: %s, median %.0f ns; %zu chunks, %zu with far cores\n",
              competitors[0].name, bench::median(times[0]), far.size(),
              bench::only(times[0], far, true).size());
  for (std::size_t who = 1; who < competitors.size(); ++who) {
    const std::size_t base = competitors[who].base;
    const auto ratio = bench::ratios(times[who], times[base]);
    bench::print_row(std::string("  ") + competitors[who].name, bench::median(ratio),
                     base == 0 ? unit : "x direct", competitors[who].target);
    bench::print_spread(times[who], ratio, far);
  }
}

struct shape {
  int chunks;
  int rounds;
};

/// Lets them take turns, and reports.
asio::awaitable<void> compare(cohort::communicator world, bench::core_distance& distance,
                              const std::vector<competitor>& competitors, const char* unit,
                              shape of) {
  double value = 1;
  std::vector<std::vector<double>> times(competitors.size());
  std::vector<bool> far;
  for (int chunk = -2; chunk < of.chunks; ++chunk) {  // two to warm up
    const double round_trip = distance.round_trip();
    if (chunk >= 0) far.push_back(round_trip > 200);
    for (std::size_t turn = 0; turn < competitors.size(); ++turn) {
      const std::size_t who = (turn + far.size()) % competitors.size();
      MPI_Barrier(world.native());
      const double time = co_await competitors[who].chunk(value, of.rounds);
      if (chunk >= 0) times[who].push_back(time);
    }
  }
  if (world.rank() == 0) report(competitors, times, far, unit);
}

/// On hosts a set has an order of its own, so it does not wait for what another set waits for.
asio::awaitable<void> measure_sets(cohort::communicator world, cohort::coordinator coord,
                                   bench::core_distance& distance, shape of) {
  const auto all = cohort::ranks::all(world.size());
  const auto set = co_await coord.add_process_set(all);
  const auto other = co_await coord.add_process_set(all);
  std::vector<competitor> competitors;
  competitors.push_back(
      {"named, in a process set",
       [set](double& value, int count) { return with_cohort::named(set, value, count); }, 0});
  competitors.push_back({"the same, while another set waits for a rank",
                         [set, other](double& value, int count) {
                           return with_cohort::beside_waiting(set, other, value, count);
                         },
                         0});
  co_await compare(world, distance, competitors, "x that", of);
  co_await set.remove();
  co_await other.remove();
}

asio::awaitable<void> measure(cohort::communicator world, bench::core_distance& distance,
                              shape of) {
  const cohort::coordinator coord(world);
  co_await coord.barrier();
  double grouped = 1;
  auto members = cohort::bundle("group").add("value", grouped);
  const auto group = co_await coord.make_persistent(std::move(members), cohort::op::max);
  const auto raw = [&](double (*function)(MPI_Comm, double&, int)) {
    return [function, comm = world.native()](double& value, int count) {
      return ready(function(comm, value, count));
    };
  };
  const auto by = [](auto* function, auto where) {
    return [=](double& value, int count) { return function(where, value, count); };
  };
  std::vector<competitor> competitors;
  competitors.push_back({"MPI_Iallreduce + MPI_Wait", raw(raw_mpi::all_reduce), 0});
  competitors.push_back({"direct, co_await", by(with_cohort::direct, world), 0});
  competitors.push_back({"named, co_await", by(with_cohort::named, coord), 1.3});
  competitors.push_back({"named, as_future", by(with_cohort::named_future, coord), 0});
  competitors.push_back({"without a name, co_await", by(with_cohort::unnamed, coord), 0});
  competitors.push_back({"a new name each time", by(with_cohort::new_names, coord), 0});
  competitors.push_back(
      {"start of a persistent group", by(with_cohort::persistent, group), 1.1, 1});
  competitors.push_back({"MPI_Allreduce (blocking)", raw(raw_mpi::blocking_all_reduce), 0});

  co_await compare(world, distance, competitors, "x raw", of);
  double value = 1;
  const auto before = coord.stats();
  co_await with_cohort::named(coord, value, of.rounds);
  const auto after = coord.stats();
  if (world.rank() == 0) {
    const auto each = [&](std::uint64_t count) { return static_cast<double>(count) / of.rounds; };
    std::printf("\nrank 0 sends, for each operation with a known name\n");
    bench::print_row("  control messages", each(after.messages_sent - before.messages_sent), "");
    bench::print_row("  bytes in them", each(after.bytes_sent - before.bytes_sent), "B");
    std::printf("\n");
  }
  co_await group.remove();
  co_await measure_sets(world, coord, distance, of);
  co_await coord.shutdown();
}

}  // namespace

int main(int argc, char** argv) {
  int chunks = 200;
  int rounds = 500;
  CLI::App app("What a name costs over raw MPI; start it with mpirun -np 2, or more");
  app.add_option("--chunks", chunks, "chunks of each competitor");
  app.add_option("--rounds", rounds, "operations of a chunk");
  CLI11_PARSE(app, argc, argv);

  cohort::environment env(argc, argv);
  asio::io_context io;
  asio::steady_timer alive(io, std::chrono::hours(1));  // makes every turn of the loop dearer
  cohort::communicator world(io);
  if (world.rank() == 0) bench::print_machine(world.size());
  bench::core_distance distance(cohort::mpi::comm_ref(world.native()));
  asio::co_spawn(io, measure(world, distance, {chunks, rounds}), cohort::rethrow);
  io.run();
}
