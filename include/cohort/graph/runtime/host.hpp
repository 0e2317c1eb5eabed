// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// All scopes of one rank as an interface: what `graph::tasks` calls.

#include <cohort/comm/operation.hpp>
#include <cohort/core/asio.hpp>
#include <cohort/graph/error.hpp>
#include <cohort/graph/result_store.hpp>
#include <cohort/graph/runtime/await.hpp>
#include <cohort/graph/runtime/open_scope.hpp>
#include <cohort/graph/scope_options.hpp>

#include <cstddef>
#include <exception>
#include <memory>
#include <utility>

namespace cohort::graph {

/// The same on all ranks, but for the threads.
struct tasks_options {
  std::size_t eager = 8192;         ///< bytes; a larger value is announced before it is sent
  std::size_t credit = 256 * 1024;  ///< bytes that a rank sends another one unasked
  bool fail_fast = false;           ///< the first task that fails cancels its scope
  bool warn_on_divergence = false;  ///< only logs where ranks differ: `run` does not throw for it
  int threads = 0;                  ///< see on_threads

  /// The functions of tasks run on so many threads of this rank, while its loop communicates. Those
  /// that take a task_context, and coroutines, stay on the loop.
  tasks_options& on_threads(int count) & {
    threads = count;
    return *this;
  }
  tasks_options&& on_threads(int count) && {
    threads = count;
    return std::move(*this);
  }
};

namespace runtime {

/// *Threads*: that of the loop.
class host {
 public:
  host(const host&) = delete;
  host& operator=(const host&) = delete;
  virtual ~host() = default;

  [[nodiscard]] virtual open_scope& open(const scope_options& with) = 0;
  /// The program of a scope has gone without closing it: it is cancelled, and closes in the
  /// background.
  virtual void abandon(open_scope& one) noexcept = 0;
  /// What `run` throws at the end of a scope whose program has thrown this; null for nothing.
  [[nodiscard]] virtual std::exception_ptr verdict(const report& ended,
                                                   std::exception_ptr thrown) const = 0;
  /// No scope is opened any more.
  virtual void leave() noexcept = 0;

  // At the end of the context: see progress::kept_until_closed.
  [[nodiscard]] virtual bool closed() const noexcept = 0;
  virtual void end() = 0;
  virtual void drive() = 0;
  virtual void settle_tasks() = 0;
  virtual void destroy_tasks() = 0;
  void abandon() { end(); }

 protected:
  host() noexcept {}
};

template <class Any>
[[nodiscard]] std::shared_ptr<host> make_host(const communicator& world,
                                              const tasks_options& options);

/// A scope while its program runs.
template <class Scope>
class opened_scope {
 public:
  opened_scope(std::shared_ptr<host> by, Scope& one) noexcept
      : host_(std::move(by)), scope_(&one), opening_(one.opening()) {
    one.has_program = true;
  }
  opened_scope(const opened_scope&) = delete;
  opened_scope& operator=(const opened_scope&) = delete;
  ~opened_scope() {
    scope_->has_program = false;
    if (scope_->opening() == opening_) host_->abandon(*scope_);
  }

  /// Does what the options ask for and what may fail. Null, or why it has.
  [[nodiscard]] std::exception_ptr prepare(const scope_options& with) const noexcept try {
    if (with.directory().empty()) return nullptr;
    auto results = std::make_shared<result_store>(with.directory(), with.store());
    if (scope_->rank() == 0) results->trim();
    scope_->keep_results(std::move(results));
    return nullptr;
  } catch (...) {
    return std::current_exception();
  }
  [[nodiscard]] Scope& operator*() const noexcept { return *scope_; }
  /// Completes when all ranks have closed it.
  [[nodiscard]] asio::awaitable<report> close() const {
    asio::use_awaitable_t<> token;
    return initiate(scope_, window_body{{}, machine::window_end::close, opening_, true}, token);
  }
  /// Of all its windows, once it is closed.
  [[nodiscard]] std::exception_ptr verdict(std::exception_ptr thrown) const {
    return host_->verdict(scope_->last_report(), std::move(thrown));
  }

 private:
  std::shared_ptr<host> host_;
  Scope* scope_;
  std::uint64_t opening_;
};

}  // namespace runtime
}  // namespace cohort::graph

#ifndef COHORT_SEPARATE_COMPILATION
#include <cohort/graph/runtime/rank_host.hpp>
#endif
