// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// What the files of timelines are made of: their head, the rows in which viewers show spans, and
/// the file, which is valid JSON at nearly every moment, for who is killed.

#include <cohort/core/json_text.hpp>
#include <cohort/core/process.hpp>
#include <cohort/core/time.hpp>

#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace cohort::trace {

/// The file of one rank: "trace.json" becomes "trace.3.json", unless the rank is the only one.
[[nodiscard]] inline std::string path_of_rank(std::string_view path, int rank, int size) {
  std::string result(path);
  if (size <= 1) return result;
  const std::size_t name = path.rfind('/') + 1;  // 0 without a folder
  std::size_t dot = path.rfind('.');
  if (dot == std::string_view::npos || dot <= name) dot = path.size();
  return result.insert(dot, "." + std::to_string(rank));
}

/// Where and when a recording began: what puts the files of ranks side by side.
struct origin {
  std::string host;
  std::string boot;            ///< ranks with the same one share the steady clock
  std::int64_t steady_ns = 0;  ///< both clocks at the same moment
  std::int64_t system_ns = 0;

  [[nodiscard]] static origin now();
};

/// The rows of a rank have numbers of their own, since viewers mix up rows of the same number when
/// files are merged: 1000 for each rank.
[[nodiscard]] inline std::uint64_t first_row(int rank) noexcept {
  return (static_cast<std::uint64_t>(std::max(rank, 0)) + 1) * 1000;
}

/// The beginning of a file, up to the first of its events, before which the next ones put a comma.
/// `more` is one more member of the head, with its value: nothing if that is empty.
inline void write_head(json_text& text, int rank, int size, const origin& began,
                       std::string_view more, std::string_view value) noexcept {
  const auto number = static_cast<std::uint64_t>(std::max(rank, 0));
  text.raw(R"({"otherData":{"cohort_timeline":1,"rank":)").number(number);
  text.raw(R"(,"size":)").number(std::int64_t{size});
  text.raw(R"(,"host":")").escaped(began.host);
  text.raw(R"(","boot":")").escaped(began.boot);
  if (!value.empty()) text.raw("\",\"").raw(more).raw("\":\"").escaped(value);
  // As strings, since viewers would round them.
  text.raw(R"(","steady_ns":")").number(began.steady_ns);
  text.raw(R"(","system_ns":")").number(began.system_ns);
  text.raw("\"},\"traceEvents\":[\n");
  text.raw(R"({"name":"process_name","ph":"M","pid":)").number(number);
  text.raw(R"(,"tid":)").number(first_row(rank) + 1);
  text.raw(R"(,"args":{"name":"rank )").number(number).raw(R"("}})").raw(",\n");
  text.raw(R"({"name":"process_sort_index","ph":"M","pid":)").number(number);
  text.raw(R"(,"tid":)").number(first_row(rank) + 1);
  text.raw(R"(,"args":{"sort_index":)").number(number).raw("}}");
}

/// Gives a row its name, which is escaped already: "pack", or "pack 2" for the second of a kind
/// (`nth` is 1).
inline void write_row_name(json_text& text, int rank, std::uint64_t row, std::string_view name,
                           std::size_t nth, std::string_view more = {}) noexcept {
  const auto number = static_cast<std::uint64_t>(std::max(rank, 0));
  text.raw(",\n").raw(R"({"name":"thread_name","ph":"M","pid":)").number(number);
  text.raw(R"(,"tid":)").number(row).raw(R"(,"args":{"name":")").raw(name);
  if (nth > 0) text.raw(" ").number(std::uint64_t{nth + 1});
  if (!more.empty()) text.raw(", ").escaped(more);
  text.raw("\"}},\n").raw(R"({"name":"thread_sort_index","ph":"M","pid":)").number(number);
  text.raw(R"(,"tid":)").number(row);
  text.raw(R"(,"args":{"sort_index":)").number(row).raw("}}");
}

/// The rows of one kind of spans. Slices in one row must nest or be apart, or the viewer leaves
/// some out; so those that end together are stacked, and others that overlap get rows of their own.
class viewer_rows {
 public:
  static constexpr std::size_t most = 100;
  /// Perfetto shows at most 512 slices above one another.
  static constexpr std::uint32_t most_stacked = 100;

  viewer_rows() { rows_.reserve(most); }

