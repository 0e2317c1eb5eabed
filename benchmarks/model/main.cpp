// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// How long do the gradients of a real model take? The 161 of ResNet-50, 102 MB, each under its
// name, submitted in the order of back-propagation, against hand-written policies. Competitors take
// turns within one process; the order rotates. Ratios are taken turn by turn and their medians
// reported.

#include "competitors.hpp"
#include "support/core_distance.hpp"
#include "support/report.hpp"
#include "support/resnet50.hpp"
#include "support/statistics.hpp"

#include <cohort/collectives/barrier.hpp>
#include <cohort/core/log.hpp>
#include <cohort/mpi/environment.hpp>
#include <cohort/progress/context.hpp>

#include <CLI/CLI.hpp>

#include <functional>

namespace {

struct competitor {
  std::string name;
  std::function<asio::awaitable<double>()> run;  ///< nanoseconds
  double target = 0;                             ///< of the ratio to the best of those without one
};

asio::awaitable<double> ready(double value) { co_return value; }

void report(const std::vector<competitor>& all, const std::vector<std::vector<double>>& times,
            const std::vector<bool>& far) {
  std::size_t best = 0;
  for (std::size_t who = 0; who < all.size(); ++who) {
    if (all[who].target == 0 && bench::median(times[who]) < bench::median(times[best])) best = who;
  }
  std::printf("%zu turns, %zu with far cores; the best policy by hand is '%s': %.2f ms\n",
              far.size(), bench::only(times[0], far, true).size(), all[best].name.c_str(),
              bench::median(times[best]) / 1e6);
  for (std::size_t who = 0; who < all.size(); ++who) {
    const auto ratio = bench::ratios(times[who], times[best]);
    bench::print_row("  " + all[who].name, bench::median(ratio), "x best", all[who].target);
    std::printf("      %.2f ms, half of the ratios %.2f to %.2f\n", bench::median(times[who]) / 1e6,
                bench::percentile(ratio, 0.25), bench::percentile(ratio, 0.75));
  }
}

/// Does each sum everything once?
asio::awaitable<void> check(const std::vector<competitor>& all, model& gradients, int ranks) {
  const auto fill = [&](float with) {
    for (gradient& one : gradients) std::fill(one.values.begin(), one.values.end(), with);
  };
  fill(1);
  for (const competitor& each : all) {
    co_await each.run();
    for (gradient& one : gradients) {
      for (float& value : one.values) {
        if (value != static_cast<float>(ranks)) throw std::runtime_error(each.name);
        value = 1;
      }
    }
  }
  fill(0);
}

/// Each takes its turn, `turns` times; the order rotates. Rank 0 reports.
asio::awaitable<void> contest(cohort::communicator world, bench::core_distance& distance, int turns,
                              const std::vector<competitor>& all) {
  std::vector<std::vector<double>> times(all.size());
  std::vector<bool> far;
  for (int turn = -1; turn < turns; ++turn) {  // one to warm up
    co_await cohort::barrier(world);
    const double round_trip = distance.round_trip();
    if (turn >= 0) far.push_back(round_trip > 200);
    for (std::size_t i = 0; i < all.size(); ++i) {
      const std::size_t who = (i + far.size()) % all.size();
      co_await cohort::barrier(world);
      MPI_Barrier(world.native());
      const double time = co_await all[who].run();
      if (turn >= 0) times[who].push_back(time);
    }
  }
  if (world.rank() == 0) report(all, times, far);
}

asio::awaitable<void> measure(cohort::communicator world, bench::core_distance& distance,
                              int turns) {
  model gradients;
  for (const bench::tensor_shape& one : bench::resnet50())
    gradients.push_back({one.name, std::vector<float>(one.count, 1.0F)});
  std::size_t values = 0;
  for (const gradient& each : gradients) values += each.values.size();
  if (gradients.size() != 161 || values != 25'557'032) throw std::logic_error("not ResNet-50");
  cohort::coordinator coord(world);
  co_await coord.barrier();

  const MPI_Comm comm = world.native();
  constexpr std::size_t kib = 1024;
  const auto by_hand = [&](raw_mpi::policy by) {
    return [comm, by, &gradients] { return ready(raw_mpi::run(comm, gradients, by)); };
  };
  std::vector<competitor> all;
  all.push_back({"161 MPI_Iallreduce, MPI_Waitall",
                 [&] { return ready(raw_mpi::all_at_once(comm, gradients)); }});
  for (const std::size_t in_flight : {2, 4}) {
    const std::string tail = ", " + std::to_string(in_flight) + " in flight";
    all.push_back({"fuse below 256 KiB, rest whole" + tail, by_hand({256 * kib, 0, in_flight})});
    all.push_back(
        {"fuse below 256 KiB, rest in 1 MiB" + tail, by_hand({256 * kib, 1024 * kib, in_flight})});
  }
  all.push_back(
      {"named, callbacks", [&] { return with_cohort::callbacks(coord, gradients); }, 0.62});
  all.push_back({"named, futures", [&] { return with_cohort::futures(coord, gradients); }, 0.62});
  all.push_back({"161 MPI_Allreduce", by_hand({0, 0, 0})});
  all.push_back({"fuse below 256 KiB, rest whole, blocking", by_hand({256 * kib, 0, 0})});
  all.push_back(
      {"fuse below 256 KiB, rest in 1 MiB, blocking", by_hand({256 * kib, 1024 * kib, 0})});

  co_await check(all, gradients, world.size());
  co_await contest(world, distance, turns, all);
  co_await coord.shutdown();
}

/// `shrink`: the tensors are smaller by this factor.
asio::awaitable<void> measure_tuning(cohort::communicator world, int steps, std::size_t shrink,
                                     std::string options, std::string against) {
  model gradients;
  for (const bench::tensor_shape& one : bench::resnet50())
    gradients.push_back({one.name, std::vector<float>(one.count / shrink + 1, 1.0F)});
  cohort::log::set_threshold(cohort::log::level::info);
  const cohort::coordinator_options begin = cohort::parse_options(options);
  const cohort::coordinator_options other = cohort::parse_options(against);
  co_await contest_of_tuning(world, gradients, begin, other, steps);
}

}  // namespace

int main(int argc, char** argv) {
  int turns = 30;
  CLI::App app("The gradients of ResNet-50 by name; start it with mpirun -np 2, or more");
  app.add_option("--turns", turns, "turns of each competitor");
  int steps = 0;
  std::size_t shrink = 1;
  std::string options;
  app.add_option("--steps", steps, "instead: steps of a coordinator that tunes itself");
  app.add_option("--shrink", shrink, "tensors of that are so much smaller")
      ->check(CLI::PositiveNumber);
  app.add_option("--begin", options, "what it begins with: \"fusion_buffer=65536 slots=1\"");
  std::string against;
  app.add_option("--against", against, "and what the other has, where it is not the same");
  CLI11_PARSE(app, argc, argv);

  cohort::environment env(argc, argv);
  asio::io_context io;
  cohort::communicator world(io);
  if (world.rank() == 0) bench::print_machine(world.size());
  bench::core_distance distance(cohort::mpi::comm_ref(world.native()));
  if (steps > 0) {
    asio::co_spawn(
        io, measure_tuning(world, steps, shrink, options, against.empty() ? options : against),
        cohort::rethrow);
  } else {
    asio::co_spawn(io, measure(world, distance, turns), cohort::rethrow);
  }
  io.run();
}
