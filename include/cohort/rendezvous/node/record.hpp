// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What the ranks of a rendezvous tell each other, as bytes.
///
/// The room `node` owns what one rank of a rendezvous knows and decides. Calls and messages enter;
/// messages, transfers to be made and the ends of receivers leave. It knows no MPI, no threads and
/// no clock.
///
/// A message is a list of records. A record does not name both ranks of its key: a push comes
/// from the key's source, a request from its destination.
///
///     put(out, {.kind = record_kind::withdraw, .id = 7});
///     const record one = get_record(in);  // in.ok() tells whether it is one

#include <cohort/core/error.hpp>
#include <cohort/core/wire.hpp>
#include <cohort/rendezvous/vocabulary.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cohort::meeting {

enum class record_kind : std::uint8_t {
  push = 1,  ///< source: a value that nobody has asked for yet
  request,   ///< destination: send me this value, when you have it
  withdraw,  ///< destination: I do not need it any more. The request is answered all the same
  value,     ///< source, an answer: here it is
  offer,     ///< source, an answer: it is large; where do you want it?
  pushed,    ///< source, an answer: it is on its way
  refusal,   ///< source, an answer: there will be none, for this reason
  grant,     ///< destination: send what you have offered under this tag
  decline,   ///< destination: keep what you have offered
  taken,     ///< destination: so many values of a step have been received; take credit back
  watch,   ///< source: so many values of a step are yours in all; answer if you will not take them
  over,    ///< destination: it takes no more values of a step, for this reason
  broken,  ///< I send and take nothing any more, for this reason
};
inline constexpr record_kind last_record_kind = record_kind::broken;

/// Whether a record is about one request.
[[nodiscard]] constexpr bool has_request(record_kind kind) noexcept {
  return kind != record_kind::push && kind < record_kind::taken;
}

/// Why a value will not come.
enum class reason : std::uint8_t {
  withdrawn = 1,  ///< as asked for
  aborted,        ///< the step, there; the cause follows
  cleaned,        ///< the step, there
  closed,         ///< the rank sends nothing any more
  stale,          ///< it is another process than the key says
  left,           ///< as closed, because of what follows
};

/// An error as it travels: with the category by name.
struct remote_cause {
  std::string_view category{};
  std::int64_t code = 0;
  std::string_view text{};
};

/// One record. Which fields count depends on the kind; texts and bytes lie in the message.
struct record {
  record_kind kind = record_kind::push;
  std::int64_t step = 0;    // push, request, taken, watch, over
  std::string_view name{};  // push, request
  std::uint64_t frame = 0;
  std::uint64_t iteration = 0;
  std::uint64_t incarnation = 0;            // request: that the source must have, or 0
  std::uint64_t number = 0;                 // push, request: of the value under its key
  std::uint64_t id = 0;                     // has_request: of the request
  std::uint64_t type = 0;                   // push, value, offer
  bool dead = false;                        // push, value, offer
  std::uint64_t size = 0;                   // offer: bytes; taken, watch: values; grant: the tag
  std::uint64_t credit = 0;                 // taken
  meeting::reason why = reason::withdrawn;  // refusal, over
  remote_cause cause{};                     // of an abort; left, broken: its text
  std::span<const std::byte> bytes{};       // push, value; broken: see identifiers_of
};

/// A record about a value of that key.
[[nodiscard]] inline record record_of(record_kind kind, std::int64_t step,
                                      const rendezvous_key& key, std::uint64_t number) noexcept {
  return {.kind = kind,
          .step = step,
          .name = key.name,
          .frame = key.frame,
          .iteration = key.iteration,
          .number = number};
}
/// The key that it is about.
[[nodiscard]] inline rendezvous_key key_of(const record& one, int source,
                                           int destination) noexcept {
  return {.source = source,
          .destination = destination,
          .name = one.name,
          .frame = one.frame,
          .iteration = one.iteration};
}

/// Writes the fields of a record, whose names do not travel.
struct record_writer {
  wire::writer& out;
  static bool ok() noexcept { return true; }
  static void require(bool) noexcept {}  // what is written is right
  template <class Choice>
  void choice(const char*, Choice value, Choice) {
    out.byte(static_cast<std::uint8_t>(value));
  }
  void number(const char*, std::uint64_t value) { out.varint(value); }
  void signed_number(const char*, std::int64_t value) { out.signed_varint(value); }
  template <class Value>
  void whole(const char*, Value value) {
    out.put(value);
  }
  void text(const char*, std::string_view value) { out.text(value); }
  void bytes(const char*, std::span<const std::byte> value) {
    out.varint(value.size());
    out.raw(value);
  }
};

