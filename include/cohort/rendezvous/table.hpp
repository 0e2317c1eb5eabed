// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Who waits for a value, and the table of one step on one rank, where values wait for
/// receives and receives for values.

#include <cohort/core/short_lock.hpp>
#include <cohort/progress/polled_source.hpp>
#include <cohort/rendezvous/key.hpp>
#include <cohort/rendezvous/value.hpp>
#include <cohort/rendezvous/vocabulary.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <limits>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace cohort::meeting {

/// How a receiver has ended.
struct arrival {
  packet_ptr value;          ///< what it got, or
  std::exception_ptr error;  ///< why it got nothing
  bool direct = false;       ///< the value was written to where `prepare` said
  bool dead = false;         ///< with `direct`
};

/// Somebody who waits for a value. Ends exactly once, by `end`, which must not call back.
class receiver : public arrival {
 public:
  using end_function = void (*)(receiver&);
  using prepare_function = std::byte* (*)(receiver&, std::size_t);

  receiver(const receiver&) = delete;
  receiver& operator=(const receiver&) = delete;

  std::uint64_t type = 0;                                      ///< that it asks for; 0: any
  std::uint64_t incarnation = 0;                               ///< of the source, in its key
  std::size_t room = std::numeric_limits<std::size_t>::max();  ///< bytes that it can take
  progress::pending_age age;                                   ///< for reports

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
  /// Ends all, in order; with this error, if there is one.
  void end_all(const std::exception_ptr& why = nullptr) {
    while (!empty()) {
      receiver& one = pop();
      if (why) one.fail(why);
      one.end_(one);
    }
  }

 private:
  receiver* first_ = nullptr;
  receiver* last_ = nullptr;
  std::size_t size_ = 0;
};

/// A key that a map keeps, or looks for, with its hash.
struct hashed_key {
  rendezvous_key key;
  std::size_t hash;
};
class stored_key {
 public:
  explicit stored_key(const hashed_key& from) : key_(from.key), hash_(from.hash) {}
  [[nodiscard]] hashed_key view() const noexcept { return {key_.view(), hash_}; }

 private:
  owned_key key_;
  std::size_t hash_;
};
struct stored_hash {
  using is_transparent = void;
  std::size_t operator()(const stored_key& key) const noexcept { return key.view().hash; }
  std::size_t operator()(const hashed_key& key) const noexcept { return key.hash; }
};
struct stored_equal {
  using is_transparent = void;
  static hashed_key of(const stored_key& key) noexcept { return key.view(); }
  static const hashed_key& of(const hashed_key& key) noexcept { return key; }
  template <class A, class B>
  bool operator()(const A& a, const B& b) const noexcept {
    return of(a).hash == of(b).hash && of(a).key.finds_same(of(b).key);
  }
};
/// Channels by key: looked up by the whole of it, the hash only finds the place.
template <class Channel>
using channel_map =
    std::unordered_map<stored_key, Channel, stored_hash, stored_equal,
                       progress::pool_allocator<std::pair<const stored_key, Channel>>>;

template <class Map>
[[nodiscard]] auto find_or_make(Map& map, const hashed_key& key) {
  const auto found = map.find(key);
  if (found != map.end()) return found;
  return map.try_emplace(stored_key(key)).first;
}

/// What was handed to a receiver by a call, if it had come from another rank: that rank is told.
struct receipt {
  int origin = -1;
  std::uint64_t credit = 0;
  std::size_t waits = 0;  ///< receives that still wait for the key
};

/// Matches sends and receives of one step, first in, first out for each key.
///
/// It knows neither MPI nor Asio and may be used alone; every function may be called from any
/// thread. A send or a receive costs one lookup, whatever waits. Receivers end after the lock is
/// given back, on the thread that brings their value.
template <class Hash = key_hash>
class basic_table {
 public:
  explicit basic_table(bool single_use = false, Hash hash = Hash())
      : hash_(std::move(hash)), single_use_(single_use) {}
  basic_table(const basic_table&) = delete;
  basic_table& operator=(const basic_table&) = delete;
  /// Nobody may wait any more.
  ~basic_table() = default;

