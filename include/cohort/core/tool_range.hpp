// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What a tool that watches the process is told: ranges of time and moments, with a name.

#include <atomic>
#include <cstdint>
#include <string_view>
#include <utility>

namespace cohort::tools {

/// What a range is about.
enum class category : std::uint32_t {
  verb = 1,      ///< a verb on a device, from its initiation to its completion
  negotiate,     ///< a named operation, from its submission to its election
  operation,     ///< from there to its completion
  data,          ///< what moves operations together, from its launch to its completion
  pack,          ///< copying into the fusion buffer; on a device: queueing that
  unpack,        ///< copying out of it
  copy,          ///< a copy between host and device that is awaited
  communicator,  ///< making, finalising, aborting, destroying a communicator
  event          ///< a moment: a fault, a stall warning, a step
};

/// A name, which the tool copies. A literal is registered once.
struct label {
  std::string_view text;
  bool literal = false;
};
[[nodiscard]] inline label literal(std::string_view text) noexcept { return {text, true}; }

/// The functions of a tool. Called from any thread.
struct tool {
  std::uint64_t (*begin)(category what, label name, std::uint64_t bytes) noexcept;
  void (*end)(std::uint64_t range) noexcept;
  void (*mark)(category what, label name, std::uint64_t bytes) noexcept;
};

/// Null as long as no tool is there. It is found at run time and not by this layer, so that what a
/// translation unit can include makes no difference to the inline functions of the library.
inline constinit std::atomic<const tool*> attached{nullptr};

/// Whether a tool is there: for callers to whom names or bytes cost something.
[[nodiscard]] inline bool watched() noexcept {
  return attached.load(std::memory_order_acquire) != nullptr;
}

/// A range that ends at the latest with this object. Ranges overlap as coroutines do, so they need
/// not nest, and may end on another thread. *Cost* without a tool: a load and a branch.
class range {
 public:
  range() noexcept {}
  range(category what, label name, std::uint64_t bytes = 0) noexcept { begin(what, name, bytes); }
  range(range&& other) noexcept : of_(std::exchange(other.of_, nullptr)), number_(other.number_) {}
  range& operator=(range&& other) noexcept {
    std::swap(of_, other.of_);
    std::swap(number_, other.number_);
    return *this;
  }
  ~range() { end(); }

  /// Ends the one before.
  void begin(category what, label name, std::uint64_t bytes = 0) noexcept {
    end();
    const tool* const there = attached.load(std::memory_order_acquire);
    if (there == nullptr) [[likely]] {
      return;
    }
    of_ = there;
    number_ = there->begin(what, name, bytes);
  }
  void end() noexcept {
    if (of_ == nullptr) [[likely]] {
      return;
    }
    std::exchange(of_, nullptr)->end(number_);
  }

 private:
  const tool* of_ = nullptr;
  std::uint64_t number_ = 0;
};

inline void mark(category what, label name, std::uint64_t bytes = 0) noexcept {
  if (const tool* const there = attached.load(std::memory_order_acquire)) [[unlikely]] {
    there->mark(what, name, bytes);
  }
}

}  // namespace cohort::tools
