// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file One rank in one scope: it executes its programs and tasks on a node of the machine, and
/// holds what the node does against the promises.

#include "graph/inspector.hpp"
#include "graph/job.hpp"
#include "graph/notes.hpp"
#include "graph/values.hpp"
#include "graph/worker.hpp"

#include <cohort/graph/machine/endpoint.hpp>
#include <cohort/graph/machine/node.hpp>

#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace graph_test {

class place {
 public:
  /// One of the programs of this rank.
  struct producer_state {
    const program* steps = nullptr;
    std::size_t at = 0;
    bool runs = false;
    producer id = 0;
    const operation* blocked = nullptr;
    key awaited;
    await_number number = 0;
    std::vector<log_entry> log;
  };

  place(notes& all, const job& of, int scope, int rank);
  bool exact_memory = false;  // messages of different windows never come in one packet

  [[nodiscard]] int scope() const { return scope_; }
  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] bool opened() const { return opened_; }
  [[nodiscard]] bool ended() const { return ended_; }
  [[nodiscard]] bool was_cancelled() const { return cancelled_; }
  [[nodiscard]] node* machine() const { return machine_.get(); }
  [[nodiscard]] int window() const { return window_; }
  [[nodiscard]] const std::vector<producer_state>& producers() const { return producers_; }
  [[nodiscard]] const std::vector<window_report>& ends() const { return ends_; }
  [[nodiscard]] const front& names() const { return front_; }

  // ---- what can happen: false if it cannot now -------------------------------------------------
  /// The next operation of one of its programs.
  bool step(endpoint& owner, rng& random);
  /// A task starts, or one that runs ends; these are two events, so that a cancellation can fall
  /// between.
  bool run(rng& random);
  /// A deadline of the user's ends a fetch: the only way in which a passive rank becomes active by
  /// itself (graph T9).
  bool deadline(rng& random);
  bool flush_wants();
  bool flush_announcements();
  bool flush_comparisons();
  bool flush_contribution();
  /// Asks what it waits for, or reads what the others have answered (graph Q1).
  bool ask_or_read();
  /// Forgets the node of a scope that has ended, as a program does.
  bool destroy();

  /// What the node wants done, but for transfers, which the caller does: those are returned.
  std::vector<action> look();
  void die() { ended_ = true; }
  /// Nothing can happen here but by a message or a deadline.
  [[nodiscard]] bool passive() const;
  [[nodiscard]] std::uint64_t digest() const;
  /// No message is under way: who has taken a value has it, and home has not (graph M3).
  void check_taken() const;
  [[nodiscard]] whereabouts where() const { return {scope_, rank_, window_}; }

 private:
  task_name named(const label& what);
  spawn_site site(std::size_t at) const { return {"program", static_cast<std::uint32_t>(at)}; }
  void operate(producer_state& who, const operation& next);
  void spawn(const spec& one, bool attempt, std::size_t at);
  void await(producer_state& who, const operation& next);
  void resume(producer_state& who, const content_ptr& what, bool may_move);
  outcome outcome_of(const content_ptr& what, bool takes, bool may_move);
  void write(producer_state& who, const outcome& what);
  void window_ended();
  [[nodiscard]] bool repeats(operation::kind asked) const;
  void check_memory(operation::kind asked) const;
  void repeat();
  [[nodiscard]] notes::where at(const key& k) const { return {scope_, window_, k}; }
  bool alive() const { return opened_ && !ended_; }

  notes& notes_;
  const job& job_;
  const scope_job& programs_;
  int scope_;
  int rank_;
  front front_;
  std::unique_ptr<node> machine_;
  std::vector<producer_state> producers_;
  worker tasks_;
  std::vector<window_report> ends_;
  std::map<key, definition> spawned_;
  int window_ = 0;
  bool opened_ = false;
  bool ended_ = false;
  bool cancelled_ = false;
  bool asks_ = false;
  int questions_ = 0;
  std::size_t parked_before_ = 0;  // the event that is looked at
};

