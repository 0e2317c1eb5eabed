// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// What look tasks wait for on devices.

#include <cohort/nccl/native.hpp>

#if COHORT_HAS_NCCL

#include <cohort/device/event.hpp>
#include <cohort/device/stream.hpp>
#include <cohort/progress/look_task.hpp>

#include <coroutine>
#include <functional>
#include <system_error>
#include <utility>

namespace cohort::nccl {

class issue_source;

/// Awaited by a look task: a condition, asked for at each look with the lock of the source held.
/// What is `bounded` by itself is seen through also when the engine ends; otherwise that throws
/// operation_aborted.
class look_condition final : public progress::operation {
 public:
  look_condition(issue_source& source, std::function<bool()> condition, bool is_bounded = false)
      : operation(&run), holds(std::move(condition)), bounded(is_bounded), source_(source) {}
  look_condition(const look_condition&) = delete;

  bool await_ready() const noexcept { return false; }
  template <class Promise>
  void await_suspend(std::coroutine_handle<Promise> whose) {
    waits_ = whose;
    outermost_ = whose.promise().chain->outermost;
    begin();
  }
  void await_resume() const {
    if (error) throw std::system_error(error);
  }

  // For the source.
  const std::function<bool()> holds;
  const bool bounded;
  std::error_code error;
  void go_on() { deliver(); }

 private:
  void begin();
  static void run(progress::operation* base, action what) {
    auto* const self = static_cast<look_condition*>(base);  // part of a frame
    if (what == action::destroy) return self->outermost_.destroy();
    self->waits_.resume();
  }
  issue_source& source_;
  std::coroutine_handle<> waits_;
  std::coroutine_handle<> outermost_;
};

namespace detail {

/// Begins the work at the next look, for who holds the lock of the source.
template <class T>
progress::look_task<T> at_next_look(issue_source& source, progress::look_task<T> work) {
  look_condition look(
      source, [] { return true; }, true);
  co_await look;
  co_return co_await work;
}

/// Calls it inside the next look, where handlers are no longer run too.
inline progress::look_task<> call_at_look(issue_source& source, std::function<void()> what) {
  look_condition look(
      source, [] { return true; }, true);
  co_await look;
  what();
}

/// What the stream has queued so far is over. Throws if the device has failed.
inline progress::look_task<> reached(issue_source& source, device::stream on) {
  const device::event mark = on.record();
  cudaError_t code = cudaErrorNotReady;
  look_condition over(
      source,
      [&] {
        code = mark.query();
        return code != cudaErrorNotReady;
      },
      true);
  co_await over;
  device::check(code, "cudaEventQuery", on.device());
}

}  // namespace detail

}  // namespace cohort::nccl

#endif
