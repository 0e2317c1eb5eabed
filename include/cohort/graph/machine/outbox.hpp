// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// Messages that wait to be sent, by destination and scope.

#include <cohort/core/wire.hpp>
#include <cohort/graph/machine/message.hpp>
#include <cohort/graph/machine/names.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace cohort::graph::machine {

class outbox {
 public:
  explicit outbox(int ranks) : queues_(static_cast<std::size_t>(ranks)) {}

  void put(int to, const scope_id& scope, message_kind kind, std::uint64_t epoch,
           std::span<const std::byte> body) {
    news_ = true;
    std::vector<std::byte>& bytes = bytes_for(to, scope);
    wire::writer out(bytes);
    out.byte(static_cast<std::uint8_t>(kind));
    out.varint(epoch);
    out.varint(body.size());
    out.raw(body);
  }
  /// Whether there is anything since the last call.
  [[nodiscard]] bool take_news() noexcept { return std::exchange(news_, false); }
  [[nodiscard]] bool empty(int to) const noexcept {
    for (const queue& one : queues_[static_cast<std::size_t>(to)]) {
      if (!one.bytes.empty()) return false;
    }
    return true;
  }
  /// Appends the packet for a rank to `out`, and forgets it; false if there is none. Also forgets
  /// scopes that have said nothing since the last packet.
  bool take(int to, std::vector<std::byte>& out) {
    auto& all = queues_[static_cast<std::size_t>(to)];
    if (empty(to)) return false;
    std::erase_if(all, [](const queue& one) { return one.bytes.empty(); });
    wire::writer packet(out);
    for (queue& one : all) {
      packet.put(one.scope);
      packet.varint(one.bytes.size());
      packet.raw(one.bytes);
      one.bytes.clear();
    }
    return true;
  }
  void forget(int to) { queues_[static_cast<std::size_t>(to)].clear(); }

 private:
  struct queue {
    scope_id scope;
    std::vector<std::byte> bytes;
  };
  [[nodiscard]] std::vector<std::byte>& bytes_for(int to, const scope_id& scope) {
    auto& all = queues_[static_cast<std::size_t>(to)];
    for (queue& one : all) {
      if (one.scope == scope) return one.bytes;
    }
    all.push_back({scope, {}});
    return all.back().bytes;
  }
  std::vector<std::vector<queue>> queues_;  // by destination; few scopes each
  bool news_ = false;
};

}  // namespace cohort::graph::machine
