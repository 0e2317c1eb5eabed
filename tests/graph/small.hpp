// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Small jobs of which every interleaving is tried: announcements, wants and comparisons
/// happen only when a rank is idle, ready tasks start first and in order, messages leave at once
/// and come alone, and a rank that dies loses nothing that it has sent.

#include "graph/checks.hpp"
#include "graph/job.hpp"
#include "graph/world.hpp"

#include <cctype>
#include <cstdint>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

namespace graph_test {

struct small_job {
  const char* name;
  /// Of each: its home, dependencies (-a: taken), * fails, L large, = a source, (a) spawns a. An
  /// upper-case one is another definition of the same task.
  std::map<char, std::string> tasks;
  /// Per scope and rank a program: a spawns, ?a fetches, ~a fetches with a deadline, !a takes, x
  /// cancels, | fence, & again; it closes at its end.
  std::vector<std::vector<std::string>> scopes;
  int tags = 4;
  unsigned credit = 2;
  bool strict = true;
  bool misuse = false;
  int dies = -1;       // a rank that may die
  int displaced = -1;  // a rank that places tasks otherwise
};

inline const std::vector<small_job>& small_jobs() {
  static const std::vector<small_job> jobs{
      {"push", {{'a', "0"}, {'b', "1a"}}, {{"a b", "a b"}}},
      {"one spawns", {{'a', "1"}, {'b', "0a"}}, {{"a b", ""}}},
      {"wanted, spawned elsewhere", {{'a', "0"}, {'b', "1a"}}, {{"b ?b", "a"}}},
      {"never spawned", {{'a', "1"}, {'b', "0a"}}, {{"b ?b", "?b"}}},
      {"late spawn", {{'a', "1"}, {'b', "0a"}}, {{"b ?b a ?a", "?b"}}},
      {"cycle", {{'a', "0b"}, {'b', "1a"}}, {{"a ?a", "b"}}},
      {"failure", {{'a', "0*"}, {'b', "1a"}}, {{"a b", "b ?b"}}},
      {"large, one tag", {{'a', "0L"}, {'b', "0L"}, {'c', "1ab"}}, {{"a b", "a b c"}}, 1},
      {"no credit", {{'a', "0"}, {'b', "0"}, {'c', "1ab"}}, {{"a b c", "a b c"}}, 4, 1},
      {"divergence", {{'a', "1"}, {'A', "1"}}, {{"a", "A"}}, 4, 2, false},
      {"cancel", {{'a', "0"}, {'b', "1a"}}, {{"a b ?b", "b x"}}, 4, 2, false},
      {"deadline", {{'a', "1"}, {'b', "0"}}, {{"~a b", "?b a"}}, 4, 2, false},
      {"loss", {{'a', "1"}, {'b', "0a"}}, {{"b ?b", "a"}}, 4, 2, false, false, 1},
      {"loss, large, three", {{'a', "0L"}, {'b', "1a"}}, {{"a", "b", ""}}, 4, 2, false, false, 2},
      {"loss at the end", {{'a', "1"}}, {{"a", "", ""}}, 4, 2, false, false, 0},
      {"two scopes, one tag", {{'a', "0L"}, {'b', "1a"}}, {{"a", "b"}, {"a", "b"}}, 1},
      {"child", {{'a', "1(b)"}, {'b', "0"}}, {{"a ?b", ""}}},
      {"windows, same names", {{'a', "0"}, {'b', "1a"}, {'A', "1"}}, {{"a b | A", "a b | A ?a"}}},
      {"take here", {{'a', "0"}, {'b', "0-a"}, {'c', "1b"}}, {{"a b c", "a b c"}}},
      {"take there", {{'a', "0"}, {'b', "1-a"}}, {{"a b", "a b ?b"}}},
      {"take, one spawns", {{'a', "1"}, {'b', "0-a"}}, {{"a b", ""}}},
      {"take after a reader", {{'a', "0"}, {'r', "1a"}, {'b', "0r-a"}}, {{"a r b", "r b"}}},
      {"take after a reader, large",
       {{'a', "0L"}, {'r', "1a"}, {'b', "1r-a"}},
       {{"a r b", "a r b"}},
       1},
      {"take both", {{'a', "0"}, {'r', "1a"}, {'b', "0-a-r"}}, {{"a r b", "b"}}},
      {"two takers", {{'a', "0"}, {'b', "1-a"}, {'c', "0-a"}}, {{"a b", "a c"}}, 4, 2, false, true},
      {"two takers, one rank",
       {{'a', "0"}, {'b', "1-a"}, {'c', "1-a"}},
       {{"a b", "c"}},
       4,
       2,
       false,
       true},
      {"late reader",
       {{'a', "0L"}, {'b', "0-a"}, {'c', "1a"}},
       {{"a b", "c ?c"}},
       4,
       2,
       false,
       true},
      {"late await", {{'a', "0"}, {'b', "1-a"}}, {{"a b", "?a"}}, 4, 2, false, true},
      {"the taker fails", {{'a', "0"}, {'e', "1*"}, {'b', "1e-a"}}, {{"a b", "e ?b"}}},
      {"an await takes", {{'a', "0"}, {'r', "0a"}}, {{"a r", "r ?r !a"}}},
      {"two awaits take", {{'a', "0L"}}, {{"a !a", "!a"}}, 4, 2, false, true},
      {"put", {{'a', "0="}, {'b', "1a"}}, {{"a b", "a b"}}},
      {"again", {{'a', "0="}, {'b', "1-a"}}, {{"a b & a", "a b & a ?b"}}},
      {"again, one spawns", {{'a', "1"}, {'b', "0a"}}, {{"a b &", "& ?b"}}},
      {"again, no source", {{'a', "0="}, {'b', "1a"}}, {{"a b &", "b & ?b"}}},
      {"again and more", {{'a', "0"}, {'b', "1a"}, {'c', "0b"}}, {{"a b & c", "a b & c"}}},
      {"again, another fences", {{'a', "1"}}, {{"a & ?a", "a | "}}},
      {"placements differ",
       {{'a', "0"}, {'b', "1a"}},
       {{"a b", "b ?b"}},
       4,
       2,
       false,
       false,
       -1,
       1},
  };
  return jobs;
}

/// Reads the texts of a small job.
class small_reader {
 public:
  explicit small_reader(const small_job& of) : of_(of) {}

