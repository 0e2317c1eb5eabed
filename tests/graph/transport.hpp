// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The network between fake ranks: packets of a pair arrive in order, large values when they
/// like. What a rank has sent before it dies may arrive or not; the beginning of each channel does.

#include "graph/job.hpp"
#include "graph/values.hpp"

#include <cohort/graph/machine/node.hpp>

#include <algorithm>
#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

namespace graph_test {

using packet = std::vector<std::byte>;

class transport {
 public:
  /// A receive or a send of a large value. A send holds no reference to it: until it is complete,
  /// that is for the endpoint to do.
  struct transfer {
    int scope = 0;
    int from = 0;
    int to = 0;
    int tag = 0;
    std::size_t bytes = 0;
    packet copy = {};                         // of a send
    std::shared_ptr<value_state> state = {};  // of a send
    bool delivered = false;                   // of a send: its bytes have been received
    bool complete = false;                    // of a send: nobody reads the value any more
  };

  explicit transport(int ranks) : ranks_(ranks), channels_(size(ranks) * size(ranks)) {}

  // ---- packets ---------------------------------------------------------------------------------
  void send(int from, int to, packet bytes) {
    if (!dead(to)) channel(from, to).push_back(std::move(bytes));
  }
  [[nodiscard]] const std::deque<packet>& in_flight(int from, int to) const {
    return channels_[size(from) * size(ranks_) + size(to)];
  }
  std::optional<packet> take(int from, int to) {
    std::deque<packet>& queue = channel(from, to);
    if (queue.empty()) return std::nullopt;
    packet result = std::move(queue.front());
    queue.pop_front();
    return result;
  }

  // ---- large values ----------------------------------------------------------------------------
  void post_receive(const transfer& what) {
    for (const transfer& one : receives_) {
      check(one.from != what.from || one.to != what.to || one.tag != what.tag,
            "L2 two receives with tag ", what.tag, " from rank ", what.from);
    }
    receives_.push_back(what);
  }
  void start_send(transfer what, test_value& value) {
    if (dead(what.to)) return;
    const auto posted = receive_of(what);
    check(posted != receives_.end(), "P5 rank ", what.from, " sends with tag ", what.tag,
          " to rank ", what.to, ", which has posted no receive");
    for (const transfer& one : sends_) {
      check(one.delivered || one.from != what.from || one.to != what.to || one.tag != what.tag,
            "L2 two transfers with tag ", what.tag, " from rank ", what.from, " to rank ", what.to);
    }
    const std::span<const std::byte> bytes = value.bytes();
    check(posted->bytes == bytes.size() && what.bytes == bytes.size(), "L1 a receive of ",
          posted->bytes, " bytes for a value of ", bytes.size());
    what.copy.assign(bytes.begin(), bytes.end());
    what.state = value.state();
    sends_.push_back(std::move(what));
  }
  [[nodiscard]] const std::vector<transfer>& sends() const { return sends_; }
  [[nodiscard]] const std::vector<transfer>& receives() const { return receives_; }
  /// The bytes of a send arrive. Their receive is over.
  transfer deliver(std::size_t which) {
    transfer& one = sends_[which];
    check_readable(one);
    one.delivered = true;
    receives_.erase(receive_of(one));
    transfer result = one;
    if (one.complete) sends_.erase(sends_.begin() + static_cast<std::ptrdiff_t>(which));
    return result;
  }
  /// A send is complete, before or after its bytes have arrived. Of two with one tag the older one.
  transfer complete(std::size_t which) {
    const transfer chosen = sends_[which];
    const auto oldest = std::find_if(sends_.begin(), sends_.end(), [&](const transfer& one) {
      return one.from == chosen.from && one.to == chosen.to && one.tag == chosen.tag &&
             !one.complete;
    });
    check_readable(*oldest);
    oldest->complete = true;
    transfer result = *oldest;
    if (oldest->delivered) sends_.erase(oldest);
    return result;
  }

  // ---- loss ------------------------------------------------------------------------------------
  void die(int rank, rng& random) {
    dead_.push_back(rank);
    for (int other = 0; other < ranks_; ++other) {
      std::deque<packet>& sent = channel(rank, other);
      sent.resize(sent.size() - random.below(sent.size() + 1));
      channel(other, rank).clear();
    }
    std::erase_if(sends_, [&](const transfer& one) {
      const bool lost = one.from == rank && (one.delivered || random.happens(.5));
      return lost || (one.to == rank && one.complete);
    });
    for (transfer& one : sends_) {  // MPI ends those that are under way to it
      one.delivered = one.delivered || one.to == rank;
    }
    for (std::size_t i = 0; i < sends_.size(); ++i) {
      if (sends_[i].from == rank) sends_[i].complete = true;
    }
    std::erase_if(receives_, [&](const transfer& one) { return one.to == rank; });
  }
  /// MPI tells `rank` that the other is dead, and ends its receives.
  void end_receives(int rank, int lost) {
    std::erase_if(receives_,
                  [&](const transfer& one) { return one.to == rank && one.from == lost; });
    std::erase_if(sends_, [&](const transfer& one) { return one.from == lost && one.to == rank; });
  }
  [[nodiscard]] bool dead(int rank) const {
    return std::find(dead_.begin(), dead_.end(), rank) != dead_.end();
  }
  [[nodiscard]] const std::vector<int>& dead() const { return dead_; }

 private:
  static void check_readable(const transfer& one) {
    if (one.complete) return;
    check(!one.state->gone, "M3 a value is forgotten while it is sent");
    check(!one.state->moved, "M3 a value is moved while it is sent");
  }
  static std::size_t size(int number) { return static_cast<std::size_t>(number); }
  std::deque<packet>& channel(int from, int to) {
    return channels_[size(from) * size(ranks_) + size(to)];
  }
  std::vector<transfer>::iterator receive_of(const transfer& what) {
    return std::find_if(receives_.begin(), receives_.end(), [&](const transfer& one) {
      return one.from == what.from && one.to == what.to && one.tag == what.tag;
    });
  }

  int ranks_;
  std::vector<std::deque<packet>> channels_;
  std::vector<transfer> receives_;
  std::vector<transfer> sends_;
  std::vector<int> dead_;
};

}  // namespace graph_test
