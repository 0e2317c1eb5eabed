// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The log, applied by every rank in the same order.

#include <cohort/protocol/node.hpp>

namespace cohort::protocol {

// EXECUTE one operation of a pack.
template <class Any>
void basic_node<Any>::apply_elected(entry_index index, bool define, bool known, std::uint64_t count,
                                    bool last) {
  log_.names.acquire(index);  // the action's, or until the end of this function
  const name_index name = log_.names.entry(index).name;
  const epoch number = log_.names[name].base;
  const std::uint32_t set = log_.names[name].set;
  log_.resolve(name, number);
  const std::uint64_t log_count = ++log_.log_count;
  drop_record(name, number);
  if (define) {
    if (log_.names.entry(index).id != none) out_of_place("an id is defined twice");
    log_.cache.define(log_.names, index);
  }
  entry_record& entry = log_.names.entry(index);
  std::uint64_t reference = 0;
  if (entry.id != none) {  // [protocol C2, Z3]
    entry.last_use = log_count;
    if (!known) entry.reference = log_count;
    reference = entry.reference;
  }
  action start;
  start.set = set;
  start.name = name;
  start.number = number;
  if (entry.sig.kind == op_kind::group_create) {
    if (std::find(log_.groups.begin(), log_.groups.end(), name) == log_.groups.end()) {
      log_.groups.push_back(name);
      ++log_.names[name].held_by;
    }
  } else if (entry.sig.kind == op_kind::group_remove) {
    log_.names[name].held_by -= static_cast<std::uint32_t>(std::erase(log_.groups, name));
    groups_.forget(name);
  }
  if (entry.sig.kind == op_kind::set_add) start.made = add_set(members_of(name).members);
  if (members_of(name).contains_me) {
    const std::uint32_t slot = log_.names[name].operations.erase(number);
    if (slot != none) {
      operation& mine = operations_[slot];
      if (mine.entry != index)
        out_of_place("elected with a signature that this rank has not submitted");
      joins_[set].took = log_count;
      if (!known && reference != 0) {
        entry.own_reference = reference;
        entry.own_sizes.swap(mine.sizes);
      }
      start.token = mine.token;
      free_operation(slot);
    } else if (!joins_[set].active) {
      out_of_place("'" + log_.names[name].text +
                   "' is elected, and this rank has not submitted it");
    }
    start.kind = action_kind::start;
    start.known = known;
    start.last = last;
    start.entry = index;
    start.log_count = log_count;
    start.count = count;
    start.reference = reference;
    actions_.push_back(start);
  } else {
    log_.names.release(index);
  }
  if (tree_.is_root()) {
    if (!promised_.empty()) promised_.erase({name, number});
    promote(name);
  }
  observed(part::execute, name, number);
}

// FAIL
template <class Any>
void basic_node<Any>::apply_failed(name_index name, epoch number, verdict_ptr why) {
  log_.resolve(name, number);
  drop_record(name, number);
  const std::uint32_t set = log_.names[name].set;
  const std::uint32_t slot = log_.names[name].operations.find(number);
  if (slot != none) {
    fail_operation(slot, why);
  } else if (members_of(name).contains_me && !joins_[set].active && !leaving_ && !left_sets_[set]) {
    if (poison_.size() >= options_.poison_capacity) {
      data_failed("more than " + std::to_string(options_.poison_capacity) +
                  " failed operations that this rank has not submitted");
    } else if (poison_.emplace(key{name, number}, why).second) {  // [protocol E3]
      ++log_.names[name].held_by;
    }
  }
  if (tree_.is_root()) {
    promised_.erase({name, number});
    promote(name);
  }
  observed(part::fail, name, number, why.get());
}

// JOINED: all have joined.
template <class Any>
void basic_node<Any>::apply_joined(std::uint32_t set) {
  const std::uint64_t log_count = ++log_.log_count;
  table_.clear_joined(set);
  if (tree_.is_root()) query_.forget_joined(set);
  if (sets_[set].contains_me) {
    join_state& join = joins_[set];
    if (!join.active || pending_in_set_[set] != 0) {
      out_of_place("all have joined, and this rank has not or waits for an operation");
    }
    for (name_index name = 0; name < log_.names.bound(); ++name) {  // [protocol J5]
      name_record& record = log_.names[name];
      if (record.used && record.set == set) record.next = record.base;
    }
    drop_poison(set);
    action start;
    start.kind = action_kind::start_join;
    start.set = set;
    start.token = join.token;
    start.log_count = log_count;
    start.count = join.took;  // [protocol J4]
    actions_.push_back(start);
    join.active = false;
  }
  observed(part::join);
}

// [protocol D1] A set is made where the operation that asks for it is elected: on every rank at the
// same position of the log, so before anybody can hear of it from a neighbour. A member may have
// left the negotiation since it asked for the set; it has not told of a set that it did not know.
template <class Any>
std::uint32_t basic_node<Any>::add_set(rank_set members) {
  const auto number = static_cast<std::uint32_t>(sets_.size());
  sets_.push_back(tree_.set_of(std::move(members)));
  pending_in_set_.emplace_back();
  joins_.emplace_back();
  left_sets_.emplace_back();
  log_.add_set();
  table_.add_set();
  query_.add_set();
  if (tree_.is_root() && left_.intersects(sets_[number].members)) {
    waiting_leave one;
    one.ranks = left_.common_with(sets_[number].members);
    one.set = number;
    on_leave(one);
  }
  return number;
}

// A set has ENDED: all members have left it, and what they wanted is decided. [protocol D2]
template <class Any>
void basic_node<Any>::apply_set_ended(std::uint32_t set) {
  if (pending_in_set_[set] != 0 || log_.has_ended(set) || !log_.has_leaver(set)) {
    out_of_place("a set ends twice, or while this rank is in it");
  }
  log_.end_set(set);
  std::erase_if(reasons_, [set](const given_reason& each) { return each.set == set; });
  std::erase_if(log_.groups, [&](name_index group) {  // which nobody has removed
    name_record& record = log_.names[group];
    if (record.set == set) --record.held_by;
    return record.set == set;
  });
  leavers_.erase(set);
  if (sets_[set].contains_me) {
    action made;
    made.kind = action_kind::end_set;
    made.set = set;
    actions_.push_back(made);
  }
  observed(part::end);
}

// New GENERATION
template <class Any>
void basic_node<Any>::apply_generation(std::size_t keep) {
  planner_.clear();  // [protocol G2]
  doomed_.clear();
  for (std::uint32_t set = 0; set < sets_.size(); ++set) {
    while (!table_.empty(set)) {
      table_[table_.first(set)].ready = false;
      table_.erase(log_.names, table_.first(set));
    }
    table_.clear_joined(set);
  }
  first_sights_ = 0;
  up_.clear();
  query_.stop();
  overdue_.clear();
  report_for_ = 0;
  asked_up_ = false;
  for (name_index name = 0; name < log_.names.bound(); ++name) {
    log_.names[name].sent = -1;
    log_.names[name].seen.clear();
  }

  std::map<key, verdict_ptr> poison;
  for (auto& [which, why] : poison_) {
    poison.emplace(key{which.first, which.second - log_.names[which.first].base}, std::move(why));
  }
  poison_ = std::move(poison);
  std::map<key, rank_set> promised;
  for (auto& [which, ranks] : promised_) {
    promised.emplace(key{which.first, which.second - log_.names[which.first].base},
                     std::move(ranks));
  }
  promised_ = std::move(promised);
  for (const renumbering& change : log_.new_generation(keep)) {  // [protocol G1]
    name_record& record = log_.names[change.name];
    record.next -= change.by;
    record.operations.renumber(change.by);
    record.operations.for_each(
        [this](epoch number, std::uint32_t slot) { operations_[slot].number = number; });
    action made;
    made.kind = action_kind::renumber;
    made.set = record.set;
    made.name = change.name;
    made.number = change.by;
    actions_.push_back(made);
  }
  purge_names();

  for_each_operation([this](std::uint32_t slot) {  // [protocol G3]
    operation& one = operations_[slot];
    announce_own(one);
    if (one.withdrawn) on_withdrawal(one.name, one.number, tree_.rank(), one.reason);
  });
  for (std::uint32_t set = 0; set < joins_.size(); ++set) {
    if (joins_[set].active && !log_.has_ended(set)) on_join(tree_.self(), set);
  }
  for (std::uint32_t set = 0; set < left_sets_.size(); ++set) {
    if (left_sets_[set] && !log_.has_ended(set)) send_leave(set);
  }
  if (leaving_) send_leave();
  if (holds_group_completions()) send_counts();
  if (report_wanted_ && !leaving_) want_report(tree_.self(), now_);
  observed(part::generation);
}

// Nothing refers to names by number now but what is listed here: the rest has been dropped.
template <class Any>
void basic_node<Any>::purge_names() {
  std::vector<name_index> needed;
  for (const action& one : actions_) {
    if (one.name != none) needed.push_back(one.name);
  }
  for (std::uint32_t set = 0; set < sets_.size(); ++set) {
    if (!log_.has_leaver(set)) continue;
    for (const auto& [name, number] : log_.live(set)) needed.push_back(name);
  }
  for (const auto& [which, ranks] : promised_) needed.push_back(which.first);
  for (const name_index name : needed) ++log_.names[name].held_by;
  log_.names.purge();
  for (const name_index name : needed) --log_.names[name].held_by;
}

// LEFT
template <class Any>
void basic_node<Any>::apply_left(const waiting_leave& one) {
  const bool first = !log_.any_leaver();
  const std::set<key> pending(one.pending.begin(), one.pending.end());
  log_.depart(one.set, one.ranks, one.how);
  note_reason(one);
  for (std::uint32_t set = 0; set < sets_.size(); ++set) {
    if ((one.set != none && one.set != set) || !sets_[set].members.intersects(one.ranks) ||
        std::find(one.stuck.begin(), one.stuck.end(), set) != one.stuck.end()) {
      continue;
    }
    log_.restrict(set, pending);
    join_state& join = joins_[set];
    if (join.active && !join.failed) {  // [protocol L4] the join fails, the rank stays joined
      join.failed = true;
      action fail;
      fail.kind = action_kind::fail_join;
      fail.set = set;
      fail.token = join.token;
      fail.detail = static_cast<std::uint32_t>(verdicts_.size());
      verdicts_.push_back(lost(set));
      actions_.push_back(fail);
    }
    for (record_index index = table_.first(set); index != none;) {
      const record& rec = table_[index];
      const record_index next = rec.next;
      if (log_.dead(rec.name, rec.number)) drop_record(rec.name, rec.number);
      index = next;
    }
  }
  for_each_operation([&](std::uint32_t slot) {  // [protocol L3]
    const operation& mine = operations_[slot];
    if (!log_.dead(mine.name, mine.number)) return;
    fail_operation(slot, lost(log_.names[mine.name].set));
  });
  if (first && log_.any_leaver() &&
      std::any_of(log_.groups.begin(), log_.groups.end(),
                  [this](name_index group) { return counts_starts(group); })) {  // [protocol H3]
    groups_.frozen = true;
    send_counts();
  }
  observed(part::leave);
}

template <class Any>
void basic_node<Any>::send_counts() {
  std::vector<start_range> mine;
  for (const name_index group : log_.groups) {
    if (!counts_starts(group)) continue;
    mine.push_back({group, groups_.starts(group), groups_.starts(group)});
  }
  groups_.gather();
  on_counts(tree_.self(), std::move(mine));
}

// DRAIN persistent groups: the rank makes up for starts that it has not made. [protocol H4]
template <class Any>
void basic_node<Any>::apply_drain(const std::vector<start_range>& counts) {
  groups_.drained = true;
  for (const start_range& group : counts) {
    action make_up;
    make_up.kind = action_kind::drain;
    make_up.set = log_.names[group.group].set;
    make_up.name = group.group;
    make_up.number = static_cast<epoch>(groups_.starts(group.group));
    make_up.count = group.least;
    make_up.log_count = group.most;
    actions_.push_back(make_up);
  }
  observed(part::counts);
}

// ADJUST [protocol R6]
template <class Any>
void basic_node<Any>::apply_adjusted(adjustment item) {
  action made;
  made.kind = action_kind::adjust;
  made.detail = static_cast<std::uint32_t>(adjustments_.size());
  adjustments_.push_back(std::move(item));
  actions_.push_back(made);
  observed(part::adjust);
}

// CLOSE
template <class Any>
void basic_node<Any>::apply_close(const closing& item) {
  log_.closed = true;
  if (item.by_fault) {
    verdict why;
    why.kind = failure_kind::data;
    why.rank = item.cause.rank;
    why.text = item.cause.text;
    broken_ = std::make_shared<const verdict>(std::move(why));
    fail_everything(broken_);
  }
  for (std::uint32_t set = 0; set < sets_.size(); ++set) {
    while (!table_.empty(set)) {
      const record& rec = table_[table_.first(set)];
      drop_record(rec.name, rec.number);
    }
  }
  planner_.clear();
  query_.stop();
  overdue_.clear();
  action made;
  made.kind = action_kind::close;
  if (broken_) {
    made.detail = static_cast<std::uint32_t>(verdicts_.size());
    verdicts_.push_back(broken_);
  }
  actions_.push_back(made);
  end();
  observed(part::close);
}

template <class Any>
void basic_node<Any>::observed(part item, name_index name, epoch number, const verdict* why) {
  if (observer_ != nullptr) observer_(observer_context_, *this, item, name, number, why);
}

}  // namespace cohort::protocol
