// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// What a rank does itself: submissions, withdrawals, joining and leaving.
///
/// Into the room `node` come calls of the own rank, and messages of its neighbours that have been
/// read. Records for the neighbours leave it, and actions: what the own rank is to do.

#include <cohort/protocol/node.hpp>

namespace cohort::protocol {

template <class Any>
basic_node<Any>::basic_node(const tree& shape, std::vector<rank_set> sets,
                            const node_options& options)
    : tree_(shape),
      sets_([&] {
        std::vector<set_in_tree> placed;
        for (rank_set& members : sets) placed.push_back(shape.set_of(std::move(members)));
        return placed;
      }()),
      options_(options),
      log_(sets_.size()),
      pending_in_set_(sets_.size()),
      joins_(sets_.size()),
      left_sets_(sets_.size()),
      table_(sets_.size()),
      down_(shape.child_count()),
      planner_(options.fusion, shape.is_root() ? options.plan : nullptr) {
  if (options_.cache_keep >= options_.cache_capacity) {
    throw error(errc::invalid_argument,
                "cache_keep=" + std::to_string(options_.cache_keep) +
                    " is not below cache_capacity=" + std::to_string(options_.cache_capacity));
  }
  for (const set_in_tree& set : sets_) {
    if (set.size == 0 || set.members.back() >= tree_.ranks()) {
      throw error(errc::invalid_argument, "process set of ranks " + set.members.str() + " among " +
                                              std::to_string(tree_.ranks()));
    }
  }
}

// [protocol S2]
template <class Any>
bool basic_node<Any>::refuses(std::uint32_t set) const {
  return leaving_ || joins_[set].active || left_sets_[set] || (log_.closed && !broken_) ||
         !sets_[set].contains_me;
}

template <class Any>
submission basic_node<Any>::submit(std::uint32_t set, std::string_view text, const signature& sig,
                                   std::uint64_t token, std::span<const std::int64_t> sizes,
                                   const call_site* site) {
  submission result;
  if (broken_) {
    result.status = submission_status::failed;
    result.why = broken_;
    return result;
  }
  if (refuses(set)) {
    result.status = submission_status::refused;
    return result;
  }
  const name_index name = intern_name(set, text);
  if (!members_of(name).contains_me) {
    result.status = submission_status::refused;
    return result;
  }
  const epoch number = log_.names[name].next++;  // [protocol E1]
  result.name = name;
  result.number = number;
  if (!poison_.empty()) {
    const auto found = poison_.find({name, number});
    if (found != poison_.end()) {  // [protocol E3]
      result.status = submission_status::failed;
      result.why = std::move(found->second);
      poison_.erase(found);
      --log_.names[name].held_by;
      return result;
    }
  }
  if (log_.dead(name, number)) {  // [protocol L3]
    result.status = submission_status::failed;
    result.why = lost(set);
    return result;
  }
  if (log_.resolved(name, number))
    out_of_place("an epoch that this rank has not submitted is resolved");

  std::uint32_t slot = static_cast<std::uint32_t>(operations_.size());
  if (free_operations_.empty()) {
    operations_.emplace_back();
  } else {
    slot = free_operations_.back();
    free_operations_.pop_back();
  }
  operation& one = operations_[slot];
  one.name = name;
  one.number = number;
  one.entry = log_.names.intern(name, sig);
  log_.names.acquire(one.entry);
  if (site != nullptr && log_.names.entry(one.entry).site.file.empty()) {
    log_.names.entry(one.entry).site = *site;
  }
  one.token = token;
  one.withdrawn = false;
  one.sizes.assign(sizes.begin(), sizes.end());
  log_.names[name].operations.insert(number, slot);
  ++pending_;
  ++pending_in_set_[set];
  result.operation = {slot, one.turn};
  announce_own(one);
  pump();
  return result;
}

template <class Any>
void basic_node<Any>::announce_own(operation& one) {
  const entry_record& entry = log_.names.entry(one.entry);
  std::uint64_t sizes = 0;
  if (entry.id != none && is_sized(entry.sig.kind) && entry.reference != 0 &&
      entry.own_reference == entry.reference && entry.own_sizes == one.sizes) {
    sizes = entry.reference;  // [protocol Z2]
  }
  announce(tree_.self(), one.name, one.number, one.entry, false, nullptr, sizes);
}

template <class Any>
bool basic_node<Any>::withdraw(operation_ref which, withdrawal_reason reason, std::uint64_t now) {
  now_ = now;
  if (which.slot >= operations_.size()) return false;
  operation& one = operations_[which.slot];
  if (one.name == none || one.turn != which.turn) return false;  // decided
  if (one.withdrawn) return true;
  one.withdrawn = true;
  one.reason = reason;
  on_withdrawal(one.name, one.number, tree_.rank(), reason);
  pump();
  return true;
}

// [protocol H2] Or this rank has asked for one, which may be elected before the others hear of a
// join.
template <class Any>
bool basic_node<Any>::has_group(std::uint32_t set) const {
  return std::any_of(log_.groups.begin(), log_.groups.end(),
                     [&](name_index group) { return log_.names[group].set == set; }) ||
         std::any_of(operations_.begin(), operations_.end(), [&](const operation& one) {
           return one.name != none && log_.names[one.name].set == set &&
                  log_.names.entry(one.entry).sig.kind == op_kind::group_create;
         });
}

template <class Any>
submission basic_node<Any>::join(std::uint32_t set, std::uint64_t token) {
  submission result;
  if (broken_) {
    result.status = submission_status::failed;
    result.why = broken_;
  } else if (refuses(set) || has_group(set)) {  // [protocol S2, H2]
    result.status = submission_status::refused;
  } else if (log_.has_leaver(set)) {  // [protocol L4]
    result.status = submission_status::failed;
    result.why = lost(set);
  } else {
    joins_[set].active = true;
    joins_[set].failed = false;
    joins_[set].token = token;
    on_join(tree_.self(), set);
    pump();
  }
  return result;
}

// [protocol L1]
template <class Any>
void basic_node<Any>::leave(departure how, std::string_view why) {
  if (leaving_ || log_.closed) return;
  leaving_ = own_leave{how, std::string(why.substr(0, longest_reason))};
  send_leave();
  pump();
}

// [protocol D2] Removal: the same for one set alone.
template <class Any>
void basic_node<Any>::leave_set(std::uint32_t set, departure how, std::string_view why) {
  if (leaving_ || left_sets_[set] || log_.closed || !sets_[set].contains_me) return;
  left_sets_[set] = own_leave{how, std::string(why.substr(0, longest_reason))};
  drop_poison(set);
  send_leave(set);
  pump();
}

template <class Any>
void basic_node<Any>::drop_poison(std::uint32_t set) {
  std::erase_if(poison_, [&](const auto& one) {
    name_record& record = log_.names[one.first.first];
    if (record.set == set) --record.held_by;
    return record.set == set;
  });
}

// The negotiation, or a set alone.
template <class Any>
void basic_node<Any>::send_leave(std::uint32_t only) {
  waiting_leave one;
  one.ranks.insert(tree_.rank());
  const own_leave& mine = only == none ? *leaving_ : *left_sets_[only];
  one.how = mine.how;
  one.why = mine.why;
  one.set = only;
  if (one.how == departure::drained) {  // [protocol L2]
    for_each_operation([&](std::uint32_t slot) {
      if (only != none && log_.names[operations_[slot].name].set != only) return;
      one.pending.emplace_back(operations_[slot].name, operations_[slot].number);
    });
  }
  for (std::uint32_t set = 0; set < joins_.size(); ++set) {
    if (joins_[set].failed) one.stuck.push_back(set);
  }
  on_leave(one);
}

// [protocol W4]
template <class Any>
void basic_node<Any>::give_up() {
  if (leaving_ || log_.closed) return;
  std::vector<operation_ref> all;
  for_each_operation([&](std::uint32_t slot) { all.push_back({slot, operations_[slot].turn}); });
  for (const operation_ref& one : all) withdraw(one, withdrawal_reason::no_decision, now_);
  leave(departure::abandoned);
}

template <class Any>
std::optional<std::uint64_t> basic_node<Any>::start_group(std::uint32_t set,
                                                          std::string_view text) {
  return start_group(intern_name(set, text));
}

template <class Any>
std::optional<std::uint64_t> basic_node<Any>::start_group(name_index name) {
  if (leaving_ || log_.any_leaver() || log_.closed) return std::nullopt;  // [protocol H3]
  if (std::find(log_.groups.begin(), log_.groups.end(), name) == log_.groups.end() ||
      !counts_starts(name)) {
    return std::nullopt;
  }
  return groups_.start(name);
}

template <class Any>
bool basic_node<Any>::request_report(std::uint64_t now) {
  if (log_.closed || (leaving_ && !tree_.is_root())) return false;  // [protocol L6]
  report_wanted_ = true;
  want_report(tree_.self(), now);
  pump();
  return true;
}

template <class Any>
void basic_node<Any>::finished(std::size_t operations) {
  if (!tree_.is_root()) return;
  in_flight_ -= std::min(operations, in_flight_);
  pump();
}

template <class Any>
void basic_node<Any>::data_failed(std::string_view cause) {
  if (log_.closed) return;
  on_fault({tree_.rank(), log_.log_count, std::string(cause)});
  pump();
}

template <class Any>
bool basic_node<Any>::give_up_plan() {
  if (!planner_.give_up_plan(log_.names, table_)) return false;
  pump();
  return true;
}

template <class Any>
void basic_node<Any>::clear_actions() {
  for (const action& one : actions_) {
    if (one.entry != none) log_.names.release(one.entry);
  }
  actions_.clear();
  verdicts_.clear();
  reports_.clear();
  adjustments_.clear();
}

template <class Any>
template <class Visit>
void basic_node<Any>::for_each_operation(Visit visit) {
  for (name_index name = 0; name < log_.names.bound(); ++name) {
    if (log_.names[name].operations.empty()) continue;
    std::vector<std::uint32_t> slots;
    log_.names[name].operations.for_each(
        [&slots](epoch, std::uint32_t slot) { slots.push_back(slot); });
    for (const std::uint32_t slot : slots) visit(slot);
  }
}

// It has been taken out of its name's operations.
template <class Any>
void basic_node<Any>::free_operation(std::uint32_t slot) {
  operation& one = operations_[slot];
  --pending_;
  --pending_in_set_[log_.names[one.name].set];
  log_.names.release(one.entry);
  one.name = none;
  ++one.turn;
  free_operations_.push_back(slot);
}

template <class Any>
void basic_node<Any>::fail_operation(std::uint32_t slot, const verdict_ptr& why) {
  const operation& one = operations_[slot];
  log_.names[one.name].operations.erase(one.number);
  action fail;
  fail.kind = action_kind::fail;
  fail.set = log_.names[one.name].set;
  fail.name = one.name;
  fail.number = one.number;
  fail.token = one.token;
  fail.withdrew = one.withdrawn;
  fail.own_reason = one.reason;
  fail.detail = static_cast<std::uint32_t>(verdicts_.size());
  verdicts_.push_back(why);
  actions_.push_back(fail);
  free_operation(slot);
}

template <class Any>
void basic_node<Any>::fail_everything(const verdict_ptr& why) {
  for_each_operation([&](std::uint32_t slot) { fail_operation(slot, why); });
  for (std::uint32_t set = 0; set < joins_.size(); ++set) {
    if (!joins_[set].active || joins_[set].failed) continue;
    joins_[set].failed = true;
    action fail;
    fail.kind = action_kind::fail_join;
    fail.set = set;
    fail.token = joins_[set].token;
    fail.detail = static_cast<std::uint32_t>(verdicts_.size());
    verdicts_.push_back(why);
    actions_.push_back(fail);
  }
}

// [protocol L7] True if it is news.
template <class Any>
bool basic_node<Any>::note_reason(const waiting_leave& one) {
  bool is_new = false;
  if (one.why.empty()) return is_new;
  for (const int rank : one.ranks.list()) {
    const bool known = std::any_of(reasons_.begin(), reasons_.end(), [&](const given_reason& each) {
      return each.set == one.set && each.rank == rank;
    });
    if (known) continue;
    reasons_.push_back({one.set, rank, one.why});
    is_new = true;
  }
  return is_new;
}

// [protocol L7] The first that one of those has given who have left.
template <class Any>
void basic_node<Any>::add_reason(std::uint32_t set, verdict& why) const {
  const auto first = std::find_if(reasons_.begin(), reasons_.end(), [&](const given_reason& each) {
    return (each.set == none || each.set == set) && why.ranks.contains(each.rank);
  });
  if (first == reasons_.end()) return;
  why.rank = first->rank;
  why.text = first->why;
}

template <class Any>
verdict_ptr basic_node<Any>::lost(std::uint32_t set) const {
  verdict why;
  why.kind = failure_kind::peer_lost;
  why.ranks = log_.departed_from(set, sets_[set].members);
  why.unknown = log_.abandoned_in(set, sets_[set].members);
  add_reason(set, why);
  return std::make_shared<const verdict>(std::move(why));
}

}  // namespace cohort::protocol
