// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// Who waits for futures: a coroutine, for several, and a thread that sleeps.

#include <cohort/core/asio.hpp>

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <optional>
#include <utility>

namespace cohort::progress::detail {

using awaitable_handler =
    typename asio::async_result<asio::use_awaitable_t<>, void()>::handler_type;

/// Resumes a coroutine, in whose keeping it is, once several futures are ready; or once one is.
class countdown {
 public:
  /// Lets those futures go that are not ready, and counts for each.
  using release = void (*)(countdown&) noexcept;

  /// What begins it calls told() when it has told all of the futures. With `rest` the coroutine
  /// waits for the first only. Then `rest` is called, once and not before told(), and the coroutine
  /// is resumed when every future has counted or was let go: so none refers to this any more.
  void begin(std::size_t futures, awaitable_handler&& waiting, release rest = nullptr) {
    rest_ = rest;
    left_.store(futures + (rest == nullptr ? 1 : 2), std::memory_order_relaxed);
    waiting_.emplace(std::move(waiting));
  }
  void told() {
    if (rest_ != nullptr) reach(all_told);
    count_one();
  }
  /// The last call ends this. If a future was abandoned, the coroutine is destroyed.
  void count() {
    end();
    count_one();
  }
  void count_abandoned() noexcept {
    is_abandoned_.store(true, std::memory_order_relaxed);
    count();  // dispatches nothing
  }
  /// The coroutine waits no longer for the first: it may be resumed in this call.
  void end() {
    if (rest_ != nullptr) reach(over);
  }

 private:
  static constexpr unsigned char all_told = 1;
  static constexpr unsigned char over = 2;

  void reach(unsigned char which) {
    if (reached_.fetch_or(which, std::memory_order_acq_rel) != ((all_told | over) ^ which)) return;
    rest_(*this);
    count_one();
  }
  void count_one() {
    if (left_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    auto waiting = std::move(*waiting_);
    waiting_.reset();
    if (!is_abandoned_.load(std::memory_order_relaxed)) asio::dispatch(std::move(waiting));
  }

  std::atomic<std::size_t> left_{0};
  std::atomic<unsigned char> reached_{0};
  std::atomic<bool> is_abandoned_{false};
  release rest_ = nullptr;
  std::optional<awaitable_handler> waiting_;
};

/// A thread that sleeps until a future is ready, on whose stack it is; once in a while it looks up,
/// which the waiting of an atomic cannot.
class sleeper {
 public:
  void wake() noexcept {
    const std::lock_guard hold(mutex_);
    is_woken_ = true;
    woken_.notify_one();  // with the lock: this goes when the thread has it
  }

 private:
  friend class future_state_base;
  std::mutex mutex_;
  std::condition_variable woken_;
  bool is_woken_ = false;
};

}  // namespace cohort::progress::detail
