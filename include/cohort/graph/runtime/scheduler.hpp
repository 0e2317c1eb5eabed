// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// Which ready task of this rank runs when, and where.

#include <cohort/core/asio.hpp>
#include <cohort/core/function_table.hpp>
#include <cohort/graph/error.hpp>
#include <cohort/graph/runtime/observed_run.hpp>
#include <cohort/graph/runtime/open_scope.hpp>
#include <cohort/graph/runtime/scope_on_node.hpp>
#include <cohort/progress/engine.hpp>
#include <cohort/progress/operation.hpp>

#include <asio/thread_pool.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace cohort::graph::runtime {

/// Tasks run in slices of some microseconds, between which the engine looks and the loop has its
/// turn. Coroutines begin in a slice, and go on as their awaits do. With threads, functions run
/// there, and their inputs are looked up and their values counted here.
/// While these have enough to do, coroutines and other tasks that do not run there still begin.
///
/// *Order.* That of machine::ready_queue. Other ranks get the first value of a slice at once, and
/// the others at its end. A task that is longer than a slice is alone in it.
template <class Any>
class scheduler {
 public:
  using clock = std::chrono::steady_clock;
  using scope = scope_on_node<Any>;

  scheduler(progress::engine& engine, int threads) : engine_(engine), threads_(threads) {
    if (threads > 0) pool_ = std::make_unique<asio::thread_pool>(static_cast<std::size_t>(threads));
  }

  /// Runs ready tasks of these scopes for about as long as a slice. Whether there are more. A task
  /// that ends after this calls `wake`.
  template <class Owner>
  bool run_slice(const std::vector<scope*>& scopes, Owner& owner) {
    std::size_t before_clock = 1;  // short tasks may be followed by long ones
    const clock::time_point until = clock::now() + slice;
    for (;;) {
      bool more = false;
      for (std::size_t i = 0; i < scopes.size(); ++i) {
        const std::size_t at = (first_ + i) % scopes.size();
        const std::size_t count = run(*scopes[at], before_clock, owner);
        if (count != before_clock || !scopes[at]->has_ready()) continue;
        more = true;
        if (i + 1 == scopes.size() || clock::now() < until) continue;
        first_ = at + 1;  // the others come first in the next one
        return true;
      }
      if (!more) return false;
      if (clock::now() >= until) return true;
      before_clock = std::min(before_clock * 2, most_before_clock);
    }
  }
  /// Waits for the threads. Tasks that have not begun there do not.
  void stop() {
    if (!pool_) return;
    pool_->stop();
    pool_->join();
    pool_.reset();
  }

 private:
  static constexpr auto slice = std::chrono::microseconds(8);
  static constexpr std::size_t most_before_clock = 16;
  class task_on_thread;

  template <class Owner>
  std::size_t run(scope& one, std::size_t most, Owner& owner) {
    std::size_t count = 0;
    while (count < most && one.is_open()) {
      if (is_full()) return count + run_on_loop(one, most - count, owner);
      auto next = one.node()->start_next();
      if (!next) break;
      ++count;
      run(one, *next, owner);
    }
    return count;
  }
  /// While the threads have enough to do.
  template <class Owner>
  std::size_t run_on_loop(scope& one, std::size_t most, Owner& owner) {
    std::size_t count = 0;
    for (; count < most && one.is_open(); ++count) {
      auto next = one.node()->start_next_if(
          [this](std::size_t function) { return !is_for_threads(function); });
      if (!next) break;
      run(one, *next, owner);
    }
    return count;
  }
  /// More than that wait for a thread, or for nothing, so that a cancellation ends them.
  [[nodiscard]] bool is_full() const noexcept {
    return pool_ != nullptr && on_threads_ >= 2 * static_cast<std::size_t>(threads_);
  }
  /// False also where there is no such function, which is told when the task runs.
  [[nodiscard]] bool is_for_threads(std::size_t function) noexcept try {
    return code_of_number(function).prepare != nullptr;
  } catch (const std::exception&) {
    return false;
  }
  template <class Owner>
  void run(scope& one, machine::running_task& task, Owner& owner) {
    call what{one, task};
    machine::content_ptr value;
    try {
      const task_code& code = code_of_number(task.function);
      if (one.is_observed()) [[unlikely]]
        return run_observed(what, code, owner);
      if (pool_ && code.prepare != nullptr) return run_on_thread(what, code, owner);
      if (code.start != nullptr) return run_coroutine(one, task, code, owner);
      value = code.run(what);
    } catch (...) {
      value = failed(one, task.index, std::current_exception());
    }
    one.node()->ended(task.index, std::move(value));
    owner.task_ended();
  }
  [[nodiscard]] static machine::content_ptr failed(scope& one, machine::task_index task,
                                                   const std::exception_ptr& thrown) {
    failure what = failure_of(thrown, errc::task_failed, one.rank());
    failure why = one.node()->failure_of(task, what.text, std::move(what.exception));
    return machine::content_ptr(new machine::failed_content(std::move(why)));
  }
  [[nodiscard]] const task_code& code_of_number(std::size_t number) {
    if (number < codes_.size() && codes_[number] != nullptr) [[likely]]
      return *codes_[number];
    const function_table& all = function_table::instance();
    const task_code& code = all.at<code_function>(number)();
    if (codes_.size() < all.size()) codes_.resize(all.size());
    codes_[number] = &code;
    return code;
  }

