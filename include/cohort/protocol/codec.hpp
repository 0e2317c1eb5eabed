// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What each part of a message looks like as bytes, one function for both directions.

#include <cohort/core/wire.hpp>
#include <cohort/protocol/message.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>
#include <vector>

namespace cohort::protocol {

/// The version of the format, the first byte of every message.
inline constexpr std::uint8_t protocol_version = 2;

/// The first byte of each part of a message.
enum class part : std::uint8_t {
  ids = 1,        ///< complete announcements of cached entries by all below, epoch implied
  announce,       ///< A
  contradiction,  ///< K
  withdraw,       ///< W
  join,           ///< J, up: the subtree has joined; in the log: all have
  leave,          ///< V; in the log L
  counts,         ///< N; in the log D
  stall_wanted,   ///< S
  answer,         ///< R; down P
  fault,          ///< B
  end,            ///< E; in the log: a set has ended
  execute,        ///< X
  fail,           ///< F
  generation,     ///< G
  close,          ///< C
  query,          ///< Q
  adjust,         ///< O
};

namespace detail {

/// The largest epoch, rank and log count that a message may hold: far beyond any real one, and far
/// from where arithmetic overflows.
inline constexpr std::int64_t epoch_limit = std::int64_t{1} << 60;
inline constexpr std::uint64_t rank_limit = (std::uint64_t{1} << 31U) - 1;

template <class Archive, class T>
void compact(Archive& archive, T& value) {
  if constexpr (Archive::reads) {
    if constexpr (std::is_same_v<T, bool>) {
      value = archive.varint_up_to(1) != 0;
    } else if constexpr (std::is_signed_v<T>) {
      const std::int64_t number = archive.signed_varint();
      if (number > std::numeric_limits<T>::max() || number < std::numeric_limits<T>::min()) {
        archive.fail(wire_errc::bad_value);
      }
      value = static_cast<T>(number);
    } else {
      value = static_cast<T>(archive.varint_up_to(std::numeric_limits<T>::max()));
    }
  } else if constexpr (std::is_signed_v<T>) {
    archive.signed_varint(value);
  } else {
    archive.varint(value);
  }
}

template <class Archive>
void epoch_number(Archive& archive, epoch& value) {
  compact(archive, value);
  if constexpr (Archive::reads) {
    if (value > epoch_limit || value < -epoch_limit) archive.fail(wire_errc::bad_value);
  }
}

template <class Archive, class Enum>
void choice(Archive& archive, Enum& value, std::uint8_t count) {
  if constexpr (Archive::reads) {
    value = static_cast<Enum>(archive.varint_up_to(count - 1U));
  } else {
    archive.byte(static_cast<std::uint8_t>(value));
  }
}

template <class Archive, class Text>
void text(Archive& archive, Text& value) {
  if constexpr (Archive::reads) {
    value = archive.text();
  } else {
    archive.text(value);
  }
}

/// Elements one after the other; `each(archive, element)` for both directions.
template <class Archive, class T, class Each>
void list(Archive& archive, std::vector<T>& values, Each each) {
  if constexpr (Archive::reads) {
    values.clear();
    const std::size_t size = archive.count();
    for (std::size_t i = 0; i < size && archive.ok(); ++i) each(archive, values.emplace_back());
  } else {
    archive.varint(values.size());
    for (T& value : values) each(archive, value);
  }
}

/// An id plus one, or zero where the rest follows. Returns whether it was an id.
template <class Archive>
bool id_or_not(Archive& archive, std::uint32_t& id) {
  if constexpr (Archive::reads) {
    const std::uint64_t value = archive.varint_up_to(none);
    id = value == 0 ? none : static_cast<std::uint32_t>(value - 1);
  } else {
    archive.varint(id == none ? 0 : std::uint64_t{id} + 1);
  }
  return id != none;
}

}  // namespace detail

}  // namespace cohort::protocol

