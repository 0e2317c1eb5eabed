// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// Names, spawns, and their refusals.

#include <cohort/graph/machine/node.hpp>

#include <cohort/core/error.hpp>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace cohort::graph::machine {

template <class Any>
basic_node<Any>::basic_node(alone, basic_endpoint<Any>& owner, scope_id id,
                            const node_options& options, node_memory memory)
    : owner_(owner),
      id_(id),
      options_(options),
      rank_(options.rank),
      ranks_(options.ranks),
      place_(options.rank, options.ranks),
      records_(std::move(memory.records)),
      definitions_(std::move(memory.definitions)),
      producers_(1),
      announced_(static_cast<std::size_t>(options.ranks)),
      accounts_(static_cast<std::size_t>(options.ranks)),
      peers_(std::move(memory.peers)),
      peer_table_(std::move(memory.peer_table)) {
  if (rank_ != owner.rank() || ranks_ != owner.ranks()) {
    throw cohort::error(errc::invalid_argument, "task graph: rank " + std::to_string(rank_) +
                                                    " of " + std::to_string(ranks_) +
                                                    " at the endpoint of rank " +
                                                    std::to_string(owner.rank()));
  }
  for (account& one : accounts_) one.credit = options_.credit;
}

// What throws here is behind the other constructor, so the destructor takes it out of the endpoint.
template <class Any>
basic_node<Any>::basic_node(basic_endpoint<Any>& owner, scope_id id, const node_options& options,
                            node_memory memory)
    : basic_node(alone(), owner, id, options, std::move(memory)) {
  owner.enter(*this);
  parked_ = owner.take_parked(id);  // [graph O1]
  for (const parked_message& one : parked_) received_ += is_counted(one.kind) ? 1U : 0U;
  unpark();
  for (int other = 0; other < ranks_; ++other) {
    if (owner.has_left(other)) heard_goodbye(other);
    if (owner.is_lost(other)) lose(other, owner.why_lost(other));
  }
  settle();
}

template <class Any>
basic_node<Any>::~basic_node() {
  for (index at = 0; at < records_.size(); ++at) {
    if (records_[at].definition != none) definitions_[records_[at].definition].drop_inputs();
  }
  owner_.leave(*this);
}

template <class Any>
node_memory basic_node<Any>::leave_memory() noexcept {
  clear();  // what was named since the end of the window
  records_.forget_families();
  return {std::move(records_), std::move(definitions_), std::move(peers_), std::move(peer_table_)};
}

template <class Any>
std::uint32_t basic_node<Any>::family(const family_facts& facts) {
  return records_.family(facts);
}

template <class Any>
std::string basic_node<Any>::text_of(const task_name& name) const {
  return records_.text_of(name.family, name.count, name.indices.data());
}

// ---- spawn ----

// Never waits, and sends nothing itself. [graph S1]
template <class Any>
spawn_result basic_node<Any>::spawn(const task_name& task, const definition_view& what,
                                    spawn_site site) {
  if (cancelled_ || closed_) return {refused_by_end()};  // [graph S4]
  const index at = records_.make(task);
  const bool here = task.what.home == rank_;
  if (!here && !what.travels) return refuse_elsewhere(task, site);  // [graph S5]
  const index made = resolve(at, what, site, here);
  if (definitions_[made].takes) {
    if (const std::string wrong = wrong_use(definitions_[made]); !wrong.empty()) {  // [graph S5]
      definitions_.drop(made);
      return refuse(task, errc::invalid_argument, wrong, site);
    }
  }
  record& one = records_[at];
  if (one.spawned) return spawn_again(at, made, {});  // [graph S2]
  one.spawned = true;
  if (here) {
    if (ranks_ > 1 && what.travels) own_.push_back(at);  // [graph A1]
    declare(at, made, rank_, {});
  } else {
    keep_definition(one, made);
    for (const edge& each : definitions_[one.definition].edges()) {
      consumer(each.value, at, each.use);  // [graph U1]
    }
    announce(at);
  }
  settle();
  return {};
}

// [graph S5]
template <class Any>
spawn_result basic_node<Any>::refuse_elsewhere(const task_name& task, spawn_site site) {
  return refuse(
      task, errc::not_supported,
      "an argument has no wire format, and it is at home on rank " + std::to_string(task.what.home),
      site);
}

