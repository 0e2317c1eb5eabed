// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Who waits for a value, for the end of a step or for the close of all.

#include <cohort/progress/polled_source.hpp>
#include <cohort/rendezvous/value.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <utility>

namespace cohort::meeting {

/// What a receiver has when it has ended.
struct arrival {
  packet_ptr value;          ///< what it got, or
  std::exception_ptr error;  ///< why it got nothing
  bool direct = false;       ///< the value was written to where `prepare` said
  bool dead = false;         ///< with `direct`

  void fail(std::exception_ptr why) noexcept {
    value.reset();
    error = std::move(why);
  }
};

/// Somebody who waits for a value.
class receiver : public arrival {
 public:
  receiver() noexcept {}
  receiver(const receiver&) = delete;
  receiver& operator=(const receiver&) = delete;

  /// Called once, when it has what it will get. It must not call back.
  virtual void end() = 0;
  /// Memory for so many bytes, which MPI then writes to; may throw. Null: it takes packets only.
  [[nodiscard]] virtual std::byte* prepare(std::size_t bytes) = 0;

  std::uint64_t type = 0;                                      ///< that it asks for; 0: any
  std::uint64_t incarnation = 0;                               ///< of the source, in its key
  std::size_t room = std::numeric_limits<std::size_t>::max();  ///< bytes that it can take
  progress::pending_age age;                                   ///< for reports

  // Of the list, and of the table, in which it waits.
  receiver* before = nullptr;
  receiver* after = nullptr;
  void* channel = nullptr;

 protected:
  ~receiver() = default;
};

/// Receivers in order. Not synchronised.
class receiver_list {
 public:
  [[nodiscard]] bool empty() const noexcept { return first_ == nullptr; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  void push(receiver& one) noexcept {
    one.before = last_;
    one.after = nullptr;
    (last_ == nullptr ? first_ : last_->after) = &one;
    last_ = &one;
    ++size_;
  }
  void remove(receiver& one) noexcept {
    (one.before == nullptr ? first_ : one.before->after) = one.after;
    (one.after == nullptr ? last_ : one.after->before) = one.before;
    one.before = one.after = nullptr;
    --size_;
  }
  receiver& pop() noexcept {
    receiver& one = *first_;
    remove(one);
    return one;
  }
  template <class Visit>
  void for_each(Visit visit) const {
    for (receiver* each = first_; each != nullptr; each = each->after) visit(*each);
  }
  /// Ends this one with `why`; false, and nothing, if it is not there.
  bool end(receiver& one, const std::exception_ptr& why) {
    const receiver* at = first_;
    while (at != nullptr && at != &one) at = at->after;
    if (at == nullptr) return false;
    remove(one);
    one.fail(why);
    one.end();
    return true;
  }
  /// Ends all, in order; with this error, if there is one.
  void end_all(const std::exception_ptr& why = nullptr) {
    while (!empty()) {
      receiver& one = pop();
      if (why) one.fail(why);
      one.end();
    }
  }

 private:
  receiver* first_ = nullptr;
  receiver* last_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace cohort::meeting
