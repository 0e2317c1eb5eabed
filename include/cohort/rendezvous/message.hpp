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
#include <span>
#include <string>
#include <string_view>

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
};

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
  std::int64_t step = 0;  // push, request, taken
  std::string_view name;  // push, request
  std::uint64_t frame = 0;
  std::uint64_t iteration = 0;
  std::uint64_t incarnation = 0;            // request: that the source must have, or 0
  std::uint64_t number = 0;                 // push, request: of the value under its key
  std::uint64_t id = 0;                     // all but push and taken: of the request
  std::uint64_t type = 0;                   // push, value, offer
  bool dead = false;                        // push, value, offer
  std::uint64_t size = 0;                   // offer: bytes; taken: values; grant: the tag
  std::uint64_t credit = 0;                 // taken
  meeting::reason why = reason::withdrawn;  // refusal
  remote_cause cause;                       // of an abort
  std::span<const std::byte> bytes;         // push, value
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
  if (one.kind != record_kind::push && one.kind != record_kind::taken) out.varint(one.id);
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
    case record_kind::withdraw:
    case record_kind::pushed:
    case record_kind::decline:
      break;
  }
}

/// Reads the next record. What is not one leaves the reader with an error.
[[nodiscard]] inline record get_record(wire::reader& in) {
  record one;
  const auto key = [&] {
    one.step = in.signed_varint();
    one.name = in.text();
    one.frame = in.varint();
    one.iteration = in.varint();
    one.number = in.varint();
    if (one.name.empty() || one.name.size() > longest_key_name) in.fail(wire_errc::bad_value);
  };
  const auto kind_of_value = [&] {
    in.get(one.type);
    in.get(one.dead);
    if (one.type == 0 && !one.dead) in.fail(wire_errc::bad_value);
  };
  const auto contents = [&] {
    one.bytes = in.raw(in.count());
    if (one.type == 0 && !one.bytes.empty()) in.fail(wire_errc::bad_value);
  };
  const std::uint8_t kind = in.byte();
  if (kind < static_cast<std::uint8_t>(record_kind::push) ||
      kind > static_cast<std::uint8_t>(record_kind::taken)) {
    in.fail(wire_errc::bad_value);
    return one;
  }
  one.kind = static_cast<record_kind>(kind);
  if (one.kind != record_kind::push && one.kind != record_kind::taken) one.id = in.varint();
  switch (one.kind) {
    case record_kind::push:
      key();
      kind_of_value();
      contents();
      break;
    case record_kind::request:
      key();
      in.get(one.incarnation);
      break;
    case record_kind::value:
      kind_of_value();
      contents();
      break;
    case record_kind::offer:
      kind_of_value();
      one.size = in.varint();
      if (one.type == 0 || one.size == 0) in.fail(wire_errc::bad_value);
      break;
    case record_kind::refusal: {
      const std::uint8_t why = in.byte();
      if (why < static_cast<std::uint8_t>(reason::withdrawn) ||
          why > static_cast<std::uint8_t>(reason::stale)) {
        in.fail(wire_errc::bad_value);
        break;
      }
      one.why = static_cast<meeting::reason>(why);
      if (one.why == reason::aborted) {
        one.cause.category = in.text();
        one.cause.code = in.signed_varint();
        one.cause.text = in.text();
      }
      break;
    }
    case record_kind::grant:
      one.size = in.varint_up_to(INT32_MAX);
      break;
    case record_kind::taken:
      one.step = in.signed_varint();
      one.size = in.varint();
      one.credit = in.varint();
      break;
    case record_kind::withdraw:
    case record_kind::pushed:
    case record_kind::decline:
      break;
  }
  return one;
}

}  // namespace cohort::meeting
