// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The timeline's events, from the call that records one to the line in the file.

#include <cohort/coordinator/detail/json_text.hpp>
#include <cohort/coordinator/detail/trace_file.hpp>
#include <cohort/coordinator/timeline.hpp>
#include <cohort/core/log.hpp>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <limits>
#include <new>
#include <string>
#include <utility>
#include <vector>

namespace cohort::coordination {

namespace detail {

inline constexpr std::array<std::string_view, 5> phase_names{"negotiate", "queue", "pack", "data",
                                                             "unpack"};
inline constexpr std::size_t name_limit = 512;
inline constexpr std::size_t backend_limit = 64;
inline constexpr std::string_view ellipsis = "\xE2\x80\xA6";
// Names escaped byte by byte, the numbers, and the lines that give a row its name.
inline constexpr std::size_t largest_line = 6 * (name_limit + backend_limit) + 1024;
inline constexpr std::size_t piece_size = 64 * 1024;
inline constexpr std::size_t rows_per_phase = 100;
// Perfetto keeps at most 512 slices above one another.
inline constexpr std::uint32_t slices_per_stack = 100;

inline std::string boot_id() {
  std::array<char, 64> text{};
  std::size_t length = 0;
  if (std::FILE* file = std::fopen("/proc/sys/kernel/random/boot_id", "r")) {
    length = std::fread(text.data(), 1, text.size(), file);
    std::fclose(file);
  }
  while (length > 0 && text[length - 1] == '\n') --length;
  return {text.data(), length};
}

inline std::string host_name() {
  std::array<char, 256> text{};
  if (::gethostname(text.data(), text.size() - 1) != 0) return {};
  return text.data();
}

}  // namespace detail

struct timeline::event {
  static constexpr std::uint8_t data_operation = 5;  // below: a phase
  static constexpr std::uint8_t moment = 6;

  std::int64_t begin = 0;  // nanoseconds since the anchor
  std::int64_t duration = 0;
  std::uint64_t epoch = 0;
  std::uint64_t log_count = 0;
  std::uint64_t bytes = 0;
  std::uint32_t set = 0;
  std::uint32_t tensors = 0;
  std::uint32_t text = 0;  // where its name stands, and the backend's behind it
  std::uint16_t name_size = 0;
  std::uint16_t backend_size = 0;
  std::uint8_t kind = 0;
};

/// A row of the viewer. Slices in one row must nest or be apart, or the viewer leaves some out.
struct timeline::lane {
  std::int64_t free_from = 0;                                   // end of what is before the stack
  std::int64_t end = std::numeric_limits<std::int64_t>::min();  // common to all of the stack
  std::uint32_t stacked = 0;
  bool named = false;  // the file has its name

  bool take(std::int64_t from, std::int64_t to) noexcept {
    if (from >= end) {
      free_from = end;
      end = to;
      stacked = 1;
      return true;
    }
    if (to != end || from < free_from || stacked == detail::slices_per_stack) return false;
    ++stacked;
    return true;
  }
};

struct timeline::recording {
  static_assert(sizeof(event) <= 64, "as the documentation says");

  recording(int at_rank, std::string path_of_file, const timeline_options& options)
      : path(std::move(path_of_file)),
        rank(static_cast<std::uint64_t>(std::max(at_rank, 0))),
        limit(options.limit),
        text(detail::piece_size) {
    const std::size_t ring = std::clamp<std::size_t>(options.ring, 1, std::size_t{1} << 24);
    events.reserve(ring);
    names_capacity = std::max<std::size_t>(32 * ring, 1024);
    names = std::make_unique_for_overwrite<char[]>(names_capacity);
    for (auto& of_phase : lanes) of_phase.reserve(detail::rows_per_phase);
  }

