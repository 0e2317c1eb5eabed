// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Who waits for a value of a rendezvous.

#include <cohort/progress/stall_watch.hpp>
#include <cohort/rendezvous/value.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <utility>

namespace cohort::meeting {

/// Somebody who waits for a value. Ends exactly once, by `end`, which must not call back.
class receiver {
 public:
  using end_function = void (*)(receiver&);
  using prepare_function = std::byte* (*)(receiver&, std::size_t);

  receiver(const receiver&) = delete;
  receiver& operator=(const receiver&) = delete;

  std::uint64_t type = 0;                                      ///< that it asks for; 0: any
  std::uint64_t incarnation = 0;                               ///< of the source, in its key
  std::size_t room = std::numeric_limits<std::size_t>::max();  ///< bytes that it can take

  packet_ptr value;          ///< what it got, or
  std::exception_ptr error;  ///< why it got nothing
  bool direct = false;       ///< the value was written to where `prepare` said
  bool dead = false;         ///< with `direct`

  progress::pending_age age;  ///< for reports

  /// Memory for so many bytes, which MPI then writes to; may throw. Null: it takes packets only.
  [[nodiscard]] std::byte* prepare(std::size_t bytes) { return prepare_(*this, bytes); }
  void end() { end_(*this); }
  void fail(std::exception_ptr why) noexcept {
    value.reset();
    error = std::move(why);
  }

 protected:
  receiver(end_function ends, prepare_function places) noexcept : end_(ends), prepare_(places) {}
  ~receiver() = default;

 private:
  template <class>
  friend class basic_table;
  friend class receiver_list;
  end_function end_;
  prepare_function prepare_;
  receiver* before_ = nullptr;
  receiver* after_ = nullptr;
  void* channel_ = nullptr;  // where it waits
};

/// Receivers in order. Not synchronised.
class receiver_list {
 public:
  [[nodiscard]] bool empty() const noexcept { return first_ == nullptr; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] receiver& front() const noexcept { return *first_; }
  void push(receiver& one) noexcept {
    one.before_ = last_;
    one.after_ = nullptr;
    (last_ == nullptr ? first_ : last_->after_) = &one;
    last_ = &one;
    ++size_;
  }
  [[nodiscard]] bool contains(const receiver& one) const noexcept {
    const receiver* at = first_;
    while (at != nullptr && at != &one) at = at->after_;
    return at != nullptr;
  }
  void remove(receiver& one) noexcept {
    (one.before_ == nullptr ? first_ : one.before_->after_) = one.after_;
    (one.after_ == nullptr ? last_ : one.after_->before_) = one.before_;
    one.before_ = one.after_ = nullptr;
    --size_;
  }
  receiver& pop() noexcept {
    receiver& one = *first_;
    remove(one);
    return one;
  }
  template <class Visit>
  void for_each(Visit visit) const {
    for (receiver* each = first_; each != nullptr; each = each->after_) visit(*each);
  }
  /// Ends all, in order.
  void end_all() {
    while (!empty()) pop().end();
  }
  void end_all(const std::exception_ptr& why) {
    while (!empty()) {
      receiver& one = pop();
      one.fail(why);
      one.end();
    }
  }

 private:
  receiver* first_ = nullptr;
  receiver* last_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace cohort::meeting
