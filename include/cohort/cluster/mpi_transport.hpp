// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Messages over MPI, between the ranks of a communicator.

#include <cohort/cluster/event.hpp>
#include <cohort/cluster/link.hpp>
#include <cohort/comm/channel.hpp>
#include <cohort/comm/communicator.hpp>
#include <cohort/core/asio.hpp>
#include <cohort/progress/engine.hpp>

#include <asio/buffer.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <system_error>
#include <unordered_map>
#include <utility>
#include <vector>

namespace cohort::cluster {

/// A link to each rank that is talked to, all over one channel. Each of its messages is a piece of
/// that rank's stream of bytes, or its end. What comes is handed to the links outside of the look,
/// for they run what their owners have given them. Must be owned by a shared_ptr.
/// (A template, so that only who uses it compiles its bodies.)
template <class Any>
class basic_mpi_transport final : public std::enable_shared_from_this<basic_mpi_transport<Any>>,
                                  private comm::channel::client {
 public:
  using mpi_transport = basic_mpi_transport;
  /// Gets a link that the other side has used first, to start it.
  using contact_handler = std::function<void(int rank, const std::shared_ptr<link>& with)>;

  basic_mpi_transport(communicator over, std::size_t max_message)
      : over_(std::move(over)),
        max_message_(max_message),
        changed_(over_.get_executor().context()),
        channel_(*this, {.fragment = piece_size + 1, .longest = piece_size}) {}
  basic_mpi_transport(const mpi_transport&) = delete;
  basic_mpi_transport& operator=(const mpi_transport&) = delete;

  /// Begins to receive.
  void start(contact_handler on_contact) {
    on_contact_ = std::move(on_contact);
    self_ = this->shared_from_this();
    const guard hold(*this);
    channel_.open(over_);
  }

  /// The link to that rank, made when it is first asked for; then the caller has to start it.
  [[nodiscard]] std::shared_ptr<link> to(int rank) {
    auto& at = links_[rank];
    if (!at) at = std::make_shared<rank_link>(this->weak_from_this(), rank, max_message_);
    return at;
  }
  /// Lets MPI work on what it has been given.
  void look() { engine().attend_sent(); }
  [[nodiscard]] bool knows(int rank) const { return links_.count(rank) != 0; }

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
    const auto limit = from_now(bound);
    for (bool in_time = true; in_time && sending();) {
      in_time = co_await changed_.wait_until(limit);
    }
    const auto last = from_now(linger);
    const auto ended = [&](const auto& each) { return ended_.count(each.first) != 0; };
    for (bool in_time = true;
         in_time && receives() && !std::all_of(links_.begin(), links_.end(), ended);) {
      in_time = co_await changed_.wait_until(last);
    }
    quit();
    while (receives()) co_await changed_.wait();
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
    quits_ = true;
    on_contact_ = nullptr;
    // At the end of the context MPI has given back the receive already, or keeps it for good.
    if (engine().stopped()) return;
    const guard hold(*this);
    channel_.close();
    note({});
  }

 private:
  static constexpr std::size_t piece_size = std::size_t{64} * 1024;
  enum message_kind : unsigned { piece, end_of_stream };
  enum class event_kind : std::uint8_t { nothing, piece, end, sent, failed };
  struct happening {
    event_kind what = event_kind::nothing;
    int rank = -1;          // -1: all
    std::size_t bytes = 0;  // of the piece
    std::error_code why;
  };

  class rank_link final : public link {
   public:
    rank_link(std::weak_ptr<mpi_transport> over, int rank, std::size_t max_message)
        : link(max_message), over_(std::move(over)), rank_(rank) {}

    void deliver(std::error_code failed, std::span<const std::byte> bytes) {
      // Nobody listens to ours then, but for the manager, who waits for the ends of the others.
      if (failed && (failed != asio::error::eof || rank_ != 0)) end_said_ = true;
      static_cast<void>(this->arrived(failed, bytes));
    }
    /// What was under way has left, or not.
    void sent(std::error_code failed) {
      const auto over = over_.lock();
      if (!over) return;
      if (!failed && !closed_ && !left_.empty()) return send_pieces(*over);
      busy_ = false;
      if (!closed_) return this->written(failed);
      if (!failed) say_end(*over);
    }

   private:
    void read() override {}  // the transport delivers
    void write(const std::vector<asio::const_buffer>& what) override {
      left_ = what;
      const auto over = over_.lock();
      if (!over || end_said_) return;
      busy_ = true;
      send_pieces(*over);
    }
    void close_stream() noexcept override {
      closed_ = true;
      const auto over = over_.lock();
      if (over && !busy_) say_end(*over);
    }

    void send_pieces(mpi_transport& over) {
      const guard hold(over);
      while (!left_.empty() && !over.channel_.sending(rank_)) {
        take_piece(over.channel_.message(rank_));
        if (const std::error_code why = over.channel_.send(rank_, piece)) {
          return over.note({event_kind::sent, rank_, 0, why});
        }
      }
      if (!over.channel_.sending(rank_)) over.note({event_kind::sent, rank_, 0, {}});
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
    void say_end(mpi_transport& over) {
      left_.clear();
      if (std::exchange(end_said_, true)) return;
      const guard hold(over);
      static_cast<void>(over.channel_.message(rank_));
      static_cast<void>(over.channel_.send(rank_, end_of_stream));
    }

    std::weak_ptr<mpi_transport> over_;
    int rank_;
    std::vector<asio::const_buffer> left_;  // of what is to be written
    bool busy_ = false;
    bool closed_ = false;
    bool end_said_ = false;
  };

