// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What the tests of collectives give to every rank, and what must come of it.

#include <cohort/core/asio.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace collectives_test {

using task = asio::awaitable<void>;

/// `count` elements that tell the rank and the place: 100 rank + i.
template <class T>
std::vector<T> values(int rank, std::size_t count) {
  std::vector<T> list;
  for (std::size_t i = 0; i < count; ++i) {
    list.push_back(static_cast<T>(100 * rank + static_cast<int>(i)));
  }
  return list;
}

template <class T>
void append(std::vector<T>& to, const std::vector<T>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

/// An aggregate with padding.
struct particle {
  double position[3];
  int kind;
  friend bool operator==(const particle&, const particle&) = default;
};
inline particle particle_of(int rank, int i) {
  return particle{{rank + 0.5, i + 0.25, -1.0}, 10 * rank + i};
}

/// Affine maps x -> a x + b; composition does not commute.
struct affine {
  std::uint64_t a;
  std::uint64_t b;
  friend bool operator==(const affine&, const affine&) = default;
};
struct compose {
  affine operator()(const affine& f, const affine& g) const {
    return affine{f.a * g.a, f.a * g.b + f.b};
  }
};
inline affine affine_of(int rank) {
  const auto r = static_cast<std::uint64_t>(rank);
  return affine{r + 2, 3 * r + 1};
}
/// What the ranks `first` to `last - 1` combine to.
inline affine fold(int first, int last) {
  affine result = affine_of(first);
  for (int rank = first + 1; rank < last; ++rank) result = compose{}(result, affine_of(rank));
  return result;
}

}  // namespace collectives_test
