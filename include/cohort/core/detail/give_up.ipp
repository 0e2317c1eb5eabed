// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// Bodies of `core/process.hpp`: the line that a failed program ends with.

#include <cohort/core/process.hpp>

namespace cohort::process {

namespace detail {

/// The lines of a text, without blanks before them, behind one another; the first `most` of them.
COHORT_INLINE std::string in_one_line(std::string_view text, std::size_t most) {
  std::string line;
  std::size_t lines = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view whole = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const std::size_t first = whole.find_first_not_of(" \t\r");
    if (first == std::string_view::npos || ++lines > most) continue;
    if (!line.empty()) line += "; ";
    line += whole.substr(first);
  }
  if (lines > most) line += "; and " + std::to_string(lines - most) + " more";
  return line;
}

}  // namespace detail

COHORT_INLINE std::string message_of(const std::exception_ptr& why) {
  try {
    std::rethrow_exception(why);
  } catch (const std::exception& known) {
    return known.what();
  } catch (...) {
    return "an exception that is no std::exception";
  }
}

COHORT_INLINE int give_up(const std::exception_ptr& why) noexcept {
  std::fflush(stdout);  // ending the job loses what is in the buffer
  if (!failed.exchange(true)) {
    try {
      std::string line = line_prefix() + detail::in_one_line(message_of(why), 64);
      const std::string in_flight = describe_in_flight();
      if (!in_flight.empty()) line += "; in flight: " + detail::in_one_line(in_flight, 16);
      write_last_words(line + '\n');
    } catch (...) {
      std::fputs("[cohort] the program has failed, and there is no memory to say why\n", stderr);
    }
  }
  if (const auto function = end_job_function.load()) function();
  return EXIT_FAILURE;
}

}  // namespace cohort::process
