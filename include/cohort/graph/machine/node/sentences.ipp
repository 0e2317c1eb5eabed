// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// What people read: failures with their facts (the table "Who sees what").

#include <cohort/graph/machine/node.hpp>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cohort::graph::machine {

// ---- names ----

template <class Any>
std::string basic_node<Any>::task_text(index task) const {
  const record& one = records_[task];
  std::string text = records_.text_of(task) + " of rank " + std::to_string(one.what.home);
  if (one.definition == none) return text;
  const stored_definition& known = definitions_[one.definition];
  return text + (known.source ? ", put at " : ", spawned at ") + site_of(known.site());
}

template <class Any>
std::string basic_node<Any>::await_text(spawn_site site) const {
  return "the await of rank " + std::to_string(rank_) + " at " + site_of(site);
}

template <class Any>
std::string basic_node<Any>::taker_text(index one) const {
  const taker& who = takers_[one];
  const std::string rank = std::to_string(who.what.home);
  if (who.await) return "an await of rank " + rank + " at " + site_of(who.site);
  return records_.kept_text(who.name) + " of rank " + rank + ", spawned at " + site_of(who.site);
}

// ---- failures ----

template <class Any>
content_ptr basic_node<Any>::fail(errc code, const key& root, std::string task, int rank,
                                  std::string text) const {
  failure why;
  why.code = code;
  why.root = root;
  why.task = std::move(task);
  why.rank = rank;
  why.text = std::move(text);
  return content_ptr(new failed_content(std::move(why)));
}

template <class Any>
failure basic_node<Any>::failure_of(task_index which, std::string_view what,
                                    std::vector<std::byte> exception) const {
  failure why;
  why.code = errc::task_failed;
  why.root = records_[which].what;
  why.task = records_.text_of(which);
  why.rank = rank_;
  why.text = task_text(which) + ", has failed: " + std::string(what);
  why.exception = std::move(exception);
  return why;
}

template <class Any>
content_ptr basic_node<Any>::not_spawned(index value, const std::string& who) const {
  const key& root = records_[value].what;
  const std::string name = records_.text_of(value);
  return fail(errc::not_spawned, root, name, root.home,
              "no rank has spawned or put " + name + ", whose home is rank " +
                  std::to_string(root.home) + "; it is needed by " + who);
}

template <class Any>
content_ptr basic_node<Any>::cyclic(index task) const {
  constexpr std::size_t most = 8;
  const stored_definition& known = definitions_[records_[task].definition];
  std::string unfinished;
  std::size_t count = 0;
  for (const edge& each : known.edges()) {
    const index value = each.value;
    if (records_[value].value || records_[value].gone) continue;
    if (++count > most) continue;
    unfinished += (count == 1 ? "" : ", ") + records_.text_of(value);
  }
  if (count > most) unfinished += " and " + std::to_string(count - most) + " more";
  return fail(errc::cycle, records_[task].what, records_.text_of(task), rank_,
              task_text(task) + ", is in a cycle of dependencies or behind one; it waits for " +
                  unfinished);
}

template <class Any>
content_ptr basic_node<Any>::taken(index value, index winner, const std::string& loser) const {
  const key& root = records_[value].what;
  const std::string name = records_.text_of(value);
  return fail(errc::taken, root, name, root.home,
              "the value of " + name + ", whose home is rank " + std::to_string(root.home) +
                  ", is taken by " + taker_text(winner) + "; it cannot have it: " + loser);
}

template <class Any>
content_ptr basic_node<Any>::stays_at_home(index value, int to, const std::string& why) const {
  const key& root = records_[value].what;
  const std::string name = records_.text_of(value);
  return fail(errc::not_supported, root, name, rank_,
              "the value of " + name + " is needed on rank " + std::to_string(to) + ", but " + why +
                  ", so it cannot leave its home, rank " + std::to_string(rank_));
}

template <class Any>
failure basic_node<Any>::cancelled_failure() const {
  failure why = *cause_;
  const std::string rank = std::to_string(why.rank);
  if (broken_) {
    why.code = errc::peer_lost;
    why.text = "rank " + rank + " is lost: " + cause_->text;
  } else {
    why.code = errc::cancelled;
    why.text = "the scope was cancelled by rank " + rank + ": " + cause_->text;
  }
  return why;
}