  /// For all that touches the channel; then the engine looks.
  class guard {
   public:
    explicit guard(mpi_transport& owner)
        : engine_(owner.engine()), hold_(std::in_place, owner.over_.state()->source) {}
    guard(const guard&) = delete;
    guard& operator=(const guard&) = delete;
    ~guard() {
      hold_.reset();
      engine_.started();
    }

   private:
    progress::engine& engine_;
    std::optional<comm::request_source::guard> hold_;
  };
  /// Hands on what has happened, outside of the look.
  class delivery final : public progress::operation {
   public:
    explicit delivery(std::shared_ptr<mpi_transport> to) noexcept
        : operation(&run), to_(std::move(to)) {}
    static void* operator new(std::size_t bytes) { return progress::pool::allocate(bytes); }
    static void operator delete(void* block) noexcept {
      progress::pool::deallocate(block, sizeof(delivery));
    }

   private:
    static void run(operation* base, action what) {
      const std::unique_ptr<delivery> self(static_cast<delivery*>(base));
      if (what == action::destroy) {
        self->to_->self_ = nullptr;
      } else {
        self->to_->deliver();
      }
    }
    std::shared_ptr<mpi_transport> to_;
  };

  [[nodiscard]] progress::engine& engine() const { return over_.state()->engine; }
  [[nodiscard]] bool sending() {
    const guard hold(*this);
    return channel_.sending();
  }
  [[nodiscard]] bool receives() {
    const guard hold(*this);
    return channel_.receives();
  }

  // As the channel's owner, with the request source locked.
  void received(int from, unsigned kind, std::span<const std::byte> message) override {
    bytes_.insert(bytes_.end(), message.begin(), message.end());
    note({kind == piece ? event_kind::piece : event_kind::end, from, message.size(), {}});
  }
  void sent(int to) override { note({event_kind::sent, to, 0, {}}); }
  void malformed(int from, const char*) override {
    note({event_kind::failed, from, 0, errc::invalid_argument});
  }
  void failed(int peer, bool sends, std::error_code why) override {
    note({sends ? event_kind::sent : event_kind::failed, peer, 0, why});
  }
  void settled() override {
    if (quits_) note({});
  }
  void note(happening what) {
    happened_.push_back(what);
    if (!std::exchange(delivers_, true)) engine().post(new delivery(this->shared_from_this()));
  }

  void deliver() {
    if (next_ == handled_.size()) {
      const guard hold(*this);
      handled_.clear();
      handled_bytes_.clear();
      handled_.swap(happened_);
      handled_bytes_.swap(bytes_);
      next_ = begin_ = 0;
      delivers_ = false;
    }
    try {
      while (next_ != handled_.size()) handle(handled_[next_++]);
    } catch (...) {
      const guard hold(*this);
      note({});  // the rest is handed on after that
      throw;
    }
    if (stopping_) changed_.notify();
    const guard hold(*this);
    if (quits_ && channel_.operations() == 0) self_ = nullptr;  // who called this has a share
  }
  void handle(const happening& what) {
    const std::span bytes = std::span<const std::byte>(handled_bytes_).subspan(begin_, what.bytes);
    begin_ += what.bytes;
    switch (what.what) {
      case event_kind::nothing:
        return;
      case event_kind::sent:
        if (knows(what.rank)) static_cast<rank_link&>(*to(what.rank)).sent(what.why);
        return;
      case event_kind::end:
        ended_.insert(what.rank);
        changed_.notify();
        return arrived(what.rank, asio::error::eof, {});
      case event_kind::piece:
        return arrived(what.rank, {}, bytes);
      case event_kind::failed:
        if (what.rank >= 0) return arrived(what.rank, what.why, {});
        if (stopping_) return;
        for (const auto& each : std::unordered_map(links_)) each.second->deliver(what.why, {});
    }
  }
  void arrived(int rank, std::error_code failed, std::span<const std::byte> bytes) {
    const bool known = knows(rank);
    if (stopping_ || (!known && !on_contact_)) return;
    const std::shared_ptr<link> from = to(rank);
    if (!known) on_contact_(rank, from);
    static_cast<rank_link&>(*from).deliver(failed, bytes);
  }

  communicator over_;
  std::size_t max_message_;
  event changed_;
  comm::channel channel_;
  std::shared_ptr<mpi_transport> self_;  // while MPI has something of the channel
  contact_handler on_contact_;
  std::unordered_map<int, std::shared_ptr<rank_link>> links_;
  std::set<int> ended_;  // ranks that have ended their side
  bool stopping_ = false;
  bool quits_ = false;

  // With the request source locked.
  std::vector<happening> happened_;
  std::vector<std::byte> bytes_;  // of the pieces among these
  bool delivers_ = false;

  std::vector<happening> handled_;
  std::vector<std::byte> handled_bytes_;
  std::size_t next_ = 0;   // of these
  std::size_t begin_ = 0;  // of its bytes
};
using mpi_transport = basic_mpi_transport<void>;

}  // namespace cohort::cluster
