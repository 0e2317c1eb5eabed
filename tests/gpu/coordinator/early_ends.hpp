// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What the tests of contexts that end early share.

#include "support.hpp"
#include "support/patience.hpp"

#include <chrono>

namespace cohort_test {

/// Whose contexts end early.
enum class whose { all, first, last };

inline bool ends_early(whose which, const cohort::communicator& world) {
  if (which == whose::all) return true;
  return world.rank() == (which == whose::first ? 0 : world.size() - 1);
}

/// Everything that an ending needs has to come far below the bounds of the library.
class clocked {
 public:
  ~clocked() { CHECK(std::chrono::steady_clock::now() - began_ < cohort_test::patient(10s)); }

 private:
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
};

/// Looks so often, without running a handler.
inline void look_for(asio::io_context& io, int looks) {
  auto& engine = cohort::use_engine(io);
  for (int i = 0; i < looks; ++i) engine.look();
}

/// Runs the loop until something is so.
template <class Predicate>
bool run_until(asio::io_context& io, Predicate holds) {
  const auto end = std::chrono::steady_clock::now() + cohort_test::patient(20s);
  while (!holds()) {
    if (std::chrono::steady_clock::now() > end) return false;
    io.run_one_for(1ms);
    if (io.stopped()) io.restart();
  }
  return true;
}

}  // namespace cohort_test
