// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Time as the library measures it, and what may stand in for the clock in tests.

#include <chrono>
#include <concepts>

namespace cohort {

/// All waiting, deadlines and ages are measured on this clock, which never jumps. The very type of
/// the standard library, so that using-directives for both namespaces do not collide.
using steady_clock = std::chrono::steady_clock;

/// Something that tells the time: the real clock, or one that a test moves by hand.
template <class C>
concept time_source = requires(const C& source) {
  { source.now() } -> std::convertible_to<steady_clock::time_point>;
};

/// The real clock as an object.
struct real_clock {
  [[nodiscard]] steady_clock::time_point now() const noexcept { return steady_clock::now(); }
};

static_assert(time_source<real_clock>);

}  // namespace cohort
