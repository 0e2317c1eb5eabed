// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file A connection that carries messages both ways, over whatever carries bytes, and one within
/// a process. Bytes and strangers enter the room `link`; whole messages and proven connections
/// leave.

#include <cohort/cluster/link/message.hpp>
#include <cohort/core/asio.hpp>

#include <asio/buffer.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

namespace cohort::cluster {

/// Sends and receives messages over a stream of bytes that the derived class has: a socket that has
/// proved itself, or messages of MPI. Used by the thread that runs the context only. It keeps
/// itself alive until it has ended.
template <class Any>
class basic_link : public std::enable_shared_from_this<basic_link<Any>> {
 public:
  using message_handler = std::function<void(message&&)>;
  /// What it ended with: asio::error::eof when the other side has closed; errc::invalid_argument
  /// for bytes that are no messages. Called once, and nothing after it; not after `close`.
  using end_handler = std::function<void(std::error_code)>;

  basic_link(const basic_link&) = delete;
  basic_link& operator=(const basic_link&) = delete;
  virtual ~basic_link() = default;

  /// Begins to receive.
  void start(message_handler on_message, end_handler on_end) {
    on_message_ = std::move(on_message);
    on_end_ = std::move(on_end);
    read();
  }

  /// Never waits: the message is queued. Small ones pass large ones, but not one of their own id:
  /// what cancels a call comes after it. Does nothing after the end.
  /// Attachments are sent from where they are, and kept until they have been.
  void send(message_kind kind, std::uint64_t id, payload what = {}) {
    if (ended_) return;
    ++sent_;
    outgoing each(kind, id, std::move(what));
    if (kind == message_kind::cancel) {
      const auto before = std::find_if(large_.begin(), large_.end(), [&](const outgoing& one) {
        return one.head.id == id && one.head.kind == message_kind::call;
      });
      if (before != large_.end()) {
        if (std::exchange(before->cancelled, true)) --sent_;  // one is sent for both
        return;
      }
    }
    (each.size <= frame_limit ? small_ : large_).push_back(std::move(each));
    if (!writing_) write_next();
  }

  /// Sends this instead of all that waits to be sent, because nobody will read that.
  void send_last(message_kind kind, std::vector<std::byte> bytes) {
    drop_queue();
    send(kind, 0, std::move(bytes));
  }

  /// Closes at once; what is queued is lost.
  void close() noexcept {
    ended_ = true;
    close_stream();
    on_flushed_ = nullptr;
    drop_queue();
  }
  [[nodiscard]] bool ended() const noexcept { return ended_; }

  /// Calls the function when everything that was sent is with the operating system, or lost.
  void when_flushed(std::function<void()> function) {
    if (!writing_) return function();
    on_flushed_ = std::move(function);
  }

  /// Messages so far. The side that receives counts them after its handler.
  [[nodiscard]] std::uint64_t sent() const noexcept { return sent_; }
  [[nodiscard]] std::uint64_t received() const noexcept { return received_; }

 protected:
  explicit basic_link(std::size_t max_message) : reader_(max_message) {}

  /// Of what is read at once, in bytes.
  static constexpr std::size_t buffer_size = std::size_t{64} * 1024;

  /// Begins to wait for bytes, and calls `arrived` for them.
  virtual void read() = 0;
  /// Begins to write all of it, which stays where it is, and calls `written`.
  virtual void write(const std::vector<asio::const_buffer>& what) = 0;
  virtual void close_stream() noexcept = 0;

  /// Where the next bytes shall lie if that is somewhere; until `arrived`.
  [[nodiscard]] std::span<std::byte> room() noexcept {
    try {
      return reader_.room();
    } catch (...) {  // no memory: `arrived` will say so
      return {};
    }
  }
  /// Bytes have come, `in_room` of them to `room()` before the others, or the stream has ended.
  /// True if more are wanted.
  bool arrived(std::error_code failed, std::span<const std::byte> bytes, std::size_t in_room = 0) {
    if (ended_) {
      forget();
      return false;
    }
    if (failed) {
      end(failed);
      return false;
    }
    bool fine = false;
    try {
      const auto deliver = [this](message&& each) {
        on_message_(std::move(each));
        ++received_;
        return !ended_;
      };
      fine = reader_.feed(bytes, deliver, in_room);
    } catch (...) {  // no memory: what has been read is lost, and nobody may wait for it
      if (!ended_) end(std::make_error_code(std::errc::not_enough_memory));
      throw;
    }
    if (ended_) {
      forget();
    } else if (!fine) {
      end(errc::invalid_argument);
    }
    return !ended_;
  }

  void written(std::error_code failed) {
    writing_ = false;
    if (ended_) return;
    // A peer that is gone: the read side says so as well, after what it has sent has been read.
    if (failed) {
      drop_queue();
      if (on_flushed_) std::exchange(on_flushed_, nullptr)();
      return;
    }
    if (large_in_batch_ && !large_.empty()) {
      outgoing& each = batch_.back();
      each.cancelled = large_[turn_].cancelled;  // said in the meantime
      if (each.head.last) {
        large_.erase(large_.begin() + static_cast<std::ptrdiff_t>(turn_));
        if (each.cancelled) {
          small_.emplace_back(message_kind::cancel, each.head.id, payload());
        }
      } else {
        large_[turn_] = std::move(each);
        ++turn_;
      }
    }
    write_next();
  }

