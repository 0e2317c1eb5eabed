// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Messages of the neighbours, checked against what a sound neighbour can say.

#include <cohort/protocol/node.hpp>

namespace cohort::protocol {

template <class Any>
void basic_node<Any>::out_of_place(const std::string& text) const {
  throw protocol_error(fault::out_of_place, "rank " + std::to_string(tree_.rank()) + ": " + text);
}

template <class Any>
void basic_node<Any>::require_set(std::uint64_t set) const {
  if (set >= sets_.size()) out_of_place("process set " + std::to_string(set) + " is unknown");
}

template <class Any>
name_index basic_node<Any>::intern_name(std::uint32_t set, std::string_view text) {
  const name_index name = log_.names.intern(set, text);
  if (text.empty() || text[0] != '\x01' || log_.names[name].listed) return name;
  const std::size_t end = text.find('\x01', 1);
  if (end == std::string_view::npos) out_of_place("a reserved name");
  std::optional<rank_set> members = rank_set::parse(text.substr(1, end - 1));
  if (!members || members->empty() || !sets_[set].members.includes(*members)) {
    out_of_place("a reserved name");
  }
  log_.names[name].listed = std::make_shared<const set_in_tree>(tree_.set_of(std::move(*members)));
  return name;
}

template <class Any>
name_index basic_node<Any>::resolve_name(const wire_name& name) {
  if (name.id != none) {
    if (name.id >= log_.cache.size()) out_of_place("id " + std::to_string(name.id) + " is unknown");
    return log_.names.entry(log_.cache[name.id]).name;
  }
  require_set(name.set);
  return intern_name(name.set, name.text);
}

template <class Any>
entry_index basic_node<Any>::resolve_entry(const wire_entry& entry) {
  const name_index name = resolve_name({entry.id, entry.set, entry.text});
  if (entry.id != none) return log_.cache[entry.id];
  if (entry.sig.kind == op_kind::message &&
      (!log_.names[name].listed || log_.names[name].listed->size != 2)) {
    out_of_place("a message that is not between two ranks");
  }
  const entry_index result = log_.names.intern(name, entry.sig);
  if (log_.names.entry(result).site.file.empty()) log_.names.entry(result).site = entry.site;
  return result;
}

template <class Any>
waiting_leave basic_node<Any>::resolve_leave(const leaving& one) {
  waiting_leave result;
  result.ranks = one.ranks;
  result.how = one.how;
  result.stuck = one.stuck;
  result.set = one.set;
  result.why = one.why;
  for (const std::uint32_t set : one.stuck) require_set(set);
  if (one.ranks.empty() || one.ranks.back() >= tree_.ranks()) out_of_place("unknown ranks leave");
  if (one.set != none) {
    require_set(one.set);
    if (!sets_[one.set].members.includes(one.ranks)) out_of_place("ranks leave a set of others");
  }
  for (const wire_operation& pending : one.pending) {
    result.pending.emplace_back(resolve_name(pending.name), pending.number);
  }
  return result;
}

template <class Any>
std::vector<start_range> basic_node<Any>::resolve_counts(const std::vector<start_count>& counts) {
  std::vector<start_range> result;
  for (const start_count& one : counts) {
    result.push_back({resolve_name(one.group), one.least, one.most});
  }
  return result;
}

/// A message of a child.
template <class Any>
struct basic_node<Any>::up_visitor {
  basic_node& self;
  int source;
  std::uint64_t now;

  [[nodiscard]] const rank_set& below(name_index name) const {
    return self.members_of(name).from[static_cast<std::size_t>(source)];
  }
  // The epoch that follows the last one of this name on the edge, which it becomes. [protocol T2]
  [[nodiscard]] epoch& seen(name_index name) {
    std::vector<epoch>& all = self.log_.names[name].seen;
    if (all.empty()) all.resize(static_cast<std::size_t>(self.tree_.child_count()), -1);
    return all[static_cast<std::size_t>(source)];
  }

  void on_id(std::uint32_t id) {
    if (id >= self.log_.cache.size()) self.out_of_place("id " + std::to_string(id) + " is unknown");
    const entry_index entry = self.log_.cache[id];
    const name_index name = self.log_.names.entry(entry).name;
    if (below(name).empty()) self.out_of_place("announced by no member");
    self.announce(source, name, ++seen(name), entry, false, nullptr, 0);
  }
  // The entry is kept by what `announce` makes of it, or dropped here.
  void on(const announcement& a) {
    const entry_index entry = self.resolve_entry(a.entry);
    self.log_.names.acquire(entry);
    const name_index name = self.log_.names.entry(entry).name;
    const rank_set& members = below(name);
    if (members.empty() || (!a.whole && !members.includes(a.who))) {
      self.out_of_place("announced by ranks that are not below its sender");
    }
    epoch number = a.number;
    if (!a.partial) {
      epoch& last = seen(name);
      if (a.implied) number = last + 1;
      last = number;
    }
    self.announce(source, name, number, entry, a.partial, a.whole ? nullptr : &a.who, a.sizes);
    self.log_.names.release(entry);
  }
  void on(const contradiction& k) {
    if (k.sides.size() < 2) self.out_of_place("a contradiction of one side");
    self.contradict(self.resolve_name(k.operation.name), k.operation.number, k.sides);
  }
  void on(const withdrawal& w) {
    const name_index name = self.resolve_name(w.operation.name);
    if (!below(name).contains(w.rank)) self.out_of_place("withdrawn by no member");
    self.on_withdrawal(name, w.operation.number, w.rank, w.reason);
  }
  void on_join(std::uint32_t set) {
    self.require_set(set);
    if ((self.sets_[set].sources & bit(source)) == 0) self.out_of_place("joined without a member");
    self.on_join(source, set);
  }
  void on(const leaving& v) { self.on_leave(self.resolve_leave(v)); }
  void on(const std::vector<start_count>& counts) {
    self.on_counts(source, self.resolve_counts(counts));
  }
  void on_stall_wanted() { self.want_report(source, now); }
  void on(const stall_answer& answer) { self.on_answer(source, answer); }
  void on(const data_fault& cause) { self.on_fault(cause); }
  void on_end() {
    if (!self.log_.closed) self.out_of_place("a child ends before the negotiation is closed");
    self.on_end(source);
  }
};

/// Log items, from the parent or just decided; and what comes beside the log.
template <class Any>
struct basic_node<Any>::down_visitor {
  basic_node& self;
  wire::reader& in;
  std::span<const std::byte> bytes;
  std::uint64_t now;
  std::size_t start = 0;

