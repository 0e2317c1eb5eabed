// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file A job of the task graph on fake ranks: what can happen next, in an order that a generator
/// of random numbers or a schedule chooses, and the checks that see all ranks at once.

#include "graph/actors.hpp"
#include "graph/job.hpp"
#include "graph/packets.hpp"
#include "graph/place.hpp"
#include "graph/transport.hpp"

#include <cohort/graph/machine/endpoint.hpp>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace graph_test {

class world {
 public:
  world(job what, rng random, bool tracing = false);
  world(const world&) = delete;
  world& operator=(const world&) = delete;

  actors_of_job can;
  bool splits = false;             // each message comes alone
  bool damaged = false;            // some packets arrive with other bytes: nothing is promised then
  std::set<std::uint64_t> deaths;  // at these steps somebody dies

  /// Packets leave as soon as there is something to send.
  void be_greedy();
  /// Whether it could happen. Looks at what has come of it.
  bool act(const actor& one);
  void run(double laziness);
  void final();
  [[nodiscard]] std::uint64_t digest();

  [[nodiscard]] rng& random() { return random_; }
  [[nodiscard]] const job& what() const { return job_; }
  [[nodiscard]] notes& seen() { return notes_; }
  [[nodiscard]] const packet_watch& messages() const { return watch_; }
  [[nodiscard]] const transport& net() const { return net_; }
  [[nodiscard]] std::vector<std::vector<place>>& scopes() { return scopes_; }

 private:
  [[nodiscard]] bool try_to(const actor& one);
  bool flush(int from, int to);
  bool deliver(int from, int to);
  bool deliver_transfer(int which);
  bool complete_transfer(int which);
  bool notify(int rank);
  bool die(int rank);
  void look(int rank);
  void perform(place& at, action& one);
  void check_root(place& at);
  void check_quiet(int scope);
  void damage(packet& bytes);
  endpoint& endpoint_of(int rank) { return *endpoints_[static_cast<std::size_t>(rank)]; }
  place& at(int scope, int rank) {
    return scopes_[static_cast<std::size_t>(scope)][static_cast<std::size_t>(rank)];
  }
  [[nodiscard]] bool all_ended(int rank) const {
    return std::all_of(scopes_.begin(), scopes_.end(), [rank](const std::vector<place>& ranks) {
      return ranks[static_cast<std::size_t>(rank)].ended();
    });
  }
  void touch(int rank) { touched_ = rank; }

  bool greedy_ = false;
  job job_;
  rng random_;
  notes notes_;
  transport net_;
  packet_watch watch_;
  std::vector<std::unique_ptr<endpoint>> endpoints_;
  std::vector<std::vector<place>> scopes_;
  std::vector<std::uint64_t> epochs_;     // of the roots
  std::vector<std::set<int>> told_lost_;  // per rank
  int touched_ = -1;                      // the rank where something has happened
};

inline world::world(job what, rng random, bool tracing)
    : job_(std::move(what)),
      random_(random),
      net_(job_.ranks),
      watch_(job_, notes_),
      epochs_(job_.scopes.size()),
      told_lost_(static_cast<std::size_t>(job_.ranks)) {
  notes_.tracing = tracing;
  for (int rank = 0; rank < job_.ranks; ++rank) {
    endpoints_.push_back(std::make_unique<endpoint>(rank, job_.ranks, job_.tags));
  }
  for (int scope = 0; scope < static_cast<int>(job_.scopes.size()); ++scope) {
    scopes_.emplace_back();
    for (int rank = 0; rank < job_.ranks; ++rank) {
      scopes_.back().emplace_back(notes_, job_, scope, rank);
    }
  }
}

inline void world::be_greedy() {
  greedy_ = true;
  for (std::vector<place>& ranks : scopes_) {
    for (place& one : ranks) one.exact_memory = true;
  }
}