inline place::place(notes& all, const job& of, int scope, int rank)
    : notes_(all),
      job_(of),
      programs_(of.scopes[static_cast<std::size_t>(scope)]),
      scope_(scope),
      rank_(rank),
      front_(scope, of.ranks, of.facts[static_cast<std::size_t>(rank)]),
      tasks_(all, programs_, scope, rank) {
  for (const program& steps : programs_.ranks[static_cast<std::size_t>(rank)]) {
    producers_.emplace_back();
    producers_.back().steps = &steps;
  }
  producers_.front().runs = true;
}

inline task_name place::named(const label& what) {
  task_name result;
  result.what = front_.key_of(what);
  const std::string number = std::to_string(what.family);
  result.family = machine_->family(
      {"f" + number, "shift(" + std::to_string(front_.placement(what.family)) + ")",
       front_.odd(what.family) ? "another" : "function" + number, "result"});
  result.count = 1;
  result.indices[0] = what.index;
  notes_.labels.emplace(result.what, what);
  return result;
}

inline bool place::step(endpoint& owner, rng& random) {
  if (ended_) return false;
  if (!opened_) {
    node_options options;
    options.rank = rank_;
    options.ranks = job_.ranks;
    options.eager = job_.eager * unit;
    options.credit = job_.credit * unit;
    options.fail_fast = job_.fail_fast;
    options.patient = job_.patient;
    options.agreed = job_.facts[static_cast<std::size_t>(rank_)].other_options ? "other" : "usual";
    machine_ = std::make_unique<node>(owner, id_of(scope_, job_.reopens), options);
    opened_ = true;
    notes_.trace(where(), " opens");
    return true;
  }
  const std::size_t first = random.below(producers_.size());
  for (std::size_t i = 0; i < producers_.size(); ++i) {
    producer_state& who = producers_[(first + i) % producers_.size()];
    if (!who.runs || who.blocked != nullptr) continue;
    const operation& next = (*who.steps)[who.at++];
    notes_.trace(where(), ": ", next);
    operate(who, next);
    return true;
  }
  return false;
}

inline void place::operate(producer_state& who, const operation& next) {
  switch (next.what) {
    case operation::kind::spawn:
    case operation::kind::misuse:
      return spawn(programs_.specs[static_cast<std::size_t>(next.number)],
                   next.what == operation::kind::misuse, who.at - 1);
    case operation::kind::fork: {
      producer_state& other = producers_[static_cast<std::size_t>(next.number)];
      other.id = machine_->fork();
      other.runs = true;
      return;
    }
    case operation::kind::end:
      who.runs = false;
      return machine_->end(who.id);
    case operation::kind::cancel: {
      failure why;
      why.code = cohort::errc::cancelled;
      why.rank = rank_;
      why.text = "the program of rank " + std::to_string(rank_) + " has cancelled";
      return machine_->cancel(why);
    }
    case operation::kind::again:
    case operation::kind::fence:
    case operation::kind::close:
      who.blocked = &next;
      return machine_->end_window(who.id, next.what == operation::kind::again ? window_end::again
                                          : next.what == operation::kind::fence
                                              ? window_end::fence
                                              : window_end::close);
    default:
      return await(who, next);
  }
}

