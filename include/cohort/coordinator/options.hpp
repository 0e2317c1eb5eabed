// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The options of a coordinator, their environment variables, and the options of one call.

#include <cohort/core/devices.hpp>
#include <cohort/core/error.hpp>
#include <cohort/core/time.hpp>

#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cohort {

/// The packs of a frozen plan: names of tensors that always travel together.
using fusion_plan = std::vector<std::vector<std::string>>;

/// The numbers of a coordinator. All ranks must give the same; the coordinator compares them, and
/// where they differ every operation fails with mismatch_error. docs/coordinator.md has them as one
/// table. A variable of the environment, where it is set, replaces what the program says.
struct coordinator_options {
  // No aggregate: g++ 12 copies a temporary aggregate bit by bit in an expression with co_await.
  coordinator_options() {}

  // Fusion, in bytes.
  std::uint64_t fusion_threshold = 256 * 1024;      ///< larger tensors are not packed
  std::uint64_t fusion_buffer = 512 * 1024;         ///< of the tensors of a pack together
  std::uint64_t piece = 1024 * 1024;                ///< larger tensors go in pieces of this size…
  std::uint32_t pieces_in_flight = 2;               ///< …of which so many are under way
  std::uint64_t bytes_in_flight = 2 * 1024 * 1024;  ///< no further operation starts beyond these
  std::uint64_t backend_up_to = 1 << 30;  ///< all_reduce and broadcast of larger calls: by MPI
  std::uint32_t slots = 2;                ///< operations of several parts under way; 1 or 2

  // Negotiation.
  std::uint32_t radix = 8;                ///< children of a rank in the tree of control messages
  std::uint64_t cache_capacity = 4096;    ///< names with a signature that travel as a number
  std::uint64_t cache_keep = 2048;        ///< how many of them stay when it is full
  std::uint64_t name_capacity = 65536;    ///< names until the table is cleaned
  std::uint64_t firsts = 64;              ///< new names of which a mismatch is found early
  std::uint64_t in_flight = 256;          ///< elected operations that rank 0 has not finished
  std::uint64_t patience = 64;            ///< how often an operation is passed by others
  std::uint64_t poison_capacity = 65536;  ///< failures remembered for ranks that are behind
  std::uint64_t control_message = 4000;   ///< bytes; longer control messages go in fragments

  // Time.
  std::chrono::nanoseconds stall_warning = std::chrono::seconds(60);  ///< zero: none
  std::chrono::nanoseconds query_timeout = std::chrono::seconds(2);
  std::chrono::nanoseconds decision_timeout = std::chrono::seconds(10);
  std::chrono::nanoseconds leave_deadline = std::chrono::seconds(30);

  bool strict = false;                  ///< a name that is in use fails with errc::duplicate_name
  bool divide_by_active = true;         ///< average: by the ranks that bring data, or by all
  bool tune = false;                    ///< try other sizes while it runs, and keep what is faster
  std::string tune_file;                ///< what was kept, read and written by rank 0
  std::string timeline;                 ///< a file to record from the start; empty: none
  std::uint64_t timeline_ring = 65536;  ///< events kept in memory

  /// Tensors that always travel together, in this order, so that sums are bit-identical from run to
  /// run, see options_text.hpp. Empty: packs form as tensors become ready.
  fusion_plan frozen_plan;
  /// A pack of the frozen plan that waits longer for a member is given up, with a warning; zero:
  /// never.
  std::chrono::nanoseconds plan_patience = std::chrono::nanoseconds::zero();
};

/// What floating-point elements are rounded to for their way between the ranks.
enum class compression : std::uint8_t {
  none,
  f16,   ///< 11 significant bits, up to 65504
  bf16,  ///< 8 significant bits, the range of float
};

/// Of one call. All but the deadline, `on` and `ends` is part of what must be equal on all ranks.
struct call_options {
  std::int32_t priority = 0;  ///< higher goes first among what is ready
  /// Until election, from now on; on device memory until completion, where the backend has a way to
  /// end what it has started. Zero: none.
  std::chrono::nanoseconds deadline = std::chrono::nanoseconds::zero();
  double prescale = 1;   ///< each rank's data is multiplied by it before…
  double postscale = 1;  ///< …and the result after the reduction; floating point only
  /// The data travels and is reduced in 16 bits: reductions of float and double. The scale factors
  /// and the division of an average apply before and after, in the type of the elements.
  cohort::compression compression = cohort::compression::none;
  /// Device memory only: the stream that writes the data, beside that of the buffer. What it has
  /// queued when the operation is submitted comes before the operation.
  stream_argument on = {};
  /// Device memory only: when the operation ends for its awaiter. What `on`, or without it the
  /// stream of the buffer, is given afterwards comes after the operation.
  until ends = until::complete;
};

