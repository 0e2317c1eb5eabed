// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

#include "competitors.hpp"

#include <vector>

#ifdef _OPENMP

namespace with_openmp {
namespace {

void independent(std::vector<std::uint64_t>& made, std::uint64_t tasks) {
  std::uint64_t* const value = made.data();
  for (std::uint64_t i = 0; i < tasks; ++i) {
#pragma omp task firstprivate(i, value)
    value[i] = 1;
  }
}

void chain(std::vector<std::uint64_t>& made, std::uint64_t tasks) {
  std::uint64_t* const value = made.data();
  for (std::uint64_t i = 1; i <= tasks; ++i) {
#pragma omp task firstprivate(i, value) depend(in : value[i - 1]) depend(out : value[i])
    value[i] = value[i - 1] + 1;
  }
}

void take_chain(std::vector<std::uint64_t>& made, std::uint64_t tasks) {
  std::uint64_t* const value = made.data();
  for (std::uint64_t i = 0; i < tasks; ++i) {
#pragma omp task firstprivate(value) depend(inout : value[0])
    ++value[0];
  }
}

/// The first row and column of `made` are zeros, which nobody makes.
void wavefront(std::vector<std::uint64_t>& made, std::uint64_t side) {
  for (std::uint64_t i = 1; i <= side; ++i) {
    for (std::uint64_t j = 1; j <= side; ++j) {
      std::uint64_t* const value = made.data() + i * (side + 1) + j;
      std::uint64_t* const above = value - (side + 1);
#pragma omp task firstprivate(value, above) depend(in : above[0], value[-1]) depend(out : value[0])
      *value = *above + value[-1] + 1;
    }
  }
}

void spawn_all(std::vector<std::uint64_t>& made, const shape& what) {
  switch (what.of) {
    case pattern::independent:
      return independent(made, what.tasks);
    case pattern::chain:
      return chain(made, what.tasks);
    case pattern::take_chain:
      return take_chain(made, what.tasks);
    case pattern::wavefront:
      return wavefront(made, what.side);
  }
}

std::uint64_t last_of(const std::vector<std::uint64_t>& made, const shape& what) {
  if (what.of == pattern::take_chain) return made.front();
  return made[what.of == pattern::independent ? what.tasks - 1 : made.size() - 1];
}

}  // namespace

bool present() noexcept { return true; }

cost run(const shape& what) {
  const std::uint64_t places =
      what.of == pattern::wavefront ? (what.side + 1) * (what.side + 1) : what.tasks + 1;
  const double start = processor_time();
  std::vector<std::uint64_t> made(places);
#pragma omp parallel num_threads(1)
#pragma omp single
  spawn_all(made, what);
  what.check(last_of(made, what), "OpenMP");
  return {.run = (processor_time() - start) / static_cast<double>(what.tasks)};
}

}  // namespace with_openmp

#else

namespace with_openmp {

bool present() noexcept { return false; }
cost run(const shape&) { return {}; }

}  // namespace with_openmp

#endif