/// A source is put where it is at home only, unless this is an attempt at what is refused.
inline void place::spawn(const spec& one, bool attempt, std::size_t at_step) {
  const task_name name = named(one.name);
  const key& k = name.what;
  const definition d = define(front_, programs_, one);
  std::vector<task_name> tasks;
  for (const use& dep : one.deps) tasks.push_back(named(dep.task));
  if (one.put && k.home != rank_ && !attempt) return;
  const bool refused = uses_twice(one) || (k.home != rank_ && (one.put || one.local));
  const bool was_cancelled = machine_->cause().has_value();
  const auto known = spawned_.find(k);
  const bool diverges = known != spawned_.end() && known->second != d;
  if (!was_cancelled && !refused && !diverges) {
    spawned_.emplace(k, d);
    notes_.saw(scope_, window_, k, d);
    for (const auto& [v, how] : d.deps) {
      if (how == use_kind::take) notes_.claimed.insert({scope_, v});
    }
  }
  spawn_result result;
  if (one.put) {
    const std::uint64_t value = result_of(window_, k, one.function, one.put, {});
    const test_value::facts facts{k, window_, one.size, value};
    const value_hash hash = test_value::hash_of(facts);
    result =
        machine_->put(name, content_ptr(new test_value(facts, !one.homely)), site(at_step), &hash);
  } else {
    const auto number = static_cast<std::uint64_t>(d.body);
    std::array<std::byte, 8> arguments;
    std::memcpy(arguments.data(), &number, 8);
    std::vector<dependency> deps;
    for (std::size_t i = 0; i < tasks.size(); ++i) deps.push_back({&tasks[i], one.deps[i].how});
    definition_view view;
    view.function = one.function;
    view.result = 1;
    view.arguments = arguments;
    view.dependencies = deps;
    view.travels = !one.local;
    result = machine_->spawn(name, view, site(at_step));
  }
  const failure* why = result.refused ? result.refused->failed() : nullptr;
  check(!result.refused || why != nullptr, "S5 a spawn is refused with a value");
  const bool ok = was_cancelled ? why != nullptr && (fate_of(*why) == fate::cancelled ||
                                                     fate_of(*why) == fate::lost)
                  : refused     ? why != nullptr && fate_of(*why) == fate::refused
                  : diverges    ? why != nullptr && fate_of(*why) == fate::diverged
                                : why == nullptr;
  check(ok,
        was_cancelled ? "S4 "
        : refused     ? "S5 "
                      : "S2 ",
        where(), ", spawn of ", one.name,
        why == nullptr ? " is not refused" : " is refused: ", why == nullptr ? "" : why->text);
}

inline void place::await(producer_state& who, const operation& next) {
  if (next.window < window_) return write(who, {fate::stale, 0, 0, {}});  // graph K4
  const task_name name = named(next.name);
  if (takes(next.what)) notes_.claimed.insert({scope_, name.what});
  who.awaited = name.what;
  who.blocked = &next;
  const await_start begun = machine_->await(who.id, name, takes(next.what), site(who.at - 1));
  if (begun.ended) {
    resume(who, begun.ended, begun.may_move);
  } else {
    who.number = begun.number;
  }
}

inline void place::resume(producer_state& who, const content_ptr& what, bool may_move) {
  const bool taken = takes(who.blocked->what);
  who.blocked = nullptr;
  write(who, outcome_of(what, taken, may_move));
}

inline void place::write(producer_state& who, const outcome& what) {
  notes_.trace(where(), ", operation ", who.at - 1, " ends with ", what);
  ++notes_.hits[name_of(what.what)];
  who.log.push_back({who.at - 1, window_, what});
}

inline outcome place::outcome_of(const content_ptr& what, bool taken, bool may_move) {
  if (const failure* why = what->failed()) {
    const fate how = fate_of(*why);
    check(!why->text.empty(), "a failure says nothing");
    if (how == fate::cancelled || how == fate::lost) return {how, 0, 0, {}};
    return {how, 0, 0, why->root};
  }
  test_value& value = value_of(*what);
  const test_value::facts& facts = value.read();
  if (taken) {
    check(++notes_.taken[at(facts.of)] == 1, "M1 ", facts.of, " is taken twice");
    ++notes_.hits[may_move ? "M3 moved" : "M3 copied"];
    if (may_move) value.move();
  }
  return {fate::value, facts.value, facts.size, {}};
}

inline bool place::deadline(rng& random) {
  if (!alive()) return false;
  const std::size_t first = random.below(producers_.size());
  for (std::size_t i = 0; i < producers_.size(); ++i) {
    producer_state& who = producers_[(first + i) % producers_.size()];
    if (who.blocked == nullptr || !has_deadline(who.blocked->what)) continue;
    ++notes_.hits["T9 a fetch ends by its deadline"];
    who.blocked = nullptr;
    machine_->withdraw(who.number);
    who.number = 0;
    write(who, {fate::deadline, 0, 0, {}});
    return true;
  }
  return false;
}

