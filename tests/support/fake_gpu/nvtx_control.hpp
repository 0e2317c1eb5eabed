// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The double of a tool that NVTX reports to. It is there once a test attaches it, and writes
/// down what it is told; what is wrong with that, such as the end of a range that has not begun, it
/// keeps as a fault.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace fake_nvtx {

/// A range, or a moment, which has ended when it began.
struct range {
  std::string name;
  std::string category;  ///< its name, in the domain "cohort"
  std::uint64_t bytes = 0;
  bool registered = false;  ///< the name was given as a handle
  std::size_t began = 0;    ///< its place among all beginnings and ends
  std::size_t ended = 0;    ///< 0: it has not
};

/// While it is there the tool writes down what it is told. Forgets what was told before. Without a
/// tool NVTX does nothing and makes no domain.
void attach(bool there);

/// In the order of their beginnings.
[[nodiscard]] std::vector<range> ranges();
[[nodiscard]] std::vector<range> moments();
/// Ranges that have not ended, as text.
[[nodiscard]] std::vector<std::string> open();
[[nodiscard]] std::vector<std::string> faults();
/// Strings that were registered since the process began.
[[nodiscard]] std::size_t registered();

}  // namespace fake_nvtx
