// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Messages to the neighbours in the tree, and what happens when one fails.

#include <cohort/comm/channel.hpp>
#include <cohort/coordinator/instance.hpp>
#include <cohort/coordinator/log/submissions.hpp>
#include <cohort/core/process.hpp>
#include <cohort/core/wire.hpp>
#include <cohort/protocol/node.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace cohort::coordination {

template <class Any>
class negotiation;

/// What a message is. [protocol T1]
enum message_kind : unsigned {
  of_protocol,
  ping,        // is somebody there?
  pong,        // yes
  all_closed,  // all ranks have closed after a fault
  has_broken   // who sends it has broken down, or has heard of a rank that has; with its number
};

/// What the protocol's node has for a neighbour leaves here, and what comes enters it; so do a few
/// messages beside it. A rank that has broken down sends that last.
template <class Any>
class neighbours_in_tree final : private comm::channel::client {
 public:
  explicit neighbours_in_tree(negotiation<Any>& log)
      : channel(*this, {.fragment = static_cast<std::size_t>(log.options.control_message)}),
        log_(log) {}

  comm::channel channel;

  /// Who they are.
  void find() {
    const protocol::tree& shape = log_.node.shape();
    if (!shape.is_root()) edges_.push_back({shape.parent()});
    for (const int rank : shape.children()) edges_.push_back({rank});
  }
  /// Before `open`: what goes to them goes through these.
  void use(std::shared_ptr<comm::message_rings> rings) noexcept { rings_ = std::move(rings); }
  /// Opens the channel to them; throws std::system_error.
  void open() {
    std::vector<int> all;
    for (const edge& one : edges_) all.push_back(one.rank);
    if (!all.empty()) channel.open(log_.control, all, rings_);
  }
  [[nodiscard]] bool none() const noexcept { return edges_.empty(); }
  void flush() {
    for (edge& one : edges_) {
      while (!channel.sending(one.rank)) {
        const std::optional<message_kind> kind = next_to(one);
        if (!kind) break;
        std::vector<std::byte>& message = channel.message(one.rank);
        if (kind == of_protocol && !log_.node.take_message(one.rank, message)) continue;
        if (const std::error_code why = channel.send(one.rank, *kind)) {
          std::rethrow_exception(no_connection(one.rank, why));
        }
      }
    }
  }
  /// Asks the parent for a sign of life.
  void ping_parent() noexcept { edges_.front().pings = true; }
  /// When it last gave one.
  [[nodiscard]] clock::time_point answered() const noexcept { return answered_; }
  /// The children are to learn that all ranks have closed after a fault.
  void settle_children() {
    const std::size_t above = edges_.size() - log_.node.shape().children().size();
    for (std::size_t i = above; i < edges_.size(); ++i) edges_[i].settles = true;
  }
  [[nodiscard]] bool settles_some() const noexcept {
    return std::any_of(edges_.begin(), edges_.end(), [](const edge& one) { return one.settles; });
  }
  // The others would wait for this rank until their deadlines. So it sends one more message to each
  // neighbour, who passes it on; also to the one to whom the last has failed, for that may have
  // been for want of memory. What does not arrive, they find out at their deadlines.
  void announce_broken() {
    const std::size_t above = edges_.size() - log_.node.shape().children().size();
    const auto first =
        static_cast<std::uint32_t>(log_.faults.lost < 0 ? log_.rank : log_.faults.lost);
    std::vector<std::byte> message;
    wire::writer(message).put(first);
    for (std::size_t i = 0; i < edges_.size(); ++i) {
      if (i < above || !can_end(edges_[i]))
        channel.send_at_once(edges_[i].rank, has_broken, message);
    }
  }

 private:
  struct edge {
    int rank = -1;
    bool pings = false;    // whether the other rank is there, or
    bool answers = false;  // that this one is, or
    bool settles = false;  // that all ranks have closed after a fault: to be sent
  };

