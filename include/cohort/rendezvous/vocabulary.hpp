// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The words of a rendezvous: keys and their text form, steps, errors, what is left, options.
///
///     const cohort::rendezvous_key key{.source = 0, .destination = 3, .name = "activations"};
///     const auto options = cohort::rendezvous_options().push_limit(16384).single_use();

#include <cohort/core/error.hpp>
#include <cohort/progress/operation.hpp>

#include <array>
#include <charconv>
#include <chrono>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <unordered_map>
#include <utility>

namespace cohort {

/// Which value: one named `name` from one rank to another, in one iteration of one frame of
/// a loop. Values of equal keys of one step follow each other, first in, first out.
///
/// A value is looked up by all fields but the incarnation. That is compared afterwards, if both
/// sides give one. The key borrows the name; what is called with a key copies it.
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

/// What `parse_key` has found: a key, or what is wrong.
struct parsed_key {
  owned_key key;
  std::error_code error;  ///< errc::invalid_argument
  const char* why = "";

  [[nodiscard]] explicit operator bool() const noexcept { return !error; }
};

/// `source;incarnation;destination;name;frame:iteration`, the incarnation in 16 hexadecimal
/// digits. In the name `;`, `:` and `%` are written as `%3b`, `%3a` and `%25`.
[[nodiscard]] std::string to_string(const rendezvous_key& key);

/// The key that `to_string` has written. Throws std::bad_alloc only.
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

/// The number of a step. A step that has been cleaned up never comes back.
using step_id = std::int64_t;

/// This rank has asked another one for a value, and the step was aborted there.
class step_aborted_error : public rank_error {
 public:
  step_aborted_error(int rank, std::error_code cause, const std::string& text)
      : rank_error(errc::aborted, {rank}, text), cause_(cause) {}

  /// The code it was aborted with there, if it had one whose category this program knows.
  [[nodiscard]] std::error_code cause() const noexcept { return cause_; }

 private:
  std::error_code cause_;
};

/// A value that nobody has received when a rendezvous closes, or a step is swept away.
struct leaked_value {
  step_id step = 0;
  owned_key key;
  std::size_t values = 0;  ///< under this key
  std::size_t bytes = 0;
};

/// A key with values or receives that wait on this rank.
struct waiting_key {
  owned_key key;
  std::size_t values = 0;
  std::size_t receives = 0;
  std::size_t bytes = 0;
};

/// How values have gone from this rank to others since the rendezvous was made.
struct rendezvous_statistics {
  std::uint64_t pushed = 0;   ///< before the destination asked for them
  std::uint64_t pulled = 0;   ///< in the answer to its request
  std::uint64_t granted = 0;  ///< large ones, from memory to memory
  std::uint64_t chunks = 0;   ///< messages of MPI that these took
};

namespace meeting {

struct step_state;
using step_ptr = std::shared_ptr<step_state>;

struct node_options {
  std::size_t push_limit = 4096;        ///< larger values are never pushed
  std::uint64_t credit = 1U << 20U;     ///< bytes pushed to one rank and not yet received there
  std::size_t inline_limit = 8192;      ///< larger values travel by offer and grant
  std::uint64_t largest = 1ULL << 40U;  ///< a larger offer is refused
  int tags = 32767;                     ///< most transfers to this rank at a time
  bool single_use = false;
};

}  // namespace meeting

/// How a rendezvous behaves on one rank. The ranks may differ, but for `chunk`.
class rendezvous_options {
 public:
  rendezvous_options() noexcept {}  // user-provided: g++ 12, see tests/compilers/gcc12.cpp

  /// Values of at most so many bytes are pushed to their destination before it asks; 0: only
  /// empty ones.
  rendezvous_options& push_limit(std::size_t bytes) noexcept {
    node.push_limit = bytes;
    return *this;
  }
  /// So many bytes may be pushed to one rank that it has not received yet. What exceeds them waits
  /// until it is asked for.
  rendezvous_options& credit(std::uint64_t bytes) noexcept {
    node.credit = bytes;
    return *this;
  }
  /// Larger values travel by request and grant, straight from and to their memory.
  rendezvous_options& inline_limit(std::size_t bytes) noexcept {
    node.inline_limit = bytes;
    return *this;
  }
  /// No memory is made for a value larger than this; its receive ends with errc::count_too_large.
  rendezvous_options& largest_value(std::uint64_t bytes) noexcept {
    node.largest = bytes;
    return *this;
  }
  /// The most bytes in one MPI message. Equal on all ranks, otherwise everything ends with
  /// mismatch_error.
  rendezvous_options& chunk(std::uint64_t bytes) noexcept {
    chunk_bytes = bytes;
    return *this;
  }
  /// So many large values may be on their way to this rank at a time.
  rendezvous_options& transfers(int most) noexcept {
    node.tags = most;
    return *this;
  }
  /// A second send or receive of a key within a step is errc::duplicate_key.
  rendezvous_options& single_use(bool yes = true) noexcept {
    node.single_use = yes;
    return *this;
  }
  /// Steps are cleaned up that nobody holds or waits in and that were last used so long ago. Zero:
  /// never.
  rendezvous_options& step_ttl(std::chrono::nanoseconds time) noexcept {
    ttl = time;
    return *this;
  }
  /// How long `close` and a destructor wait for the other ranks.
  rendezvous_options& leave_deadline(std::chrono::nanoseconds time) noexcept {
    leave_time = time;
    return *this;
  }
  /// Everything waits until `initialize`.
  rendezvous_options& deferred(bool yes = true) noexcept {
    is_deferred = yes;
    return *this;
  }

  meeting::node_options node;
  std::uint64_t chunk_bytes = 1U << 30U;
  std::chrono::nanoseconds ttl{0};
  std::chrono::nanoseconds leave_time = std::chrono::seconds(30);
  bool is_deferred = false;
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

namespace meeting {

/// A key with its hash, as it is looked up; below, as a map keeps it.
struct hashed_key {
  rendezvous_key key;
  std::size_t hash;
};
class stored_key {
 public:
  explicit stored_key(const hashed_key& from) : key_(from.key), hash_(from.hash) {}
  [[nodiscard]] hashed_key view() const noexcept { return {key_.view(), hash_}; }

 private:
  owned_key key_;
  std::size_t hash_;
};
struct stored_hash {
  using is_transparent = void;
  std::size_t operator()(const stored_key& key) const noexcept { return key.view().hash; }
  std::size_t operator()(const hashed_key& key) const noexcept { return key.hash; }
};
struct stored_equal {
  using is_transparent = void;
  static hashed_key of(const stored_key& key) noexcept { return key.view(); }
  static const hashed_key& of(const hashed_key& key) noexcept { return key; }
  template <class A, class B>
  bool operator()(const A& a, const B& b) const noexcept {
    return of(a).hash == of(b).hash && of(a).key.finds_same(of(b).key);
  }
};
/// Channels by key: looked up by the whole of it, the hash only finds the place.
template <class Channel>
using channel_map =
    std::unordered_map<stored_key, Channel, stored_hash, stored_equal,
                       progress::pool_allocator<std::pair<const stored_key, Channel>>>;

template <class Map>
[[nodiscard]] auto find_or_make(Map& map, const hashed_key& key) {
  const auto found = map.find(key);
  if (found != map.end()) return found;
  return map.try_emplace(stored_key(key)).first;
}

}  // namespace meeting
}  // namespace cohort
