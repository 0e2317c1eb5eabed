// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// An in-process network for state machines that send messages and know nothing of MPI.

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
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

  /// Messages on their way, held ones included.
  [[nodiscard]] std::size_t in_flight() const noexcept { return waiting_.size(); }
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
  /// Whether an earlier message of the same link must come first.
  [[nodiscard]] bool is_behind(std::size_t index) const;

  int ranks_;
  network_options options_;
  random_numbers random_;
  std::vector<waiting> waiting_;  // in order of sending
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
  waiting_.push_back({std::move(what), delivered_ + delay});
}

template <class Message>
bool network<Message>::is_behind(std::size_t index) const {
  const envelope& what = waiting_[index].what;
  for (std::size_t i = 0; i < index; ++i) {
    if (waiting_[i].what.from == what.from && waiting_[i].what.to == what.to) return true;
  }
  return false;
}

// Delays count deliveries, so where all messages are delayed the least delayed one comes.
template <class Message>
std::optional<typename network<Message>::envelope> network<Message>::deliver() {
  std::vector<std::size_t> candidates;
  std::uint64_t earliest = UINT64_MAX;
  for (std::size_t i = 0; i < waiting_.size(); ++i) {
    const envelope& what = waiting_[i].what;
    if (held_.contains({what.from, what.to})) continue;
    if (!options_.overtaking && is_behind(i)) continue;
    const std::uint64_t when = std::max(waiting_[i].not_before, delivered_);
    if (when < earliest) {
      earliest = when;
      candidates.clear();
    }
    if (when == earliest) candidates.push_back(i);
  }
  if (candidates.empty()) return std::nullopt;
  const std::size_t chosen = candidates[random_.below(candidates.size())];
  std::optional<envelope> result(std::move(waiting_[chosen].what));
  waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(chosen));
  ++delivered_;
  return result;
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
  dropped_ += std::erase_if(waiting_, [=](const waiting& entry) {
    return entry.what.from == from && entry.what.to == to;
  });
}

template <class Message>
void network<Message>::isolate(int rank, bool also_on_its_way) {
  for (int other = 0; other < ranks_; ++other) {
    cut(rank, other, also_on_its_way);
    cut(other, rank, also_on_its_way);
  }
}

}  // namespace cohort::testing