// Its value is its definition; it is not announced, for nobody else can put it. [graph A1]
template <class Any>
spawn_result basic_node<Any>::put(const task_name& task, content_ptr value, spawn_site site,
                                  const value_hash* hash) {
  if (cancelled_ || closed_) return {refused_by_end()};  // [graph S4]
  if (task.what.home != rank_) {                         // [graph S3] [graph S5]
    return refuse(task, errc::not_local,
                  "only its home, rank " + std::to_string(task.what.home) + ", puts its value",
                  site);
  }
  const index at = records_.make(task);
  const index made = definitions_.add({}, 0, site, true);
  definitions_[made].source = true;
  record& one = records_[at];
  if (one.spawned) return spawn_again(at, made, value);  // [graph S2]
  one.spawned = true;
  const bool is_first = !one.decided;
  if (is_first && hash != nullptr) hashes_[at] = *hash;  // [graph U4]
  declare(at, made, rank_, value);
  settle();
  return {{}, is_first};
}

// The definition with records instead of names, behind all others.
template <class Any>
std::uint32_t basic_node<Any>::resolve(index task, const definition_view& what, spawn_site site,
                                       bool here) {
  const index made = definitions_.add(what, what.dependencies.size(), site, here);
  use_writer uses(definitions_[made], task);
  for (const dependency& each : what.dependencies) uses.add(records_.make(*each.task), each.use);
  return made;
}

// One value that is taken, and read or taken once more by the same task. [graph S5]
template <class Any>
std::string basic_node<Any>::wrong_use(const stored_definition& what) {
  std::string wrong;
  if (what.count == 1) return wrong;
  for (const edge& one : what.edges()) {
    if (one.use != use_kind::take) continue;
    if (records_[one.value].marked) wrong = records_.text_of(one.value) + " is taken twice by it";
    records_[one.value].marked = true;
  }
  for (const edge& one : what.edges()) {
    if (one.use == use_kind::plain && records_[one.value].marked) {
      wrong = records_.text_of(one.value) + " is both taken and read by it";
    }
  }
  for (const edge& one : what.edges()) records_[one.value].marked = false;
  return wrong;
}

// The same key once more on this rank. [graph S2]
template <class Any>
spawn_result basic_node<Any>::spawn_again(index task, index made, const content_ptr& value) {
  const stored_definition& known = definitions_[own_definition(task)];
  const stored_definition& other = definitions_[made];  // nothing is added before the return
  definitions_.drop(made);
  bool same = are_equal(known, other);
  if (same && known.source) {
    const content_ptr& first = records_[task].value;
    if (!first || !first->travels() || !value->travels() || first->failed() != nullptr) {
      actions_.push_back({.kind = action_kind::warn,
                          .text = task_text(task) + ", is put again at " + site_of(other.site()) +
                                  ": that has no effect, and the values were not compared"});
      return {};
    }
    const auto left = first->bytes();
    const auto right = value->bytes();
    same = std::equal(left.begin(), left.end(), right.begin(), right.end());
  }
  if (same) return {};
  std::string text = records_.text_of(task) + " is spawned twice on rank " + std::to_string(rank_) +
                     ", at " + site_of(known.site()) + " and at " + site_of(other.site()) +
                     ", with different definitions: " + difference(known, other) +
                     "; the first one counts";
  report_own(task, false, text);
  const key what = records_[task].what;
  return {fail(errc::diverged, what, records_.text_of(task), rank_, std::move(text))};
}

// [graph S5]
template <class Any>
spawn_result basic_node<Any>::refuse(const task_name& task, errc code, const std::string& why,
                                     spawn_site site) {
  const index at = records_.make(task);
  std::string text = records_.text_of(at) + " cannot be spawned or put by rank " +
                     std::to_string(rank_) + " at " + site_of(site) + ": " + why;
  report_own(at, true, text);
  return {fail(code, task.what, records_.text_of(at), rank_, std::move(text))};
}

template <class Any>
content_ptr basic_node<Any>::refused_by_end() const {
  if (cancelled_) return cancelled_content_;
  return fail(errc::closed, {}, {}, rank_, "the scope has closed");
}

template <class Any>
content_ptr basic_node<Any>::stale(const task_name& task, std::uint32_t named_in,
                                   spawn_site site) const {
  return fail(errc::stale_name, task.what, text_of(task), rank_,
              text_of(task) + " was named in window " + std::to_string(named_in) +
                  " and is used by rank " + std::to_string(rank_) + " at " + site_of(site) +
                  " in window " + std::to_string(window_) + ": a fence has forgotten it");
}

}  // namespace cohort::graph::machine
