// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// In which order processes make communicators: every order in which a few processes may run and
// their messages may come, without MPI.
#include <cohort/comm/creation_order.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "support/catch.hpp"

namespace {

using cohort::comm::creation_stages;
using cohort::comm::creation_turn;
using step = creation_stages::stage;

/// One member of a creation, as the class that calls MPI drives it.
struct member {
  member(int process_, const std::vector<int>& whom, int self)
      : process(process_), steps(static_cast<int>(whom.size()), self) {}
  int process;
  creation_stages steps;
  enum class phase { enters, moves, receives, queues, makes, done } at = phase::enters;
  bool answer = true;
  std::size_t received = 0;
  std::uint32_t moves = 0;  // with what it has heard, these tell its state
  std::uint64_t heard = 1;
};

/// A creation: its members are processes, the first is the root of the tree.
struct creation {
  std::vector<int> whom;
  std::vector<member> members;
  std::map<std::pair<int, int>, std::deque<bool>> messages;  // by sender and receiver
};

/// All processes of a job. A choice is one thing that can happen next: a member goes on.
class job {
 public:
  job(int processes, const std::vector<std::vector<int>>& creations)
      : queues_(static_cast<std::size_t>(processes)) {
    make_turns();
    for (const auto& whom : creations) {
      creation& one = creations_.emplace_back();
      one.whom = whom;
      for (std::size_t i = 0; i < whom.size(); ++i) {
        one.members.emplace_back(whom[i], whom, static_cast<int>(i));
      }
    }
  }
  /// The same point of the same run.
  job(const job& other)
      : lined_up(other.lined_up), queues_(other.queues_), creations_(other.creations_) {
    make_turns();
  }
  job& operator=(const job&) = delete;

  /// Members that can go on now, as creation and member.
  [[nodiscard]] std::vector<std::pair<std::size_t, std::size_t>> choices() const {
    std::vector<std::pair<std::size_t, std::size_t>> result;
    for (std::size_t c = 0; c < creations_.size(); ++c) {
      for (std::size_t m = 0; m < creations_[c].members.size(); ++m) {
        if (can_go_on(c, m)) result.emplace_back(c, m);
      }
    }
    return result;
  }

  void go_on(std::pair<std::size_t, std::size_t> choice) {
    creation& in = creations_[choice.first];
    member& one = in.members[choice.second];
    const int self = static_cast<int>(choice.second);
    creation_turn& turn = *turns_[static_cast<std::size_t>(one.process)];
    auto& queue = queues_[static_cast<std::size_t>(one.process)];
    const void* const name = name_of(choice.first, choice.second);
    ++one.moves;
    if (one.at == member::phase::receives) {
      auto& from = in.messages[{one.steps.receives()[one.received], self}];
      one.answer = one.answer && from.front();
      from.pop_front();
      if (++one.received < one.steps.receives().size()) return;
    }
    if (one.at == member::phase::makes) {
      turn.give_back(name);
      std::erase(queue, name);
      one.at = member::phase::done;
      return;
    }
    one.at = member::phase::moves;
    one.heard = one.heard * 2 + (one.answer ? 1 : 0);
    switch (one.steps.next(one.answer)) {
      case step::exchange:
        for (const int to : one.steps.sends()) in.messages[{self, to}].push_back(one.steps.value());
        one.answer = true;
        one.received = 0;
        if (!one.steps.receives().empty()) one.at = member::phase::receives;
        return;
      case step::try_turn:
        one.answer = turn.try_take(name);
        if (one.answer) queue.push_back(name);
        return;
      case step::give_turn:
        turn.give_back(name);
        std::erase(queue, name);
        return;
      case step::find_line:
        one.steps.line_up([&](int member) { return in.whom[static_cast<std::size_t>(member)]; });
        lined_up = true;
        return;
      case step::wait_turn:
        turn.wait(name);
        queue.push_back(name);
        one.at = member::phase::queues;
        return;
      case step::make:
        one.at = member::phase::makes;
        return;
    }
  }

