// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What one rank knows of one step: its table, and what it has to do with each other rank.

#include <cohort/rendezvous/node/record.hpp>
#include <cohort/rendezvous/table.hpp>
#include <cohort/rendezvous/vocabulary.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <system_error>
#include <unordered_map>
#include <utility>
#include <vector>

namespace cohort::meeting {

/// What a credit counts for a value besides its bytes.
inline constexpr std::uint64_t overhead_of_value = 64;

/// Maps with few entries that come and go with every message.
template <class Key, class Value>
using short_map =
    std::map<Key, Value, std::less<Key>, progress::pool_allocator<std::pair<const Key, Value>>>;
template <class Key, class Value>
using pooled_map = std::unordered_map<Key, Value, std::hash<Key>, std::equal_to<Key>,
                                      progress::pool_allocator<std::pair<const Key, Value>>>;

/// Numbers as intervals: one entry for numbers that came in order, whatever their count.
template <class Number>
class interval_set {
 public:
  [[nodiscard]] bool contains(Number number) const noexcept {
    auto after = last_by_first_.upper_bound(number);
    return after != last_by_first_.begin() && std::prev(after)->second >= number;
  }

  /// False if it was there.
  bool insert(Number number) {
    if (!last_by_first_.empty()) {  // the next number is the usual case
      Number& last = std::prev(last_by_first_.end())->second;
      if (number > last && number - 1 == last) {
        last = number;
        return true;
      }
    }
    auto after = last_by_first_.upper_bound(number);
    const bool has_before = after != last_by_first_.begin();
    const auto before = has_before ? std::prev(after) : after;
    if (has_before && before->second >= number) return false;
    const bool joins_before = has_before && before->second + 1 == number;
    const bool joins_after = after != last_by_first_.end() && number + 1 == after->first;
    if (joins_before) {
      before->second = joins_after ? after->second : number;
      if (joins_after) last_by_first_.erase(after);
    } else if (joins_after) {
      const Number last = after->second;
      last_by_first_.emplace_hint(last_by_first_.erase(after), number, last);
    } else {
      last_by_first_.emplace_hint(after, number, number);
    }
    return true;
  }

  /// How many intervals: what the set costs.
  [[nodiscard]] std::size_t intervals() const noexcept { return last_by_first_.size(); }

 private:
  std::map<Number, Number> last_by_first_;
};

/// One step on one rank.
struct step_state : std::enable_shared_from_this<step_state> {
  explicit step_state(step_id number, bool single_use) : id(number), local(single_use) {}

  /// A value that this rank has sent and that waits to be asked for.
  struct held {
    std::uint64_t number;
    packet_ptr value;
  };
  /// A request that came before its value.
  struct parked {
    int peer;
    std::uint64_t id;
    std::uint64_t number;
  };
  /// What this rank and another one have sent each other in the step, in numbers of values.
  struct traffic {
    std::uint64_t sent = 0;      // values, to there
    std::uint64_t received = 0;  // of these
    std::uint64_t watched = 0;   // of these, as it has been told
    std::uint64_t taken = 0;     // values from there that count as received here
    std::uint64_t expected = 0;  // from there, as this rank has been told: it waits for them
    bool over = false;           // it takes no more
    bool drops = false;          // and will not ask
  };
  /// The values of one key between this rank and another one.
  struct channel {
    step_state* step = nullptr;
    const stored_key* key = nullptr;
    traffic* other = nullptr;
    std::uint64_t next = 0;  // number of the value sent, or delivered, next
  };
  struct outgoing : channel {
    std::deque<held, progress::pool_allocator<held>> values;
    std::vector<parked> requests;
  };
  enum class slot_kind : std::uint8_t { requested, withdrawing, coming, here, offered, refused };
  struct slot {
    slot_kind kind = slot_kind::requested;
    std::uint64_t id = 0;
    packet_ptr value;
    std::uint64_t type = 0;  // offered
    std::uint64_t size = 0;
    bool dead = false;
    std::exception_ptr why;  // refused
  };
  struct incoming : channel {
    std::uint64_t needed_until = 0;  // receives wait for the numbers from `next` to here
    short_map<std::uint64_t, slot> slots;
  };

  template <class Channel>
  Channel& channel_of(channel_map<Channel>& map, const hashed_key& key, int other) {
    const auto at = find_or_make(map, key);
    Channel& one = at->second;
    if (one.step == nullptr) {
      one.step = this;
      one.key = &at->first;
      one.other = &traffic_with[other];
    }
    return one;
  }
  outgoing& channel_to(const rendezvous_key& key) {
    return channel_of(out, {key, key_hash()(key)}, key.destination);
  }
  incoming& channel_from(const hashed_key& key) { return channel_of(in, key, key.key.source); }

  const step_id id;
  table local;  ///< of keys whose destination is this rank
  std::atomic<int> leases{0};
  std::atomic<std::int64_t> last_use{0};

  // For the node.
  channel_map<outgoing> out;
  channel_map<incoming> in;
  short_map<int, traffic> traffic_with;
  std::uint64_t unreceived = 0;  // values sent to other ranks that take some
  receiver_list drains;
  std::atomic<bool> drain_waits{false};  ///< who empties the local table looks whether that was it
  bool ended = false;
  reason refusal = reason::aborted;  // for who asks later
  std::string category;
  std::int64_t code = 0;
  std::string text;
  std::vector<std::pair<owned_key, packet_ptr>> deferred;
};

/// Large bytes between two ranks, to be moved by who drives the node.
struct transfer {
  int peer;
  int tag;
  bool incoming;
  std::byte* into;
  const std::byte* from;
  std::uint64_t size;
  std::uint64_t id;  ///< of the request, for `transferred`
};

/// Whether an error only follows from another one: the first that does not is the step's.
[[nodiscard]] inline bool is_derived(const std::exception_ptr& why) noexcept {
  try {
    std::rethrow_exception(why);
  } catch (const std::system_error& problem) {
    const std::error_code code = problem.code();
    return code == errc::closed || code == errc::aborted || code == errc::step_cleaned ||
           code == errc::peer_lost || code == errc::engine_stopped ||
           code == std::errc::operation_canceled;
  } catch (...) {
    return false;
  }
}

}  // namespace cohort::meeting
