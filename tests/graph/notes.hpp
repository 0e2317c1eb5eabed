// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What the checker notes while a job runs, and what it calls the errors of the machine.

#include "graph/job.hpp"

#include <cohort/core/error.hpp>
#include <cohort/graph/machine/content.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <map>
#include <set>
#include <sstream>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace graph_test {

/// What all ranks together have done: only the checker knows it. By scope, window and key.
struct notes {
  using where = std::tuple<int, int, key>;
  std::map<where, std::vector<definition>> seen;  // of one key those that any rank has spawned
  std::map<where, int> runs;
  std::map<where, int> taken;
  std::set<std::pair<int, key>> claimed;           // values that somebody takes, by scope
  std::map<std::string_view, std::uint64_t> hits;  // of string literals
  std::map<key, label> labels;                     // for people
  std::set<int> dead;
  bool tracing = false;
  std::uint64_t steps = 0;

  void saw(int scope, int window, const key& k, const definition& d) {
    std::vector<definition>& list = seen[{scope, window, k}];
    if (std::find(list.begin(), list.end(), d) == list.end()) list.push_back(d);
  }
  template <class... Parts>
  void trace(const Parts&... parts) const {
    if (!tracing) return;
    std::ostringstream text;
    text << steps << ' ';
    (text << ... << parts);
    std::puts(text.str().c_str());
  }
};

inline fate fate_of(const failure& why) {
  switch (why.code) {
    case cohort::errc::task_failed:
      return fate::failed;
    case cohort::errc::not_spawned:
      return fate::not_spawned;
    case cohort::errc::cycle:
      return fate::cycle;
    case cohort::errc::stale_name:
      return fate::stale;
    case cohort::errc::taken:
      return fate::taken;
    case cohort::errc::cancelled:
      return fate::cancelled;
    case cohort::errc::peer_lost:
      return fate::lost;
    case cohort::errc::diverged:
      return fate::diverged;
    default:
      return fate::refused;
  }
}

/// One rank in one scope, for people.
struct whereabouts {
  int scope, rank, window;
  friend std::ostream& operator<<(std::ostream& out, const whereabouts& one) {
    return out << "scope " << one.scope << " rank " << one.rank << " window " << one.window;
  }
};

}  // namespace graph_test
