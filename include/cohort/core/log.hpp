// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Levelled one-line messages to stderr, through a sink that a program can replace.

#include <cohort/core/process.hpp>

#include <atomic>
#include <cstdio>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

namespace cohort::log {

enum class level { error, warning, info, debug };

/// Receives one finished line without its newline. Called from any thread, one call at a time;
/// it must not throw and must not log.
using sink_function = void (*)(level severity, std::string_view line, void* context) noexcept;

/// A sink and the pointer that is handed to it.
struct sink {
  sink_function function = nullptr;  ///< null means: stderr
  void* context = nullptr;
};

/// Writes "[cohort rank r] text", or "[cohort] text" in a process that is no rank. Costs one
/// relaxed load when the level is not enabled.
void write(level severity, std::string_view text);

/// Replaces the sink and returns the one before.
sink exchange_sink(sink replacement);

/// Messages less severe than this are dropped; the default is warning.
void set_threshold(level least_severe) noexcept;
[[nodiscard]] bool enabled(level severity) noexcept;

/// Collects every line while it lives and then restores the sink that was there. For tests and for
/// programs that show messages in a window.
class capture {
 public:
  capture();
  ~capture();
  capture(const capture&) = delete;
  capture& operator=(const capture&) = delete;

  /// All lines so far, each ended by a newline.
  [[nodiscard]] std::string text() const;
  [[nodiscard]] bool contains(std::string_view part) const;

 private:
  static void append(level, std::string_view line, void* context) noexcept;

  mutable std::mutex mutex_;
  std::string text_;
  sink previous_;
};

namespace detail {
inline std::atomic<level> threshold{level::warning};
}  // namespace detail

inline bool enabled(level severity) noexcept {
  return severity <= detail::threshold.load(std::memory_order_relaxed);
}

inline void set_threshold(level least_severe) noexcept {
  detail::threshold.store(least_severe, std::memory_order_relaxed);
}

namespace detail {
inline std::mutex sink_mutex;
inline sink current_sink;
}  // namespace detail

inline sink exchange_sink(sink replacement) {
  const std::lock_guard guard(detail::sink_mutex);
  return std::exchange(detail::current_sink, replacement);
}

inline void write(level severity, std::string_view text) {
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

inline capture::capture() : previous_(exchange_sink({&capture::append, this})) {}

inline capture::~capture() { exchange_sink(previous_); }

inline std::string capture::text() const {
  const std::lock_guard guard(mutex_);
  return text_;
}

inline bool capture::contains(std::string_view part) const {
  const std::lock_guard guard(mutex_);
  return text_.find(part) != std::string::npos;
}

inline void capture::append(level, std::string_view line, void* context) noexcept {
  auto& self = *static_cast<capture*>(context);
  const std::lock_guard guard(self.mutex_);
  self.text_ += line;
  self.text_ += '\n';
}

}  // namespace cohort::log
