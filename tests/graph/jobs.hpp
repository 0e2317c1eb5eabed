// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Random jobs for the checker.

#include "graph/checks.hpp"
#include "graph/job.hpp"
#include "graph/world.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace graph_test {

/// What is in a random job.
struct ingredients {
  bool boom, unspawned, cycle, diverged, cancel, timed, deaths, large, children, fetch, violate,
      twice, take, grab, misuse, put, again, places;
  bool fork, after, local, homely, refused, functions, fail_fast, asks, reopens;
  std::string style;  // who spawns what
};

template <class T>
bool contains(const std::vector<T>& all, const T& one) {
  return std::find(all.begin(), all.end(), one) != all.end();
}

/// The programs of one scope. Unless `misuse`, all plain readers of a value run before its taker
/// (graph M5).
class random_scope {
 public:
  random_scope(rng& random, const job& of, const ingredients& on)
      : random_(random),
        on_(on),
        ranks_(of.ranks),
        misuse_(of.misuse),
        only_(random.between(0, of.ranks - 1)),
        windows_(windows[random.below(4)]),
        programs_(static_cast<std::size_t>(of.ranks)),
        spawned_(static_cast<std::size_t>(of.ranks)) {}

  scope_job make() {
    for (int w = 0; w < windows_; ++w) {
      if (!again_) forget();
      add_tasks();
      add_cycle();
      add_children();
      add_programs(w);
    }
    if (on_.violate && windows_ > 1 && random_.happens(.3)) close_early();
    for (const program& main : programs_) result_.ranks.push_back(split(main));
    return std::move(result_);
  }

 private:
  static constexpr int windows[] = {1, 1, 2, 3};

  void forget();
  void add_tasks();
  void add_task(const label& name);
  void add_cycle();
  void add_children();
  void add_programs(int window);
  [[nodiscard]] std::vector<spec> spawned_by(int rank);
  void add_awaits(int rank, int window, std::vector<operation>& ops);
  void add_grabs(int rank, int window, std::vector<operation>& ops);
  void add_refused(int rank, std::vector<operation>& ops);
  void close_early();
  [[nodiscard]] std::vector<program> split(const program& main);
  void insert(std::vector<operation>& ops, const operation& one) {
    ops.insert(ops.begin() + static_cast<std::ptrdiff_t>(random_.below(ops.size() + 1)), one);
  }
  [[nodiscard]] unsigned size() { return on_.large && random_.below(3) == 2 ? 5 : 1; }
  [[nodiscard]] int some_rank() { return random_.between(0, ranks_ - 1); }
  [[nodiscard]] bool grabbed(const label& v) const {
    return std::any_of(grabs_.begin(), grabs_.end(),
                       [&](const auto& one) { return one.second == v; });
  }

  rng& random_;
  const ingredients& on_;
  int ranks_;
  bool misuse_;
  int only_;  // the rank that spawns, where one does
  int windows_;
  scope_job result_;
  std::vector<program> programs_;
  bool again_ = false;
  // Of the windows since the last fence.
  int start_ = 0;
  std::vector<label> keys_;
  std::vector<label> sources_;
  std::map<label, std::vector<label>> readers_;
  std::map<label, label> taker_;
  std::vector<std::set<label>> spawned_;  // per rank
  // Of this window.
  label missing_;
  std::vector<spec> specs_;
  std::set<label> child_;
  std::vector<std::pair<int, label>> grabs_;
  std::vector<spec> values_;
  std::vector<std::pair<label, int>> old_;  // names of earlier windows
};

inline void random_scope::forget() {
  start_ = 0;
  keys_.clear();
  sources_.clear();
  readers_.clear();
  taker_.clear();
  for (std::set<label>& one : spawned_) one.clear();
}

inline void random_scope::add_tasks() {
  specs_.clear();
  const int count = random_.between(0, 10);
  missing_ = {random_.between(0, 2), 999, some_rank()};
  for (int j = start_; j < start_ + count; ++j) {
    const label name{random_.between(0, 2), j, some_rank()};
    if (on_.put && random_.happens(.25)) {
      sources_.push_back(name);
      keys_.push_back(name);
    } else {
      add_task(name);
    }
  }
  start_ += count;
}

