// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// In which order processes make communicators: the rules alone, without MPI.

#include <cohort/core/config.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

namespace cohort::comm {

/// Which creation a process takes part in now: one at a time, whatever contexts and threads make.
/// Creations are known by an address. All functions may be called from any thread.
class creation_turn {
 public:
  creation_turn() = default;
  /// The one of this process, which outlives static objects.
  [[nodiscard]] static creation_turn& of_process();
  /// One more will take turns, and `leave` when it does not any more: that needs no memory then.
  void enter();
  void leave() noexcept;
  /// Takes the turn if nobody has it.
  [[nodiscard]] bool try_take(const void* who);
  /// Gets the turn after all who have asked before.
  void wait(const void* who);
  [[nodiscard]] bool has(const void* who) const;
  /// Has it no more, and waits for it no more.
  void give_back(const void* who);

 private:
  mutable std::mutex mutex_;
  std::vector<const void*> queue_;  // the first has it
  std::size_t entered_ = 0;
};

/// What one member of a creation does until it may call MPI. Why this is no look task is told in
/// docs/design/layers.md, "Operations of several stages".
///
/// 1. Word that a member has entered goes up a tree. When all have entered, nobody waits for the
///    program of another rank any more, only for its engine; no process has been held up so far.
/// 2. Word to try goes down the tree. Each process takes its turn if that is free, and whether all
///    have done so is gathered up the tree again and told downwards: then all make the communicator
///    and each gives back its turn after that. This is how nearly all creations go.
/// 3. Otherwise a process takes part in another creation now. All give back what they have taken,
///    and take their turns one after the other, in an order that is the same for all creations (by
///    rank in MPI_COMM_WORLD): each waits for its turn, then tells the next member. The last one
///    tells the root of the tree, which tells all to go on.
///
/// A member that tries does not wait, and one that waits holds only turns of lower places than the
/// one that it waits for. So there is no circle of creations that wait for each other, and as turns
/// are given in the order in which they were asked for, every creation that all members have
/// entered is made.
class creation_stages {
 public:
  enum class stage : std::uint8_t {
    exchange,   ///< send `value()` to each of `sends()`, receive from each of `receives()`
    try_turn,   ///< take the turn if it is free
    give_turn,  ///< give it back, if this member has it
    find_line,  ///< call `line_up`
    wait_turn,  ///< wait for the turn
    make        ///< all members are there and have their turns: call MPI, then give back the turn
  };
  /// Children of a member in the tree.
  static constexpr int radix = 4;

  creation_stages(int members, int self) : members_(members), self_(self) {
    sends_.reserve(radix + 1);
    receives_.reserve(radix + 1);
  }

  /// What to do next; needs no memory, for the others count on this member. `answer`: after
  /// `exchange`, whether all that was received is true; after `try_turn`, whether the turn was
  /// taken.
  [[nodiscard]] stage next(bool answer);

  /// `place_of(member)`: in an order of all processes of the job. If one is negative, nobody knows
  /// a place of all, and they keep their order here. Needs no memory.
  template <class PlaceOf>
  void line_up(PlaceOf place_of) {
    using entry = std::pair<int, int>;  // place and member
    const entry mine(place_of(self_), self_);
    entry before(-1, -1);
    entry after(-1, -1);
    entry last(-1, -1);
    bool known = true;
    for (int member = 0; member < members_; ++member) {
      const entry one(place_of(member), member);
      known = known && one.first >= 0;
      if (one < mine && one > before) before = one;
      if (one > mine && (after.second < 0 || one < after)) after = one;
      last = std::max(last, one);
    }
    before_ = known ? before.second : self_ - 1;
    after_ = known ? after.second : self_ + 1 < members_ ? self_ + 1 : -1;
    last_ = known ? last.second : members_ - 1;
  }

  /// Members, for the exchange.
  [[nodiscard]] const std::vector<int>& sends() const noexcept { return sends_; }
  [[nodiscard]] const std::vector<int>& receives() const noexcept { return receives_; }
  [[nodiscard]] bool value() const noexcept { return value_; }

 private:
  [[nodiscard]] bool is_root() const noexcept { return self_ == 0; }
  [[nodiscard]] int parent() const noexcept { return (self_ - 1) / radix; }
  void add_children(std::vector<int>& to) const;
  void exchange_with_parent();

  int members_;
  int self_;
  int stage_ = 0;
  bool taken_ = false;
  bool value_ = true;
  int before_ = -1;  // in the line
  int after_ = -1;
  int last_ = -1;
  std::vector<int> sends_;
  std::vector<int> receives_;
};

inline creation_turn& creation_turn::of_process() {
  static creation_turn& instance = *new creation_turn;
  return instance;
}

inline void creation_turn::enter() {
  const std::lock_guard hold(mutex_);
  queue_.reserve(entered_ + 1);
  ++entered_;
}

inline void creation_turn::leave() noexcept {
  const std::lock_guard hold(mutex_);
  --entered_;
}

inline bool creation_turn::try_take(const void* who) {
  const std::lock_guard hold(mutex_);
  if (queue_.empty()) queue_.push_back(who);
  return queue_.front() == who;
}

inline void creation_turn::wait(const void* who) {
  const std::lock_guard hold(mutex_);
  queue_.push_back(who);
}

inline bool creation_turn::has(const void* who) const {
  const std::lock_guard hold(mutex_);
  return !queue_.empty() && queue_.front() == who;
}

inline void creation_turn::give_back(const void* who) {
  const std::lock_guard hold(mutex_);
  std::erase(queue_, who);
}

inline creation_stages::stage creation_stages::next(bool answer) {
  sends_.clear();
  receives_.clear();
  value_ = true;
  switch (stage_++) {
    case 0:  // the members below have entered
      add_children(receives_);
      return stage::exchange;
    case 1:  // and all have
      if (!is_root()) exchange_with_parent();
      return stage::exchange;
    case 2:
      return stage::try_turn;
    case 3:
      taken_ = answer;
      add_children(sends_);
      add_children(receives_);
      return stage::exchange;
    case 4:
      taken_ = taken_ && answer;
      value_ = taken_;
      if (!is_root()) exchange_with_parent();
      return stage::exchange;
    case 5:
      if (!is_root()) taken_ = answer;
      value_ = taken_;
      add_children(sends_);
      return stage::exchange;
    case 6:
      return taken_ ? stage::make : stage::give_turn;
    case 7:
      return stage::find_line;
    case 8:
      if (before_ >= 0) receives_.push_back(before_);
      return stage::exchange;
    case 9:
      return stage::wait_turn;
    case 10:
      if (after_ >= 0) {
        sends_.push_back(after_);
      } else if (!is_root()) {
        sends_.push_back(0);
      }
      if (!is_root()) {
        receives_.push_back(parent());
      } else if (last_ != self_) {
        receives_.push_back(last_);
      }
      return stage::exchange;
    case 11:
      add_children(sends_);
      return stage::exchange;
    default:
      return stage::make;
  }
}

inline void creation_stages::add_children(std::vector<int>& to) const {
  for (int i = 1; i <= radix && radix * self_ + i < members_; ++i) {
    to.push_back(radix * self_ + i);
  }
}

inline void creation_stages::exchange_with_parent() {
  sends_.push_back(parent());
  receives_.push_back(parent());
}

}  // namespace cohort::comm