  std::error_code open(int size);
  [[nodiscard]] std::int64_t since_anchor(time when) const noexcept {
    if (when <= anchor) return 0;
    return std::chrono::duration_cast<std::chrono::nanoseconds>(when - anchor).count();
  }
  std::uint32_t keep(std::string_view name, std::uint16_t& size, std::size_t limit_of_it) noexcept;
  void format(const event& one) noexcept;
  void format_moment(std::string_view name, std::int64_t when, std::uint64_t lost) noexcept;
  std::uint64_t find_row(std::size_t of_phase, const event& one) noexcept;
  void name_row(lane& row, std::uint64_t number, std::string_view name, std::size_t nth) noexcept;
  [[nodiscard]] std::error_code append() noexcept;
  // Different for all ranks, since viewers mix up rows of the same number when files are merged.
  [[nodiscard]] std::uint64_t first_row() const noexcept { return (rank + 1) * 1000; }

  std::string path;
  std::uint64_t rank;
  std::uint64_t limit;
  time anchor;
  std::vector<event> events;
  std::unique_ptr<char[]> names;
  std::size_t names_size = 0;
  std::size_t names_capacity = 0;
  std::array<std::vector<lane>, detail::phase_names.size()> lanes;
  lane moments;
  detail::json_text text;
  detail::trace_file file;
  std::uint64_t unreported = 0;  // lost, and the file does not say so yet
  bool full = false;             // the limit has been reached, and the file says so
  bool told = false;             // the log has been told
};

inline std::string timeline_path(std::string_view path, int rank, int size) {
  std::string result(path);
  if (size <= 1) return result;
  const std::size_t name = path.rfind('/') + 1;  // 0 without a folder
  std::size_t dot = path.rfind('.');
  if (dot == std::string_view::npos || dot <= name) dot = path.size();
  return result.insert(dot, "." + std::to_string(rank));
}

inline timeline::timeline(int rank, int size) noexcept : rank_(rank), size_(size) {}
inline timeline::~timeline() { stop(); }

inline std::size_t timeline::pending() const noexcept {
  return recording_ ? recording_->events.size() : 0;
}

inline std::error_code timeline::start(const std::string& path, const timeline_options& options) {
  stop();
  try {
    auto fresh = std::make_unique<recording>(rank_, timeline_path(path, rank_, size_), options);
    const std::error_code failed = fresh->open(size_);
    if (failed) return failed;
    recording_ = std::move(fresh);
  } catch (const std::bad_alloc&) {
    return std::make_error_code(std::errc::not_enough_memory);
  }
  dropped_ = 0;
  return {};
}

inline void timeline::stop() noexcept {
  if (!recording_) return;
  write_pending();
  recording_.reset();
}

inline std::error_code timeline::recording::open(int size) {
  const auto before = steady_clock::now();
  const auto wall = std::chrono::system_clock::now();
  anchor = before + (steady_clock::now() - before) / 2;
  const auto count = [](auto when) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(when.time_since_epoch()).count();
  };
  text.raw(R"({"otherData":{"cohort_timeline":1,"rank":)").number(rank);
  text.raw(R"(,"size":)").number(std::int64_t{size});
  text.raw(R"(,"host":")").escaped(detail::host_name());
  text.raw(R"(","boot":")").escaped(detail::boot_id());
  // As strings, since viewers would round them.
  text.raw(R"(","steady_ns":")").number(std::int64_t{count(anchor)});
  text.raw(R"(","system_ns":")").number(std::int64_t{count(wall)});
  text.raw("\"},\"traceEvents\":[\n");
  text.raw(R"({"name":"process_name","ph":"M","pid":)").number(rank);
  text.raw(R"(,"tid":)").number(first_row() + 1);
  text.raw(R"(,"args":{"name":"rank )").number(rank).raw(R"("}})").raw(",\n");
  text.raw(R"({"name":"process_sort_index","ph":"M","pid":)").number(rank);
  text.raw(R"(,"tid":)").number(first_row() + 1);
  text.raw(R"(,"args":{"sort_index":)").number(rank).raw("}}");
  text.raw(detail::trace_file::brackets);
  return file.open(path, text.view());
}