inline bool place::flush_wants() {
  if (!alive() || machine_->cause() || !machine_->has_wants()) return false;
  machine_->flush_wants();
  return true;
}

inline bool place::flush_announcements() {
  if (!alive() || machine_->cause() || !machine_->has_announcements()) return false;
  machine_->flush_announcements();
  return true;
}

inline bool place::flush_comparisons() {
  if (!alive() || machine_->cause() || !machine_->has_comparisons()) return false;
  machine_->flush_comparisons();
  return true;
}

inline bool place::flush_contribution() {
  if (!alive() || !machine_->has_contribution()) return false;
  ++notes_.hits["T3 a patient rank contributes"];
  machine_->flush_contribution();
  return true;
}

inline bool place::ask_or_read() {
  if (!alive()) return false;
  if (!asks_) {
    if (questions_ == 5) return false;
    ++questions_;
    machine_->start_report();
  } else if (machine_->has_report()) {
    const stall_report report = machine_->take_report();
    check(report.silent.empty(), "Q1 who has answered is silent");
    for (const stalled_task& one : report.tasks) {
      check(one.task.size() > 3 && one.home >= 0 && one.home < job_.ranks && !one.state.empty(),
            "Q1 a report of nothing");
    }
    ++notes_.hits[report.tasks.empty() ? "Q1 reports, empty" : "Q1 reports"];
  } else {
    return false;
  }
  asks_ = !asks_;
  return true;
}

inline bool place::destroy() {
  if (!ended_ || !machine_ || !tasks_.idle() || notes_.dead.contains(rank_)) return false;
  machine_.reset();
  return true;
}

// ---- tasks -------------------------------------------------------------------------------------

inline bool place::run(rng& random) {
  if (!alive()) return false;
  const bool ready = machine_->has_ready();
  if (!ready && tasks_.idle()) return false;
  if (ready && (tasks_.idle() || random.happens(.5))) {
    for (const int child : tasks_.start(*machine_, random, window_).children) {
      if (!machine_->cause()) spawn(programs_.specs[static_cast<std::size_t>(child)], false, 1000);
    }
  } else {
    tasks_.end(*machine_, random);
  }
  return true;
}

// ---- what the node wants -----------------------------------------------------------------------

inline std::vector<action> place::look() {
  std::vector<action> transfers;
  if (!machine_) return transfers;
  while (!machine_->actions().empty()) {
    const std::span<action> wanted = machine_->actions();
    std::vector<action> now(std::make_move_iterator(wanted.begin()),
                            std::make_move_iterator(wanted.end()));
    machine_->clear_actions();
    for (action& one : now) {
      switch (one.kind) {
        case action_kind::resume: {
          const auto who =
              std::find_if(producers_.begin(), producers_.end(), [&](const auto& each) {
                return each.blocked != nullptr && is_await(each.blocked->what) &&
                       each.number == one.number;
              });
          check(who != producers_.end(), "C4 ", where(), ": an await that has ended is resumed");
          who->number = 0;
          resume(*who, one.what, one.may_move);
          break;
        }
        case action_kind::window_ended:
          window_ended();
          break;
        case action_kind::cancelled:
          check(!cancelled_ || inspector::broken(*machine_), "C1 ", where(), " is cancelled twice");
          cancelled_ = true;
          notes_.trace(where(), " is cancelled");
          break;
        case action_kind::warn:
          ++notes_.hits["warnings"];
          break;
        default:
          transfers.push_back(std::move(one));
      }
    }
  }
  if (!ended_ && machine_->closed()) {
    notes_.trace(where(), " has closed");
    ended_ = true;
  }
  parked_before_ = inspector::parked(*machine_);
  return transfers;
}

