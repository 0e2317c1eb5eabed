// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// An in-process network for state machines that send messages and know nothing of MPI.

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace cohort::testing {

/// How a \ref network behaves. The defaults are what MPI promises: nothing is lost, and messages
/// from one rank to another arrive in the order in which they were sent.
struct network_options {
  std::uint64_t seed = 1;       ///< of all choices: the same seed, the same run
  bool overtaking = false;      ///< also messages of one pair of ranks arrive in any order
  double drop = 0;              ///< probability that a message is lost
  double duplicate = 0;         ///< probability that it arrives twice
  std::uint64_t max_delay = 0;  ///< each message waits for 0 to so many deliveries of others
};

/// Messages between ranks of one process, delivered one at a time in a random order that a seed
/// repeats.
///
/// A test gives what its state machines send to `send`, and what `deliver` returns to the state
/// machine of rank `to`, until `deliver` returns nothing. A thousand seeds run in milliseconds, so
/// an order that breaks a protocol is found and can be run again. Not synchronised.
template <class Message>
class network {
 public:
  /// A message on its way.
  struct envelope {
    int from;
    int to;
    std::uint64_t number;  ///< of the message, in order of sending
    Message message;
  };

  explicit network(int ranks, const network_options& options = {})
      : ranks_(ranks), options_(options), random_(options.seed) {}

  [[nodiscard]] int ranks() const noexcept { return ranks_; }

  /// Takes a message. It is lost if the link is cut, or by the options' probability.
  void send(int from, int to, Message message);

  /// The next message to arrive, or nothing if none is on its way.
  [[nodiscard]] std::optional<envelope> deliver();
  /// The next message from one rank to the other, for a test that chooses the order itself; delays
  /// do not matter then. Nothing if none is on its way or the link is held.
  [[nodiscard]] std::optional<envelope> deliver(int from, int to);

  /// Delivers to `receive(envelope)`, which may send, until nothing is on its way or `most` have
  /// been delivered. Returns how many were: `most` means that it did not come to an end.
  template <class Receive>
  std::size_t run(Receive receive, std::size_t most = 1'000'000);

  /// Loses what is sent from now on from one rank to the other; with `also_on_its_way` also what is
  /// on its way. `heal` ends it.
  void cut(int from, int to, bool also_on_its_way = false);
  void heal(int from, int to) { cut_.erase({from, to}); }
  /// Cuts all links of a rank, as if it had died.
  void isolate(int rank, bool also_on_its_way = true);

  /// Holds messages from one rank to the other back until `release`.
  void hold(int from, int to) { held_.insert({from, to}); }
  void release(int from, int to) { held_.erase({from, to}); }

  /// Lets the next message from one rank to the other be lost, or arrive twice.
  void drop_next(int from, int to) { drop_next_.insert({from, to}); }
  void duplicate_next(int from, int to) { duplicate_next_.insert({from, to}); }

  /// Messages on their way, held ones included; all, or from one rank to another.
  [[nodiscard]] std::size_t in_flight() const noexcept { return in_flight_; }
  [[nodiscard]] std::size_t in_flight(int from, int to) const {
    const auto found = links_.find({from, to});
    return found == links_.end() ? 0 : found->second.size();
  }
  /// Calls `visit(from, to, message)` for each of them, link by link, in order of sending.
  template <class Visit>
  void for_each(Visit visit) const;
  [[nodiscard]] std::uint64_t sent() const noexcept { return sent_; }
  [[nodiscard]] std::uint64_t delivered() const noexcept { return delivered_; }
  [[nodiscard]] std::uint64_t dropped() const noexcept { return dropped_; }

 private:
  using link = std::pair<int, int>;

  /// SplitMix64: the same numbers with every standard library.
  class random_numbers {
   public:
    explicit random_numbers(std::uint64_t seed) noexcept : state_(seed) {}
    [[nodiscard]] std::uint64_t next() noexcept;
    [[nodiscard]] std::uint64_t below(std::uint64_t bound) noexcept { return next() % bound; }
    [[nodiscard]] bool happens(double probability) noexcept {
      return static_cast<double>(next() >> 11U) * 0x1.0p-53 < probability;
    }

   private:
    std::uint64_t state_;
  };

  struct waiting {
    envelope what;
    std::uint64_t not_before;  // number of deliveries
  };

  void enqueue(envelope what);
  [[nodiscard]] envelope take(std::deque<waiting>& queue, std::size_t index);

  int ranks_;
  network_options options_;
  random_numbers random_;
  std::map<link, std::deque<waiting>> links_;  // each in order of sending
  std::size_t in_flight_ = 0;
  std::set<link> cut_, held_, drop_next_, duplicate_next_;
  std::uint64_t sent_ = 0;
  std::uint64_t delivered_ = 0;
  std::uint64_t dropped_ = 0;
};

// ---- implementation --------------------------------------------------------------------------

template <class Message>
std::uint64_t network<Message>::random_numbers::next() noexcept {
  std::uint64_t z = (state_ += 0x9e3779b97f4a7c15U);
  z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
  return z ^ (z >> 31U);
}

template <class Message>
void network<Message>::send(int from, int to, Message message) {
  const link way{from, to};
  envelope what{from, to, sent_++, std::move(message)};
  const bool lost = random_.happens(options_.drop);
  const bool twice = random_.happens(options_.duplicate);
  if (cut_.contains(way) || drop_next_.erase(way) != 0 || lost) {
    ++dropped_;
    return;
  }
  if constexpr (std::copy_constructible<Message>) {
    if (duplicate_next_.erase(way) != 0 || twice) enqueue(what);
  }
  enqueue(std::move(what));
}

template <class Message>
void network<Message>::enqueue(envelope what) {
  const std::uint64_t delay = random_.below(options_.max_delay + 1);
  links_[{what.from, what.to}].push_back({std::move(what), delivered_ + delay});
  ++in_flight_;
}

template <class Message>
typename network<Message>::envelope network<Message>::take(std::deque<waiting>& queue,
                                                           std::size_t index) {
  envelope result = std::move(queue[index].what);
  queue.erase(queue.begin() + static_cast<std::ptrdiff_t>(index));
  --in_flight_;
  ++delivered_;
  return result;
}

// Only the first message of a link can be next, unless messages overtake each other. Delays count
// deliveries, so where all messages are delayed the least delayed one comes.
template <class Message>
std::optional<typename network<Message>::envelope> network<Message>::deliver() {
  std::vector<std::pair<std::deque<waiting>*, std::size_t>> candidates;
  std::uint64_t earliest = UINT64_MAX;
  for (auto& [way, queue] : links_) {
    if (held_.contains(way)) continue;
    const std::size_t reach =
        options_.overtaking ? queue.size() : std::min<std::size_t>(queue.size(), 1);
    for (std::size_t i = 0; i < reach; ++i) {
      const std::uint64_t when = std::max(queue[i].not_before, delivered_);
      if (when < earliest) {
        earliest = when;
        candidates.clear();
      }
      if (when == earliest) candidates.emplace_back(&queue, i);
    }
  }
  if (candidates.empty()) return std::nullopt;
  const auto [queue, index] = candidates[random_.below(candidates.size())];
  return take(*queue, index);
}

template <class Message>
std::optional<typename network<Message>::envelope> network<Message>::deliver(int from, int to) {
  const auto found = links_.find({from, to});
  if (found == links_.end() || found->second.empty() || held_.contains({from, to})) {
    return std::nullopt;
  }
  return take(found->second, options_.overtaking ? random_.below(found->second.size()) : 0);
}

template <class Message>
template <class Visit>
void network<Message>::for_each(Visit visit) const {
  for (const auto& [way, queue] : links_) {
    for (const waiting& entry : queue) visit(way.first, way.second, entry.what.message);
  }
}

template <class Message>
template <class Receive>
std::size_t network<Message>::run(Receive receive, std::size_t most) {
  std::size_t count = 0;
  while (count < most) {
    auto next = deliver();
    if (!next) break;
    receive(std::move(*next));
    ++count;
  }
  return count;
}

template <class Message>
void network<Message>::cut(int from, int to, bool also_on_its_way) {
  cut_.insert({from, to});
  if (!also_on_its_way) return;
  std::deque<waiting>& queue = links_[{from, to}];
  dropped_ += queue.size();
  in_flight_ -= queue.size();
  queue.clear();
}

template <class Message>
void network<Message>::isolate(int rank, bool also_on_its_way) {
  for (int other = 0; other < ranks_; ++other) {
    cut(rank, other, also_on_its_way);
    cut(other, rank, also_on_its_way);
  }
}

}  // namespace cohort::testing
