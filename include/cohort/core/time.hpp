// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Time as the library measures it, what may stand in for the clock in tests, and durations
/// as the environment and files have them.

#include <cohort/core/error.hpp>

#include <charconv>
#include <chrono>
#include <concepts>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

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

/// The longest that text can say: a year.
inline constexpr std::chrono::nanoseconds longest_duration = std::chrono::hours(365 * 24);

/// "60", "60s", "0.25s", "500ms": seconds where there is no unit, exact to the nanosecond. Nothing
/// for what is no such text, negative, or longer than a year.
[[nodiscard]] std::optional<std::chrono::nanoseconds> parse_duration(std::string_view text);

/// What a variable of the environment says; nothing where it is not set, or empty. Throws
/// error(errc::invalid_argument) that names it where it is no duration.
[[nodiscard]] std::optional<std::chrono::nanoseconds> duration_from_environment(
    const char* variable);

/// For errors: what is asked for.
inline constexpr std::string_view duration_hint = "a duration such as 60, 60s or 500ms";

// ---- implementation --------------------------------------------------------------------------

inline std::optional<std::chrono::nanoseconds> parse_duration(std::string_view text) {
  long double unit = 1e9L;  // a year of nanoseconds is more than a double holds exactly
  if (text.ends_with("ms")) {
    unit = 1e6L;
    text.remove_suffix(2);
  } else if (text.ends_with('s')) {
    text.remove_suffix(1);
  }
  long double number = 0;
  const auto [stop, failed] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failed != std::errc{} || stop != text.data() + text.size() || !(number >= 0)) {
    return std::nullopt;
  }
  const long double rounded = number * unit + 0.5L;
  if (!(rounded < static_cast<long double>(longest_duration.count()) + 1)) return std::nullopt;
  return std::chrono::nanoseconds(static_cast<std::chrono::nanoseconds::rep>(rounded));
}

inline std::optional<std::chrono::nanoseconds> duration_from_environment(const char* variable) {
  const char* text = std::getenv(variable);
  if (text == nullptr || *text == '\0') return std::nullopt;
  const auto value = parse_duration(text);
  if (value) return value;
  throw error(errc::invalid_argument,
              std::string(variable) + "=" + text + " is not " + std::string(duration_hint));
}

}  // namespace cohort