 private:
  static constexpr std::size_t batch_limit = 32;  // messages written at once

  struct outgoing {
    outgoing(message_kind kind, std::uint64_t id, payload&& from) : what(std::move(from)) {
      head.kind = kind;
      head.id = id;
      if (!what.attachments.empty()) attachment_table::append_to(what);
      size = what.size();
    }

    frame_head head;
    std::array<frame_head_bytes, 2> head_bytes{};  // a small one may have two frames
    payload what;
    std::size_t size = 0;    // of all
    std::size_t begin = 0;   // of what has not been written
    bool cancelled = false;  // that message is sent when this one is out

    /// Takes the next frame. The first ones have the bytes, the others attachments.
    void next_frame(std::vector<asio::const_buffer>& to) {
      begin += head.size;
      const bool in_bytes = begin < what.bytes.size() || size == 0;
      const std::size_t end = in_bytes ? what.bytes.size() : size;
      head.size = static_cast<std::uint32_t>(std::min(frame_limit, end - begin));
      head.last = begin + head.size == size;
      head.attached = in_bytes && begin + head.size == end && !head.last;
      frame_head_bytes& encoded = head_bytes[begin != 0 && head.last ? 1 : 0];
      encoded = encode_frame_head(head);
      to.push_back(asio::buffer(encoded));
      std::size_t skip = begin;
      std::size_t left = head.size;
      const auto add = [&](std::span<const std::byte> from) {
        const auto here = from.subspan(std::min(skip, from.size()));
        skip -= from.size() - here.size();
        const auto part = here.first(std::min(left, here.size()));
        left -= part.size();
        if (!part.empty()) to.push_back(asio::buffer(part.data(), part.size()));
      };
      add(what.bytes);
      for (const attachment_ptr& each : what.attachments) add(each->bytes());
    }
  };

  void write_next() {
    batch_.clear();
    gather_.clear();
    for (; !small_.empty() && batch_.size() < batch_limit; small_.pop_front()) {
      batch_.push_back(std::move(small_.front()));
    }
    // The first few large ones take turns. A small one of two frames may be between theirs.
    large_in_batch_ = !large_.empty();
    if (large_in_batch_) {
      if (turn_ >= std::min(large_.size(), interleaved_limit - 1)) turn_ = 0;
      batch_.push_back(std::move(large_[turn_]));
    }
    if (batch_.empty()) {
      if (on_flushed_) std::exchange(on_flushed_, nullptr)();
      return;
    }
    for (outgoing& each : batch_) {
      do {
        each.next_frame(gather_);
      } while (each.size <= frame_limit && !each.head.last);
    }
    writing_ = true;
    write(gather_);
  }

  void end(std::error_code why) {
    ended_ = true;
    close_stream();
    drop_queue();
    if (on_flushed_) std::exchange(on_flushed_, nullptr)();
    const auto on_end = std::move(on_end_);
    forget();
    if (on_end) on_end(why);
  }
  void drop_queue() noexcept {
    small_.clear();
    large_.clear();
  }
  /// The handlers may own who owns this.
  void forget() {
    on_message_ = nullptr;
    on_end_ = nullptr;
  }

  frame_reader reader_;
  message_handler on_message_;
  end_handler on_end_;
  std::function<void()> on_flushed_;
  std::deque<outgoing> small_;
  std::deque<outgoing> large_;
  std::vector<outgoing> batch_;
  std::vector<asio::const_buffer> gather_;
  std::size_t turn_ = 0;
  std::uint64_t sent_ = 0;
  std::uint64_t received_ = 0;
  bool writing_ = false;
  bool large_in_batch_ = false;  // it is the batch's last, and its place in the queue is kept
  bool ended_ = false;
};
using link = basic_link<void>;

/// One end of a pair: what is sent here arrives at the other end, by the loop.
template <class Any>
class basic_local_link final : public link {
 public:
  using local_link = basic_local_link;
  basic_local_link(asio::io_context& io, std::size_t max_message) : link(max_message), io_(io) {}

  static std::pair<std::shared_ptr<local_link>, std::shared_ptr<local_link>> pair(
      asio::io_context& io, std::size_t max_message) {
    auto one = std::make_shared<local_link>(io, max_message);
    auto two = std::make_shared<local_link>(io, max_message);
    one->other_ = two;
    two->other_ = one;
    return {std::move(one), std::move(two)};
  }

 private:
  void read() override {}
  void write(const std::vector<asio::const_buffer>& what) override {
    asio::post(io_, [self = shared_from_this(), this, &what] {
      if (const auto other = other_.lock(); other && !ended()) {
        for (const asio::const_buffer& each : what) {
          const auto* const begin = static_cast<const std::byte*>(each.data());
          if (!other->arrived({}, std::span(begin, each.size()))) break;
        }
      }
      written({});
    });
  }
  void close_stream() noexcept override {}

  asio::io_context& io_;
  std::weak_ptr<local_link> other_;
};
using local_link = basic_local_link<void>;

}  // namespace cohort::cluster
