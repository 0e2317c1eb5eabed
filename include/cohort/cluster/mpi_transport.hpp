// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Messages over MPI, between the ranks of a communicator.

#include <cohort/cluster/event.hpp>
#include <cohort/cluster/link.hpp>
#include <cohort/comm/communicator.hpp>
#include <cohort/comm/control.hpp>
#include <cohort/core/asio.hpp>
#include <cohort/progress/engine.hpp>
#include <cohort/progress/source.hpp>

#include <asio/buffer.hpp>

#include <algorithm>
#include <atomic>
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

/// Keeps a context's engine looking for as long as it spins after each message, before it sleeps
/// until a doorbell rings: the answer, or the next call, often comes at once, and to be woken takes
/// many times longer.
/// (A template, so that only who uses it compiles its bodies.)
template <class Any>
class basic_attention final : public asio::execution_context::service {
 public:
  using key_type = basic_attention;
  static inline asio::execution_context::id id;
  explicit basic_attention(asio::io_context& context)
      : service(context), engine_(asio::use_service<progress::engine>(context)) {
    engine_.attach(*this);
  }

  void pay() {
    since_.store(now(), std::memory_order_relaxed);
    if (wanted_.exchange(true, std::memory_order_relaxed)) return;
    engine_.started();
  }

  // As a source of the engine.
  bool begin_lap(progress::ready_queue&) noexcept { return true; }
  std::size_t test(progress::ready_queue&) noexcept {
    // The end of spinning parks this source; where no doorbell lets the engine sleep, time does.
    if (now() - since_.load(std::memory_order_relaxed) > longest) leave();
    return 0;
  }
  void end_lap() noexcept {}
  [[nodiscard]] std::size_t pending() const noexcept {
    return wanted_.load(std::memory_order_relaxed) ? 1 : 0;
  }
  [[nodiscard]] std::size_t bytes() const noexcept { return 0; }
  [[nodiscard]] bool only_announced() const noexcept { return true; }
  progress::park_result park(progress::ready_queue&) noexcept {
    wanted_.store(false, std::memory_order_relaxed);
    return progress::park_result::nothing;
  }
  void unpark() noexcept {}
  void leave() noexcept { wanted_.store(false, std::memory_order_relaxed); }

 private:
  using ticks = progress::engine::clock::duration::rep;
  static constexpr ticks longest =
      progress::engine::clock::duration(std::chrono::milliseconds(1)).count();

  void shutdown() override { engine_.detach(this); }
  [[nodiscard]] ticks now() const noexcept {
    return engine_.coarse_now().time_since_epoch().count();
  }

  progress::engine& engine_;
  std::atomic<bool> wanted_{false};
  std::atomic<ticks> since_{0};
};
using attention = basic_attention<void>;

/// One receive from any rank, and a link to each rank that is talked to. Each MPI message is a
/// piece of that rank's stream of bytes; an empty one is its end. With nothing to receive the
/// engine sleeps. Must be owned by a shared_ptr.
/// (A template, so that only who uses it compiles its bodies.)
template <class Any>
class basic_mpi_transport : public std::enable_shared_from_this<basic_mpi_transport<Any>> {
 public:
  using mpi_transport = basic_mpi_transport;
  /// Gets a link that the other side has used first, to start it.
  using contact_handler = std::function<void(int rank, const std::shared_ptr<link>& with)>;

  basic_mpi_transport(communicator over, std::size_t max_message)
      : over_(std::move(over)),
        max_message_(max_message),
        buffer_(piece_size),
        changed_(context()),
        attention_(asio::use_service<attention>(context())),
        ring_(context()),
        later_(context()) {}
  basic_mpi_transport(const mpi_transport&) = delete;
  basic_mpi_transport& operator=(const mpi_transport&) = delete;

  /// Begins to receive.
  void start(contact_handler on_contact) {
    on_contact_ = std::move(on_contact);
    receiving_ = true;
    receive();
  }

