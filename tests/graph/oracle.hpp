// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The same programs executed one after the other, without any messages.

#include "graph/job.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace graph_test {

/// What a serial execution says of a task, or of an await. A failed one may name any of the roots
/// of those dependencies that failed at the same time.
struct expectation {
  bool good = true;
  std::uint64_t value = 0;
  unsigned size = 0;
  std::set<std::pair<fate, key>> roots;

  [[nodiscard]] bool fits(const outcome& got) const {
    if (!good) return roots.contains({got.what, got.root});
    return got.what == fate::value && got.value == value && got.size == size;
  }
};

inline std::ostream& operator<<(std::ostream& out, const expectation& one) {
  if (one.good) return out << "value " << one.value;
  out << "error";
  for (const auto& [what, root] : one.roots) out << ' ' << what << ' ' << root;
  return out;
}

inline std::string name_of(const label& name) {
  return "f" + std::to_string(name.family) + "(" + std::to_string(name.index) + ")";
}

/// How a window ends on one rank.
struct window_end_seen {
  bool closed = false;  // others have asked for more
  std::uint64_t failed = 0;
  std::set<std::string> diverged;  // tasks and families
  std::set<std::string> refused;   // tasks
};

class oracle {
 public:
  struct entry {
    std::size_t at;
    int window;
    bool fence;
    std::shared_ptr<const expectation> what;  // its roots may still be found out
  };

  oracle(const job& of, int scope);
  void run();

  [[nodiscard]] const std::vector<entry>& log(int rank, std::size_t producer) const {
    return producers_[static_cast<std::size_t>(rank)][producer].log;
  }
  [[nodiscard]] const std::vector<window_end_seen>& ends(int rank) const {
    return ends_[static_cast<std::size_t>(rank)];
  }
  /// Tasks that have run, and all definitions, by window.
  [[nodiscard]] const std::set<std::pair<int, key>>& ran() const { return ran_; }
  [[nodiscard]] const std::map<std::pair<int, key>, definition>& all() const { return all_; }
  [[nodiscard]] bool good(int window, const key& k) const {
    const auto found = past_.find({window, k});
    return found != past_.end() && found->second->good;
  }
  /// The root causes that the failure of the smallest key may have, by window; empty: none.
  [[nodiscard]] const std::set<std::pair<fate, key>>& first_failure(int window) const {
    return first_failures_[static_cast<std::size_t>(window)];
  }

 private:
  struct program_state {
    const program* steps = nullptr;
    std::size_t at = 0;
    bool runs = false;
    const operation* blocked = nullptr;
    key awaited;
    std::vector<entry> log;
  };

  void spawn(int rank, const spec& one, bool attempt);
  bool refuses(int rank, const spec& one, const key& k);
  void name(int rank, const label& what) { named_.insert(facts_of(rank, what.family)); }
  [[nodiscard]] std::tuple<int, int, bool> facts_of(int rank, int family) const {
    const front& from = fronts_[static_cast<std::size_t>(rank)];
    return {family, from.placement(family), from.odd(family)};
  }
  /// What a rank sees of a task: nothing yet, its result, or that its value cannot come there.
  [[nodiscard]] std::shared_ptr<const expectation> seen_from(int rank, const key& v);
  static std::shared_ptr<expectation> error(fate why, const key& root) {
    return std::make_shared<expectation>(expectation{false, 0, 0, {{why, root}}});
  }
  bool step(int rank, program_state& who);
  bool tasks();
  void roots();
  bool verdict();
  bool end_window();
  template <class Visit>
  void for_each(Visit visit) {
    for (int rank = 0; rank < job_.ranks; ++rank) {
      for (program_state& one : producers_[static_cast<std::size_t>(rank)]) visit(rank, one);
    }
  }

  const job& job_;
  const scope_job& scope_;
  std::vector<front> fronts_;
  std::vector<std::vector<program_state>> producers_;
  std::vector<std::vector<window_end_seen>> ends_;
  int window_ = 0;
  std::map<std::pair<int, key>, definition> all_;
  std::map<key, definition> defs_;
  std::map<key, std::shared_ptr<expectation>> results_;
  std::map<key, std::shared_ptr<expectation>> refusals_;  // of values that cannot travel
  std::set<std::pair<int, key>> ran_;
  std::map<std::pair<int, key>, std::shared_ptr<expectation>> past_;
  std::set<key> rooted_;
  std::set<std::string> diverged_;
  std::set<std::string> refused_;
  std::uint64_t failed_ = 0;
  std::set<std::tuple<int, int, bool>> named_;
  std::vector<std::set<std::pair<fate, key>>> first_failures_;
};

