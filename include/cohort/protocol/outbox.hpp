// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What waits to be sent to the neighbours: facts for the parent, the log for the children.

#include <cohort/protocol/message_reader.hpp>
#include <cohort/protocol/name_table.hpp>
#include <cohort/protocol/readiness_table.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace cohort::protocol {

/// A leave that has not been sent: equal ones are merged into one for several ranks.
struct waiting_leave {
  rank_set ranks;
  departure how = departure::drained;
  std::vector<std::pair<name_index, epoch>> pending;
  std::vector<std::uint32_t> stuck;
  std::uint32_t set = none;
  std::string why{};
};

/// The facts for the parent. Announcements of cached entries wait as bits, other facts as the bytes
/// that they will be; what may still change (a first sight, a leave) waits as it is.
///
/// A message has the bits first, in the order of ids, so a complete announcement waits as a bit
/// only if it is the first of its name in the message: the receiver counts them in this order
/// (protocol T2).
template <class Any = void>
class basic_outbox {
 public:
  /// A: complete. `who` null: the whole subtree brings data.
  void complete(name_table& names, entry_index entry, epoch number, const rank_set* who,
                std::uint64_t sizes);
  /// A on first sight; left out if it is complete or decided before the message goes (protocol A2).
  void first_sight(record_index index, name_index name, epoch number) {
    sights_.push_back({index, name, number});
  }
  /// Anything else, in order.
  template <class T>
  void put(part tag, const T& value) {
    wire::writer out(bytes_);
    put_part(out, tag, value);
  }
  [[nodiscard]] wire::writer writer() noexcept { return wire::writer(bytes_); }
  void leave(waiting_leave one);
  /// E, which is the last of all.
  void end() noexcept { end_ = true; }
  void clear();

  [[nodiscard]] bool empty() const noexcept {
    return ids_.empty() && bytes_.empty() && sights_.empty() && leaves_.empty() && !end_;
  }
  /// Appends the message to `out` and forgets it; false if there is nothing to send after all.
  bool take(const name_table& names, const readiness_table& table,
            const std::vector<set_in_tree>& sets, std::uint64_t generation,
            std::vector<std::byte>& out);

 private:
  struct sight {
    record_index index;
    name_index name;
    epoch number;
  };

  id_block ids_;
  std::vector<std::byte> bytes_;
  std::vector<sight> sights_;
  std::vector<waiting_leave> leaves_;
  bool end_ = false;
  std::uint64_t number_ = 1;  // of the message
};
using outbox = basic_outbox<>;

/// The log for the children, stored once, with a place per child, and what only one child gets.
template <class Any = void>
class basic_downstream {
 public:
  explicit basic_downstream(int children) : children_(static_cast<std::size_t>(children)) {}

  /// Appends log items.
  void append(std::span<const std::byte> item);
  /// Bytes for one child, outside the log.
  [[nodiscard]] wire::writer beside(int child) {
    return wire::writer(children_[static_cast<std::size_t>(child)].beside);
  }
  [[nodiscard]] bool empty(int child) const noexcept {
    return has_log(child) && children_[static_cast<std::size_t>(child)].beside.empty();
  }
  [[nodiscard]] bool empty() const noexcept;
  /// Whether a child has been given all of the log.
  [[nodiscard]] bool has_log(int child) const noexcept {
    return children_[static_cast<std::size_t>(child)].at == base_ + log_.size();
  }
  /// Appends the message for a child to `out`; false if there is nothing to send.
  bool take(int child, std::vector<std::byte>& out);

 private:
  struct child_state {
    std::uint64_t at = 0;     // bytes of the log sent
    std::uint64_t items = 0;  // log items sent
    std::vector<std::byte> beside;
  };

  std::vector<child_state> children_;
  std::vector<std::byte> log_;  // from byte base_ on
  std::uint64_t base_ = 0;
  std::uint64_t items_ = 0;
};
using downstream = basic_downstream<>;

/// How a name is told to others: by an id of one of its signatures, if it has one.
[[nodiscard]] inline wire_name wire_name_of(const name_table& names, name_index name) {
  for (const entry_index entry : names[name].entries) {
    if (names.entry(entry).id != none) return {names.entry(entry).id, 0, {}};
  }
  return {none, names[name].set, names[name].text};
}

[[nodiscard]] inline wire_entry wire_entry_of(const name_table& names, entry_index index) {
  const entry_record& entry = names.entry(index);
  wire_entry result;
  result.id = entry.id;
  if (entry.id != none) return result;
  result.set = names[entry.name].set;
  result.text = names[entry.name].text;
  result.sig = entry.sig;
  result.site = entry.site;
  return result;
}