inline void random_scope::add_task(const label& name) {
  static const std::vector<int> counts{0, 1, 1, 2, 3};
  std::vector<label> free;
  for (const label& k : keys_) {
    if (misuse_ || !taker_.contains(k)) free.push_back(k);
  }
  std::vector<label> reads;
  std::vector<label> taken;
  const int wanted = std::min(static_cast<int>(free.size()), random_.choice(counts));
  for (const int i : random_.sample(static_cast<int>(free.size()), wanted)) {
    reads.push_back(free[static_cast<std::size_t>(i)]);
  }
  if (on_.take && !free.empty() && random_.happens(.6)) {
    const label v = random_.choice(free);
    taken.push_back(v);
    std::erase(reads, v);
    if (!misuse_ || random_.happens(.3)) {
      const std::vector<label> before = readers_[v];
      for (label r : before) {
        while (taker_.contains(r) && !contains(taken, r)) r = taker_[r];
        if (contains(reads, r) || contains(taken, r)) continue;
        (readers_[r].empty() && random_.happens(.4) ? taken : reads).push_back(r);
      }
    }
  }
  if (!reads.empty() && random_.happens(.1)) reads.push_back(reads[0]);  // for two parameters
  for (const label& k : reads) readers_[k].push_back(name);
  for (const label& k : taken) taker_[k] = name;
  if (on_.unspawned && random_.happens(.1)) reads.push_back(missing_);
  spec one;
  one.name = name;
  one.function = static_cast<unsigned>(random_.below(4));
  for (const label& k : reads) {
    one.deps.push_back({k, on_.after && random_.happens(.3) ? use_kind::after : use_kind::plain});
  }
  for (const label& k : taken) one.deps.push_back({k, use_kind::take});
  random_.shuffle(one.deps);
  one.fails = on_.boom && random_.happens(.12);
  one.size = size();
  one.local = on_.local && random_.happens(.2);
  one.homely = on_.homely && random_.happens(.2);
  keys_.push_back(name);
  specs_.push_back(std::move(one));
}

inline void random_scope::add_cycle() {
  if (!on_.cycle || !random_.happens(.5) || specs_.size() < 2) return;
  spec& one = specs_[random_.below(specs_.size())];
  std::vector<label> free;
  for (const label& k : keys_) {
    if (!taker_.contains(k)) free.push_back(k);
  }
  if (free.empty()) return;
  one.deps.push_back({random_.choice(free), use_kind::plain});
  readers_[one.deps.back().task].push_back(one.name);
}

inline void random_scope::add_children() {
  child_.clear();
  if (!on_.children) return;
  for (int times = 0; times < 2 && specs_.size() > 1; ++times) {
    std::vector<int> two = random_.sample(static_cast<int>(specs_.size()), 2);
    std::sort(two.begin(), two.end());
    spec& parent = specs_[static_cast<std::size_t>(two[0])];
    const spec& inner = specs_[static_cast<std::size_t>(two[1])];
    if (!inner.children.empty() || child_.contains(parent.name)) continue;
    parent.children.push_back(result_.add(inner));
    child_.insert(inner.name);
  }
}

