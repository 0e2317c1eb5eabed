// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The table of one step on one rank.
///
/// It brings together sends and receives by key, whichever comes first:
///
///     table.receive(key, one);              // nothing is there: `one` waits
///     table.send(key, std::move(value));    // `one` has the value, and one.end() is called
///
/// It knows neither MPI nor Asio and may be used alone.

#include <cohort/core/short_lock.hpp>
#include <cohort/rendezvous/receiver.hpp>
#include <cohort/rendezvous/value.hpp>
#include <cohort/rendezvous/vocabulary.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace cohort::meeting {

/// What a call has handed to a receiver. If it had come from another rank, that rank is told.
struct receipt {
  int origin = -1;  ///< the other rank
  std::uint64_t credit = 0;
  std::size_t waits = 0;  ///< receives that wait for the key then
};

/// Matches sends and receives of one step: for each key, the oldest value goes to the receive that
/// has waited longest.
///
/// Every function may be called from any thread. A send or a receive costs one lookup, whatever
/// waits. Receivers end on the thread that calls, after the lock is given back.
template <class Hash = key_hash>
class basic_table {
 public:
  explicit basic_table(bool single_use = false, Hash hash = Hash())
      : hash_(std::move(hash)), single_use_(single_use) {}
  basic_table(const basic_table&) = delete;
  basic_table& operator=(const basic_table&) = delete;
  /// Nobody may wait any more.
  ~basic_table() = default;

  /// Gives the value to a receive, or keeps it. Throws the step's error, or errc::duplicate_key
  /// under single use.
  receipt send(const rendezvous_key& key, packet_ptr&& value) {
    return send(hashed(key), std::move(value));
  }
  receipt send(const hashed_key& key, packet_ptr&& value) {
    receiver_list unfit;
    receiver* taker = nullptr;
    receipt got;
    {
      const lock hold(mutex_);
      if (error_) std::rethrow_exception(error_);
      const iterator at = find_or_make(channels_, key);
      channel& to = at->second;
      if (single_use_ && std::exchange(to.sent, true)) {
        throw error(errc::duplicate_key, "'" + to_string(key.key) + "' has been sent before");
      }
      taker = first_fit(to, key.key, value->type, value->bytes().size(), unfit);
      got.waits = to.receivers.size();
      if (taker != nullptr) {
        got.origin = value->origin;
        got.credit = value->credit;
        taker->value = std::move(value);
        drop_if_idle(at);
      } else {
        if (value->origin < 0) ++own_values_;
        to.values.push(std::move(value));
      }
    }
    unfit.end_all();
    if (taker != nullptr) taker->end();
    return got;
  }

  /// Takes the oldest value, or waits. Always ends through the receiver, at once or later. Whether
  /// it waits, the receipt's `waits` tells: it is 0 if this one does not.
  receipt receive(const rendezvous_key& key, receiver& one) { return receive(hashed(key), one); }
  receipt receive(const hashed_key& key, receiver& one) {
    receipt got;
    {
      const lock hold(mutex_);
      if (error_) {
        one.error = error_;
      } else {
        const iterator at = find_or_make(channels_, key);
        channel& from = at->second;
        if (single_use_ && from.received) {
          one.error = std::make_exception_ptr(
              error(errc::duplicate_key, "'" + to_string(key.key) + "' has been received before"));
        } else if (from.values.empty()) {
          from.received = true;
          one.channel = &*at;
          from.receivers.push(one);
          got.waits = from.receivers.size();
          return got;
        } else {
          const packet& first = from.values.front();
          one.error = why_not(key.key, one, first.type, first.bytes().size());
          if (!one.error) {
            from.received = true;
            one.value = from.values.pop();
            got.origin = one.value->origin;
            got.credit = one.value->credit;
            if (one.value->origin < 0) --own_values_;
            drop_if_idle(at);
          }
        }
      }
    }
    one.end();
    return got;
  }

  /// Ends a receive that waits with `why`; false, and nothing, if it waits no more. The key, if it
  /// is asked for, is copied to `of`.
  bool cancel(receiver& one, const std::exception_ptr& why, owned_key* of = nullptr) {
    {
      const lock hold(mutex_);
      if (one.channel == nullptr) return false;
      auto& entry = *static_cast<typename map::value_type*>(std::exchange(one.channel, nullptr));
      if (of != nullptr) *of = owned_key(entry.first.view().key);
      entry.second.receivers.remove(one);
      entry.second.received = false;
      drop_if_idle(channels_.find(entry.first.view()));
    }
    one.fail(why);
    one.end();
    return true;
  }

  /// Takes out the first receiver that waits for the key and can take such a value; those before
  /// it that cannot, end. Null if there is none.
  [[nodiscard]] receiver* claim(const hashed_key& key, std::uint64_t type, std::size_t bytes) {
    receiver_list unfit;
    receiver* found = nullptr;
    {
      const lock hold(mutex_);
      const iterator at = channels_.find(key);
      if (at == channels_.end()) return nullptr;
      found = first_fit(at->second, key.key, type, bytes, unfit);
      drop_if_idle(at);
    }
    unfit.end_all();
    return found;
  }
  [[nodiscard]] std::size_t waiting(const hashed_key& key) const {
    const lock hold(mutex_);
    const auto at = channels_.find(key);
    return at == channels_.end() ? 0 : at->second.receivers.size();
  }

