// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// `graph::scope`: one graph that all ranks execute together.

#include <cohort/core/asio.hpp>
#include <cohort/graph/dot.hpp>
#include <cohort/graph/error.hpp>
#include <cohort/graph/placement.hpp>
#include <cohort/graph/runtime/await.hpp>
#include <cohort/graph/runtime/open_scope.hpp>
#include <cohort/graph/runtime/recorder.hpp>
#include <cohort/graph/schedule.hpp>
#include <cohort/graph/task.hpp>
#include <cohort/graph/task_context.hpp>

#include <chrono>
#include <cstdint>
#include <exception>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace cohort::graph {

/// An execution of one graph by all ranks (docs/design/graph.md). `graph::tasks::run` opens one and
/// closes it; `fork` makes another object of the same for a second coroutine. What a coroutine
/// spawns and awaits is that of its object.
///
/// A *window* is the part between two fences: names are unique in one, and no task or value
/// outlives it. *Threads*: that of the loop.
///
/// What is seldom called is a template, so that its body is compiled only where it is called.
class scope {
 public:
  scope(runtime::open_scope& of, machine::producer who, bool ends) noexcept
      : scope_(&of), opening_(of.opening()), who_(who), ends_(ends) {}
  scope(scope&& other) noexcept
      : scope_(other.scope_),
        opening_(other.opening_),
        who_(other.who_),
        ends_(std::exchange(other.ends_, false)) {}
  scope& operator=(scope&&) = delete;
  ~scope() { end(); }

  [[nodiscard]] int rank() const noexcept { return scope_->rank(); }
  [[nodiscard]] int size() const noexcept { return scope_->ranks(); }

  /// The tasks of the function F under a name. The same name, function and placement on all ranks
  /// that name one; who names it otherwise is told by the report of the window (graph K3).
  template <auto F>
  [[nodiscard]] auto tasks(std::string_view name, const placement& where = {}) const {
    return family<typename runtime::function<F>::result, F>(*scope_, who_, name, where);
  }
  /// Sources only: their values are put.
  template <class T>
  [[nodiscard]] auto tasks(std::string_view name, const placement& where = {}) const {
    return family<T>(*scope_, who_, name, where);
  }

  /// Ends the window when all that any rank has spawned in it is done. Collective.
  /// *Completion*: `void(std::exception_ptr, graph::report)`. *Throws* graph::error: cancelled, or
  /// closed where others close. *Cancellation* cancels the scope.
  template <completion_token_for<void(std::exception_ptr, graph::report)> Token = default_token>
  auto fence(Token&& token = Token()) const {
    return end_window(machine::window_end::fence, token);
  }
  /// The same, and all tasks of this window run once more in the next one, with the same
  /// definitions; only sources are put anew (graph O4).
  template <completion_token_for<void(std::exception_ptr, graph::report)> Token = default_token>
  auto again(Token&& token = Token()) const {
    return end_window(machine::window_end::again, token);
  }

  /// Ends everything in this scope on all ranks (graph C1, C2): tasks that run get their
  /// cancellation, awaits end with errc::cancelled and this cause. The first cause stays.
  void cancel(std::string_view why = "cancelled by the program") {
    failure cause;
    cause.code = errc::cancelled;
    cause.rank = rank();
    cause.text = std::string(why);
    if (is_open()) scope_->cancel(std::move(cause));
  }
  void cancel(const std::exception_ptr& why) {
    if (is_open()) scope_->cancel(runtime::failure_of(why, errc::cancelled, rank()));
  }
  [[nodiscard]] bool cancelled() const noexcept { return scope_->is_cancelled(); }

  /// What waits on this rank, asked of the homes of all that it waits for (graph Q1): state of each
  /// task, who has spawned it, what it waits for in turn. Homes that do not answer within this time
  /// are listed as silent. It decides nothing, and nothing waits for it.
  template <class Any = void>
  [[nodiscard]] asio::awaitable<stall_report> report(std::chrono::nanoseconds within) const {
    return runtime::ask_within(scope_, opening_, within);
  }

