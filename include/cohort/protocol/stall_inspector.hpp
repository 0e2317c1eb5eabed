// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The stall query: who is ready for what, asked down the tree and answered up (protocol Q1).

#include <cohort/protocol/message.hpp>
#include <cohort/protocol/name_table.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace cohort::protocol {

/// A row of a report: who has submitted an operation, by signature, and who has not.
struct stall_report_row {
  std::uint32_t set = 0;
  std::string name;
  epoch number = 0;
  std::vector<side> ready;
  rank_set missing;
};

/// Who waits for whom, as far as could be asked.
struct stall_report {
  std::vector<stall_report_row> rows;
  rank_set silent;                                         ///< did not answer
  rank_set unknown;                                        ///< below a silent rank
  std::vector<std::pair<std::uint32_t, rank_set>> joined;  ///< by set, where some ranks have
};

/// A query that runs, at one node: what has been answered so far. One at a time, numbered, so that
/// an answer to an older one is told apart.
template <class Any = void>
class basic_stall_inspector {
 public:
  using operation = std::pair<name_index, epoch>;

  /// Starts: answers of the sources in `asked` are awaited until `deadline`.
  void start(std::uint64_t number, std::uint64_t asked, std::uint64_t deadline, std::size_t sets) {
    running_ = true;
    number_ = number;
    awaited_ = asked;
    deadline_ = deadline;
    table.clear();
    joined.assign(sets, {});
    outdated_.assign(sets, false);
    silent.clear();
    unknown.clear();
    overdue.clear();
  }
  /// One more set, while it may run.
  void add_set() {
    joined.emplace_back();
    outdated_.push_back(false);
  }
  void stop() noexcept { running_ = false; }
  [[nodiscard]] bool running() const noexcept { return running_; }
  [[nodiscard]] std::uint64_t number() const noexcept { return number_; }
  [[nodiscard]] std::uint64_t deadline() const noexcept { return deadline_; }
  /// Sources whose answers are awaited.
  [[nodiscard]] std::uint64_t awaited() const noexcept { return awaited_; }
  void note_answer(int source) noexcept { awaited_ &= ~(std::uint64_t{1} << source); }

  void add(const operation& one, const side& ready) {
    std::vector<side>& sides = table[one];
    for (side& known : sides) {
      if (known.sig == ready.sig) {
        known.ranks.unite(ready.ranks);
        if (known.site.file.empty()) known.site = ready.site;
        return;
      }
    }
    sides.push_back(ready);
  }
  void add_joined(std::uint32_t set, const rank_set& ranks) {
    if (!outdated_[set]) joined[set].unite(ranks);
  }
  /// All have joined while the query runs. Answers about who has joined are out of date, also those
  /// that are still to come.
  void forget_joined(std::uint32_t set) {
    if (!running_) return;
    outdated_[set] = true;
    joined[set].clear();
  }

  std::map<operation, std::vector<side>> table;
  std::vector<rank_set> joined;  // per set
  rank_set silent;
  rank_set unknown;
  std::vector<operation> overdue;  // root: for which it is asked (protocol W3)

 private:
  bool running_ = false;
  std::uint64_t number_ = 0;
  std::uint64_t awaited_ = 0;
  std::uint64_t deadline_ = 0;
  std::vector<bool> outdated_;  // per set
};
using stall_inspector = basic_stall_inspector<>;

}  // namespace cohort::protocol
