// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// The recording: which tasks of a scope a rank has run, when, and what they depended on. Pictures
/// of the graph are made of the recordings of all ranks (graph/dot.hpp, graph/schedule.hpp).

#include <cohort/core/config.hpp>
#include <cohort/core/time.hpp>
#include <cohort/core/wire.hpp>
#include <cohort/graph/machine/definition.hpp>
#include <cohort/graph/machine/names.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace cohort::graph {

namespace detail {

[[nodiscard]] inline std::int64_t nanoseconds_of(steady_clock::time_point when) noexcept {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(when.time_since_epoch()).count();
}

[[nodiscard]] inline steady_clock::time_point time_of(std::int64_t nanoseconds) noexcept {
  return steady_clock::time_point(std::chrono::nanoseconds(nanoseconds));
}

}  // namespace detail

struct recording_options {
  /// Memory for what is recorded; what follows is counted and left out. A task takes 56 bytes, its
  /// name, and 24 bytes for each dependency; vectors that grow take up to twice as much.
  std::size_t bytes = std::size_t{64} << 20U;
};

/// What has given a key its value.
enum class recorded_kind : std::uint8_t {
  task,    ///< a task that has run
  failed,  ///< a task that has run and thrown
  source,  ///< a value that was put
};

/// A dependency of a task: whose value, and how it is used.
struct recorded_use {
  machine::key task;
  machine::use_kind use = machine::use_kind::plain;
  friend bool operator==(const recorded_use&, const recorded_use&) = default;
};

/// One task, as it is recorded and as it is read.
struct recorded_task {
  std::string_view name;  ///< as people read it: "factor(3)"; of a longer one 512 bytes are kept
  machine::key key;       ///< its home is where it has run
  recorded_kind kind = recorded_kind::task;
  std::uint32_t window = 0;
  std::uint32_t thread =
      0;  ///< that its body has run on: 0 is the loop, others are of `on_threads`
  steady_clock::time_point begin;
  steady_clock::time_point end;  ///< that of `begin` for a source
  std::span<const recorded_use> uses;
};

/// What one rank has recorded of one scope. Without a rank it is off, and `add` is one branch.
///
/// Costs a copy into three vectors for each task. Knows no clock, no threads and no MPI: it is
/// called on the loop, when a task has ended. It travels (core/wire.hpp), so that one rank can draw
/// what all have run.
class recording {
 public:
  static constexpr std::size_t name_limit = 512;
  static constexpr std::size_t uses_limit = 65'536;  ///< of one task; others are counted only

  recording() = default;
  explicit recording(int rank, const recording_options& options = {});

  [[nodiscard]] bool active() const noexcept { return limit_ != 0; }

  void add(const recorded_task& one) noexcept {
    if (active()) [[unlikely]] {
      append(one);
    }
  }

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] std::size_t size() const noexcept { return entries_.size(); }
  [[nodiscard]] bool empty() const noexcept { return entries_.empty(); }
  /// Valid until the next `add`.
  [[nodiscard]] recorded_task operator[](std::size_t at) const noexcept;

  /// Tasks and sources that there was no memory for.
  [[nodiscard]] std::uint64_t left_out() const noexcept { return left_out_; }
  /// Dependencies of recorded tasks beyond `uses_limit`.
  [[nodiscard]] std::uint64_t uses_left_out() const noexcept { return uses_left_out_; }
  /// Bytes that count against the bound.
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

  template <class Archive>
  friend void wire_fields(Archive& archive, recording& one) {
    if constexpr (Archive::reads) {
      one.read(archive);
    } else {
      one.write(archive);
    }
  }

 private:
  struct entry {
    machine::key key;
    std::int64_t begin;  // nanoseconds of the steady clock
    std::int64_t end;
    std::uint32_t name;  // where it stands in `names_`
    std::uint32_t use;   // where the first one stands in `uses_`
    std::uint32_t use_count;
    std::uint32_t window;
    std::uint32_t thread;
    std::uint16_t name_size;
    recorded_kind kind;
  };
  static_assert(sizeof(entry) <= 56 && sizeof(recorded_use) <= 24, "as the options say");

  void append(const recorded_task& one) noexcept;
  void store(const recorded_task& one, std::string_view name);
  void write(wire::writer& out) const;
  void read(wire::reader& in);
  static void write_key(wire::writer& out, const machine::key& key);
  [[nodiscard]] static machine::key read_key(wire::reader& in);

  int rank_ = -1;
  std::size_t limit_ = 0;
  std::size_t bytes_ = 0;
  std::uint64_t left_out_ = 0;
  std::uint64_t uses_left_out_ = 0;
  std::vector<entry> entries_;
  std::vector<recorded_use> uses_;
  std::vector<char> names_;
};

}  // namespace cohort::graph

#ifndef COHORT_SEPARATE_COMPILATION
#include <cohort/graph/recording.ipp>
#endif