  /// Writes the graph that has been executed as text for Graphviz, on rank 0. Call it on all ranks,
  /// after a fence: it gathers what each has recorded until now (scope_options::record). The title
  /// is the name of the scope unless another is given.
  /// *Throws* error with the system's code, where the file cannot be written; with
  /// errc::invalid_argument where nothing is recorded.
  template <class Any = void>
  [[nodiscard]] asio::awaitable<void> write_dot(std::string path) const {
    return draw(this, std::move(path), dot_options());
  }
  /// The options are an object with a name, since g++ 12 spoils what is written in braces within a
  /// `co_await`.
  template <class Any = void>
  [[nodiscard]] asio::awaitable<void> write_dot(std::string path, const dot_options& with) const {
    return draw(this, std::move(path), with);
  }
  /// Writes what this rank has run until now, and when, into its file of the timeline
  /// (docs/timeline.md): "path.json" becomes "path.1.json" on rank 1. *Throws* as write_dot.
  template <class Any = void>
  void write_schedule(const std::string& path) const {
    const runtime::recorder& own = recorded();
    const auto failed =
        graph::write_schedule(path, own.tasks(), {size(), own.scope(), own.began()});
    if (failed) throw cohort::error(failed, "graph: write_schedule: " + path);
  }

  /// Another producer of this rank: the window ends when it has come to its end, too, or is
  /// destroyed. The scope closes when all of them have gone.
  [[nodiscard]] scope fork() {
    if (!is_open()) throw cohort::error(errc::closed, "graph: the scope has ended");
    return scope(*scope_, scope_->fork(), true);
  }
  /// Of a fork: it spawns and awaits nothing any more. So does its destructor.
  void end() {
    if (std::exchange(ends_, false) && is_open()) scope_->end(who_);
  }

 private:
  [[nodiscard]] bool is_open() const noexcept {
    return opening_ != 0 && scope_->opening() == opening_;
  }
  [[nodiscard]] runtime::recorder& recorded() const {
    runtime::recorder* const one = is_open() ? scope_->recording() : nullptr;
    if (one != nullptr) return *one;
    throw cohort::error(errc::invalid_argument,
                        "graph: this scope records nothing: see scope_options::record");
  }
  // Each rank is the home of its recording, which rank 0 awaits.
  template <class Scope>
  static asio::awaitable<void> draw(const Scope* of, std::string path, dot_options with) {
    runtime::recorder& own = of->recorded();
    if (with.title.empty()) with.title = own.scope();
    const int picture = own.next_picture();
    const auto each =
        of->template tasks<recording>("cohort::recording", block_cyclic(of->size(), 1));
    {
      const runtime::recorder::pause pause(own);
      each(of->rank(), picture).put(own.tasks());
    }
    if (of->rank() != 0) co_return;
    std::vector<recording> all;
    for (int rank = 0; rank < of->size(); ++rank) {
      recording one = co_await each(rank, picture).get();
      all.push_back(std::move(one));
    }
    const std::error_code failed = graph::write_dot(path, all, with);
    if (failed) throw cohort::error(failed, "graph: write_dot: " + path);
  }
  template <class Token>
  auto end_window(machine::window_end how, Token& token) const {
    return runtime::initiate(scope_, runtime::window_body{who_, how, opening_}, token);
  }

  runtime::open_scope* scope_;
  std::uint64_t opening_;
  machine::producer who_;
  bool ends_;
};

/// What a task spawns is nobody's to await: see task_context.
template <auto F>
auto task_context::tasks(std::string_view name, const placement& where) const {
  return family<typename runtime::function<F>::result, F>(scope_, runtime::no_producer, name,
                                                          where);
}
template <class T>
auto task_context::tasks(std::string_view name, const placement& where) const {
  return family<T>(scope_, runtime::no_producer, name, where);
}

}  // namespace cohort::graph
