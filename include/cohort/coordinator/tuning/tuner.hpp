// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Decides which numbers of a coordinator are tried, when, and whether they stay. It has no
/// clock and talks to nobody.

#include <cohort/coordinator/tuning/comparison.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cohort::coordination {

using numbers = std::vector<std::uint64_t>;

/// What a number may be.
struct number_range {
  std::uint64_t least = 1;
  std::uint64_t most = 1;
};

/// A change that can be tried, upwards and downwards: each number times two to the power of its
/// exponent.
struct number_change {
  std::string_view name;
  std::vector<int> exponents;
};

/// How careful a tuner is. Times are nanoseconds.
struct tuner_rules {
  double budget = 0.010;      ///< share of the time so far that trials may have lost
  std::size_t first = 24;     ///< steps that are only watched
  std::size_t turn = 3;       ///< steps of a turn that count, at least…
  double turn_time = 2e6;     ///< …and their time, but for 16 steps at most
  std::uint64_t rest = 1000;  ///< steps until a change that has lost is tried again; then twice
};

/// Tries changes of numbers, one after the other, against those in force: a turn with the one, a
/// turn with the other, and so on, so that a machine that becomes slower or faster on its way
/// matters to neither. A change stays if it wins by more than the noise that was measured meanwhile
/// (see \ref comparison), and is then tried again, twice as large. What has been kept is compared
/// with what the program began with, which comes back if it is faster.
///
/// Trials are paid from a budget: what they have lost against the numbers in force is never more
/// than a share of the time so far, but for the end of the last one. A step of a trial that is much
/// slower than usual ends its turn; the second one ends the trial.
class tuner {
 public:
  /// `home` is what the program has chosen, `begin` what is in force, which may come from a file.
  tuner(std::vector<number_range> ranges, std::vector<number_change> changes, numbers home,
        numbers begin, const tuner_rules& rules = {})
      : ranges_(std::move(ranges)),
        changes_(std::move(changes)),
        rules_(rules),
        home_(std::move(home)),
        kept_(std::move(begin)),
        now_(kept_),
        directions_(2 * changes_.size()),
        home_due_(kept_ == home_ ? never : 2 * rules_.first) {}

  /// In force from now on.
  [[nodiscard]] const numbers& present() const noexcept { return now_; }
  /// The best so far.
  [[nodiscard]] const numbers& kept() const noexcept { return kept_; }
  /// Whether a change is being tried.
  [[nodiscard]] bool trying() const noexcept { return trying_; }
  [[nodiscard]] std::uint64_t steps() const noexcept { return steps_; }
  [[nodiscard]] std::uint64_t trials() const noexcept { return trials_; }
  [[nodiscard]] std::uint64_t changes() const noexcept { return wins_; }
  /// What the last change that was kept has gained, in words: "piece up: 12.3 % faster".
  [[nodiscard]] const std::string& last_change() const noexcept { return last_change_; }

  /// A step of the usual work has taken so long. Returns whether `present` has changed.
  bool step_ended(double time) {
    ++steps_;
    skipped_ = 0;
    elapsed_ += time;
    if (trying_) return go_on(time);
    watch(time);
    return begin_trial();
  }
  /// A step has ended that cannot be compared with others. Returns whether `present` has changed: a
  /// trial does not wait for ever for steps that can.
  bool step_skipped() {
    if (!trying_ || ++skipped_ < 2 * turn_) return false;
    skipped_ = 0;
    return put_off();
  }
  /// The step under way has taken so long already. Returns whether `present` has changed, because a
  /// trial is too slow.
  bool step_takes(double time) {
    if (!trying_ || !with_other_ || stopped_ || time <= limit()) return false;
    stopped_ = true;
    now_ = kept_;
    return true;
  }

 private:
  static constexpr std::uint64_t never = std::numeric_limits<std::uint64_t>::max();
  static constexpr std::size_t watched = 32;
  static constexpr int longest_stride = 4;

  struct direction {  // of a change: 2 i upwards, 2 i + 1 downwards
    int stride = 2;   // more is seen more easily
    std::uint64_t closed_until = 0;
    unsigned losses = 0;
    int strikes = 0;  // turns that were ended early
  };