// ---- divergences ----

// The first field that differs, and how. [graph D2] [graph K5]
template <class Any>
std::string basic_node<Any>::difference(const stored_definition& one,
                                        const stored_definition& other) const {
  if (one.source != other.source) return "one is put as a value, the other is a task";
  if (one.source) return "their values differ";
  if (one.function != other.function) {
    return "their functions differ (numbers " + std::to_string(one.function) + " and " +
           std::to_string(other.function) + ")";
  }
  const auto left = one.arguments();
  const auto right = other.arguments();
  if (one.travels && other.travels &&
      !std::equal(left.begin(), left.end(), right.begin(), right.end())) {
    return "their argument values differ";
  }
  const auto uses = [&](const stored_definition& each, index i) {
    if (i >= each.count) return std::string("nothing");
    const edge& use = each.edges()[i];
    const std::string name = records_.text_of(use.value);
    return use.use == use_kind::plain  ? name
           : use.use == use_kind::take ? "take(" + name + ")"
                                       : "after(" + name + ")";
  };
  for (index i = 0; i < std::max(one.count, other.count); ++i) {
    const std::string a = uses(one, i);
    const std::string b = uses(other, i);
    if (i < one.count && i < other.count && one.edges()[i].value == other.edges()[i].value &&
        one.edges()[i].use == other.edges()[i].use) {
      continue;
    }
    return "their dependencies differ (the one with number " + std::to_string(i) + " is " + a +
           " and " + b + ")";
  }
  return "the types of their results differ";
}

// Each definition with the ranks that are known to have given it, and a site. [graph D2]
template <class Any>
std::string basic_node<Any>::divergence_text(index task) const {
  const record& one = records_[task];
  std::vector<index> sides{one.definition};
  for (index at = one.declared; at != none; at = declarations_[at].next) {
    const index other = declarations_[at].definition;
    if (std::find(sides.begin(), sides.end(), other) == sides.end()) {
      sides.insert(sides.begin() + 1, other);  // the list has the last one first
    }
  }
  std::string text = records_.text_of(task) + " is spawned with different definitions: " +
                     difference(definitions_[sides[0]], definitions_[sides[1]]);
  for (std::size_t i = 0; i < sides.size(); ++i) {
    const std::vector<int> ranks = ranks_of(task, sides[i]);
    text += i == 0 ? "; by rank" : ", by rank";
    text += ranks.size() > 1 ? "s " : " ";
    for (std::size_t k = 0; k < ranks.size(); ++k) {
      text += (k == 0 ? "" : ", ") + std::to_string(ranks[k]);
    }
    text += " at " + site_of(definitions_[sides[i]].site());
  }
  return text + "; rank " + std::to_string(rank_) + ", its home, runs the first of these";
}

// Who is known to have given that definition: by a list, or by a digest that was equal to the sum
// of what this rank had spawned itself by then.
template <class Any>
std::vector<int> basic_node<Any>::ranks_of(index task, index definition) const {
  const record& one = records_[task];
  std::vector<int> ranks;
  for (index at = one.declared; at != none; at = declarations_[at].next) {
    if (declarations_[at].definition == definition) ranks.push_back(declarations_[at].rank);
  }
  if (one.spawned && own_definition(task) == definition) {
    ranks.push_back(rank_);
    const auto place =
        static_cast<std::size_t>(std::find(own_.begin(), own_.end(), task) - own_.begin());
    for (int other = 0; other < ranks_; ++other) {
      if (accounts_[static_cast<std::size_t>(other)].agreed > place) ranks.push_back(other);
    }
  }
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

// Not more than so many from a rank in a window; a last one tells that there are others.
template <class Any>
void basic_node<Any>::report_own(index task, bool refused, std::string text) {
  constexpr std::uint32_t most = 200;
  if (own_reports_ > most) return;
  report_item one;
  one.rank = static_cast<std::uint32_t>(rank_);
  one.refused = refused;
  if (own_reports_++ < most) {
    one.what = records_[task].what;
    one.task = records_.text_of(task);
    one.text = std::move(text);
  } else {
    one.task = "more tasks";
    one.text = "rank " + std::to_string(rank_) + " has more to report than is told here";
  }
  reports_.push_back(std::move(one));
}

}  // namespace cohort::graph::machine