inline void place::window_ended() {
  check(!ended_, where(), " ends a window after its end");
  const window_report report = machine_->report();
  auto asked = operation::kind::again;
  for (const producer_state& who : producers_) {
    if (!who.runs) continue;
    check(who.blocked != nullptr && ends_window(who.blocked->what), "O3 ", where(),
          ": a window ends while a producer works");
    asked = std::max(asked, who.blocked->what);
  }
  notes_.trace(where(), " ends its window, failed: ", report.failed);
  ends_.push_back(report);
  const bool broken = inspector::broken(*machine_);
  const bool closes = machine_->closed();
  check(broken || tasks_.idle(), "T2 ", where(), ": a window ends while a task runs");
  if (!broken) check_memory(asked);
  check(!job_.fail_fast || report.failed == 0 || report.cancelled, "F4 ", where(),
        ": a task has failed, and the scope is not cancelled");
  for (producer_state& who : producers_) {
    if (!who.runs) continue;
    who.blocked = nullptr;
    who.runs = !closes;
    if (!closes) write(who, {broken ? fate::lost : fate::fence, 0, 0, {}});
  }
  if (broken || closes) return;
  if (repeats(asked)) repeat();
  spawned_.clear();
  ++window_;
  check(static_cast<int>(machine_->window()) == window_, "K4 ", where(),
        " counts windows otherwise");
}

inline bool place::repeats(operation::kind asked) const {
  return asked == operation::kind::again && !ends_.back().closed && !ends_.back().cancelled;
}

/// Nothing of the window is left (graph R2). What has come for the next one is there already, but
/// after a close, and where messages leave one by one and none was parked.
inline void place::check_memory(operation::kind asked) const {
  const bool closes = machine_->closed();
  check(!inspector::has_value_of_another_window(*machine_, closes ? -1 : window_ + 1), "R2 ",
        where(), " keeps a value after the end of its window");
  if (!closes && (!exact_memory || parked_before_ != 0 || repeats(asked))) return;
  for (const std::size_t one : inspector::kept(*machine_)) {
    check(one == 0, "R2 ", where(), " keeps something after the end of a window");
  }
}

/// The definitions of what is at home here are those of the next window too (graph O4).
inline void place::repeat() {
  std::vector<std::pair<key, std::vector<definition>>> same;
  for (auto i = notes_.seen.lower_bound({scope_, window_, {}});
       i != notes_.seen.end() && std::get<0>(i->first) == scope_ &&
       std::get<1>(i->first) == window_;
       ++i) {
    if (std::get<2>(i->first).home == rank_) same.emplace_back(std::get<2>(i->first), i->second);
  }
  for (const auto& [k, list] : same) {
    for (const definition& d : list) {
      if (!d.put) notes_.saw(scope_, window_ + 1, k, d);
    }
  }
}

inline void place::check_taken() const {
  if (ended_ || machine_->cause()) return;
  for (const key& k : inspector::values_of(*machine_, rank_)) {
    check(!notes_.taken.contains(at(k)), "M3 ", where(), " keeps a value that was taken");
  }
  check(!job_.uniform || !inspector::holds(*machine_), "M3 ", where(), " holds a value for nobody");
}

inline bool place::passive() const {
  if (!opened_) return false;
  if (ended_) return true;
  if (!tasks_.idle() || machine_->has_ready() || machine_->has_wants() ||
      machine_->has_announcements()) {
    return false;
  }
  return std::all_of(producers_.begin(), producers_.end(),
                     [](const producer_state& who) { return !who.runs || who.blocked != nullptr; });
}

inline std::uint64_t place::digest() const {
  hasher hash;
  hash((opened_ ? 1U : 0U) + (ended_ ? 2U : 0U) + (cancelled_ ? 4U : 0U));
  if (machine_) hash(inspector::digest(*machine_));
  for (const producer_state& who : producers_) {
    hash(who.at)(who.runs ? 1 : 0)(who.blocked != nullptr ? 1 : 0);
    for (const log_entry& one : who.log) {
      hash(one.at)(static_cast<std::uint64_t>(one.what.what))(one.what.value)(one.what.root);
    }
  }
  hash(tasks_.digest());
  return hash.value();
}

}  // namespace graph_test
