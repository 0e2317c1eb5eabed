// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What the ranks of a rendezvous tell each other, as bytes.
///
/// A message is a list of records. Its source and destination are those of the keys in it: a push
/// comes from a key's source, a request from its destination.

#include <cohort/core/error.hpp>
#include <cohort/core/wire.hpp>
#include <cohort/rendezvous/key.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
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
  watch,     ///< source: so many values of a step are yours in all; say if you will not take them
  over,      ///< destination: it takes no more values of a step, for this reason
  broken,    ///< I send and take nothing any more, for this reason
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
};

/// An error as it travels: with the category by name.
struct remote_cause {
  std::string_view category;
  std::int64_t code = 0;
  std::string_view text;
};

/// One record. Which fields count depends on the kind; texts and bytes lie in the message.
struct record {
  record_kind kind = record_kind::push;
  std::int64_t step = 0;  // push, request, taken, watch, over
  std::string_view name;  // push, request
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
  remote_cause cause;                       // of an abort; broken: its text
  std::span<const std::byte> bytes;         // push, value; broken: see identifiers_of
};

/// Appends a record to a message.
inline void put(wire::writer& out, const record& one) {
  const auto key = [&] {
    out.signed_varint(one.step);
    out.text(one.name);
    out.varint(one.frame);
    out.varint(one.iteration);
    out.varint(one.number);
  };
  const auto kind_of_value = [&] {
    out.put(one.type);
    out.put(one.dead);
  };
  out.byte(static_cast<std::uint8_t>(one.kind));
  if (has_request(one.kind)) out.varint(one.id);
  switch (one.kind) {
    case record_kind::push:
      key();
      kind_of_value();
      out.varint(one.bytes.size());
      out.raw(one.bytes);
      break;
    case record_kind::request:
      key();
      out.put(one.incarnation);
      break;
    case record_kind::value:
      kind_of_value();
      out.varint(one.bytes.size());
      out.raw(one.bytes);
      break;
    case record_kind::offer:
      kind_of_value();
      out.varint(one.size);
      break;
    case record_kind::refusal:
      out.byte(static_cast<std::uint8_t>(one.why));
      if (one.why == reason::aborted) {
        out.text(one.cause.category);
        out.signed_varint(one.cause.code);
        out.text(one.cause.text);
      }
      break;
    case record_kind::grant:
      out.varint(one.size);
      break;
    case record_kind::taken:
      out.signed_varint(one.step);
      out.varint(one.size);
      out.varint(one.credit);
      break;
    case record_kind::watch:
      out.signed_varint(one.step);
      out.varint(one.size);
      break;
    case record_kind::over:
      out.signed_varint(one.step);
      out.byte(static_cast<std::uint8_t>(one.why));
      break;
    case record_kind::broken:
      out.text(one.cause.text);
      out.varint(one.bytes.size());
      out.raw(one.bytes);
      break;
    case record_kind::withdraw:
    case record_kind::pushed:
    case record_kind::decline:
      break;
  }
}

struct ignore_fields {
  void operator()(const char*) const noexcept {}
};

/// Reads the next record. What is not one leaves the reader with an error. `field(name)` is called
/// before each field is read.
template <class Field = ignore_fields>
[[nodiscard]] inline record get_record(wire::reader& in, Field field = {}) {
  record one;
  const auto key = [&] {
    field("step");
    one.step = in.signed_varint();
    field("name");
    one.name = in.text();
    if (one.name.empty() || one.name.size() > longest_key_name) in.fail(wire_errc::bad_value);
    field("frame");
    one.frame = in.varint();
    field("iteration");
    one.iteration = in.varint();
    field("number");
    one.number = in.varint();
  };
  const auto kind_of_value = [&] {
    field("type");
    in.get(one.type);
    field("dead");
    in.get(one.dead);
    if (one.type == 0 && !one.dead) in.fail(wire_errc::bad_value);
  };
  const auto contents = [&] {
    field("value");
    one.bytes = in.raw(in.count());
    if (one.type == 0 && !one.bytes.empty()) in.fail(wire_errc::bad_value);
  };
  const auto why = [&] {
    field("reason");
    const std::uint8_t number = in.byte();
    if (number < static_cast<std::uint8_t>(reason::withdrawn) ||
        number > static_cast<std::uint8_t>(reason::stale)) {
      return in.fail(wire_errc::bad_value);
    }
    one.why = static_cast<reason>(number);
  };
  field("kind");
  const std::uint8_t kind = in.byte();
  if (kind < static_cast<std::uint8_t>(record_kind::push) ||
      kind > static_cast<std::uint8_t>(last_record_kind)) {
    in.fail(wire_errc::bad_value);
    return one;
  }
  one.kind = static_cast<record_kind>(kind);
  if (has_request(one.kind)) {
    field("request");
    one.id = in.varint();
  }
  switch (one.kind) {
    case record_kind::push:
      key();
      kind_of_value();
      contents();
      break;
    case record_kind::request:
      key();
      field("incarnation");
      in.get(one.incarnation);
      break;
    case record_kind::value:
      kind_of_value();
      contents();
      break;
    case record_kind::offer:
      kind_of_value();
      field("size");
      one.size = in.varint();
      if (one.type == 0 || one.size == 0) in.fail(wire_errc::bad_value);
      break;
    case record_kind::refusal:
      why();
      if (in.ok() && one.why == reason::aborted) {
        field("cause");
        one.cause.category = in.text();
        one.cause.code = in.signed_varint();
        one.cause.text = in.text();
      }
      break;
    case record_kind::grant:
      field("tag");
      one.size = in.varint_up_to(INT32_MAX);
      break;
    case record_kind::taken:
      field("step");
      one.step = in.signed_varint();
      field("count");
      one.size = in.varint();
      field("credit");
      one.credit = in.varint();
      break;
    case record_kind::watch:
      field("step");
      one.step = in.signed_varint();
      field("count");
      one.size = in.varint();
      break;
    case record_kind::over:
      field("step");
      one.step = in.signed_varint();
      why();
      break;
    case record_kind::broken:
      field("text");
      one.cause.text = in.text();
      field("requests");
      one.bytes = in.raw(in.count());
      if (one.bytes.size() % sizeof(std::uint64_t) != 0) in.fail(wire_errc::bad_value);
      break;
    case record_kind::withdraw:
    case record_kind::pushed:
    case record_kind::decline:
      break;
  }
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
