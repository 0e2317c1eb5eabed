// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The numbers of a coordinator while it runs: rank 0 measures steps, tries other numbers and
/// tells all ranks through the log; a file keeps them.

#include <cohort/coordinator/data/lane.hpp>
#include <cohort/coordinator/instance.hpp>
#include <cohort/coordinator/options_text.hpp>
#include <cohort/coordinator/tuning/step_clock.hpp>
#include <cohort/coordinator/tuning/tuner.hpp>
#include <cohort/core/log.hpp>
#include <cohort/protocol/node.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace cohort::coordination {

template <class Any>
class negotiation;
template <class Any>
class negotiation_opening;

/// Elections and the program's marks enter, and on every rank what the log says of the numbers;
/// what leaves are the numbers in force, in the options of the negotiation. [protocol R6]
template <class Any>
class tuning {
 public:
  explicit tuning(negotiation<Any>& log) noexcept : log_(log) {}

  /// Reads the file on rank 0, if there is one; its numbers are those of all ranks. Throws what
  /// load_options does.
  void load() {
    const std::string& path = log_.options.tune_file;
    if (path.empty() || log_.rank != 0) return;
    coordinator_options given;
    try {
      given = load_options(path, log_.options);
    } catch (const std::system_error& problem) {
      if (problem.code() == std::errc::no_such_file_or_directory) return;
      throw;
    }
    // The environment wins, and only what can change while a coordinator runs may be in it.
    for (const option_row& row : option_table()) {
      const bool tuned = is_tuned(row);
      if (tuned && !is_set(row)) continue;
      if (!tuned && row.get(given) != row.get(log_.options)) {
        throw error(errc::invalid_argument,
                    path + ": " + std::string(row.name) + " cannot change while it runs");
      }
      row.set(given, row.get(log_.options));
    }
    loaded_ = numbers_of(given);
  }
  /// On rank 0, before anything is elected.
  void open() {
    if (!log_.options.tune && !loaded_) return;
    if (log_.device || !log_.options.frozen_plan.empty()) {
      log::write(log::level::warning,
                 "coordinator: no tuning with a frozen plan, nor with a backend for devices");
      return;
    }
    const numbers home = numbers_of(log_.options);
    const numbers begin = loaded_.value_or(home);
    if (log_.options.tune) {
      root_ = std::make_unique<at_root>(tuner(ranges(home, begin), changes(), home, begin));
    }
    if (begin != home) tell(begin);
  }
  /// Whether this rank decides.
  [[nodiscard]] bool active() const noexcept { return root_ != nullptr; }

  void elected(const protocol::action& one) {
    ended(root_->steps.elected(one.name, log_.node.entry(one.entry).bytes, now()));
  }
  void idle() { root_->steps.idle(now()); }
  void marked() { ended(root_->steps.marked(now())); }
  void names_change() { root_->steps.forget_names(); }
  /// Tells the others what has been decided; before the next election.
  void decide() {
    tuner& one = root_->decisions;
    if (one.trying() && one.step_takes(root_->steps.so_far(now()))) root_->changed = true;
    if (std::exchange(root_->changed, false)) tell(one.present());
  }
  /// On every rank, in the order of the log.
  void apply(const protocol::adjustment& what) {
    const auto rows = tuned_options();
    bool sound = what.numbers.size() == rows.size();
    for (std::size_t i = 0; sound && i < rows.size(); ++i) {
      sound = what.numbers[i] >= rows[i].least && what.numbers[i] <= rows[i].most;
      if (sound) rows[i].set(log_.options, what.numbers[i]);
    }
    if (!sound) {
      throw protocol::protocol_error(protocol::fault::out_of_place, "numbers that no rank can use");
    }
    log_.plane.fusion.grow(fusion_memory(log_.options));
  }
  [[nodiscard]] tuning_statistics statistics() const {
    if (!root_) return {};
    const tuner& one = root_->decisions;
    return {one.steps(), one.trials(), one.changes()};
  }

 private:
  struct at_root {
    explicit at_root(tuner with) : decisions(std::move(with)) {}
    step_clock steps;
    tuner decisions;
    bool changed = false;
    std::uint64_t told = 0;  // changes that were kept
  };

