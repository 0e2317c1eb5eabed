// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Which of two ways is faster, where both take turns on a machine that is never quiet.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

namespace cohort::coordination {

/// The middle of some values; 0 for none.
[[nodiscard]] inline double median_of(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 != 0) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}
/// How far values lie from their middle, as a standard deviation that outliers do not move.
[[nodiscard]] inline double spread_of(std::vector<double> values, double middle) {
  for (double& each : values) each = std::abs(each - middle);
  return 1.4826 * median_of(std::move(values));
}

/// Compares the usual way (U) with another (O), by the turns U O U O … U. Each turn of the other
/// way is a pair with the mean of its two neighbours, so what changes slowly cancels. The noise is
/// the larger of what the pairs show, what the usual turns show, and what single steps show.
class comparison {
 public:
  enum class finding { open, wins, loses };

  /// A turn of the usual way has taken `first`; steps spread by this share of their time, and a
  /// turn has so many.
  void begin(double first, double share, std::size_t steps) {
    pairs_.clear();
    drifts_.clear();
    last_ = std::log(first);
    has_other_ = false;
    of_steps_ = 1.25 * share / std::sqrt(static_cast<double>(std::max<std::size_t>(steps, 1)));
  }
  void add_other(double time) {
    other_ = std::log(time);
    has_other_ = true;
  }
  /// Tells what is known then about the other way.
  finding add_usual(double time) {
    const double now = std::log(time);
    if (has_other_) pairs_.push_back(other_ - (last_ + now) / 2);
    drifts_.push_back((now - last_) / std::sqrt(2.0));
    last_ = now;
    return std::exchange(has_other_, false) ? decide() : finding::open;
  }
  /// The time of the other way over that of the usual one.
  [[nodiscard]] double ratio() const { return std::exp(median_of(pairs_)); }

 private:
  static constexpr double margin = 0.01;  // what wins by less is not worth a change
  static constexpr std::size_t least = 5;
  static constexpr std::size_t most = 32;

  [[nodiscard]] double noise(double middle) const {
    double of_turn = of_steps_;
    if (drifts_.size() >= 3) of_turn = std::max(of_turn, spread_of(drifts_, 0));
    double of_pair = of_turn * std::sqrt(1.5);
    if (pairs_.size() >= 4) of_pair = std::max(of_pair, spread_of(pairs_, middle));
    return std::max(1.25 * of_pair / std::sqrt(static_cast<double>(pairs_.size())), 0.001);
  }
  [[nodiscard]] finding decide() const {
    const std::size_t n = pairs_.size();
    const double middle = median_of(pairs_);
    const double error = noise(middle);
    const auto lost = static_cast<std::size_t>(
        std::count_if(pairs_.begin(), pairs_.end(), [](double one) { return one >= 0; }));
    const double worst = *std::max_element(pairs_.begin(), pairs_.end());
    // Few turns may all be lucky. They are believed where usual turns differ by far less.
    const bool clear = middle < -std::max(0.08, 4 * error) && worst < -0.03 &&
                       std::all_of(
                           drifts_.begin(), drifts_.end(),
                           [&](double one) { return std::abs(one) < -middle / 3; });
    if (n >= 3 && clear) return finding::wins;
    if (n >= least && middle < -std::max(margin, 3 * error) && lost <= n / 8) return finding::wins;
    // Where single turns differ by much, how many were won says more.
    if (n >= 24 && middle < -2 * margin && lost <= n / 5) return finding::wins;
    if (middle > std::max(0.04, 4 * error)) return finding::loses;
    if (n >= 2 && middle > std::max(margin, 2.5 * error)) return finding::loses;
    if (n >= 3 && middle > error) return finding::loses;
    const bool hopeless = middle > -margin / 2 && (n >= least || error < margin / 2);
    return (n >= 3 && hopeless) || n == most ? finding::loses : finding::open;
  }

  std::vector<double> pairs_;   // logarithms of ratios
  std::vector<double> drifts_;  // from one usual turn to the next
  double last_ = 0;
  double other_ = 0;
  bool has_other_ = false;
  double of_steps_ = 0;
};

}  // namespace cohort::coordination
