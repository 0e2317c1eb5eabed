// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// A channel whose messages are handed on outside of the looks.

#include <cohort/comm/channel.hpp>
#include <cohort/progress/engine.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

namespace cohort::comm {

/// For owners whose code must not run inside looks, with locks held: what it calls may block, free
/// what the look works on, or throw. All that one look has found is handed on at once, in order, by
/// the lap that the look belongs to or by the loop.
///
/// It keeps its communicator, and itself, until MPI has given back all that it had. Must be owned
/// by a shared_ptr.
///
/// *Threads.* Any may call it, but not inside looks; calls to the owner follow one another.
/// *Cost*: that of the channel, and a copy of what has come.
class mailbox final : public std::enable_shared_from_this<mailbox>, private channel::client {
 public:
  /// Hears of what happens, while it lives. What it throws leaves through `io.run()`, and the rest
  /// is handed on after that.
  class owner {
   public:
    virtual void received(int from, unsigned kind, std::span<const std::byte> message) = 0;
    /// What was sent to that rank has left, or not. For each `send`.
    virtual void sent(int to, std::error_code failed) = 0;
    /// Nothing more comes from that rank, or from any if it is -1. errc::invalid_argument: it has
    /// sent what is no message.
    virtual void failed(int peer, std::error_code why) = 0;
    /// MPI has given back what it had of an operation.
    virtual void settled() {}

   protected:
    ~owner() = default;
  };

  mailbox(communicator over, const channel_options& options)
      : over_(std::move(over)), channel_(*this, options) {}

  /// Begins to receive, from any rank of the communicator. Throws cohort::error where MPI cannot be
  /// called.
  COHORT_INLINE void open(std::weak_ptr<owner> whose);
  [[nodiscard]] bool sending(int to) const {
    const request_source::guard hold(over_.state()->source);
    return channel_.sending(to);
  }
  [[nodiscard]] bool sending() const {
    const request_source::guard hold(over_.state()->source);
    return channel_.sending();
  }
  [[nodiscard]] bool receives() const {
    const request_source::guard hold(over_.state()->source);
    return channel_.receives();
  }
  /// Sends what `write(std::vector<std::byte>&)` appends.
  /// *Requires* `open` before, and `!sending(to)`.
  template <class Write>
  void send(int to, unsigned kind, Write write) {
    {
      const request_source::guard hold(over_.state()->source);
      std::error_code why = usable();
      if (!why) {
        write(channel_.message(to));
        why = channel_.send(to, kind);
      }
      if (why || !channel_.sending(to)) note({happening::sent, to, 0, 0, why});
      keep();
    }
    engine().started();
  }
  /// See channel::send_at_once.
  COHORT_INLINE void send_at_once(int to, unsigned kind, std::span<const std::byte> message);
  /// Ends the receives. After the end of the context MPI has given them back already, or keeps
  /// them.
  COHORT_INLINE void close();

 private:
  struct happening {
    enum what_kind : std::uint8_t { nothing, message, sent, failed } what = nothing;
    int rank = -1;
    unsigned kind = 0;
    std::size_t bytes = 0;  // of the message
    std::error_code why;
  };
  class delivery;

  [[nodiscard]] progress::engine& engine() const { return over_.state()->engine; }
  COHORT_INLINE void received(int from, unsigned kind, std::span<const std::byte> bytes) override;
  COHORT_INLINE void sent(int to) override;
  COHORT_INLINE void malformed(int from, const char* what) override;
  COHORT_INLINE void failed(int peer, bool sends, std::error_code why) override;
  COHORT_INLINE void settled() override;
  [[nodiscard]] std::error_code usable() const noexcept;
  void keep();
  void note(const happening& what);
  void deliver();
  void left_over();
  void hand_on(owner& whose, const happening& what);

  communicator over_;
  std::weak_ptr<owner> owner_;
  std::shared_ptr<mailbox> self_;  // while MPI has something

  // With the guard held.
  channel channel_;
  std::vector<happening> happened_;
  std::vector<std::byte> bytes_;  // of the messages among these
  bool delivers_ = false;

  // Of the delivery that is under way.
  std::vector<happening> handed_;
  std::vector<std::byte> handed_bytes_;
  std::size_t next_ = 0;   // of these
  std::size_t begin_ = 0;  // of its bytes
};

}  // namespace cohort::comm

#ifndef COHORT_SEPARATE_COMPILATION
#include <cohort/comm/mailbox.ipp>
#endif