inline bool world::try_to(const actor& one) {
  using kind = actor::kind;
  switch (one.what) {
    case kind::deliver:
      return deliver(one.a, one.b);
    case kind::transfer:
      return deliver_transfer(one.a);
    case kind::complete:
      return complete_transfer(one.a);
    case kind::flush:
      return flush(one.a, one.b);
    case kind::notify:
      return notify(one.a);
    case kind::die:
      return net_.dead().empty() &&
             !std::all_of(scopes_.begin(), scopes_.end(),
                          [](auto& ranks) {
                            return std::all_of(ranks.begin(), ranks.end(),
                                               [](const place& each) { return each.ended(); });
                          }) &&
             die(one.a);
    default:
      break;
  }
  place& where = at(one.a, one.b);
  if (net_.dead(one.b)) return false;
  touch(one.b);
  switch (one.what) {
    case kind::step:
      if (job_.reopens && one.a > 0 && !at(one.a - 1, one.b).ended()) return false;
      return where.step(endpoint_of(one.b), random_);
    case kind::run:
      return where.run(random_);
    case kind::wants:
      return where.flush_wants();
    case kind::announce:
      return where.flush_announcements();
    case kind::compare:
      return where.flush_comparisons();
    case kind::contribute:
      return where.flush_contribution();
    case kind::ask:
      return where.ask_or_read();
    case kind::destroy:
      return where.destroy();
    default:
      return where.deadline(random_);
  }
}

inline bool world::act(const actor& one) {
  touched_ = -1;
  try {
    if (!try_to(one)) return false;
    ++notes_.steps;
    if (touched_ >= 0) look(touched_);
  } catch (const violation&) {
    if (!damaged) throw;
    ++notes_.hits["damage: promises broken"];
    ++notes_.steps;
  }
  return true;
}

/// Performs what the nodes of a rank want done, until they want nothing more.
inline void world::look(int rank) {
  for (std::vector<place>& ranks : scopes_) {
    place& here = ranks[static_cast<std::size_t>(rank)];
    for (action& one : here.look()) perform(here, one);
  }
  for (std::size_t scope = 0; scope < scopes_.size() && rank == 0; ++scope) {
    check_root(scopes_[scope][0]);
  }
  if (!greedy_) return;
  for (int to = 0; to < job_.ranks; ++to) {
    if (to != rank) flush(rank, to);
  }
}

inline void world::perform(place& at, action& one) {
  transport::transfer what;
  what.scope = at.scope();
  what.tag = one.tag;
  what.bytes = one.bytes;
  if (one.kind == action_kind::post_receive) {
    what.from = one.rank;
    what.to = at.rank();
    notes_.trace(at.where(), " posts a receive from ", one.rank, " with tag ", one.tag);
    if (told_lost_[static_cast<std::size_t>(at.rank())].contains(one.rank)) {
      check(false, "X1 a receive is posted from a rank that is lost");
    }
    net_.post_receive(what);
    return;
  }
  check(one.kind == action_kind::send_value, "an action of an unknown kind");
  what.from = at.rank();
  what.to = one.rank;
  notes_.trace(at.where(), " sends a value to ", one.rank, " with tag ", one.tag);
  test_value& value = value_of(*one.what);
  watch_.large(at.scope(), at.window(), value.read().of, one.rank);
  net_.start_send(std::move(what), value);
}

inline bool world::flush(int from, int to) {
  if (net_.dead(from) || !endpoint_of(from).has_message(to)) return false;
  packet bytes;
  if (!endpoint_of(from).take_message(to, bytes)) return false;
  if (!damaged) watch_.sent(from, to, bytes);
  if (!splits || damaged) {
    net_.send(from, to, std::move(bytes));
  } else {
    for (packet& one : split(bytes)) net_.send(from, to, std::move(one));
  }
  return true;
}

inline bool world::deliver(int from, int to) {
  if (net_.dead(to)) return false;
  std::optional<packet> bytes = net_.take(from, to);
  if (!bytes) return false;
  touch(to);
  if (!damaged) {
    watch_.delivered(from, to, *bytes);
    endpoint_of(to).receive(from, *bytes);
    return true;
  }
  damage(*bytes);
  try {
    endpoint_of(to).receive(from, *bytes);
  } catch (const std::system_error&) {
    ++notes_.hits["damage: noticed"];
    look(to);  // what came before has been handled
    net_.end_receives(to, from);
    told_lost_[static_cast<std::size_t>(to)].insert(from);
    endpoint_of(to).lost(from);
  }
  return true;
}

