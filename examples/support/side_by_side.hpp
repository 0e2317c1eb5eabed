// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Several ways to compute the same, by turns in one process, and how long they take.

#include <mpi.h>
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <functional>
#include <utility>
#include <vector>

namespace support {

struct way {
  const char* name;
  std::function<void(std::vector<double>&)> run;  ///< fills in the results
  std::vector<double> results, seconds = {};
};

inline double median(std::vector<double> of) {
  const auto middle = of.begin() + std::ptrdiff_t(of.size() / 2);
  std::nth_element(of.begin(), middle, of.end());
  return *middle;
}

/// Runs each once without counting it, then so many rounds, in each of which another is the first.
inline void run_by_turns(std::vector<way>& ways, int rounds) {
  for (std::size_t round = 0; round <= std::size_t(rounds); ++round) {
    for (std::size_t turn = 0; turn < ways.size(); ++turn) {
      way& w = ways[(round + turn) % ways.size()];
      MPI_Barrier(MPI_COMM_WORLD);
      double seconds = -MPI_Wtime();
      w.run(w.results);
      seconds += MPI_Wtime();
      MPI_Allreduce(MPI_IN_PLACE, &seconds, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
      if (round > 0) w.seconds.push_back(seconds);
    }
  }
}

/// The last result of each, the median of its times, and that of their ratios to the first way's of
/// the same round.
inline void print_side_by_side(const std::vector<way>& ways) {
  std::printf("%-12s %-24s %10s %15s\n", "", "last result", "ms", "of the first");
  for (const way& w : ways) {
    std::vector<double> ratios;
    for (std::size_t n = 0; n < w.seconds.size(); ++n)
      ratios.push_back(w.seconds[n] / ways[0].seconds[n]);
    std::printf("%-12s %-24.17g %10.3f %15.3f\n", w.name, w.results.back(), 1e3 * median(w.seconds),
                median(ratios));
  }
}

/// The largest difference of two ways' results, as a part of the first result.
inline double apart(const way& a, const way& b) {
  double most = 0;
  for (std::size_t n = 0; n < a.results.size(); ++n)
    most = std::max(most, std::abs(a.results[n] - b.results[n]));
  return most / std::abs(a.results[0]);
}

}  // namespace support
