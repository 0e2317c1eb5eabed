// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The dependence patterns of Task Bench (Slaughter et al., "Task Bench: A Parameterized
/// Benchmark for Evaluating Parallel Runtime Performance", SC20): who reads whom in a graph of
/// steps, each with a row of points.

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <vector>

namespace support {

enum class dependence {
  trivial,
  no_comm,
  stencil_1d,
  stencil_1d_periodic,
  dom,  ///< a sweep: the row grows, then shrinks, and each point reads its own and its left one
  tree,
  fft,
  all_to_all,
  nearest,
  spread,
  random_nearest,
};

inline constexpr std::array dependence_names{
    "trivial",    "no_comm", "stencil_1d", "stencil_1d_periodic", "dom", "tree", "fft",
    "all_to_all", "nearest", "spread",     "random_nearest"};

struct point_range {
  long first = 0, end = 0;
  bool has(long point) const { return first <= point && point < end; }
};

struct dependence_pattern {
  dependence kind = dependence::stencil_1d;
  long width = 4, steps = 100;
  long radix = 3;         ///< of nearest, spread and random_nearest: so many are read at most
  long period = 3;        ///< spread and random_nearest repeat after so many steps
  double fraction = 0.5;  ///< of those in reach that random_nearest reads

  /// The points of a step; none before the first.
  point_range points(long step) const {
    if (step < 0) return {};
    if (kind == dependence::tree) return {0, std::min(width, 1L << std::min(step, 40L))};
    if (kind != dependence::dom) return {0, width};
    const long first = std::max(0L, step + width - steps);
    return {first, first + std::min({width, step + 1, steps - step})};
  }

  long tasks() const {
    long sum = 0;
    for (long step = 0; step < steps; ++step) sum += points(step).end - points(step).first;
    return sum;
  }

  /// Who reads whom is the same after so many steps, but for points that a step does not have.
  long repeats() const {
    if (kind == dependence::fft) return levels();
    return kind == dependence::spread || kind == dependence::random_nearest ? period : 1;
  }

  /// Which points of the step before this one reads, in rising order.
  void reads(long step, long point, std::vector<long>& into) const {
    into.clear();
    const auto range = [&](long first, long last) {
      for (long i = std::max(0L, first); i <= std::min(last, width - 1); ++i) into.push_back(i);
    };
    switch (kind) {
      case dependence::trivial:
        break;
      case dependence::no_comm:
        into = {point};
        break;
      case dependence::stencil_1d:
        range(point - 1, point + 1);
        break;
      case dependence::stencil_1d_periodic:
        into = {(point + width - 1) % width, point, (point + 1) % width};
        break;
      case dependence::dom:
        range(point - 1, point);
        break;
      case dependence::tree:
        into = {point / 2};
        break;
      case dependence::fft: {
        const long far = 1L << ((step + levels() - 1) % levels());
        if (point >= far) into.push_back(point - far);
        into.push_back(point);
        if (point + far < width) into.push_back(point + far);
        break;
      }
      case dependence::all_to_all:
        range(0, width - 1);
        break;
      case dependence::nearest:
        range(point - radix / 2, point + (radix - 1) / 2);
        break;
      case dependence::spread:
        for (long i = 0; i < radix; ++i) {
          into.push_back((point + i * width / radix + (i > 0 ? step % period : 0)) % width);
        }
        break;
      case dependence::random_nearest:
        range(point - radix / 2, point + (radix - 1) / 2);
        std::erase_if(into, [&](long i) { return i != point && !chosen(step % period, point, i); });
    }
    std::sort(into.begin(), into.end());
    into.erase(std::unique(into.begin(), into.end()), into.end());
    const point_range before = points(step - 1);
    std::erase_if(into, [&](long i) { return !before.has(i); });
  }

 private:
  /// Steps of a butterfly over the width.
  long levels() const {
    return std::max(1L, long(std::bit_width(static_cast<unsigned long>(width - 1))));
  }
  /// The same on all machines.
  bool chosen(long phase, long point, long read) const {
    std::uint64_t word = 0;
    for (const long one : {phase, point, read, radix}) {
      word = (word ^ static_cast<std::uint64_t>(one)) * 0x9e3779b97f4a7c15U;
      word ^= word >> 29;
    }
    return double(word >> 11) * 0x1p-53 < fraction;
  }
};

/// What a task of such a graph makes.
struct stamp {
  std::int64_t step = -1, point = -1;
};

/// Of the points that a task reads: equal when they are the same ones in the same order.
class read_digest {
 public:
  void add(std::int64_t point) {
    word_ = (word_ + static_cast<std::uint64_t>(point) + 1) * 0x9e3779b97f4a7c15U;
    word_ ^= word_ >> 32;
  }
  std::uint64_t word() const { return word_; }

 private:
  std::uint64_t word_ = 0;
};

/// Work that takes so many rounds of about 10 ns, and no memory.
inline void work(long rounds) {
  double x = 0;
  for (long i = 0; i < 4 * rounds; ++i) x = x * 0.999 + 0.001;
  [[maybe_unused]] volatile double kept = x;
}

}  // namespace support
