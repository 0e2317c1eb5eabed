// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// What this rank has spawned for other homes, and what others announce to this one.

#include <cohort/graph/machine/node.hpp>

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace cohort::graph::machine {

// ---- spawner ----

template <class Any>
void basic_node<Any>::announce(index task) {
  const int home = records_[task].what.home;
  announcement& one = announced_[static_cast<std::size_t>(home)];
  one.unlisted.push_back(task);
  one.sum.add(hash_of(task));  // [graph A2]
  if (!one.fresh) fresh_.push_back(home);
  one.fresh = true;
}

// Of the key and the definition, as they would be encoded. [graph K5] [graph A2]
template <class Any>
digest128 basic_node<Any>::hash_of(index task) const {
  const stored_definition& one = definitions_[own_definition(task)];
  hasher hash;
  hash.name(records_[task].what);
  hash.words((std::uint64_t{one.function} << 32U) | one.result,
             (std::uint64_t{one.argument_bytes} << 32U) | one.count);
  hash.bytes(one.arguments());
  for (const edge& each : one.edges()) {
    hash.name(records_[each.value].what, static_cast<std::uint64_t>(each.use));
  }
  return hash.finish();
}

template <class Any>
void basic_node<Any>::flush_announcements() {
  for (const int home : std::exchange(fresh_, {})) {
    announcement& one = announced_[static_cast<std::size_t>(home)];
    if (!std::exchange(one.fresh, false)) continue;
    if (one.lists) {  // [graph A4]
      send_list(home);
    } else {
      send(home, message_kind::digest, digest_message{one.sum});  // [graph A2]
    }
  }
}

// The definitions themselves, in spawn order. [graph A5]
template <class Any>
void basic_node<Any>::send_list(int home) {
  list_message all;
  std::map<std::string, std::uint32_t> texts;
  const auto text = [&](const std::string& one) {
    const auto [at, is_new] = texts.try_emplace(one, static_cast<std::uint32_t>(all.texts.size()));
    if (is_new) all.texts.push_back(one);
    return at->second;
  };
  const auto name = [&](index at) {
    const task_name one = records_.name_of(records_[at].name);
    return listed_name{text(records_.families()[one.family].facts.name),
                       {one.indices.begin(), one.indices.begin() + one.count}};
  };
  for (const index task : std::exchange(announced_[static_cast<std::size_t>(home)].unlisted, {})) {
    const stored_definition& what = definitions_[records_[task].definition];
    listed_task one;
    one.what = records_[task].what;
    one.name = name(task);
    one.function = what.function;
    one.result = what.result;
    one.arguments.assign(what.arguments().begin(), what.arguments().end());
    for (const edge& each : what.edges()) {
      one.uses.push_back({records_[each.value].what, each.use, name(each.value)});
    }
    one.file = text(file_of(what.site()));
    one.line = what.line;
    all.tasks.push_back(std::move(one));
  }
  send(home, message_kind::list, all);
}

template <class Any>
void basic_node<Any>::on_diff(int from) {
  announcement& one = announced_[static_cast<std::size_t>(from)];
  one.lists = true;  // [graph A4]
  one.fresh = false;
  send_list(from);
}

// ---- home ----

// A newer digest replaces an older. [graph A2]
template <class Any>
void basic_node<Any>::on_digest(int from, const digest_message& one) {
  account& other = accounts_[static_cast<std::size_t>(from)];
  if (!other.digest) ++compare_count_;
  other.digest = one.sum;
}

// Equal digests are not answered. [graph A3]
template <class Any>
void basic_node<Any>::flush_comparisons() {
  if (std::exchange(compare_count_, 0) == 0) return;
  for (; summed_ < own_.size(); ++summed_) own_sum_.add(hash_of(own_[summed_]));
  for (int from = 0; from < ranks_; ++from) {
    account& other = accounts_[static_cast<std::size_t>(from)];
    if (!other.digest) continue;
    const bool agrees = *other.digest == own_sum_;
    other.agreed = agrees ? summed_ : 0;
    other.digest.reset();
    if (!agrees) send(from, message_kind::diff, std::vector<std::byte>());  // [graph A4]
  }
}

template <class Any>
void basic_node<Any>::on_list(int from, const list_message& all) {
  const auto name = [&](index at, const listed_name& one) {
    if (records_[at].name != none) return;
    records_.name(at, records_.family_named(all.texts[one.family]),
                  static_cast<std::uint32_t>(one.indices.size()), one.indices.data());
  };
  for (const listed_task& one : all.tasks) {
    if (one.what.home != rank_) out_of_place("a list for another home");
    const index task = records_.make(one.what);
    name(task, one.name);
    const definition_view what{one.function, one.result, one.arguments, {}, true};
    const spawn_site site{owner_.keep_text(all.texts[one.file]), one.line};
    const index made = definitions_.add(what, one.uses.size(), site, true);
    use_writer uses(definitions_[made], task);
    for (const listed_use& each : one.uses) {
      const index value = records_.make(each.value);
      uses.add(value, each.use);
      name(value, each.name);
    }
    declare(task, made, from, {});
  }
}

}  // namespace cohort::graph::machine
