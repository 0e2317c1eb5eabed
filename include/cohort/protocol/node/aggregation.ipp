// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Facts on their way up: each function takes one from a child or from the own client. This
/// room has the bodies of the node, one function for one rule: events and messages that have been
/// read enter, what is to be written and done leaves.

#include <cohort/protocol/node.hpp>

namespace cohort::protocol {

// `who` null: every member of the source brings data.
template <class Any>
void basic_node<Any>::announce(int source, name_index name, epoch number, entry_index entry,
                               bool partial, const rank_set* who, std::uint64_t sizes) {
  if (log_.settled(name, number)) return;  // [protocol A3]
  const record_index index = table_.get(log_.names, name, number);
  record& rec = table_[index];
  const set_in_tree& set = members_of(name);
  const rank_set& below = set.from[static_cast<std::size_t>(source)];
  if (rec.entry == none) {
    rec.entry = entry;
    log_.names.acquire(entry);
  }
  if (rec.entry != entry) {
    auto other = std::find_if(rec.others.begin(), rec.others.end(),
                              [entry](const auto& one) { return one.first == entry; });
    if (other == rec.others.end()) {
      log_.names.acquire(entry);
      other = rec.others.insert(rec.others.end(), {entry, {}});
    }
    other->second.unite(who != nullptr ? *who : below);
  } else if (who != nullptr) {
    rec.some.unite(*who);
  } else {
    rec.whole |= bit(source);
  }
  if (!rec.others.empty()) {
    if (!rec.bad) contradict(name, number, {});
    return;
  }
  if (!partial) {
    if ((rec.done & bit(source)) != 0) out_of_place("an operation is announced twice");
    rec.done |= bit(source);
    rec.count += who != nullptr ? who->size() : below.size();
    rec.sizes = rec.sizes == record::sizes_unset || rec.sizes == sizes ? sizes : 0;
  }
  advance(index);
  if (tree_.is_root() && (!left_.empty() || !leavers_.empty())) check_listed(name, number);
}

// Who has left the negotiation or this set.
template <class Any>
rank_set basic_node<Any>::left_of(std::uint32_t set) const {
  rank_set all = left_;
  const auto alone = leavers_.find(set);
  if (alone != leavers_.end()) all.unite(alone->second);
  return all;
}

// [protocol D2] An operation of listed members fails once one of them has left that does not want
// it; who is not listed may leave. No L tells of that, so the root checks it when it hears of the
// operation and when it hears of the leaver.
template <class Any>
void basic_node<Any>::check_listed(name_index name, epoch number) {
  const auto& listed = log_.names[name].listed;
  if (!listed || log_.settled(name, number)) return;
  rank_set lacking = left_of(log_.names[name].set).common_with(listed->members);
  const auto wanted = promised_.find({name, number});
  if (wanted != promised_.end()) lacking.subtract(wanted->second);
  if (lacking.empty()) return;
  verdict why;
  why.kind = failure_kind::peer_lost;
  why.ranks = std::move(lacking);
  add_reason(log_.names[name].set, why);
  emit_failure(name, number, std::move(why));
}

// Forwards an entry when every source has announced it or joined [protocol A1]; one that is not
// cached also on first sight [protocol A2].
template <class Any>
void basic_node<Any>::advance(record_index index) {
  record& rec = table_[index];
  if (rec.bad || rec.full || rec.entry == none) return;
  const std::uint32_t number = log_.names[rec.name].set;
  const set_in_tree& set = members_of(rec.name);
  if (((rec.done | table_.joined(number)) & set.sources) == set.sources) {
    rec.full = true;
    rec.arrival = ++arrivals_;
    if (rec.first) --first_sights_;
    if (tree_.is_root()) {
      promote(rec.name);
    } else if (rec.count == set.below) {
      up_.complete(log_.names, rec.entry, rec.number, nullptr, rec.sizes);
    } else {
      const rank_set who = table_.ranks_of(rec, set);
      up_.complete(log_.names, rec.entry, rec.number, &who, rec.sizes);
    }
  } else if (!tree_.is_root() && !rec.first && log_.names.entry(rec.entry).id == none &&
             (first_sights_ < options_.firsts || log_.names[rec.name].listed)) {
    rec.first = true;
    ++first_sights_;
    up_.first_sight(index, rec.name, rec.number);
  }
}

template <class Any>
std::vector<side> basic_node<Any>::sides_of(const record& rec) const {
  std::vector<side> result;
  if (rec.entry == none) return result;
  const auto add = [&](entry_index entry, rank_set ranks) {
    result.push_back({log_.names.entry(entry).sig, std::move(ranks), log_.names.entry(entry).site});
  };
  add(rec.entry, table_.ranks_of(rec, members_of(rec.name)));
  for (const auto& [entry, ranks] : rec.others) add(entry, ranks);
  return result;
}

// [protocol M1] Once per entry and edge, with what is known here added. `sides` is what a child or
// the stall query says.
template <class Any>
void basic_node<Any>::contradict(name_index name, epoch number, std::vector<side> sides) {
  if (log_.settled(name, number)) return;
  record& rec = table_[table_.get(log_.names, name, number)];
  if (rec.bad) return;
  rec.bad = true;
  for (side& mine : sides_of(rec)) {
    auto same = std::find_if(sides.begin(), sides.end(),
                             [&](const side& other) { return other.sig == mine.sig; });
    if (same == sides.end()) {
      sides.push_back(std::move(mine));
    } else {
      same->ranks.unite(mine.ranks);
      if (same->site.file.empty()) same->site = mine.site;
    }
  }
  if (tree_.is_root()) {  // [protocol M2]
    verdict why;
    why.kind = failure_kind::mismatch;
    why.sides = std::move(sides);
    emit_failure(name, number, std::move(why));
  } else {
    up_.put(part::contradiction,
            contradiction{{wire_name_of(log_.names, name), number}, std::move(sides)});
  }
}

template <class Any>
void basic_node<Any>::on_withdrawal(name_index name, epoch number, int rank,
                                    withdrawal_reason reason) {
  if (log_.settled(name, number)) return;  // [protocol W1]
  record& rec = table_[table_.get(log_.names, name, number)];
  if (rec.withdrawn) return;
  rec.withdrawn = true;
  if (!tree_.is_root()) {
    up_.put(part::withdraw, withdrawal{{wire_name_of(log_.names, name), number}, rank, reason});
  } else if (reason == withdrawal_reason::deadline) {
    overdue_.push_back({{name, number}, rank});  // [protocol W3]
    if (!query_.running()) start_query(++queries_, options_.query_timeout, now_);
  } else {
    verdict why;
    why.kind = failure_kind::withdrawn;
    why.rank = rank;
    why.reason = reason;
    emit_failure(name, number, std::move(why));
  }
}

// [protocol J1, J3]
template <class Any>
void basic_node<Any>::on_join(int source, std::uint32_t set) {
  table_.set_joined(set, source);
  for (record_index index = table_.first(set); index != none; index = table_[index].next) {
    advance(index);
  }
  if (all_joined(set) && !tree_.is_root()) {
    wire::writer out = up_.writer();
    out.byte(static_cast<std::uint8_t>(part::join));
    out.varint(set);
  }
}

template <class Any>
bool basic_node<Any>::all_joined(std::uint32_t set) const noexcept {
  return (table_.joined(set) & sets_[set].sources) == sets_[set].sources;
}

// [protocol L2] The root logs it only where it rules something out or has a reason.
template <class Any>
void basic_node<Any>::on_leave(const waiting_leave& one) {
  if (one.set != none && log_.has_ended(one.set)) return;  // told again, after a generation
  if (!tree_.is_root()) return up_.leave(one);
  const bool has_reason = note_reason(one);
  (one.set == none ? left_ : leavers_[one.set]).unite(one.ranks);
  const std::set<key> pending(one.pending.begin(), one.pending.end());
  std::set<key> listed;
  for (const key& which : pending) {
    if (!log_.names[which.first].listed || log_.settled(which.first, which.second)) continue;
    promised_[which].unite(one.ranks);
  }
  for (const auto& [which, ranks] : promised_) listed.insert(which);
  for (std::uint32_t set = 0; set < sets_.size(); ++set) {
    for (record_index index = table_.first(set); index != none; index = table_[index].next) {
      if (log_.names[table_[index].name].listed) {
        listed.emplace(table_[index].name, table_[index].number);
      }
    }
  }
  for (const auto& [name, number] : listed) check_listed(name, number);
  for (std::uint32_t set = 0; set < sets_.size(); ++set) {
    if ((one.set != none && one.set != set) || !sets_[set].members.intersects(one.ranks) ||
        std::find(one.stuck.begin(), one.stuck.end(), set) != one.stuck.end()) {
      continue;
    }
    if (!has_reason && log_.has_leaver(set) &&
        std::includes(pending.begin(), pending.end(), log_.live(set).begin(),
                      log_.live(set).end())) {
      continue;
    }
    emit(part::leave, wire_leave_of(log_.names, one));
    return;
  }
}

// [protocol H4]
template <class Any>
void basic_node<Any>::on_counts(int source, std::vector<start_range> counts) {
  if (!groups_.add(source, std::move(counts), static_cast<std::size_t>(tree_.child_count()) + 1)) {
    return;
  }
  std::vector<start_count> total;
  for (const start_range& group : groups_.total()) {
    total.push_back({wire_name_of(log_.names, group.group), group.least, group.most});
  }
  if (tree_.is_root()) {
    emit(part::counts, total);
  } else {
    up_.put(part::counts, total);
  }
}

template <class Any>
void basic_node<Any>::on_fault(const data_fault& cause) {
  if (log_.closed) return;
  if (!tree_.is_root()) return up_.put(part::fault, cause);
  emit(part::close, closing{true, cause});
}

// [protocol L6]
template <class Any>
void basic_node<Any>::on_end(int source) {
  ended_ |= bit(source);
  end();
}

template <class Any>
void basic_node<Any>::end() {
  if (ended_ == bit(tree_.child_count()) - 1 && !tree_.is_root()) up_.end();
}

template <class Any>
void basic_node<Any>::drop_record(name_index name, epoch number) {
  const record_index index = table_.find(log_.names, name, number);
  if (index == none) return;
  const record& rec = table_[index];
  if (rec.first && !rec.full) --first_sights_;
  if (rec.ready) planner_.remove(log_.names, table_, index);
  table_.erase(log_.names, index);
}

}  // namespace cohort::protocol