  void begin_item() { start = bytes.size() - in.left() - 1; }
  void end_item() {
    ++self.log_.position;
    self.down_.append(bytes.subspan(start, bytes.size() - in.left() - start));
  }

  void on_elected_id(std::uint32_t id, bool last) {
    if (id >= self.log_.cache.size()) self.out_of_place("id " + std::to_string(id) + " is unknown");
    const entry_index entry = self.log_.cache[id];
    const std::size_t all = self.members_of(self.log_.names.entry(entry).name).size;
    self.apply_elected(entry, false, false, all, last);
  }
  void on_elected(const elected& item, bool last) {
    const entry_index entry = self.resolve_entry(item.entry);
    const std::size_t all = self.members_of(self.log_.names.entry(entry).name).size;
    self.apply_elected(entry, item.define, item.known, item.whole ? all : item.contributors, last);
  }
  void on(const failed& item) {
    const name_index name = self.resolve_name(item.operation.name);
    self.apply_failed(name, item.operation.number, std::make_shared<const verdict>(item.why));
  }
  void on_joined(std::uint32_t set) {
    self.require_set(set);
    self.apply_joined(set);
  }
  void on_set_ended(std::uint32_t set) {
    self.require_set(set);
    self.apply_set_ended(set);
  }
  void on_generation(std::uint64_t keep) { self.apply_generation(static_cast<std::size_t>(keep)); }
  void on(const leaving& l) { self.apply_left(self.resolve_leave(l)); }
  void on(const std::vector<start_count>& counts) { self.apply_drain(self.resolve_counts(counts)); }
  void on(adjustment& item) { self.apply_adjusted(std::move(item)); }
  void on(const closing& item) { self.apply_close(item); }

  void on_query(std::uint64_t number, std::uint64_t budget) {
    if (!self.log_.closed) self.start_query(number, budget, now);
  }
  // One of an older generation is dropped: who waits for it has asked again. [protocol G3]
  void on(const stall_answer& report) {
    if (report.generation != self.log_.generation) return;
    const std::uint64_t waiting = std::exchange(self.report_for_, 0);
    self.asked_up_ = false;
    for (int child = 0; child < self.tree_.child_count(); ++child) {
      if ((waiting & bit(child)) == 0) continue;
      wire::writer out = self.down_.beside(child);
      put_part(out, part::answer, report);
    }
    if ((waiting & bit(self.tree_.self())) != 0) self.deliver_report(report);
  }
};

template <class Any>
void basic_node<Any>::receive(int from, std::span<const std::byte> message, std::uint64_t now) {
  now_ = now;
  if (released()) out_of_place("a message after its end");
  wire::reader in(message);
  const header head = get_header(in);
  if (from == tree_.parent() && !head.up) {
    if (head.position != log_.position) out_of_place("a gap in the log");
    down_visitor visit{*this, in, message, now};
    read_down(in, visit);
  } else {
    const int source = tree_.source_of(from);
    if (source < 0 || !head.up) out_of_place("a message from rank " + std::to_string(from));
    if ((ended_ & bit(source)) != 0) out_of_place("a message after the end");
    if (head.position > log_.generation) out_of_place("a message of a later generation");
    if (head.position < log_.generation) return;  // [protocol G2]
    up_visitor visit{*this, source, now};
    read_up(in, visit);
  }
  pump();
}

template <class Any>
bool basic_node<Any>::has_message(int to) const noexcept {
  if (to == tree_.parent()) return !up_.empty();
  const int child = tree_.source_of(to);
  return child >= 0 && !down_.empty(child);
}

template <class Any>
bool basic_node<Any>::take_message(int to, std::vector<std::byte>& out) {
  if (to == tree_.parent()) {
    return !up_.empty() && up_.take(log_.names, table_, sets_, log_.generation, out);
  }
  const int child = tree_.source_of(to);
  return child >= 0 && down_.take(child, out);
}

template <class Any>
bool basic_node<Any>::released() const noexcept {
  return log_.closed && ended_ == bit(tree_.child_count()) - 1 && up_.empty() && down_.empty();
}

}  // namespace cohort::protocol
