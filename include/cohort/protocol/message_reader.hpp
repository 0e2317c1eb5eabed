// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Whole messages: headers, packs, and readers that hand the parts of a message to a visitor
/// one by one.

#include <cohort/protocol/codec.hpp>
#include <cohort/protocol/id_block.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace cohort::protocol {

/// The header of every message. `position` is the generation on the way up, and on the way down
/// the number of log items before those in the message.
struct header {
  bool up = false;
  std::uint64_t position = 0;
};

inline void put_header(wire::writer& out, const header& head) {
  out.byte(protocol_version);
  out.byte(head.up ? 'u' : 'd');
  out.varint(head.position);
}

/// Reads the header; throws protocol_error.
[[nodiscard]] header get_header(wire::reader& in);

/// Throws protocol_error if what has been read is not sound.
inline void require_sound(const wire::reader& in) {
  if (!in.ok()) throw protocol_error(fault::malformed, in.error().message());
}

/// Reads the parts of a message on its way up and calls `visit.on(...)` for each, or
/// `visit.on_id(id)`. The texts in them are views into the bytes. Throws protocol_error.
template <class Visitor>
void read_up(wire::reader& in, Visitor& visit);

/// The same for a message on its way down. Log items come as `visit.begin_item()`, the item, and
/// `visit.end_item()`; for X these are `on_elected(item, is_last)`, or `on_elected_id(id, is_last)`
/// where it is cached, complete and without news.
template <class Visitor>
void read_down(wire::reader& in, Visitor& visit);

/// Appends an X for the pack.
void put_execute(wire::writer& out, std::span<const elected> pack);

// ---- implementation --------------------------------------------------------------------------

inline header get_header(wire::reader& in) {
  const std::uint8_t version = in.byte();
  if (in.ok() && version != protocol_version) {
    throw protocol_error(
        fault::wrong_version,
        "version " + std::to_string(version) + " instead of " + std::to_string(protocol_version));
  }
  header head;
  const std::uint8_t way = in.byte();
  if (way != 'u' && way != 'd') in.fail(wire_errc::bad_value);
  head.up = way == 'u';
  head.position = in.varint();
  require_sound(in);
  return head;
}

namespace detail {

template <class T, class Visitor>
void read_part(wire::reader& in, Visitor& visit) {
  T value;
  in.get(value);
  require_sound(in);
  visit.on(value);
}

/// The number of a set.
inline std::uint32_t read_set(wire::reader& in) {
  const auto set = static_cast<std::uint32_t>(in.varint_up_to(none));
  require_sound(in);
  return set;
}

template <class Visitor>
void read_execute(wire::reader& in, Visitor& visit) {
  const std::uint64_t head = in.varint();
  const std::uint64_t size = head >> 1U;
  if (size == 0 || size > in.left()) in.fail(wire_errc::too_long);
  std::int64_t id = 0;
  for (std::uint64_t i = 0; i < size; ++i) {
    if ((head & 1U) != 0) {
      id += static_cast<std::int32_t>(in.signed_varint());
      if (id < 0 || id >= none) in.fail(wire_errc::bad_value);
      require_sound(in);
      visit.on_elected_id(static_cast<std::uint32_t>(id), i + 1 == size);
    } else {
      elected item;
      in.get(item);
      require_sound(in);
      visit.on_elected(item, i + 1 == size);
    }
  }
  require_sound(in);
}

}  // namespace detail

template <class Visitor>
void read_up(wire::reader& in, Visitor& visit) {
  while (in.left() != 0) {
    switch (static_cast<part>(in.byte())) {
      case part::ids:
        id_block::read(in, [&visit](std::uint32_t id) { visit.on_id(id); });
        break;
      case part::announce:
        detail::read_part<announcement>(in, visit);
        break;
      case part::contradiction:
        detail::read_part<contradiction>(in, visit);
        break;
      case part::withdraw:
        detail::read_part<withdrawal>(in, visit);
        break;
      case part::join:
        visit.on_join(detail::read_set(in));
        break;
      case part::leave:
        detail::read_part<leaving>(in, visit);
        break;
      case part::counts:
        detail::read_part<std::vector<start_count>>(in, visit);
        break;
      case part::stall_wanted:
        visit.on_stall_wanted();
        break;
      case part::answer:
        detail::read_part<stall_answer>(in, visit);
        break;
      case part::fault:
        detail::read_part<data_fault>(in, visit);
        break;
      case part::end:
        visit.on_end();
        break;
      default:
        throw protocol_error(fault::malformed, "unknown part of a message on its way up");
    }
    require_sound(in);
  }
}

template <class Visitor>
void read_down(wire::reader& in, Visitor& visit) {
  while (in.left() != 0) {
    const auto tag = static_cast<part>(in.byte());
    if (tag == part::query) {
      const std::uint64_t number = in.varint();
      const std::uint64_t budget = in.varint();
      require_sound(in);
      visit.on_query(number, budget);
      continue;
    }
    if (tag == part::answer) {
      detail::read_part<stall_answer>(in, visit);
      continue;
    }
    visit.begin_item();
    switch (tag) {
      case part::execute:
        detail::read_execute(in, visit);
        break;
      case part::fail:
        detail::read_part<failed>(in, visit);
        break;
      case part::join:
        visit.on_joined(detail::read_set(in));
        break;
      case part::generation: {
        const std::uint64_t keep = in.varint();
        require_sound(in);
        visit.on_generation(keep);
        break;
      }
      case part::leave:
        detail::read_part<leaving>(in, visit);
        break;
      case part::counts:
        detail::read_part<std::vector<start_count>>(in, visit);
        break;
      case part::close:
        detail::read_part<closing>(in, visit);
        break;
      case part::end:
        visit.on_set_ended(detail::read_set(in));
        break;
      default:
        throw protocol_error(fault::malformed, "unknown part of a message on its way down");
    }
    visit.end_item();
  }
}

inline void put_execute(wire::writer& out, std::span<const elected> pack) {
  bool plain = true;
  for (const elected& item : pack) {
    plain = plain && item.entry.id != none && item.whole && !item.define && !item.known;
  }
  out.byte(static_cast<std::uint8_t>(part::execute));
  out.varint(pack.size() << 1U | (plain ? 1U : 0U));
  std::int64_t previous = 0;
  for (const elected& item : pack) {
    if (plain) {
      out.signed_varint(std::int64_t{item.entry.id} - previous);
      previous = item.entry.id;
    } else {
      out.put(item);
    }
  }
}

}  // namespace cohort::protocol
