// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file A file of trace events that is valid JSON at nearly every moment, for who is killed.

#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>

namespace cohort::coordination::detail {

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

}  // namespace cohort::coordination::detail
