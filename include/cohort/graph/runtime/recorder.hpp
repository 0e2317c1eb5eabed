// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// How a scope on this rank fills its recording.

#include <cohort/core/time.hpp>
#include <cohort/core/trace_file.hpp>
#include <cohort/graph/machine/action.hpp>
#include <cohort/graph/recording.hpp>

#include <cstdint>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

namespace cohort::graph::machine {
template <class Any>
class basic_node;  // machine/node.hpp
}  // namespace cohort::graph::machine

namespace cohort::graph::runtime {

/// When the body of a task has run, and where: no thread is that of the loop.
struct run_time {
  steady_clock::time_point begin;
  steady_clock::time_point end;
  std::thread::id thread;
};

/// *Threads*: that of the loop.
class recorder {
 public:
  recorder(int rank, std::string scope, const recording_options& options)
      : scope_(std::move(scope)), began_(trace::origin::now()), tasks_(rank, options) {}

  /// A task that is about to end, or a source that was put.
  template <class Any>
  void add(const machine::basic_node<Any>& node, machine::task_index which, recorded_kind kind,
           const run_time& when) {
    if (paused_) return;
    uses_.clear();
    if (const auto* const what = node.definition_of(which)) {
      for (const auto& each : what->edges()) {
        uses_.push_back({node.key_of(each.value), each.use});
      }
    }
    const std::string name = node.text_of(which);
    tasks_.add({.name = name,
                .key = node.key_of(which),
                .kind = kind,
                .window = node.window(),
                .thread = number_of(when.thread),
                .begin = when.begin,
                .end = when.end,
                .uses = uses_});
  }

  [[nodiscard]] const recording& tasks() const noexcept { return tasks_; }
  [[nodiscard]] const trace::origin& began() const noexcept { return began_; }
  [[nodiscard]] const std::string& scope() const noexcept { return scope_; }
  [[nodiscard]] int next_picture() noexcept { return ++pictures_; }

  /// As long as it lives nothing is recorded.
  class pause {
   public:
    explicit pause(recorder& of) noexcept : of_(of) { of_.paused_ = true; }
    pause(const pause&) = delete;
    pause& operator=(const pause&) = delete;
    ~pause() { of_.paused_ = false; }

   private:
    recorder& of_;
  };

 private:
  /// Threads are numbered as they come.
  [[nodiscard]] std::uint32_t number_of(std::thread::id thread) {
    if (thread == std::thread::id()) return 0;
    return threads_.try_emplace(thread, static_cast<std::uint32_t>(threads_.size() + 1))
        .first->second;
  }

  std::string scope_;
  trace::origin began_;
  recording tasks_;
  std::vector<recorded_use> uses_;  // of one task
  std::unordered_map<std::thread::id, std::uint32_t> threads_;
  int pictures_ = 0;
  bool paused_ = false;
};

}  // namespace cohort::graph::runtime
