// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What must hold when a job is over: everything has ended, nothing is left, and the results
/// are those of the serial execution, or such that timing may have caused.

#include "graph/oracle.hpp"
#include "graph/world.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace graph_test {

/// Compares one scope with its serial execution.
class verification {
 public:
  verification(world& of, int scope)
      : world_(of),
        job_(of.what()),
        notes_(of.seen()),
        scope_(scope),
        places_(of.scopes()[static_cast<std::size_t>(scope)]),
        oracle_(job_, scope) {
    for (const place& one : places_) {
      if (!notes_.dead.contains(one.rank())) alive_.push_back(&one);
    }
  }

  void run() {
    oracle_.run();
    if (job_.strict) {
      for (const place* one : alive_) compare(*one);
      compare_runs();
    } else {
      for (const place* one : alive_) allow(*one);
      compare_divergences();
    }
    if (notes_.dead.empty()) compare_reports();
    if (job_.uniform) count_messages();
  }

 private:
  void compare(const place& one);
  void compare_ends(const place& one);
  void compare_runs();
  void allow(const place& one);
  void compare_divergences();
  void compare_reports();
  void count_messages();
  [[nodiscard]] bool may(const outcome& got, int window, const operation& next, const place& by);
  using choices = std::set<std::uint64_t>;
  [[nodiscard]] choices values(int window, const key& v, int depth);
  [[nodiscard]] std::vector<definition> seen(int window, const key& v) const {
    const auto found = notes_.seen.find({scope_, window, v});
    return found == notes_.seen.end() ? std::vector<definition>{} : found->second;
  }
  /// What a report tells of, without how.
  static std::set<std::string> tasks_of(const std::vector<divergence>& all) {
    std::set<std::string> result;
    for (const divergence& one : all) result.insert(one.task);
    return result;
  }
  /// Too many definitions to tell.
  struct too_many {};

  world& world_;
  const job& job_;
  notes& notes_;
  int scope_;
  std::vector<place>& places_;
  oracle oracle_;
  std::vector<const place*> alive_;
  std::map<std::pair<int, key>, choices> known_;
};

inline std::string listed(const std::set<std::string>& all) {
  std::string text;
  for (const std::string& one : all) text += " " + one;
  return text.empty() ? " nothing" : text;
}

inline void verification::compare(const place& one) {
  for (std::size_t p = 0; p < one.producers().size(); ++p) {
    const std::vector<log_entry>& got = one.producers()[p].log;
    const std::vector<oracle::entry>& want = oracle_.log(one.rank(), p);
    check(got.size() == want.size(), "P2 rank ", one.rank(), ", producer ", p, " has ended ",
          got.size(), " of ", want.size(), " operations");
    for (std::size_t i = 0; i < got.size(); ++i) {
      const outcome& is = got[i].what;
      check(got[i].at == want[i].at, "P2 rank ", one.rank(), ", producer ", p,
            " ends its awaits in another order");
      check(want[i].fence ? is.what == fate::fence : want[i].what->fits(is), "P3 rank ", one.rank(),
            ", producer ", p, ", operation ", got[i].at, ": ", is, ", but serially ",
            want[i].fence ? expectation{} : *want[i].what);
    }
  }
  compare_ends(one);
}

inline void verification::compare_ends(const place& one) {
  const std::vector<window_end_seen>& want = oracle_.ends(one.rank());
  check(one.ends().size() == want.size(), "P8 rank ", one.rank(), " has ended ", one.ends().size(),
        " windows of ", want.size());
  for (std::size_t w = 0; w < want.size(); ++w) {
    const window_report& got = one.ends()[w];
    check(got.closed == want[w].closed, "T8 rank ", one.rank(), ", window ", w,
          got.closed ? " ends as closed" : " does not end as closed");
    check(got.failed == want[w].failed, "F1 rank ", one.rank(), ", window ", w, ": ", got.failed,
          " tasks have failed, serially ", want[w].failed);
    check(tasks_of(got.divergences) == want[w].diverged, "D2 rank ", one.rank(), ", window ", w,
          " reports", listed(tasks_of(got.divergences)), ", serially", listed(want[w].diverged));
    check(tasks_of(got.refused) == want[w].refused, "S5 rank ", one.rank(), ", window ", w,
          " reports", listed(tasks_of(got.refused)), ", serially", listed(want[w].refused));
    check(!got.cancelled, "P2 rank ", one.rank(), ", window ", w, " is cancelled");
    check(got.first_failure.has_value() == (got.failed > 0), "P8 the first failure is not told");
    if (!got.first_failure) continue;
    const std::pair<fate, key> root{fate_of(*got.first_failure), got.first_failure->root};
    check(oracle_.first_failure(static_cast<int>(w)).contains(root), "P8 rank ", one.rank(),
          ", window ", w, ": the first failure is ", root.first, ", root ", root.second);
  }
}