  /// No member calls MPI before all have entered, nor beside another creation of its process.
  [[nodiscard]] bool is_right() const {
    std::vector<int> inside(turns_.size());
    for (std::size_t c = 0; c < creations_.size(); ++c) {
      const creation& in = creations_[c];
      const bool any = std::any_of(in.members.begin(), in.members.end(), [](const member& one) {
        return one.at == member::phase::makes || one.at == member::phase::done;
      });
      for (std::size_t m = 0; m < in.members.size(); ++m) {
        const member& one = in.members[m];
        if (any && one.at == member::phase::enters) return false;
        if (one.at != member::phase::makes) continue;
        if (++inside[static_cast<std::size_t>(one.process)] > 1) return false;
        if (!turns_[static_cast<std::size_t>(one.process)]->has(name_of(c, m))) return false;
      }
    }
    return true;
  }
  [[nodiscard]] bool is_done() const {
    return std::all_of(creations_.begin(), creations_.end(), [](const creation& in) {
      return std::all_of(in.members.begin(), in.members.end(),
                         [](const member& one) { return one.at == member::phase::done; });
    });
  }
  [[nodiscard]] bool is_made(std::size_t which) const {
    const auto& members = creations_[which].members;
    return std::all_of(members.begin(), members.end(),
                       [](const member& one) { return one.at == member::phase::done; });
  }

  /// Tells apart all points that runs can come to.
  [[nodiscard]] std::vector<std::uint64_t> state() const {
    std::vector<std::uint64_t> all;
    for (const creation& in : creations_) {
      for (const member& one : in.members) {
        all.push_back(one.moves);
        all.push_back(one.heard);
      }
      for (const auto& [way, waiting] : in.messages) {
        std::uint64_t bits = 1;
        for (const bool one : waiting) bits = bits * 2 + (one ? 1 : 0);
        if (bits != 1) {
          all.push_back(static_cast<std::uint64_t>(way.first) * 64 +
                        static_cast<std::uint64_t>(way.second) + 1'000'000);
          all.push_back(bits);
        }
      }
    }
    for (const auto& queue : queues_) {
      all.push_back(2'000'000);
      for (const void* const name : queue) all.push_back(reinterpret_cast<std::uintptr_t>(name));
    }
    return all;
  }

  bool lined_up = false;

 private:
  /// Known by an address in the turns, also in copies.
  static const void* name_of(std::size_t creation, std::size_t member) {
    static const std::array<char, 1024> names{};
    return &names[32 * creation + member];
  }
  void make_turns() {
    for (const auto& queue : queues_) {
      turns_.push_back(std::make_unique<creation_turn>());
      for (const void* const name : queue) turns_.back()->wait(name);
    }
  }
  [[nodiscard]] bool can_go_on(std::size_t where, std::size_t which) const {
    const creation& in = creations_[where];
    const member& one = in.members[which];
    switch (one.at) {
      case member::phase::done:
        return false;
      case member::phase::receives: {
        const auto found =
            in.messages.find({one.steps.receives()[one.received], static_cast<int>(which)});
        return found != in.messages.end() && !found->second.empty();
      }
      case member::phase::queues:
        return turns_[static_cast<std::size_t>(one.process)]->has(name_of(where, which));
      case member::phase::makes:
        // MPI blocks until all members are in it.
        return std::all_of(in.members.begin(), in.members.end(), [](const member& other) {
          return other.at == member::phase::makes || other.at == member::phase::done;
        });
      default:
        return true;
    }
  }

