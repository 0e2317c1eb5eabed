// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What the timeline's file is made of: JSON in a buffer of fixed size, the rows in which
/// viewers show it, and the file, which is valid JSON at nearly every moment, for who is killed.
/// Moments and phases enter the room `timeline`; a file leaves.

#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace cohort::coordination::detail {

/// Length of the well-formed UTF-8 sequence that `text` starts with; 0 if there is none. Overlong
/// forms, surrogates and what is above U+10FFFF are not well-formed.
[[nodiscard]] inline std::size_t utf8_length(std::string_view text) noexcept {
  const auto byte = [text](std::size_t at) {
    return at < text.size() ? static_cast<unsigned char>(text[at]) : 0U;
  };
  const auto follows = [&](std::size_t at, unsigned low = 0x80, unsigned high = 0xBF) {
    return byte(at) >= low && byte(at) <= high;
  };
  const unsigned first = byte(0);
  if (first < 0x80) return text.empty() ? 0 : 1;
  if (first >= 0xC2 && first <= 0xDF) return follows(1) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF) {
    const bool second = follows(1, first == 0xE0 ? 0xA0 : 0x80, first == 0xED ? 0x9F : 0xBF);
    return second && follows(2) ? 3 : 0;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    const bool second = follows(1, first == 0xF0 ? 0x90 : 0x80, first == 0xF4 ? 0x8F : 0xBF);
    return second && follows(2) && follows(3) ? 4 : 0;
  }
  return 0;
}

/// The first `most` bytes, or a few less, so that no character is cut in two.
[[nodiscard]] inline std::string_view utf8_prefix(std::string_view text,
                                                  std::size_t most) noexcept {
  if (text.size() <= most) return text;
  std::size_t end = most;
  while (end > 0 && most - end < 3 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80) {
    --end;
  }
  // A run of continuation bytes is no character, so nothing is to be kept together.
  return text.substr(0, utf8_length(text.substr(end)) > 1 ? end : most);
}

/// Appends to a buffer. Whoever appends sees to it that there is `room`: what does not fit is left
/// out.
class json_text {
 public:
  explicit json_text(std::size_t capacity)
      : bytes_(std::make_unique_for_overwrite<char[]>(capacity)), capacity_(capacity) {}

  [[nodiscard]] const char* data() const noexcept { return bytes_.get(); }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] std::size_t room() const noexcept { return capacity_ - size_; }
  [[nodiscard]] std::string_view view() const noexcept { return {bytes_.get(), size_}; }
  void clear() noexcept { size_ = 0; }
  void remove_prefix(std::size_t length) noexcept {
    std::memmove(bytes_.get(), bytes_.get() + length, size_ - length);
    size_ -= length;
  }

  /// As it is.
  json_text& raw(std::string_view text) noexcept {
    if (text.size() > room()) return *this;
    std::memcpy(bytes_.get() + size_, text.data(), text.size());
    size_ += text.size();
    return *this;
  }

  json_text& number(std::int64_t value) noexcept { return digits(value); }
  json_text& number(std::uint64_t value) noexcept { return digits(value); }

  /// Nanoseconds as the microseconds of the trace format. Viewers multiply by 1000 in floating
  /// point and cut, which loses a nanosecond now and then and lets slices overlap that do not; so a
  /// fifth of a nanosecond is added. Whoever cuts or rounds gets the right number.
  json_text& microseconds(std::int64_t nanoseconds) noexcept {
    number(nanoseconds / 1000);
    const auto rest = static_cast<unsigned>(nanoseconds % 1000);
    if (rest == 0) return *this;
    const std::array<char, 5> fraction{'.', static_cast<char>('0' + rest / 100),
                                       static_cast<char>('0' + rest / 10 % 10),
                                       static_cast<char>('0' + rest % 10), '2'};
    return raw({fraction.data(), fraction.size()});
  }

  /// The inside of a string: quotes, backslashes and control characters are escaped, and a byte
  /// that is not UTF-8 becomes U+FFFD. A byte becomes at most six.
  json_text& escaped(std::string_view text) noexcept {
    while (!text.empty()) {
      std::size_t plain = 0;
      while (plain < text.size() && is_plain(text[plain])) ++plain;
      raw(text.substr(0, plain));
      text.remove_prefix(plain);
      if (text.empty()) break;
      const std::size_t length = utf8_length(text);
      if (length > 1) {
        raw(text.substr(0, length));
      } else if (length == 0) {
        raw("\xEF\xBF\xBD");
      } else {
        escape(text.front());
      }
      text.remove_prefix(length == 0 ? 1 : length);
    }
    return *this;
  }

 private:
  static bool is_plain(char c) noexcept {
    const auto byte = static_cast<unsigned char>(c);
    return byte >= 0x20 && byte < 0x7F && c != '"' && c != '\\';
  }

  void escape(char c) noexcept {
    if (c == '"' || c == '\\') {
      raw({std::array<char, 2>{'\\', c}.data(), 2});
      return;
    }
    const auto byte = static_cast<unsigned char>(c);
    constexpr std::string_view hex = "0123456789abcdef";
    const std::array<char, 6> code{'\\', 'u', '0', '0', hex[byte / 16], hex[byte % 16]};
    raw({code.data(), code.size()});
  }

  template <class Integer>
  json_text& digits(Integer value) noexcept {
    char* const end = bytes_.get() + capacity_;
    const auto [last, failed] = std::to_chars(bytes_.get() + size_, end, value);
    if (failed == std::errc()) size_ = static_cast<std::size_t>(last - bytes_.get());
    return *this;
  }

  std::unique_ptr<char[]> bytes_;
  std::size_t capacity_;
  std::size_t size_ = 0;
};

/// The rows of one phase. Slices in one row must nest or be apart, or the viewer leaves some out;
/// so those that end together are stacked, and others that overlap get rows of their own.
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