inline void random_scope::add_programs(int window) {
  grabs_.clear();
  for (const label& v : keys_) {
    const int rank = some_rank();
    if (on_.grab && (misuse_ || !taker_.contains(v)) && random_.happens(.15)) {
      grabs_.emplace_back(rank, v);
    }
  }
  values_.clear();
  for (const label& name : sources_) {
    if (window != 0 && !random_.happens(.9)) continue;
    spec one;
    one.name = name;
    one.function = static_cast<unsigned>(random_.below(99));
    one.put = static_cast<unsigned>(random_.below(99));
    one.size = size();
    one.homely = on_.homely && random_.happens(.2);
    values_.push_back(one);
  }
  for (int rank = 0; rank < ranks_; ++rank) {
    std::vector<operation> ops;
    for (const spec& one : spawned_by(rank)) {
      ops.push_back({operation::kind::spawn, result_.add(one), {}, 0});
    }
    for (const spec& one : values_) {
      const operation put{operation::kind::spawn, result_.add(one), {}, 0};
      if (random_.happens(.5)) {
        ops.insert(ops.begin(), put);
      } else {
        insert(ops, put);
      }
    }
    if (on_.fetch) add_awaits(rank, window, ops);
    add_grabs(rank, window, ops);
    if (on_.refused) add_refused(rank, ops);
    if (on_.cancel && random_.happens(.3)) insert(ops, {operation::kind::cancel, -1, {}, 0});
    program& all = programs_[static_cast<std::size_t>(rank)];
    all.insert(all.end(), ops.begin(), ops.end());
  }
  again_ = on_.again && random_.happens(.6);
  for (program& all : programs_) {
    const bool other = on_.violate && again_ && random_.happens(.05);
    all.push_back({window == windows_ - 1 ? operation::kind::close
                   : again_ && !other     ? operation::kind::again
                                          : operation::kind::fence,
                   -1,
                   {},
                   0});
  }
  for (const label& k : keys_) old_.emplace_back(k, window);
}

inline std::vector<spec> random_scope::spawned_by(int rank) {
  std::vector<spec> ops;
  for (const spec& one : specs_) {
    if (on_.style == "one" && rank != only_) continue;
    if (on_.style == "conditional" && rank != only_ && !random_.happens(.9)) continue;
    if (on_.style == "subset" && !random_.happens(.5)) continue;
    if (child_.contains(one.name) && !random_.happens(.3)) continue;
    ops.push_back(one);
  }
  for (const spec& one : ops) {
    const bool refused = one.local && one.name.base != rank;
    if (!refused) spawned_[static_cast<std::size_t>(rank)].insert(one.name);
  }
  const std::size_t once = ops.size();
  for (std::size_t i = 0; i < once && on_.twice; ++i) {
    if (random_.happens(.2)) ops.push_back(spec(ops[i]));
  }
  if (on_.style != "uniform") random_.shuffle(ops);
  if (!on_.diverged) return ops;
  for (spec& one : ops) {
    if (child_.contains(one.name) || !random_.happens(.08)) continue;
    if (random_.happens(.7)) {
      one.function = 99;
    } else {
      for (use& dep : one.deps) dep.how = dep.how == use_kind::take ? use_kind::plain : dep.how;
    }
  }
  return ops;
}

inline void random_scope::add_awaits(int, int window, std::vector<operation>& ops) {
  std::vector<label> plain;
  for (const label& k : keys_) {
    if (misuse_ || (!taker_.contains(k) && !grabbed(k))) plain.push_back(k);
  }
  for (int n = random_.between(0, 3); n > 0; --n) {
    operation one{operation::kind::fetch, -1, missing_, window};
    if (!plain.empty() && random_.happens(.9)) {
      one.name = random_.choice(plain);
    } else if (!on_.unspawned && !old_.empty()) {
      const auto& [name, at] = random_.choice(old_);
      one.name = name;
      one.window = at;
    }
    if (on_.timed && random_.happens(.5)) one.what = operation::kind::timed;
    insert(ops, one);
  }
}

inline void random_scope::add_grabs(int rank, int window, std::vector<operation>& ops) {
  for (const auto& [by, v] : grabs_) {
    if (by != rank) continue;
    operation one{operation::kind::grab, -1, v, window};
    if (on_.timed && random_.happens(.5)) one.what = operation::kind::timed_grab;
    if (misuse_) {
      insert(ops, one);
      continue;
    }
    const std::vector<label> before = readers_[v];
    const bool ordered = std::all_of(before.begin(), before.end(), [&](const label& k) {
      return spawned_[static_cast<std::size_t>(rank)].contains(k) && !taker_.contains(k) &&
             !grabbed(k);
    });
    if (!ordered) continue;
    for (const label& k : before) ops.push_back({operation::kind::fetch, -1, k, window});
    ops.push_back(one);
  }
}

