// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The key under which a value is sent and received, and its text form.

#include <cohort/core/error.hpp>
#include <cohort/progress/operation.hpp>

#include <array>
#include <charconv>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <system_error>

namespace cohort {

/// Which value: an edge named `name` from one rank to another, in one iteration of one frame of
/// a loop. Values of equal keys of one step follow each other, first in, first out.
///
/// All fields count when a value is looked up, but the incarnation: that is compared afterwards,
/// where both sides give one. The key borrows the name; what is called with a key copies it.
struct rendezvous_key {
  int source = 0;                        ///< the rank that sends
  std::uint64_t source_incarnation = 0;  ///< of that process, see rendezvous::incarnation; 0: any
  int destination = 0;                   ///< the rank that receives
  std::string_view name;                 ///< 1 to 65 535 bytes
  std::uint64_t frame = 0;
  std::uint64_t iteration = 0;

  /// Whether both find the same value.
  [[nodiscard]] bool finds_same(const rendezvous_key& other) const noexcept {
    return source == other.source && destination == other.destination && frame == other.frame &&
           iteration == other.iteration && name == other.name;
  }
};

/// A key with a name of its own.
class owned_key {
 public:
  owned_key() noexcept {}
  explicit owned_key(const rendezvous_key& key) : key_(key), name_(key.name) {}

  [[nodiscard]] rendezvous_key view() const noexcept {
    rendezvous_key result = key_;
    result.name = name_;
    return result;
  }
  operator rendezvous_key() const noexcept { return view(); }  // NOLINT: it is one

 private:
  using text = std::basic_string<char, std::char_traits<char>, progress::pool_allocator<char>>;

  rendezvous_key key_;  // but for the name
  text name_;
};

/// What \ref parse_key has found: a key, or what is wrong.
struct parsed_key {
  owned_key key;
  std::error_code error;  ///< errc::invalid_argument
  const char* why = "";

  [[nodiscard]] explicit operator bool() const noexcept { return !error; }
};

/// `source;incarnation;destination;name;frame:iteration`, the incarnation in 16 hexadecimal
/// digits. In the name `;`, `:` and `%` are written as `%3b`, `%3a` and `%25`.
[[nodiscard]] std::string to_string(const rendezvous_key& key);

/// The key that \ref to_string has written. Throws nothing (but for want of memory).
[[nodiscard]] parsed_key parse_key(std::string_view text);

/// The longest name of a key, in bytes.
inline constexpr std::size_t longest_key_name = 65535;

/// Throws errc::invalid_argument if its name is empty or too long.
inline void check_name(const rendezvous_key& key) {
  if (!key.name.empty() && key.name.size() <= longest_key_name) return;
  throw error(errc::invalid_argument, "the name of a key has 1 to 65535 bytes");
}

/// Spreads keys over a table. Two keys with one hash are still two keys.
struct key_hash {
  [[nodiscard]] std::size_t operator()(const rendezvous_key& key) const noexcept {
    std::uint64_t h = std::hash<std::string_view>()(key.name);
    const auto mix = [&h](std::uint64_t value) {
      h = (h ^ value) * 0x9e3779b97f4a7c15U;
      h ^= h >> 29U;
    };
    mix(static_cast<std::uint64_t>(static_cast<std::uint32_t>(key.source)) << 32U |
        static_cast<std::uint32_t>(key.destination));
    mix(key.frame * 0xbf58476d1ce4e5b9U ^ key.iteration);
    return static_cast<std::size_t>(h);
  }
};

// ---- implementation ------------------------------------------------------------------------

inline std::string to_string(const rendezvous_key& key) {
  constexpr const char* digits = "0123456789abcdef";
  std::string text = std::to_string(key.source);
  text += ';';
  for (unsigned shift = 64; shift != 0; shift -= 4) {
    text += digits[key.source_incarnation >> (shift - 4) & 15U];
  }
  text += ';';
  text += std::to_string(key.destination);
  text += ';';
  for (const char c : key.name) {
    if (c == ';' || c == ':' || c == '%') {
      text += '%';
      text += digits[static_cast<unsigned char>(c) >> 4U];
      text += digits[static_cast<unsigned char>(c) & 15U];
    } else {
      text += c;
    }
  }
  text += ';';
  text += std::to_string(key.frame);
  text += ':';
  text += std::to_string(key.iteration);
  return text;
}

namespace meeting {

/// All of `text` as a number.
template <class Number>
[[nodiscard]] bool parse_number(std::string_view text, Number& value, int base = 10) noexcept {
  const char* const end = text.data() + text.size();
  const auto [stop, bad] = std::from_chars(text.data(), end, value, base);
  return bad == std::errc() && stop == end && !text.empty() && text[0] != '-';
}

/// Takes the text before the next `mark`; false if there is none.
[[nodiscard]] inline bool cut(std::string_view& text, char mark, std::string_view& part) noexcept {
  const std::size_t at = text.find(mark);
  if (at == std::string_view::npos) return false;
  part = text.substr(0, at);
  text.remove_prefix(at + 1);
  return true;
}

/// The name without its escapes; false if one is broken.
[[nodiscard]] inline bool unescape(std::string_view text, std::string& name) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      name += text[i];
      continue;
    }
    unsigned value = 0;
    if (i + 2 >= text.size() || !parse_number(text.substr(i + 1, 2), value, 16)) return false;
    name += static_cast<char>(value);
    i += 2;
  }
  return true;
}

}  // namespace meeting

inline parsed_key parse_key(std::string_view text) {
  const auto wrong = [](const char* why) {
    parsed_key result;
    result.error = errc::invalid_argument;
    result.why = why;
    return result;
  };
  rendezvous_key key;
  std::array<std::string_view, 4> part;
  for (std::string_view& each : part) {
    if (!meeting::cut(text, ';', each)) return wrong("a key has five parts");
  }
  if (text.find(';') != std::string_view::npos) return wrong("a key has five parts");
  if (!meeting::parse_number(part[0], key.source)) return wrong("the source is not a rank");
  if (part[1].size() != 16 || !meeting::parse_number(part[1], key.source_incarnation, 16)) {
    return wrong("the incarnation is not 16 hexadecimal digits");
  }
  if (!meeting::parse_number(part[2], key.destination)) {
    return wrong("the destination is not a rank");
  }
  std::string name;
  if (part[3].find(':') != std::string_view::npos || !meeting::unescape(part[3], name)) {
    return wrong("the name is not escaped as it must be");
  }
  if (name.empty() || name.size() > longest_key_name) {
    return wrong("the name is empty or too long");
  }
  std::string_view frame;
  if (!meeting::cut(text, ':', frame) || !meeting::parse_number(frame, key.frame) ||
      !meeting::parse_number(text, key.iteration)) {
    return wrong("frame and iteration are not two numbers");
  }
  key.name = name;
  parsed_key result;
  result.key = owned_key(key);
  return result;
}

}  // namespace cohort
