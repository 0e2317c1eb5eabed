// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// An operation the engine can finish, one function pointer and an intrusive link, and the lists of
/// them.

#include <atomic>
#include <cstddef>
#include <mutex>
#include <utility>

namespace cohort::progress {

/// Base of everything that waits in an engine. A source owns it while it is pending; it enters a
/// \ref ready_queue when its outcome is known, and leaves by exactly one of the actions.
class operation {
 public:
  enum class action {
    deliver,       ///< call the handler (on its executor); the operation frees itself before
    deliver_here,  ///< the same on this thread: its executor has brought the operation here
    destroy        ///< free the operation, destroy the handler without calling it
  };
  using function = void (*)(operation*, action);

  operation(const operation&) = delete;
  operation& operator=(const operation&) = delete;

  /// Calls the handler. Whatever it throws passes through; the operation is gone either way.
  void deliver() { run_(this, action::deliver); }
  void deliver_here() { run_(this, action::deliver_here); }
  void destroy() { run_(this, action::destroy); }

  /// Has `flag` set once nothing outside the program (MPI, a device) touches the operation's
  /// buffers any more. `flag` must live as long as the operation.
  void report_settled_to(std::atomic<bool>* flag) noexcept { settled_ = flag; }

  /// Called by the source when that is so, before the operation becomes ready.
  void settle() noexcept {
    if (settled_ != nullptr) settled_->store(true, std::memory_order_release);
  }

 protected:
  explicit operation(function run) noexcept : run_(run) {}
  ~operation() = default;

 private:
  friend class ready_queue;
  function run_;
  operation* next_ = nullptr;
  std::atomic<bool>* settled_ = nullptr;
};

/// First-in first-out list of finished operations. Not synchronised.
class ready_queue {
 public:
  ready_queue() noexcept = default;
  ready_queue(const ready_queue&) = delete;
  ready_queue& operator=(const ready_queue&) = delete;

  [[nodiscard]] bool empty() const noexcept { return head_ == nullptr; }

  void push(operation* op) noexcept {
    op->next_ = nullptr;
    *(head_ == nullptr ? &head_ : &tail_->next_) = op;
    tail_ = op;
  }

  [[nodiscard]] operation* pop() noexcept {
    operation* op = head_;
    head_ = op->next_;
    return op;
  }

  /// Moves everything in `other` to the end of this queue.
  void append(ready_queue& other) noexcept {
    if (other.empty()) return;
    *(head_ == nullptr ? &head_ : &tail_->next_) = other.head_;
    tail_ = other.tail_;
    other.head_ = nullptr;
  }

 private:
  operation* head_ = nullptr;
  operation* tail_ = nullptr;  // meaningful only while head_ is not null
};

/// A list that any thread adds to, and one thread at a time takes from.
class shared_queue {
 public:
  [[nodiscard]] bool has_any() const noexcept { return has_any_.load(std::memory_order_acquire); }
  void push(operation* op) {
    const std::lock_guard hold(mutex_);
    all_.push(op);
    has_any_.store(true, std::memory_order_release);
  }
  void append(ready_queue& others) {
    const std::lock_guard hold(mutex_);
    all_.append(others);
    has_any_.store(true, std::memory_order_release);
  }
  void move_to(ready_queue& end_of) {
    const std::lock_guard hold(mutex_);
    has_any_.store(false, std::memory_order_relaxed);
    end_of.append(all_);
  }

 private:
  std::mutex mutex_;
  ready_queue all_;
  std::atomic<bool> has_any_{false};
};

// ---- deadlines ------------------------------------------------------------------------------

/// Marks, while it lives, cancellations emitted on this thread as those of a deadline that passed.
class deadline_emission {
 public:
  deadline_emission() noexcept { ++depth(); }
  ~deadline_emission() { --depth(); }
  deadline_emission(const deadline_emission&) = delete;
  deadline_emission& operator=(const deadline_emission&) = delete;

 private:
  friend bool emitting_deadline() noexcept;
  static int& depth() noexcept {
    static constinit thread_local int value = 0;
    return value;
  }
};

/// True inside the emission of a deadline's cancellation.
[[nodiscard]] inline bool emitting_deadline() noexcept { return deadline_emission::depth() > 0; }

}  // namespace cohort::progress