inline void timeline::record_span(phase what, std::string_view name, std::uint64_t epoch,
                                  std::uint32_t set, std::uint64_t log_count, time begin, time end,
                                  std::size_t bytes) noexcept {
  event one;
  one.kind = static_cast<std::uint8_t>(what);
  one.begin = recording_->since_anchor(begin);
  one.duration = std::max<std::int64_t>(recording_->since_anchor(end) - one.begin, 0);
  one.epoch = epoch;
  one.set = set;
  one.log_count = log_count;
  one.bytes = bytes;
  record(one, name, {});
}

inline void timeline::record_data(std::string_view verb, std::uint32_t set, std::uint64_t log_count,
                                  std::size_t tensors, std::size_t bytes, time begin, time end,
                                  std::string_view backend) noexcept {
  event one;
  one.kind = event::data_operation;
  one.begin = recording_->since_anchor(begin);
  one.duration = std::max<std::int64_t>(recording_->since_anchor(end) - one.begin, 0);
  one.set = set;
  one.log_count = log_count;
  one.tensors = static_cast<std::uint32_t>(tensors);
  one.bytes = bytes;
  record(one, verb, backend);
}

inline void timeline::record_instant(std::string_view what, time when) noexcept {
  event one;
  one.kind = event::moment;
  one.begin = recording_->since_anchor(when);
  record(one, what, {});
}

inline void timeline::record(event one, std::string_view name, std::string_view backend) noexcept {
  recording& to = *recording_;
  const std::size_t needed = std::min(name.size(), detail::name_limit) +
                             std::min(backend.size(), detail::backend_limit) +
                             2 * detail::ellipsis.size();
  if (to.events.size() == to.events.capacity() || to.names_capacity - to.names_size < needed) {
    write_pending();
  }
  one.text = to.keep(name, one.name_size, detail::name_limit);
  to.keep(backend, one.backend_size, detail::backend_limit);
  to.events.push_back(one);  // within the capacity
}

inline std::uint32_t timeline::recording::keep(std::string_view name, std::uint16_t& size,
                                               std::size_t limit_of_it) noexcept {
  const std::size_t start = names_size;
  const auto add = [this](std::string_view part) {
    if (!part.empty()) std::memcpy(names.get() + names_size, part.data(), part.size());
    names_size += part.size();
  };
  const std::string_view kept = detail::utf8_prefix(name, limit_of_it);
  add(kept);
  if (kept.size() < name.size()) add(detail::ellipsis);
  size = static_cast<std::uint16_t>(names_size - start);
  return static_cast<std::uint32_t>(start);
}

// Pieces that fill the buffer, each of which leaves a whole file. When one cannot be written, the
// rest of this flush is lost without another try.
inline void timeline::write_pending() noexcept {
  recording& to = *recording_;
  if (to.events.empty()) return;
  to.text.clear();
  if (to.unreported > 0) {
    to.format_moment("events lost", to.since_anchor(steady_clock::now()), to.unreported);
  }
  std::size_t written = 0;
  for (std::size_t next = 0; next < to.events.size();) {
    while (next < to.events.size() &&
           to.text.room() > detail::largest_line + detail::trace_file::brackets.size()) {
      to.format(to.events[next++]);
    }
    if (const std::error_code failed = to.append()) {
      lose(to.events.size() - written, failed);
      break;
    }
    to.unreported = 0;
    written = next;
    to.text.clear();
  }
  to.events.clear();
  to.names_size = 0;
}

inline std::error_code timeline::recording::append() noexcept {
  text.raw(detail::trace_file::brackets);
  if (file.size() + text.size() <= limit) return file.append(text.view());
  if (!full) {
    text.clear();
    format_moment("the file has its full size", since_anchor(steady_clock::now()), 0);
    text.raw(detail::trace_file::brackets);
    full = !file.append(text.view());
  }
  return std::make_error_code(std::errc::file_too_large);
}