/// Spawns that are refused wherever they are tried (graph S5).
inline void random_scope::add_refused(int rank, std::vector<operation>& ops) {
  if (!random_.happens(.3)) return;
  if (!values_.empty() && random_.happens(.5)) {  // a source, put elsewhere perhaps
    const spec& one = random_.choice(values_);
    if (one.name.base != rank) insert(ops, {operation::kind::misuse, result_.add(one), {}, 0});
  } else if (!specs_.empty() && !keys_.empty()) {  // one value both taken and read
    spec one = random_.choice(specs_);
    const label v = random_.choice(keys_);
    one.deps.push_back({v, use_kind::take});
    one.deps.push_back({v, random_.happens(.5) ? use_kind::plain : use_kind::take});
    insert(ops, {operation::kind::misuse, result_.add(one), {}, 0});
  }
}

/// One rank closes where the others go on.
inline void random_scope::close_early() {
  program& one = programs_[static_cast<std::size_t>(some_rank())];
  const auto end = std::find_if(one.begin(), one.end(), [](const operation& each) {
    return each.what == operation::kind::fence || each.what == operation::kind::again;
  });
  if (end == one.end()) return;
  one.erase(end, one.end());
  one.push_back({operation::kind::close, -1, {}, 0});
}

/// Gives some operations to other producers of the rank (graph O3), but none where the order of
/// awaits matters.
inline std::vector<program> random_scope::split(const program& main) {
  std::vector<program> all(1);
  std::vector<std::size_t> active;
  std::vector<operation> window;
  for (const operation& one : main) {
    if (!ends_window(one.what)) {
      window.push_back(one);
      continue;
    }
    if (on_.fork && all.size() < 3 && random_.happens(.6)) {
      const operation fork{operation::kind::fork, static_cast<int>(all.size()), {}, 0};
      window.insert(
          window.begin() + static_cast<std::ptrdiff_t>(random_.below(window.size() / 2 + 1)), fork);
      active.push_back(all.size());
      all.emplace_back();
    }
    const bool ordered = std::any_of(window.begin(), window.end(),
                                     [](const operation& each) { return takes(each.what); });
    for (const operation& each : window) {
      const bool moves =
          each.what == operation::kind::spawn || (is_await(each.what) && (misuse_ || !ordered));
      const bool moved = moves && !active.empty() && random_.happens(.5);
      all[moved ? random_.choice(active) : 0].push_back(each);
    }
    window.clear();
    all[0].push_back(one);
    for (const std::size_t who : std::vector<std::size_t>(active)) {
      const bool ends = random_.happens(.3);
      all[who].push_back(ends ? operation{operation::kind::end, -1, {}, 0} : one);
      if (ends) std::erase(active, who);
    }
  }
  return all;
}

inline ingredients random_ingredients(rng& random) {
  ingredients on{};
  static const std::vector<std::string> styles{"uniform", "uniform", "shuffled", "subset",
                                               "subset",  "subset",  "one",      "conditional"};
  on.style = random.choice(styles);
  const std::vector<std::pair<bool ingredients::*, double>> odds{
      {&ingredients::boom, .3},       {&ingredients::unspawned, .3}, {&ingredients::cycle, .2},
      {&ingredients::diverged, .12},  {&ingredients::cancel, .12},   {&ingredients::timed, .1},
      {&ingredients::deaths, .15},    {&ingredients::large, .4},     {&ingredients::children, .25},
      {&ingredients::fetch, .6},      {&ingredients::violate, .1},   {&ingredients::twice, .3},
      {&ingredients::take, .7},       {&ingredients::grab, .4},      {&ingredients::misuse, .15},
      {&ingredients::put, .5},        {&ingredients::again, .5},     {&ingredients::places, .12},
      {&ingredients::fork, .2},       {&ingredients::after, .3},     {&ingredients::local, .1},
      {&ingredients::homely, .1},     {&ingredients::refused, .1},   {&ingredients::functions, .08},
      {&ingredients::fail_fast, .05}, {&ingredients::asks, .1},      {&ingredients::reopens, .4}};
  for (const auto& [what, probability] : odds) on.*what = random.happens(probability);
  return on;
}

