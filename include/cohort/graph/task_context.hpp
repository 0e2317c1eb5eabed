// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// What a running task can know of itself, and how it spawns others.
///
///     asio::awaitable<int> count(graph::task_context& context, int depth) {
///       auto more = context.tasks<&count>("count");
///       if (depth > 0) more(depth - 1).spawn(depth - 1);
///       co_return depth;
///     }

#include <cohort/graph/placement.hpp>
#include <cohort/graph/runtime/open_scope.hpp>
#include <cohort/graph/task_hash.hpp>

#include <source_location>
#include <string>
#include <string_view>

namespace cohort::graph {

template <class T, auto... F>
class family;

/// The function of a task that wants it takes it by reference as its first parameter. Valid until
/// the function, or the coroutine that it is, has ended. A task spawns, but does not await other
/// tasks (graph S3): it is split in two, and the second one depends on what it would await.
class task_context {
 public:
  task_context(runtime::open_scope& scope, machine::task_index index) noexcept
      : scope_(scope), index_(index) {}
  task_context(const task_context&) = delete;
  task_context& operator=(const task_context&) = delete;

  [[nodiscard]] int rank() const noexcept { return scope_.rank(); }
  [[nodiscard]] int size() const noexcept { return scope_.ranks(); }
  /// "factor(3)"
  [[nodiscard]] std::string name() const { return scope_.name_of(index_); }
  /// What this task computes: see task_hash. *Throws* as task::hash.
  [[nodiscard]] task_hash hash() const { return scope_.hash_of(index_); }
  /// Whether the scope has been cancelled, as far as this rank has heard. A coroutine learns of it
  /// by its cancellation too. Always false in a function: it holds the loop, which would hear of
  /// it.
  [[nodiscard]] bool cancelled() const noexcept { return scope_.is_cancelled(); }

  /// As of a scope.
  template <auto F>
  [[nodiscard]] auto tasks(std::string_view name, const placement& where = {}) const;
  template <class T>
  [[nodiscard]] auto tasks(std::string_view name, const placement& where = {}) const;

 private:
  runtime::open_scope& scope_;
  machine::task_index index_;
};

}  // namespace cohort::graph