inline void timeline::lose(std::size_t events, const std::error_code& why) noexcept {
  recording& from = *recording_;
  dropped_ += events;
  from.unreported += events;
  // What gave a row its name may be among the lost.
  from.moments.named = false;
  for (auto& of_phase : from.lanes) {
    for (lane& row : of_phase) row.named = false;
  }
  if (from.told) return;
  from.told = true;
  try {
    log::write(log::level::warning, "timeline: cannot write to '" + from.path +
                                        "': " + why.message() + "; events are lost");
  } catch (const std::exception&) {
    from.told = false;
  }
}

inline void timeline::recording::format(const event& one) noexcept {
  const std::string_view name(names.get() + one.text, one.name_size);
  if (one.kind == event::moment) {
    format_moment(name, one.begin, 0);
    return;
  }
  const bool fused = one.kind == event::data_operation;
  const std::size_t of_phase = fused ? static_cast<std::size_t>(phase::data) : one.kind;
  const std::uint64_t row = find_row(of_phase, one);
  text.raw(",\n{\"name\":\"").escaped(name);
  text.raw(R"(","cat":")").raw(detail::phase_names[of_phase]);
  text.raw(R"(","ph":"X","ts":)").microseconds(one.begin);
  text.raw(R"(,"dur":)").microseconds(one.duration);
  text.raw(R"(,"pid":)").number(rank).raw(R"(,"tid":)").number(row);
  text.raw(R"(,"args":{"set":)").number(std::uint64_t{one.set});
  text.raw(R"(,"log_count":)").number(one.log_count);
  if (fused) {
    text.raw(R"(,"tensors":)").number(std::uint64_t{one.tensors});
  } else {
    text.raw(R"(,"epoch":)").number(one.epoch);
  }
  if (fused || one.bytes != 0) text.raw(R"(,"bytes":)").number(one.bytes);
  if (fused) {
    text.raw(R"(,"backend":")");
    text.escaped({name.data() + name.size(), one.backend_size}).raw("\"");
  }
  text.raw("}}");
}

inline void timeline::recording::format_moment(std::string_view name, std::int64_t when,
                                               std::uint64_t lost) noexcept {
  const std::uint64_t row = first_row() + 1;
  name_row(moments, row, "events", 0);
  text.raw(",\n{\"name\":\"").escaped(name);
  text.raw(R"(","cat":"event","ph":"i","s":"t","ts":)").microseconds(when);
  text.raw(R"(,"pid":)").number(rank).raw(R"(,"tid":)").number(row);
  text.raw(R"(,"args":{)");
  if (lost > 0) text.raw(R"("lost":)").number(lost);
  text.raw("}}");
}

// The first row with room; the last one takes what has no room anywhere.
inline std::uint64_t timeline::recording::find_row(std::size_t of_phase,
                                                   const event& one) noexcept {
  std::vector<lane>& rows = lanes[of_phase];
  const std::int64_t end = one.begin + one.duration;
  std::size_t at = 0;
  while (at < rows.size() && !rows[at].take(one.begin, end)) ++at;
  if (at == rows.size()) {
    if (at < detail::rows_per_phase) {
      rows.emplace_back().take(one.begin, end);  // within the capacity
    } else {
      --at;
    }
  }
  const std::uint64_t number = first_row() + 100 * (of_phase + 1) + at;
  name_row(rows[at], number, detail::phase_names[of_phase], at);
  return number;
}

inline void timeline::recording::name_row(lane& row, std::uint64_t number, std::string_view name,
                                          std::size_t nth) noexcept {
  if (row.named) return;
  row.named = true;
  text.raw(",\n").raw(R"({"name":"thread_name","ph":"M","pid":)").number(rank);
  text.raw(R"(,"tid":)").number(number).raw(R"(,"args":{"name":")").raw(name);
  if (nth > 0) text.raw(" ").number(std::uint64_t{nth + 1});
  text.raw("\"}},\n").raw(R"({"name":"thread_sort_index","ph":"M","pid":)").number(rank);
  text.raw(R"(,"tid":)").number(number);
  text.raw(R"(,"args":{"sort_index":)").number(number).raw("}}");
}

}  // namespace cohort::coordination
