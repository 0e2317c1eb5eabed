// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// Text of JSON in a buffer of fixed size, and what it needs of UTF-8.

#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string_view>
#include <system_error>

namespace cohort::trace {

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

}  // namespace cohort::trace
