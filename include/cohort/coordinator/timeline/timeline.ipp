// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The timeline's events, from the call that records one to the line in the file.

#include <cohort/coordinator/timeline.hpp>
#include <cohort/core/log.hpp>
#include <cohort/core/trace_file.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <utility>
#include <vector>

namespace cohort::coordination {

namespace detail {

inline constexpr std::array<std::string_view, 8> phase_names{
    "negotiate", "queue",       "pack",          "data",
    "unpack",    "device pack", "device reduce", "device unpack"};
inline constexpr std::size_t name_limit = 512;
inline constexpr std::size_t backend_limit = 64;
inline constexpr std::string_view ellipsis = "\xE2\x80\xA6";
// Names with each byte escaped, and what stands around them.
inline constexpr std::size_t largest_line = 6 * (name_limit + backend_limit) + 512;
static_assert(largest_line <= trace::trace_file::largest_text);

}  // namespace detail

struct timeline::event {
  static constexpr std::uint8_t moment = 255;  // else: a phase

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
  bool together = false;  // of `tensors` operations
};

struct timeline::recording {
  static_assert(sizeof(event) <= 64, "as the documentation says");

  recording(int at_rank, std::string path_of_file, const timeline_options& options)
      : path(std::move(path_of_file)),
        device(options.device.substr(0, detail::backend_limit)),
        rank(std::max(at_rank, 0)),
        text(trace::trace_file::page + 2 * detail::largest_line) {
    const std::size_t ring = std::clamp<std::size_t>(options.ring, 1, std::size_t{1} << 24);
    events.reserve(ring);
    names_capacity = std::max<std::size_t>(32 * ring, 1024);
    names = std::make_unique_for_overwrite<char[]>(names_capacity);
  }

  std::error_code open(int size, const timeline_options& options);
  [[nodiscard]] std::int64_t since_anchor(time when) const noexcept {
    if (when <= anchor) return 0;
    return std::chrono::duration_cast<std::chrono::nanoseconds>(when - anchor).count();
  }
  std::uint32_t keep(std::string_view name, std::uint16_t& size, std::size_t limit_of_it) noexcept;
  [[nodiscard]] std::error_code format(const event& one) noexcept;
  [[nodiscard]] std::error_code format_moment(std::string_view name, std::int64_t when,
                                              std::uint64_t lost) noexcept;
  [[nodiscard]] std::error_code name_row(std::uint64_t number, std::string_view name,
                                         std::size_t nth, bool on_device = false) noexcept;
  [[nodiscard]] std::error_code end_line() noexcept;
  [[nodiscard]] std::error_code write_lines() noexcept;
  void report_full() noexcept;

