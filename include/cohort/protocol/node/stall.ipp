// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The stall query at a node. [protocol Q1]

#include <cohort/protocol/node.hpp>

namespace cohort::protocol {

template <class Any>
void basic_node<Any>::want_report(int source, std::uint64_t now) {
  if (log_.closed) return;
  report_for_ |= bit(source);
  if (tree_.is_root()) {
    if (!query_.running()) start_query(++queries_, options_.query_timeout, now);
  } else if (!asked_up_) {
    asked_up_ = true;
    up_.writer().byte(static_cast<std::uint8_t>(part::stall_wanted));
  }
}

// Leaves are not asked: this node knows what they have announced. Each level keeps a quarter of the
// time that is left, so the node that does not answer is told from those above it.
template <class Any>
void basic_node<Any>::start_query(std::uint64_t number, std::uint64_t budget, std::uint64_t now) {
  std::uint64_t asked = 0;
  for (int child = 0; child < tree_.child_count(); ++child) {
    if (tree_.is_leaf_child(child)) continue;
    asked |= bit(child);
    wire::writer out = down_.beside(child);
    out.byte(static_cast<std::uint8_t>(part::query));
    out.varint(number);
    out.varint(budget - budget / 4);
  }
  query_.start(number, asked, now + budget, sets_.size());
  for (const auto& [which, rank] : overdue_) query_.overdue.push_back(which);
  end_query_if_answered();
}

template <class Any>
void basic_node<Any>::on_answer(int source, const stall_answer& answer) {
  if (!query_.running() || answer.number != query_.number() ||
      (query_.awaited() & bit(source)) == 0) {
    return;
  }
  for (const stall_row& row : answer.rows) {
    query_.add({resolve_name(row.operation.name), row.operation.number}, row.ready);
  }
  for (const auto& [set, ranks] : answer.joined) {
    require_set(set);
    query_.add_joined(set, ranks);
  }
  query_.silent.unite(answer.silent);
  query_.unknown.unite(answer.unknown);
  query_.note_answer(source);
  end_query_if_answered();
}

template <class Any>
std::optional<std::uint64_t> basic_node<Any>::deadline() const noexcept {
  if (!query_.running()) return std::nullopt;
  return query_.deadline();
}

template <class Any>
void basic_node<Any>::expire(std::uint64_t now) {
  now_ = now;
  if (!query_.running() || now < query_.deadline()) return;
  for (int child = 0; child < tree_.child_count(); ++child) {
    if ((query_.awaited() & bit(child)) == 0) continue;
    const int rank = tree_.children()[static_cast<std::size_t>(child)];
    query_.silent.insert(rank);
    query_.unknown.unite(tree_.subtree(child).without(rank_set{rank}));
    query_.note_answer(child);
  }
  end_query_if_answered();
  pump();
}

template <class Any>
void basic_node<Any>::end_query_if_answered() {
  if (!query_.running() || query_.awaited() != 0) return;
  query_.stop();
  for (std::uint32_t set = 0; set < sets_.size(); ++set) {
    for (record_index index = table_.first(set); index != none; index = table_[index].next) {
      for (const side& ready : sides_of(table_[index])) {
        query_.add({table_[index].name, table_[index].number}, ready);
      }
    }
    for (int source = 0; source <= tree_.self(); ++source) {
      if ((table_.joined(set) & bit(source)) == 0) continue;
      if (source == tree_.self() || tree_.is_leaf_child(source)) {
        query_.add_joined(set, sets_[set].from[static_cast<std::size_t>(source)]);
      }
    }
  }
  if (!tree_.is_root()) return up_.put(part::answer, answer());
  const std::uint64_t waiting = std::exchange(report_for_, 0);
  if (waiting != 0) {
    const stall_answer result = answer();
    for (int child = 0; child < tree_.child_count(); ++child) {
      if ((waiting & bit(child)) == 0) continue;
      wire::writer out = down_.beside(child);
      put_part(out, part::answer, result);
    }
    if ((waiting & bit(tree_.self())) != 0) deliver_report(result);
  }
  decide_overdue();
}

template <class Any>
stall_answer basic_node<Any>::answer() const {
  stall_answer result;
  result.number = query_.number();
  result.generation = log_.generation;
  for (const auto& [which, sides] : query_.table) {
    const name_record& name = log_.names[which.first];
    for (const side& ready : sides) {
      result.rows.push_back({{{none, name.set, name.text}, which.second}, ready});
    }
  }
  for (std::uint32_t set = 0; set < sets_.size(); ++set) {
    if (!query_.joined[set].empty()) result.joined.emplace_back(set, query_.joined[set]);
  }
  result.silent = query_.silent;
  result.unknown = query_.unknown;
  return result;
}

// [protocol M3, W3]
template <class Any>
void basic_node<Any>::decide_overdue() {
  const auto found = std::exchange(query_.table, {});
  for (const auto& [which, sides] : found) {
    if (sides.size() > 1) contradict(which.first, which.second, sides);
    // A listed member that has joined hides among those of its subtree that have not. [protocol D2]
    const name_record& name = log_.names[which.first];
    if (!name.listed || log_.settled(which.first, which.second)) continue;
    verdict why;
    why.kind = failure_kind::joined;
    why.ranks = name.listed->members.common_with(query_.joined[name.set]);
    for (const side& ready : sides) why.ranks.subtract(ready.ranks);
    if (!why.ranks.empty()) emit_failure(which.first, which.second, std::move(why));
  }
  for (const key& which : std::exchange(query_.overdue, {})) {
    const auto late = std::find_if(overdue_.begin(), overdue_.end(),
                                   [&](const auto& one) { return one.first == which; });
    if (late == overdue_.end()) continue;
    const int rank = late->second;
    overdue_.erase(late);
    if (log_.settled(which.first, which.second)) continue;
    const std::uint32_t set = log_.names[which.first].set;
    verdict why;
    why.kind = failure_kind::withdrawn;
    why.rank = rank;
    why.reason = withdrawal_reason::deadline;
    why.asked = true;
    const auto rows = found.find(which);
    if (rows != found.end()) {
      for (const side& ready : rows->second) why.ready.unite(ready.ranks);
    }
    const rank_set& members = members_of(which.first).members;
    why.silent = query_.silent.common_with(members).without(why.ready);
    why.unknown = query_.unknown.common_with(members).without(why.ready);
    why.missing = members.without(why.ready).without(query_.joined[set]);
    why.missing.subtract(why.silent);
    why.missing.subtract(why.unknown);
    emit_failure(which.first, which.second, std::move(why));
  }
  if (!overdue_.empty()) start_query(++queries_, options_.query_timeout, now_);
}

template <class Any>
void basic_node<Any>::deliver_report(const stall_answer& from) {
  report_wanted_ = false;
  stall_report report;
  report.silent = from.silent;
  report.unknown = from.unknown;
  report.joined = from.joined;
  for (const stall_row& row : from.rows) {
    const name_index name = resolve_name(row.operation.name);
    const std::uint32_t set = log_.names[name].set;
    if (report.rows.empty() || report.rows.back().name != log_.names[name].text ||
        report.rows.back().set != set || report.rows.back().number != row.operation.number) {
      stall_report_row fresh;
      fresh.set = set;
      fresh.name = log_.names[name].text;
      fresh.number = row.operation.number;
      fresh.missing = members_of(name).members.without(from.silent).without(from.unknown);
      for (const auto& [which, ranks] : from.joined) {
        if (which == set) fresh.missing.subtract(ranks);
      }
      report.rows.push_back(std::move(fresh));
    }
    report.rows.back().missing.subtract(row.ready.ranks);
    report.rows.back().ready.push_back(row.ready);
  }
  action made;
  made.kind = action_kind::report;
  made.detail = static_cast<std::uint32_t>(reports_.size());
  reports_.push_back(std::move(report));
  actions_.push_back(made);
}

}  // namespace cohort::protocol
