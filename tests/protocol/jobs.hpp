// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Jobs for the checker: random ones, and small ones of which every interleaving is tried.

#include "protocol/world.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <unordered_set>
#include <vector>

namespace protocol_test {

/// What disturbs a random job.
struct disturbances {
  bool mismatch, skip, cancel, join, missing_join, persistent, frozen, stall, sizes, abandon, drain,
      coalesce, slow, listed, messages, asked;
  bool large;  // many ranks, few operations
};

inline signature signature_of(op_kind kind, std::int64_t extent, int priority, int root = -1) {
  signature sig;
  sig.kind = kind;
  sig.element_size = 4;
  sig.dimensions = {extent};
  sig.priority = priority;
  sig.root = root;
  return sig;
}

/// A kind at random; a bundle is an all_reduce with members.
inline signature random_signature(rng& random, int root, bool mostly_reduce) {
  static const std::vector<op_kind> kinds{
      op_kind::all_reduce, op_kind::reduce_scatter, op_kind::barrier,   op_kind::broadcast,
      op_kind::all_reduce, op_kind::all_gather,     op_kind::all_to_all};
  const std::size_t chosen = random.below(kinds.size() + (mostly_reduce ? 20 : 0));
  const op_kind kind = chosen < kinds.size() ? kinds[chosen] : op_kind::all_reduce;
  signature sig = signature_of(kind, random.between(1, 3), random.between(0, 2),
                               kind == op_kind::broadcast ? root : -1);
  if (chosen == 4) sig.members = "a:4;b:8";
  return sig;
}

/// "#" is the reserved name of unnamed operations.
inline signature named(signature sig, const std::string& name) {
  if (name == "#") sig.flags |= signature_flag::unnamed;
  return sig;
}

/// What the members of a set do that a job makes: the same slots on every rank.
struct made_set {
  std::vector<std::pair<char, signature>> slots;
  int root = 0;
  int starts = 0;  // of a persistent group; 0: there is none
  bool joins = false;
};

/// How many times more, or less, a rank starts a persistent group than the others.
inline int more_starts(rng& random) {
  static const std::vector<int> more{0, 0, 0, -1, 1};
  return random.choice(more);
}

inline made_set random_made_set(rng& random, const disturbances& on, const std::set<int>& members) {
  made_set result;
  result.root = *members.begin();
  std::map<char, signature> kinds;
  for (int n = random.between(0, 5); n > 0; --n) {
    const char name = static_cast<char>('a' + random.between(0, 2));
    const auto known = kinds.emplace(name, random_signature(random, result.root, on.frozen)).first;
    result.slots.emplace_back(name, known->second);
  }
  if (on.persistent && random.happens(.5)) result.starts = random.between(1, 3);
  return result;
}

/// What one member does: in any order, but in order per name; then it may leave the set.
inline void add_steps_in_made_set(rng& random, const disturbances& on, const made_set& plan,
                                  int made_by, double wait, std::vector<step>& lane) {
  step what;
  what.inside = made_by;
  int key = made_by - 1000;
  const auto begin = static_cast<std::ptrdiff_t>(lane.size());
  std::vector<std::pair<char, signature>> todo = plan.slots;
  random.shuffle(todo);  // all of a name have one signature
  for (const auto& [name, sig] : todo) {
    if (on.skip && random.happens(.08)) continue;
    what.what = step::kind::submit;
    what.key = --key;
    what.name.second = std::string(1, name);
    what.sig = sig;
    if (on.mismatch && random.happens(.08)) what.sig.dimensions = {9};
    what.size = on.sizes && random.below(4) == 3 ? 2 : 1;
    what.wait = random.happens(wait);
    lane.push_back(what);
    if (on.cancel && random.happens(.12)) {
      what.what = step::kind::cancel;
      lane.push_back(what);
    }
    if (on.skip && random.happens(.05)) break;
  }
  if (plan.starts != 0) {
    step group;
    group.inside = made_by;
    group.key = made_by - 900;
    group.name.second = "persistent";
    const auto insert = [&](step::kind how) {
      const std::size_t places = lane.size() - static_cast<std::size_t>(begin) + 1;
      group.what = how;
      group.wait = random.happens(wait);
      lane.insert(lane.begin() + begin + static_cast<std::ptrdiff_t>(random.below(places)), group);
    };
    for (int n = plan.starts + more_starts(random); n > 0; --n) insert(step::kind::start);
    if (random.happens(.5)) insert(step::kind::remove);
    if (!on.skip || random.happens(.9)) {
      group.what = step::kind::submit;
      group.sig = signature_of(op_kind::group_create, 1, 0);
      group.wait = wait != 0 && random.happens(.7);
      lane.insert(lane.begin() + begin, group);
    }
  }
  if (plan.joins && !(on.missing_join && random.happens(.3))) {
    what.what = step::kind::join;
    lane.push_back(what);
  }
  what.what = step::kind::leave_set;
  what.abandons = on.abandon && random.happens(.3);
  if (!random.happens(.6)) return;
  lane.push_back(what);
  if (!random.happens(.1)) return;
  what.what = step::kind::submit;  // which is refused
  what.key = --key;
  what.name.second = "a";
  lane.push_back(what);
}

/// The same slots on every rank, interleaved at random but in order per name, then disturbed.
inline std::vector<std::vector<std::vector<step>>> random_programs(rng& random,
                                                                   const disturbances& on,
                                                                   negotiation& inst, bool drain) {
  const auto ranks = inst.nodes.size();
  std::vector<std::vector<std::vector<step>>> programs(ranks);
  // Joins in one set only, lest two ranks wait for each other: one that is made, or one that is
  // there.
  bool join_made = on.join && on.listed && random.happens(.5);
  const int join_set =
      on.join && !join_made ? static_cast<int>(random.below(inst.sets.size())) : -1;
  for (std::uint32_t s = 0; s < inst.sets.size(); ++s) {
    const bool joins = static_cast<int>(s) == join_set;
    const std::set<int>& members = inst.sets[s];
    const int root = *members.begin();
    const std::string alphabet = "abc#";
    const int names = random.between(1, on.large ? 2 : 4);
    std::vector<std::vector<signature>> kinds(static_cast<std::size_t>(names));
    static const std::vector<int> how_many{1, 1, 2, 3};
    for (auto& list : kinds) {
      for (int n = random.choice(how_many); n > 0; --n) {
        list.push_back(random_signature(random, root, on.frozen));
      }
    }
    using slot = std::pair<int, signature>;
    std::vector<std::vector<slot>> phases(
        static_cast<std::size_t>(joins ? random.between(1, on.large ? 2 : 3) : 1));
    for (std::vector<slot>& phase : phases) {
      for (int n = on.large ? random.between(1, 3) : random.between(2, 8) + (on.frozen ? 4 : 0);
           n > 0; --n) {
        const int name = random.between(0, names - 1);
        phase.emplace_back(name, random.choice(kinds[static_cast<std::size_t>(name)]));
      }
    }
    // Operations of which only some members take part, as in making a process set, which takes
    // two: the second when the first has succeeded [protocol D2].
    std::vector<full_name> partial;
    std::vector<bool> confirmed;
    std::vector<made_set> inner;
    for (int n = on.listed ? random.between(1, 2) : 0; n > 0; --n) {
      const std::vector<int> all(members.begin(), members.end());
      std::set<int> some;
      rank_set members_too;
      const int size = static_cast<int>(all.size());
      for (const int i : random.sample(size, random.between(1, size))) {
        some.insert(all[static_cast<std::size_t>(i)]);
        members_too.insert(all[static_cast<std::size_t>(i)]);
      }
      // Once for the same ranks: coroutines that make two would be matched in any order.
      const full_name name{s, listed_name(members_too, "add")};
      if (std::find(partial.begin(), partial.end(), name) != partial.end()) continue;
      partial.push_back(name);
      confirmed.push_back(random.happens(.5));
      inner.push_back(random_made_set(random, on, some));
      inner.back().joins = confirmed.back() && std::exchange(join_made, false);
      inst.listed[partial.back()] = some;
      inst.listed[{s, listed_name(members_too, "make")}] = some;
    }
    // Messages from one member to another, some of one name.
    std::vector<std::pair<full_name, signature>> messages;
    if (on.messages && members.size() > 1) {
      const std::vector<int> all(members.begin(), members.end());
      for (int n = random.between(1, 4); n > 0; --n) {
        const std::vector<int> two = random.sample(static_cast<int>(all.size()), 2);
        const bool turned = random.happens(.5);
        const int source = all[static_cast<std::size_t>(two[turned ? 1 : 0])];
        const int destination = all[static_cast<std::size_t>(two[turned ? 0 : 1])];
        const int priority = (2 * source + destination) % 3;  // the same for all of one name
        signature sig = signature_of(op_kind::message, 1, priority, source);
        sig.detail = static_cast<std::uint64_t>(destination);
        messages.push_back({{s, message_name(source, destination, "m")}, sig});
        inst.listed[messages.back().first] = {source, destination};
      }
    }
    const int starts = random.between(1, 4);
    static const std::vector<double> waits{0, .3, 1};
    const double wait = drain ? 0 : random.choice(waits);
    for (const int rank : members) {
      std::vector<std::vector<step>> lanes(
          static_cast<std::size_t>(joins ? 1 : random.between(1, 3)));
      for (std::size_t p = 0; p < phases.size(); ++p) {
        std::map<int, std::deque<slot>> mine;
        for (const slot& one : phases[p]) mine[one.first].push_back(one);
        std::vector<slot> shuffled = phases[p];
        random.shuffle(shuffled);
        std::vector<slot> todo;
        for (const slot& one : shuffled) {
          todo.push_back(mine[one.first].front());
          mine[one.first].pop_front();
        }
        if (joins && random.happens(.5)) {  // uneven work
          todo.resize(static_cast<std::size_t>(random.between(0, static_cast<int>(todo.size()))));
        }
        for (std::size_t i = 0; i < todo.size(); ++i) {
          auto [name, sig] = todo[i];
          if (on.skip && random.happens(.08)) continue;
          if (on.mismatch && random.happens(.08)) {
            switch (random.below(3)) {
              case 0:
                sig.dimensions = {9};
                break;
              case 1:
                sig = random.choice(kinds[static_cast<std::size_t>(name)]);
                break;
              default:
                sig = random_signature(random, root, on.frozen);
            }
          }
          step what;
          what.key = static_cast<int>(p * 100 + i);
          what.name = {s, alphabet.substr(static_cast<std::size_t>(name), 1)};
          what.sig = named(sig, what.name.second);
          what.size = on.sizes && random.below(4) == 3 ? 2 : 1;
          what.wait = random.happens(wait);
          std::vector<step>& lane =
              lanes[(static_cast<std::size_t>(name) + static_cast<std::size_t>(rank)) %
                    lanes.size()];
          lane.push_back(what);
          if (on.cancel && random.happens(.12)) {
            what.what = step::kind::cancel;
            lane.push_back(what);
          }
        }
        const bool forgets = on.missing_join && p + 1 == phases.size() && random.happens(.3);
        if (joins && !forgets) {
          step what;
          what.what = step::kind::join;
          what.name = {s, "join"};
          lanes[0].push_back(what);
        }
      }
      for (std::vector<step>& lane : lanes) {  // some cancellations later
        for (std::size_t i = 0; i < lane.size(); ++i) {
          if (lane[i].what != step::kind::cancel || !random.happens(.6)) continue;
          const auto to = static_cast<std::size_t>(
              random.between(static_cast<int>(i), static_cast<int>(lane.size()) - 1));
          std::rotate(lane.begin() + static_cast<std::ptrdiff_t>(i),
                      lane.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                      lane.begin() + static_cast<std::ptrdiff_t>(to) + 1);
          if (to != i) --i;
          if (random.happens(.3)) break;
        }
      }
      const auto insert = [&](const step& what) {
        lanes[0].insert(
            lanes[0].begin() + static_cast<std::ptrdiff_t>(random.below(lanes[0].size() + 1)),
            what);
      };
      if (on.persistent) {
        step what;
        what.name = {s, "persistent"};
        what.key = -1;
        what.what = step::kind::start;
        for (int n = starts + more_starts(random); n > 0; --n) {
          what.wait = s != 0 && random.happens(wait);
          insert(what);
        }
        if (s != 0 && random.happens(.5)) {
          what.what = step::kind::remove;
          insert(what);
        }
        if (!on.skip || random.happens(.9)) {
          what.what = step::kind::submit;
          what.sig = signature_of(op_kind::group_create, 1, 0);
          // Not where a rank that has skipped it may wait for others to join a set that it makes.
          what.wait = random.happens(.7) && !(drain && on.skip);
          lanes[0].insert(lanes[0].begin(), what);
        }
      }
      for (std::size_t i = 0; i < partial.size(); ++i) {
        if (!inst.listed[partial[i]].contains(rank) || (on.skip && random.happens(.08))) continue;
        step what;
        what.name = partial[i];
        what.key = -2 - static_cast<int>(i);
        const bool differs = on.mismatch && random.happens(.08);
        what.sig = signature_of(op_kind::barrier, differs ? 2 : 1, 0);
        if (confirmed[i]) {  // in a coroutine of its own
          what.wait = !drain;
          lanes.push_back({what});
          if (!drain) what.needs = what.key;
          what.key -= 100;
          what.sig.kind = op_kind::set_add;
          what.wait = !drain || !on.skip;  // else two may wait for what the other has skipped
          if (drain && on.abandon && random.happens(.5)) what.wait = false;  // and leaves before
          const std::size_t end = what.name.second.rfind('\x01') + 1;
          what.name.second = what.name.second.substr(0, end) + "make";
          if (on.skip && random.happens(.08)) continue;
          lanes.back().push_back(what);
          if (on.cancel && random.happens(.06)) {  // before it waits
            lanes.back().back().wait = false;
            what.what = step::kind::cancel;
            lanes.back().push_back(what);
          }
          add_steps_in_made_set(random, on, inner[i], what.key, wait, lanes.back());
          continue;
        }
        insert(what);
        if (on.cancel && random.happens(.12)) {
          what.what = step::kind::cancel;
          insert(what);
        }
      }
      for (std::size_t i = 0; i < messages.size(); ++i) {
        const auto& [name, sig] = messages[i];
        if (!inst.listed[name].contains(rank) || (on.skip && random.happens(.08))) continue;
        step what;
        what.name = name;
        what.key = -500 - static_cast<int>(i);
        what.sig = sig;
        if (on.mismatch && random.happens(.08)) what.sig.dimensions = {2};
        insert(what);
        if (on.cancel && random.happens(.12)) {
          what.what = step::kind::cancel;
          insert(what);
        }
      }
      if (on.stall) {
        step what;
        what.what = step::kind::stall;
        insert(what);
      }
      for (auto& lane : lanes) programs[static_cast<std::size_t>(rank)].push_back(std::move(lane));
    }
  }
  return programs;
}

/// A random job: ranks, tree, sets, programs.
inline std::unique_ptr<world> random_world(std::uint64_t seed, bool tracing = false) {
  auto result = std::make_unique<world>(rng(seed * 0x9e3779b97f4a7c15U + 1));
  world& job = *result;
  rng& random = job.random();
  static const std::vector<int> sizes{1, 2, 2, 3, 3, 4, 4, 5, 6, 7, 8, 10, 12};
  static const std::vector<int> arities{1, 2, 3, 8, 16, 63};
  disturbances on{};
  on.large = random.happens(.1);
  const int n = on.large ? random.between(13, 64) : random.choice(sizes);
  const int arity = on.large ? random.choice(arities) : random.between(1, 8);
  const double form = random.real();
  const bool shuffled = random.happens(.5);
  on.mismatch = random.happens(.4);
  on.skip = random.happens(.4);
  on.cancel = random.happens(.5);
  on.join = random.happens(.4);
  on.missing_join = random.happens(.2);
  on.persistent = random.happens(.4);
  on.frozen = random.happens(.2);
  on.stall = random.happens(.2);
  on.sizes = random.happens(.5);
  on.abandon = random.happens(.15);
  on.drain = random.happens(.5);
  on.coalesce = random.happens(.3);
  on.slow = random.happens(.7);
  on.listed = random.happens(.25);
  on.messages = random.happens(.25);
  on.asked = random.happens(.4);
  const auto some = [&] {
    const std::vector<int> list = random.sample(n, random.between(1, n));
    return std::set<int>(list.begin(), list.end());
  };
  std::set<int> everyone;
  for (int rank = 0; rank < n; ++rank) everyone.insert(rank);
  std::vector<std::vector<std::set<int>>> layout{{everyone}};  // one negotiation, one process set
  if (form > .8) {  // overlapping sets on one device: one order domain [protocol D1]
    job.stream = true;
    layout = {{everyone, some(), some()}};
  } else if (form > .6) {  // overlapping sets with a negotiation each
    layout.clear();
    for (int i = random.between(2, 3); i > 0; --i) layout.push_back({some()});
  }
  job.tracing = tracing;
  job.drain = on.drain;
  job.coalesce = on.coalesce;
  job.undisturbed = on.drain && !on.mismatch && !on.skip && !on.cancel && !on.join && !on.abandon &&
                    !on.persistent;
  for (const std::vector<std::set<int>>& sets : layout) {
    std::set<int> members;
    for (const std::set<int>& set : sets) members.insert(set.begin(), set.end());
    const std::vector<int> world_rank(members.begin(), members.end());
    std::vector<std::set<int>> local(sets.size());  // ranks of the negotiation
    for (std::size_t s = 0; s < sets.size(); ++s) {
      for (std::size_t i = 0; i < world_rank.size(); ++i) {
        if (sets[s].contains(world_rank[i])) local[s].insert(static_cast<int>(i));
      }
    }
    std::vector<int> parents{-1};
    std::vector<int> children(world_rank.size());
    for (int i = 1; i < static_cast<int>(world_rank.size()); ++i) {
      int parent = (i - 1) / arity;
      if (shuffled) {
        do {
          parent = static_cast<int>(random.below(static_cast<std::size_t>(i)));
        } while (children[static_cast<std::size_t>(parent)] >= arity);
      }
      ++children[static_cast<std::size_t>(parent)];
      parents.push_back(parent);
    }
    static const std::vector<std::size_t> name_capacities{2, 3, 99};
    static const std::vector<std::size_t> in_flights{1, 2, 99};
    static const std::vector<std::size_t> firsts{1, 99};
    static const std::vector<std::uint32_t> slots{1, 2, 3, 99};
    static const std::vector<std::uint64_t> packs{64, 128, 192};
    node_options options;
    options.cache_capacity = static_cast<std::size_t>(random.between(1, 4));
    options.name_capacity = random.choice(name_capacities);
    options.in_flight = random.choice(in_flights);
    options.cache_keep = random.below(options.cache_capacity);
    options.firsts = random.choice(firsts);
    options.fusion.patience = static_cast<std::size_t>(random.between(1, 8));
    options.fusion.pack_limit = random.choice(packs);
    options.decides_when_asked = on.asked && random.happens(.7);
    if (on.frozen) {
      static const std::vector<std::vector<std::string>> cuts{
          {"abc", "#"}, {"ab", "c#"}, {"a#", "bc"}};
      const std::vector<std::string>& cut = random.choice(cuts);
      auto plan = std::make_shared<std::vector<frozen_pack>>();
      for (std::uint32_t s = 0; s < sets.size(); ++s) {
        for (const std::string& letters : cut) {
          frozen_pack pack{s, {}};
          for (const char letter : letters) pack.names.emplace_back(1, letter);
          plan->push_back(std::move(pack));
        }
      }
      options.plan = std::move(plan);
    }
    job.add(local, world_rank, parents, options, random.choice(slots));
  }
  for (int number = 0; number < static_cast<int>(layout.size()); ++number) {
    negotiation& inst = job.negotiations()[static_cast<std::size_t>(number)];
    std::set<int> abandon;
    for (int rank = 0; rank < static_cast<int>(inst.nodes.size()); ++rank) {
      if (on.abandon && random.happens(.3)) abandon.insert(rank);
    }
    job.add_programs(number, random_programs(random, on, inst, on.drain), abandon);
  }
  job.add_random_actors();
  job.run(on.slow);
  return result;
}

// ---- small jobs --------------------------------------------------------------------------------

/// A job of a few ranks. Per rank a program, lanes apart by |. a+: `a` with another signature,
/// !a: cancel it, ?a: its deadline passes, g and h: all_gather, J: join, P: create a persistent
/// group (p: without waiting), S: start it, Q: stall query, M01: make a set of ranks 0 and 1, %a:
/// `a` in it, and so %J, %P and %S, %R: remove the group, %L: leave the set; at the end of its
/// program a rank leaves.
struct small_job {
  const char* name;
  int arity;  // 1: a chain, rank 1 is an inner node
  std::vector<std::string> programs;
  std::size_t capacity = 2;
  std::size_t names = 99;
  std::uint32_t slots = 99;
  std::set<int> abandon = {};
};

inline const std::vector<small_job>& small_jobs() {
  static const std::vector<small_job> jobs{
      {"withdraw", 1, {"a a", "a a", "a !a a"}},
      {"withdraw twice", 2, {"a", "a !a a", "a a !a"}},
      {"withdraw, inner", 1, {"a b", "a !a", "b a"}},
      {"deadline", 1, {"a b", "a", "a b ?b"}},
      {"deadline, generation", 1, {"a b", "b a", "b ?b a"}, 1, 1},
      {"sizes", 1, {"g h g", "g h g", "h g g"}, 2, 99, 2},
      {"sizes, join", 1, {"g g J", "g g J", "J"}, 2, 99, 2},
      {"mismatch", 1, {"a a", "a+ !a+ a", "a a"}},
      {"mismatch, one absent", 2, {"b", "a b", "a+ b"}},
      {"mismatch, tree", 2, {"", "a", "a", "a+"}},
      {"generation", 1, {"a b", "b a", "b !b a"}, 1, 1},
      {"generation, ahead", 1, {"a a b", "a a", "a b"}, 1},
      {"join", 1, {"a b J a", "a J a", "J a"}},
      {"join, withdraw", 1, {"a b !b J", "a J a", "J"}},
      {"join, missing", 1, {"a b", "a J", "b J"}},
      {"join, generation", 1, {"a b J", "a J", "J b"}, 1},
      {"join, tree", 2, {"a J", "J", "a J", "b J"}},
      {"leave", 1, {"a b", "a", "b a"}},
      {"leave, crossed", 2, {"a", "b a", "c a"}},
      {"leave, lanes", 1, {"a|b", "b a", "a"}},
      {"abandon", 1, {"a b", "a b", "b a"}, 2, 99, 99, {1}},
      {"stall", 1, {"", "a Q", "a+"}},
      {"persistent", 1, {"P S", "P S S", "P"}},
      {"persistent, late", 1, {"P S", "p"}},
      {"persistent, abandon", 2, {"P S", "P S", "P S"}, 2, 99, 99, {2}},
      {"persistent, join", 1, {"P S J", "P J S", "J"}},
      {"set", 1, {"M01 a %b", "M01 %b a", "a"}},
      {"set, outside", 1, {"M02 %a %L", "a", "M02 %a %L"}},
      {"set, leave", 1, {"", "M12 %a %L", "M12 %a %b %L"}},
      {"set, generation", 1, {"a b", "M12 %a b %L", "M12 a %L"}, 1, 1},
      {"set, join", 1, {"M01 %a %J", "M01 %J %L"}},
      {"set, persistent", 1, {"M01 %P %S %J", "M01 %P %J %S %L"}},
      {"set, removal", 1, {"M01 %P %S %R %J", "M01 %P %S %R %J"}},
  };
  return jobs;
}

inline step small_step(const std::string& word, std::map<std::string, int>& keys) {
  const auto key_of = [&keys](const std::string& text) {
    return keys.emplace(text, static_cast<int>(keys.size())).first->second;
  };
  step what;
  if (word[0] == '%') {
    what = word == "%L" ? step{} : small_step(word.substr(1), keys);
    if (word == "%L") what.what = step::kind::leave_set;
    what.key = key_of(word == "%S" || word == "%R" ? "%P" : word);
    what.inside = keys.at("M");
  } else if (word[0] == 'M') {
    rank_set members;
    for (const char rank : word.substr(1)) members.insert(rank - '0');
    what.key = key_of("M");
    what.name = {0, listed_name(members, "make")};
    what.sig = signature_of(op_kind::set_add, 1, 0);
    what.wait = true;
  } else if (word == "J") {
    what.what = step::kind::join;
    what.name = {0, "join"};
  } else if (word == "S" || word == "R") {
    what.what = word == "S" ? step::kind::start : step::kind::remove;
    what.key = key_of("P");
    what.name = {0, "P"};
    what.wait = word == "R";
  } else if (word == "Q") {
    what.what = step::kind::stall;
  } else if (word[0] == '!' || word[0] == '?') {
    what.what = step::kind::cancel;
    what.key = key_of(word.substr(1));
    what.deadline = word[0] == '?';
  } else if (word == "P" || word == "p") {
    what.key = key_of("P");
    what.name = {0, "P"};
    what.sig = signature_of(op_kind::group_create, 1, 0);
    what.wait = word == "P";
  } else {
    const bool gathers = word[0] == 'g' || word[0] == 'h';
    what.key = key_of(word);
    what.name = {0, word.substr(0, 1)};
    what.sig = signature_of(gathers ? op_kind::all_gather : op_kind::all_reduce,
                            static_cast<std::int64_t>(word.size()), 0);
  }
  return what;
}

/// `asked`: the root decides when asked and then sends, which may happen at any time.
inline world small_world(const small_job& job, bool asked) {
  world result(rng(0, true));
  result.decides_at_any_time = true;
  const int ranks = static_cast<int>(job.programs.size());
  std::set<int> members;
  std::vector<int> world_rank;
  std::vector<int> parents;
  for (int rank = 0; rank < ranks; ++rank) {
    members.insert(rank);
    world_rank.push_back(rank);
    parents.push_back(rank == 0 ? -1 : (rank - 1) / job.arity);
  }
  node_options options;
  options.cache_capacity = job.capacity;
  options.cache_keep = 0;
  options.name_capacity = job.names;
  options.in_flight = options.firsts = 99;
  options.fusion.patience = 9;
  options.fusion.pack_limit = 0;  // the model's choices, all of them the first
  options.decides_when_asked = asked;
  result.add({members}, world_rank, parents, options, job.slots);
  for (const std::string& text : job.programs) {
    const std::size_t make = text.find('M');
    if (make == std::string::npos) continue;
    std::set<int> listed;
    rank_set listed_too;
    for (std::size_t i = make + 1; i < text.size() && text[i] >= '0' && text[i] <= '9'; ++i) {
      listed.insert(text[i] - '0');
      listed_too.insert(text[i] - '0');
    }
    result.negotiations().front().listed[{0, listed_name(listed_too, "make")}] = listed;
  }
  std::vector<std::vector<std::vector<step>>> programs;
  for (const std::string& text : job.programs) {
    std::map<std::string, int> keys;
    programs.emplace_back();
    programs.back().emplace_back();
    std::istringstream words(text);
    for (std::string word; words >> word;) {
      for (std::size_t bar = word.find('|'); bar != std::string::npos; bar = word.find('|')) {
        programs.back().back().push_back(small_step(word.substr(0, bar), keys));
        programs.back().emplace_back();
        word.erase(0, bar + 1);
      }
      programs.back().back().push_back(small_step(word, keys));
    }
  }
  result.add_programs(0, std::move(programs), job.abandon);
  result.add_small_actors();
  return result;
}

struct exploration {
  std::size_t states = 0;
  std::size_t ends = 0;
  bool complete = false;
};

/// Depth first over all states: messages are sent at once; programs step and messages arrive in any
/// order. Throws violation.
inline exploration explore(const small_job& job, bool asked, std::size_t limit) {
  exploration result;
  std::unordered_set<std::uint64_t> seen;
  std::vector<world> stack;
  stack.push_back(small_world(job, asked));
  while (!stack.empty() && seen.size() < limit) {
    const world here = std::move(stack.back());
    stack.pop_back();
    bool stuck = true;
    const std::size_t last = here.actors.size() - 1;
    for (std::size_t i = 0; i <= last; ++i) {
      if (i == last && !stuck) continue;  // quiet(): only when stuck
      world next = here;
      next.bind();
      if (!next.act(next.actors[i])) continue;
      next.settle();
      stuck = false;
      if (seen.insert(next.digest()).second) stack.push_back(std::move(next));
    }
    if (stuck) {
      world end = here;
      end.final();
      ++result.ends;
    }
  }
  result.states = seen.size();
  result.complete = stack.empty();
  return result;
}

}  // namespace protocol_test
