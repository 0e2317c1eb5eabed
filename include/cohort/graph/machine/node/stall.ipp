// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// Stall reports: they ask, and decide nothing (graph Q1).

#include <cohort/graph/machine/node.hpp>

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace cohort::graph::machine {

template <class Any>
void basic_node<Any>::start_report(std::span<const task_index> also) {
  ++query_;
  asked_.clear();
  stalled_.clear();
  answers_.clear();
  std::vector<std::vector<key>> questions(static_cast<std::size_t>(ranks_));
  for (index at = 0; at < records_.size(); ++at) {
    const record& one = records_[at];
    if (one.value || one.gone) continue;
    const bool waits = one.waiters != none || one.awaits != none;
    if (!waits && std::find(also.begin(), also.end(), at) == also.end()) continue;
    stalled_.emplace_back(one.what,
                          stalled_task{records_.text_of(at), one.what.home, {}, {}, {}, 0});
    questions[static_cast<std::size_t>(one.what.home)].push_back(one.what);
  }
  for (int home = 0; home < ranks_; ++home) {
    std::vector<key>& keys = questions[static_cast<std::size_t>(home)];
    if (keys.empty()) continue;
    if (home == rank_) {
      for (const key& one : keys) answers_.push_back(state_of(one));
    } else if (!cancelled_) {  // [graph C3]
      asked_.push_back(home);
      send(home, message_kind::ask, ask_message{query_, std::move(keys)});
    }
  }
}

template <class Any>
void basic_node<Any>::on_ask(int from, const ask_message& one) {
  tell_message answer{one.number, {}};
  for (const key& each : one.values) answer.states.push_back(state_of(each));
  send(from, message_kind::tell, answer);
}

template <class Any>
void basic_node<Any>::on_tell(int from, const tell_message& one) {
  if (one.number != query_) return;
  if (std::erase(asked_, from) == 0) return;
  answers_.insert(answers_.end(), one.states.begin(), one.states.end());
}

// At its home.
template <class Any>
told_state basic_node<Any>::state_of(const key& what) {
  told_state told;
  told.value = what;
  const index at = records_.find(what);
  if (at == none) return told;
  const record& one = records_[at];
  told.state = one.gone ? 5 : static_cast<std::uint8_t>(one.state);
  told.age = records_.age_of(at);
  if (!one.decided) return told;
  for (const int rank : ranks_of(at, one.definition)) {
    told.declarers.push_back(static_cast<std::uint32_t>(rank));
  }
  const stored_definition& known = definitions_[one.definition];
  if (one.state != task_state::waiting) return told;
  for (const edge& each : known.edges()) {
    const index value = each.value;
    if (!records_[value].value && told.missing.size() < 8) {
      told.missing.push_back(records_.text_of(value));
    }
  }
  return told;
}

template <class Any>
stall_report basic_node<Any>::report_so_far() const {
  constexpr const char* states[] = {"not spawned", "waits", "is ready", "runs", "done", "taken"};
  stall_report report;
  report.silent = asked_;
  for (const auto& each : stalled_) {
    stalled_task one = each.second;
    one.state = "unknown";
    const auto found = std::find_if(answers_.begin(), answers_.end(), [&](const told_state& told) {
      return told.value == each.first && told.state < std::size(states);
    });
    if (found != answers_.end()) {
      one.state = states[found->state];
      one.declarers.assign(found->declarers.begin(), found->declarers.end());
      one.missing = found->missing;
      one.age = found->age;
    }
    report.tasks.push_back(std::move(one));
  }
  return report;
}

template <class Any>
stall_report basic_node<Any>::take_report() {
  stall_report report = report_so_far();
  asked_.clear();
  stalled_.clear();
  answers_.clear();
  return report;
}

}  // namespace cohort::graph::machine
