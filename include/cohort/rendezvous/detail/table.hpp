// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Bodies of rendezvous/table.hpp.

#include <cohort/rendezvous/table.hpp>

namespace cohort::meeting {

template <class Hash>
std::exception_ptr basic_table<Hash>::why_not(const rendezvous_key& key, const receiver& one,
                                              std::uint64_t type, std::size_t bytes) {
  if (type == 0) return nullptr;  // only "dead"
  if (one.type != 0 && one.type != type) {
    return std::make_exception_ptr(
        cohort::error(errc::type_mismatch, "'" + to_string(key) + "' holds " + type_name(type) +
                                               ", asked for was " + type_name(one.type)));
  }
  if (bytes > one.room) {
    return std::make_exception_ptr(cohort::error(
        errc::message_too_long, "'" + to_string(key) + "' holds " + std::to_string(bytes) +
                                    " bytes, there is room for " + std::to_string(one.room)));
  }
  return nullptr;
}

template <class Hash>
receipt basic_table<Hash>::send(const hashed_key& key, packet_ptr&& value) {
  receiver_list ended;
  receipt got;
  {
    const lock hold(mutex_);
    if (error_) std::rethrow_exception(error_);
    const iterator at = find_or_make(channels_, key);
    channel& to = at->second;
    if (single_use_ && std::exchange(to.sent, true)) {
      throw cohort::error(errc::duplicate_key, "'" + to_string(key.key) + "' has been sent before");
    }
    while (!to.receivers.empty() && value) {
      receiver& one = to.receivers.pop();
      one.channel_ = nullptr;
      ended.push(one);
      one.error = why_not(key.key, one, value->type, value->bytes().size());
      if (one.error) continue;
      got.origin = value->origin;
      got.credit = value->credit;
      one.value = std::move(value);
    }
    got.waits = to.receivers.size();
    if (value) {
      if (value->origin < 0) ++own_values_;
      to.values.push(std::move(value));
    } else {
      drop_if_idle(at);
    }
  }
  ended.end_all();
  return got;
}

template <class Hash>
typename basic_table<Hash>::started basic_table<Hash>::receive(const hashed_key& key,
                                                               receiver& one) {
  started result;
  {
    const lock hold(mutex_);
    if (error_) {
      one.error = error_;
    } else {
      const iterator at = find_or_make(channels_, key);
      channel& from = at->second;
      if (single_use_ && from.received) {
        one.error = std::make_exception_ptr(cohort::error(
            errc::duplicate_key, "'" + to_string(key.key) + "' has been received before"));
      } else if (from.values.empty()) {
        from.received = true;
        one.channel_ = &*at;
        from.receivers.push(one);
        result.waits = from.receivers.size();
        return result;
      } else {
        const packet& first = from.values.front();
        one.error = why_not(key.key, one, first.type, first.bytes().size());
        if (!one.error) {
          from.received = true;
          one.value = from.values.pop();
          result.got.origin = one.value->origin;
          result.got.credit = one.value->credit;
          if (one.value->origin < 0) --own_values_;
          drop_if_idle(at);
        }
      }
    }
  }
  one.end();
  return result;
}

template <class Hash>
bool basic_table<Hash>::cancel(receiver& one, const std::exception_ptr& why, owned_key* of) {
  {
    const lock hold(mutex_);
    if (one.channel_ == nullptr) return false;
    auto& entry = *static_cast<typename map::value_type*>(std::exchange(one.channel_, nullptr));
    if (of != nullptr) *of = owned_key(entry.first.view().key);
    entry.second.receivers.remove(one);
    entry.second.received = false;
    const iterator at = channels_.find(entry.first.view());
    drop_if_idle(at);
  }
  one.fail(why);
  one.end();
  return true;
}

template <class Hash>
receiver* basic_table<Hash>::claim(const hashed_key& key, std::uint64_t type, std::size_t bytes) {
  receiver_list ended;
  receiver* found = nullptr;
  {
    const lock hold(mutex_);
    const iterator at = channels_.find(key);
    if (at == channels_.end()) return nullptr;
    while (!at->second.receivers.empty() && found == nullptr) {
      receiver& one = at->second.receivers.pop();
      one.channel_ = nullptr;
      one.error = why_not(key.key, one, type, bytes);
      if (one.error) {
        ended.push(one);
      } else {
        found = &one;
      }
    }
    drop_if_idle(at);
  }
  ended.end_all();
  return found;
}

template <class Hash>
std::size_t basic_table<Hash>::waiting(const hashed_key& key) const {
  const lock hold(mutex_);
  const auto at = channels_.find(key);
  return at == channels_.end() ? 0 : at->second.receivers.size();
}

template <class Hash>
std::vector<receipt> basic_table<Hash>::end(const std::exception_ptr& why, bool derived,
                                            bool keep_values, packet_list* dropped) {
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
        waits.channel_ = nullptr;
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

template <class Hash>
template <class Predicate>
void basic_table<Hash>::fail_waiting(Predicate which, const std::exception_ptr& why) {
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
        waits.channel_ = nullptr;
        waits.fail(why);
        ended.push(waits);
      }
      one->second.receivers = stay;
      drop_if_idle(one);
    }
  }
  ended.end_all();
}

template <class Hash>
template <class Visit>
void basic_table<Hash>::for_each_waiting(Visit visit) const {
  const lock hold(mutex_);
  for (const auto& [key, one] : channels_) {
    one.receivers.for_each([&, of = &key](receiver& each) { visit(of->view().key, each); });
  }
}

template <class Hash>
std::exception_ptr basic_table<Hash>::ended() const {
  const lock hold(mutex_);
  return error_;
}

template <class Hash>
std::size_t basic_table<Hash>::own_values() const {
  const lock hold(mutex_);
  return own_values_;
}

template <class Hash>
std::vector<waiting_key> basic_table<Hash>::list() const {
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

}  // namespace cohort::meeting
