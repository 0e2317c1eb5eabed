// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Bodies of core/log.hpp.

#include <cohort/core/log.hpp>

#include <cstdio>
#include <utility>

namespace cohort::log {

namespace detail {
inline std::mutex sink_mutex;
inline sink current_sink;
}  // namespace detail

COHORT_INLINE sink exchange_sink(sink replacement) {
  const std::lock_guard guard(detail::sink_mutex);
  return std::exchange(detail::current_sink, replacement);
}

COHORT_INLINE void write(level severity, std::string_view text) {
  if (!enabled(severity)) {
    return;
  }
  std::string line = process::line_prefix();
  line += text;
  const std::lock_guard guard(detail::sink_mutex);
  if (detail::current_sink.function != nullptr) {
    detail::current_sink.function(severity, line, detail::current_sink.context);
    return;
  }
  // One write for the whole line: the ranks of a job share one stderr.
  line += '\n';
  std::fwrite(line.data(), 1, line.size(), stderr);
  std::fflush(stderr);
}

COHORT_INLINE capture::capture() : previous_(exchange_sink({&capture::append, this})) {}

COHORT_INLINE capture::~capture() { exchange_sink(previous_); }

COHORT_INLINE std::string capture::text() const {
  const std::lock_guard guard(mutex_);
  return text_;
}

COHORT_INLINE bool capture::contains(std::string_view part) const {
  const std::lock_guard guard(mutex_);
  return text_.find(part) != std::string::npos;
}

COHORT_INLINE void capture::append(level, std::string_view line, void* context) noexcept {
  auto& self = *static_cast<capture*>(context);
  const std::lock_guard guard(self.mutex_);
  self.text_ += line;
  self.text_ += '\n';
}

}  // namespace cohort::log
