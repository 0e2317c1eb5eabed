// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// The competitors of this benchmark. Each builds a graph of tasks that do next to nothing, runs
/// it, forgets it, and checks what its last task has made.

#include <cohort/core/asio.hpp>
#include <cohort/graph.hpp>

#include <time.h>

#include <cstdint>
#include <stdexcept>
#include <string>

/// Nanoseconds of processor time of this process, all threads together: nobody here waits for
/// anything, and others may have the core for a while.
[[nodiscard]] inline double processor_time() {
  timespec used{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) * 1e9 + static_cast<double>(used.tv_nsec);
}

enum class pattern {
  independent,
  chain,       ///< each task reads the value of the one before
  take_chain,  ///< the same, and takes it: an update in place
  wavefront,   ///< a square: each task reads the values of its neighbours above and to the left
};

/// Nanoseconds of processor time for each task. Who starts tasks while others are being spawned has
/// all in `run`.
struct cost {
  double build = 0;  ///< tasks are spawned
  double run = 0;    ///< they are run, and forgotten
  double again = 0;  ///< the same graph is made ready and run once more; 0: not measured
};

/// A graph of such a pattern. Each task adds up what it reads, modulo 2^64, and one.
struct shape {
  pattern of = pattern::chain;
  std::uint64_t side = 0;  ///< of the square
  std::uint64_t tasks = 0;

  static shape with(pattern of, std::uint64_t tasks) {
    std::uint64_t side = 1;
    while ((side + 1) * (side + 1) <= tasks) ++side;
    return {of, side, of == pattern::wavefront ? side * side : tasks};
  }
  /// What the last task makes.
  [[nodiscard]] std::uint64_t result() const;
  /// Throws unless it has made that.
  void check(std::uint64_t made, const char* who) const {
    if (made == result()) return;
    throw std::runtime_error(std::string(who) + ": the last task has made " + std::to_string(made) +
                             ", not " + std::to_string(result()));
  }
};

/// The least that does it by name: integers are hashed to 128 bits, one table, a queue.
namespace floor_program {
cost run(const shape& what);
}

namespace with_openmp {
[[nodiscard]] bool present() noexcept;
cost run(const shape& what);  ///< with `task depend`, on one thread
}  // namespace with_openmp

namespace with_taskflow {
[[nodiscard]] bool present() noexcept;
cost run(const shape& what);  ///< on one thread; tasks are objects, not names
}  // namespace with_taskflow

/// The protocol of one rank without engine, coroutines and types: the machine beneath
/// `with_cohort`.
namespace with_machine {
cost run(const shape& what);
}

namespace with_cohort {
asio::awaitable<cost> run(cohort::graph::tasks& graphs, shape what);
}