/// Applies the variables of the environment to what the program has chosen. Throws
/// error(errc::invalid_argument) that names a variable whose value is no such number or out of
/// range.
[[nodiscard]] coordinator_options with_environment(coordinator_options chosen);

/// Throws error(errc::invalid_argument) that names the first option outside its range.
void validate(const coordinator_options& options);

/// "fusion_threshold=262144 …", for the log. options_text.hpp has all of them, for files.
[[nodiscard]] std::string describe(const coordinator_options& options);

namespace coordination {

/// One option as a row of the table: its name, its variable, its range, and where it is. Ranges of
/// durations are nanoseconds.
class option_row {
 public:
  using options = coordinator_options;

  constexpr option_row(std::string_view called, const char* from, std::uint64_t low,
                       std::uint64_t high, std::uint64_t options::* where)
      : name(called), variable(from), least(low), most(high), number_(where) {}
  constexpr option_row(std::string_view called, const char* from, std::uint64_t low,
                       std::uint64_t high, std::uint32_t options::* where)
      : name(called), variable(from), least(low), most(high), small_(where) {}
  constexpr option_row(std::string_view called, const char* from, std::uint64_t low,
                       std::chrono::nanoseconds options::* where)
      : name(called), variable(from), least(low), most(a_year), time_(where) {}
  constexpr option_row(std::string_view called, const char* from, bool options::* where)
      : name(called), variable(from), least(0), most(1), flag_(where) {}

  std::string_view name;
  const char* variable;
  std::uint64_t least;
  std::uint64_t most;

  [[nodiscard]] constexpr bool is_time() const noexcept { return time_ != nullptr; }
  [[nodiscard]] constexpr bool is_flag() const noexcept { return flag_ != nullptr; }
  [[nodiscard]] std::uint64_t get(const options& from) const {
    if (number_ != nullptr) return from.*number_;
    if (small_ != nullptr) return from.*small_;
    if (flag_ != nullptr) return from.*flag_ ? 1 : 0;
    return static_cast<std::uint64_t>((from.*time_).count());
  }
  void set(options& to, std::uint64_t value) const {
    if (number_ != nullptr) to.*number_ = value;
    if (small_ != nullptr) to.*small_ = static_cast<std::uint32_t>(value);
    if (flag_ != nullptr) to.*flag_ = value != 0;
    if (time_ != nullptr) to.*time_ = std::chrono::nanoseconds(static_cast<std::int64_t>(value));
  }

  /// As it stands in the environment and in files: exact, durations as "0.25s" (core/time.hpp).
  /// Nothing for what is no such number, or out of range.
  [[nodiscard]] std::optional<std::uint64_t> parse(std::string_view text) const;
  [[nodiscard]] std::string print(std::uint64_t value) const;
  /// "a number in the range of stall_warning".
  [[nodiscard]] std::string range() const {
    return std::string(is_time() ? duration_hint : "a number") + " in the range of " +
           std::string(name);
  }

 private:
  static constexpr auto a_year = static_cast<std::uint64_t>(longest_duration.count());