  /// Ends all that wait with `why`, and all that comes later. Values are dropped unless
  /// `keep_values`: they go to `dropped`, or are destroyed here if that is null, outside the lock.
  /// The first error stays, but a derived one gives way to one that is not. Returns receipts for
  /// the values that are dropped.
  std::vector<receipt> end(const std::exception_ptr& why, bool derived, bool keep_values = false,
                           packet_list* dropped = nullptr) {
    std::vector<receipt> receipts;
    receiver_list ended;
    packet_list own;
    packet_list& to = dropped == nullptr ? own : *dropped;
    {
      const lock hold(mutex_);
      if (error_ == nullptr || (derived_ && !derived)) {
        error_ = why;
        derived_ = derived;
        has_ended_.store(true, std::memory_order_release);
      }
      for (auto at = channels_.begin(); at != channels_.end();) {
        channel& one = at->second;
        while (!one.receivers.empty()) {
          receiver& waits = one.receivers.pop();
          waits.channel = nullptr;
          waits.fail(error_);
          ended.push(waits);
        }
        if (keep_values && !one.values.empty()) {
          ++at;
          continue;
        }
        while (!one.values.empty()) {
          packet_ptr value = one.values.pop();
          receipts.push_back({value->origin, value->credit, 0});
          to.push(std::move(value));
        }
        at = channels_.erase(at);
      }
      if (!keep_values) own_values_ = 0;
    }
    ended.end_all();
    return receipts;
  }

  /// Ends those for which `which(key, receiver)` is true.
  template <class Predicate>
  void fail_waiting(Predicate which, const std::exception_ptr& why) {
    receiver_list ended;
    {
      const lock hold(mutex_);
      for (auto at = channels_.begin(); at != channels_.end();) {
        const iterator one = at++;
        receiver_list stay;
        while (!one->second.receivers.empty()) {
          receiver& waits = one->second.receivers.pop();
          if (!which(one->first.view().key, std::as_const(waits))) {
            stay.push(waits);
            continue;
          }
          waits.channel = nullptr;
          waits.fail(why);
          ended.push(waits);
        }
        one->second.receivers = stay;
        drop_if_idle(one);
      }
    }
    ended.end_all();
  }

  /// Calls `visit(key, receiver)` for each that waits, with the lock held: it must not call back.
  template <class Visit>
  void for_each_waiting(Visit visit) const {
    const lock hold(mutex_);
    for (const auto& [key, one] : channels_) {
      one.receivers.for_each([&, of = &key](receiver& each) { visit(of->view().key, each); });
    }
  }

  /// Why it has ended; null until then.
  [[nodiscard]] std::exception_ptr ended() const {
    const lock hold(mutex_);
    return error_;
  }
  /// Whether it has. One load.
  [[nodiscard]] bool has_ended() const noexcept {
    return has_ended_.load(std::memory_order_acquire);
  }
  /// Values that this process has sent and that wait here.
  [[nodiscard]] std::size_t own_values() const {
    const lock hold(mutex_);
    return own_values_;
  }
  /// All keys with something that waits.
  [[nodiscard]] std::vector<waiting_key> list() const {
    std::vector<waiting_key> all;
    const lock hold(mutex_);
    for (const auto& [key, one] : channels_) {
      if (one.values.empty() && one.receivers.empty()) continue;
      waiting_key& entry = all.emplace_back();
      entry.key = owned_key(key.view().key);
      entry.receives = one.receivers.size();
      one.values.for_each([&](const packet& each) {
        ++entry.values;
        entry.bytes += each.bytes().size();
      });
    }
    return all;
  }

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
  /// Null if the receiver can take such a value.
  [[nodiscard]] static std::exception_ptr why_not(const rendezvous_key& key, const receiver& one,
                                                  std::uint64_t type, std::size_t bytes) {
    if (type == 0) return nullptr;  // only "dead"
    if (one.type != 0 && one.type != type) {
      return std::make_exception_ptr(
          error(errc::type_mismatch, "'" + to_string(key) + "' holds " + type_name(type) +
                                         ", asked for was " + type_name(one.type)));
    }
    if (bytes > one.room) {
      return std::make_exception_ptr(error(
          errc::message_too_long, "'" + to_string(key) + "' holds " + std::to_string(bytes) +
                                      " bytes, there is room for " + std::to_string(one.room)));
    }
    return nullptr;
  }
  /// Takes out the first receiver that can take such a value; those before it that cannot go to
  /// `unfit`, with their errors.
  [[nodiscard]] static receiver* first_fit(channel& from, const rendezvous_key& key,
                                           std::uint64_t type, std::size_t bytes,
                                           receiver_list& unfit) {
    while (!from.receivers.empty()) {
      receiver& one = from.receivers.pop();
      one.channel = nullptr;
      one.error = why_not(key, one, type, bytes);
      if (!one.error) return &one;
      unfit.push(one);
    }
    return nullptr;
  }

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
