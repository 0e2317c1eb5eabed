// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// What a scope is opened with.

#include <cohort/graph/recording.hpp>

#include <string>
#include <utility>

namespace cohort::graph {

/// The name of a scope, and what it does beside running its tasks. A name alone will do.
///
///     co_await all.run("lu", &lu, n);
///     co_await all.run(graph::scope_options("lu").record(), &lu, n);
class scope_options {
 public:
  scope_options(std::string name) : name_(std::move(name)) {}            // NOLINT: a name will do
  scope_options(const char* name) : scope_options(std::string(name)) {}  // NOLINT

  /// Records what this rank runs and when, for scope::write_dot and scope::write_schedule. Each
  /// rank decides for itself. *Cost*: two looks at the clock for each task, and its name.
  [[nodiscard]] scope_options record(const recording_options& with = {}) && {
    records_ = true;
    recording_ = with;
    return std::move(*this);
  }

  /// Hashes the tasks of the scope, for task::hash and task_context::hash. All ranks say the same.
  /// *Cost*: about 1 microsecond for each task, and 4 for each KiB of what is put; 32 bytes in the
  /// message of a value.
  [[nodiscard]] scope_options hash_tasks() && {
    hashes_ = true;
    return std::move(*this);
  }

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] bool hashes() const noexcept { return hashes_; }
  [[nodiscard]] bool records() const noexcept { return records_; }
  [[nodiscard]] const recording_options& recording() const noexcept { return recording_; }

 private:
  std::string name_;
  bool hashes_ = false;
  bool records_ = false;
  recording_options recording_;
};

}  // namespace cohort::graph