  [[nodiscard]] static std::uint64_t now() noexcept { return nanoseconds(clock::now()); }
  [[nodiscard]] static bool is_tuned(const option_row& row) noexcept {
    const auto rows = tuned_options();
    return &row >= rows.data() && &row < rows.data() + rows.size();
  }
  [[nodiscard]] static bool is_set(const option_row& row) {
    const char* const text = std::getenv(row.variable);
    return text != nullptr && *text != '\0';
  }
  [[nodiscard]] static numbers numbers_of(const coordinator_options& options) {
    numbers result;
    for (const option_row& row : tuned_options()) result.push_back(row.get(options));
    return result;
  }
  [[nodiscard]] static coordinator_options with(coordinator_options options, const numbers& these) {
    const auto rows = tuned_options();
    for (std::size_t i = 0; i < rows.size(); ++i) rows[i].set(options, these[i]);
    return options;
  }
  /// In the order of the rows; what the program has chosen is always among them.
  [[nodiscard]] static std::vector<number_range> ranges(const numbers& home, const numbers& begin) {
    constexpr std::uint64_t kib = 1024;
    constexpr std::uint64_t mib = 1024 * kib;
    std::vector<number_range> all{{4 * kib, 4 * mib},   {16 * kib, 8 * mib},
                                  {16 * kib, 64 * mib}, {1, 8},
                                  {64 * kib, 64 * mib}, {1, 1024 * mib}};
    for (std::size_t i = 0; i < all.size(); ++i) {
      all[i].least = std::min({all[i].least, home[i], begin[i]});
      all[i].most = std::max({all[i].most, home[i], begin[i]});
    }
    return all;
  }
  /// What belongs together is tried together first. What the environment says is left alone.
  [[nodiscard]] std::vector<number_change> changes() const {
    std::vector<number_change> all{{"packs", {1, 1, 0, 0, 0, 0}},
                                   {"pieces", {0, 0, 1, 0, 1, 0}},
                                   {"pieces_in_flight", {0, 0, 0, 1, 0, 0}},
                                   {"bytes_in_flight", {0, 0, 0, 0, 1, 0}},
                                   {"fusion_threshold", {1, 0, 0, 0, 0, 0}},
                                   {"fusion_buffer", {0, 1, 0, 0, 0, 0}},
                                   {"piece", {0, 0, 1, 0, 0, 0}}};
    // Down from a gigabyte: MPI for what is larger than 1 MiB, then 1 KiB, then for everything.
    if (log_.backend) all.push_back({"backend_up_to", {0, 0, 0, 0, 0, 10}});
    const auto rows = tuned_options();
    std::erase_if(all, [&](const number_change& each) {
      for (std::size_t i = 0; i < rows.size(); ++i) {
        if (each.exponents[i] != 0 && is_set(rows[i])) return true;
      }
      return false;
    });
    return all;
  }

  void tell(const numbers& these) {
    const auto options = with(log_.options, these);
    log_.node.adjust(these, negotiation_opening<Any>::node_options_of(options).fusion);
  }
  void ended(const std::optional<double>& step) {
    tuner& one = root_->decisions;
    if (!step) {
      if (root_->steps.take_unlike() && one.step_skipped()) root_->changed = true;
      return;
    }
    if (one.step_ended(*step)) root_->changed = true;
    if (root_->told == one.changes()) return;
    root_->told = one.changes();
    keep();
  }
  void keep() {
    const tuner& one = root_->decisions;
    const std::string why = one.last_change() + ", step " + std::to_string(one.steps()) +
                            ", trial " + std::to_string(one.trials());
    const coordinator_options kept = with(log_.options, one.kept());
    std::string line = tuned_text(kept);
    std::replace(line.begin(), line.end(), '\n', ' ');
    log::write(log::level::info, "coordinator: tuned, " + why + ": " + line);
    if (log_.options.tune_file.empty()) return;
    try {
      save_tuned(log_.options.tune_file, kept, why);
    } catch (const std::exception& problem) {
      log::write(log::level::warning, std::string("tune_file: ") + problem.what());
    }
  }

  negotiation<Any>& log_;
  std::optional<numbers> loaded_;
  std::unique_ptr<at_root> root_;
};

}  // namespace cohort::coordination