  std::uint64_t options::* number_ = nullptr;
  std::uint32_t options::* small_ = nullptr;
  std::chrono::nanoseconds options::* time_ = nullptr;
  bool options::* flag_ = nullptr;
};

/// All of them, in the order of the table. What ranks must agree on are the values of these rows.
[[nodiscard]] inline std::span<const option_row> option_table() {
  using o = coordinator_options;
  constexpr std::uint64_t gigabyte = 1 << 30;  // what MPI can count, whatever the element
  static constexpr option_row rows[] = {
      {"fusion_threshold", "COHORT_FUSION_THRESHOLD", 0, gigabyte, &o::fusion_threshold},
      {"fusion_buffer", "COHORT_FUSION_BUFFER", 4096, gigabyte, &o::fusion_buffer},
      {"piece", "COHORT_PIECE", 4096, gigabyte, &o::piece},
      {"pieces_in_flight", "COHORT_PIECES_IN_FLIGHT", 1, 64, &o::pieces_in_flight},
      {"bytes_in_flight", "COHORT_BYTES_IN_FLIGHT", 1, gigabyte, &o::bytes_in_flight},
      {"backend_up_to", "COHORT_BACKEND_UP_TO", 0, gigabyte, &o::backend_up_to},
      {"slots", "COHORT_SLOTS", 1, 2, &o::slots},
      {"radix", "COHORT_RADIX", 1, 31, &o::radix},
      {"cache_capacity", "COHORT_CACHE_CAPACITY", 1, 1 << 24, &o::cache_capacity},
      {"cache_keep", "COHORT_CACHE_KEEP", 0, 1 << 24, &o::cache_keep},
      {"name_capacity", "COHORT_NAME_CAPACITY", 1, 1 << 28, &o::name_capacity},
      {"firsts", "COHORT_FIRSTS", 0, 1 << 20, &o::firsts},
      {"in_flight", "COHORT_IN_FLIGHT", 1, 1 << 20, &o::in_flight},
      {"patience", "COHORT_PATIENCE", 1, 1 << 20, &o::patience},
      {"poison_capacity", "COHORT_POISON_CAPACITY", 1, 1 << 28, &o::poison_capacity},
      {"control_message", "COHORT_CONTROL_MESSAGE", 64, 1 << 28, &o::control_message},
      {"stall_warning", "COHORT_STALL_WARNING", 0, &o::stall_warning},
      {"query_timeout", "COHORT_QUERY_TIMEOUT", 1'000'000, &o::query_timeout},
      {"decision_timeout", "COHORT_DECISION_TIMEOUT", 1'000'000, &o::decision_timeout},
      {"leave_deadline", "COHORT_LEAVE_DEADLINE", 1'000'000, &o::leave_deadline},
      {"strict", "COHORT_STRICT", &o::strict},
      {"divide_by_active", "COHORT_DIVIDE_BY_ACTIVE", &o::divide_by_active},
      {"tune", "COHORT_TUNE", &o::tune},
      {"timeline_ring", "COHORT_TIMELINE_RING", 16, 1 << 28, &o::timeline_ring},
      {"plan_patience", "COHORT_PLAN_PATIENCE", 0, &o::plan_patience},
  };
  return rows;
}
/// The first of them can change while a coordinator runs.
[[nodiscard]] inline std::span<const option_row> tuned_options() { return option_table().first(6); }

}  // namespace coordination

// ---- implementation --------------------------------------------------------------------------

inline std::optional<std::uint64_t> coordination::option_row::parse(std::string_view text) const {
  std::uint64_t value = 0;
  if (is_time()) {
    const auto duration = parse_duration(text);
    if (!duration) return std::nullopt;
    value = static_cast<std::uint64_t>(duration->count());
  } else {
    const auto [stop, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (failed != std::errc{} || stop != text.data() + text.size()) return std::nullopt;
  }
  if (value < least || value > most) return std::nullopt;
  return value;
}

inline std::string coordination::option_row::print(std::uint64_t value) const {
  if (!is_time()) return std::to_string(value);
  std::string text = std::to_string(value / 1'000'000'000);
  if (const std::uint64_t rest = value % 1'000'000'000; rest != 0) {
    std::string digits = std::to_string(rest);
    digits.insert(0, 9 - digits.size(), '0');
    digits.erase(digits.find_last_not_of('0') + 1);
    text += '.' + digits;
  }
  return text + 's';
}

inline coordinator_options with_environment(coordinator_options chosen) {
  for (const coordination::option_row& row : coordination::option_table()) {
    const char* text = std::getenv(row.variable);
    if (text == nullptr || *text == '\0') continue;
    const auto value = row.parse(text);
    if (!value) {
      throw error(errc::invalid_argument,
                  std::string(row.variable) + "=" + text + " is not " + row.range());
    }
    row.set(chosen, *value);
  }
  if (const char* text = std::getenv("COHORT_TIMELINE")) chosen.timeline = text;
  if (const char* text = std::getenv("COHORT_TUNE_FILE")) chosen.tune_file = text;
  return chosen;
}

inline void validate(const coordinator_options& options) {
  const auto refuse = [](const std::string& text) { throw error(errc::invalid_argument, text); };
  for (const coordination::option_row& row : coordination::option_table()) {
    const std::uint64_t value = row.get(options);
    if (value >= row.least && value <= row.most) continue;
    refuse("coordinator_options: " + std::string(row.name) + "=" + std::to_string(value) +
           " is outside " + std::to_string(row.least) + " … " + std::to_string(row.most));
  }
  if (options.cache_keep >= options.cache_capacity) {
    refuse("coordinator_options: cache_keep=" + std::to_string(options.cache_keep) +
           " is not below cache_capacity=" + std::to_string(options.cache_capacity));
  }
  if (2 * options.query_timeout >= options.decision_timeout) {
    refuse(
        "coordinator_options: twice query_timeout is not below decision_timeout, so a rank would "
        "give up before the stall query ends");
  }
}

inline std::string describe(const coordinator_options& options) {
  std::string text;
  for (const coordination::option_row& row : coordination::option_table()) {
    if (!text.empty()) text += ' ';
    text += std::string(row.name) + '=' + row.print(row.get(options));
  }
  return text;
}

}  // namespace cohort
