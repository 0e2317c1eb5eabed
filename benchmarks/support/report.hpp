// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// What a benchmark prints: the facts of the machine, and rows with their targets.

#include <cohort/core/asio.hpp>
#include <cohort/mpi/environment.hpp>
#include <support/statistics.hpp>

#include <cstdio>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

namespace bench {

/// First value of `key` in a file of "key : value" lines, such as /proc/cpuinfo.
[[nodiscard]] inline std::string fact(const char* file, const std::string& key) {
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    if (line.compare(0, key.size(), key) == 0) {
      const auto colon = line.find(':');
      return colon == std::string::npos ? line
                                        : line.substr(line.find_first_not_of(" ", colon + 1));
    }
  }
  return "unknown";
}

/// Everything that a reader needs to compare the figures with others.
inline void print_machine(int ranks) {
  char library[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  MPI_Get_library_version(library, &length);
  constexpr const char* levels[] = {"SINGLE", "FUNNELED", "SERIALIZED", "MULTIPLE"};
  std::string kernel;
  std::getline(std::ifstream("/proc/sys/kernel/osrelease"), kernel);
  std::printf("cpu      %s, %u cores\n", fact("/proc/cpuinfo", "model name").c_str(),
              std::thread::hardware_concurrency());
  std::printf("kernel   %s\n", kernel.c_str());
  std::printf("mpi      %.*s\n", static_cast<int>(std::string(library).find_first_of(",\n")),
              library);
  std::printf("level    %s, %d ranks\n", levels[static_cast<int>(cohort::mpi::level())], ranks);
  std::printf("asio     %d.%d.%d\n", ASIO_VERSION / 100000, ASIO_VERSION / 100 % 1000,
              ASIO_VERSION % 100);
#if defined(__OPTIMIZE__)
  std::printf("compiler %s, optimised\n\n", __VERSION__);
#else
  std::printf("compiler %s, NOT optimised: the figures mean nothing\n\n", __VERSION__);
#endif
}

/// A figure beside its target; without a target it is only reported.
inline void print_row(const std::string& what, double value, const char* unit, double target = 0) {
  if (target == 0) {
    std::printf("%-58s %9.3f %s\n", what.c_str(), value, unit);
  } else {
    std::printf("%-58s %9.3f %-6s target %g: %s\n", what.c_str(), value, unit, target,
                value <= target ? "met" : "MISSED");
  }
  std::fflush(stdout);
}

/// Beneath a row: the median time, that of the slowest in a hundred, between what half of the
/// ratios lie, and which ratio it is where the ranks had near cores and where they had far ones, if
/// both occurred.
inline void print_spread(const std::vector<double>& times, const std::vector<double>& ratio,
                         const std::vector<bool>& far, int digits = 2) {
  std::printf("      %.0f ns, p99 %.0f ns, half of the ratios %.*f to %.*f", median(times),
              percentile(times, 0.99), digits, percentile(ratio, 0.25), digits,
              percentile(ratio, 0.75));
  const auto apart = only(ratio, far, true);
  const auto close = only(ratio, far, false);
  if (!apart.empty() && !close.empty()) {
    std::printf("; near %.*f, far %.*f", digits, median(close), digits, median(apart));
  }
  std::printf("\n");
}

}  // namespace bench