  std::vector<std::unique_ptr<creation_turn>> turns_;
  std::vector<std::vector<const void*>> queues_;  // what the turns should hold
  std::deque<creation> creations_;
};

void check(const job& one) {
  if (!one.is_right()) FAIL("a creation is made beside another one, or before all have entered");
  if (one.choices().empty() && !one.is_done()) FAIL("creations wait for each other");
}

struct findings {
  std::size_t points = 0;
  std::size_t ends = 0;
  std::size_t ends_in_line = 0;
};

/// Comes to every point that any run can come to.
findings visit_all(int processes, const std::vector<std::vector<int>>& creations) {
  findings found;
  std::set<std::vector<std::uint64_t>> seen;
  std::vector<job> open;
  open.emplace_back(processes, creations);
  while (!open.empty()) {
    const job here(open.back());
    open.pop_back();
    check(here);
    ++found.points;
    const auto choices = here.choices();
    if (choices.empty()) {
      ++found.ends;
      if (here.lined_up) ++found.ends_in_line;
    }
    for (const auto& choice : choices) {
      job next(here);
      next.go_on(choice);
      if (seen.insert(next.state()).second) open.push_back(next);
    }
  }
  return found;
}

/// Whether members had to line up.
bool run_at_random(int processes, const std::vector<std::vector<int>>& creations,
                   std::mt19937_64& random) {
  job one(processes, creations);
  for (auto choices = one.choices(); !choices.empty(); choices = one.choices()) {
    one.go_on(choices[random() % choices.size()]);
    check(one);
  }
  check(one);
  return one.lined_up;
}

}  // namespace

TEST_CASE("two creations of two processes are made in every order in which these may run") {
  // The trees have different roots, so the processes would enter them in different orders.
  const findings found = visit_all(2, {{0, 1}, {1, 0}});
  CHECK(found.ends_in_line > 0);
  CHECK(found.ends > found.ends_in_line);
  CHECK(found.points > 1000);
}

TEST_CASE("creations that overlap in circles are made in any order of their steps") {
  const std::vector<std::vector<std::vector<int>>> jobs = {
      {{0, 1}, {1, 2}, {2, 0}},
      {{0, 1, 2}, {2, 1, 0}, {1, 0, 2}},
      {{0, 1, 2, 3}, {3, 2, 1, 0}, {1, 3}, {0, 2}},
      {{5, 4, 3, 2, 1, 0}, {0, 1, 2, 3, 4, 5}, {2, 4, 0}, {3}},
      {{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, {11, 3, 7, 5}, {9, 8, 7, 6, 5, 4, 3, 2, 1, 0}},
  };
  std::mt19937_64 random(1);
  std::size_t lined_up = 0;
  for (const auto& creations : jobs) {
    for (int run = 0; run < 100; ++run) {
      if (run_at_random(12, creations, random)) ++lined_up;
    }
  }
  CHECK(lined_up > 100);
}

TEST_CASE("a creation that a member never enters keeps no other waiting") {
  std::mt19937_64 random(7);
  for (int run = 0; run < 200; ++run) {
    job one(3, {{0, 1, 2}, {2, 1, 0}, {1, 2}});
    const std::pair<std::size_t, std::size_t> never(0, random() % 3);
    while (true) {
      auto choices = one.choices();
      std::erase(choices, never);
      if (choices.empty()) break;
      one.go_on(choices[random() % choices.size()]);
    }
    REQUIRE_FALSE(one.is_made(0));
    REQUIRE(one.is_made(1));
    REQUIRE(one.is_made(2));
  }
}

TEST_CASE("a turn is given in the order in which it was asked for") {
  creation_turn turn;
  const char a = 0;
  const char b = 0;
  const char c = 0;
  CHECK(turn.try_take(&a));
  CHECK_FALSE(turn.try_take(&b));
  turn.wait(&b);
  turn.wait(&c);
  CHECK_FALSE(turn.has(&b));
  turn.give_back(&a);
  CHECK(turn.has(&b));
  CHECK_FALSE(turn.try_take(&a));
  turn.give_back(&c);  // does not wait any more
  turn.give_back(&b);
  CHECK(turn.try_take(&a));
}