  /// Gives the value to the receive that has waited longest, or keeps it. Throws the step's error,
  /// or errc::duplicate_key under single use.
  receipt send(const rendezvous_key& key, packet_ptr&& value) {
    return send(hashed(key), std::move(value));
  }

  /// Takes the oldest value, or waits. Always ends through the receiver, at once or later. `waits`:
  /// how many receives wait for the key then, 0 if this one does not.
  struct started {
    receipt got;
    std::size_t waits = 0;
  };
  started receive(const rendezvous_key& key, receiver& one) { return receive(hashed(key), one); }

  /// Ends a receive that waits with `why`; false, and nothing, if it waits no more. The key, if it
  /// is asked for, is copied to `of`.
  bool cancel(receiver& one, const std::exception_ptr& why, owned_key* of = nullptr);

  /// Takes out the first receiver that waits for the key and can take such a value; those before
  /// it that cannot, end. Null if there is none.
  [[nodiscard]] receiver* claim(const rendezvous_key& key, std::uint64_t type, std::size_t bytes) {
    return claim(hashed(key), type, bytes);
  }
  [[nodiscard]] std::size_t waiting(const rendezvous_key& key) const {
    return waiting(hashed(key));
  }

  // The same for who has the hash.
  receipt send(const hashed_key& key, packet_ptr&& value);
  started receive(const hashed_key& key, receiver& one);
  [[nodiscard]] receiver* claim(const hashed_key& key, std::uint64_t type, std::size_t bytes);
  [[nodiscard]] std::size_t waiting(const hashed_key& key) const;

  /// Ends all that wait with `why`, and all that comes later. Values are dropped unless
  /// `keep_values`. The first error stays, but a derived one gives way to one that is not. The
  /// receipts are of values that came from other ranks. Dropped values go to `dropped`, if that is
  /// given; else they are destroyed here, outside the lock.
  std::vector<receipt> end(const std::exception_ptr& why, bool derived, bool keep_values = false,
                           packet_list* dropped = nullptr);
  /// Ends those for which `which(key, receiver)` is true.
  template <class Predicate>
  void fail_waiting(Predicate which, const std::exception_ptr& why);
  /// Calls `visit(key, receiver)` for each that waits, with the lock held: it must not call back.
  template <class Visit>
  void for_each_waiting(Visit visit) const;
  /// Why it has ended; null until then.
  [[nodiscard]] std::exception_ptr ended() const;
  /// Whether it has. One load.
  [[nodiscard]] bool has_ended() const noexcept {
    return has_ended_.load(std::memory_order_acquire);
  }

  /// Values that this process has sent and that wait here.
  [[nodiscard]] std::size_t own_values() const;

  /// All keys with something that waits.
  [[nodiscard]] std::vector<waiting_key> list() const;

 private:
  struct channel {
    channel() noexcept {}
    channel(const channel&) = delete;
    packet_list values;  // or
    receiver_list receivers;
    bool sent = false;  // single use
    bool received = false;
  };
  using map = channel_map<channel>;
  using iterator = typename map::iterator;
  using lock = std::unique_lock<short_lock>;

  [[nodiscard]] hashed_key hashed(const rendezvous_key& key) const { return {key, hash_(key)}; }
  void drop_if_idle(iterator at) {
    if (!single_use_ && at->second.values.empty() && at->second.receivers.empty())
      channels_.erase(at);
  }
  [[nodiscard]] static std::exception_ptr why_not(const rendezvous_key& key, const receiver& one,
                                                  std::uint64_t type, std::size_t bytes);

  mutable short_lock mutex_;
  map channels_;
  Hash hash_;
  bool single_use_;
  bool derived_ = false;
  std::exception_ptr error_;
  std::atomic<bool> has_ended_{false};
  std::size_t own_values_ = 0;
};

using table = basic_table<>;

}  // namespace cohort::meeting

#include <cohort/rendezvous/detail/table.hpp>