inline bool world::deliver_transfer(int which) {
  std::vector<std::size_t> some;
  for (std::size_t i = 0; i < net_.sends().size(); ++i) {
    if (!net_.sends()[i].delivered) some.push_back(i);
  }
  if (static_cast<int>(some.size()) <= which) return false;
  const std::size_t chosen =
      which == 2 ? random_.below(some.size()) : static_cast<std::size_t>(which);
  transport::transfer one = net_.deliver(some[chosen]);
  notes_.trace("scope ", one.scope, ": rank ", one.to, " has the value of tag ", one.tag, " from ",
               one.from);
  check(net_.dead(one.from) || !at(one.scope, one.to).ended(), "X3 a transfer reaches rank ",
        one.to, ", which has closed");
  endpoint_of(one.to).transferred(one.from, one.tag, std::move(one.copy));
  touch(one.to);
  return true;
}

inline bool world::complete_transfer(int which) {
  std::vector<std::size_t> some;
  for (std::size_t i = 0; i < net_.sends().size(); ++i) {
    if (!net_.sends()[i].complete) some.push_back(i);
  }
  if (static_cast<int>(some.size()) <= which) return false;
  const std::size_t chosen =
      which == 2 ? random_.below(some.size()) : static_cast<std::size_t>(which);
  const transport::transfer one = net_.complete(some[chosen]);
  endpoint_of(one.from).sent_value(one.to, one.tag);
  touch(one.from);
  return true;
}

// ---- loss --------------------------------------------------------------------------------------

inline bool world::die(int rank) {
  notes_.trace("rank ", rank, " dies");
  ++notes_.hits["X1 a rank dies"];
  notes_.dead.insert(rank);
  net_.die(rank, random_);
  for (std::vector<place>& ranks : scopes_) ranks[static_cast<std::size_t>(rank)].die();
  return true;
}

inline bool world::notify(int rank) {
  if (net_.dead(rank)) return false;
  std::set<int>& told = told_lost_[static_cast<std::size_t>(rank)];
  std::vector<int> todo;
  for (const int one : notes_.dead) {
    if (!told.contains(one)) todo.push_back(one);
  }
  if (todo.empty()) return false;
  const int lost = random_.choice(todo);
  notes_.trace("rank ", rank, " hears that ", lost, " is dead");
  told.insert(lost);
  net_.end_receives(rank, lost);
  endpoint_of(rank).lost(lost);
  touch(rank);
  return true;
}

// ---- the wave ----------------------------------------------------------------------------------

/// The root applies its verdict at once, so its epoch tells that the wave has ended.
inline void world::check_root(place& at) {
  if (!at.machine() || net_.dead(0)) return;
  const std::uint64_t epoch = inspector::epoch(*at.machine());
  std::uint64_t& known = epochs_[static_cast<std::size_t>(at.scope())];
  if (epoch == known) return;
  known = epoch;
  watch_.epoch(at.scope(), epoch, at.window());
  ++notes_.hits["T4 a wave ends quiet"];
  check_quiet(at.scope());
}

/// The wave has ended: nothing may move (graph T4).
inline void world::check_quiet(int scope) {
  if (!net_.dead().empty() || job_.timed || damaged) return;
  for (int rank = 1; rank < job_.ranks; ++rank) {
    const place& other = at(scope, rank);
    check(other.passive(), "T4 the wave ends early: ", other.where(), " is active");
    other.check_taken();
    for (int to = 0; to < job_.ranks; ++to) {
      if (to != rank) flush(rank, to);
    }
  }
  for (int from = 0; from < job_.ranks; ++from) {
    for (int to = 0; to < job_.ranks; ++to) {
      for (const packet& bytes : net_.in_flight(from, to)) {
        check(!watch_.counts(bytes, scope), "T4 the wave ends early: a message is in flight from ",
              from, " to ", to);
      }
    }
  }
  for (const transport::transfer& one : net_.receives()) {
    check(one.scope != scope, "T4 the wave ends early: a transfer is in flight");
  }
}

