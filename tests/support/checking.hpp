// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What the checkers of state machines have in common: violations, and random numbers of
/// which a seed repeats a run.

#include <cstddef>
#include <cstdint>
#include <sstream>
#include <stdexcept>
#include <utility>
#include <vector>

namespace checking {

/// A promise was broken; the text begins with the label of its rule.
struct violation : std::runtime_error {
  using std::runtime_error::runtime_error;
};

template <class... Parts>
void check(bool good, const Parts&... parts) {
  if (good) return;
  std::ostringstream text;
  (text << ... << parts);
  throw violation(text.str());
}

/// SplitMix64: the same numbers everywhere. `lowest` makes every choice the first.
class rng {
 public:
  explicit rng(std::uint64_t seed, bool lowest = false) : state_(seed), lowest_(lowest) {}

  std::uint64_t next() {
    if (lowest_) return 0;
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15U);
    z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31U);
  }
  std::size_t below(std::size_t bound) { return static_cast<std::size_t>(next() % bound); }
  int between(int least, int most) {
    return least + static_cast<int>(below(static_cast<std::size_t>(most - least + 1)));
  }
  double real() { return static_cast<double>(next() >> 11U) * 0x1.0p-53; }
  bool happens(double probability) { return real() < probability; }
  template <class T>
  const T& choice(const std::vector<T>& values) {
    return values[below(values.size())];
  }
  template <class T>
  void shuffle(std::vector<T>& values) {
    for (std::size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[below(i)]);
  }
  /// Some of 0 .. n - 1, in a random order.
  std::vector<int> sample(int n, int count) {
    std::vector<int> all;
    for (int i = 0; i < n; ++i) all.push_back(i);
    shuffle(all);
    all.resize(static_cast<std::size_t>(count));
    return all;
  }

 private:
  std::uint64_t state_;
  bool lowest_;
};

}  // namespace checking