[[nodiscard]] inline leaving wire_leave_of(const name_table& names, const waiting_leave& one) {
  leaving result;
  result.ranks = one.ranks;
  result.how = one.how;
  result.stuck = one.stuck;
  result.set = one.set;
  result.why = one.why;
  for (const auto& [name, number] : one.pending) {
    result.pending.push_back({wire_name_of(names, name), number});
  }
  return result;
}

// ---- implementation --------------------------------------------------------------------------

template <class Any>
void basic_outbox<Any>::complete(name_table& names, entry_index index, epoch number,
                                 const rank_set* who, std::uint64_t sizes) {
  const entry_record& entry = names.entry(index);
  name_record& name = names[entry.name];
  const bool implied = number == name.sent + 1;
  const bool first = std::exchange(name.announced_in, number_) != number_;
  name.sent = number;
  if (implied && first && who == nullptr && sizes == 0 && entry.id != none) {
    ids_.insert(entry.id);
    return;
  }
  announcement a;
  a.entry = wire_entry_of(names, index);
  a.implied = implied;
  a.number = number;
  a.whole = who == nullptr;
  if (who != nullptr) a.who = *who;
  a.sizes = sizes;
  put(part::announce, a);
}

template <class Any>
void basic_outbox<Any>::leave(waiting_leave one) {
  for (waiting_leave& other : leaves_) {
    if (other.how == one.how && other.set == one.set && other.pending == one.pending &&
        other.stuck == one.stuck && other.why == one.why) {
      other.ranks.unite(one.ranks);
      return;
    }
  }
  leaves_.push_back(std::move(one));
}

template <class Any>
void basic_outbox<Any>::clear() {
  ids_.clear();
  bytes_.clear();
  sights_.clear();
  leaves_.clear();
  ++number_;
}

template <class Any>
bool basic_outbox<Any>::take(const name_table& names, const readiness_table& table,
                             const std::vector<set_in_tree>& sets, std::uint64_t generation,
                             std::vector<std::byte>& out) {
  const std::size_t before = out.size();
  wire::writer to(out);
  put_header(to, {true, generation});
  const std::size_t start = out.size();
  ids_.write(to);
  to.raw(bytes_);
  for (const sight& one : sights_) {
    if (names[one.name].records.find(one.number) != one.index) continue;
    const record& seen = table[one.index];
    if (!seen.first || seen.full || seen.bad) continue;
    announcement a;
    a.entry = wire_entry_of(names, seen.entry);
    a.partial = true;
    a.number = one.number;
    a.whole = false;
    const name_record& name = names[one.name];
    a.who = table.ranks_of(seen, name.listed ? *name.listed : sets[name.set]);
    put_part(to, part::announce, a);
  }
  for (const waiting_leave& one : leaves_) put_part(to, part::leave, wire_leave_of(names, one));
  if (end_) to.byte(static_cast<std::uint8_t>(part::end));
  end_ = false;
  clear();
  if (out.size() != start) return true;
  out.resize(before);
  return false;
}

template <class Any>
void basic_downstream<Any>::append(std::span<const std::byte> item) {
  if (children_.empty()) return;
  log_.insert(log_.end(), item.begin(), item.end());
  ++items_;
}

template <class Any>
bool basic_downstream<Any>::empty() const noexcept {
  for (int child = 0; child < static_cast<int>(children_.size()); ++child) {
    if (!empty(child)) return false;
  }
  return true;
}

// The log is kept until the slowest child has it. What is left is moved only when at least as much
// has gone, so a child that lags costs the others little.
template <class Any>
bool basic_downstream<Any>::take(int child, std::vector<std::byte>& out) {
  if (empty(child)) return false;
  child_state& to = children_[static_cast<std::size_t>(child)];
  wire::writer writer(out);
  put_header(writer, {false, to.items});
  writer.raw(std::span(log_).subspan(static_cast<std::size_t>(to.at - base_)));
  writer.raw(to.beside);
  to.beside.clear();
  to.at = base_ + log_.size();
  to.items = items_;
  std::uint64_t least = to.at;
  for (const child_state& other : children_) least = std::min(least, other.at);
  const auto gone = static_cast<std::size_t>(least - base_);
  if (gone == log_.size()) {
    log_.clear();
    base_ = least;
  } else if (gone > log_.size() / 2) {
    log_.erase(log_.begin(), log_.begin() + static_cast<std::ptrdiff_t>(gone));
    base_ = least;
  }
  return true;
}

}  // namespace cohort::protocol