/// Nothing special, so that messages can be counted.
inline void make_uniform(rng& random, ingredients& on) {
  const ingredients all = std::exchange(on, ingredients{});
  on.large = all.large;
  on.take = all.take;
  on.put = all.put;
  on.again = all.again;
  on.twice = all.twice;
  on.fork = all.fork;
  on.after = all.after;
  on.functions = all.functions;
  on.local = all.local;
  on.style = random.happens(.5) ? "uniform" : "shuffled";
}

inline rank_facts random_facts(rng& random, const ingredients& on) {
  rank_facts result;
  for (int family = 0; family < 3; ++family) {
    if (on.places && random.happens(.3)) result.places[family] = 1;
    if (on.functions && random.happens(.2)) result.other_functions.insert(family);
  }
  result.other_options = on.functions && random.happens(.2);
  return result;
}

/// `ranks`: so many, or 0 for a random number.
inline job random_job(rng& random, int ranks) {
  static const std::vector<int> sizes{1, 2, 2, 3, 3, 4, 5};
  static const std::vector<unsigned> eagers{0, 1, 9};
  static const std::vector<unsigned> credits{0, 1, 1, 2, 4};
  static const std::vector<int> tags{1, 2, 4};
  job result;
  result.ranks = ranks > 0 ? ranks : random.choice(sizes);
  ingredients on = random_ingredients(random);
  result.uniform = random.happens(.15);
  if (result.uniform) make_uniform(random, on);
  result.eager = random.choice(eagers);
  result.credit = random.choice(credits);
  result.tags = random.choice(tags);
  on.places = on.places && result.ranks > 1;
  if (on.places && random.happens(.5)) {  // else one value has two takers, one for each placement
    on.take = on.grab = false;
  }
  if (on.deaths && result.ranks > 1) result.deaths = random.between(1, 2);
  for (int rank = 0; rank < result.ranks; ++rank) result.facts.push_back(random_facts(random, on));
  result.misuse = on.misuse || ((on.diverged || result.displaced()) && (on.take || on.grab));
  result.timed = on.timed;
  result.fail_fast = on.fail_fast;
  result.asks = on.asks;
  result.reopens = on.reopens;
  result.strict = !(on.diverged || on.cancel || on.fail_fast || on.timed || result.deaths > 0 ||
                    result.misuse || result.displaced());
  result.cycles = on.cycle;
  result.children = on.children;
  for (int scopes = random.below(4) == 3 ? 2 : 1; scopes > 0; --scopes) {
    result.scopes.push_back(random_scope(random, result, on).make());
  }
  return result;
}

/// Runs a random job; throws a violation. `told`: is called with it before it runs, and every event
/// is printed.
inline std::unique_ptr<world> random_world(std::uint64_t seed, int ranks, bool damaged,
                                           void (*told)(const world&) = nullptr) {
  static const std::vector<int> ends{60, 120, 250, 400};
  static const std::vector<double> lazinesses{1, .9, .1};
  rng random(seed * 0x9e3779b97f4a7c15U + 1);
  job made = random_job(random, ranks);
  made.patient = seed % 2 == 1;
  const bool uniform = made.uniform;
  std::set<std::uint64_t> deaths;
  const int end = random.choice(ends);
  while (static_cast<int>(deaths.size()) < made.deaths) {
    deaths.insert(static_cast<std::uint64_t>(random.between(0, end)));
  }
  const bool greedy = random.happens(.4);
  const bool splits = random.happens(.4);
  const double laziness = uniform ? 1 : random.choice(lazinesses);
  auto result = std::make_unique<world>(std::move(made), random, told != nullptr);
  result->deaths = std::move(deaths);
  if (greedy) result->be_greedy();
  result->splits = splits;
  result->damaged = damaged;
  result->can = random_actors(result->what(), greedy);
  if (told != nullptr) told(*result);
  result->run(laziness);
  return result;
}

}  // namespace graph_test
