// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// Does a copy take the same wherever its buffers lie? std::memcpy and cohort's copy by turns, for
// all distances of target and source within some lines of a page; the slowest distance of each over
// what std::memcpy takes at most distances. On one rank, without MPI.

#include "support/report.hpp"
#include "support/statistics.hpp"

#include <cohort/core/copy.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>

namespace {

constexpr std::size_t page = 4096;

struct releases {
  void operator()(std::byte* what) const noexcept { std::free(what); }
};
using pages = std::unique_ptr<std::byte, releases>;

pages make_pages(std::size_t bytes) {
  pages made(static_cast<std::byte*>(std::aligned_alloc(page, bytes)));
  if (!made) throw std::bad_alloc();
  std::memset(made.get(), 1, bytes);
  return made;
}

/// Nanoseconds; the best of some.
template <class Copy>
double time_of(Copy copy, std::byte* to, const std::byte* from, std::size_t bytes) {
  const std::size_t repeated = std::max<std::size_t>(1, (std::size_t{1} << 18U) / bytes);
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 7; ++i) {
    const auto start = bench::clock::now();
    for (std::size_t k = 0; k < repeated; ++k) {
      copy(to, from, bytes);
      __asm__ volatile("" : : "r"(to) : "memory");
    }
    best = std::min(best, bench::nanoseconds_since(start));
  }
  return best / static_cast<double>(repeated);
}

void measure(std::size_t bytes, std::byte* to, const std::byte* from) {
  std::vector<double> theirs;
  std::vector<double> ours;
  for (std::size_t distance = 0; distance < 128; ++distance) {
    theirs.push_back(time_of(&std::memcpy, to + distance, from, bytes));
    ours.push_back(time_of(&cohort::copy_bytes, to + distance, from, bytes));
  }
  const double usual = bench::median(theirs);
  std::printf("%zu bytes: std::memcpy, median of the distances 0 to 127: %.0f ns, %.1f GB/s\n",
              bytes, usual, static_cast<double>(bytes) / usual);
  const auto most = [](const std::vector<double>& all) {
    return *std::max_element(all.begin(), all.end());
  };
  bench::print_row("  std::memcpy at the slowest", most(theirs) / usual, "x");
  bench::print_row("  cohort::copy_bytes at the slowest", most(ours) / usual, "x", 2);
  bench::print_row("  cohort::copy_bytes, median", bench::median(ours) / usual, "x", 1.1);
}

}  // namespace

int main() {
  constexpr std::size_t most = std::size_t{1} << 20U;
  const pages to = make_pages(most + 2 * page);
  const pages from = make_pages(most + 2 * page);
  std::printf("cpu      %s\n\n", bench::fact("/proc/cpuinfo", "model name").c_str());
  for (const std::size_t bytes : {1024U, 3000U, 4096U, 16'384U, 65'536U, 262'144U, 1'048'576U}) {
    measure(bytes, to.get(), from.get());
  }
}