namespace cohort {

// Ranges as gaps and lengths, so that they come out in order whatever the bytes are.
template <class Archive>
void wire_fields(Archive& archive, rank_set& set) {
  if constexpr (Archive::reads) {
    set.clear();
    const std::size_t size = archive.count(2);
    std::uint64_t next = 0;
    for (std::size_t i = 0; i < size && archive.ok(); ++i) {
      const std::uint64_t first = next + archive.varint_up_to(protocol::detail::rank_limit);
      const std::uint64_t last = first + archive.varint_up_to(protocol::detail::rank_limit);
      if (last >= protocol::detail::rank_limit) return archive.fail(wire_errc::bad_value);
      if (archive.ok()) set.insert(static_cast<int>(first), static_cast<int>(last));
      next = last + 2;
    }
  } else {
    archive.varint(set.ranges().size());
    std::int64_t next = 0;
    for (const rank_set::range& range : set.ranges()) {
      archive.varint(static_cast<std::uint64_t>(range.first - next));
      archive.varint(static_cast<std::uint64_t>(range.last - range.first));
      next = std::int64_t{range.last} + 2;
    }
  }
}

}  // namespace cohort

namespace cohort::protocol {

// The fields that most operations leave alone are left out; the first byte says which.
template <class Archive>
void wire_fields(Archive& archive, signature& sig) {
  detail::choice(archive, sig.kind, op_kind_count);
  std::uint8_t present = 0;
  if constexpr (!Archive::reads) {
    const signature usual;
    present = static_cast<std::uint8_t>(
        (sig.space != usual.space ? 1 : 0) | (sig.flags != 0 ? 2 : 0) | (sig.root != -1 ? 4 : 0) |
        (sig.priority != 0 ? 8 : 0) | (sig.prescale != 1 || sig.postscale != 1 ? 16 : 0) |
        (sig.detail != 0 ? 32 : 0) | (!sig.members.empty() ? 64 : 0) |
        (!sig.places.empty() ? 128 : 0));
  }
  archive(present, sig.element);
  detail::compact(archive, sig.element_size);
  detail::compact(archive, sig.reduction);
  if ((present & 1U) != 0) detail::choice(archive, sig.space, 4);
  if ((present & 2U) != 0) archive(sig.flags);
  if ((present & 4U) != 0) detail::compact(archive, sig.root);
  if ((present & 8U) != 0) detail::compact(archive, sig.priority);
  if ((present & 16U) != 0) archive(sig.prescale, sig.postscale);
  if ((present & 32U) != 0) detail::compact(archive, sig.detail);
  if ((present & 64U) != 0) archive(sig.members);
  if ((present & 128U) != 0) archive(sig.places);
  if constexpr (Archive::reads) {
    std::array<std::int64_t, shape::max_dimensions> dimensions{};
    const std::size_t size = archive.varint_up_to(shape::max_dimensions);
    for (std::size_t i = 0; i < size; ++i) dimensions[i] = archive.signed_varint();
    sig.dimensions = shape(std::span<const std::int64_t>(dimensions.data(), size));
    if (sig.kind == op_kind::message && (sig.root < 0 || sig.detail > detail::rank_limit ||
                                         sig.detail == static_cast<std::uint64_t>(sig.root))) {
      archive.fail(wire_errc::bad_value);
    }
  } else {
    archive.varint(sig.dimensions.size());
    for (const std::int64_t dimension : sig.dimensions) archive.signed_varint(dimension);
  }
}

template <class Archive>
void wire_fields(Archive& archive, call_site& site) {
  detail::text(archive, site.file);
  detail::compact(archive, site.line);
}

template <class Archive>
void wire_fields(Archive& archive, side& value) {
  archive(value.sig, value.ranks, value.site);
}

template <class Archive>
void wire_fields(Archive& archive, wire_name& name) {
  if (detail::id_or_not(archive, name.id)) return;
  detail::compact(archive, name.set);
  detail::text(archive, name.text);
}

template <class Archive>
void wire_fields(Archive& archive, wire_entry& entry) {
  if (detail::id_or_not(archive, entry.id)) return;
  detail::compact(archive, entry.set);
  detail::text(archive, entry.text);
  archive(entry.sig, entry.site);
}

template <class Archive>
void wire_fields(Archive& archive, wire_operation& operation) {
  archive(operation.name);
  detail::epoch_number(archive, operation.number);
}

template <class Archive>
void wire_fields(Archive& archive, verdict& why) {
  detail::choice(archive, why.kind, failure_kind_count);
  archive(why.sides);
  detail::compact(archive, why.rank);
  detail::choice(archive, why.reason, withdrawal_reason_count);
  archive(why.asked, why.ready, why.missing, why.silent, why.unknown, why.ranks);
  detail::text(archive, why.text);
}

template <class Archive>
void wire_fields(Archive& archive, announcement& a) {
  std::uint8_t flags = 0;
  if constexpr (!Archive::reads) {
    flags = static_cast<std::uint8_t>((a.implied ? 1 : 0) | (a.partial ? 2 : 0) |
                                      (a.whole ? 4 : 0) | (a.sizes != 0 ? 8 : 0));
  }
  archive(flags, a.entry);
  if constexpr (Archive::reads) {
    a.implied = (flags & 1U) != 0;
    a.partial = (flags & 2U) != 0;
    a.whole = (flags & 4U) != 0;
    if (flags > 15 || (a.implied && a.partial)) archive.fail(wire_errc::bad_value);
  }
  if (!a.implied) detail::epoch_number(archive, a.number);
  if (!a.whole) archive(a.who);
  if ((flags & 8U) != 0) detail::compact(archive, a.sizes);
}

template <class Archive>
void wire_fields(Archive& archive, contradiction& k) {
  archive(k.operation, k.sides);
}

template <class Archive>
void wire_fields(Archive& archive, withdrawal& w) {
  archive(w.operation);
  detail::compact(archive, w.rank);
  detail::choice(archive, w.reason, withdrawal_reason_count);
}

template <class Archive>
void wire_fields(Archive& archive, leaving& v) {
  archive(v.ranks);
  std::uint8_t flags = 0;
  if constexpr (!Archive::reads) {
    flags = static_cast<std::uint8_t>(static_cast<unsigned>(v.how) | (v.set != none ? 2U : 0U) |
                                      (v.why.empty() ? 0U : 4U));
  }
  archive(flags);
  if constexpr (Archive::reads) {
    if (flags > 7) archive.fail(wire_errc::bad_value);
    v.how = static_cast<departure>(flags & 1U);
  }
  if ((flags & 2U) != 0) {
    detail::compact(archive, v.set);
    if constexpr (Archive::reads) {
      if (v.set == none) archive.fail(wire_errc::bad_value);
    }
  }
  archive(v.pending);
  detail::list(archive, v.stuck, [](auto& each, auto& set) { detail::compact(each, set); });
  if ((flags & 4U) != 0) {
    detail::text(archive, v.why);
    if constexpr (Archive::reads) {
      if (v.why.empty() || v.why.size() > longest_reason) archive.fail(wire_errc::bad_value);
    }
  }
}

template <class Archive>
void wire_fields(Archive& archive, start_count& count) {
  archive(count.group);
  detail::compact(archive, count.least);
  detail::compact(archive, count.most);
}

template <class Archive>
void wire_fields(Archive& archive, stall_row& row) {
  archive(row.operation, row.ready);
}

template <class Archive>
void wire_fields(Archive& archive, stall_answer& answer) {
  detail::compact(archive, answer.number);
  detail::compact(archive, answer.generation);
  archive(answer.rows);
  detail::list(archive, answer.joined, [](auto& each, auto& entry) {
    detail::compact(each, entry.first);
    each(entry.second);
  });
  archive(answer.silent, answer.unknown);
}

template <class Archive>
void wire_fields(Archive& archive, data_fault& fault) {
  detail::compact(archive, fault.rank);
  detail::compact(archive, fault.log_count);
  detail::text(archive, fault.text);
}

template <class Archive>
void wire_fields(Archive& archive, elected& item) {
  std::uint8_t flags = 0;
  if constexpr (!Archive::reads) {
    flags = static_cast<std::uint8_t>((item.define ? 1 : 0) | (item.known ? 2 : 0) |
                                      (item.whole ? 4 : 0));
  }
  archive(flags, item.entry);
  if constexpr (Archive::reads) {
    item.define = (flags & 1U) != 0;
    item.known = (flags & 2U) != 0;
    item.whole = (flags & 4U) != 0;
    if (flags > 7) archive.fail(wire_errc::bad_value);
  }
  if (!item.whole) detail::compact(archive, item.contributors);
}

template <class Archive>
void wire_fields(Archive& archive, failed& item) {
  archive(item.operation, item.why);
}

template <class Archive>
void wire_fields(Archive& archive, adjustment& item) {
  detail::list(archive, item.numbers,
               [](auto& each, auto& number) { detail::compact(each, number); });
}

template <class Archive>
void wire_fields(Archive& archive, closing& item) {
  archive(item.by_fault);
  if (item.by_fault) archive(item.cause);
}

/// A part of a message with its first byte.
template <class T>
void put_part(wire::writer& out, part tag, const T& value) {
  out.byte(static_cast<std::uint8_t>(tag));
  out.put(value);
}

}  // namespace cohort::protocol
