// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What runs the tasks of one rank in one scope. What a task does is computed from what it is
/// and from the values that it reads, so that a wrong one is noticed.

#include "graph/job.hpp"
#include "graph/notes.hpp"
#include "graph/values.hpp"

#include <cohort/graph/machine/node.hpp>

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace graph_test {

class worker {
 public:
  worker(notes& all, const scope_job& programs, int scope, int rank)
      : notes_(all), programs_(programs), scope_(scope), rank_(rank) {}

  [[nodiscard]] bool idle() const { return running_.empty(); }
  /// A task that is ready starts. Returns what it does, for its children.
  const body& start(node& machine, rng& random, int window);
  /// One that runs ends.
  void end(node& machine, rng& random);
  [[nodiscard]] std::uint64_t digest() const {
    hasher hash;
    for (const running& one : running_) hash(one.what);
    return hash.value();
  }

 private:
  struct running {
    running_task task;
    key what;
    int window = 0;
    std::vector<std::uint64_t> moved;  // values of those inputs that it has moved out, in order
  };
  [[nodiscard]] const body& body_of(const running_task& one) const;

  notes& notes_;
  const scope_job& programs_;
  int scope_;
  int rank_;
  std::vector<running> running_;
};

inline const body& worker::body_of(const running_task& one) const {
  std::uint64_t number = 0;
  check(one.arguments.size() == 8, "a task has other arguments than were given");
  std::memcpy(&number, one.arguments.data(), 8);
  check(number < programs_.bodies.size(), "a task has other arguments than were given");
  return programs_.bodies[number];
}

inline const body& worker::start(node& machine, rng& random, int window) {
  std::optional<running_task> chosen;  // any
  if (random.below(2) == 0) {
    chosen = machine.start_next_if([&](std::uint32_t) { return random.below(2) == 0; });
  }
  if (!chosen) chosen = machine.start_next();
  check(chosen.has_value(), "a task is ready and does not start");
  check(!machine.cause(), "C2 a task starts after the cancellation");
  running one{*chosen, {}, window, {}};
  const body& does = body_of(one.task);
  one.what = graph_test::key_of(scope_, does.name, rank_);
  notes_.trace(whereabouts{scope_, rank_, window}, " starts ", does.name);
  check(++notes_.runs[notes::where(scope_, window, one.what)] == 1, "D1 ", does.name,
        " runs twice");
  check(one.task.uses.size() == one.task.inputs.size(), "a task has inputs without uses");
  const auto edges = machine.definition_of(one.task.index)->edges();
  for (std::size_t i = 0; i < one.task.inputs.size(); ++i) {
    const task_input& input = one.task.inputs[i];
    const use_kind how = one.task.uses[i];
    const value_hash* const hash = machine.noted_hash(edges[i].value);
    check(hash != nullptr, "U4 a value has come without its hash");
    check(how != use_kind::after || !input.may_move, "M3 what is not read may be moved");
    if (how == use_kind::after) continue;
    check(static_cast<bool>(input.what) && input.what->failed() == nullptr,
          "F2 a task runs without one of its inputs");
    check(*hash == test_value::hash_of(value_of(*input.what).read()),
          "U4 a value has the hash of another one");
    check(how == use_kind::take || !input.may_move, "M3 what is only read may be moved");
    if (how != use_kind::take) continue;
    test_value& value = value_of(*input.what);
    check(++notes_.taken[notes::where(scope_, window, value.read().of)] == 1, "M1 ",
          value.read().of, " is taken twice");
    ++notes_.hits[input.may_move ? "M3 moved" : "M3 copied"];
    if (!input.may_move) continue;
    one.moved.push_back(value.read().value);
    value.move();
  }
  running_.push_back(std::move(one));
  return does;
}

inline void worker::end(node& machine, rng& random) {
  const std::size_t which = random.below(running_.size());
  const running one = std::move(running_[which]);
  running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(which));
  const body& does = body_of(one.task);
  std::vector<std::uint64_t> inputs;
  std::size_t moved = 0;
  for (std::size_t i = 0; i < one.task.inputs.size(); ++i) {
    if (one.task.uses[i] == use_kind::after) continue;
    const task_input& input = one.task.inputs[i];
    inputs.push_back(input.may_move ? one.moved[moved++] : value_of(*input.what).read().value);
  }
  notes_.trace(whereabouts{scope_, rank_, one.window}, " ends ", does.name);
  content_ptr result;
  const bool cancelled = machine.cause() && random.happens(.5);
  if (does.fails || cancelled) {
    failure why;
    why.code = cancelled ? cohort::errc::cancelled : cohort::errc::task_failed;
    why.root = one.what;
    why.task = name_of(does.name);
    why.rank = rank_;
    why.text = why.task + " has thrown on rank " + std::to_string(rank_);
    result = content_ptr(new failed_content(why));
  } else {
    const test_value::facts facts{one.what, one.window, does.size,
                                  result_of(one.window, one.what, one.task.function, {}, inputs)};
    result = content_ptr(new test_value(facts, !does.homely));
    machine.note_hash(one.task.index, test_value::hash_of(facts));
  }
  machine.ended(one.task.index, std::move(result));
}

}  // namespace graph_test
