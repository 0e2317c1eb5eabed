// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// Coroutines that go on inside the looks of an engine.
///
/// What several ranks do together in several stages, such as making communicators and comparing
/// options over them, cannot depend on handlers: these are no longer run when a context ends, but
/// the engine still looks then, for a bounded time, and the other ranks wait meanwhile. So a look
/// task is resumed by the look that finds what it waits for, with the locks of that source held.
///
///     progress::look_task<std::vector<int>> ask_all(communicator over, int mine) {
///       std::vector<int> all(over.size());
///       auto asking = comm::joint::all_gather(over, mine, all);
///       co_await asking;
///       co_return all;
///     }
///     progress::begin_look_task(ask_all(world, 3), {.verb = "ask"},
///                               [](std::exception_ptr why, std::vector<int> all) { ... });
///
/// Nothing in it may block, but for what a communicator is made with. What it can await: another
/// look task, what is in `comm/joint.hpp`, a \ref look_notice, and what other sources offer.

#include <cohort/core/log.hpp>
#include <cohort/progress/operation.hpp>

#include <coroutine>
#include <cstddef>
#include <exception>
#include <new>
#include <optional>
#include <type_traits>
#include <utility>

namespace cohort::progress {

/// What look tasks that await one another have in common.
struct look_chain {
  const char* verb = "";                ///< what they are for, in reports and errors
  const void* owner = nullptr;          ///< what they wait for can be left to MPI by naming it
  bool stalls = true;                   ///< false: whoever awaits their end is named elsewhere
  std::coroutine_handle<> outermost{};  ///< to destroy where none of them will be resumed
};

/// In the promises of all of them.
struct look_promise {
  const look_chain* chain = nullptr;

  static void* operator new(std::size_t bytes) { return pool::allocate(bytes); }
  static void operator delete(void* block, std::size_t bytes) noexcept {
    pool::deallocate(block, bytes);
  }
};

namespace detail {

template <class T>
struct look_result : look_promise {
  std::optional<T> value;
  template <class From>
  void return_value(From&& from) {
    value.emplace(std::forward<From>(from));
  }
  T take() { return std::move(*value); }
};
template <>
struct look_result<void> : look_promise {
  void return_void() const noexcept {}
  void take() const noexcept {}
};

}  // namespace detail

/// Begins when it is awaited, and gives what it returns or throws.
template <class T = void>
class [[nodiscard]] look_task {
 public:
  struct promise_type : detail::look_result<T> {
    std::exception_ptr failed;
    std::coroutine_handle<> caller;

    struct to_caller {
      bool await_ready() const noexcept { return false; }
      std::coroutine_handle<> await_suspend(
          std::coroutine_handle<promise_type> ended) const noexcept {
        return ended.promise().caller;
      }
      void await_resume() const noexcept {}
    };
    look_task get_return_object() {
      return look_task(std::coroutine_handle<promise_type>::from_promise(*this));
    }
    std::suspend_always initial_suspend() const noexcept { return {}; }
    to_caller final_suspend() const noexcept { return {}; }
    void unhandled_exception() noexcept { failed = std::current_exception(); }
  };

  look_task(look_task&& other) noexcept : frame_(std::exchange(other.frame_, {})) {}
  look_task& operator=(look_task&&) = delete;
  ~look_task() {
    if (frame_) frame_.destroy();
  }

  bool await_ready() const noexcept { return false; }
  template <class Promise>
  std::coroutine_handle<> await_suspend(std::coroutine_handle<Promise> whose) const noexcept {
    frame_.promise().caller = whose;
    frame_.promise().chain = whose.promise().chain;
    return frame_;
  }
  T await_resume() const {
    if (frame_.promise().failed) std::rethrow_exception(frame_.promise().failed);
    return frame_.promise().take();
  }

 private:
  explicit look_task(std::coroutine_handle<promise_type> frame) noexcept : frame_(frame) {}
  std::coroutine_handle<promise_type> frame_;
};

namespace detail {

/// The outermost coroutine, which nobody awaits.
struct look_root {
  struct promise_type : look_promise {
    template <class Task, class Done>
    promise_type(const Task&, const look_chain& given, Done&) noexcept : own(given) {
      own.outermost = std::coroutine_handle<promise_type>::from_promise(*this);
      chain = &own;
    }
    look_root get_return_object() const noexcept { return {}; }
    std::suspend_never initial_suspend() const noexcept { return {}; }
    std::suspend_never final_suspend() const noexcept { return {}; }
    void return_void() const noexcept {}
    void unhandled_exception() const noexcept { std::terminate(); }
    look_chain own;
  };
};

template <class T, class Done>
look_root run_look_task(look_task<T> work, look_chain, Done& given) {
  Done done = std::move(given);  // not before this frame is there
  std::exception_ptr why;
  std::conditional_t<std::is_void_v<T>, std::optional<bool>, std::optional<T>> result;
  try {
    if constexpr (std::is_void_v<T>) {
      co_await work;
    } else {
      result.emplace(co_await work);
    }
  } catch (...) {
    why = std::current_exception();
  }
  try {
    if constexpr (std::is_void_v<T>) {
      done(std::move(why));
    } else {
      done(std::move(why), result ? std::move(*result) : T());
    }
  } catch (const std::exception& failed) {
    log::write(log::level::error, failed.what());
  }
}

}  // namespace detail

/// Runs the task up to the first thing that it waits for. At its end, in a look or in place, calls
/// `done(exception_ptr, T)`, or `done(exception_ptr)` if it returns nothing, also where there is no
/// memory to begin it; never, if the context goes away while MPI has something of it.
template <class T, class Done>
void begin_look_task(look_task<T> work, const look_chain& what, Done done) {
  try {
    detail::run_look_task(std::move(work), what, done);
  } catch (const std::bad_alloc&) {
    if constexpr (std::is_void_v<T>) {
      done(std::current_exception());
    } else {
      done(std::current_exception(), T());
    }
  }
}

/// A look task that awaits it goes on when something may have changed, and sees for itself what
/// has. One task awaits it at a time. A notice that nobody awaits is lost.
///
///     while (!queue.empty()) co_await changed;  // the task
///     changed.notify();                         // in a look, with the same locks held
class look_notice {
 public:
  look_notice() noexcept {}
  look_notice(const look_notice&) = delete;
  look_notice& operator=(const look_notice&) = delete;
  ~look_notice() { drop(); }

  bool await_ready() const noexcept { return false; }
  template <class Promise>
  void await_suspend(std::coroutine_handle<Promise> whose) noexcept {
    waits_ = whose;
    outermost_ = whose.promise().chain->outermost;
  }
  void await_resume() const noexcept {}

  /// After this the task may have ended, and this be gone.
  void notify() {
    if (waits_) std::exchange(waits_, {}).resume();
  }
  /// The task that waits goes away.
  void drop() noexcept {
    if (std::exchange(waits_, {})) outermost_.destroy();
  }

 private:
  std::coroutine_handle<> waits_;
  std::coroutine_handle<> outermost_;
};

}  // namespace cohort::progress