  job read() {
    job result;
    result.ranks = static_cast<int>(of_.scopes.front().size());
    result.facts.resize(static_cast<std::size_t>(result.ranks));
    if (of_.displaced >= 0) result.facts[static_cast<std::size_t>(of_.displaced)].places[0] = 1;
    result.tags = of_.tags;
    result.credit = of_.credit;
    result.strict = of_.strict;
    result.misuse = of_.misuse;
    result.cycles = !of_.misuse;
    for (const std::vector<std::string>& texts : of_.scopes) {
      scope_job scope;
      for (const std::string& text : texts) {
        result.timed = result.timed || text.find('~') != std::string::npos;
        scope.ranks.push_back({read_program(scope, text)});
      }
      result.scopes.push_back(std::move(scope));
    }
    return result;
  }

 private:
  [[nodiscard]] label name(char task) const {
    const char lower = static_cast<char>(std::tolower(task));
    return {0, lower, of_.tasks.at(lower)[0] - '0'};
  }
  spec read_spec(scope_job& scope, char task) const {
    const std::string& text = of_.tasks.at(task);
    spec result;
    result.name = {0, std::tolower(task), text[0] - '0'};
    result.function = static_cast<unsigned>(task);
    const std::size_t inner = text.find('(');
    for (std::size_t i = 1; i < text.size(); ++i) {
      const char c = text[i];
      if (i > inner) {
        if (c != ')') result.children.push_back(scope.add(read_spec(scope, c)));
      } else if (std::islower(c) != 0) {
        result.deps.push_back({name(c), text[i - 1] == '-' ? use_kind::take : use_kind::plain});
      }
    }
    if (text.find('=') != std::string::npos) result.put = 1;
    result.fails = text.find('*') != std::string::npos;
    result.size = text.find('L') != std::string::npos ? 5 : 1;
    return result;
  }
  program read_program(scope_job& scope, const std::string& text) const {
    using kind = operation::kind;
    program result;
    int window = 0;
    std::istringstream words(text);
    for (std::string word; words >> word;) {
      const char c = word[0];
      if (c == 'x') {
        result.push_back({kind::cancel, -1, {}, 0});
      } else if (c == '|' || c == '&') {
        result.push_back({c == '|' ? kind::fence : kind::again, -1, {}, 0});
        ++window;
      } else if (c == '?' || c == '~' || c == '!') {
        const kind how = c == '?' ? kind::fetch : c == '~' ? kind::timed : kind::grab;
        result.push_back({how, -1, name(word[1]), window});
      } else {
        result.push_back({kind::spawn, scope.add(read_spec(scope, c)), {}, 0});
      }
    }
    result.push_back({kind::close, -1, {}, 0});
    return result;
  }

  const small_job& of_;
};

inline std::unique_ptr<world> small_world(const small_job& of, bool tracing = false) {
  auto result = std::make_unique<world>(small_reader(of).read(), rng(0, true), tracing);
  result->be_greedy();
  result->splits = true;
  result->can.actors = small_actors(result->what(), of.dies);
  return result;
}

struct exploration {
  std::size_t states = 0;
  std::size_t ends = 0;
  bool complete = false;
};

/// Depth first over all states. Nodes cannot be copied, so a state is reached by replaying its
/// schedule. Throws a violation, after printing its schedule.
inline exploration explore(const small_job& of, std::size_t limit) {
  exploration result;
  std::unordered_set<std::uint64_t> seen;
  std::vector<std::vector<std::size_t>> stack{{}};
  std::vector<std::size_t> schedule;
  std::unique_ptr<world> here;
  const std::size_t count = small_world(of)->can.actors.size();
  const auto play = [&] {
    here = small_world(of);
    for (const std::size_t i : schedule) check(here->act(here->can.actors[i]), "a replay differs");
  };
  try {
    while (!stack.empty() && seen.size() < limit) {
      schedule = std::move(stack.back());
      stack.pop_back();
      bool stuck = true;
      play();
      for (std::size_t i = 0; i < count; ++i) {
        if (!here) play();
        schedule.push_back(i);
        if (here->act(here->can.actors[i])) {
          stuck = false;
          if (seen.insert(here->digest()).second) stack.push_back(schedule);
          here.reset();
        }
        schedule.pop_back();
      }
      if (!stuck) continue;
      here->final();
      ++result.ends;
    }
  } catch (const std::exception&) {
    const std::unique_ptr<world> again = small_world(of, true);
    for (const std::size_t i : schedule) again->act(again->can.actors[i]);
    throw;
  }
  result.states = seen.size();
  result.complete = stack.empty();
  check(!result.complete || result.ends > 0, "no state is final: states are taken for each other");
  return result;
}

}  // namespace graph_test
