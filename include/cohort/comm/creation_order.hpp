// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// In which order processes make communicators: the rules alone, without MPI.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <vector>

namespace cohort::comm {

/// Which creation a process takes part in now: one at a time, whatever contexts and threads make.
/// Creations are known by an address. All functions may be called from any thread.
class creation_turn {
 public:
  creation_turn() = default;
  /// The one of this process, which outlives static objects.
  [[nodiscard]] static creation_turn& of_process() {
    static creation_turn& instance = *new creation_turn;
    return instance;
  }
  /// Takes the turn if nobody has it.
  [[nodiscard]] bool try_take(const void* who) {
    const std::lock_guard hold(mutex_);
    if (queue_.empty()) queue_.push_back(who);
    return queue_.front() == who;
  }
  /// Gets the turn after all who have asked before.
  void wait(const void* who) {
    const std::lock_guard hold(mutex_);
    queue_.push_back(who);
  }
  [[nodiscard]] bool has(const void* who) const {
    const std::lock_guard hold(mutex_);
    return !queue_.empty() && queue_.front() == who;
  }
  /// Has it no more, and waits for it no more.
  void give_back(const void* who) {
    const std::lock_guard hold(mutex_);
    std::erase(queue_, who);
  }

 private:
  mutable std::mutex mutex_;
  std::deque<const void*> queue_;  // the first has it
};

/// What one member of a creation does until it may call MPI.
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
/// Who tries does not wait, and who waits holds only turns of lower places than the one that it
/// waits for. So there is no circle of creations that wait for each other, and as turns are given
/// in the order in which they were asked for, every creation that all members have entered is made.
class creation_steps {
 public:
  enum class step : std::uint8_t {
    exchange,   ///< send `value()` to each of `sends()`, receive from each of `receives()`
    try_turn,   ///< take the turn if it is free
    give_turn,  ///< give it back, if this member has it
    find_line,  ///< call `line_up`
    wait_turn,  ///< wait for the turn
    make        ///< all members are there and have their turns: call MPI, then give back the turn
  };
  /// Children of a member in the tree.
  static constexpr int radix = 4;

  creation_steps(int members, int self) noexcept : members_(members), self_(self) {}

  /// What to do next. `answer`: after `exchange`, whether all that was received is true; after
  /// `try_turn`, whether the turn was taken.
  [[nodiscard]] step next(bool answer) {
    sends_.clear();
    receives_.clear();
    value_ = true;
    switch (stage_++) {
      case 0:  // who is below has entered
        receives_ = children();
        return step::exchange;
      case 1:  // and all have
        if (!is_root()) ask_parent();
        return step::exchange;
      case 2:
        return step::try_turn;
      case 3:
        taken_ = answer;
        sends_ = receives_ = children();
        return step::exchange;
      case 4:
        taken_ = taken_ && answer;
        value_ = taken_;
        if (!is_root()) ask_parent();
        return step::exchange;
      case 5:
        if (!is_root()) taken_ = answer;
        value_ = taken_;
        sends_ = children();
        return step::exchange;
      case 6:
        return taken_ ? step::make : step::give_turn;
      case 7:
        return step::find_line;
      case 8:
        if (before_ >= 0) receives_.push_back(before_);
        return step::exchange;
      case 9:
        return step::wait_turn;
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
        return step::exchange;
      case 11:
        sends_ = children();
        return step::exchange;
      default:
        return step::make;
    }
  }

  /// `places`: of each member, in an order of all processes of the job.
  void line_up(const std::vector<int>& places) {
    std::vector<int> line(static_cast<std::size_t>(members_));
    for (std::size_t i = 0; i < line.size(); ++i) line[i] = static_cast<int>(i);
    std::sort(line.begin(), line.end(), [&places](int a, int b) {
      const int of_a = places[static_cast<std::size_t>(a)];
      const int of_b = places[static_cast<std::size_t>(b)];
      return of_a != of_b ? of_a < of_b : a < b;
    });
    const auto mine = std::find(line.begin(), line.end(), self_);
    before_ = mine == line.begin() ? -1 : *(mine - 1);
    after_ = mine + 1 == line.end() ? -1 : *(mine + 1);
    last_ = line.back();
  }

  /// Members, for the exchange.
  [[nodiscard]] const std::vector<int>& sends() const noexcept { return sends_; }
  [[nodiscard]] const std::vector<int>& receives() const noexcept { return receives_; }
  [[nodiscard]] bool value() const noexcept { return value_; }

 private:
  [[nodiscard]] bool is_root() const noexcept { return self_ == 0; }
  [[nodiscard]] int parent() const noexcept { return (self_ - 1) / radix; }
  [[nodiscard]] std::vector<int> children() const {
    std::vector<int> result;
    for (int i = 1; i <= radix && radix * self_ + i < members_; ++i) {
      result.push_back(radix * self_ + i);
    }
    return result;
  }
  void ask_parent() {
    sends_.push_back(parent());
    receives_.push_back(parent());
  }

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

}  // namespace cohort::comm
