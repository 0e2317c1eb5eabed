// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// What a scope is opened with.

#include <cohort/graph/recording.hpp>
#include <cohort/graph/result_store.hpp>

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

  /// Keeps the results of families that are marked `.cached()` in this directory, and does not run
  /// what is there (docs/graph.md). It hashes the tasks, so all ranks give one, which need not be
  /// the same. Where it cannot be made or written, `run` throws.
  [[nodiscard]] scope_options results(std::string directory,
                                      const result_store_options& with = {}) && {
    hashes_ = true;
    directory_ = std::move(directory);
    store_ = with;
    return std::move(*this);
  }

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] bool hashes() const noexcept { return hashes_; }
  [[nodiscard]] const std::string& directory() const noexcept { return directory_; }
  [[nodiscard]] const result_store_options& store() const noexcept { return store_; }
  [[nodiscard]] bool records() const noexcept { return records_; }
  [[nodiscard]] const recording_options& recording() const noexcept { return recording_; }

 private:
  std::string name_;
  bool hashes_ = false;
  std::string directory_;
  result_store_options store_;
  bool records_ = false;
  recording_options recording_;
};

}  // namespace cohort::graph
