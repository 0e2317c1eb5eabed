// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// A task of a scope that does more than run its tasks, from its start to its end.

#include <cohort/core/time.hpp>
#include <cohort/graph/machine/action.hpp>
#include <cohort/graph/machine/content.hpp>
#include <cohort/graph/result_store.hpp>
#include <cohort/graph/runtime/argument_bytes.hpp>
#include <cohort/graph/runtime/open_scope.hpp>
#include <cohort/graph/runtime/recorder.hpp>
#include <cohort/graph/runtime/scope_on_node.hpp>
#include <cohort/graph/runtime/task_hashes.hpp>
#include <cohort/graph/task_hash.hpp>

#include <cstddef>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <thread>

namespace cohort::graph::runtime {

/// Made on the loop when the task starts, and told there when it ends, before the machine is.
template <class Any>
class observed_run {
 public:
  observed_run(scope_on_node<Any>& of, const machine::running_task& task, const task_code& code)
      : scope_(of), index_(task.index) {
    if (task_hashes<Any>* const hashes = of.hashes()) {
      hash_ = hashes->of_ready(*of.node(), index_);
      if (hash_) of.node()->note_hash(index_, hash_->bytes());
    }
    if (hash_ && of.results() && argument_bytes(task.arguments).is_cached) {
      results_ = of.results();
      decode_ = code.decode;
    }
    when_.begin = steady_clock::now();
  }

  /// The result that is kept; else that of the body, which is kept then.
  template <class Body>
  [[nodiscard]] machine::content_ptr run(Body&& body) {
    machine::content_ptr value = find();
    if (value) return value;
    value = body();
    keep(*value);
    return value;
  }
  /// The same on another thread than that of the loop.
  template <class Body>
  [[nodiscard]] machine::content_ptr run_on_thread(Body&& body) {
    when_.thread = std::this_thread::get_id();
    when_.begin = steady_clock::now();
    const stop_watch until_the_end(when_);
    return run(body);
  }
  /// Null if none is kept.
  [[nodiscard]] machine::content_ptr find() {
    if (!results_) return nullptr;
    const auto bytes = results_->find(*hash_);
    if (!bytes) return nullptr;
    try {
      return decode_(*bytes);
    } catch (const std::exception& why) {
      results_->discard(*hash_, why.what());
    } catch (...) {
      results_->discard(*hash_, "it does not decode");
    }
    return nullptr;
  }
  void keep(machine::content& value) noexcept try {
    if (results_) results_->keep(*hash_, value.bytes());
  } catch (...) {  // no memory for its bytes, or its fields throw: it will run again
  }

  void ended(const machine::content& value) {
    if (when_.thread == std::thread::id()) when_.end = steady_clock::now();
    if (recorder* const to = scope_.recording()) {
      to->add(*scope_.node(), index_,
              value.failed() != nullptr ? recorded_kind::failed : recorded_kind::task, when_);
    }
  }

 private:
  struct stop_watch {
    explicit stop_watch(run_time& of) noexcept : when(of) {}
    ~stop_watch() { when.end = steady_clock::now(); }
    run_time& when;
  };

  scope_on_node<Any>& scope_;
  machine::task_index index_;
  std::optional<task_hash> hash_;
  std::shared_ptr<result_store> results_;  // null if this one is not cached
  machine::content_ptr (*decode_)(std::span<const std::byte>) = nullptr;
  run_time when_;
};

}  // namespace cohort::graph::runtime