  void received(int from, unsigned kind, std::span<const std::byte> message) override {
    if (!log_.faults.broken &&
        !log_.faults.to_break) {  // else the node knows of tasks that have ended
      try {
        switch (kind) {
          case of_protocol:
            log_.node.receive(from, message, nanoseconds(log_.engine.coarse_now()));
            log_.advance();
            break;
          case ping:
            edge_to(from).answers = true;
            flush();
            break;
          case pong:
            answered_ = clock::now();
            break;
          case all_closed:
            if (!log_.faults.of_all()) {
              throw protocol::protocol_error(
                  protocol::fault::malformed,
                  "rank " + std::to_string(from) + " tells the end of a fault that was none");
            }
            log_.faults.settle();
            break;
          case has_broken:
            peer_broke(message);
          default:
            throw protocol::protocol_error(
                protocol::fault::malformed,
                "a message of no kind from rank " + std::to_string(from));
        }
      } catch (...) {
        return log_.faults.break_down(std::current_exception());
      }
      log_.stay_awake();
    }
    log_.life.check_released();
  }
  void sent(int to) override {
    if (log_.faults.broken) return;
    const edge& one = edge_to(to);
    if (log_.node.has_message(to) || one.pings || one.answers || one.settles) log_.touch();
  }
  void malformed(int from, const char* what) override {
    log_.faults.break_down(std::make_exception_ptr(protocol::protocol_error(
        protocol::fault::malformed, what + (" from rank " + std::to_string(from)))));
  }
  void failed(int peer, bool sends, std::error_code why) override;
  void settled() override { log_.life.check_released(); }
  /// What is to be sent there next, if anything.
  [[nodiscard]] std::optional<message_kind> next_to(edge& one) const {
    if (std::exchange(one.answers, false)) return pong;
    if (std::exchange(one.pings, false)) return ping;
    if (log_.node.has_message(one.rank)) return of_protocol;
    if (std::exchange(one.settles, false)) return all_closed;
    return std::nullopt;
  }
  [[nodiscard]] edge& edge_to(int rank) {
    return *std::find_if(edges_.begin(), edges_.end(),
                         [rank](const edge& one) { return one.rank == rank; });
  }
  [[nodiscard]] std::exception_ptr no_connection(int peer, std::error_code why) const {
    return std::make_exception_ptr(peer_lost_error(
        {peer}, "rank " + std::to_string(log_.rank) + ": coordinator: no connection to rank " +
                    std::to_string(peer) + reason_of(why)));
  }
  /// Whether a child has, or will get, all that it needs to end: CLOSE, and after a fault the word
  /// that all have closed. It ends before its parent, and nobody would receive more.
  [[nodiscard]] bool can_end(const edge& child) const noexcept {
    return log_.node.log().closed && log_.node.has_log(child.rank) &&
           channel.all_posted(child.rank) &&
           (!log_.faults.of_all() || (log_.faults.settled() && !child.settles));
  }
  [[noreturn]] void peer_broke(std::span<const std::byte> message) {
    wire::reader in(message);
    std::uint32_t first = 0;
    in.get(first);
    if (!in.ok() || in.left() != 0 || first >= static_cast<unsigned>(log_.size)) {
      throw protocol::protocol_error(protocol::fault::malformed, "a last message");
    }
    log_.faults.lost = static_cast<int>(first);
    throw peer_lost_error({log_.faults.lost},
                          "rank " + std::to_string(log_.rank) + ": coordinator: rank " +
                              std::to_string(log_.faults.lost) +
                              " has closed: it cannot send or receive control messages");
  }

  negotiation<Any>& log_;
  std::vector<edge> edges_;
  std::shared_ptr<comm::message_rings> rings_;
  clock::time_point answered_{};
};

// MPI says that a message cannot be sent or received: the negotiation ends here, as when a member
// dies.
template <class Any>
void neighbours_in_tree<Any>::failed(int peer, bool, std::error_code why) {
  if (log_.life.closed()) return;
  process::missing.fetch_add(1);  // for good
  log_.faults.break_down(no_connection(peer, why));
}

}  // namespace cohort::coordination