  /// The link to that rank, made when it is first asked for; then the caller has to start it.
  [[nodiscard]] std::shared_ptr<link> to(int rank) {
    auto& at = links_[rank];
    if (!at) at = std::make_shared<rank_link>(this->weak_from_this(), rank, max_message_);
    return at;
  }
  /// Lets MPI work on what it has been given.
  void look() { attention_.pay(); }
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
    for (bool in_time = true; in_time && sending_ > 0;) {
      in_time = co_await changed_.wait_until(limit);
    }
    const auto last = from_now(linger);
    const auto ended = [&](const auto& each) { return ended_.count(each.first) != 0; };
    for (bool in_time = true;
         in_time && receiving_ && !std::all_of(links_.begin(), links_.end(), ended);) {
      in_time = co_await changed_.wait_until(last);
    }
    quit();
    while (receiving_) co_await changed_.wait();
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
    cancelled_ = true;
    on_contact_ = nullptr;
    later_.cancel();
    // At the end of the context the receive may be gone already, and its slot with it.
    const bool over = asio::use_service<progress::engine>(context()).stopped();
    if (receiving_ && !over) cancel_.emit(asio::cancellation_type::total);
  }

 private:
  static constexpr std::size_t piece_size = std::size_t{64} * 1024;
  /// Longer ones may need the receiver's help on their way, in any MPI.
  static constexpr std::size_t leaves_at_once = 3500;
  static constexpr int tag = 0;

  class rank_link final : public link {
   public:
    rank_link(std::weak_ptr<mpi_transport> over, int rank, std::size_t max_message)
        : link(max_message), over_(std::move(over)), rank_(rank) {}

    void deliver(std::error_code failed, std::span<const std::byte> bytes) {
      // Nobody listens to ours then, but for the manager, who waits for the ends of the others.
      if (failed && (failed != asio::error::eof || rank_ != 0)) ended_said_ = true;
      static_cast<void>(arrived(failed, bytes));
    }

   private:
    void read() override {}  // the transport delivers
    void write(const std::vector<asio::const_buffer>& what) override {
      left_ = what;
      next_piece();
    }
    void close_stream() noexcept override {
      closed_ = true;
      if (!busy_) next_piece();
    }

    void next_piece() {
      const auto over = over_.lock();
      if (!over || ended_said_) return;
      out_.clear();
      if (closed_) {
        left_.clear();
        ended_said_ = true;
      }
      std::size_t whole = 0;
      for (asio::const_buffer& each : left_) {
        const std::size_t size = std::min(each.size(), piece_size - out_.size());
        const auto* const begin = static_cast<const std::byte*>(each.data());
        out_.insert(out_.end(), begin, begin + size);
        each += size;
        if (each.size() != 0) break;
        ++whole;
      }
      left_.erase(left_.begin(), left_.begin() + static_cast<std::ptrdiff_t>(whole));
      busy_ = true;
      ++over->sending_;
      over->attention_.pay();
      over->look_later();
      const bool large = out_.size() > leaves_at_once;
      if (large) over->large_.push_back(rank_);
      comm::control_send(
          over->over_, out_, rank_, tag,
          [self = this->shared_from_this(), this, over, large](std::error_code failed) {
            if (large) std::erase(over->large_, rank_);
            over->sent();
            busy_ = false;
            if (!closed_ && (failed || left_.empty())) return written(failed);
            if (!failed) next_piece();
          });
      if (large) over->keep_awake();
    }

    std::weak_ptr<mpi_transport> over_;
    int rank_;
    std::vector<asio::const_buffer> left_;  // of what is to be written
    std::vector<std::byte> out_;            // under way
    bool busy_ = false;
    bool closed_ = false;
    bool ended_said_ = false;  // the empty message
  };

  [[nodiscard]] asio::io_context& context() const { return over_.get_executor().context(); }

  void receive() {
    comm::control_recv(over_, buffer_, any_source, tag,
                       asio::bind_cancellation_slot(
                           cancel_.slot(), [self = this->shared_from_this()](std::error_code failed,
                                                                             const status& what) {
                             self->received(failed, what);
                           }));
  }
  void received(std::error_code failed, const status& what) {
    if (failed) {
      receiving_ = false;
      if (!stopping_) {
        const auto links = links_;
        for (const auto& each : links) each.second->deliver(failed, {});
      }
      return changed_.notify();
    }
    attention_.pay();
    const int rank = what.source();
    const std::size_t size = what.bytes();
    if (size == 0) {
      ended_.insert(rank);
      changed_.notify();
    }
    const bool known = knows(rank);
    if (!stopping_ && (known || on_contact_)) {
      const std::shared_ptr<link> from = to(rank);
      if (!known) on_contact_(rank, from);
      static_cast<rank_link&>(*from).deliver(
          size == 0 ? make_error_code(asio::error::eof) : std::error_code(),
          std::span(buffer_).first(size));
    }
    if (cancelled_) {
      receiving_ = false;
      return changed_.notify();
    }
    receive();
  }
  /// Rings at who receives large pieces, until these have left.
  void keep_awake() {
    for (const int rank : large_) comm::wake_receiver(over_, rank);
    if (std::exchange(ringing_, !large_.empty()) || large_.empty()) return;
    ring_.expires_after(std::chrono::milliseconds(1));
    ring_.async_wait([weak = this->weak_from_this()](std::error_code stopped) {
      const auto here = weak.lock();
      if (stopped || !here) return;
      here->ringing_ = false;
      here->keep_awake();
    });
  }
  /// A message that has been sent may still be on this side: Open MPI calls it complete when the
  /// receiver's queue is full and it waits here for room. So the engine does not sleep for good at
  /// once, but looks again after 1, 10, 100 and 1000 ms.
  void look_later() {
    pause_ = std::chrono::milliseconds(1);
    if (!std::exchange(looks_later_, true)) look_after_pause();
  }
  void look_after_pause() {
    later_.expires_after(pause_);
    later_.async_wait([weak = this->weak_from_this()](std::error_code stopped) {
      const auto here = weak.lock();
      if (!here) return;
      here->looks_later_ = false;
      if (stopped || here->cancelled_) return;
      here->look();
      if (here->pause_ >= std::chrono::seconds(1)) return;
      here->pause_ *= 10;
      here->looks_later_ = true;
      here->look_after_pause();
    });
  }
  void sent() {
    if (--sending_ == 0 && stopping_) changed_.notify();
  }

  communicator over_;
  std::size_t max_message_;
  std::vector<std::byte> buffer_;
  event changed_;
  attention& attention_;
  asio::cancellation_signal cancel_;
  contact_handler on_contact_;
  std::unordered_map<int, std::shared_ptr<rank_link>> links_;
  std::set<int> ended_;  // ranks that have ended their side
  asio::steady_timer ring_;
  asio::steady_timer later_;
  std::chrono::milliseconds pause_{1};
  bool looks_later_ = false;
  std::vector<int> large_;  // ranks to which a large piece is under way
  std::size_t sending_ = 0;
  bool ringing_ = false;
  bool receiving_ = false;
  bool stopping_ = false;
  bool cancelled_ = false;
};
using mpi_transport = basic_mpi_transport<void>;

}  // namespace cohort::cluster