  void watch(double time) {
    if (recent_.size() >= watched / 2) slow_ += ((time > limit() ? 1 : 0) - slow_) / 100;
    if (recent_.size() == watched) recent_.erase(recent_.begin());
    recent_.push_back(time);
    mean_ += (time - mean_) / static_cast<double>(std::min<std::uint64_t>(++means_, 256));
  }
  [[nodiscard]] double usual() const { return median_of(recent_); }
  // A step of a trial that takes longer is stopped. Steps differ by themselves.
  [[nodiscard]] double limit() const {
    const double middle = usual();
    return 1.3 * middle + std::min(6 * spread_of(recent_, middle), 0.7 * middle);
  }
  /// A trial may cost so much more.
  [[nodiscard]] bool may_lose(double expected) const {
    return spent_ + expected <= rules_.budget * elapsed_;
  }

  [[nodiscard]] numbers changed(std::size_t which) const {
    const number_change& by = changes_[which / 2];
    const int sign = which % 2 == 0 ? directions_[which].stride : -directions_[which].stride;
    numbers result = kept_;
    for (std::size_t i = 0; i < result.size(); ++i) {
      const double exact = static_cast<double>(std::max<std::uint64_t>(kept_[i], 1)) *
                           std::exp2(sign * by.exponents[i]);
      const number_range& range = ranges_[i];
      if (by.exponents[i] == 0) continue;
      result[i] = exact >= static_cast<double>(range.most)    ? range.most
                  : exact <= static_cast<double>(range.least) ? range.least
                                                              : static_cast<std::uint64_t>(exact);
    }
    return result;
  }
  /// Chooses what is tried next; false if that is nothing.
  bool choose() {
    against_home_ = steps_ >= home_due_ && kept_ != home_;
    if (against_home_) {
      other_ = home_;
      return true;
    }
    for (std::size_t i = 0; i < directions_.size(); ++i) {
      const std::size_t which = (next_ + i) % directions_.size();
      if (directions_[which].closed_until > steps_) continue;
      other_ = changed(which);
      if (other_ == kept_) continue;
      which_ = which;
      return true;
    }
    return false;
  }
  bool begin_trial() {
    if (steps_ < rules_.first || recent_.size() < watched / 2) return false;
    // Nobody knows what it will cost.
    if (!may_lose(std::max(usual() / 2, worst_)) || !choose()) return false;
    const double middle = std::max(usual(), 1.0);
    const double share = spread_of(recent_, middle) / middle;
    const double steps = std::min(std::ceil(rules_.turn_time / middle), 64.0);
    turn_ = std::clamp(static_cast<std::size_t>(steps), rules_.turn, watched / 2);
    const std::vector<double> last(recent_.end() - static_cast<std::ptrdiff_t>(turn_),
                                   recent_.end());
    tried_ = 0;
    compared_.begin(median_of(last), share, turn_);
    ++trials_;
    trying_ = true;
    return take_turn(true);
  }
  // The first step of a turn does not count: what was elected before it may still be under way.
  bool take_turn(bool with_other) {
    with_other_ = with_other;
    settled_ = stopped_ = false;
    counted_.clear();
    lost_ = 0;
    const numbers& wanted = with_other ? other_ : kept_;
    return std::exchange(now_, wanted) != wanted;
  }
  bool go_on(double time) {
    if (with_other_) {
      lost_ += std::min(time - mean_, 8 * usual());
      ++tried_;
    }
    if (stopped_ || (with_other_ && time > limit())) {
      pay();
      // Once is bad luck, and so it is as often as usual steps are that slow.
      int& strikes = against_home_ ? home_strikes_ : directions_[which_].strikes;
      if (++strikes > 1 + 3 * slow_ * static_cast<double>(tried_)) return lose();
      return may_lose(last_loss_) ? take_turn(false) : put_off();
    }
    if (!std::exchange(settled_, true)) return false;
    counted_.push_back(time);
    if (!with_other_) watch(time);
    if (counted_.size() < turn_) return false;
    if (with_other_) {
      pay();
      compared_.add_other(median_of(counted_));
      return take_turn(false);
    }
    const auto result = compared_.add_usual(median_of(counted_));
    if (result == comparison::finding::wins) return win();
    if (result == comparison::finding::loses) return lose();
    return take_turn(may_lose(std::max(last_loss_, usual() / 4)));
  }
  /// A turn of a trial is over. Steps are compared with the mean of the usual ones, among which are
  /// slow ones, too: so what is counted is what trials have really lost.
  void pay() {
    last_loss_ = against_home_ ? 0 : lost_;
    spent_ = std::max(spent_ + last_loss_, 0.0);
  }
  bool win() {
    trying_ = false;
    ++wins_;
    const double gain = 100 * (1 - compared_.ratio());
    last_change_ = against_home_ ? "back to the beginning"
                                 : std::string(changes_[which_ / 2].name) +
                                       (which_ % 2 == 0 ? " up" : " down");
    last_change_ += ": " + std::to_string(gain).substr(0, 4) + " % faster";
    kept_ = other_;
    recent_.clear();
    means_ = 0;
    home_strikes_ = 0;
    const int stride = against_home_ ? 1 : directions_[which_].stride;
    direction fresh;  // they begin elsewhere now
    if (against_home_) fresh.closed_until = steps_ + rules_.rest;
    directions_.assign(directions_.size(), fresh);
    if (!against_home_) {
      directions_[which_].stride = std::min(2 * stride, longest_stride);
      directions_[which_ ^ 1U].closed_until = steps_ + rules_.rest;
      next_ = which_;
    }
    home_due_ = kept_ == home_ ? never : steps_ + rules_.rest / 10;
    home_rest_ = rules_.rest;
    return take_turn(false);
  }
  /// It goes on when there is more to spend.
  bool put_off() {
    if (against_home_) return lose();
    trying_ = false;
    directions_[which_].closed_until = steps_ + rules_.rest / 10;
    next_ = which_ + 1;
    return take_turn(false);
  }
  bool lose() {
    trying_ = false;
    worst_ = std::max(worst_, last_loss_);
    if (against_home_) {
      home_strikes_ = 0;
      home_due_ = steps_ + home_rest_;
      home_rest_ *= 2;
      return take_turn(false);
    }
    direction& tried = directions_[which_];
    tried.strikes = 0;
    if (tried.stride > 1) {
      tried.stride = 1;
      next_ = which_;
    } else {
      tried.closed_until = steps_ + (rules_.rest << std::min(tried.losses++, 10U));
      next_ = which_ + 1;
    }
    return take_turn(false);
  }