  std::string path;
  std::string device;
  int rank;
  time anchor;
  std::vector<event> events;
  std::unique_ptr<char[]> names;
  std::size_t names_size = 0;
  std::size_t names_capacity = 0;
  std::array<trace::viewer_rows, detail::phase_names.size()> rows;
  bool moments_named = false;  // the row for what happens at one moment
  trace::json_text text;       // lines for the page that is being filled, and one in the making
  std::size_t lines_end = 0;   // of the former
  std::size_t pages = 0;       // written
  trace::trace_file file;
  std::uint64_t unreported = 0;  // lost, and the file does not say so yet
  bool full = false;             // the limit has been reached, and the file says so
  bool told = false;             // the log has been told
};

COHORT_INLINE std::string timeline_path(std::string_view path, int rank, int size) {
  return trace::path_of_rank(path, rank, size);
}

COHORT_INLINE timeline::timeline(int rank, int size) noexcept : rank_(rank), size_(size) {}
COHORT_INLINE timeline::~timeline() { stop(); }

COHORT_INLINE std::size_t timeline::pending() const noexcept {
  return recording_ ? recording_->events.size() : 0;
}

COHORT_INLINE std::error_code timeline::start(const std::string& path,
                                              const timeline_options& options) {
  stop();
  try {
    auto fresh = std::make_unique<recording>(rank_, timeline_path(path, rank_, size_), options);
    const std::error_code failed = fresh->open(size_, options);
    if (failed) return failed;
    recording_ = std::move(fresh);
  } catch (const std::bad_alloc&) {
    return std::make_error_code(std::errc::not_enough_memory);
  }
  dropped_ = 0;
  return {};
}

COHORT_INLINE void timeline::stop() noexcept {
  if (!recording_) return;
  write_pending();
  recording_.reset();
}

COHORT_INLINE std::error_code timeline::recording::open(int size, const timeline_options& options) {
  const trace::origin began = trace::origin::now();
  anchor = time(std::chrono::nanoseconds(began.steady_ns));
  trace::write_head(text, rank, size, began, "device", device);
  const std::error_code failed = file.open(path, text.view(), options.growth, options.limit);
  text.clear();
  return failed;
}

COHORT_INLINE void timeline::record_span(phase what, std::string_view name, std::uint64_t epoch,
                                         std::uint32_t set, std::uint64_t log_count, time begin,
                                         time end, std::size_t bytes) noexcept {
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

COHORT_INLINE void timeline::record_together(phase what, std::string_view verb, std::uint32_t set,
                                             std::uint64_t log_count, std::size_t tensors,
                                             std::size_t bytes, time begin, time end,
                                             std::string_view backend) noexcept {
  event one;
  one.kind = static_cast<std::uint8_t>(what);
  one.together = true;
  one.begin = recording_->since_anchor(begin);
  one.duration = std::max<std::int64_t>(recording_->since_anchor(end) - one.begin, 0);
  one.set = set;
  one.log_count = log_count;
  one.tensors = static_cast<std::uint32_t>(tensors);
  one.bytes = bytes;
  record(one, verb, backend);
}

COHORT_INLINE void timeline::record_instant(std::string_view what, time when) noexcept {
  event one;
  one.kind = event::moment;
  one.begin = recording_->since_anchor(when);
  record(one, what, {});
}

COHORT_INLINE void timeline::record(event one, std::string_view name,
                                    std::string_view backend) noexcept {
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

COHORT_INLINE std::uint32_t timeline::recording::keep(std::string_view name, std::uint16_t& size,
                                                      std::size_t limit_of_it) noexcept {
  const std::size_t start = names_size;
  const auto add = [this](std::string_view part) {
    if (!part.empty()) std::memcpy(names.get() + names_size, part.data(), part.size());
    names_size += part.size();
  };
  const std::string_view kept = trace::utf8_prefix(name, limit_of_it);
  add(kept);
  if (kept.size() < name.size()) add(detail::ellipsis);
  size = static_cast<std::uint16_t>(names_size - start);
  return static_cast<std::uint32_t>(start);
}

// What fails costs all events that are not in the file yet: no other try is made in this flush.
COHORT_INLINE void timeline::write_pending() noexcept {
  recording& to = *recording_;
  if (to.events.empty()) return;
  std::error_code failed;
  if (to.full) {
    failed = std::make_error_code(std::errc::file_too_large);
  } else if (to.unreported > 0) {
    failed = to.format_moment("events lost", to.since_anchor(steady_clock::now()), to.unreported);
  }
  const std::size_t start = to.pages;
  std::size_t written = 0;
  for (std::size_t next = 0; next < to.events.size() && !failed; ++next) {
    const std::size_t before = to.pages;
    failed = to.format(to.events[next]);
    if (to.pages != before) written = next;  // those before it stood in that page or an earlier one
  }
  if (!failed) failed = to.write_lines();
  if (!failed) written = to.events.size();
  if (to.pages != start) to.unreported = 0;
  if (failed) lose(to.events.size() - written, failed);
  to.text.clear();
  to.lines_end = 0;
  to.events.clear();
  to.names_size = 0;
}

// Completes the line that is being made. If the page has no room for it, the page is written.
COHORT_INLINE std::error_code timeline::recording::end_line() noexcept {
  if (text.size() > file.room()) {
    std::error_code failed = write_lines();
    if (!failed) failed = file.turn_page();
    if (failed) return failed;
  }
  lines_end = text.size();
  return {};
}

COHORT_INLINE std::error_code timeline::recording::write_lines() noexcept {
  if (lines_end == 0) return {};
  const std::error_code failed = file.append(text.view().substr(0, lines_end));
  text.remove_prefix(lines_end);
  lines_end = 0;
  if (!failed) ++pages;
  return failed;
}

COHORT_INLINE void timeline::recording::report_full() noexcept {
  full = true;
  text.clear();
  lines_end = 0;
  if (!file.last_page() &&
      !format_moment("the file has its full size", since_anchor(steady_clock::now()), 0)) {
    static_cast<void>(write_lines());
  }
}

COHORT_INLINE void timeline::lose(std::size_t events, const std::error_code& why) noexcept {
  recording& from = *recording_;
  dropped_ += events;
  from.unreported += events;
  // What gave a row its name may be among the lost.
  from.moments_named = false;
  for (trace::viewer_rows& of_phase : from.rows) of_phase.forget_names();
  if (from.file.at_limit()) from.report_full();
  if (from.told) return;
  from.told = true;
  try {
    log::write(log::level::warning, "timeline: cannot write to '" + from.path +
                                        "': " + why.message() + "; events are lost");
  } catch (const std::exception&) {
    from.told = false;
  }
}

COHORT_INLINE std::error_code timeline::recording::format(const event& one) noexcept {
  const std::string_view name(names.get() + one.text, one.name_size);
  if (one.kind == event::moment) return format_moment(name, one.begin, 0);
  const std::size_t of_phase = one.kind;
  trace::viewer_rows& of = rows[of_phase];
  const std::size_t row = of.place(one.begin, one.begin + one.duration);
  const std::uint64_t number = trace::first_row(rank) + 100 * (of_phase + 1) + row;
  if (of.needs_name(row)) {
    const bool on_device = of_phase >= static_cast<std::size_t>(phase::device_pack);
    const auto failed = name_row(number, detail::phase_names[of_phase], row, on_device);
    if (failed) return failed;
  }
  text.raw(",\n{\"name\":\"").escaped(name);
  text.raw(R"(","cat":")").raw(detail::phase_names[of_phase]);
  text.raw(R"(","ph":"X","ts":)").microseconds(one.begin);
  text.raw(R"(,"dur":)").microseconds(one.duration);
  text.raw(R"(,"pid":)").number(std::int64_t{rank}).raw(R"(,"tid":)").number(number);
  text.raw(R"(,"args":{"set":)").number(std::uint64_t{one.set});
  text.raw(R"(,"log_count":)").number(one.log_count);
  if (one.together) {
    text.raw(R"(,"tensors":)").number(std::uint64_t{one.tensors});
  } else {
    text.raw(R"(,"epoch":)").number(one.epoch);
  }
  if (one.together || one.bytes != 0) text.raw(R"(,"bytes":)").number(one.bytes);
  if (of_phase == static_cast<std::size_t>(phase::data) && one.together) {
    text.raw(R"(,"backend":")");
    text.escaped({name.data() + name.size(), one.backend_size}).raw("\"");
  }
  text.raw("}}");
  return end_line();
}

COHORT_INLINE std::error_code timeline::recording::format_moment(std::string_view name,
                                                                 std::int64_t when,
                                                                 std::uint64_t lost) noexcept {
  const std::uint64_t number = trace::first_row(rank) + 1;
  if (!std::exchange(moments_named, true)) {
    if (const auto failed = name_row(number, "events", 0)) return failed;
  }
  text.raw(",\n{\"name\":\"").escaped(name);
  text.raw(R"(","cat":"event","ph":"i","s":"t","ts":)").microseconds(when);
  text.raw(R"(,"pid":)").number(std::int64_t{rank}).raw(R"(,"tid":)").number(number);
  text.raw(R"(,"args":{)");
  if (lost > 0) text.raw(R"("lost":)").number(lost);
  text.raw("}}");
  return end_line();
}

COHORT_INLINE std::error_code timeline::recording::name_row(std::uint64_t number,
                                                            std::string_view name, std::size_t nth,
                                                            bool on_device) noexcept {
  trace::write_row_name(text, rank, number, name, nth,
                        on_device ? std::string_view(device) : std::string_view());
  return end_line();
}

}  // namespace cohort::coordination