inline void verification::compare_runs() {
  for (const auto& [window, k] : oracle_.ran()) {
    check(notes_.runs.contains({scope_, window, k}), "P1 ", k, " of window ", window,
          " has not run");
  }
  for (const auto& [which, times] : notes_.runs) {
    const auto& [scope, window, k] = which;
    check(scope != scope_ || oracle_.ran().contains({window, k}), "P1 ", k, " of window ", window,
          " has run, serially it does not");
  }
}

inline void verification::compare_reports() {
  for (const place* one : alive_) {
    check(one->ends().size() == alive_[0]->ends().size(), "P8 rank ", one->rank(),
          " ends another number of windows");
    for (std::size_t w = 0; w < one->ends().size(); ++w) {
      const window_report& mine = one->ends()[w];
      const window_report& first = alive_[0]->ends()[w];
      const bool same_failure =
          mine.first_failure.has_value() == first.first_failure.has_value() &&
          (!mine.first_failure || (mine.first_failure->root == first.first_failure->root &&
                                   mine.first_failure->code == first.first_failure->code &&
                                   mine.first_failure->task == first.first_failure->task &&
                                   mine.first_failure->text == first.first_failure->text));
      check(mine.failed == first.failed && mine.divergences == first.divergences &&
                mine.refused == first.refused && same_failure &&
                mine.cancelled.has_value() == first.cancelled.has_value(),
            "P8 window ", w, " ends otherwise on rank ", one->rank(), " than on rank 0");
    }
  }
}

/// Uniform programs: one data message for each value and rank that needs it, nothing else that is
/// not asked for (graph P7).
inline void verification::count_messages() {
  const packet_watch& watch = world_.messages();
  check(watch.count(message_kind::diff) == 0 && watch.count(message_kind::list) == 0,
        "A2 DIFF or LIST in a uniform job");
  std::set<std::tuple<int, key, int>> edges;
  for (const auto& [which, d] : oracle_.all()) {
    const auto& [window, k] = which;
    for (const auto& [v, how] : d.deps) {
      if (k.home != v.home && oracle_.good(window, v)) edges.insert({window, v, k.home});
    }
  }
  const std::set<std::tuple<int, key, int>> got = watch.pairs(scope_);
  for (const auto& [window, v, to] : edges) {
    check(got.contains({window, v, to}), "P7 ", v, " of window ", window, " is not sent to ", to);
  }
  for (const auto& [window, v, to] : got) {
    check(edges.contains({window, v, to}), "P7 ", v, " of window ", window, " is sent to ", to);
  }
  for (const auto& [which, times] : watch.digests(scope_)) {
    check(times <= job_.ranks - 1, "P7 rank ", which.second, " sends ", times, " digests");
  }
}

// ---- jobs whose results depend on timing -------------------------------------------------------

inline void verification::allow(const place& one) {
  for (const place::producer_state& who : one.producers()) {
    for (const log_entry& entry : who.log) {
      const operation& next = (*who.steps)[entry.at];
      if (entry.what.what == fate::fence) continue;
      check(may(entry.what, entry.window, next, one), "P2 rank ", one.rank(), ", operation ",
            entry.at, " ", next, ": ", entry.what);
    }
  }
}