inline oracle::oracle(const job& of, int scope)
    : job_(of),
      scope_(of.scopes[static_cast<std::size_t>(scope)]),
      ends_(static_cast<std::size_t>(of.ranks)) {
  for (int rank = 0; rank < of.ranks; ++rank) {
    fronts_.emplace_back(scope, of.ranks, of.facts[static_cast<std::size_t>(rank)]);
    producers_.emplace_back();
    for (const program& steps : scope_.ranks[static_cast<std::size_t>(rank)]) {
      producers_.back().emplace_back();
      producers_.back().back().steps = &steps;
    }
    producers_.back().front().runs = true;
  }
}

inline bool uses_twice(const spec& one) {
  for (const use& a : one.deps) {
    for (const use& b : one.deps) {
      const bool other = &a != &b && b.how != use_kind::after;
      if (other && a.task == b.task && a.how == use_kind::take) return true;
    }
  }
  return false;
}

/// A refused spawn has no effect but in the report (graph S5).
inline bool oracle::refuses(int rank, const spec& one, const key& k) {
  const bool refused = uses_twice(one) || (k.home != rank && (one.put || one.local));
  if (refused) refused_.insert(name_of(one.name));
  return refused;
}

inline void oracle::spawn(int rank, const spec& one, bool attempt) {
  const front& from = fronts_[static_cast<std::size_t>(rank)];
  const key k = from.key_of(one.name);
  name(rank, one.name);
  for (const use& dep : one.deps) name(rank, dep.task);
  if (one.put && k.home != rank && !attempt) return;
  if (refuses(rank, one, k)) return;
  const definition d = define(from, scope_, one);
  all_.emplace(std::pair{window_, k}, d);
  if (defs_.emplace(k, d).first->second != d) diverged_.insert(name_of(one.name));
}

inline void oracle::run() {
  while (true) {
    bool moved = true;
    while (moved) {
      moved = false;
      for_each([&](int rank, program_state& one) { moved = step(rank, one) || moved; });
      moved = tasks() || moved;
    }
    roots();
    if (verdict()) continue;
    if (end_window()) return;
  }
}

inline std::shared_ptr<const expectation> oracle::seen_from(int rank, const key& v) {
  const auto found = results_.find(v);
  if (found == results_.end()) return nullptr;
  const bool stays = scope_.bodies[static_cast<std::size_t>(defs_.at(v).body)].homely;
  if (!stays || v.home == rank || !found->second->good) return found->second;
  std::shared_ptr<expectation>& refusal = refusals_[v];
  if (!refusal) refusal = error(fate::refused, v);
  return refusal;
}

inline bool oracle::step(int rank, program_state& who) {
  bool moved = false;
  while (who.runs) {
    if (who.blocked != nullptr) {
      if (!is_await(who.blocked->what)) return moved;
      const std::shared_ptr<const expectation> found = seen_from(rank, who.awaited);
      if (!found) return moved;
      who.log.push_back({who.at - 1, window_, false, found});
      who.blocked = nullptr;
    }
    const operation& next = (*who.steps)[who.at++];
    moved = true;
    if (next.what == operation::kind::spawn || next.what == operation::kind::misuse) {
      spawn(rank, scope_.specs[static_cast<std::size_t>(next.number)],
            next.what == operation::kind::misuse);
    } else if (next.what == operation::kind::fork) {
      producers_[static_cast<std::size_t>(rank)][static_cast<std::size_t>(next.number)].runs = true;
    } else if (next.what == operation::kind::end) {
      who.runs = false;
    } else if (is_await(next.what) && next.window < window_) {
      who.log.push_back({who.at - 1, window_, false, error(fate::stale, {})});
    } else if (is_await(next.what)) {
      who.blocked = &next;
      who.awaited = fronts_[static_cast<std::size_t>(rank)].key_of(next.name);
      name(rank, next.name);
    } else if (ends_window(next.what)) {
      who.blocked = &next;
    }
  }
  return moved;
}

