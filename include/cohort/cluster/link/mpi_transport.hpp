// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Messages over MPI, between the ranks of a communicator.

#include <cohort/cluster/event.hpp>
#include <cohort/cluster/link/link.hpp>
#include <cohort/comm/channel.hpp>
#include <cohort/comm/operation.hpp>
#include <cohort/core/asio.hpp>
#include <cohort/progress/engine.hpp>

#include <asio/buffer.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <system_error>
#include <unordered_map>
#include <utility>
#include <vector>

namespace cohort::cluster {

/// A link to each rank that is talked to, all over one mailbox. Each of its messages is a piece of
/// that rank's stream of bytes, or its end. Must be owned by a shared_ptr.
template <class Any>
class basic_mpi_transport final : public std::enable_shared_from_this<basic_mpi_transport<Any>>,
                                  private comm::mailbox::owner {
 public:
  using mpi_transport = basic_mpi_transport;
  /// Gets a link that the other side has used first, to start it.
  using contact_handler = std::function<void(int rank, const std::shared_ptr<link>& with)>;

  basic_mpi_transport(communicator over, std::size_t max_message)
      : engine_(over.state()->engine),
        max_message_(max_message),
        changed_(engine_.context()),
        messages_(std::make_shared<comm::mailbox>(
            std::move(over),
            comm::channel_options{.fragment = piece_size + 1, .longest = piece_size})) {}
  basic_mpi_transport(const mpi_transport&) = delete;
  basic_mpi_transport& operator=(const mpi_transport&) = delete;

  /// Begins to receive.
  void start(contact_handler on_contact) {
    on_contact_ = std::move(on_contact);
    messages_->open(std::shared_ptr<comm::mailbox::owner>(this->shared_from_this(), this));
  }

  /// The link to that rank, made when it is first asked for; then the caller has to start it.
  [[nodiscard]] std::shared_ptr<link> to(int rank) {
    auto& at = links_[rank];
    if (!at) at = std::make_shared<rank_link>(this->weak_from_this(), rank, max_message_);
    return at;
  }
  /// Lets MPI work on what it has been given.
  void look() { engine_.attend_sent(); }
  [[nodiscard]] bool has_link(int rank) const { return links_.count(rank) != 0; }

  /// What comes from now on is thrown away, and links that are open stay silent. Completes when
  /// what was being sent has left, or after the bound: somebody may never receive it. Then it
  /// receives until all who have been talked to have ended their side, at most for as long as
  /// `linger` says: MPI may give the number of a communicator that is freed to the next one, which
  /// would get what nobody has received.
  asio::awaitable<void> stop(std::chrono::nanoseconds bound,
                             std::chrono::nanoseconds linger = std::chrono::nanoseconds(0)) {
    const auto self = this->shared_from_this();
    stopping_ = true;
    on_contact_ = nullptr;
    const auto sends = [this] { return messages_->sending(); };
    co_await changed_.wait_while(sends, from_now(bound));
    const auto ended = [this](const auto& each) { return ended_.count(each.first) != 0; };
    const auto lingers = [&] {
      return messages_->receives() && !std::all_of(links_.begin(), links_.end(), ended);
    };
    co_await changed_.wait_while(lingers, from_now(linger));
    quit();
    while (messages_->receives()) co_await changed_.wait();
    links_.clear();
  }
  /// No end of that rank's side is waited for.
  void expect_nothing_of(int rank) {
    ended_.insert(rank);
    changed_.notify();
  }
  /// Stops at once.
  void quit() {
    stopping_ = true;
    on_contact_ = nullptr;
    messages_->close();
  }

 private:
  static constexpr std::size_t piece_size = std::size_t{64} * 1024;
  enum message_kind : unsigned { piece, end_of_stream };

  class rank_link final : public link {
   public:
    rank_link(std::weak_ptr<mpi_transport> over, int rank, std::size_t max_message)
        : link(max_message), over_(std::move(over)), rank_(rank) {}

    void deliver(std::error_code failed, std::span<const std::byte> bytes) {
      // Who has ended listens no more, so our end is not said; but the manager waits for it.
      if (failed && (failed != asio::error::eof || rank_ != 0)) end_sent_ = true;
      static_cast<void>(this->arrived(failed, bytes));
    }
    /// The piece that was under way has left, or not.
    void sent(std::error_code failed) {
      if (!failed && !closed_ && !left_.empty()) return send_piece();
      busy_ = false;
      if (!closed_) return this->written(failed);
      if (!failed) send_end();
    }

   private:
    void read() override {}  // the transport delivers
    void write(const std::vector<asio::const_buffer>& what) override {
      left_ = what;
      send_piece();
    }
    void close_stream() noexcept override {
      closed_ = true;
      if (!busy_) send_end();
    }

    void send_piece() {
      const auto over = over_.lock();
      if (!over || end_sent_) return;
      busy_ = true;
      over->messages_->send(rank_, piece, [this](std::vector<std::byte>& out) { take_piece(out); });
    }
    void take_piece(std::vector<std::byte>& into) {
      std::size_t room = piece_size;
      std::size_t whole = 0;
      for (asio::const_buffer& each : left_) {
        const std::size_t size = std::min(each.size(), room);
        const auto* const begin = static_cast<const std::byte*>(each.data());
        into.insert(into.end(), begin, begin + size);
        room -= size;
        each += size;
        if (each.size() != 0) break;
        ++whole;
      }
      left_.erase(left_.begin(), left_.begin() + static_cast<std::ptrdiff_t>(whole));
    }
    void send_end() {
      left_.clear();
      const auto over = over_.lock();
      if (!over || std::exchange(end_sent_, true)) return;
      over->messages_->send(rank_, end_of_stream, [](std::vector<std::byte>&) {});
    }

    std::weak_ptr<mpi_transport> over_;
    int rank_;
    std::vector<asio::const_buffer> left_;  // of what is to be written
    bool busy_ = false;
    bool closed_ = false;
    bool end_sent_ = false;
  };

  // What the mailbox tells.
  void received(int from, unsigned kind, std::span<const std::byte> bytes) override {
    if (kind == piece) return arrived(from, {}, bytes);
    ended_.insert(from);
    changed_.notify();
    arrived(from, asio::error::eof, {});
  }
  void sent(int to, std::error_code failed) override {
    if (stopping_) changed_.notify();
    const auto found = links_.find(to);
    if (found == links_.end()) return;
    const std::shared_ptr<rank_link> kept = found->second;
    kept->sent(failed);
  }
  void failed(int peer, std::error_code why) override {
    if (peer >= 0) return arrived(peer, why, {});
    if (stopping_) return;
    for (const auto& each : std::unordered_map(links_)) each.second->deliver(why, {});
  }
  void settled() override { changed_.notify(); }

  void arrived(int rank, std::error_code failed, std::span<const std::byte> bytes) {
    const bool known = has_link(rank);
    if (stopping_ || (!known && !on_contact_)) return;
    const std::shared_ptr<link> from = to(rank);
    if (!known) on_contact_(rank, from);
    static_cast<rank_link&>(*from).deliver(failed, bytes);
  }

  progress::engine& engine_;
  std::size_t max_message_;
  event changed_;
  std::shared_ptr<comm::mailbox> messages_;
  contact_handler on_contact_;
  std::unordered_map<int, std::shared_ptr<rank_link>> links_;
  std::set<int> ended_;  // ranks that have ended their side
  bool stopping_ = false;
};
using mpi_transport = basic_mpi_transport<void>;

}  // namespace cohort::cluster
