// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// Two coordinators take turns, step by step: one tunes itself, the other keeps what both began
// with.

#include "competitors.hpp"
#include "support/report.hpp"
#include "support/statistics.hpp"

#include <cohort/collectives/barrier.hpp>
#include <cohort/coordinator/options_text.hpp>

#include <cstdio>
#include <numeric>

namespace {

struct times {
  std::vector<double> plain;
  std::vector<double> tuned;

  [[nodiscard]] double total_ratio() const {
    return std::accumulate(tuned.begin(), tuned.end(), 0.0) /
           std::accumulate(plain.begin(), plain.end(), 0.0);
  }
  [[nodiscard]] times between(std::size_t first, std::size_t last) const {
    const auto part = [&](const std::vector<double>& all) {
      return std::vector<double>(all.begin() + static_cast<std::ptrdiff_t>(first),
                                 all.begin() + static_cast<std::ptrdiff_t>(last));
    };
    return {part(plain), part(tuned)};
  }
};

void report(const times& all, const cohort::coordinator& tuned) {
  const std::size_t steps = all.plain.size();
  bench::print_row("  all steps together", all.total_ratio(), "x untuned", 1.02);
  for (std::size_t part = 0; part < 4; ++part) {
    const times some = all.between(part * steps / 4, (part + 1) * steps / 4);
    const auto ratio = bench::ratios(some.tuned, some.plain);
    std::printf(
        "      steps %zu to %zu: together %.3f, step by step %.3f, half of them %.2f to %.2f\n",
        part * steps / 4, (part + 1) * steps / 4, some.total_ratio(), bench::median(ratio),
        bench::percentile(ratio, 0.25), bench::percentile(ratio, 0.75));
  }
  std::printf(
      "      untuned %.2f ms, a tenth below %.2f, a tenth above %.2f, 1 of 100 above %.2f\n",
      bench::median(all.plain) / 1e6, bench::percentile(all.plain, 0.1) / 1e6,
      bench::percentile(all.plain, 0.9) / 1e6, bench::percentile(all.plain, 0.99) / 1e6);
  const auto done = tuned.stats().tuning;
  std::printf("      %llu trials, %llu changes kept;", static_cast<unsigned long long>(done.trials),
              static_cast<unsigned long long>(done.kept));
  const cohort::coordinator_options now = tuned.options();
  for (const auto& row : cohort::coordination::tuned_options()) {
    std::printf(" %.*s=%llu", static_cast<int>(row.name.size()), row.name.data(),
                static_cast<unsigned long long>(row.get(now)));
  }
  std::printf("\n");
}

}  // namespace

asio::awaitable<void> contest_of_tuning(cohort::communicator world, model& gradients,
                                        cohort::coordinator_options begin,
                                        cohort::coordinator_options other, int steps) {
  cohort::coordinator plain(world, other);
  begin.tune = true;
  cohort::coordinator tuned(world, begin);
  co_await plain.barrier();
  co_await tuned.barrier();
  times all;
  for (int step = -5; step < steps; ++step) {  // some to warm up
    for (int turn = 0; turn < 2; ++turn) {
      const bool tunes = (turn + step) % 2 != 0;
      MPI_Barrier(world.native());
      const double time = co_await with_cohort::futures(tunes ? tuned : plain, gradients);
      if (step >= 0) (tunes ? all.tuned : all.plain).push_back(time);
    }
  }
  if (world.rank() == 0) report(all, tuned);
  co_await tuned.shutdown();
  co_await plain.shutdown();
}