inline bool oracle::tasks() {
  bool moved = false;
  const std::map<key, definition> known = defs_;  // tasks may spawn
  for (const auto& [k, d] : known) {
    if (results_.contains(k)) continue;
    bool bad = false;
    bool complete = true;
    std::vector<std::uint64_t> inputs;
    for (const auto& [v, how] : d.deps) {
      const std::shared_ptr<const expectation> found = seen_from(k.home, v);
      if (!found) {
        complete = false;
      } else if (!found->good) {
        bad = true;
      } else if (how != use_kind::after) {
        inputs.push_back(found->value);
      }
    }
    const body& does = scope_.bodies[static_cast<std::size_t>(d.body)];
    if (bad) {
      results_[k] = std::make_shared<expectation>(expectation{false, 0, 0, {}});
      ++failed_;
    } else if (complete) {
      if (!d.put) ran_.insert({window_, k});
      failed_ += does.fails ? 1 : 0;
      const std::uint64_t value = result_of(window_, k, d.function, d.put, inputs);
      results_[k] = does.fails
                        ? error(fate::failed, k)
                        : std::make_shared<expectation>(expectation{true, value, does.size, {}});
      for (const int child : does.children) {
        spawn(k.home, scope_.specs[static_cast<std::size_t>(child)], false);
      }
    } else {
      continue;
    }
    moved = true;
  }
  return moved;
}

/// Which root causes a failed task may report: those of all dependencies that failed in its phase.
inline void oracle::roots() {
  std::vector<key> open;
  for (const auto& [k, what] : results_) {
    if (!what->good && !rooted_.contains(k)) open.push_back(k);
  }
  for (bool again = true; again;) {
    again = false;
    for (const key& k : open) {
      expectation& mine = *results_[k];
      const std::size_t before = mine.roots.size();
      for (const auto& [v, how] : defs_[k].deps) {
        const std::shared_ptr<const expectation> found = seen_from(k.home, v);
        if (found && !found->good) {
          mine.roots.insert(found->roots.begin(), found->roots.end());
        }
      }
      again = again || mine.roots.size() != before;
    }
  }
  rooted_.insert(open.begin(), open.end());
}

inline bool oracle::verdict() {
  const auto unknown = [&](const key& v) { return !defs_.contains(v); };
  bool any = false;
  std::vector<key> waiting;
  for (const auto& [k, d] : defs_) {
    if (results_.contains(k)) continue;
    waiting.push_back(k);
    for (const auto& [v, how] : d.deps) {
      if (!unknown(v)) continue;
      any = true;
      results_[k] = error(fate::not_spawned, v);
      ++failed_;
      rooted_.insert(k);
      break;
    }
  }
  for_each([&](int, program_state& who) {
    if (who.blocked == nullptr || !is_await(who.blocked->what) || !unknown(who.awaited)) return;
    any = true;
    who.log.push_back({who.at - 1, window_, false, error(fate::not_spawned, who.awaited)});
    who.blocked = nullptr;
  });
  if (any) return true;
  for (const key& k : waiting) {
    results_[k] = error(fate::cycle, k);
    ++failed_;
    rooted_.insert(k);
  }
  return !waiting.empty();
}

/// Whether it was the last one.
inline bool oracle::end_window() {
  auto kind = operation::kind::again;
  for_each([&](int rank, const program_state& who) {
    if (!who.runs) return;
    check(who.blocked != nullptr && ends_window(who.blocked->what),
          "the serial execution is stuck on rank ", rank, " at operation ", who.at);
    kind = std::max(kind, who.blocked->what);
  });
  std::map<int, int> families;
  for (const auto& [family, place, function] : named_) ++families[family];
  for (const auto& [family, times] : families) {
    if (times > 1) diverged_.insert("f" + std::to_string(family));
  }
  const auto other = [&](const rank_facts& one) {
    return one.other_options != job_.facts.front().other_options;
  };
  if (std::any_of(job_.facts.begin(), job_.facts.end(), other)) {
    diverged_.insert("options of the scope");
  }
  first_failures_.emplace_back();
  for (const auto& [k, what] : results_) {
    past_[{window_, k}] = what;
    if (!what->good && first_failures_.back().empty()) first_failures_.back() = what->roots;
  }
  for (int rank = 0; rank < job_.ranks; ++rank) {
    auto asked = operation::kind::again;
    for (program_state& who : producers_[static_cast<std::size_t>(rank)]) {
      if (!who.runs) continue;
      asked = std::max(asked, who.blocked->what);
      if (kind != operation::kind::close) who.log.push_back({who.at - 1, window_, true, {}});
      who.blocked = nullptr;
      who.runs = kind != operation::kind::close;
    }
    ends_[static_cast<std::size_t>(rank)].push_back({asked != kind, failed_, diverged_, refused_});
  }
  ++window_;
  if (kind == operation::kind::again) {
    std::erase_if(defs_, [](const auto& one) { return one.second.put.has_value(); });
    for (const auto& [k, d] : defs_) all_[{window_, k}] = d;
  } else {
    defs_.clear();
    named_.clear();
  }
  results_.clear();
  diverged_.clear();
  refused_.clear();
  refusals_.clear();
  failed_ = 0;
  rooted_.clear();
  return kind == operation::kind::close;
}

}  // namespace graph_test