// ---- a run -------------------------------------------------------------------------------------

inline void world::damage(packet& bytes) {
  if (!random_.happens(.05)) return;
  ++notes_.hits["damage: packets"];
  switch (random_.below(3)) {
    case 0:
      for (std::size_t n = random_.below(3) + 1; n > 0 && !bytes.empty(); --n) {
        bytes[random_.below(bytes.size())] ^= static_cast<std::byte>(1U << random_.below(8));
      }
      break;
    case 1:
      bytes.resize(random_.below(bytes.size() + 1));
      break;
    default:
      for (std::size_t n = random_.below(20) + 1; n > 0; --n) {
        bytes.push_back(static_cast<std::byte>(random_.below(256)));
      }
  }
}

inline void world::run(double laziness) {
  std::vector<actor> all = can.actors;
  all.insert(all.end(), can.lazy.begin(), can.lazy.end());
  std::vector<double> slow;
  for (std::size_t i = 0; i < can.actors.size(); ++i)
    slow.push_back(random_.happens(.12) ? .95 : 0);
  slow.resize(all.size(), laziness);
  std::size_t failed = 0;
  while (true) {
    const std::size_t i = random_.below(all.size());
    const bool waits = slow[i] > 0 && random_.happens(slow[i]);
    if (waits || !act(all[i])) {
      if (++failed < 2 * all.size()) continue;
      std::vector<actor> tries = can.actors;
      random_.shuffle(tries);
      const auto works = [&](const actor& one) { return act(one); };
      if (!std::any_of(tries.begin(), tries.end(), works) &&
          !std::any_of(can.timers.begin(), can.timers.end(), works)) {
        break;
      }
    }
    failed = 0;
    if (!can.timers.empty() && random_.happens(.01)) act(random_.choice(can.timers));
    const bool dies = deaths.lower_bound(notes_.steps) != deaths.begin();
    if (dies && static_cast<int>(net_.dead().size()) < job_.ranks - 1) {
      deaths.erase(deaths.begin());
      std::vector<int> alive;
      for (int rank = 0; rank < job_.ranks; ++rank) {
        if (!net_.dead(rank)) alive.push_back(rank);
      }
      die(random_.choice(alive));
    }
    check(notes_.steps < 40000, "livelock");
  }
  if (!damaged) final();
}

/// What tells states apart; all of it, but for the notes.
inline std::uint64_t world::digest() {
  hasher hash;
  for (const std::unique_ptr<endpoint>& one : endpoints_) hash(inspector::digest(*one));
  for (const std::vector<place>& ranks : scopes_) {
    for (const place& one : ranks) hash(one.digest());
  }
  const auto text = [](const packet& bytes) {
    const std::string_view all(reinterpret_cast<const char*>(bytes.data()),
                               bytes.size());  // NOLINT
    return std::hash<std::string_view>{}(all);
  };
  for (int from = 0; from < job_.ranks; ++from) {
    for (int to = 0; to < job_.ranks; ++to) {
      for (const packet& bytes : net_.in_flight(from, to)) hash(text(bytes));
      hash(1);
    }
  }
  for (const std::vector<transport::transfer>* all : {&net_.sends(), &net_.receives()}) {
    for (const transport::transfer& one : *all) {
      for (const int each : {one.scope, one.from, one.to, one.tag}) {
        hash(static_cast<std::uint64_t>(each));
      }
      hash((one.delivered ? 1U : 0U) + (one.complete ? 2U : 0U));
    }
    hash(2);
  }
  for (const int one : net_.dead()) hash(static_cast<std::uint64_t>(one));
  for (const std::set<int>& told : told_lost_) {
    for (const int one : told) hash(static_cast<std::uint64_t>(one));
    hash(3);
  }
  return hash.value();
}

}  // namespace graph_test
