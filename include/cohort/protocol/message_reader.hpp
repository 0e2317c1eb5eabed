// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Whole messages: headers, packs, ids of the cache as bits or as differences, and readers
/// that hand the parts of a message to a visitor one by one.

#include <cohort/protocol/codec.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace cohort::protocol {

/// Ids, gathered in any order and without repetition, to be sent as a bit set or as a list of
/// differences, whichever is smaller. Its memory is kept from message to message.
class id_block {
 public:
  [[nodiscard]] bool empty() const noexcept { return count_ == 0; }
  /// Adds an id that is not there.
  void insert(std::uint32_t id);
  void clear() noexcept;
  /// Appends the part `ids`.
  void write(wire::writer& out) const;
  /// Calls `visit(id)` for each id of a part in ascending order, while the reader is sound.
  template <class Visit>
  static void read(wire::reader& in, Visit visit);

 private:
  template <class Visit>
  void for_each(Visit visit) const;

  std::vector<std::uint64_t> words_;
  std::size_t first_ = SIZE_MAX;  // the words that are not zero lie in [first_, last_]
  std::size_t last_ = 0;
  std::size_t count_ = 0;
};

// ---- implementation --------------------------------------------------------------------------

inline void id_block::insert(std::uint32_t id) {
  const std::size_t word = id / 64;
  const std::uint64_t bit = std::uint64_t{1} << (id % 64);
  if (word >= words_.size()) words_.resize(word + 1);
  words_[word] |= bit;
  first_ = std::min(first_, word);
  last_ = std::max(last_, word);
  ++count_;
}

inline void id_block::clear() noexcept {
  if (count_ != 0) {
    std::fill(words_.begin() + static_cast<std::ptrdiff_t>(first_),
              words_.begin() + static_cast<std::ptrdiff_t>(last_) + 1, 0);
  }
  first_ = SIZE_MAX;
  last_ = count_ = 0;
}

template <class Visit>
void id_block::for_each(Visit visit) const {
  for (std::size_t word = first_; word <= last_; ++word) {
    for (std::uint64_t bits = words_[word]; bits != 0; bits &= bits - 1) {
      visit(
          static_cast<std::uint32_t>(word * 64 + static_cast<std::size_t>(std::countr_zero(bits))));
    }
  }
}

inline void id_block::write(wire::writer& out) const {
  if (empty()) return;
  out.byte(static_cast<std::uint8_t>(part::ids));
  const std::size_t bytes = (last_ - first_ + 1) * 8;
  if (bytes + 4 <= count_) {  // a difference takes at least a byte
    out.varint(first_ + 1);
    out.varint(last_ - first_ + 1);
    for (std::size_t word = first_; word <= last_; ++word) out.put(words_[word]);
    return;
  }
  out.varint(0);
  out.varint(count_);
  std::uint32_t next = 0;
  for_each([&](std::uint32_t id) {
    out.varint(id - next);
    next = id + 1;
  });
}

template <class Visit>
void id_block::read(wire::reader& in, Visit visit) {
  const std::uint64_t first = in.varint_up_to(none / 64);
  if (first == 0) {
    const std::size_t count = in.count();
    std::uint64_t id = 0;
    for (std::size_t i = 0; i < count; ++i, ++id) {
      id += in.varint();
      if (id >= none) in.fail(wire_errc::bad_value);
      if (!in.ok()) return;
      visit(static_cast<std::uint32_t>(id));
    }
    return;
  }
  const std::size_t words = in.count(8);
  if (first - 1 + words > none / 64) in.fail(wire_errc::bad_value);
  for (std::size_t i = 0; i < words; ++i) {
    auto bits = in.get<std::uint64_t>();
    if (!in.ok()) return;
    for (; bits != 0; bits &= bits - 1) {
      visit(static_cast<std::uint32_t>((first - 1 + i) * 64 +
                                       static_cast<std::uint64_t>(std::countr_zero(bits))));
    }
  }
}

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

/// Appends an X for the pack, or for one of which the ids tell all.
void put_execute(wire::writer& out, std::span<const elected> pack);
void put_execute(wire::writer& out, std::span<const std::uint32_t> ids);

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
      case part::adjust:
        detail::read_part<adjustment>(in, visit);
        break;
      default:
        throw protocol_error(fault::malformed, "unknown part of a message on its way down");
    }
    visit.end_item();
  }
}

inline void put_execute(wire::writer& out, std::span<const std::uint32_t> ids) {
  out.byte(static_cast<std::uint8_t>(part::execute));
  out.varint(ids.size() << 1U | 1U);
  std::int64_t previous = 0;
  for (const std::uint32_t id : ids) {
    out.signed_varint(std::int64_t{id} - previous);
    previous = id;
  }
}

inline void put_execute(wire::writer& out, std::span<const elected> pack) {
  std::vector<std::uint32_t> ids;
  for (const elected& item : pack) {
    if (item.entry.id == none || !item.whole || item.define || item.known) break;
    ids.push_back(item.entry.id);
  }
  if (ids.size() == pack.size()) return put_execute(out, ids);
  out.byte(static_cast<std::uint8_t>(part::execute));
  out.varint(pack.size() << 1U);
  for (const elected& item : pack) out.put(item);
}

}  // namespace cohort::protocol
