// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// What the ranks of a scope tell each other, and how it looks as bytes.
///
/// A packet has, for each scope with something to say, the scope, a length and so many bytes of
/// messages; a message has its kind, the epoch of its sender, a length and a body. All structs here
/// are aggregates that core/wire.hpp writes and reads member by member. What only this layer knows
/// of them (ranks in range, not too many indices) `is_sound` checks.

#include <cohort/core/error.hpp>
#include <cohort/core/wire.hpp>
#include <cohort/graph/machine/content.hpp>
#include <cohort/graph/machine/definition.hpp>
#include <cohort/graph/machine/hash.hpp>
#include <cohort/graph/machine/names.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <vector>

namespace cohort::graph::machine {

enum class message_kind : std::uint8_t {
  digest,
  diff,
  list,
  want,
  val,
  offer,
  grant,
  credit,
  release,
  taken,
  cancel,
  up,
  down,
  ask,
  tell,
};
inline constexpr std::uint8_t message_kinds = 15;

/// [graph T1]
[[nodiscard]] constexpr bool is_counted(message_kind kind) noexcept {
  return kind < message_kind::up;
}
/// Whether a message from a later epoch waits until this rank gets there. [graph T7]
[[nodiscard]] constexpr bool waits_for_epoch(message_kind kind) noexcept {
  return kind < message_kind::up && kind != message_kind::grant && kind != message_kind::cancel;
}

struct site_text {
  std::string file;
  std::uint32_t line = 0;
};
struct name_text {
  std::string family;
  std::vector<std::int64_t> indices;
};

struct digest_message {
  task_sum sum;
};

/// Texts, names of families and of files, are told once in a list.
struct listed_name {
  std::uint32_t family = 0;  ///< number of the text
  std::vector<std::int64_t> indices;
};
struct listed_use {
  key value;
  use_kind use = use_kind::plain;
  listed_name name;
};
struct listed_task {
  key what;
  listed_name name;
  std::uint32_t function = 0;
  std::uint32_t result = 0;
  std::vector<std::byte> arguments;
  std::vector<listed_use> uses;
  std::uint32_t file = 0;  ///< number of the text
  std::uint32_t line = 0;
};
struct list_message {
  std::vector<std::string> texts;
  std::vector<listed_task> tasks;
};

struct told_taker {
  key what;
  bool await = false;
  name_text name;
  site_text site;
};
struct want_message {
  key value;
  std::optional<told_taker> taker;
};
struct taken_message {
  key value;
  told_taker winner;
  bool gone = false;
};
struct value_message {
  key value;
  bool pushed = false;
  std::optional<failure> failed;
  std::vector<std::byte> bytes;
  std::optional<value_hash> hash;
};
struct offer_message {
  key value;
  std::uint64_t size = 0;
  std::optional<value_hash> hash;
};
struct grant_message {
  key value;
  std::uint32_t tag = 0;
};
struct credit_message {
  std::uint64_t bytes = 0;
};
struct release_message {
  key value;
};
struct cancel_message {
  bool lost = false;  ///< then of `cause.rank`
  failure cause;
};

/// What a rank asks about values, and the answers (graph Q1).
struct ask_message {
  std::uint64_t number = 0;
  std::vector<key> values;
};
struct told_state {
  key value;
  std::uint8_t state = 0;
  std::vector<std::uint32_t> declarers;
  std::vector<std::string> missing;
  std::uint64_t age = 0;
};
struct tell_message {
  std::uint64_t number = 0;
  std::vector<told_state> states;
};

// ---- what is sound ----

[[nodiscard]] inline bool is_sound(const key& one, int ranks) noexcept {
  return one.home >= 0 && one.home < ranks;
}
[[nodiscard]] inline bool is_sound(const listed_name& one, const list_message& all) noexcept {
  return one.family < all.texts.size() && one.indices.size() <= most_indices;
}
[[nodiscard]] inline bool is_sound(use_kind one) noexcept { return one <= use_kind::after; }
[[nodiscard]] inline bool is_sound(const digest_message&, int) noexcept { return true; }
[[nodiscard]] inline bool is_sound(const credit_message&, int) noexcept { return true; }
[[nodiscard]] inline bool is_sound(const cancel_message& one, int ranks) noexcept {
  return !one.lost || (one.cause.rank >= 0 && one.cause.rank < ranks);
}
[[nodiscard]] inline bool is_sound(const list_message& all, int ranks) noexcept {
  return std::all_of(all.tasks.begin(), all.tasks.end(), [&](const listed_task& one) {
    return is_sound(one.what, ranks) && is_sound(one.name, all) && one.file < all.texts.size() &&
           std::all_of(
               one.uses.begin(), one.uses.end(),
               [&](const listed_use& each) {
                 return is_sound(each.value, ranks) && is_sound(each.use) &&
                        is_sound(each.name, all);
               });
  });
}
[[nodiscard]] inline bool is_sound(const told_taker& one, int ranks) noexcept {
  return is_sound(one.what, ranks) && one.name.indices.size() <= most_indices;
}
[[nodiscard]] inline bool is_sound(const want_message& one, int ranks) noexcept {
  return is_sound(one.value, ranks) && (!one.taker || is_sound(*one.taker, ranks));
}
[[nodiscard]] inline bool is_sound(const taken_message& one, int ranks) noexcept {
  return is_sound(one.value, ranks) && is_sound(one.winner, ranks);
}
[[nodiscard]] inline bool is_sound(const value_message& one, int ranks) noexcept {
  return is_sound(one.value, ranks) && (!one.failed || one.bytes.empty());
}
[[nodiscard]] inline bool is_sound(const offer_message& one, int ranks) noexcept {
  return is_sound(one.value, ranks);
}
[[nodiscard]] inline bool is_sound(const grant_message& one, int ranks) noexcept {
  return is_sound(one.value, ranks);
}
[[nodiscard]] inline bool is_sound(const release_message& one, int ranks) noexcept {
  return is_sound(one.value, ranks);
}
[[nodiscard]] inline bool is_sound(const ask_message&, int) noexcept { return true; }
[[nodiscard]] inline bool is_sound(const tell_message&, int) noexcept { return true; }

/// A message that its sender cannot have sent, or not now.
[[noreturn]] inline void out_of_place(const std::string& text) {
  throw std::system_error(make_error_code(errc::invalid_argument), "task graph: " + text);
}

/// All of the bytes, or std::system_error with a wire_errc.
template <class T>
[[nodiscard]] T read_message(std::span<const std::byte> body, int ranks) {
  wire::reader in(body);
  T one = in.get<T>();
  if (in.ok() && in.left() != 0) in.fail(wire_errc::trailing);
  if (in.ok() && !is_sound(one, ranks)) in.fail(wire_errc::bad_value);
  if (!in.ok()) throw std::system_error(in.error(), "task graph");
  return one;
}

}  // namespace cohort::graph::machine
