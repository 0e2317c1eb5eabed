// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Decisions, at the root alone.

#include <cohort/protocol/node.hpp>

namespace cohort::protocol {

template <class Any>
void basic_node<Any>::pump() {
  if (!options_.decides_when_asked) decide();
}

template <class Any>
void basic_node<Any>::decide() {
  if (!tree_.is_root()) return;
  while (!applying_ && elect()) {
  }
}

// One decision; true when there may be another.
template <class Any>
bool basic_node<Any>::elect() {
  if (log_.closed) return false;
  if (cache_full_ || log_.names_in_use() > options_.name_capacity) {  // [protocol G1]
    cache_full_ = false;
    emit_number(part::generation, options_.cache_keep);
    return true;
  }
  while (!doomed_.empty()) {  // [protocol J6]
    const ready_queue::item one = doomed_.back();
    doomed_.pop_back();
    const record& rec = table_[one.index];
    if (rec.arrival != one.arrival) continue;  // it has failed for another reason
    const set_in_tree& set = members_of(rec.name);
    verdict why;
    why.kind = failure_kind::joined;
    why.ranks = set.members.without(table_.ranks_of(rec, set));
    emit_failure(rec.name, rec.number, std::move(why));
    return true;
  }
  if (in_flight_ < options_.in_flight) {  // [protocol R5]
    planner_.choose(
        log_.names, table_,
        [this](std::uint32_t set) { return all_joined(set) || log_.has_leaver(set); }, pack_);
    if (!pack_.empty()) {
      elect_pack();
      return true;
    }
  }
  for (std::uint32_t set = 0; set < sets_.size(); ++set) {  // [protocol J4]
    if (!all_joined(set) || log_.has_leaver(set) || !table_.empty(set)) continue;
    in_flight_ += sets_[set].contains_me ? 1U : 0U;
    emit_number(part::join, set);
    return true;
  }
  if (end_set()) return true;
  const bool drained = !groups_.frozen || groups_.drained;
  if (left_.size() == static_cast<std::size_t>(tree_.ranks()) && log_.nothing_live() &&
      promised_.empty() && drained) {
    emit(part::close, closing{});  // [protocol L5]
  }
  return false;
}

// [protocol D2] A set that some have left alone ends when all have, nothing that they want can be
// elected any more, and none of its listed operations waits.
template <class Any>
bool basic_node<Any>::end_set() {
  for (const auto& [set, ranks] : leavers_) {
    const std::uint32_t number = set;
    const bool promised = std::any_of(promised_.begin(), promised_.end(), [&](const auto& one) {
      return log_.names[one.first.first].set == number;
    });
    if (promised || !log_.nothing_live(set) || !left_of(set).includes(sets_[set].members)) continue;
    emit_number(part::end, number);
    return true;
  }
  return false;
}

template <class Any>
void basic_node<Any>::elect_pack() {
  wire::writer out = new_item();
  if (gather_ids()) {
    put_execute(out, std::span<const std::uint32_t>(ids_));
  } else {
    put_execute(out, std::span<const elected>(gather_elected()));
  }
  apply_items();
}

// The ids of a pack, if they tell all there is to say. Mostly they do.
template <class Any>
bool basic_node<Any>::gather_ids() {
  ids_.clear();
  for (const record_index index : pack_) {
    const record& rec = table_[index];
    const entry_record& entry = log_.names.entry(rec.entry);
    if (entry.id == none || rec.count != members_of(rec.name).size || is_sized(entry.sig.kind)) {
      return false;
    }
    ids_.push_back(entry.id);
  }
  for (const record_index index : pack_) in_flight_ += members_of(table_[index].name).contains_me;
  return true;
}

template <class Any>
const std::vector<elected>& basic_node<Any>::gather_elected() {
  std::size_t defined = log_.cache.size();
  chosen_.clear();
  for (const record_index index : pack_) {
    const record& rec = table_[index];
    const entry_record& entry = log_.names.entry(rec.entry);
    const set_in_tree& set = members_of(rec.name);
    elected item;
    item.entry = wire_entry_of(log_.names, rec.entry);
    item.contributors = rec.count;
    item.whole = rec.count == set.size;
    if (entry.id == none && is_cached(entry.sig) &&
        !log_.names[rec.name].listed) {  // [protocol C1]
      item.define = defined < options_.cache_capacity;
      (item.define ? void(++defined) : void(cache_full_ = true));
    }
    item.known = entry.id != none && is_sized(entry.sig.kind) && item.whole &&
                 rec.sizes != record::sizes_unset && rec.sizes != 0 &&
                 rec.sizes == entry.reference;  // [protocol Z3]
    in_flight_ += set.contains_me ? 1U : 0U;
    chosen_.push_back(std::move(item));
  }
  return chosen_;
}

// [protocol R6] What is ready is sorted anew, for what may share a pack has changed.
template <class Any>
void basic_node<Any>::adjust(std::vector<std::uint64_t> numbers, const fusion_options& packing) {
  if (log_.closed || !tree_.is_root()) return;
  if (!planner_.has_plan()) {
    planner_.pack_by(packing, log_.names);
    for (std::uint32_t set = 0; set < sets_.size(); ++set) {
      for (record_index index = table_.first(set); index != none; index = table_[index].next) {
        if (table_[index].ready) planner_.add(log_.names, table_, index);
      }
    }
  }
  emit(part::adjust, adjustment{std::move(numbers)});
}

// [protocol R1] The head of a name can be elected once it is complete; or it cannot at all
// [protocol J6].
template <class Any>
void basic_node<Any>::promote(name_index name) {
  if (log_.names[name].records.empty()) return;
  const record_index index = table_.find(log_.names, name, log_.names[name].base);
  if (index == none) return;
  record& rec = table_[index];
  if (!rec.full || rec.ready) return;
  const signature& sig = log_.names.entry(rec.entry).sig;
  const set_in_tree& set = members_of(name);
  const bool everyone = rec.count == set.size;
  if (!everyone && (needs_everyone(sig) || log_.names[name].listed ||
                    (sig.root >= 0 && !table_.ranks_of(rec, set).contains(sig.root)))) {
    doomed_.push_back({index, 0, rec.arrival});
  } else {
    planner_.add(log_.names, table_, index);
  }
}

// Where the next item of the log is written, before `apply_items`.
template <class Any>
wire::writer basic_node<Any>::new_item() {
  if (applying_) return wire::writer(waiting_items_.emplace_back());
  item_.clear();
  return wire::writer(item_);
}

// The root applies an item by reading it, as all others do. One at a time: what is decided while an
// item is applied waits for its turn. After CLOSE nothing is applied: after a fault there may be
// more to decide, from what ranks have sent before they knew of it, but the ranks that would hear
// of it have ended. [protocol L6]
template <class Any>
void basic_node<Any>::apply_items() {
  if (std::exchange(applying_, true)) return;
  for (;;) {
    if (!log_.closed) {
      wire::reader in(item_);
      down_visitor visit{*this, in, item_, now_};
      read_down(in, visit);
    }
    if (waiting_items_.empty()) break;
    item_ = std::move(waiting_items_.front());
    waiting_items_.pop_front();
  }
  applying_ = false;
}

template <class Any>
template <class T>
void basic_node<Any>::emit(part tag, const T& value) {
  wire::writer out = new_item();
  put_part(out, tag, value);
  apply_items();
}

template <class Any>
void basic_node<Any>::emit_number(part tag, std::uint64_t number) {
  wire::writer out = new_item();
  out.byte(static_cast<std::uint8_t>(tag));
  out.varint(number);
  apply_items();
}

template <class Any>
void basic_node<Any>::emit_failure(name_index name, epoch number, verdict why) {
  emit(part::fail, failed{{wire_name_of(log_.names, name), number}, std::move(why)});
}

}  // namespace cohort::protocol