  /// The first row with room. The last one takes what has no room anywhere.
  std::size_t place(std::int64_t begin, std::int64_t end) noexcept {
    for (std::size_t at = 0; at < rows_.size(); ++at) {
      if (rows_[at].take(begin, end)) return at;
    }
    if (rows_.size() < most) rows_.emplace_back().take(begin, end);  // within the capacity
    return rows_.size() - 1;
  }

  /// True for a row whose name has not been written; from now on it has.
  bool needs_name(std::size_t at) noexcept { return !std::exchange(rows_[at].named, true); }
  void forget_names() noexcept {
    for (row& each : rows_) each.named = false;
  }

 private:
  struct row {
    std::int64_t free_from = 0;                                   // end of what is before the stack
    std::int64_t end = std::numeric_limits<std::int64_t>::min();  // common to all of the stack
    std::uint32_t stacked = 0;
    bool named = false;

    bool take(std::int64_t from, std::int64_t to) noexcept {
      if (from >= end) {
        free_from = end;
        end = to;
        stacked = 1;
        return true;
      }
      if (to != end || from < free_from || stacked == most_stacked) return false;
      ++stacked;
      return true;
    }
  };

  std::vector<row> rows_;
};

/// The file always ends with the brackets that close it, and in front of them stand blanks, over
/// which events are written.
///
/// A kernel that is told to kill a process looks for that between the pages of a write. So a write
/// stays within a page, and what no longer fits goes to the next one. Only when the blanks are used
/// up must the brackets move, which takes two writes: between these a process can leave a file
/// without its end.
class trace_file {
 public:
  static constexpr std::string_view brackets = "\n]}\n";
  static constexpr std::size_t page = 4096;
  static constexpr std::size_t largest_text = page - brackets.size();

  trace_file() = default;
  ~trace_file() { close(); }
  trace_file(const trace_file&) = delete;
  trace_file& operator=(const trace_file&) = delete;

  /// Makes the file, or empties it, and writes its beginning. It grows by `growth` bytes at a time
  /// to at most `limit`, both in whole pages.
  [[nodiscard]] std::error_code open(const std::string& path, std::string_view beginning,
                                     std::uint64_t growth, std::uint64_t limit) noexcept;

  /// How many bytes the page that is being filled still takes.
  [[nodiscard]] std::size_t room() const noexcept {
    if (position_ >= end_) return 0;
    const std::uint64_t page_end = position_ / page * page + page;
    return static_cast<std::size_t>(std::min(page_end, end_ - brackets.size()) - position_);
  }

  /// Writes text for which there is room.
  [[nodiscard]] std::error_code append(std::string_view text) noexcept;

  /// Goes on with the next page, for which the file may have to grow. What fails can be tried
  /// again.
  [[nodiscard]] std::error_code turn_page() noexcept;

  [[nodiscard]] bool at_limit() const noexcept { return position_ >= end_ && end_ >= limit_; }

  /// One more page, whatever the limit, to say that it has been reached.
  [[nodiscard]] std::error_code last_page() noexcept { return grow(page); }

  /// Takes the blanks away and closes the file.
  void close() noexcept;

 private:
  [[nodiscard]] std::error_code write(std::uint64_t at, std::string_view text) const noexcept;
  [[nodiscard]] std::error_code blank(std::uint64_t from, std::uint64_t to) const noexcept;
  [[nodiscard]] std::error_code grow(std::uint64_t bytes) noexcept;
  void cut(std::uint64_t size) const noexcept;
  static std::error_code last_error() noexcept { return {errno, std::generic_category()}; }
  static std::uint64_t whole_pages(std::uint64_t bytes) noexcept {
    return (bytes + page - 1) / page * page;
  }

  int file_ = -1;
  std::uint64_t position_ = 0;  // where the next text goes
  std::uint64_t end_ = 0;       // behind the brackets; whole pages
  std::uint64_t growth_ = 0;
  std::uint64_t limit_ = 0;
};

inline origin origin::now() {
  origin result;
  result.host = process::host_name();
  if (std::FILE* file = std::fopen("/proc/sys/kernel/random/boot_id", "r")) {
    std::array<char, 64> text{};
    result.boot.assign(text.data(), std::fread(text.data(), 1, text.size(), file));
    std::fclose(file);
    while (result.boot.ends_with('\n')) result.boot.pop_back();
  }
  const auto before = steady_clock::now();
  const auto wall = std::chrono::system_clock::now();
  const auto anchor = before + (steady_clock::now() - before) / 2;
  const auto count = [](auto when) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(when.time_since_epoch()).count();
  };
  result.steady_ns = count(anchor);
  result.system_ns = count(wall);
  return result;
}