/// Reads them. `field(name)` is called before each.
template <class Field>
struct record_reader {
  wire::reader& in;
  Field field;
  [[nodiscard]] bool ok() const noexcept { return in.ok(); }
  void require(bool right) {
    if (!right) in.fail(wire_errc::bad_value);
  }
  template <class Choice>
  void choice(const char* name, Choice& value, Choice last) {
    field(name);
    const std::uint8_t number = in.byte();
    const bool is_one = number >= 1 && number <= static_cast<std::uint8_t>(last);
    require(is_one);
    if (is_one) value = static_cast<Choice>(number);
  }
  void number(const char* name, std::uint64_t& value) {
    field(name);
    value = in.varint();
  }
  void signed_number(const char* name, std::int64_t& value) {
    field(name);
    value = in.signed_varint();
  }
  template <class Value>
  void whole(const char* name, Value& value) {
    field(name);
    in.get(value);
  }
  void text(const char* name, std::string_view& value) {
    field(name);
    value = in.text();
  }
  void bytes(const char* name, std::span<const std::byte>& value) {
    field(name);
    value = in.raw(in.count());
  }
};

/// What a record consists of, for both.
template <class Fields, class Record>
void for_each_field(Fields& fields, Record& one) {
  const auto step = [&] { fields.signed_number("step", one.step); };
  const auto key = [&] {
    step();
    fields.text("name", one.name);
    fields.require(!one.name.empty() && one.name.size() <= longest_key_name);
    fields.number("frame", one.frame);
    fields.number("iteration", one.iteration);
    fields.number("number", one.number);
  };
  const auto kind_of_value = [&] {
    fields.whole("type", one.type);
    fields.whole("dead", one.dead);
    fields.require(one.type != 0 || one.dead);
  };
  const auto value = [&] {
    kind_of_value();
    fields.bytes("value", one.bytes);
    fields.require(one.type != 0 || one.bytes.empty());
  };
  fields.choice("kind", one.kind, last_record_kind);
  if (!fields.ok()) return;
  if (has_request(one.kind)) fields.number("request", one.id);
  switch (one.kind) {
    case record_kind::push:
      key();
      value();
      break;
    case record_kind::request:
      key();
      fields.whole("incarnation", one.incarnation);
      break;
    case record_kind::value:
      value();
      break;
    case record_kind::offer:
      kind_of_value();
      fields.number("size", one.size);
      fields.require(one.type != 0 && one.size != 0);
      break;
    case record_kind::refusal:
      fields.choice("reason", one.why, reason::left);
      if (!fields.ok() || (one.why != reason::aborted && one.why != reason::left)) break;
      if (one.why == reason::aborted) {
        fields.text("cause", one.cause.category);
        fields.signed_number("cause", one.cause.code);
      }
      fields.text("cause", one.cause.text);
      fields.require(one.why == reason::aborted ||
                     one.cause.text.size() <= longest_reason);  // [rendezvous C1]
      break;
    case record_kind::grant:
      fields.number("tag", one.size);
      fields.require(one.size <= INT32_MAX);
      break;
    case record_kind::taken:
      step();
      fields.number("count", one.size);
      fields.number("credit", one.credit);
      break;
    case record_kind::watch:
      step();
      fields.number("count", one.size);
      break;
    case record_kind::over:
      step();
      fields.choice("reason", one.why, reason::stale);
      break;
    case record_kind::broken:
      fields.text("text", one.cause.text);
      fields.bytes("requests", one.bytes);
      fields.require(one.bytes.size() % sizeof(std::uint64_t) == 0);
      break;
    case record_kind::withdraw:
    case record_kind::pushed:
    case record_kind::decline:
      break;
  }
}

/// Appends a record to a message.
inline void put(wire::writer& out, const record& one) {
  record_writer fields{out};
  for_each_field(fields, one);
}

struct ignore_fields {
  void operator()(const char*) const noexcept {}
};

/// Reads the next record. What is not one leaves the reader with an error. `field(name)` is called
/// before each field is read.
template <class Field = ignore_fields>
[[nodiscard]] record get_record(wire::reader& in, Field field = {}) {
  record one;
  record_reader<Field> fields{in, std::move(field)};
  for_each_field(fields, one);
  return one;
}

/// What is wrong with bytes that `get_record` refuses: the record and the field, for errors.
[[nodiscard]] inline std::string explain_record(std::span<const std::byte> bytes) {
  static constexpr const char* kinds[] = {"",      "push",   "request", "withdraw", "value",
                                          "offer", "pushed", "refusal", "grant",    "decline",
                                          "taken", "watch",  "over",    "broken"};
  wire::reader in(bytes);
  const char* field = "";
  const record one = get_record(in, [&](const char* name) {
    if (in.ok()) field = name;
  });
  std::string text = "field '";
  text += field;
  if (std::string_view(field) != "kind") {
    text += "' of a record '";
    text += kinds[static_cast<std::size_t>(one.kind)];
  }
  text += "': ";
  text += in.error().message();
  return text;
}

/// The requests in the bytes of a record `broken`: values that are on their way all the same.
[[nodiscard]] inline std::vector<std::uint64_t> identifiers_of(const record& one) {
  std::vector<std::uint64_t> ids(one.bytes.size() / sizeof(std::uint64_t));
  if (!ids.empty()) std::memcpy(ids.data(), one.bytes.data(), one.bytes.size());
  return ids;
}

}  // namespace cohort::meeting
