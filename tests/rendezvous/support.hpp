// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Receivers without handlers, and nodes on an in-process network.

#include <cohort/rendezvous/node/node.hpp>
#include <cohort/testing/network.hpp>

#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "rendezvous/keys.hpp"

namespace rendezvous_test {

using cohort::errc;
namespace meeting = cohort::meeting;

/// Waits for a value and remembers how it ended.
template <class T>
class probe final : public meeting::receiver {
 public:
  probe() { type = meeting::type_id<T>(); }
  /// How often it has ended.
  int ends = 0;
  std::function<void()> then;

  [[nodiscard]] bool waits() const { return ends == 0; }
  [[nodiscard]] std::error_code code() const {
    if (!error) return {};
    try {
      std::rethrow_exception(error);
    } catch (const std::system_error& problem) {
      return problem.code();
    }
  }
  [[nodiscard]] std::string what() const {
    try {
      if (error) std::rethrow_exception(error);
    } catch (const std::exception& problem) {
      return problem.what();
    }
    return {};
  }
  [[nodiscard]] bool is_dead() const { return direct ? dead : value && value->dead; }
  /// The value that came, once.
  [[nodiscard]] std::optional<T> take() {
    if (direct) return std::move(here_);
    if (!value || value->type == 0) return std::nullopt;
    return meeting::take_value<T>(*value);
  }

  void end() override {
    ++ends;
    if (then) then();
  }
  std::byte* prepare(std::size_t bytes) override {
    if constexpr (meeting::sequence<T>) {
      here_.emplace();
      here_->resize(bytes / sizeof(typename T::value_type));
      return reinterpret_cast<std::byte*>(here_->data());
    } else {
      throw std::system_error(make_error_code(errc::size_mismatch));
    }
  }

 private:
  std::optional<T> here_;
};

template <class T>
meeting::packet_ptr packet_of(T value, bool dead = false) {
  return meeting::make_packet(std::move(value), dead, true);
}

/// Nodes of several ranks, their messages, and the transfers between them.
class fake_job {
 public:
  using bytes = std::vector<std::byte>;

  explicit fake_job(int ranks, const meeting::node_options& options = {},
                    const cohort::testing::network_options& network = {})
      : net(ranks, network) {
    for (int rank = 0; rank < ranks; ++rank) {
      nodes.push_back(std::make_unique<meeting::node>(options));
      nodes.back()->open(rank, ranks, 100 + static_cast<unsigned>(rank));
    }
  }

  [[nodiscard]] meeting::node& operator[](int rank) {
    return *nodes[static_cast<std::size_t>(rank)];
  }
  [[nodiscard]] int ranks() const { return static_cast<int>(nodes.size()); }
  meeting::step_state& step(int rank, cohort::step_id id) { return *(*this)[rank].step(id); }

  template <class T>
  void send(cohort::step_id id, const rendezvous_key& key, T value, bool dead = false) {
    put(id, key, packet_of(std::move(value), dead));
  }
  void put(cohort::step_id id, const rendezvous_key& key, meeting::packet_ptr value) {
    auto& here = step(key.source, id);
    if (key.source == key.destination) {
      here.local.send(key, std::move(value));
    } else {
      (*this)[key.source].send(here, key, value);
    }
  }
  void receive(cohort::step_id id, const rendezvous_key& key, meeting::receiver& one) {
    auto& here = step(key.destination, id);
    (*this)[key.destination].receive(here, key, one);
    if (key.source == key.destination) (*this)[key.source].check_drained(here);
  }

  /// Gives what the nodes have to say to the network.
  void flush() {
    for (int from = 0; from < ranks(); ++from) {
      for (int to = 0; to < ranks(); ++to) {
        bytes message;
        if ((*this)[from].outbox().take_message(to, message))
          net.send(from, to, std::move(message));
      }
      for (const meeting::transfer& one : (*this)[from].take_transfers()) {
        transfers.push_back({from, one});
      }
    }
    while (move_one()) continue;
  }
  /// A rank dies: nobody hears of it any more, the others are told, and MPI ends their transfers.
  void kill(int rank) {
    flush();
    net.isolate(rank);
    for (int other = 0; other < ranks(); ++other) {
      if (other != rank) (*this)[other].lose(rank);
    }
    for (const half& one : std::exchange(transfers, {})) {
      if (one.rank == rank) continue;
      if (one.what.peer == rank) {
        (*this)[one.rank].transferred(one.what, make_error_code(errc::peer_lost));
      } else {
        transfers.push_back(one);
      }
    }
  }
  /// One message arrives. False if none is on its way.
  bool one() {
    flush();
    auto next = net.deliver();
    if (!next) return false;
    ++messages;
    (*this)[next->to].receive(next->from, next->message);
    flush();
    return true;
  }
  void settle() {
    while (one()) continue;
  }

  cohort::testing::network<bytes> net;
  std::vector<std::unique_ptr<meeting::node>> nodes;
  std::uint64_t messages = 0;
  std::uint64_t moved = 0;  ///< transfers

 private:
  struct half {
    int rank;
    meeting::transfer what;
  };
  /// A transfer of which both sides are known is done.
  bool move_one() {
    for (std::size_t i = 0; i < transfers.size(); ++i) {
      for (std::size_t j = 0; j < transfers.size(); ++j) {
        const half in = transfers[i];
        const half out = transfers[j];
        if (!in.what.incoming || out.what.incoming || in.what.peer != out.rank ||
            out.what.peer != in.rank || in.what.tag != out.what.tag) {
          continue;
        }
        if (in.what.size != out.what.size) std::abort();
        std::memcpy(in.what.into, out.what.from, in.what.size);
        transfers.erase(transfers.begin() + static_cast<std::ptrdiff_t>(std::max(i, j)));
        transfers.erase(transfers.begin() + static_cast<std::ptrdiff_t>(std::min(i, j)));
        (*this)[in.rank].transferred(in.what, {});
        (*this)[out.rank].transferred(out.what, {});
        ++moved;
        return true;
      }
    }
    return false;
  }
  std::vector<half> transfers;
};

}  // namespace rendezvous_test