  using watch = std::shared_ptr<observed_run<Any>>;

  template <class Owner>
  void run_observed(call& what, const task_code& code, Owner& owner) {
    auto& one = static_cast<scope&>(what.scope);
    auto seen = std::make_shared<observed_run<Any>>(one, what.task, code);
    if (pool_ && code.prepare != nullptr) return run_on_thread(what, code, owner, std::move(seen));
    machine::content_ptr value;
    if (code.start != nullptr) {
      value = seen->find();
      if (!value) return run_coroutine(one, what.task, code, owner, std::move(seen));
    }
    try {
      if (!value) value = seen->run([&] { return code.run(what); });
    } catch (...) {
      value = failed(one, what.task.index, std::current_exception());
    }
    seen->ended(*value);
    one.node()->ended(what.task.index, std::move(value));
    owner.task_ended();
  }

  template <class Owner>
  void run_coroutine(scope& one, machine::running_task& task, const task_code& code, Owner& owner,
                     watch seen = nullptr) {
    call what{one, task};
    auto running = std::make_shared<running_coroutine>();
    running->index = task.index;
    one.began(running);
    const auto opening = one.opening();
    asio::co_spawn(
        engine_.get_executor(), code.start(what),
        asio::bind_cancellation_slot(
            running->signal.slot(),
            [self = owner.shared_from_this(), running, &one, opening, seen = std::move(seen)](
                std::exception_ptr thrown, machine::content_ptr value) {
              if (one.opening() != opening) return;
              one.ended(*running);
              if (thrown) value = failed(one, running->index, thrown);
              if (seen && !thrown) seen->keep(*value);
              if (seen) seen->ended(*value);
              one.node()->ended(running->index, std::move(value));
              self->wake();
            }));
  }
  template <class Owner>
  void run_on_thread(call& what, const task_code& code, Owner& owner, watch seen = nullptr) {
    auto& one = static_cast<scope&>(what.scope);
    auto op = std::make_unique<task_on_thread>(*this, one, what.task.index, code.prepare(what),
                                               std::move(seen), owner);
    ++on_threads_;
    asio::post(*pool_, [op = std::move(op)]() mutable { op.release()->run_body(); });
  }

  progress::engine& engine_;
  const int threads_;
  std::unique_ptr<asio::thread_pool> pool_;
  std::size_t on_threads_ = 0;
  std::size_t first_ = 0;                // of the scopes, in the next slice
  std::vector<const task_code*> codes_;  // by number in the function table
};

/// A function on its way to a thread, and its value on the way back.
template <class Any>
class scheduler<Any>::task_on_thread final : public progress::operation {
 public:
  template <class Owner>
  task_on_thread(scheduler& by, scope& of, machine::task_index index,
                 std::unique_ptr<prepared_call> what, watch seen, Owner& owner)
      : operation(&run),
        by_(by),
        scope_(of),
        opening_(of.opening()),
        index_(index),
        what_(std::move(what)),
        seen_(std::move(seen)),
        keep_(owner.shared_from_this()),
        owner_(owner) {}

  /// On the thread.
  void run_body() {
    try {
      value_ = seen_ ? seen_->run_on_thread([&] { return what_->run(); }) : what_->run();
    } catch (...) {
      thrown_ = std::current_exception();
    }
    by_.engine_.complete(this);
  }

 private:
  static void run(operation* base, action what) {
    const std::unique_ptr<task_on_thread> self(static_cast<task_on_thread*>(base));
    --self->by_.on_threads_;
    if (what == action::destroy || self->scope_.opening() != self->opening_) return;
    self->what_ = nullptr;
    if (self->thrown_) self->value_ = failed(self->scope_, self->index_, self->thrown_);
    if (self->seen_) self->seen_->ended(*self->value_);
    self->scope_.node()->ended(self->index_, std::move(self->value_));
    self->owner_.wake();
  }

  scheduler& by_;
  scope& scope_;
  std::uint64_t opening_;
  machine::task_index index_;
  std::unique_ptr<prepared_call> what_;
  watch seen_;
  machine::content_ptr value_;
  std::exception_ptr thrown_;
  std::shared_ptr<void> keep_;
  scope_owner& owner_;
};

}  // namespace cohort::graph::runtime