/// Any error that has a cause, and of several definitions the value of any.
inline bool verification::may(const outcome& got, int window, const operation& next,
                              const place& by) {
  const auto fails = [&](const definition& d) {
    return job_.scopes[static_cast<std::size_t>(scope_)]
        .bodies[static_cast<std::size_t>(d.body)]
        .fails;
  };
  const auto stays = [&](const definition& d) {
    return job_.scopes[static_cast<std::size_t>(scope_)]
        .bodies[static_cast<std::size_t>(d.body)]
        .homely;
  };
  switch (got.what) {
    case fate::value:
      try {
        return values(window, by.names().key_of(next.name), 0).contains(got.value);
      } catch (const too_many&) {
        return true;
      }
    case fate::failed: {
      const std::vector<definition> all = seen(window, got.root);
      return std::any_of(all.begin(), all.end(), fails);
    }
    case fate::refused: {
      const std::vector<definition> all = seen(window, got.root);
      return std::any_of(all.begin(), all.end(), stays);
    }
    case fate::not_spawned:
      return true;
    case fate::cycle:
      return job_.cycles;
    case fate::stale:
      return next.window < window;
    case fate::taken:
      return job_.misuse && notes_.claimed.contains({scope_, got.root});
    case fate::deadline:
      return has_deadline(next.what);
    case fate::cancelled:
      return by.was_cancelled();
    case fate::lost:
      return !notes_.dead.empty();
    default:
      return false;
  }
}

/// All values that a task may have, if definitions diverge.
inline verification::choices verification::values(int window, const key& v, int depth) {
  const auto found = known_.find({window, v});
  if (found != known_.end()) return found->second;
  if (depth > 30) throw too_many();
  choices result;
  for (const definition& d : seen(window, v)) {
    std::vector<std::vector<std::uint64_t>> combined{{}};
    for (const auto& [dep, how] : d.deps) {
      if (how == use_kind::after) continue;
      const choices each = values(window, dep, depth + 1);
      std::vector<std::vector<std::uint64_t>> longer;
      for (const std::vector<std::uint64_t>& begin : combined) {
        for (const std::uint64_t last : each) {
          longer.push_back(begin);
          longer.back().push_back(last);
          if (longer.size() >= 300) throw too_many();
        }
      }
      combined = std::move(longer);
    }
    for (const std::vector<std::uint64_t>& inputs : combined) {
      result.insert(result_of(window, v, d.function, d.put, inputs));
    }
  }
  known_.emplace(std::pair{window, v}, result);
  return result;
}

inline void verification::compare_divergences() {
  const bool cancelled = std::any_of(alive_.begin(), alive_.end(),
                                     [](const place* one) { return one->was_cancelled(); });
  if (!notes_.dead.empty() || cancelled) return;
  std::set<std::string> want;
  for (const window_end_seen& one : oracle_.ends(alive_[0]->rank())) {
    want.insert(one.diverged.begin(), one.diverged.end());
  }
  std::set<std::string> got;
  for (const place* one : alive_) {
    for (const window_report& report : one->ends()) got.merge(tasks_of(report.divergences));
  }
  if (job_.misuse || job_.displaced()) {  // those of tasks depend on timing
    const auto of_task = [](const std::string& one) { return one.find('(') != std::string::npos; };
    std::erase_if(want, of_task);
    std::erase_if(got, of_task);
  }
  // What children name depends on whether their parents run.
  const bool other = job_.children && (job_.misuse || job_.displaced());
  check(got == want || other, "D2 reports of", listed(got), ", there are", listed(want));
}

// ---- the end -----------------------------------------------------------------------------------

inline void world::final() {
  for (const std::vector<place>& ranks : scopes_) {
    for (const place& one : ranks) {
      if (net_.dead(one.rank())) continue;
      if (!one.ended()) {
        std::string waits;
        for (const place::producer_state& who : one.producers()) {
          if (!who.runs) continue;
          std::ostringstream text;
          text << ' ' << who.at;
          if (who.blocked != nullptr) text << ": " << *who.blocked;
          waits += text.str();
        }
        check(false, "hang: ", one.where(), " waits at", waits);
      }
    }
  }
  for (const transport::transfer& one : net_.receives()) {
    check(net_.dead(one.to), "L3 rank ", one.to, " has a receive posted for ever");
  }
  if (net_.dead().empty()) {
    for (int from = 0; from < job_.ranks; ++from) {
      for (int to = 0; to < job_.ranks; ++to) {
        check(
            net_.in_flight(from, to).empty() && (from == to || !endpoint_of(from).has_message(to)),
            "messages are left from ", from, " to ", to);
      }
    }
    check(net_.sends().empty(), "transfers are left");
    for (int rank = 0; rank < job_.ranks; ++rank) {
      check_tags_are_back(endpoint_of(rank), job_.ranks, job_.tags);
    }
  }
  for (int scope = 0; scope < static_cast<int>(scopes_.size()); ++scope) {
    verification(*this, scope).run();
  }
}

}  // namespace graph_test
