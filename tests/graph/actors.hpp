// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What can happen in a job.

#include "graph/job.hpp"

#include <vector>

namespace graph_test {

/// Something that can happen.
struct actor {
  enum class kind {
    deliver,     // a packet from a to b
    transfer,    // the a-th large value arrives; random: any
    complete,    // the a-th send is complete
    step,        // of the programs of rank b in scope a
    run,         // a task there
    flush,       // rank a sends to b what it has for it
    notify,      // rank a hears that another is dead
    wants,       // rank b in scope a asks for values before it is idle
    announce,    // and announces
    compare,     // and compares
    contribute,  // to the wave, while something waits there
    ask,         // for a stall report, or reads it
    destroy,     // forgets a closed scope
    deadline,
    die,  // rank a
  } what;
  int a = 0;
  int b = 0;
};

/// All that may happen in a job, so often as it shall be tried.
struct actors_of_job {
  std::vector<actor> actors;  // what may happen at any time
  std::vector<actor> lazy;    // what has to happen only when a rank is idle
  std::vector<actor> timers;
};

inline std::vector<actor> small_actors(const job& of, int dies) {
  std::vector<actor> actors;
  using kind = actor::kind;
  const int scopes = static_cast<int>(of.scopes.size());
  for (int a = 0; a < of.ranks; ++a) {
    for (int b = 0; b < of.ranks; ++b) {
      if (a != b) actors.push_back({kind::deliver, a, b});
    }
  }
  for (int i = 0; i < 2 && of.ranks > 1; ++i) {
    actors.push_back({kind::transfer, i, 0});
    actors.push_back({kind::complete, i, 0});
  }
  for (const kind one : {kind::step, kind::run}) {
    for (int scope = 0; scope < scopes; ++scope) {
      for (int rank = 0; rank < of.ranks; ++rank) actors.push_back({one, scope, rank});
    }
  }
  for (int scope = 0; scope < scopes && of.timed; ++scope) {
    for (int rank = 0; rank < of.ranks; ++rank) actors.push_back({kind::deadline, scope, rank});
  }
  if (dies < 0) return actors;
  for (int rank = 0; rank < of.ranks; ++rank) actors.push_back({kind::notify, rank, 0});
  actors.push_back({kind::die, dies, 0});
  return actors;
}

inline actors_of_job random_actors(const job& of, bool greedy) {
  actors_of_job all;
  using kind = actor::kind;
  const int scopes = static_cast<int>(of.scopes.size());
  for (int a = 0; a < of.ranks; ++a) {
    for (int b = 0; b < of.ranks; ++b) {
      if (a == b) continue;
      for (int scope = 0; scope < scopes; ++scope) {
        all.actors.push_back({kind::deliver, a, b});
        if (!greedy) all.actors.push_back({kind::flush, a, b});
      }
    }
    if (of.deaths > 0) all.actors.push_back({kind::notify, a, 0});
  }
  for (int i = 0; i < 3 && of.ranks > 1; ++i) {
    all.actors.push_back({kind::transfer, i, 0});
    all.actors.push_back({kind::complete, i, 0});
  }
  for (int scope = 0; scope < scopes; ++scope) {
    for (int rank = 0; rank < of.ranks; ++rank) {
      all.actors.push_back({kind::step, scope, rank});
      all.actors.push_back({kind::step, scope, rank});
      all.actors.push_back({kind::run, scope, rank});
      all.actors.push_back({kind::destroy, scope, rank});
      if (of.patient) all.actors.push_back({kind::contribute, scope, rank});
      if (of.ranks > 1) {
        all.lazy.push_back({kind::wants, scope, rank});
        all.lazy.push_back({kind::announce, scope, rank});
        all.lazy.push_back({kind::compare, scope, rank});
        if (of.asks) all.lazy.push_back({kind::ask, scope, rank});
      }
      if (of.timed) all.timers.push_back({kind::deadline, scope, rank});
    }
  }
  return all;
}

}  // namespace graph_test