inline std::error_code trace_file::open(const std::string& path, std::string_view beginning,
                                        std::uint64_t growth, std::uint64_t limit) noexcept {
  close();
  do {
    file_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  } while (file_ < 0 && errno == EINTR);
  if (file_ < 0) return last_error();
  growth_ = std::max<std::uint64_t>(whole_pages(growth), page);
  limit_ = limit / page * page;
  const std::uint64_t least = whole_pages(beginning.size() + brackets.size());
  const std::uint64_t size = std::max(least, std::min(growth_, limit_));
  std::error_code failed = write(0, beginning);
  if (!failed) failed = blank(beginning.size(), size - brackets.size());
  if (!failed) failed = write(size - brackets.size(), brackets);
  if (failed) {
    ::close(file_);
    file_ = -1;
    return failed;
  }
  position_ = beginning.size();
  end_ = size;
  return failed;
}

inline std::error_code trace_file::append(std::string_view text) noexcept {
  const std::error_code failed = write(position_, text);
  if (!failed) {
    position_ += text.size();
  } else {
    // If this fails, too, nothing more can be done. The next text comes to the same place.
    static_cast<void>(blank(position_, position_ + text.size()));
  }
  return failed;
}

inline std::error_code trace_file::turn_page() noexcept {
  position_ = whole_pages(position_);
  if (position_ < end_) return {};
  const std::uint64_t bytes = std::min(growth_, limit_ - std::min(limit_, end_));
  if (bytes == 0) return std::make_error_code(std::errc::file_too_large);
  return grow(bytes);
}

// Blanks may follow the brackets, so only the two last writes leave a moment without brackets.
inline std::error_code trace_file::grow(std::uint64_t bytes) noexcept {
  const std::uint64_t last = end_ + bytes - brackets.size();
  std::error_code failed = blank(end_, end_ + bytes);
  if (!failed) failed = blank(end_ - brackets.size(), end_);
  if (!failed) failed = write(last, brackets);
  if (failed) {
    const bool restored = !write(end_ - brackets.size(), brackets);
    if (restored) cut(end_);
    return failed;
  }
  end_ += bytes;
  return failed;
}

inline void trace_file::close() noexcept {
  if (file_ < 0) return;
  if (position_ + brackets.size() < end_ && !write(position_, brackets)) {
    cut(position_ + brackets.size());
  }
  ::close(file_);
  file_ = -1;
}

inline std::error_code trace_file::write(std::uint64_t at, std::string_view text) const noexcept {
  while (!text.empty()) {
    const ssize_t written = ::pwrite(file_, text.data(), text.size(), static_cast<off_t>(at));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return last_error();
    if (written == 0) return std::make_error_code(std::errc::io_error);
    at += static_cast<std::uint64_t>(written);
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return {};
}

// Lines of a page's length, so that the file can be read line by line.
inline std::error_code trace_file::blank(std::uint64_t from, std::uint64_t to) const noexcept {
  static constexpr std::array<char, page> line = [] {
    std::array<char, page> result{};
    result.fill(' ');
    result.back() = '\n';
    return result;
  }();
  while (from < to) {
    std::array<iovec, 64> parts{};
    int count = 0;
    std::uint64_t at = from;
    while (at < to && count < static_cast<int>(parts.size())) {
      const std::uint64_t within = at % page;
      const std::uint64_t size = std::min(page - within, to - at);
      iovec& part = parts[static_cast<std::size_t>(count++)];
      part.iov_base = const_cast<char*>(line.data() + within);
      part.iov_len = static_cast<std::size_t>(size);
      at += size;
    }
    const ssize_t written = ::pwritev(file_, parts.data(), count, static_cast<off_t>(from));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return last_error();
    if (written == 0) return std::make_error_code(std::errc::io_error);
    from += static_cast<std::uint64_t>(written);
  }
  return {};
}

inline void trace_file::cut(std::uint64_t size) const noexcept {
  while (::ftruncate(file_, static_cast<off_t>(size)) != 0 && errno == EINTR) continue;
}

}  // namespace cohort::trace