  std::vector<number_range> ranges_;
  std::vector<number_change> changes_;
  tuner_rules rules_;
  numbers home_;
  numbers kept_;
  numbers now_;
  numbers other_;  // what is tried

  std::uint64_t steps_ = 0;
  double elapsed_ = 0;
  double spent_ = 0;            // lost in trials
  double worst_ = 0;            // in the last turn of a trial that has failed
  double last_loss_ = 0;        // in the last one
  std::vector<double> recent_;  // steps with what is kept
  double mean_ = 0;             // of these, and of more of them
  std::uint64_t means_ = 0;
  double slow_ = 0;  // which share of them a trial would be stopped for

  std::vector<direction> directions_;
  std::size_t next_ = 0;
  std::uint64_t home_due_;
  std::uint64_t home_rest_ = rules_.rest;  // until it is tried again; then twice
  int home_strikes_ = 0;

  bool trying_ = false;
  bool against_home_ = false;
  std::size_t which_ = 0;
  std::size_t turn_ = 0;     // steps that count
  std::size_t skipped_ = 0;  // since one that does
  bool with_other_ = false;
  std::uint64_t tried_ = 0;  // steps with what is tried
  bool settled_ = false;
  bool stopped_ = false;
  double lost_ = 0;  // in this turn
  std::vector<double> counted_;
  comparison compared_;

  std::uint64_t trials_ = 0;
  std::uint64_t wins_ = 0;
  std::string last_change_;
};

}  // namespace cohort::coordination
